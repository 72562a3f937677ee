// SPDX-License-Identifier: Apache-2.0
//! Checks all that a folder holds, and puts right what can be.
//!
//! Every record of every pack and every large object is hashed; rows of the index
//! are held against the packs, labels and relations against what they name. Nothing
//! is believed that can be computed. What is read is read by `pread` in pieces, for
//! a disk that fails is what this is for.
//!
//! It takes the memory of a few windows, whatever there is: that a label's closure is
//! whole follows from every tree's having its entries. Only where one has not, labels
//! are walked to say which of them are hurt ([`names`]), with a bit for 32 bytes.
//!
//! Without `repair` nothing is written, not even to the index ([`Disk::to_look`]).

mod found;
mod large;
mod names;
mod packs;
mod repair;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use objects::Handle;

use crate::disk::{Disk, Looked};
use crate::files::{Files, Kind, is_large};
use crate::index::Index;
use crate::packs::{Packs, Untouched};
use crate::{Error, Store};
pub use found::{Checked, Finding, Harm};

/// Memory for pages of the index.
pub(crate) const CACHE_BYTES: usize = 64 << 20;
/// Damaged and missing objects of which it is known which they are; more are counted only.
const KNOWN_MAX: usize = 1 << 20;
/// Who waits is told how far it is after so many bytes.
const TOLD_BYTES: u64 = 4 << 20;
/// Who reads slowly on purpose looks up so often.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// What to check, and how.
#[derive(Clone, Debug, Default)]
pub struct Check {
    /// Puts right what can be.
    pub repair: bool,
    /// A backup that has what is lost here.
    pub from: Option<PathBuf>,
    /// Reads no more than this in a second.
    pub bytes_per_second: Option<u64>,
}

/// Who waits for it.
pub struct Watch<'a> {
    /// Is told how many bytes of how many were looked at; false: it is to stop.
    pub progress: &'a mut dyn FnMut(u64, u64) -> bool,
    /// Is told what is found.
    pub found: &'a mut dyn FnMut(Finding),
}

/// Checks a home that no node uses.
///
/// # Errors
/// [`Error::Locked`] while one does; [`Error::UnknownFormat`], [`Error::OldFormat`]; those
/// of reading and writing. Damage is none.
pub fn fsck(home: &Path, check: &Check, watch: &mut Watch<'_>) -> Result<Checked, Error> {
    if check.repair { repair::repair(home, check, watch) } else { look(home, Kind::Home, check, watch) }
}

/// Checks a backup. To repair one is to move aside what is damaged in it, so that the next
/// point writes it again if the home still has it.
///
/// # Errors
/// As [`fsck`].
pub fn fsck_backup(backup: &Path, check: &Check, watch: &mut Watch<'_>) -> Result<Checked, Error> {
    if check.repair {
        repair::repair_backup(backup, check, watch)
    } else {
        look(backup, Kind::Backup, check, watch)
    }
}

impl Store {
    /// Checks what is on the disk while others work with it. Nothing is collected meanwhile,
    /// and nothing is put right.
    ///
    /// # Errors
    /// [`Error::NoDisk`]; [`Error::Collecting`]; [`Error::Stopped`]; those of reading.
    pub fn check(&self, bytes_per_second: Option<u64>, watch: &mut Watch<'_>) -> Result<Checked, Error> {
        let disk = self.disk().ok_or(Error::NoDisk)?;
        let _one = disk.collecting.try_lock().ok_or(Error::Collecting)?;
        let check = Check { bytes_per_second, ..Check::default() };
        let mut inspector = Inspector::new(Place::of(disk), &check, watch);
        inspector.leftovers()?;
        inspector.everything()?;
        Ok(inspector.checked)
    }
}

fn look(home: &Path, kind: Kind, check: &Check, watch: &mut Watch<'_>) -> Result<Checked, Error> {
    let (files, format) = Files::open_to_look(home, kind)?;
    look_at(&files, format, kind, check, watch)
}

fn look_at(
    files: &Files,
    format: Option<String>,
    kind: Kind,
    check: &Check,
    watch: &mut Watch<'_>,
) -> Result<Checked, Error> {
    let index_path = files.index_path();
    let folder = files.packs_folder();
    let packs = || Packs::open(&folder, Box::new(Untouched(folder.clone())));
    let alone = packs()?;
    // A process that ended before it made an index has not stored anything either.
    let is_new = !index_path.exists() && alone.numbers().is_empty();
    let opened = match index_path.exists() {
        true => Index::to_look(index_path.clone(), CACHE_BYTES, packs()?),
        false => Err(Error::Index { path: index_path, reason: "it is not there".to_owned() }),
    };
    let index = match opened {
        Ok(index) if index.is_sound()? => Ok(index),
        Ok(index) => Err(index.unsound()),
        Err(error @ Error::Index { .. }) => Err(error),
        Err(error) => return Err(error),
    };
    let place = match &index {
        Ok(index) => Place { files, packs: index.packs(), index: Some(index) },
        Err(_) => Place { files, packs: &alone, index: None },
    };
    let mut inspector = Inspector::new(place, check, watch);
    if let Some(format) = format {
        inspector.found(Finding::format(files, &format));
    }
    if let (Err(error), false) = (&index, is_new) {
        inspector.found(Finding::index(error));
    }
    inspector.leftovers()?;
    if let (Ok(index), Kind::Backup) = (&index, kind) {
        inspector.known = crate::backup::known_gaps(index, files)?;
    }
    inspector.everything()?;
    Ok(inspector.checked)
}

/// What is checked.
#[derive(Clone, Copy)]
struct Place<'a> {
    files: &'a Files,
    packs: &'a Packs,
    /// `None`: it is damaged, and it is not known what it said.
    index: Option<&'a Index>,
}

impl<'a> Place<'a> {
    fn of(disk: &'a Disk) -> Self {
        Self { files: disk.files(), packs: disk.index().packs(), index: Some(disk.index()) }
    }

    /// Which of these is not there; literals are, so is what was sent to the durable tier, and what was dropped
    /// if its recipe is.
    fn absent(&self, keys: impl Iterator<Item = Handle>) -> Result<Vec<Handle>, Error> {
        let Some(index) = self.index else { return Ok(Vec::new()) };
        let mut absent = Vec::new();
        let mut small = Vec::new();
        for key in keys.map(Handle::plain_tree).filter(|key| key.literal_bytes().is_none()) {
            match is_large(key) {
                true if !self.files.contains(key)? => absent.push(key),
                true => {}
                false => small.push(key),
            }
        }
        let spots = index.spots(small.iter().copied())?;
        absent.extend(small.into_iter().zip(spots).filter(|(_, spot)| spot.is_none()).map(|(key, _)| key));
        let mut gone = Vec::new();
        let rows = index.all_tiered(&absent)?;
        for (key, _) in absent.into_iter().zip(rows).filter(|(_, row)| row.is_none()) {
            let is_whole = match self.recipe(key)? {
                // A small tree, whose own entries are looked at as those of any other.
                Some(definition) => matches!(self.look(definition)?, Looked::Sound(_)),
                None => false,
            };
            gone.extend((!is_whole).then_some(key));
        }
        Ok(gone)
    }

    /// What defines the application that makes an object which was dropped.
    fn recipe(&self, key: Handle) -> Result<Option<Handle>, Error> {
        let recipe = self.index.map_or(Ok(None), |index| index.recipe(key))?;
        Ok(recipe.map(|recipe| recipe.application.definition()))
    }

    fn look(&self, key: Handle) -> Result<Looked, Error> {
        self.index.map_or(Ok(Looked::Absent), |index| crate::disk::look(index, self.files, key))
    }
}

/// One check, and what it has found so far.
struct Inspector<'a, 'w> {
    place: Place<'a>,
    watch: &'a mut Watch<'w>,
    checked: Checked,
    pace: Pace,
    /// Objects whose bytes are not theirs, or not where they should be.
    lost: BTreeSet<Handle>,
    /// What is not there, and a tree that names it.
    missing: HashMap<Handle, Handle>,
    /// Keys of rows that lead to nothing.
    nowhere: Vec<[u8; 32]>,
    /// What was missing already when a backup was made.
    known: HashSet<Handle>,
    /// Rows of the index that lead to where their objects are, sound or not.
    accounted: u64,
    /// Packs whose headers are damaged, and large objects whose outboards are.
    headers: Vec<u32>,
    outboards: Vec<Handle>,
    /// Labels and relations that say nothing, or lead to what is not there.
    bad_labels: Vec<String>,
    bad_relations: Vec<[u8; 32]>,
}

impl<'a, 'w> Inspector<'a, 'w> {
    fn new(place: Place<'a>, check: &Check, watch: &'a mut Watch<'w>) -> Self {
        Self {
            place,
            watch,
            checked: Checked::default(),
            pace: Pace::new(check.bytes_per_second),
            lost: BTreeSet::new(),
            missing: HashMap::new(),
            nowhere: Vec::new(),
            known: HashSet::new(),
            accounted: 0,
            headers: Vec::new(),
            outboards: Vec::new(),
            bad_labels: Vec::new(),
            bad_relations: Vec::new(),
        }
    }

    /// All passes, one after another.
    fn everything(&mut self) -> Result<(), Error> {
        if let Some(index) = self.place.index {
            index.settle()?;
        }
        self.pace.all = self.place.packs.bytes() + self.place.files.large_bytes()?;
        self.scan_packs()?;
        self.scan_rows()?;
        self.scan_large()?;
        self.names()
    }

    fn leftovers(&mut self) -> Result<(), Error> {
        let [(temporary, temporary_bytes), (quarantined, quarantined_bytes)] =
            self.place.files.leftovers()?;
        self.checked.temporary = temporary;
        self.checked.temporary_bytes = temporary_bytes;
        self.checked.quarantined = quarantined;
        self.checked.quarantined_bytes = quarantined_bytes;
        Ok(())
    }

    fn found(&mut self, finding: Finding) {
        self.checked.count(&finding);
        (self.watch.found)(finding);
    }

    /// An object is not what it should be.
    fn lose(&mut self, key: Handle) {
        if self.lost.len() < KNOWN_MAX {
            self.lost.insert(key);
        } else {
            self.checked.is_cut = true;
        }
    }

    /// A tree names what is not there.
    fn miss(&mut self, key: Handle, tree: Handle) {
        if self.known.contains(&key) || self.missing.contains_key(&key) {
            return;
        }
        if self.missing.len() < KNOWN_MAX {
            self.missing.insert(key, tree);
        } else {
            self.checked.is_cut = true;
        }
    }

    /// So many bytes more were looked at.
    fn advance(&mut self, bytes: u64) -> Result<(), Error> {
        self.pace.done += bytes;
        loop {
            let pause = self.pace.pause();
            if (self.pace.is_news() || !pause.is_zero())
                && !(self.watch.progress)(self.pace.done, self.pace.all)
            {
                return Err(Error::Stopped);
            }
            if pause.is_zero() {
                return Ok(());
            }
            // Who does not wait any more is not waited for.
            std::thread::sleep(pause.min(PAUSE_MAX));
        }
    }
}

/// How far it is, and how quickly it may go on.
struct Pace {
    done: u64,
    all: u64,
    told: u64,
    bytes_per_second: Option<u64>,
    begun: Instant,
}

impl Pace {
    fn new(bytes_per_second: Option<u64>) -> Self {
        Self { done: 0, all: 0, told: 0, bytes_per_second, begun: Instant::now() }
    }

    /// How long it is until more may be read.
    fn pause(&self) -> Duration {
        let rate = self.bytes_per_second.filter(|rate| *rate > 0);
        let due = rate
            .map(|rate| Duration::try_from_secs_f64(self.done as f64 / rate as f64).unwrap_or(Duration::MAX));
        due.map_or(Duration::ZERO, |due| due.saturating_sub(self.begun.elapsed()))
    }

    fn is_news(&mut self) -> bool {
        let is_news = self.done >= self.told + TOLD_BYTES;
        if is_news {
            self.told = self.done;
        }
        is_news
    }
}

#[cfg(test)]
mod tests;
