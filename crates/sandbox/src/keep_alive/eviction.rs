// SPDX-License-Identifier: Apache-2.0
//! Which idle instance goes first when memory is short.
//!
//! Greedy-Dual-Size-Frequency, as FaasCache uses it for functions (Fuerst and
//! Sharma, ASPLOS 2021): an instance is worth `frequency × cost / size` above
//! a clock. Who is evicted moves the clock up to what it was worth, so that
//! those which were used before that lose against those used since.

use std::cmp::Ordering;

/// What keeping an instance is worth; the least goes first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Priority(f64);

impl Eq for Priority {}

impl Ord for Priority {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Priority {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Moves up with every eviction and never down.
#[derive(Debug, Default)]
pub(super) struct Clock(f64);

impl Clock {
    /// Of an instance that is used now: its function was called `frequency`
    /// times since it last had no instance, and a new one costs `cost_ns`.
    pub(super) fn priority(&self, frequency: u64, cost_ns: u64, size_bytes: u64) -> Priority {
        Priority(self.0 + frequency as f64 * cost_ns as f64 / size_bytes.max(1) as f64)
    }

    /// An instance of this priority had to go.
    pub(super) fn evicted(&mut self, priority: Priority) {
        self.0 = self.0.max(priority.0);
    }
}
