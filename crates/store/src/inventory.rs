// SPDX-License-Identifier: Apache-2.0
//! What is stored, page by page, in the order of handles.
//!
//! Each place where objects are is looked through for the next ones, and a page of
//! them is held, never all. Nothing is locked from one page to the next: what is put
//! or collected meanwhile may be told or not, and what is there all the time is told
//! once.

use std::collections::BTreeMap;

use objects::{Handle, Kind};

use crate::disk::Disk;
use crate::files::{LARGE_BYTES, is_large, object_len};
use crate::index::{ROWS, Rows};
use crate::memory::{PASSING, STORED};
use crate::packs::Spot;
use crate::{Error, Store};

/// Rows of one table that are looked at for a page: where few are sought, it ends there.
const ROWS_MAX: usize = if cfg!(test) { 2 * ROWS } else { 64 << 10 };

/// Which of the stored objects to tell.
#[derive(Clone, Copy, Debug)]
pub struct Sought {
    /// Only those behind this one, in the order of handles.
    pub after: Option<Handle>,
    /// So many, and one at least.
    pub limit: usize,
    /// Only blobs, or only trees.
    pub kind: Option<Kind>,
    /// Only those of so many bytes.
    pub bytes_min: u64,
}

/// Where an object is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kept {
    /// In memory, and not on the disk.
    Memory,
    /// On the disk.
    Disk,
    /// In the durable tier only.
    Tier,
    /// Nowhere: it was dropped, and is made again when somebody reads it.
    Dropped,
}

/// An object of the inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// It, a blob or a tree.
    pub handle: Handle,
    /// How long it is.
    pub bytes: u64,
    /// Where it is.
    pub kept: Kept,
    /// The durable tier has it, as far as is known.
    pub is_tiered: bool,
    /// For all that is known, somebody has put it or relies on it. Others the node has
    /// written, or only keeps in memory, by itself.
    pub is_promised: bool,
}

/// A page of the inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// In the order of handles; fewer than were sought where it took long to find them.
    pub objects: Vec<Stored>,
    /// The next page begins behind this one; `None`: there is none.
    pub next: Option<Handle>,
}

/// Where an object was seen.
#[derive(Default)]
struct Seen {
    /// The flags that it has in memory.
    memory: Option<u8>,
    spot: Option<Spot>,
    has_file: bool,
    is_tiered: bool,
    has_recipe: bool,
}

/// The first objects behind `after` that were seen, and where.
struct Gathering<'a> {
    sought: &'a Sought,
    /// As many as are sought, and one more, which says that there are more.
    found: BTreeMap<Handle, Seen>,
    /// Up to this one all places were looked through; `None`: to the end.
    end: Option<Handle>,
}

impl Gathering<'_> {
    /// What is behind this one is of no use any more.
    fn bound(&self) -> Option<Handle> {
        let is_full = self.found.len() > self.sought.limit;
        let last = self.found.last_key_value().filter(|_| is_full);
        last.map(|(last, _)| *last).or(self.end)
    }

    fn is_past(&self, key: Handle) -> bool {
        self.bound().is_some_and(|bound| key > bound)
    }

    fn offer(&mut self, key: Handle, note: impl FnOnce(&mut Seen)) {
        let is_behind = self.sought.after.is_none_or(|after| key > after);
        let is_kind = self.sought.kind.is_none_or(|kind| key.kind() == kind);
        if !is_behind || !is_kind || object_len(key) < self.sought.bytes_min || self.is_past(key) {
            return;
        }
        note(self.found.entry(key).or_default());
        if self.found.len() > self.sought.limit + 1 {
            self.found.pop_last();
        }
    }

    /// A place was looked through no further than this.
    fn cut(&mut self, end: Handle) {
        self.end = Some(self.end.map_or(end, |other| other.min(end)));
        while self.found.last_key_value().is_some_and(|(last, _)| *last > end) {
            self.found.pop_last();
        }
    }

    /// Offers rows of a table for as long as they are of use. `rows` gives those behind a key,
    /// some at a time, and the last key that it has looked at.
    fn offer_rows<T>(
        &mut self,
        mut rows: impl FnMut(Option<[u8; 32]>) -> Result<Rows<T>, Error>,
        note: impl Fn(&mut Seen, T),
    ) -> Result<(), Error> {
        let mut behind = self.sought.after.map(|after| *after.as_bytes());
        for batch in 1.. {
            let (some, looked) = rows(behind)?;
            let last = some.last().map(|(key, _)| *key);
            for (key, row) in some {
                self.offer(key, |seen| note(seen, row));
            }
            if looked.is_none() || last.is_some_and(|last| self.is_past(last)) {
                break;
            }
            // Where no row was sound there is no end to be named.
            if let Some(last) = last.filter(|_| batch * ROWS >= ROWS_MAX) {
                self.cut(last);
                break;
            }
            behind = looked;
        }
        Ok(())
    }
}

impl Store {
    /// A page of what is stored here: of memory, of the disk, and what is in the durable tier
    /// or can be made again. What requests pass on is not stored. It takes as long as looking
    /// through memory, and through some 100,000 rows at most.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Index`] if the disk cannot be read.
    pub fn inventory(&self, sought: &Sought) -> Result<Inventory, Error> {
        self.inventory_while(sought, || {})
    }

    /// `between` is called when it is known what is recent, and before the index is asked.
    fn inventory_while(&self, sought: &Sought, between: impl FnOnce()) -> Result<Inventory, Error> {
        let mut gathering = Gathering { sought, found: BTreeMap::new(), end: None };
        // An object goes from memory to the disk, from what is recent to the index, and from the
        // disk to its recipe or the tier: whoever looks in this order misses none.
        self.memory.visit(|key, flags, _| {
            if flags & PASSING == 0 {
                gathering.offer(key, |seen| seen.memory = Some(flags));
            }
        });
        if let Some(disk) = self.disk() {
            disk.gather(&mut gathering, between)?;
        }
        let Gathering { mut found, end, .. } = gathering;
        let is_more = found.len() > sought.limit;
        if is_more {
            found.pop_last();
        }
        let last = found.last_key_value().map(|(last, _)| *last);
        let next = if is_more { last } else { end };
        let objects = match self.disk() {
            Some(disk) => disk.tell(found)?,
            None => found.into_iter().map(|(key, seen)| in_memory(key, &seen)).collect(),
        };
        Ok(Inventory { objects, next })
    }
}

/// What a store without a disk has.
fn in_memory(handle: Handle, seen: &Seen) -> Stored {
    let is_promised = seen.memory.is_some_and(|flags| flags & STORED != 0);
    Stored { handle, bytes: object_len(handle), kept: Kept::Memory, is_tiered: false, is_promised }
}

impl Disk {
    fn gather(&self, gathering: &mut Gathering<'_>, between: impl FnOnce()) -> Result<(), Error> {
        let index = self.index();
        if gathering.sought.bytes_min < LARGE_BYTES {
            index.visit_recent(|key, spot| gathering.offer(key, |seen| seen.spot = Some(spot)));
            between();
            let rows = |behind| {
                let rows = index.spots_behind(behind)?;
                let sound =
                    rows.iter().filter_map(|(key, spot)| Some((Handle::from_bytes(*key).ok()?, *spot)));
                Ok((sound.collect(), rows.last().map(|(key, _)| *key)))
            };
            // One that is recent is the newer one.
            gathering.offer_rows(rows, |seen, spot| _ = seen.spot.get_or_insert(spot))?;
        }
        let first_byte = gathering.sought.after.map_or(0, |after| after.hash_bytes()[0]);
        for first_byte in first_byte..=u8::MAX {
            if gathering.bound().is_some_and(|bound| first_byte > bound.hash_bytes()[0]) {
                break;
            }
            self.files().visit_folder(first_byte, |key| gathering.offer(key, |seen| seen.has_file = true))?;
        }
        gathering.offer_rows(|behind| index.tiered_behind(behind, ROWS), |seen, _| seen.is_tiered = true)?;
        gathering.offer_rows(|behind| index.recipes_behind(behind, ROWS), |seen, _| seen.has_recipe = true)
    }

    /// What of these is still there, and where.
    fn tell(&self, found: BTreeMap<Handle, Seen>) -> Result<Vec<Stored>, Error> {
        let keys: Vec<Handle> = found.keys().copied().collect();
        let unpromised = self.unpromised(&keys)?;
        let mut objects = Vec::with_capacity(found.len());
        for (handle, seen) in found {
            let is_on_disk = match seen.spot {
                Some(_) if !is_large(handle) => !self.is_gone(handle, seen.spot),
                // A file of another length is none.
                _ => seen.has_file && self.contains(handle)?,
            };
            let kept = if is_on_disk {
                Kept::Disk
            } else if seen.memory.is_some() {
                Kept::Memory
            } else if seen.is_tiered {
                Kept::Tier
            } else if seen.has_recipe {
                Kept::Dropped
            } else {
                continue;
            };
            // Memory alone promises nothing where there is a disk.
            let is_kept = kept != Kept::Memory || seen.is_tiered;
            let is_promised = is_kept && !unpromised.contains(&handle);
            let bytes = object_len(handle);
            objects.push(Stored { handle, bytes, kept, is_tiered: seen.is_tiered, is_promised });
        }
        Ok(objects)
    }
}

#[cfg(test)]
mod tests;
