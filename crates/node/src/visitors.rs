// SPDX-License-Identifier: Apache-2.0
//! Walks that happen on the thread of whoever brings them.
//!
//! The walk of a function's request takes some microseconds until a process
//! has it, and fewer when the result is there. To hand it to a worker and back
//! would take more than both. So the event loop does it itself, with an
//! evaluator of this pool; whatever turns out to be more than that goes on in
//! the scheduler's queues, as every other job.

use std::sync::{Arc, OnceLock, Weak};

use evaluator::{Event, Job, JobId, Priority, Progress, Request};
use objects::Handle;
use parking_lot::Mutex;
use sandbox::{Listener, Source};
use store::Object;
use tokio::sync::oneshot;

use crate::executor::Executor;
use crate::requests::{Requests, Told};
use crate::{Evaluator, Scheduler};

/// An evaluator and its world.
type Pair = (Evaluator, Executor);

/// Evaluators for threads that are no workers.
pub(crate) struct Visitors {
    scheduler: Arc<Scheduler>,
    requests: Arc<Requests>,
    /// Those that nobody uses now.
    free: Mutex<Vec<Pair>>,
}

impl Visitors {
    /// None so far: everything is left to the workers.
    pub(crate) fn new(scheduler: Arc<Scheduler>, requests: Arc<Requests>) -> Self {
        Self { scheduler, requests, free: Mutex::default() }
    }

    /// One more thread may walk at the same time, with these.
    pub(crate) fn admit(&self, evaluator: Evaluator, executor: Executor) {
        self.free.lock().push((evaluator, executor));
    }

    /// Takes a request and walks it as far as it goes without waiting; `None`
    /// if the node has too many. Whether its result may come before it is whole.
    pub(crate) fn submit(
        &self,
        goal: Handle,
        priority: Priority,
        streams: bool,
    ) -> Option<(Arc<Request>, oneshot::Receiver<Told>)> {
        let taken = self.free.lock().pop();
        let Some((mut evaluator, mut executor)) = taken else {
            return self.requests.submit(goal, priority, streams);
        };
        let submitted = self.requests.take(goal, priority, streams);
        if let Some((request, _)) = &submitted {
            linux::take_huge_pages();
            executor.begin(request);
            let progress = evaluator.evaluate(&mut executor, request, goal);
            self.conclude(request, progress);
            executor.end();
        }
        self.free.lock().push((evaluator, executor));
        submitted
    }

    /// The result of a request begins to come. `None`: it is wanted whole.
    pub(crate) fn begins(&self, request: u64, source: Box<dyn Source>) -> Option<Box<dyn Listener>> {
        self.requests.begins(request, source)
    }

    /// Delivers an event to a job; one that a visitor has begun goes on here.
    pub(crate) fn deliver(&self, id: JobId, event: Event) {
        let Some(job) = self.scheduler.deliver(id, event) else { return };
        let taken = self.free.lock().pop();
        let Some(mut pair) = taken else { return self.scheduler.queue(job) };
        self.go_on(&mut pair, job);
        self.free.lock().push(pair);
    }

    fn go_on(&self, (evaluator, executor): &mut Pair, job: Box<Job<Object>>) {
        let request = Arc::clone(job.request());
        executor.begin(&request);
        let progress = evaluator.run(executor, job);
        self.conclude(&request, progress);
        executor.end();
    }

    fn conclude(&self, request: &Request, progress: Progress) {
        if let Progress::Finished(result) = progress {
            self.requests.finish(request, result);
        }
    }
}

/// The visitors, for those whom they need themselves.
#[derive(Default)]
pub(crate) struct Visiting(OnceLock<Weak<Visitors>>);

impl Visiting {
    /// From now on events are delivered to these.
    pub(crate) fn set(&self, visitors: &Arc<Visitors>) {
        // Once, by the node.
        _ = self.0.set(Arc::downgrade(visitors));
    }

    /// The result of a request begins to come. `None`: it is wanted whole.
    pub(crate) fn begins(&self, request: u64, source: Box<dyn Source>) -> Option<Box<dyn Listener>> {
        self.0.get().and_then(Weak::upgrade)?.begins(request, source)
    }

    /// Delivers an event to a job.
    pub(crate) fn deliver(&self, scheduler: &Scheduler, id: JobId, event: Event) {
        match self.0.get().and_then(Weak::upgrade) {
            Some(visitors) => visitors.deliver(id, event),
            None => scheduler.resume(id, event),
        }
    }
}
