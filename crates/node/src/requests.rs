// SPDX-License-Identifier: Apache-2.0
//! Requests under way, and who waits for them.

use std::sync::Arc;

use evaluator::{Priority, Request, Terms};
use foldhash::HashMap;
use objects::Handle;
use parking_lot::Mutex;
use sandbox::{Listener, Source};
use tokio::sync::oneshot;

use crate::Scheduler;
use crate::streams::{Outlet, stream};

/// Requests that were submitted and not answered.
#[derive(Debug)]
pub(crate) struct Requests {
    scheduler: Arc<Scheduler>,
    waiters: Mutex<HashMap<u64, Waiter>>,
}

/// Who waits for the end of a request.
#[derive(Debug)]
struct Waiter {
    request: Arc<Request>,
    sender: oneshot::Sender<Told>,
    /// The result is wanted before it is whole.
    streams: bool,
}

/// What is told of a request.
#[derive(Debug)]
pub(crate) enum Told {
    /// Its result.
    Result(Handle),
    /// Its result begins to come; that it is whole is told by the receiver.
    Begins(Outlet, oneshot::Receiver<Told>),
}

impl Requests {
    pub(crate) fn new(scheduler: Arc<Scheduler>) -> Self {
        Self { scheduler, waiters: Mutex::default() }
    }

    /// Queues a request, whose result may be wanted before it is whole; `None` if the
    /// node has too many.
    pub(crate) fn submit(
        &self,
        goal: Handle,
        terms: impl Into<Terms>,
        streams: bool,
    ) -> Option<(Arc<Request>, oneshot::Receiver<Told>)> {
        let (sender, receiver) = oneshot::channel();
        // Held while submitting: a worker may finish before this returns.
        let mut waiters = self.waiters.lock();
        let request = self.scheduler.submit(goal, terms)?;
        waiters.insert(request.id(), Waiter { request: Arc::clone(&request), sender, streams });
        Some((request, receiver))
    }

    /// Takes a request that the caller begins itself, whose result may be wanted
    /// before it is whole; `None` if the node has too many.
    pub(crate) fn take(
        &self,
        goal: Handle,
        priority: Priority,
        streams: bool,
    ) -> Option<(Arc<Request>, oneshot::Receiver<Told>)> {
        let (sender, receiver) = oneshot::channel();
        let request = self.scheduler.take_request(goal, priority)?;
        let waiter = Waiter { request: Arc::clone(&request), sender, streams };
        self.waiters.lock().insert(request.id(), waiter);
        Some((request, receiver))
    }

    /// The result of a request begins to come; once. `None`: it is wanted whole.
    pub(crate) fn begins(&self, request: u64, source: Box<dyn Source>) -> Option<Box<dyn Listener>> {
        let mut waiters = self.waiters.lock();
        let waiter = waiters.get_mut(&request).filter(|waiter| waiter.streams)?;
        waiter.streams = false;
        let (sender, receiver) = oneshot::channel();
        let first = std::mem::replace(&mut waiter.sender, sender);
        drop(waiters);
        let (inlet, outlet) = stream(source);
        // Who has left drops what is sent here, and the source hears of that: not
        // now, for whoever tells of the beginning holds the instance.
        match first.send(Told::Begins(outlet, receiver)) {
            Ok(()) => Some(Box::new(inlet)),
            Err(told) => {
                if let Told::Begins(outlet, _) = told {
                    outlet.forget();
                }
                Some(Box::new(inlet))
            }
        }
    }

    /// All that were not answered yet.
    pub(crate) fn under_way(&self) -> Vec<Arc<Request>> {
        self.waiters.lock().values().map(|waiter| Arc::clone(&waiter.request)).collect()
    }

    /// A worker has the result.
    pub(crate) fn finish(&self, request: &Request, result: Handle) {
        let waiter = self.waiters.lock().remove(&request.id());
        self.scheduler.retire(request);
        if let Some(waiter) = waiter {
            // Whoever asked may have left; the result is remembered anyway.
            let _ = waiter.sender.send(Told::Result(result));
        }
    }
}
