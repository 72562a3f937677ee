// SPDX-License-Identifier: Apache-2.0
//! A hash table whose entries lie next to each other in the order in which
//! they came, with a small index of positions beside them.
//!
//! Inserting is what a store does most, and on a table of large entries it
//! waits for memory: every new entry is a cache miss somewhere, and growing
//! moves all of them. Here a new entry follows the last one, and only one
//! word goes to a random place. Removing moves the last entry into the gap.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use objects::Handle;

use slots::Slots;

mod slots;

/// What an index slot costs beside its entry, in bytes: a word, at the lowest
/// load that growing leaves behind.
pub(crate) const INDEX_COST_BYTES: u64 = 24;

/// Something that is found by a handle.
pub(crate) trait Keyed {
    /// The handle; it never changes while the entry is in a table.
    fn key(&self) -> &Handle;
}

/// Where a table's index lies, readable without the lock that guards the
/// table. It may be out of date: good enough to ask the cache for a line.
#[derive(Default)]
pub(crate) struct Place {
    address: AtomicUsize,
    shift: AtomicU32,
}

impl Place {
    /// Notes where the index is now; by whoever holds the table's lock.
    #[inline]
    pub(crate) fn follow<E>(&self, table: &DenseTable<E>) {
        let (address, shift) = table.index.place();
        if self.address.load(Ordering::Relaxed) != address {
            self.address.store(address, Ordering::Relaxed);
            self.shift.store(shift, Ordering::Relaxed);
        }
    }

    /// Asks for the line of the index at which a search for `hash` begins.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let home = slots::home_of(slots::tag_of(hash), self.shift.load(Ordering::Relaxed));
        let address = self.address.load(Ordering::Relaxed);
        linux::prefetch(address.wrapping_add(home * size_of::<u64>()));
    }
}

/// The table; at most 2^32 entries. Callers pass a hash with every key, always
/// of the same function, and that function where entries may move.
pub(crate) struct DenseTable<E> {
    index: Slots,
    entries: Vec<E>,
}

impl<E> Default for DenseTable<E> {
    fn default() -> Self {
        Self { index: Slots::default(), entries: Vec::new() }
    }
}

impl<E: Keyed> DenseTable<E> {
    pub(crate) fn with_capacity(entries: usize) -> Self {
        Self { index: Slots::with_capacity(entries), entries: Vec::with_capacity(entries) }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes that the table has allocated.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.index.allocated_bytes() + self.entries.capacity() * size_of::<E>()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &E> {
        self.entries.iter()
    }

    #[inline]
    pub(crate) fn position(&self, hash: u64, key: &Handle) -> Option<usize> {
        let is_wanted = |position: usize| self.entries[position].key() == key;
        self.index.find(hash, is_wanted).ok().map(|slot| self.index.position(slot))
    }

    #[inline]
    pub(crate) fn find(&self, hash: u64, key: &Handle) -> Option<&E> {
        self.position(hash, key).map(|position| &self.entries[position])
    }

    #[inline]
    pub(crate) fn find_mut(&mut self, hash: u64, key: &Handle) -> Option<&mut E> {
        self.position(hash, key).map(|position| &mut self.entries[position])
    }

    /// The entry at a position below [`DenseTable::len`].
    #[inline]
    pub(crate) fn at_mut(&mut self, position: usize) -> Option<&mut E> {
        self.entries.get_mut(position)
    }

    /// The entry of this key, or `make`'s, which must have the key. True if it
    /// was inserted.
    #[inline]
    pub(crate) fn find_or_insert_with(
        &mut self,
        hash: u64,
        key: &Handle,
        make: impl FnOnce() -> E,
    ) -> (&mut E, bool) {
        let Self { index, entries } = self;
        match index.find(hash, |position| entries[position].key() == key) {
            Ok(slot) => (&mut entries[index.position(slot)], false),
            Err(slot) => {
                let position = entries.len();
                // The budgets of the callers end far below 2^32 entries.
                assert!(position < u32::MAX as usize, "a table has at most 2^32 - 1 entries");
                index.insert(slot, hash, position);
                entries.push(make());
                prefetch_end(entries);
                debug_assert!(entries[position].key() == key, "the new entry has another key");
                (&mut entries[position], true)
            }
        }
    }

    /// Takes the entry at `position` out; the last entry takes its place.
    ///
    /// # Panics
    /// If there is no such position.
    pub(crate) fn remove_at(&mut self, position: usize, hasher: impl Fn(&Handle) -> u64) -> E {
        let hash = hasher(self.entries[position].key());
        if let Ok(slot) = self.index.find(hash, |found| found == position) {
            self.index.remove(slot);
        }
        let removed = self.entries.swap_remove(position);
        if let Some(moved) = self.entries.get(position) {
            let from = self.entries.len();
            let slot = self.index.find(hasher(moved.key()), |found| found == from);
            debug_assert!(slot.is_ok(), "every entry is in the index");
            if let Ok(slot) = slot {
                self.index.move_to(slot, position);
            }
        }
        removed
    }
}

/// Asks for the lines of the entry that comes next: writing to memory that is
/// not in the cache is what an insertion would wait for.
#[inline]
fn prefetch_end<E>(entries: &[E]) {
    let end = entries.as_ptr_range().end.addr();
    linux::prefetch_to_write(end.wrapping_add(size_of::<E>()));
    linux::prefetch_to_write(end.wrapping_add(2 * size_of::<E>()));
}

#[cfg(test)]
mod tests;
