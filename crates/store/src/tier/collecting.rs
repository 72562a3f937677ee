// SPDX-License-Identifier: Apache-2.0
//! Takes away from the tier what nobody needs, as [`crate::collect`] does on the disk.
//!
//! Needed is what [`super::reach`] finds. What is in the tier and has no row here, since somebody was
//! killed, is learnt first, and is young then. The rest goes for everybody at one moment ([`Sentence`]), for
//! which those who put, rely on something or write labels are kept out, and then pack by pack ([`super::sweeping`]).
//!
//! While it goes, `collecting/HOME` is there, which whoever takes the tier waits for: what it is about to learn
//! is not removed behind its back.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use objects::Handle;

use super::Taken;
use super::far::{AloneWanted, Far, Halt};
use super::form::{self, LABELS, Names, OBJECTS, PACKS, collecting_name, labels_name, labels_number};
use super::owning::{self, LABELS_BYTES_MAX};
use super::publishing::{self, PUBLISHED};
use super::reach::Reach;
use super::rows::ROWS;
use super::sentence::{PackName, Sentence, Survey};
use crate::disk::Disk;
use crate::files::object_len;
use crate::index::{Batch, Place, seconds};
use crate::{Error, Object, Store};

/// So often it is looked again what has become needed meanwhile.
const ROUNDS: usize = 16;
/// Somebody who wants it to stop is heard so often while it waits for labels.
const WAITED: Duration = Duration::from_millis(100);

/// What a collection of the tier is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierCollection {
    /// What was put or relied on since then stays, named or not; [`crate::Collection::KEPT_MIN`] at least.
    pub kept: Duration,
    /// Only says what would go.
    pub is_trial: bool,
}

/// What a collection of the tier found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierCollected {
    /// Objects that went, or would go.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that stay.
    pub kept_objects: u64,
    /// Objects that nobody needs, and that stay since most of their pack is needed.
    pub idle_objects: u64,
    /// Packs that went, or would go.
    pub packs: u64,
    /// Bytes of them that were written anew, or would be.
    pub moved_bytes: u64,
    /// Objects that had no row here: of one who was killed. They may go from the next collection on.
    pub found: u64,
    /// Packs whose beginning, or an object of which, is damaged there: they stay.
    pub damaged: u64,
}

/// How far a collection of the tier is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierProgress {
    /// It has decided what goes; before that it looks for what is needed.
    pub is_sweeping: bool,
    /// Packs and large objects that were dealt with.
    pub done: u64,
    /// All that are to be.
    pub all: u64,
}

/// Names in the tier that no row is for.
#[derive(Default)]
pub(super) struct Bare {
    /// Packs all of whose objects are elsewhere.
    pub(super) packs: Vec<PackName>,
    /// Large objects of which only the outboard is there.
    pub(super) outboards: Vec<Handle>,
}

impl Store {
    /// Takes away from the tier what no label names, what this home has not, and what was neither put nor
    /// relied on for the time that is said. `under_way` names what requests need; it is asked more than once.
    /// Takes as long as the tier does; who puts or reads does not wait for it.
    ///
    /// # Errors
    /// [`Error::NoTier`]; [`Error::Collecting`]; [`Error::Stopped`] by [`Store::stop_collecting`];
    /// [`Error::Tier`] if it is another home's, is being taken, or does not answer; [`Error::Far`] if a tree is
    /// damaged there, so that nobody knows what it needs. What is needed is there in any case, and what was left over goes with the next one.
    pub fn collect_tier(
        &self,
        collection: TierCollection,
        under_way: &dyn Fn() -> Vec<Handle>,
    ) -> Result<TierCollected, Error> {
        let disk = self.disk().ok_or(Error::NoTier)?;
        let before = disk.before(collection.kept.max(crate::Collection::KEPT_MIN));
        self.collect_tier_before(before, collection.is_trial, under_way)
    }

    /// [`Store::collect_tier`] of what is older than some moment.
    pub(crate) fn collect_tier_before(
        &self,
        before: SystemTime,
        is_trial: bool,
        under_way: &dyn Fn() -> Vec<Handle>,
    ) -> Result<TierCollected, Error> {
        let (Some(disk), Some(far)) = (self.disk(), self.far()) else { return Err(Error::NoTier) };
        let _one = disk.collecting.try_lock().ok_or(Error::Collecting)?;
        let _still = far.collecting.try_lock().ok_or(Error::Collecting)?;
        disk.stops_collecting.store(false, Ordering::Relaxed);
        if disk.index().tiered_len()? == 0 {
            return Ok(TierCollected::default());
        }
        let _noting = Noting::begin(far);
        let collector = Collector { store: self, disk, far, under_way, is_trial };
        collector.run(before)
    }
}

/// While it lives, it is noted what others rely on, and told how far this is.
struct Noting<'a>(&'a Far);

impl<'a> Noting<'a> {
    fn begin(far: &'a Far) -> Self {
        *far.relied.lock() = Some(Vec::new());
        *far.collection.lock() = Some(TierProgress::default());
        Self(far)
    }
}

impl Drop for Noting<'_> {
    fn drop(&mut self) {
        *self.0.relied.lock() = None;
        *self.0.collection.lock() = None;
    }
}

struct Collector<'a> {
    store: &'a Store,
    disk: &'a Disk,
    far: &'a Far,
    under_way: &'a dyn Fn() -> Vec<Handle>,
    is_trial: bool,
}

impl Collector<'_> {
    fn run(&self, before: SystemTime) -> Result<TierCollected, Error> {
        let Self { disk, far, .. } = *self;
        self.own()?;
        let mut taken = Taken::default();
        let bare = if self.is_trial { Bare::default() } else { self.find_bare(&mut taken)? };
        let mut reach = Reach::new(self.store, disk, far);
        let mut labels = self.mark_labels(&mut reach)?;
        let before_s = seconds(before);
        reach.mark_young(before_s)?;
        let end = {
            // Where everything is that was written before.
            let _alone = disk.alone();
            disk.index().packs().end()
        };
        reach.mark_home(self.under_way, end, false)?;
        reach.read_pending()?;
        let survey = self.survey(&reach, before_s)?;
        let collected = TierCollected { found: taken.objects, damaged: taken.damaged, ..survey.told() };
        if self.is_trial || (survey.is_empty() && bare.packs.is_empty() && bare.outboards.is_empty()) {
            return Ok(collected);
        }
        let Some(home) = owning::noted_home(disk)? else { return Err(Error::NoTier) };
        let name = collecting_name(&home);
        far.ask(|depot| depot.put(&name, &Object::copy_of(b"")))?;
        // Who takes it from now on waits; who has taken it before is found out now.
        let swept = self.own().and_then(|()| {
            owning::count_collection(disk, far, &home)?;
            let sentence = self.settle(reach, survey, before_s, &mut labels)?;
            let swept = super::sweeping::sweep(disk, far, &sentence, &bare);
            // What is left is there as before.
            far.pass(None);
            swept
        });
        // Whoever waits for it goes on; if this fails it goes on a while later.
        let is_over = far.ask(|depot| depot.remove(&name));
        let swept = swept?;
        is_over?;
        Ok(TierCollected {
            found: collected.found,
            damaged: collected.damaged + swept.damaged,
            kept_objects: collected.kept_objects,
            idle_objects: collected.idle_objects,
            ..swept
        })
    }

    /// Makes certain now that the tier is this home's.
    fn own(&self) -> Result<(), Error> {
        self.far.progress.lock().owned = None;
        owning::ensure(self.disk, self.far).map_err(|halt| self.far.halted(halt))
    }

    /// Marks what the newest labels there name; their number.
    fn mark_labels(&self, reach: &mut Reach<'_>) -> Result<u64, Error> {
        let Self { disk, far, .. } = *self;
        let refuse = |why: String| Error::Tier { tier: far.depot.name(), why };
        let names = far.all(LABELS)?;
        let newest = names.iter().filter_map(|name| labels_number(name)).max();
        let known = published(disk)?;
        let Some(newest) = newest else { return Ok(known) };
        if newest > known {
            return Err(refuse(format!(
                "{} are newer than the labels of this home: a copy of it writes there too, and what that has sent is not known here",
                labels_name(newest)
            )));
        }
        let bytes = far.ask(|depot| depot.get(&labels_name(newest), 0..LABELS_BYTES_MAX))?;
        let Some(Names { labels, recipes }) = bytes.and_then(|bytes| Names::from_bytes(&bytes)) else {
            // They are written anew.
            publishing::note(disk, known.to_le_bytes().to_vec())?;
            far.note_label();
            let name = labels_name(newest);
            return Err(refuse(format!("{name} are damaged there: they are written anew, then try again")));
        };
        reach.mark(labels.into_iter().map(|(_, handle)| handle))?;
        reach.mark(recipes.into_iter().flat_map(|(key, recipe)| [key, recipe.application]))?;
        Ok(known)
    }

    /// Learns what is there without a row, and finds what is of no use to anybody.
    fn find_bare(&self, taken: &mut Taken) -> Result<Bare, Error> {
        let Self { disk, far, .. } = *self;
        let mut known = HashSet::new();
        disk.index().visit_tiered(ROWS, |rows| {
            known.extend(rows.iter().filter_map(|(_, row)| row.place.pack()));
            Ok(())
        })?;
        let mut bare = Bare::default();
        far.visit(PACKS, |names| {
            let found = names.iter().filter_map(|name| form::named_pack(name));
            for pack in found.filter(|pack| !known.contains(pack)) {
                let Some(contents) = far.table(&pack)? else {
                    taken.damaged += 1;
                    continue;
                };
                let before = taken.objects;
                let row = |(key, offset)| (key, Place::Packed { pack, offset });
                far.adopt(disk, contents.into_iter().map(row), taken)?;
                if taken.objects == before {
                    bare.packs.push(pack);
                }
            }
            Ok(())
        })?;
        far.visit(OBJECTS, |names| {
            let keys = names.iter().filter_map(|name| form::named(name));
            far.adopt(disk, keys.map(|key| (key, Place::Lone)), taken)?;
            let keys: Vec<Handle> = names.iter().filter_map(|name| form::named_outboard(name)).collect();
            let rows = disk.index().all_tiered(&keys)?;
            bare.outboards
                .extend(keys.iter().zip(rows).filter(|(_, row)| row.is_none()).map(|(key, _)| *key));
            Ok(())
        })?;
        Ok(bare)
    }

    /// Counts what is needed of each pack. Of what is not, nothing says any more that all it names is there.
    fn survey(&self, reach: &Reach<'_>, before_s: u32) -> Result<Survey, Error> {
        let Self { disk, far, .. } = *self;
        let mut survey = Survey::default();
        disk.index().visit_tiered(ROWS, |rows| {
            let mut torn = Vec::new();
            for (key, row) in rows {
                // What was sent, or put again, since this began, was perhaps not met.
                let is_live = row.since_s >= before_s || reach.marks().has(*key, row.place);
                survey.add(*key, row, is_live);
                torn.extend((!is_live && row.is_whole).then_some(*key));
            }
            if self.is_trial || torn.is_empty() {
                return Ok(());
            }
            far.change_rows(disk, &torn, Batch::default(), |_, row| {
                row.map(|row| crate::index::Tiered { is_whole: false, ..row })
            })
        })?;
        Ok(survey)
    }

    /// From the end of this on, what is not needed is gone.
    fn settle(
        &self,
        mut reach: Reach<'_>,
        survey: Survey,
        before_s: u32,
        labels: &mut u64,
    ) -> Result<Arc<Sentence>, Error> {
        let Self { disk, far, .. } = *self;
        for _ in 0..ROUNDS {
            let alone_wanted = AloneWanted::by(far);
            let publishing = loop {
                if let Some(publishing) = far.publishing.try_write_for(WAITED) {
                    break publishing;
                }
                if disk.stops_collecting.load(Ordering::Relaxed) {
                    return Err(Error::Stopped);
                }
            };
            drop(alone_wanted);
            let alone = disk.alone();
            if published(disk)? == *labels {
                reach.mark_home(self.under_way, disk.index().packs().end(), true)?;
                if reach.is_settled() {
                    let packs = survey.doomed();
                    let sentence = Arc::new(Sentence::new(packs, survey.lone, reach.into_marks(), before_s));
                    self.forget(&sentence)?;
                    far.pass(Some(Arc::clone(&sentence)));
                    return Ok(sentence);
                }
            }
            drop((alone, publishing));
            // Nobody waits while this is read.
            *labels = self.mark_labels(&mut reach)?;
            reach.read_pending()?;
        }
        let why = "too much has become needed while it was looked for: nothing went, try again".to_owned();
        Err(Error::Tier { tier: far.depot.name(), why })
    }
}

impl Collector<'_> {
    /// What goes and has left the disk before is not durable any more, wherever memory still has it.
    fn forget(&self, sentence: &Sentence) -> Result<(), Error> {
        for key in sentence.lone() {
            if !self.disk.files().contains(key)? {
                self.store.memory.expel(key);
            }
        }
        Ok(())
    }
}

/// The greatest number under which this home has written labels, or was about to.
fn published(disk: &Disk) -> Result<u64, Error> {
    let note = disk.index().tier_note(PUBLISHED)?;
    Ok(note.and_then(|note| Some(u64::from_le_bytes(*note.first_chunk()?))).unwrap_or_default())
}

impl Survey {
    fn add(&mut self, key: Handle, row: &crate::index::Tiered, is_live: bool) {
        let len = object_len(key);
        let Place::Packed { pack, offset } = row.place else {
            self.kept_lone += u64::from(is_live);
            if !is_live {
                self.lone.insert(key);
            }
            return;
        };
        let tally = self.packs.entry(pack).or_default();
        tally.len = tally.len.max(u64::from(offset) + len);
        if is_live {
            tally.live += 1;
            tally.live_bytes += len;
        } else {
            tally.dead += 1;
            tally.dead_bytes += len;
        }
    }

    fn is_empty(&self) -> bool {
        self.lone.is_empty() && !self.packs.values().any(|tally| tally.is_doomed())
    }

    fn doomed(&self) -> HashSet<PackName> {
        self.packs.iter().filter(|(_, tally)| tally.is_doomed()).map(|(pack, _)| *pack).collect()
    }

    fn told(&self) -> TierCollected {
        let mut told = TierCollected { kept_objects: self.kept_lone, ..TierCollected::default() };
        for tally in self.packs.values() {
            told.kept_objects += tally.live;
            if tally.is_doomed() {
                told.objects += tally.dead;
                told.bytes += tally.dead_bytes;
                told.packs += 1;
                told.moved_bytes += tally.live_bytes;
            } else {
                told.idle_objects += tally.dead;
            }
        }
        told.objects += self.lone.len() as u64;
        told.bytes += self.lone.iter().map(|key| object_len(*key)).sum::<u64>();
        told
    }
}

impl Far {
    pub(super) fn halted(&self, halt: Halt) -> Error {
        let (Halt::Later(why) | Halt::Refused(why) | Halt::Object(_, why)) = halt;
        Error::Tier { tier: self.depot.name(), why }
    }
}
