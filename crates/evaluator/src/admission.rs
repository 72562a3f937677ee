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
//! by a pool of its own in which nobody has an allowance. There, who shares a large
//! input with the job that gives its room back may go before the others of its
//! priority: the input is in memory now, and would have to be read again later. The
//! first in line is passed in this way a bounded number of times, as it is by others.

use std::collections::VecDeque;

use objects::Handle;

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
    /// How often the first in line may be passed by a batch, and has been.
    batch_max: u32,
    batched: u32,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    who: Claimant,
    bytes: u64,
}

/// Who wants memory or room.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimant {
    pub(crate) job: JobId,
    /// Its request's number.
    pub(crate) request: u64,
    /// The large input that others may want too, if it is known.
    pub(crate) shares: Option<Handle>,
}

#[cfg(test)]
impl From<JobId> for Claimant {
    fn from(job: JobId) -> Self {
        Self { job, request: 0, shares: None }
    }
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
        Self { options, free_bytes: options.pool_bytes, line, overtakes: 0, batch_max: 0, batched: 0 }
    }

    /// The first in line may be passed so often by those who share an input with
    /// whoever has just been served.
    #[must_use]
    pub(crate) fn with_batches(self, batch_max: u32) -> Self {
        Self { batch_max, ..self }
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
    pub(crate) fn reserve(
        &mut self,
        who: impl Into<Claimant>,
        memory_bytes: u64,
        priority: Priority,
    ) -> Reservation {
        let bytes = memory_bytes.saturating_sub(self.options.allowance_bytes);
        if bytes > self.options.pool_bytes {
            return Reservation::Impossible;
        }
        if self.take(bytes, priority) {
            return Reservation::Granted(bytes);
        }
        self.line[priority.level()].push_back(Waiting { who: who.into(), bytes });
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
                    (self.overtakes, self.batched) = (0, 0);
                }
                self.line[level].remove(index);
                self.free_bytes -= waiting.bytes;
                admitted.push((waiting.who.job, waiting.bytes));
            }
        }
        admitted
    }

    /// As [`Admission::release`], by a job that has used a large input.
    pub(crate) fn release_sharing(&mut self, bytes: u64, used: Option<Handle>) -> Vec<(JobId, u64)> {
        let Some(used) = used.filter(|_| bytes > 0) else { return self.release(bytes) };
        self.free_bytes += bytes;
        assert!(self.free_bytes <= self.options.pool_bytes, "more memory released than reserved");
        let mut admitted = Vec::new();
        // Never before those of a higher priority.
        if let Some(line) = self.line.iter_mut().find(|line| !line.is_empty()) {
            let mut index = 0;
            while self.batched < self.batch_max
                && let Some(waiting) = line.get(index).copied()
            {
                if waiting.who.shares != Some(used) || waiting.bytes > self.free_bytes {
                    index += 1;
                    continue;
                }
                self.batched = if index > 0 { self.batched + 1 } else { 0 };
                line.remove(index);
                self.free_bytes -= waiting.bytes;
                admitted.push((waiting.who.job, waiting.bytes));
            }
        }
        admitted.extend(self.release(0));
        admitted
    }

    /// Has the jobs of a request that stand in one priority's line stand in another
    /// one's, at its end.
    pub(crate) fn raise(&mut self, request: u64, from: Priority, to: Priority) {
        let line = std::mem::take(&mut self.line[from.level()]);
        for waiting in line {
            let to = if waiting.who.request == request { to } else { from };
            self.line[to.level()].push_back(waiting);
        }
    }

    /// Takes a job out of line. Whether it stood there.
    pub(crate) fn forget(&mut self, job: JobId) -> bool {
        let mut found = false;
        for line in &mut self.line {
            line.retain(|waiting| {
                found |= waiting.who.job == job;
                waiting.who.job != job
            });
        }
        found
    }
}

#[cfg(test)]
mod tests;
