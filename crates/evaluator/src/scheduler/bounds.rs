// SPDX-License-Identifier: Apache-2.0
//! What jobs take of the node, and the events that tell them of their turn:
//! memory for guests, room for the inputs that they hold, stacks of walks.

use std::sync::atomic::{AtomicUsize, Ordering};

use objects::Handle;

use super::{Event, SPARKS_PER_WORKER, Scheduler};
use crate::admission::{Claimant, Reservation};
use crate::job::JobId;
use crate::request::{Priority, Request};
use crate::walk::WalkPool;

impl<D> Scheduler<D> {
    /// Whether goals that only wait may be offered for this request: not while others are
    /// queued. One worker is enough for any number of them.
    pub(crate) fn takes_ahead(&self, request: &Request) -> bool {
        let is_queued =
            |sparks: &AtomicUsize| sparks.load(Ordering::Relaxed) > self.options.workers * SPARKS_PER_WORKER;
        !request.is_private() && !self.sparks.iter().any(is_queued)
    }

    /// What an application may use without asking.
    pub fn allowance_bytes(&self) -> u64 {
        self.options.admission.allowance_bytes
    }

    pub(crate) fn reserve(&self, job: JobId, request: &Request, memory_bytes: u64) -> Reservation {
        let mut line = self.admission.lock();
        let who = Claimant { job, request: request.id(), shares: None };
        line.reserve(who, memory_bytes, request.priority())
    }

    /// The most memory that one application may ask for.
    pub fn largest_bytes(&self) -> u64 {
        self.admission.lock().largest_bytes()
    }

    pub(crate) fn try_reserve(&self, memory_bytes: u64, priority: Priority) -> Option<u64> {
        self.admission.lock().try_reserve(memory_bytes, priority)
    }

    pub(crate) fn release(&self, bytes: u64) {
        if bytes != 0 {
            self.admit(bytes);
        }
    }

    pub(super) fn admit(&self, bytes: u64) {
        let admitted = self.admission.lock().release(bytes);
        for (job, bytes) in admitted {
            self.resume(job, Event::Admitted(bytes));
        }
    }

    #[inline]
    pub(crate) fn walks(&self) -> &WalkPool {
        &self.walks
    }

    /// Bytes of the stacks of all walks, as far as they are counted.
    pub fn walk_bytes(&self) -> u64 {
        self.walks.used_bytes()
    }

    /// The most that all jobs together may hold of inputs.
    pub fn held_max_bytes(&self) -> u64 {
        self.options.held_max_bytes
    }

    /// What one worker may hold without being counted: all of them together,
    /// half of what jobs may.
    pub(crate) fn worker_held_max_bytes(&self) -> u64 {
        self.options.held_max_bytes / (2 * self.options.workers.max(1) as u64)
    }

    /// Bytes of inputs that jobs hold, or are about to.
    pub fn held_bytes(&self) -> u64 {
        self.options.held_max_bytes - self.room.lock().free_bytes()
    }

    /// Jobs that wait for room for their inputs.
    pub fn awaiting_room(&self) -> usize {
        self.room.lock().waiting()
    }

    pub(crate) fn reserve_room(
        &self,
        job: JobId,
        request: &Request,
        bytes: u64,
        shares: Option<Handle>,
    ) -> Reservation {
        let mut line = self.room.lock();
        line.reserve(Claimant { job, request: request.id(), shares }, bytes, request.priority())
    }

    pub(crate) fn try_take_room(&self, bytes: u64, priority: Priority) -> bool {
        self.room.lock().try_reserve(bytes, priority).is_some()
    }

    pub(crate) fn give_room_back(&self, bytes: u64) {
        if bytes != 0 {
            self.make_room(bytes);
        }
    }

    /// Room is given back by a job that has used a large input: who needs the same
    /// one had better be next.
    pub(crate) fn pass_room_on(&self, bytes: u64, used: Option<Handle>) {
        if bytes != 0 {
            self.give_room(bytes, used);
        }
    }

    pub(super) fn make_room(&self, bytes: u64) {
        self.give_room(bytes, None);
    }

    fn give_room(&self, bytes: u64, used: Option<Handle>) {
        let admitted = self.room.lock().release_sharing(bytes, used);
        for (job, bytes) in admitted {
            self.resume(job, Event::Room(bytes));
        }
    }

    /// Bytes of the common pool that nobody reserved.
    pub fn free_bytes(&self) -> u64 {
        self.admission.lock().free_bytes()
    }
}
