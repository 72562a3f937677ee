// SPDX-License-Identifier: Apache-2.0
//! Whose tier it is. One home sends to it; another one that is to go on with it takes it, and
//! learns what is there.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::far::{AloneWanted, Far, Halt};
use super::form::{
    self, COLLECTING, COUNT_BYTES_MAX, FORMAT, FORMAT_BYTES_MAX, Format, LABELS, Names, Owner,
    collected_name, collecting_name, format_text, labels_number, parse_format,
};
use super::publishing::PUBLISHED;
use super::rows::ROWS;
use super::{Taken, depot::Depot};
use crate::disk::Disk;
use crate::index::Batch;
use crate::{Error, Object, Store};

/// Which tier the home's rows are of, and who the home is.
const TIER: &str = "tier";
const HOME: &str = "home";
/// It is being taken: what is there is not all known yet.
const TAKING: &str = "taking";
/// How often this home has taken things away there.
const COLLECTIONS: &str = "collections";
/// For so long it is not asked again.
const OWNED: Duration = Duration::from_secs(10);
/// Begins the names of labels whose own names mean something else in a tier that was taken.
const BEFORE: &str = "before-take/";
/// How often it is looked whether somebody is still taking things away.
const POLLED: Duration = Duration::from_millis(250);
/// All labels of the largest home, and recipes.
pub(super) const LABELS_BYTES_MAX: u64 = 512 << 20;

/// Makes certain that the tier is this home's, and makes one where there is none.
pub(super) fn ensure(disk: &Disk, far: &Far) -> Result<(), Halt> {
    if far.progress.lock().owned.is_some_and(|since| since.elapsed() < OWNED) {
        return Ok(());
    }
    let _one = far.taking.lock();
    let text = far.depot.get(FORMAT, 0..FORMAT_BYTES_MAX)?;
    let known = known(disk)?;
    // Until it is found to be so.
    far.is_trusted.store(false, Ordering::Relaxed);
    match (text.as_deref().map(parse_format), known) {
        (Some(Format::Ours(owner)), Some(known)) if owner == known => compare(disk, far, &owner)?,
        (Some(Format::Ours(_)), _) => {
            return Err(Halt::Refused(
                "another home owns it: `sinew tier --take` goes on with it here, and the other one sends nothing any more"
                    .to_owned(),
            ));
        }
        (Some(Format::Unknown(found)), _) => {
            return Err(Halt::Refused(format!(
                "its FORMAT says {found:?}, this version reads \"sinew-tier 1\": name another prefix, or run the version that wrote it"
            )));
        }
        (None, known) => begin(disk, far, known)?,
    }
    far.progress.lock().owned = Some(Instant::now());
    far.is_trusted.store(true, Ordering::Relaxed);
    Ok(())
}

/// What this home has taken away there is counted, there and here: where the count there is ahead, rows say of
/// things that they are there which are not. A machine may be set back with its memory, so that this is looked
/// at each time. What is no number is ahead of any.
fn compare(disk: &Disk, far: &Far, owner: &Owner) -> Result<(), Halt> {
    let known = collections(disk)?;
    let there = far.depot.get(&collected_name(&owner.home), 0..COUNT_BYTES_MAX)?;
    if form::count(there.as_deref()).is_none_or(|there| there > known) {
        return Err(Halt::Refused(
            "this home's disk was set back to an older state, and things have gone from there since: `sinew tier --take` finds out which"
                .to_owned(),
        ));
    }
    Ok(())
}

/// How often this home has taken things away there, as its disk knows.
fn collections(disk: &Disk) -> Result<u64, Error> {
    let note = disk.index().tier_note(COLLECTIONS)?;
    Ok(note.and_then(|note| Some(u64::from_le_bytes(*note.first_chunk()?))).unwrap_or_default())
}

/// From now on things go from there, or have gone while it was another home's: whoever has an older state of this
/// disk is to find that out. Here first, so that the count there is never ahead of a disk that was not set back.
pub(super) fn count_collection(disk: &Disk, far: &Far, home: &[u8; 16]) -> Result<(), Error> {
    let there = far.ask(|depot| depot.get(&collected_name(home), 0..COUNT_BYTES_MAX))?;
    let number = collections(disk)?.max(form::count(there.as_deref()).unwrap_or_default()).saturating_add(1);
    let tier_notes = vec![(COLLECTIONS, number.to_le_bytes().to_vec())];
    disk.committer().commit(Batch { tier_notes, ..Batch::default() })?;
    far.ask(|depot| depot.put(&collected_name(home), &Object::copy_of(format!("{number}\n").as_bytes())))
}

/// Makes a tier where there is none.
fn begin(disk: &Disk, far: &Far, known: Option<Owner>) -> Result<(), Halt> {
    if disk.index().tiered_len()? > 0 {
        return Err(Halt::Refused(
            "there is no FORMAT, but this home has sent objects: name the place where they are".to_owned(),
        ));
    }
    // What one lost has a form that nobody knows.
    if !far.depot.list("", "")?.is_empty() {
        return Err(Halt::Refused(
            "there is no FORMAT, and something else: name a prefix below which nothing is".to_owned(),
        ));
    }
    let owner = match known {
        Some(owner) => owner,
        None => Owner { tier: random(), home: home(disk)? },
    };
    // First here: if this ends now, the next try finds its own.
    note(disk, owner)?;
    far.depot.put(FORMAT, &Object::copy_of(format_text(&owner).as_bytes()))?;
    let text = far.depot.get(FORMAT, 0..FORMAT_BYTES_MAX)?.unwrap_or_default();
    if parse_format(&text) != Format::Ours(owner) {
        return Err(Halt::Later("another home began it at the same time".to_owned()));
    }
    Ok(())
}

/// Who this home is to this tier, unless it has begun to take it and not ended.
fn known(disk: &Disk) -> Result<Option<Owner>, Error> {
    let is_taking = disk.index().tier_note(TAKING)?.is_some_and(|note| !note.is_empty());
    if is_taking { Ok(None) } else { noted(disk) }
}

fn take_up(disk: &Disk, is_taking: bool) -> Result<(), Error> {
    let tier_notes = vec![(TAKING, vec![1; usize::from(is_taking)])];
    disk.committer().commit(Batch { tier_notes, ..Batch::default() }).map(drop)
}

fn noted(disk: &Disk) -> Result<Option<Owner>, Error> {
    let id = |name| Ok::<_, Error>(disk.index().tier_note(name)?.and_then(|id| id.try_into().ok()));
    Ok(id(TIER)?.zip(id(HOME)?).map(|(tier, home)| Owner { tier, home }))
}

/// Who this home is, if it has ever had a tier.
pub(super) fn noted_home(disk: &Disk) -> Result<Option<[u8; 16]>, Error> {
    Ok(noted(disk)?.map(|owner| owner.home))
}

/// Who this home is; it is one from now on.
fn home(disk: &Disk) -> Result<[u8; 16], Error> {
    let known = disk.index().tier_note(HOME)?.and_then(|id| id.try_into().ok());
    Ok(known.unwrap_or_else(random))
}

fn note(disk: &Disk, owner: Owner) -> Result<(), Error> {
    let tier_notes = vec![(TIER, owner.tier.to_vec()), (HOME, owner.home.to_vec())];
    disk.committer().commit(Batch { tier_notes, ..Batch::default() }).map(drop)
}

/// A number that nobody else draws.
fn random() -> [u8; 16] {
    // The standard library's only door to the kernel's random numbers.
    let words = [RandomState::new(), RandomState::new()].map(|state| {
        let mut hasher = state.build_hasher();
        hasher.write_u64(0);
        hasher.finish().to_le_bytes()
    });
    let mut id = [0; 16];
    id.copy_from_slice(words.as_flattened());
    id
}

impl Store {
    /// Takes the tier over, whoever owns it, and learns what is there: its labels that this home
    /// has not, and where objects are, which come when they are read. The home that owned it sends
    /// nothing any more. If it is broken off it can be done again.
    ///
    /// # Errors
    /// [`Error::NoTier`]; [`Error::Tier`] if it cannot be taken; those of writing.
    pub fn take_tier(&self) -> Result<Taken, Error> {
        let (Some(disk), Some(far)) = (self.disk(), self.far()) else { return Err(Error::NoTier) };
        let refuse = |why: String| Error::Tier { tier: far.depot.name(), why };
        let _still = far.collecting.try_lock().ok_or_else(|| {
            refuse("this node takes away there what nobody needs: wait for it, or have it end by `sinew gc --stop`".to_owned())
        })?;
        // Whoever has read the labels of this home before it has those of the tier writes them before, or sees
        // that the tier is another's: they would take the place of the tier's.
        let _alone_wanted = AloneWanted::by(far);
        let _alone = far.publishing.write();
        // What is sent was to be sent before; who is about to waits, and looks anew from where it begins.
        far.is_taken.store(true, Ordering::Relaxed);
        let _no_packs = far.sending_packs.lock();
        far.is_taken.store(false, Ordering::Relaxed);
        let _one = far.taking.lock();
        far.progress.lock().owned = None;
        let text = far.ask(|depot| depot.get(FORMAT, 0..FORMAT_BYTES_MAX))?;
        let found = match text.as_deref().map(parse_format) {
            Some(Format::Ours(owner)) => owner,
            Some(Format::Unknown(found)) => {
                return Err(refuse(format!(
                    "its FORMAT says {found:?}, this version reads \"sinew-tier 1\""
                )));
            }
            None => {
                return Err(refuse(
                    "there is no FORMAT: nothing is there to be taken, and a node begins one by itself"
                        .to_owned(),
                ));
            }
        };
        if noted(disk)?.is_some_and(|known| known.tier != found.tier) && disk.index().tiered_len()? > 0 {
            return Err(refuse(
                "this home has sent objects to another tier: take this one with an empty home".to_owned(),
            ));
        }
        let owner = Owner { tier: found.tier, home: home(disk)? };
        // Until it is known what is there, this home is not the owner that it knows, also if it was once.
        take_up(disk, true)?;
        far.ask(|depot| depot.put(FORMAT, &Object::copy_of(format_text(&owner).as_bytes())))?;
        far.wait_for_collector(&owner)?;
        let mut taken = Taken::default();
        for key in far.adopt_all(disk, &mut taken)? {
            // What was there only is not durable any more, wherever memory still has it.
            if !disk.contains(key)? {
                self.memory.expel(key);
            }
        }
        self.adopt_labels(disk, far, &mut taken)?;
        count_collection(disk, far, &owner.home)?;
        note(disk, owner)?;
        take_up(disk, false)?;
        far.is_trusted.store(true, Ordering::Relaxed);
        far.is_well();
        far.note_label();
        Ok(taken)
    }

    fn adopt_labels(&self, disk: &Disk, far: &Far, taken: &mut Taken) -> Result<(), Error> {
        let names = far.all(LABELS)?;
        let numbers = names.iter().filter_map(|name| labels_number(name));
        let Some(number) = numbers.max() else { return Ok(()) };
        let bytes = far.ask(|depot| depot.get(&form::labels_name(number), 0..LABELS_BYTES_MAX))?;
        let read = bytes.and_then(|bytes| Names::from_bytes(&bytes));
        let Names { labels, recipes } = read.ok_or_else(|| Error::Tier {
            tier: far.depot.name(),
            why: format!("{} is damaged there", form::labels_name(number)),
        })?;
        let mut missing = Vec::new();
        for (key, recipe) in recipes {
            if !disk.has(key)? {
                missing.push((key, Some(recipe)));
            }
        }
        for recipes in missing.chunks(ROWS) {
            disk.committer().commit(Batch { recipes: recipes.to_vec(), ..Batch::default() })?;
        }
        for (name, handle) in labels {
            let before = disk.index().label(&name)?;
            if before == Some(handle) {
                continue;
            }
            if let Some(before) = before {
                // Somebody relies on what the tier has; and nothing of this home is lost.
                disk.write_label(&format!("{BEFORE}{name}"), Some(before))?;
                taken.replaced += 1;
            }
            disk.write_label(&name, Some(handle))?;
            taken.labels += 1;
        }
        // Its number is the last one that was used.
        let tier_notes = vec![(PUBLISHED, number.to_le_bytes().to_vec())];
        disk.committer().commit(Batch { tier_notes, ..Batch::default() }).map(drop)
    }
}

impl Far {
    /// What the depot says.
    pub(super) fn ask<T>(
        &self,
        ask: impl FnOnce(&dyn Depot) -> Result<T, super::DepotError>,
    ) -> Result<T, Error> {
        ask(&*self.depot).map_err(|error| Error::Tier { tier: self.depot.name(), why: error.to_string() })
    }

    /// Whoever owned it until now may be taking things away: what is there is known when it has ended.
    fn wait_for_collector(&self, owner: &Owner) -> Result<(), Error> {
        let until = Instant::now() + self.options.collector_patience;
        loop {
            let mut names = self.all(COLLECTING)?;
            // One of its own was killed.
            names.retain(|name| *name != collecting_name(&owner.home));
            if names.is_empty() {
                return Ok(());
            }
            if Instant::now() >= until {
                return names.iter().try_for_each(|name| self.ask(|depot| depot.remove(name)));
            }
            std::thread::sleep(POLLED);
        }
    }

    /// All names that begin so.
    pub(super) fn all(&self, begin: &str) -> Result<Vec<String>, Error> {
        let mut all = Vec::new();
        self.visit(begin, |names| {
            all.extend_from_slice(names);
            Ok(())
        })?;
        Ok(all)
    }

    pub(super) fn visit(
        &self,
        begin: &str,
        mut found: impl FnMut(&[String]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut after = String::new();
        loop {
            let names = self.ask(|depot| depot.list(begin, &after))?;
            let Some(last) = names.last().filter(|last| **last > after).cloned() else { return Ok(()) };
            found(&names)?;
            after = last;
        }
    }
}
