// SPDX-License-Identifier: Apache-2.0
//! Requests under way, and who waits for them.

use std::collections::HashMap;
use std::sync::Arc;

use evaluator::{Priority, Request};
use objects::Handle;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::Scheduler;

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
    sender: oneshot::Sender<Handle>,
}

impl Requests {
    pub(crate) fn new(scheduler: Arc<Scheduler>) -> Self {
        Self { scheduler, waiters: Mutex::default() }
    }

    /// Queues a request; `None` if the node has too many.
    pub(crate) fn submit(
        &self,
        goal: Handle,
        priority: Priority,
    ) -> Option<(Arc<Request>, oneshot::Receiver<Handle>)> {
        let (sender, receiver) = oneshot::channel();
        // Held while submitting: a worker may finish before this returns.
        let mut waiters = self.waiters.lock();
        let request = self.scheduler.submit(goal, priority)?;
        waiters.insert(request.id(), Waiter { request: Arc::clone(&request), sender });
        Some((request, receiver))
    }

    /// Takes a request that the caller begins itself; `None` if the node has too
    /// many.
    pub(crate) fn take(
        &self,
        goal: Handle,
        priority: Priority,
    ) -> Option<(Arc<Request>, oneshot::Receiver<Handle>)> {
        let (sender, receiver) = oneshot::channel();
        let request = self.scheduler.take_request(goal, priority)?;
        self.waiters.lock().insert(request.id(), Waiter { request: Arc::clone(&request), sender });
        Some((request, receiver))
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
            let _ = waiter.sender.send(result);
        }
    }
}
