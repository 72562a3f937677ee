// SPDX-License-Identifier: Apache-2.0
//! Brings objects from the disk into memory, so that no worker ever waits for
//! one: a few threads, each object read once for all who asked. Of a large one that
//! only selections want, it brings the parts; until it has read as much so as all
//! of it would have been.
//!
//! The queue is bounded by its askers: a job asks for at most 256 objects at
//! a time, and the number of jobs is limited.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;

use evaluator::{Event, JobId};
use objects::{Handle, Part, TreeView};
use parking_lot::{Condvar, Mutex};
use store::Store;

use crate::Scheduler;
use crate::recomputing::{Found, Remakes, found};

/// Enough to keep a fast disk busy while one read verifies its bytes.
const THREADS: usize = 4;

/// Reads objects for jobs that wait.
pub(crate) struct Fetcher {
    store: Arc<Store>,
    scheduler: Arc<Scheduler>,
    queue: Mutex<Queue>,
    arrived: Condvar,
    /// What was not there and is made again.
    pub(crate) remakes: Remakes,
}

/// What a part costs however small it is: what is verified as one, and a path to it.
const PART_COST_BYTES: u64 = 20 << 10;
/// Objects of which is known how much was read in parts; forgotten beyond this.
const PARTED_MAX: usize = 1 << 12;

/// What can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Wish {
    /// An object, to be local.
    Whole(Handle),
    /// What the selection of a part leads to.
    Part(Handle, Part),
}

#[derive(Debug, Default)]
struct Queue {
    wanted: VecDeque<Wish>,
    /// Who waits for what is wanted or being read.
    waiters: HashMap<Wish, Vec<JobId>>,
    /// Bytes of objects that were read in parts.
    parted: HashMap<Handle, u64>,
    is_closed: bool,
}

impl Fetcher {
    pub(crate) fn new(store: Arc<Store>, scheduler: Arc<Scheduler>) -> Self {
        let (queue, remakes) = (Mutex::default(), Remakes::default());
        Self { store, scheduler, queue, arrived: Condvar::new(), remakes }
    }

    /// Starts the reading threads.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<Vec<JoinHandle<()>>> {
        let thread = |number| {
            let fetcher = Arc::clone(self);
            crate::workers::spawn(format!("sinew-fetch-{number}"), move || fetcher.run())
        };
        (0..THREADS).map(thread).collect()
    }

    /// Asks for an object; `waiter` gets one event.
    pub(crate) fn fetch(&self, object: Handle, waiter: JobId) {
        self.queue.lock().ask(Wish::Whole(object), waiter);
        self.arrived.notify_one();
    }

    /// Asks for a part that lies within an object; `waiter` gets one event.
    pub(crate) fn fetch_part(&self, object: Handle, part: Part, waiter: JobId) {
        let wish = if Store::is_partial(object) { Wish::Part(object, part) } else { Wish::Whole(object) };
        self.queue.lock().ask(wish, waiter);
        self.arrived.notify_one();
    }

    /// Objects wanted or being read.
    pub(crate) fn pending(&self) -> usize {
        self.queue.lock().waiters.len()
    }

    pub(crate) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.arrived.notify_all();
    }

    fn run(&self) {
        while let Some(wish) = self.next() {
            let (object, came) = match wish {
                Wish::Whole(object) => (object, self.whole(object)),
                Wish::Part(object, part) => (object, self.part(object, part)),
            };
            let event = match found(&self.store, object, came) {
                Ok(Found::Here(event)) => event,
                Ok(Found::Dropped(recipe)) => {
                    self.remakes.note();
                    Event::Dropped { object: object.plain_tree(), recipe: recipe.application }
                }
                Ok(Found::Absent) => Event::Missing(object),
                Err(error) => {
                    tracing::error!(%object, %error, "an object cannot be read");
                    Event::Missing(object)
                }
            };
            let waiters = self.queue.lock().waiters.remove(&wish);
            for waiter in waiters.unwrap_or_default() {
                self.scheduler.resume(waiter, event);
            }
        }
    }

    fn whole(&self, object: Handle) -> Result<Option<Event>, store::Error> {
        Ok(self.store.get(object)?.map(|_| Event::Arrived))
    }

    fn part(&self, object: Handle, part: Part) -> Result<Option<Event>, store::Error> {
        // The evaluator has looked that it is.
        let Some(range) = part.within(object.size()) else { return Ok(None) };
        let unit = if object.names_tree() { Handle::LEN as u64 } else { 1 };
        let range = range.start * unit..range.end * unit;
        if self.queue.lock().is_worn(object, range.end - range.start, object.size() * unit) {
            return self.whole(object);
        }
        let Some(bytes) = self.store.read_range(object, range)? else { return Ok(None) };
        if !object.names_tree() {
            return Ok(Some(Event::Taken(self.store.keep_blob_vec(bytes))));
        }
        // What is no tree has no such name; whoever put a file there made a mistake.
        let Ok(tree) = TreeView::from_bytes(&bytes) else { return Ok(None) };
        Ok(match part {
            Part::Element(_) => tree.get(0).map(Event::Taken),
            Part::Range { .. } => Some(Event::Taken(self.store.keep_tree(tree))),
        })
    }

    fn next(&self) -> Option<Wish> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(wish) = queue.wanted.pop_front() {
                return Some(wish);
            }
            if queue.is_closed {
                return None;
            }
            self.arrived.wait(&mut queue);
        }
    }
}

impl Queue {
    fn ask(&mut self, wish: Wish, waiter: JobId) {
        let waiters = self.waiters.entry(wish).or_default();
        waiters.push(waiter);
        if waiters.len() == 1 {
            self.wanted.push_back(wish);
        }
    }

    /// Notes that a part of an object is read. Whether so much of it was by now that
    /// reading all of it takes no longer; then it need not be read again.
    fn is_worn(&mut self, object: Handle, bytes: u64, whole_bytes: u64) -> bool {
        if self.parted.len() >= PARTED_MAX && !self.parted.contains_key(&object) {
            self.parted.clear();
        }
        let read = self.parted.entry(object).or_default();
        *read += bytes.max(PART_COST_BYTES);
        let is_worn = *read > whole_bytes;
        if is_worn {
            self.parted.remove(&object);
        }
        is_worn
    }
}
