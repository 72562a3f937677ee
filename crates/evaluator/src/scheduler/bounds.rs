// SPDX-License-Identifier: Apache-2.0
//! What jobs take of the node, and the events that tell them of their turn:
//! memory for guests, room for the inputs that they hold, stacks of walks.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Event, Scheduler};
use crate::admission::Reservation;
use crate::job::JobId;
use crate::request::{Priority, Request};
use crate::walk::WalkPool;

impl<D> Scheduler<D> {
    /// Whether goals that only wait may be offered for this request: not while others are
    /// queued. One worker is enough for any number of them.
    pub(crate) fn takes_ahead(&self, request: &Request) -> bool {
        let is_queued = |sparks: &AtomicUsize| sparks.load(Ordering::Relaxed) > self.options.workers;
        !request.is_private() && !self.sparks.iter().any(is_queued)
    }

    /// What an application may use without asking.
    pub fn allowance_bytes(&self) -> u64 {
        self.options.admission.allowance_bytes
    }

    pub(crate) fn reserve(&self, job: JobId, memory_bytes: u64, priority: Priority) -> Reservation {
        self.admission.lock().reserve(job, memory_bytes, priority)
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

    pub(crate) fn reserve_room(&self, job: JobId, bytes: u64, priority: Priority) -> Reservation {
        self.room.lock().reserve(job, bytes, priority)
    }

    pub(crate) fn try_take_room(&self, bytes: u64, priority: Priority) -> bool {
        self.room.lock().try_reserve(bytes, priority).is_some()
    }

    pub(crate) fn give_room_back(&self, bytes: u64) {
        if bytes != 0 {
            self.make_room(bytes);
        }
    }

    pub(super) fn make_room(&self, bytes: u64) {
        let admitted = self.room.lock().release(bytes);
        for (job, bytes) in admitted {
            self.resume(job, Event::Room(bytes));
        }
    }

    /// Bytes of the common pool that nobody reserved.
    pub fn free_bytes(&self) -> u64 {
        self.admission.lock().free_bytes()
    }
}
