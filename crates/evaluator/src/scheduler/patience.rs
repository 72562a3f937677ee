// SPDX-License-Identifier: Apache-2.0
//! Requests that can wait, and the end of their patience.
//!
//! As long as a request is patient it runs only where a worker has nothing else, and
//! yields between two applications to whatever comes; among its kind, who can wait
//! least goes first. When its moment has come, which the host's clock tells, all of it
//! becomes what it would have been from the beginning: it has its own priority, and the
//! place among those that are ready that its arrival gives it, before all who came
//! later; what of it had begun stands before those. So it begins no later than its moment
//! and what a request of its priority that came first waits anyway.
//!
//! A job of it that holds memory or inputs which others may want is resumed with its
//! own priority: it has its turn soon, and lets go of them.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::{Ready, Scheduler};
use crate::request::{Priority, Request};

impl<D> Scheduler<D> {
    /// A request has waited for others as long as it can. Of no effect on one that
    /// waits for nobody, or a second time.
    pub fn urge(&self, request: &Request) {
        let mut queues = self.queues.lock();
        let patience = request.patience();
        if !request.urge() {
            return;
        }
        let from = Priority::Patient.level();
        let to = request.priority().level();
        let is_its = |ready: &Ready<D>| match ready {
            Ready::New(new) => new.id() == request.id(),
            Ready::Yielded(job) => job.request.id() == request.id(),
        };
        let source = &mut queues.levels[from];
        let same = (patience, 0)..=(patience, u64::MAX);
        let ready: Vec<_> = source.ready.extract_if(same, |_, ready| is_its(ready)).collect();
        let resumed = take_out(&mut source.resumed, |job| job.request.id() == request.id());
        let sparks = take_out(&mut source.sparks, |(of, _)| of.id() == request.id());
        let moved = ready.len() + resumed.len();
        self.sparks[from].fetch_sub(sparks.len(), Ordering::Relaxed);
        self.sparks[to].fetch_add(sparks.len(), Ordering::Relaxed);
        self.runnable[from].fetch_sub(moved, Ordering::Relaxed);
        self.runnable[to].fetch_add(moved, Ordering::Relaxed);
        let target = &mut queues.levels[to];
        for ((_, number), entry) in ready {
            match entry {
                Ready::New(_) => _ = target.ready.insert((0, number), entry),
                Ready::Yielded(job) => target.resumed.push_back(job),
            }
        }
        target.resumed.extend(resumed);
        target.sparks.extend(sparks);
        drop(queues);
        self.raise_in_lines(request);
    }

    /// Those of its jobs that stand in line for memory or room stand in its own
    /// priority's from now on, at the end. Who lines up meanwhile sees under the
    /// line's lock that it is urged.
    fn raise_in_lines(&self, request: &Request) {
        for line in [&self.admission, &self.room] {
            line.lock().raise(request.id(), Priority::Patient, request.priority());
        }
        // Who has moved up may fit now.
        self.admit(0);
        self.make_room(0);
    }
}

/// What fits, in order; the rest stays, in order.
fn take_out<T>(queue: &mut VecDeque<T>, mut fits: impl FnMut(&T) -> bool) -> VecDeque<T> {
    let (taken, left) = std::mem::take(queue).into_iter().partition(|item| fits(item));
    *queue = left;
    taken
}

#[cfg(test)]
mod tests;
