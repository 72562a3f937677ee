// SPDX-License-Identifier: Apache-2.0
//! Brings objects from the disk into memory, so that no worker ever waits for
//! one: a few threads, each object read once for all who asked. Of a large one that
//! only selections want, it brings the parts; until it has read as much so as all
//! of it would have been.
//!
//! The queue is bounded by its askers: a job asks for at most 256 objects at
//! a time, and the number of jobs is limited.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use evaluator::{Event, JobId};
use objects::{Handle, Part, TreeView};
use parking_lot::{Condvar, Mutex};
use store::{Error, Recipe, Store};

use crate::Scheduler;
use crate::recomputing::{Found, Remakes, WHOLE, Way, found, is_missing, way};

/// Enough to keep a fast disk busy while one read verifies its bytes.
const THREADS: usize = 4;
/// As many again read from the durable tier, which is far away: nobody who reads from the disk waits for it.
const FAR_THREADS: usize = 8;

/// Reads objects for jobs that wait.
pub(crate) struct Fetcher {
    store: Arc<Store>,
    scheduler: Arc<Scheduler>,
    queue: Mutex<Queue>,
    arrived: Condvar,
    far_arrived: Condvar,
    /// What was not there and is made again.
    pub(crate) remakes: Remakes,
}

/// What a part costs however small it is: what is verified as one, and a path to it.
const PART_COST_BYTES: u64 = 20 << 10;
/// Objects of which is known how much was read in parts; forgotten beyond this.
const PARTED_MAX: usize = 1 << 12;

/// What can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Wish {
    object: Handle,
    /// What the selection of this part leads to; `None`: the object, to be local.
    part: Option<Part>,
    /// Its recipe has failed: it comes from where it lies, or not at all.
    is_unmade: bool,
}

impl Wish {
    /// The bytes that are wanted, which the evaluator has looked to lie within the object.
    fn range(&self) -> Option<Range<u64>> {
        let range = self.part?.within(self.object.size())?;
        let unit = self.unit();
        Some(range.start * unit..range.end * unit)
    }

    fn unit(&self) -> u64 {
        if self.object.names_tree() { Handle::LEN as u64 } else { 1 }
    }
}

#[derive(Debug, Default)]
struct Queue {
    wanted: VecDeque<Wish>,
    /// What is not here, and in the tier.
    far: VecDeque<Wish>,
    /// Who waits for what is wanted or being read.
    waiters: HashMap<Wish, Vec<JobId>>,
    /// Bytes of objects that were read in parts.
    parted: HashMap<Handle, u64>,
    is_closed: bool,
}

impl Fetcher {
    pub(crate) fn new(store: Arc<Store>, scheduler: Arc<Scheduler>) -> Self {
        let (queue, remakes) = (Mutex::default(), Remakes::default());
        Self { store, scheduler, queue, arrived: Condvar::new(), far_arrived: Condvar::new(), remakes }
    }

    /// Starts the reading threads.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<Vec<JoinHandle<()>>> {
        let thread = |number| {
            let fetcher = Arc::clone(self);
            crate::workers::spawn(format!("sinew-fetch-{number}"), move || fetcher.run(number >= THREADS))
        };
        let far_threads = if self.store.has_tier() { FAR_THREADS } else { 0 };
        (0..THREADS + far_threads).map(thread).collect()
    }

    /// Asks for an object, or for a part that lies within it; `waiter` gets one event.
    pub(crate) fn fetch(&self, object: Handle, part: Option<Part>, waiter: JobId) {
        self.ask(object, part, false, waiter);
    }

    /// The same, of what could not be made again.
    pub(crate) fn fetch_unmade(&self, object: Handle, part: Option<Part>, waiter: JobId) {
        self.ask(object, part, true, waiter);
    }

    fn ask(&self, object: Handle, part: Option<Part>, is_unmade: bool, waiter: JobId) {
        let part = part.filter(|_| Store::is_partial(object));
        self.queue.lock().ask(Wish { object, part, is_unmade }, waiter);
        self.arrived.notify_one();
    }

    /// Objects wanted or being read.
    pub(crate) fn pending(&self) -> usize {
        self.queue.lock().waiters.len()
    }

    pub(crate) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.arrived.notify_all();
        self.far_arrived.notify_all();
    }

    fn run(&self, is_far: bool) {
        while let Some(wish) = self.next(is_far) {
            let Some(event) = self.event(wish, is_far) else {
                self.queue.lock().far.push_back(wish);
                self.far_arrived.notify_one();
                continue;
            };
            let waiters = self.queue.lock().waiters.remove(&wish);
            for waiter in waiters.unwrap_or_default() {
                self.scheduler.resume(waiter, event);
            }
        }
    }

    /// What becomes of a wish; `None`: the tier is to be asked, which those do who may wait for it.
    fn event(&self, wish: Wish, is_far: bool) -> Option<Event> {
        let came = self.read(wish, is_far);
        if is_far || !is_missing(&came) || !self.store.has_tier() {
            return Some(self.told(wish, came));
        }
        let bytes = wish.range().map_or(WHOLE, |range| range.end - range.start);
        match way(&self.store, wish.object, bytes) {
            Ok(Way::Recipe { recipe, is_far: true, .. }) if !wish.is_unmade => {
                Some(self.made(wish, &recipe, true))
            }
            Ok(Way::Recipe { is_far: false, .. } | Way::Nowhere) | Err(_) => Some(self.told(wish, came)),
            Ok(_) => None,
        }
    }

    /// It is made again by its recipe, by who waits for it.
    fn made(&self, wish: Wish, recipe: &Recipe, has_other: bool) -> Event {
        self.remakes.note();
        Event::Dropped { object: wish.object.plain_tree(), recipe: recipe.application, has_other }
    }

    /// What to tell of what reading gave, and there is nothing more to read.
    fn told(&self, wish: Wish, came: Result<Option<Event>, Error>) -> Event {
        let object = wish.object;
        let found = match came {
            came if !wish.is_unmade => found(&self.store, object, came),
            came => came.map(|came| came.map_or(Found::Absent, Found::Here)),
        };
        match found {
            Ok(Found::Here(event)) => event,
            Ok(Found::Dropped(recipe)) => self.made(wish, &recipe, false),
            Ok(Found::Absent) => Event::Missing(object),
            Err(error) => {
                tracing::error!(%object, %error, "an object cannot be read");
                let detail =
                    format!("{object} cannot be read: {error}; store it with `sinew put` and ask again");
                Event::Unreadable { object, detail: self.store.keep_blob(detail.as_bytes()) }
            }
        }
    }

    /// Reads what is wished for, from the tier too if the caller may wait for that.
    fn read(&self, wish: Wish, is_far: bool) -> Result<Option<Event>, Error> {
        let object = wish.object;
        match (wish.part, wish.range()) {
            (Some(part), Some(range)) => self.part(wish, part, range, is_far),
            // The evaluator has looked that it lies within.
            (Some(_), None) => Ok(None),
            (None, _) => self.whole(object, is_far),
        }
    }

    fn whole(&self, object: Handle, is_far: bool) -> Result<Option<Event>, Error> {
        let object = if is_far { self.store.get(object)? } else { self.store.get_here(object)? };
        Ok(object.map(|_| Event::Arrived))
    }

    fn part(&self, wish: Wish, part: Part, range: Range<u64>, is_far: bool) -> Result<Option<Event>, Error> {
        let object = wish.object;
        if self.queue.lock().is_worn(object, range.end - range.start, object.size() * wish.unit()) {
            return self.whole(object, is_far);
        }
        let read = match is_far {
            true => self.store.read_range(object, range)?,
            false => self.store.read_range_here(object, range)?,
        };
        let Some(bytes) = read else { return Ok(None) };
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

    fn next(&self, is_far: bool) -> Option<Wish> {
        let mut queue = self.queue.lock();
        loop {
            // A bucket is waited for by nobody then.
            if queue.is_closed && is_far {
                return None;
            }
            let wishes = if is_far { &mut queue.far } else { &mut queue.wanted };
            if let Some(wish) = wishes.pop_front() {
                return Some(wish);
            }
            if queue.is_closed {
                return None;
            }
            let arrived = if is_far { &self.far_arrived } else { &self.arrived };
            arrived.wait(&mut queue);
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
