// SPDX-License-Identifier: Apache-2.0
//! Memoised relations: which handle a thunk or encode evaluated to.
//!
//! Results and the claims of those who compute them share one sharded table,
//! so that claiming and fulfilling are one probe each. Results are evicted
//! with CLOCK within a fixed number of entries; claims never are. Results
//! that cost 50 µs or more wait in a bounded queue to be written to disk by
//! the background thread; what the queue has no room for is not written.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use objects::Handle;
use parking_lot::Mutex;

use crate::background::Signal;
use crate::dense::{DenseTable, INDEX_COST_BYTES, Keyed, Place};
use crate::seed::{Seed, shard_count, shard_of};

/// Results that took less are not worth a write.
pub(crate) const PERSIST_NANOS_MIN: u64 = 50_000;
/// Results that wait to be written.
const PENDING_MAX: usize = 16 << 10;
/// Results that the CLOCK hand passes for one insertion into a full shard.
const SWEEP_RESULTS_MAX: usize = 32;
/// Entries of the smallest shard.
const ENTRIES_MIN: usize = 16;

/// The time keeps 48 bits (over three days); the rest is the entry's state.
const NANOS_MAX: u64 = (1 << 48) - 1;
const RULE_SHIFT: u32 = 48;
const RULE_MASK: u64 = 0b1111;
const IN_FLIGHT: u64 = 1 << 60;
const HAS_WAITERS: u64 = 1 << 61;
const REFERENCED: u64 = 1 << 62;
const USED_AGAIN: u64 = 1 << 63;
/// What a look-up that finds a result leaves behind.
const HIT: u64 = REFERENCED | USED_AGAIN;

/// What one evaluation step gave, and what it cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What the key evaluated to.
    pub result: Handle,
    /// The step.
    pub rule: Rule,
    /// Time that the step took, in nanoseconds; over 2^48 counts as 2^48 - 1.
    pub nanos: u64,
    /// Wasm instructions that the step took; 0 if not counted.
    pub fuel: u64,
}

/// The step that made a result.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A procedure ran.
    Apply = 0,
    /// The encodes in an application were replaced by their results.
    Resolve = 1,
    /// A curried procedure's arguments were put in front.
    Uncurry = 2,
    /// An element or range was taken.
    Select = 3,
    /// A strict encode was evaluated; the key is the encode.
    Strict = 4,
    /// A shallow encode was evaluated; the key is the encode.
    Shallow = 5,
    /// A procedure was compiled.
    Compile = 6,
}

impl Rule {
    const ALL: [Self; 7] =
        [Self::Apply, Self::Resolve, Self::Uncurry, Self::Select, Self::Strict, Self::Shallow, Self::Compile];

    pub(crate) fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// A relation as somebody who only looks finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The thunk or encode.
    pub key: Handle,
    /// What it evaluated to.
    pub record: Record,
    /// Since the result is in this table, it was a memo hit: somebody needed
    /// it, and got it without its being computed.
    pub was_hit: bool,
}

/// What the caller of [`Relations::claim`] has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nothing: the result is known.
    Known(Record),
    /// To compute it, then [`Relations::fulfil`] or [`Relations::abandon`].
    Claimed,
    /// To [`Relations::wait`]: someone else computes it.
    Busy,
}

/// The table. Keys are handles of thunks and encodes; nothing checks it.
pub struct Relations {
    shards: Box<[Shard]>,
    seed: Seed,
    /// A shard evicts from this many entries on. A power of two, since the
    /// entries' allocation doubles.
    entries_max: usize,
    pending: Mutex<Pending>,
    /// Wakes the background thread; `None` without a disk.
    signal: Option<Arc<Signal>>,
}

#[derive(Default)]
struct Pending {
    records: Vec<(Handle, Record)>,
    dropped: u64,
}

#[repr(align(128))]
#[derive(Default)]
struct Shard {
    state: Mutex<ShardState>,
    index: Place,
}

#[derive(Default)]
struct ShardState {
    table: DenseTable<Entry>,
    /// Who waits for the claims marked with [`HAS_WAITERS`].
    waiters: BTreeMap<Handle, Vec<u64>>,
    claims: usize,
    hand: usize,
    hits: u64,
    misses: u64,
    evictions: u64,
}

/// 80 bytes. While in flight, `result` is the key and `fuel` 0.
#[derive(Clone, Copy)]
struct Entry {
    key: Handle,
    result: Handle,
    fuel: u64,
    /// Flags, rule, nanoseconds.
    packed: u64,
}

impl Keyed for Entry {
    #[inline]
    fn key(&self) -> &Handle {
        &self.key
    }
}

impl Entry {
    #[inline]
    fn known(key: Handle, record: Record) -> Self {
        let rule = u64::from(record.rule as u8) << RULE_SHIFT;
        // Not referenced: a result that is never asked for again goes first.
        let packed = rule | record.nanos.min(NANOS_MAX);
        Self { key, result: record.result, fuel: record.fuel, packed }
    }

    #[inline]
    fn claim(key: Handle) -> Self {
        Self { key, result: key, fuel: 0, packed: IN_FLIGHT }
    }

    #[inline]
    fn in_flight(&self) -> bool {
        self.packed & IN_FLIGHT != 0
    }

    fn look(&self) -> Remembered {
        Remembered { key: self.key, record: self.record(), was_hit: self.packed & USED_AGAIN != 0 }
    }

    #[inline]
    fn record(&self) -> Record {
        let rule = Rule::from_u8((self.packed >> RULE_SHIFT & RULE_MASK) as u8);
        Record {
            result: self.result,
            rule: rule.unwrap_or_else(|| unreachable!("packed from a rule")),
            nanos: self.packed & NANOS_MAX,
            fuel: self.fuel,
        }
    }
}

/// Sums over all shards.
#[derive(Default)]
pub(crate) struct RelationsStats {
    pub(crate) known: u64,
    pub(crate) claims: u64,
    pub(crate) bytes: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) evictions: u64,
    pub(crate) unwritten: u64,
}

impl Relations {
    /// A table of at most `budget_bytes`, rounded down to what its shards can
    /// use, plus the claims that do not fit.
    pub(crate) fn new(budget_bytes: u64, signal: Option<Arc<Signal>>) -> Self {
        let shards = shard_count();
        let entry_bytes = size_of::<Entry>() as u64 + INDEX_COST_BYTES;
        let entries = usize::try_from(budget_bytes / shards as u64 / entry_bytes).unwrap_or(usize::MAX / 2);
        Self {
            shards: (0..shards).map(|_| Shard::default()).collect(),
            seed: Seed::new(),
            entries_max: (entries.max(ENTRIES_MIN) / 2 + 1).next_power_of_two(),
            pending: Mutex::default(),
            signal,
        }
    }

    /// A table of at most so many bytes that belongs to no store: nothing of it is
    /// written, and no other sees what is in it.
    pub fn apart(budget_bytes: u64) -> Self {
        Self::new(budget_bytes, None)
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Shard {
        &self.shards[shard_of(hash, self.shards.len())]
    }

    /// Asks the cache for what a search for `key` looks at first. For keys
    /// that will be asked for soon.
    #[inline]
    pub(crate) fn prefetch(&self, key: Handle) {
        let hash = self.seed.of_all(&key);
        self.shard(hash).index.prefetch(hash);
    }

    /// The result, if it is known.
    #[inline]
    pub fn get(&self, key: Handle) -> Option<Record> {
        let hash = self.seed.of_all(&key);
        let mut guard = self.shard(hash).state.lock();
        let shard = &mut *guard;
        match shard.table.find_mut(hash, &key) {
            Some(entry) if !entry.in_flight() => {
                entry.packed |= HIT;
                shard.hits += 1;
                Some(entry.record())
            }
            _ => {
                shard.misses += 1;
                None
            }
        }
    }

    /// The result, if it is known, for somebody who tells of it and does not use it.
    pub fn look(&self, key: Handle) -> Option<Remembered> {
        let hash = self.seed.of_all(&key);
        let shard = self.shard(hash).state.lock();
        shard.table.find(hash, &key).filter(|entry| !entry.in_flight()).map(Entry::look)
    }

    /// Remembers a result that nobody claimed. A claim on the same key stays
    /// as it is: whoever holds it will fulfil it.
    pub fn insert(&self, key: Handle, record: Record) {
        if self.insert_quietly(key, record) {
            self.queue(key, record);
        }
    }

    /// [`Relations::insert`] without writing to disk; false if there is a claim.
    pub(crate) fn insert_quietly(&self, key: Handle, record: Record) -> bool {
        let hash = self.seed.of_all(&key);
        let place = self.shard(hash);
        let mut guard = place.state.lock();
        let shard = &mut *guard;
        self.make_room_for(shard, hash, key);
        let (entry, is_new) = shard.table.find_or_insert_with(hash, &key, || Entry::known(key, record));
        if is_new {
            place.index.follow(&shard.table);
        } else {
            if entry.in_flight() {
                return false;
            }
            *entry = Entry::known(key, record);
        }
        true
    }

    /// The result, or the right to compute it: of all who ask for an unknown
    /// key, one gets [`Claim::Claimed`].
    #[inline]
    pub fn claim(&self, key: Handle) -> Claim {
        let hash = self.seed.of_all(&key);
        let place = self.shard(hash);
        let mut guard = place.state.lock();
        let shard = &mut *guard;
        self.make_room_for(shard, hash, key);
        let (entry, is_new) = shard.table.find_or_insert_with(hash, &key, || Entry::claim(key));
        if is_new {
            place.index.follow(&shard.table);
            shard.claims += 1;
            shard.misses += 1;
            return Claim::Claimed;
        }
        if entry.in_flight() {
            return Claim::Busy;
        }
        entry.packed |= HIT;
        shard.hits += 1;
        Claim::Known(entry.record())
    }

    /// Adds a waiter to a claim; whoever ends the claim gets it back. False if
    /// the key is not in flight any more: look again. How many may wait is
    /// for the caller to limit.
    pub fn wait(&self, key: Handle, waiter: u64) -> bool {
        let hash = self.seed.of_all(&key);
        let mut guard = self.shard(hash).state.lock();
        let shard = &mut *guard;
        match shard.table.find_mut(hash, &key) {
            Some(entry) if entry.in_flight() => {
                entry.packed |= HAS_WAITERS;
                shard.waiters.entry(key).or_default().push(waiter);
                true
            }
            _ => false,
        }
    }

    /// Ends a claim with its result and returns the waiters.
    #[inline]
    pub fn fulfil(&self, key: Handle, record: Record) -> Vec<u64> {
        let hash = self.seed.of_all(&key);
        let mut guard = self.shard(hash).state.lock();
        let shard = &mut *guard;
        let Some(entry) = shard.table.find_mut(hash, &key) else {
            drop(guard);
            self.insert(key, record);
            return Vec::new();
        };
        let packed = entry.packed;
        *entry = Entry::known(key, record);
        shard.claims -= usize::from(packed & IN_FLIGHT != 0);
        let waiters = take_waiters(shard, key, packed);
        drop(guard);
        self.queue(key, record);
        waiters
    }

    /// Ends a claim without a result and returns the waiters, who must look again.
    pub fn abandon(&self, key: Handle) -> Vec<u64> {
        let hash = self.seed.of_all(&key);
        let mut guard = self.shard(hash).state.lock();
        let shard = &mut *guard;
        let Some(position) = shard.table.position(hash, &key) else { return Vec::new() };
        if !shard.table.at_mut(position).is_some_and(|entry| entry.in_flight()) {
            return Vec::new();
        }
        let entry = shard.table.remove_at(position, |key| self.seed.of_all(key));
        shard.claims -= 1;
        take_waiters(shard, key, entry.packed)
    }

    /// Up to `limit` keys that evaluated to `result`; a ref and its object
    /// count as the same. Looks at every relation.
    pub fn made_by(&self, result: Handle, limit: usize) -> Vec<Remembered> {
        let wanted = result.lifted().unwrap_or(result);
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.state.lock();
            let known = shard.table.iter().filter(|entry| !entry.in_flight());
            let makers = known.filter(|entry| entry.result.lifted().unwrap_or(entry.result) == wanted);
            found.extend(makers.take(limit - found.len()).map(Entry::look));
            if found.len() == limit {
                break;
            }
        }
        found
    }

    /// Forgets the results that `is_kept` does not want to keep; says how many.
    pub(crate) fn retain(&self, mut is_kept: impl FnMut(Handle) -> bool) -> u64 {
        self.retain_entries(|entry| is_kept(entry.result))
    }

    fn retain_entries(&self, mut is_kept: impl FnMut(&Entry) -> bool) -> u64 {
        let mut forgotten = 0;
        for shard in &self.shards {
            let mut shard = shard.state.lock();
            let mut position = 0;
            while let Some(entry) = shard.table.at_mut(position) {
                if entry.in_flight() || is_kept(entry) {
                    position += 1;
                } else {
                    // Another entry takes its place.
                    shard.table.remove_at(position, |key| self.seed.of_all(key));
                    shard.evictions += 1;
                    forgotten += 1;
                }
            }
        }
        forgotten
    }

    /// Forgets what a key led to, unless it is claimed, or `is_kept`. What that tells is as new
    /// as the result: whoever fulfils the claim has kept it before.
    pub fn forget_unless(&self, key: Handle, is_kept: impl FnOnce() -> bool) {
        let hash = self.seed.of_all(&key);
        let mut guard = self.shard(hash).state.lock();
        let shard = &mut *guard;
        if let Some(position) = shard.table.position(hash, &key)
            && shard.table.at_mut(position).is_some_and(|entry| !entry.in_flight())
            && !is_kept()
        {
            shard.table.remove_at(position, |key| self.seed.of_all(key));
        }
    }

    /// Everything that is known.
    pub(crate) fn visit(&self, mut found: impl FnMut(Handle, Record)) {
        for shard in &self.shards {
            let shard = shard.state.lock();
            let known = shard.table.iter().filter(|entry| !entry.in_flight());
            known.for_each(|entry| found(entry.key, entry.record()));
        }
    }

    /// All results.
    pub(crate) fn results(&self) -> Vec<Handle> {
        let mut results = Vec::new();
        for shard in &self.shards {
            let shard = shard.state.lock();
            results.extend(shard.table.iter().filter(|entry| !entry.in_flight()).map(|entry| entry.result));
        }
        results
    }

    /// Results that were asked for since this was last called, or since the hand
    /// passed; `counts`: from now on those asked for later.
    pub(crate) fn used_results(&self, counts: bool) -> Vec<Handle> {
        let mut used = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.state.lock();
            for position in 0..shard.table.len() {
                match shard.table.at_mut(position) {
                    Some(entry) if !entry.in_flight() && entry.packed & REFERENCED != 0 => {
                        used.push(entry.result);
                        entry.packed &= if counts { !REFERENCED } else { !0 };
                    }
                    _ => {}
                }
            }
        }
        used
    }

    /// Forgets these results, except those that were asked for meanwhile. How many,
    /// and which stay.
    pub(crate) fn forget(&self, results: &HashSet<Handle>) -> (u64, Vec<Handle>) {
        let mut stay = Vec::new();
        let forgotten = self.retain_entries(|entry| {
            let is_lost = results.contains(&entry.result);
            let is_used = is_lost && entry.packed & REFERENCED != 0;
            stay.extend(is_used.then_some(entry.result));
            !is_lost || is_used
        });
        (forgotten, stay)
    }

    /// Results that are known now.
    pub fn len(&self) -> usize {
        let known = |shard: &Shard| {
            let shard = shard.state.lock();
            shard.table.len() - shard.claims
        };
        self.shards.iter().map(known).sum()
    }

    /// No result is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most results that the table keeps.
    pub(crate) fn capacity(&self) -> usize {
        self.entries_max * self.shards.len()
    }

    #[inline]
    fn queue(&self, key: Handle, record: Record) {
        if record.nanos >= PERSIST_NANOS_MIN && self.signal.is_some() {
            self.queue_slowly(key, record);
        }
    }

    fn queue_slowly(&self, key: Handle, record: Record) {
        let Some(signal) = &self.signal else { return };
        let mut pending = self.pending.lock();
        if pending.records.len() >= PENDING_MAX {
            pending.dropped += 1;
            return;
        }
        pending.records.push((key, record));
        let first = pending.records.len() == 1;
        drop(pending);
        if first {
            signal.raise_relations();
        }
    }

    /// Takes what waits to be written.
    pub(crate) fn take_pending(&self) -> Vec<(Handle, Record)> {
        std::mem::take(&mut self.pending.lock().records)
    }

    /// Before an insertion, since making room moves entries.
    #[inline]
    fn make_room_for(&self, shard: &mut ShardState, hash: u64, key: Handle) {
        if shard.table.len() >= self.entries_max && shard.table.find(hash, &key).is_none() {
            self.make_room(shard);
        }
    }

    /// Evicts so that one more entry fits. Bounded: claims are passed over
    /// once a round, which is little work for each result as long as they are
    /// fewer; a shard full of claims grows instead.
    fn make_room(&self, shard: &mut ShardState) {
        let mut victim = None;
        let mut results = 0;
        let claims_max = if shard.claims <= shard.table.len() / 2 { shard.claims } else { 0 };
        for _ in 0..SWEEP_RESULTS_MAX + claims_max {
            if shard.hand >= shard.table.len() {
                shard.hand = 0;
            }
            let position = shard.hand;
            shard.hand += 1;
            let Some(entry) = shard.table.at_mut(position) else { break };
            if entry.in_flight() {
                continue;
            }
            victim = Some(position);
            results += 1;
            if entry.packed & REFERENCED == 0 || results == SWEEP_RESULTS_MAX {
                break;
            }
            entry.packed &= !REFERENCED;
        }
        if let Some(position) = victim {
            shard.table.remove_at(position, |key| self.seed.of_all(key));
            shard.evictions += 1;
        }
    }

    pub(crate) fn stats(&self) -> RelationsStats {
        let mut stats = RelationsStats { unwritten: self.pending.lock().dropped, ..Default::default() };
        for shard in &self.shards {
            let shard = shard.state.lock();
            stats.known += (shard.table.len() - shard.claims) as u64;
            stats.claims += shard.claims as u64;
            stats.bytes += shard.table.allocated_bytes() as u64;
            stats.hits += shard.hits;
            stats.misses += shard.misses;
            stats.evictions += shard.evictions;
        }
        stats
    }
}

fn take_waiters(shard: &mut ShardState, key: Handle, packed: u64) -> Vec<u64> {
    match packed & HAS_WAITERS {
        0 => Vec::new(),
        _ => shard.waiters.remove(&key).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
