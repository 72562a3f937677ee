// SPDX-License-Identifier: Apache-2.0
//! The memory tier: a sharded table from handle to bytes.
//!
//! Looking up and inserting take one lock, one probe and, for a new object,
//! one allocation. Nothing here waits for I/O. Over budget, the background
//! thread sweeps the shards with CLOCK (an object is dropped when it was not
//! looked at since the hand last passed): what is on disk is dropped, what is
//! not is handed out to be written first. What somebody outside holds stays:
//! dropping it would free nothing, and whoever holds it relies on finding it.
//!
//! Only if the background thread falls far behind, inserting waits for it: the
//! one exception, without which memory would have no limit. If nothing can be
//! written, it does not wait either, and the budget is exceeded.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use objects::Handle;
use parking_lot::Mutex;

use crate::Object;
use crate::background::Signal;
use crate::dense::{DenseTable, Keyed, Place};
use crate::seed::{Seed, shard_count, shard_of};

/// What an object costs beside its bytes: the table's entry and its place in
/// the index, the count of its owners, the allocator's header.
pub(crate) const ENTRY_COST_BYTES: u64 = 128;
/// What a mapped file costs: page tables and the kernel's record of it. The
/// pages themselves are the page cache's, which the kernel takes back.
const MAPPED_COST_BYTES: u64 = 4096;
/// A shard tells the others of this many bytes at once (less in a small store).
const REPORT_BYTES_MAX: i64 = 32 << 10;
/// Entries that a new shard's table has room for: 64 bytes each.
const SHARD_CAPACITY: usize = 384;
/// How long one insertion waits for the background thread at most, over five
/// quarters of the budget and over six.
const BACKPRESSURE_WAIT: Duration = Duration::from_millis(5);
const BACKPRESSURE_WAIT_MAX: Duration = Duration::from_millis(500);

/// It was looked at since the hand passed.
pub(crate) const REFERENCED: u8 = 1;
/// It is on disk, synced.
pub(crate) const DURABLE: u8 = 2;
/// A tree of which everything reachable is on disk, synced.
pub(crate) const CLOSURE_DURABLE: u8 = 4;

/// Nobody will ask for it again once it was used: it is dropped then
/// ([`Memory::drop_passed`]), and never written to disk. Whoever stores the same
/// bytes for longer takes this off.
pub(crate) const PASSING: u8 = 8;

/// It was put into a store without a disk, which must keep it.
pub(crate) const STORED: u8 = 16;

/// It was looked at since a collection began ([`Memory::forget_touches`]). Unlike
/// [`REFERENCED`], the hand leaves it.
pub(crate) const TOUCHED: u8 = 32;

/// A tree of which all that was in memory when it was looked at, and that it names,
/// is on disk: it may leave memory, and nothing that only memory has is behind it.
pub(crate) const SETTLED: u8 = 64;

/// It was read from the disk, where what it names had come before it.
pub(crate) const READ: u8 = 128;

/// One per store.
pub(crate) struct Memory {
    shards: Box<[Shard]>,
    seed: Seed,
    budget_bytes: u64,
    report_bytes: i64,
    /// Bytes held, short of what the shards have not reported yet.
    used_bytes: AtomicI64,
    /// Wakes the background thread; `None` without a disk: nothing can be evicted.
    signal: Option<Arc<Signal>>,
    /// Touched objects that were evicted since a collection began, if one has.
    evicted: Mutex<Option<Vec<Handle>>>,
}

/// Shards lie on cache lines of their own (pairs, for the prefetcher).
#[repr(align(128))]
#[derive(Default)]
struct Shard {
    state: Mutex<ShardState>,
    index: Place,
}

#[derive(Default)]
struct ShardState {
    table: DenseTable<Entry>,
    unreported_bytes: i64,
    bytes: u64,
    /// The entry that the CLOCK hand looks at next.
    hand: usize,
    hits: u64,
    misses: u64,
    evictions: u64,
}

/// 64 bytes.
struct Entry {
    key: Handle,
    object: Object,
    state: u8,
    /// How many have passed it on and still need it.
    passes: u32,
}

impl Keyed for Entry {
    #[inline]
    fn key(&self) -> &Handle {
        &self.key
    }
}

impl Entry {
    /// Whether it can be dropped as it is: nothing is lost, and nothing is left in
    /// memory only that a tree on disk names.
    fn may_leave(&self) -> bool {
        let is_settled = !self.key.names_tree() || self.state & (SETTLED | CLOSURE_DURABLE) != 0;
        self.state & PASSING != 0 || (self.state & DURABLE != 0 && is_settled)
    }
}

/// Sums over all shards.
#[derive(Default)]
pub(crate) struct MemoryStats {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) evictions: u64,
}

/// What one visit of the hand to a shard found.
#[derive(Default)]
pub(crate) struct Sweep {
    /// Dropped from the table; freed when this is dropped, outside the lock.
    pub(crate) evicted: Vec<Object>,
    /// Still in the table; to be written with what they name, then
    /// [`Memory::evict_written`]. Some are on disk already: trees that are not settled.
    pub(crate) unwritten: Vec<(Handle, Object)>,
}

impl Memory {
    pub(crate) fn new(budget_bytes: u64, signal: Option<Arc<Signal>>) -> Self {
        let shard = |_| {
            let table = DenseTable::with_capacity(SHARD_CAPACITY);
            let index = Place::default();
            index.follow(&table);
            Shard { state: Mutex::new(ShardState { table, ..ShardState::default() }), index }
        };
        let shards = shard_count();
        // All shards' unreported bytes together stay below 1/16 of the budget.
        let report_bytes = i64::try_from(budget_bytes / (16 * shards as u64)).unwrap_or(i64::MAX);
        Self {
            shards: (0..shards).map(shard).collect(),
            seed: Seed::new(),
            budget_bytes,
            report_bytes: report_bytes.clamp(1, REPORT_BYTES_MAX),
            used_bytes: AtomicI64::new(0),
            signal,
            evicted: Mutex::default(),
        }
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Shard {
        &self.shards[shard_of(hash, self.shards.len())]
    }

    /// Asks the cache for what a search for `key` looks at first.
    #[inline]
    pub(crate) fn prefetch(&self, key: Handle) {
        let hash = self.seed.of_hashed(&key);
        self.shard(hash).index.prefetch(hash);
    }

    /// The object, if it is here; marks it as used.
    #[inline]
    pub(crate) fn get(&self, key: Handle) -> Option<Object> {
        let hash = self.seed.of_hashed(&key);
        let mut shard = self.shard(hash).state.lock();
        match shard.table.find_mut(hash, &key) {
            Some(entry) => {
                entry.state |= REFERENCED | TOUCHED;
                let object = entry.object.clone();
                shard.hits += 1;
                Some(object)
            }
            None => {
                shard.misses += 1;
                None
            }
        }
    }

    /// The object and its flags, without counting as use.
    pub(crate) fn peek(&self, key: Handle) -> Option<(Object, u8)> {
        let hash = self.seed.of_hashed(&key);
        let shard = self.shard(hash).state.lock();
        let entry = shard.table.find(hash, &key)?;
        Some((entry.object.clone(), entry.state))
    }

    /// The flags of an object that is here.
    pub(crate) fn state(&self, key: Handle) -> Option<u8> {
        let hash = self.seed.of_hashed(&key);
        let shard = self.shard(hash).state.lock();
        shard.table.find(hash, &key).map(|entry| entry.state)
    }

    /// Adds flags to an object if it is still here.
    pub(crate) fn mark(&self, key: Handle, state: u8) {
        let hash = self.seed.of_hashed(&key);
        let mut shard = self.shard(hash).state.lock();
        if let Some(entry) = shard.table.find_mut(hash, &key) {
            entry.state |= state;
        }
    }

    /// Makes sure that the object is here, with these flags. `object` is only
    /// called for a new one. `key` is a plain data handle, no literal.
    #[inline]
    pub(crate) fn insert_with(&self, key: Handle, state: u8, object: impl FnOnce() -> Object) {
        debug_assert!(key == key.plain_tree() && key.literal_bytes().is_none(), "{key}");
        let hash = self.seed.of_hashed(&key);
        let place = self.shard(hash);
        let mut guard = place.state.lock();
        let shard = &mut *guard;
        let make = || Entry { key, object: object(), state: 0, passes: 0 };
        let (entry, is_new) = shard.table.find_or_insert_with(hash, &key, make);
        // It stays passing only for as long as all that store it say so.
        let passing = if is_new { state } else { state & entry.state } & PASSING;
        entry.state = (entry.state | state | REFERENCED | TOUCHED) & !PASSING | passing;
        entry.passes = entry.passes.saturating_add(u32::from(passing != 0));
        if is_new {
            let cost = cost_bytes(&entry.object);
            place.index.follow(&shard.table);
            shard.bytes += cost;
            shard.unreported_bytes += cost as i64;
            if shard.unreported_bytes >= self.report_bytes {
                let delta = std::mem::take(&mut shard.unreported_bytes);
                drop(guard);
                self.report(delta);
            }
        }
    }

    #[cold]
    fn report(&self, delta: i64) {
        let used = self.used_bytes.fetch_add(delta, Ordering::Relaxed) + delta;
        let Some(signal) = &self.signal else { return };
        let used = used.max(0) as u64;
        if used > self.budget_bytes {
            signal.raise_pressure();
            match (used - self.budget_bytes) / (self.budget_bytes / 4).max(1) {
                0 => {}
                1 => signal.wait_for_relief(BACKPRESSURE_WAIT),
                _ => signal.wait_for_relief(BACKPRESSURE_WAIT_MAX),
            }
        }
    }

    /// Bytes held, to within a sixteenth of the budget.
    #[inline]
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed).max(0) as u64
    }

    pub(crate) fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// By how many bytes an object of `len` bytes would go over the budget.
    pub(crate) fn lacking_bytes(&self, len: u64) -> u64 {
        let wanted = self.used_bytes().saturating_add(len).saturating_add(ENTRY_COST_BYTES);
        wanted.saturating_sub(self.budget_bytes)
    }

    /// Parts that are swept one by one.
    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Entries of all tables together.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.state.lock().table.len()).sum()
    }

    /// Moves one shard's hand over up to `entries_max` entries; says over how many.
    pub(crate) fn sweep(&self, shard_index: usize, entries_max: usize, sweep: &mut Sweep) -> usize {
        let mut guard = self.shards[shard_index % self.shards.len()].state.lock();
        let shard = &mut *guard;
        let visited = entries_max.min(shard.table.len());
        let mut freed = 0;
        for _ in 0..visited {
            if shard.hand >= shard.table.len() {
                shard.hand = 0;
            }
            let Some(entry) = shard.table.at_mut(shard.hand) else { break };
            // Under the lock nobody can begin to share it.
            if entry.object.is_held() {
                shard.hand += 1;
                continue;
            }
            if entry.state & REFERENCED == 0 && entry.may_leave() {
                // Another entry takes its place, so the hand stays.
                let entry = shard.table.remove_at(shard.hand, |key| self.seed.of_hashed(key));
                self.note_evicted(&entry);
                freed += cost_bytes(&entry.object);
                shard.evictions += 1;
                sweep.evicted.push(entry.object);
                continue;
            }
            if entry.state & REFERENCED == 0 {
                sweep.unwritten.push((entry.key, entry.object.clone()));
            }
            entry.state &= !REFERENCED;
            shard.hand += 1;
        }
        self.release(shard, freed);
        visited
    }

    /// Notes that these objects, which a sweep handed out, are on disk now, and
    /// drops those that nobody looked at meanwhile or holds.
    pub(crate) fn evict_written(&self, written: Vec<(Handle, Object)>) {
        for (key, object) in written {
            // The writer's own share would look like somebody's hold.
            drop(object);
            let hash = self.seed.of_hashed(&key);
            let mut guard = self.shard(hash).state.lock();
            let shard = &mut *guard;
            let Some(position) = shard.table.position(hash, &key) else { continue };
            let Some(entry) = shard.table.at_mut(position) else { continue };
            entry.state |= DURABLE;
            if entry.state & REFERENCED != 0 || entry.object.is_held() {
                continue;
            }
            let entry = shard.table.remove_at(position, |key| self.seed.of_hashed(key));
            self.note_evicted(&entry);
            shard.evictions += 1;
            self.release(shard, cost_bytes(&entry.object));
            // The bytes are freed after the shard is.
            drop(guard);
        }
    }

    /// Looks at every object: its flags, and whether somebody holds it.
    pub(crate) fn visit(&self, mut visitor: impl FnMut(Handle, u8, bool)) {
        for shard in &self.shards {
            let shard = shard.state.lock();
            shard.table.iter().for_each(|entry| visitor(entry.key, entry.state, entry.object.is_held()));
        }
    }

    /// From now on, the object counts as not looked at.
    pub(crate) fn unreference(&self, key: Handle) {
        let hash = self.seed.of_hashed(&key);
        if let Some(entry) = self.shard(hash).state.lock().table.find_mut(hash, &key) {
            entry.state &= !REFERENCED;
        }
    }

    /// From now on it is told which objects are looked at: by [`TOUCHED`], and by
    /// [`Memory::take_evicted`].
    pub(crate) fn forget_touches(&self) {
        *self.evicted.lock() = Some(Vec::new());
        for shard in &self.shards {
            let mut shard = shard.state.lock();
            for position in 0..shard.table.len() {
                if let Some(entry) = shard.table.at_mut(position) {
                    entry.state &= !TOUCHED;
                }
            }
        }
    }

    /// Touched objects that were evicted since this was last called.
    pub(crate) fn take_evicted(&self) -> Vec<Handle> {
        self.evicted.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Nobody collects any more.
    pub(crate) fn stop_noting(&self) {
        *self.evicted.lock() = None;
    }

    fn note_evicted(&self, entry: &Entry) {
        if entry.state & TOUCHED != 0
            && let Some(evicted) = &mut *self.evicted.lock()
        {
            evicted.push(entry.key);
        }
    }

    /// The object goes from the disk: it is dropped, or, if it was looked at or is
    /// held, one that is in memory only.
    pub(crate) fn expel(&self, key: Handle) {
        let hash = self.seed.of_hashed(&key);
        if let Some(entry) = self.shard(hash).state.lock().table.find_mut(hash, &key) {
            entry.state &= !(DURABLE | CLOSURE_DURABLE | SETTLED | READ);
            if entry.state & TOUCHED == 0 {
                entry.state &= !REFERENCED;
            }
        }
        self.drop_unused(key);
    }

    /// Drops an object, unless it was looked at, put, or is held. Whether it did.
    pub(crate) fn drop_unused(&self, key: Handle) -> bool {
        let hash = self.seed.of_hashed(&key);
        let mut guard = self.shard(hash).state.lock();
        let shard = &mut *guard;
        let Some(position) = shard.table.position(hash, &key) else { return false };
        let is_used = |entry: &mut Entry| entry.state & (REFERENCED | STORED) != 0 || entry.object.is_held();
        if shard.table.at_mut(position).is_none_or(is_used) {
            return false;
        }
        let entry = shard.table.remove_at(position, |key| self.seed.of_hashed(key));
        shard.evictions += 1;
        self.release(shard, cost_bytes(&entry.object));
        // The bytes are freed after the shard is.
        drop(guard);
        true
    }

    /// Drops an object that can be had again and that nobody holds, whoever looked at it.
    pub(crate) fn let_go(&self, key: Handle) {
        let hash = self.seed.of_hashed(&key);
        let mut guard = self.shard(hash).state.lock();
        let shard = &mut *guard;
        let Some(position) = shard.table.position(hash, &key) else { return };
        let stays =
            |entry: &mut Entry| entry.state & DURABLE == 0 || !entry.may_leave() || entry.object.is_held();
        if shard.table.at_mut(position).is_none_or(stays) {
            return;
        }
        let entry = shard.table.remove_at(position, |key| self.seed.of_hashed(key));
        self.note_evicted(&entry);
        shard.evictions += 1;
        self.release(shard, cost_bytes(&entry.object));
        // The bytes are freed after the shard is.
        drop(guard);
    }

    /// One of those that passed it on needs it no more: it is dropped with the
    /// last of them, unless somebody has stored it for longer.
    pub(crate) fn drop_passed(&self, key: Handle) {
        let hash = self.seed.of_hashed(&key);
        let mut guard = self.shard(hash).state.lock();
        let shard = &mut *guard;
        let Some(position) = shard.table.position(hash, &key) else { return };
        let Some(entry) = shard.table.at_mut(position) else { return };
        entry.passes = entry.passes.saturating_sub(1);
        if entry.state & PASSING == 0 || entry.passes > 0 {
            return;
        }
        let entry = shard.table.remove_at(position, |key| self.seed.of_hashed(key));
        let freed = cost_bytes(&entry.object);
        shard.bytes -= freed;
        shard.unreported_bytes -= freed as i64;
        if shard.unreported_bytes <= -self.report_bytes {
            let delta = std::mem::take(&mut shard.unreported_bytes);
            self.used_bytes.fetch_add(delta, Ordering::Relaxed);
        }
        // The bytes are freed after the shard is.
        drop(guard);
    }

    fn release(&self, shard: &mut ShardState, freed: u64) {
        shard.bytes -= freed;
        // What this shard has not reported yet goes along.
        let delta = std::mem::take(&mut shard.unreported_bytes) - freed as i64;
        self.used_bytes.fetch_add(delta, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        let mut stats = MemoryStats::default();
        for shard in &self.shards {
            let shard = shard.state.lock();
            stats.objects += shard.table.len() as u64;
            stats.bytes += shard.bytes;
            stats.hits += shard.hits;
            stats.misses += shard.misses;
            stats.evictions += shard.evictions;
        }
        stats
    }
}

fn cost_bytes(object: &Object) -> u64 {
    ENTRY_COST_BYTES + if object.is_mapped() { MAPPED_COST_BYTES } else { object.len() as u64 }
}

#[cfg(test)]
mod tests;
