// SPDX-License-Identifier: Apache-2.0
//! The background thread of a store with a disk: it keeps the memory tier
//! within its budget and writes relations that are worth it.
//!
//! [`Signal`] is how the other threads wake it. Memory pressure is served at
//! once, relations at most every [`RELATIONS_INTERVAL`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::closure::{Closure, Settling};
use crate::disk::Disk;
use crate::memory::{Memory, Sweep};
use crate::relations::Relations;
use crate::{Error, Object};

/// Time between two writes of relations, and from the first that waits to its write: so that each
/// carries many, and that a short computation is over before its results are written.
const RELATIONS_INTERVAL: Duration = Duration::from_millis(50);
/// After a failed write of evicted objects, none is tried for this long.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Entries that one visit to a shard looks at under its lock.
const SWEEP_ENTRIES: usize = 256;
/// Objects are written when this many bytes of them wait.
const SPILL_BYTES: usize = 8 << 20;
/// The same, in objects.
const SPILL_OBJECTS: usize = 8 << 10;

/// Wakes the background thread, and those who wait for it.
#[derive(Default)]
pub(crate) struct Signal {
    wants: Mutex<Wants>,
    work: Condvar,
    relief: Condvar,
    /// Mirrors `Wants::pressure`, to be read without the lock.
    pressure: AtomicBool,
    /// The background thread, which must not wait for itself.
    worker: OnceLock<ThreadId>,
}

#[derive(Clone, Copy, Default)]
struct Wants {
    stop: bool,
    pressure: bool,
    /// Since when some wait.
    relations: Option<Instant>,
    /// Evicted objects cannot be written now: nobody should wait for it.
    stuck: bool,
}

impl Signal {
    /// The memory tier is over its budget.
    pub(crate) fn raise_pressure(&self) {
        if !self.pressure.swap(true, Ordering::Relaxed) {
            self.wants.lock().pressure = true;
            self.work.notify_one();
        }
    }

    /// Relations wait to be written.
    pub(crate) fn raise_relations(&self) {
        self.wants.lock().relations.get_or_insert_with(Instant::now);
        self.work.notify_one();
    }

    /// Waits until memory was freed, or `limit` has passed, or nothing can be freed.
    pub(crate) fn wait_for_relief(&self, limit: Duration) {
        if self.worker.get() == Some(&thread::current().id()) {
            return;
        }
        let mut wants = self.wants.lock();
        if !wants.stuck && !wants.stop {
            self.relief.wait_for(&mut wants, limit);
        }
    }

    fn stop(&self) {
        self.wants.lock().stop = true;
        self.work.notify_one();
        self.relief.notify_all();
    }

    fn stopped(&self) -> bool {
        self.wants.lock().stop
    }

    fn relieved(&self) {
        self.relief.notify_all();
    }

    /// Sleeps until there is work: relations not before `relations_from`,
    /// pressure not before `pressure_from`.
    fn wait_for_work(&self, relations_from: Instant, pressure_from: Instant) -> Wants {
        let mut wants = self.wants.lock();
        loop {
            let now = Instant::now();
            let relations_due = wants.relations.map(|since| relations_from.max(since + RELATIONS_INTERVAL));
            let relations = relations_due.is_some_and(|due| now >= due);
            let pressure = wants.pressure && now >= pressure_from;
            if wants.stop || relations || pressure {
                let taken = Wants { relations: wants.relations.filter(|_| relations), pressure, ..*wants };
                wants.relations = wants.relations.filter(|_| !relations);
                if pressure {
                    wants.pressure = false;
                    wants.stuck = false;
                    self.pressure.store(false, Ordering::Relaxed);
                }
                return taken;
            }
            let pressure_due = wants.pressure.then_some(pressure_from);
            match relations_due.into_iter().chain(pressure_due).min() {
                Some(from) => drop(self.work.wait_until(&mut wants, from)),
                None => self.work.wait(&mut wants),
            }
        }
    }

    fn set_stuck(&self) {
        self.wants.lock().stuck = true;
        self.relief.notify_all();
    }
}

/// What the background thread works on; also used by callers who want it now.
pub(crate) struct Work {
    pub(crate) memory: Arc<Memory>,
    pub(crate) disk: Arc<Disk>,
    pub(crate) relations: Arc<Relations>,
    pub(crate) signal: Arc<Signal>,
    /// One writer of relations at a time, so that a caller who waits for the
    /// lock knows that what was taken before is written.
    pub(crate) writing_relations: Mutex<()>,
    pub(crate) failures: AtomicU64,
    pub(crate) spilled: AtomicU64,
}

/// The running thread; ends when this is dropped.
pub(crate) struct Background {
    work: Arc<Work>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub(crate) fn start(work: Arc<Work>) -> Result<Self, Error> {
        let path = work.disk.index().path().to_owned();
        let shared = Arc::clone(&work);
        let thread = thread::Builder::new().name("store-background".to_owned());
        let thread = thread.spawn(move || shared.run()).map_err(|source| Error::io(path, source))?;
        Ok(Self { work, thread: Some(thread) })
    }

    pub(crate) fn work(&self) -> &Work {
        &self.work
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.work.signal.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by its hook already.
            let _ = thread.join();
        }
    }
}

impl Work {
    fn run(&self) {
        let set = self.signal.worker.set(thread::current().id());
        debug_assert!(set.is_ok(), "a store has one background thread");
        let mut relations_from = Instant::now();
        let mut pressure_from = Instant::now();
        let mut shard = 0;
        loop {
            let wants = self.signal.wait_for_work(relations_from, pressure_from);
            if wants.stop {
                return;
            }
            if wants.pressure && self.relieve(&mut shard).is_err() {
                self.failures.fetch_add(1, Ordering::Relaxed);
                self.signal.set_stuck();
                pressure_from = Instant::now() + RETRY_INTERVAL;
            }
            if wants.relations.is_some() {
                // Relations may be lost; the failure is counted.
                let _ = self.write_relations();
                if self.disk.has_unsettled() {
                    let _ = self.disk.settle_promises();
                }
                relations_from = Instant::now() + RELATIONS_INTERVAL;
            }
        }
    }

    /// Evicts until the memory tier is an eighth below its budget, or three
    /// rounds over everything found nothing to evict.
    fn relieve(&self, shard: &mut usize) -> Result<(), Error> {
        let goal = self.memory.budget_bytes() - self.memory.budget_bytes() / 8;
        let mut fruitless_visits = 0;
        while self.memory.used_bytes() > goal && !self.signal.stopped() {
            let mut sweep = Sweep::default();
            let mut bytes = 0;
            let mut visited = 0;
            let mut visits = 0;
            while bytes < SPILL_BYTES
                && sweep.unwritten.len() < SPILL_OBJECTS
                && visits < self.memory.shards()
            {
                let known = sweep.unwritten.len();
                visited += self.memory.sweep(*shard, SWEEP_ENTRIES, &mut sweep);
                bytes += sweep.unwritten[known..].iter().map(|(_, object)| object.len()).sum::<usize>();
                *shard = (*shard + 1) % self.memory.shards();
                visits += 1;
            }
            let found = !sweep.evicted.is_empty() || !sweep.unwritten.is_empty();
            self.spill(sweep.unwritten)?;
            fruitless_visits += visited;
            if found {
                fruitless_visits = 0;
                drop::<Vec<Object>>(sweep.evicted);
                self.signal.relieved();
            }
            if fruitless_visits > 3 * self.memory.len() {
                break;
            }
        }
        Ok(())
    }

    fn spill(&self, objects: Vec<(objects::Handle, Object)>) -> Result<(), Error> {
        if objects.is_empty() {
            return Ok(());
        }
        let _stays = self.disk.stay();
        let mut settling = Settling::new(&self.memory, &self.disk);
        objects.iter().for_each(|(key, object)| settling.walk(*key, object));
        let (settled, written) = settling.finish(objects);
        self.memory.evict_written(settled);
        self.spilled.fetch_add(written?, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the relations that wait, each after its result's closure.
    pub(crate) fn write_relations(&self) -> Result<(), Error> {
        let _one_at_a_time = self.writing_relations.lock();
        let pending = self.relations.take_pending();
        if pending.is_empty() {
            return Ok(());
        }
        let _stays = self.disk.stay();
        let mut closure = Closure::brief(&self.memory, &self.disk);
        let mut write = || {
            let mut ready = Vec::with_capacity(pending.len());
            for (key, record) in &pending {
                if closure.walk(record.result)? {
                    // Its recipe, too, so that provenance can be read later;
                    // whether all of that is local does not matter.
                    closure.walk(*key)?;
                    ready.push((*key, *record));
                }
            }
            Ok(ready)
        };
        let written = write().and_then(|ready| closure.finish(ready));
        if written.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        written
    }
}

#[cfg(test)]
mod tests;
