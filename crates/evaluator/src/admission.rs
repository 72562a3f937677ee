// SPDX-License-Identifier: Apache-2.0
//! Who may use the node's memory, and in which order.
//!
//! Each worker owns a fixed *allowance*: an application that needs no more
//! runs without asking anybody. What it needs beyond that is reserved from a
//! common pool at the last moment, when all its inputs are local. Those that
//! do not fit wait by priority and then by arrival; smaller ones, waiting or
//! new, may overtake the first one in line a bounded number of times, so that
//! large ones do not starve.
//!
//! Room for the inputs that waiting jobs hold is given out in the same way,
//! by a pool of its own in which nobody has an allowance.

use std::collections::VecDeque;

use crate::job::JobId;
use crate::request::Priority;

/// How often the first in line may be overtaken.
const OVERTAKES_MAX: u32 = 64;

/// How the node's memory for guests is divided.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionOptions {
    /// What one worker may use for an application without asking.
    pub allowance_bytes: u64,
    /// What all workers share beyond their allowances.
    pub pool_bytes: u64,
}

/// The common pool and the line before it. Sans I/O: the scheduler locks it
/// and sends the events.
#[derive(Debug)]
pub struct Admission {
    options: AdmissionOptions,
    free_bytes: u64,
    line: [VecDeque<Waiting>; Priority::LEVELS],
    overtakes: u32,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    job: JobId,
    bytes: u64,
}

/// The answer to a wish for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reservation {
    /// So many bytes of the pool are the job's until it releases them.
    Granted(u64),
    /// The job stands in line.
    Queued,
    /// More than the node has.
    Impossible,
}

impl Admission {
    /// A pool with nothing reserved.
    pub fn new(options: AdmissionOptions) -> Self {
        let line = std::array::from_fn(|_| VecDeque::new());
        Self { options, free_bytes: options.pool_bytes, line, overtakes: 0 }
    }

    /// The most that one application may ask for.
    pub fn largest_bytes(&self) -> u64 {
        self.options.allowance_bytes.saturating_add(self.options.pool_bytes)
    }

    /// Bytes of the pool that nobody reserved.
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Jobs in line.
    pub fn waiting(&self) -> usize {
        self.line.iter().map(VecDeque::len).sum()
    }

    /// Reserves what an application of `memory_bytes` needs beyond the allowance.
    pub(crate) fn reserve(&mut self, job: JobId, memory_bytes: u64, priority: Priority) -> Reservation {
        let bytes = memory_bytes.saturating_sub(self.options.allowance_bytes);
        if bytes > self.options.pool_bytes {
            return Reservation::Impossible;
        }
        if self.take(bytes, priority) {
            return Reservation::Granted(bytes);
        }
        self.line[priority.level()].push_back(Waiting { job, bytes });
        Reservation::Queued
    }

    /// As [`Admission::reserve`], but stands in no line: what was reserved, or
    /// `None` if it is not to be had now.
    pub(crate) fn try_reserve(&mut self, memory_bytes: u64, priority: Priority) -> Option<u64> {
        let bytes = memory_bytes.saturating_sub(self.options.allowance_bytes);
        self.take(bytes, priority).then_some(bytes)
    }

    fn take(&mut self, bytes: u64, priority: Priority) -> bool {
        let ahead = self.line[..=priority.level()].iter().any(|line| !line.is_empty());
        let is_taken = bytes <= self.free_bytes && (!ahead || self.may_overtake());
        if is_taken {
            self.free_bytes -= bytes;
        }
        is_taken
    }

    fn may_overtake(&mut self) -> bool {
        let may = self.overtakes < OVERTAKES_MAX;
        self.overtakes += u32::from(may);
        may
    }

    /// Gives bytes back; returns who is admitted now, with what it got.
    pub(crate) fn release(&mut self, bytes: u64) -> Vec<(JobId, u64)> {
        self.free_bytes += bytes;
        assert!(self.free_bytes <= self.options.pool_bytes, "more memory released than reserved");
        let mut admitted = Vec::new();
        let mut is_overtaking = false;
        for level in 0..Priority::LEVELS {
            let mut index = 0;
            while let Some(waiting) = self.line[level].get(index).copied() {
                if waiting.bytes > self.free_bytes {
                    is_overtaking = true;
                    index += 1;
                    continue;
                }
                if is_overtaking && !self.may_overtake() {
                    return admitted;
                }
                if !is_overtaking {
                    self.overtakes = 0;
                }
                self.line[level].remove(index);
                self.free_bytes -= waiting.bytes;
                admitted.push((waiting.job, waiting.bytes));
            }
        }
        admitted
    }

    /// Takes a job out of line. Whether it stood there.
    pub(crate) fn forget(&mut self, job: JobId) -> bool {
        let mut found = false;
        for line in &mut self.line {
            line.retain(|waiting| {
                found |= waiting.job == job;
                waiting.job != job
            });
        }
        found
    }
}

#[cfg(test)]
mod tests;
