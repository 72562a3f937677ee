// SPDX-License-Identifier: Apache-2.0
//! Brings objects from the disk into memory, so that no worker ever waits for
//! one: a few threads, each object read once for all who asked.
//!
//! The queue is bounded by its askers: a job asks for at most 256 objects at
//! a time, and the number of jobs is limited.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;

use evaluator::{Event, JobId};
use objects::Handle;
use parking_lot::{Condvar, Mutex};
use store::Store;

use crate::Scheduler;

/// Enough to keep a fast disk busy while one read verifies its bytes.
const THREADS: usize = 4;

/// Reads objects for jobs that wait.
pub(crate) struct Fetcher {
    store: Arc<Store>,
    scheduler: Arc<Scheduler>,
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    wanted: VecDeque<Handle>,
    /// Who waits for what is wanted or being read.
    waiters: HashMap<Handle, Vec<JobId>>,
    is_closed: bool,
}

impl Fetcher {
    pub(crate) fn new(store: Arc<Store>, scheduler: Arc<Scheduler>) -> Self {
        Self { store, scheduler, queue: Mutex::default(), arrived: Condvar::new() }
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
        let mut queue = self.queue.lock();
        let waiters = queue.waiters.entry(object).or_default();
        waiters.push(waiter);
        if waiters.len() == 1 {
            queue.wanted.push_back(object);
            self.arrived.notify_one();
        }
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
        while let Some(object) = self.next() {
            let event = match self.store.get(object) {
                Ok(Some(_)) => Event::Arrived,
                Ok(None) => Event::Missing(object),
                Err(error) => {
                    tracing::error!(%object, %error, "an object cannot be read");
                    Event::Missing(object)
                }
            };
            let waiters = self.queue.lock().waiters.remove(&object);
            for waiter in waiters.unwrap_or_default() {
                self.scheduler.resume(waiter, event);
            }
        }
    }

    fn next(&self) -> Option<Handle> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(object) = queue.wanted.pop_front() {
                return Some(object);
            }
            if queue.is_closed {
                return None;
            }
            self.arrived.wait(&mut queue);
        }
    }
}
