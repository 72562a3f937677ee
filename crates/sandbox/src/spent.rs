// SPDX-License-Identifier: Apache-2.0
//! What a call took. [`Spent`] is what the node itself has seen, and nothing of it is
//! what a guest says; [`Phases`] is, and nobody pays by it.

use std::time::Duration;

/// What a call in an instance took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Before its instance came to it, in line behind others there.
    pub in_line: Duration,
    /// From when its instance came to it until its answer.
    pub running: Duration,
    /// Of that, the time in which calls of other functions by it were under way.
    pub waiting: Duration,
    /// Its share of the instance's time: what ran, less what waited, divided by the
    /// calls that the instance served meanwhile.
    pub held: Duration,
    /// Processor time of all that is in the instance, or its share of that; `None`
    /// where nobody keeps it.
    pub cpu: Option<Duration>,
    /// It was alone, and the time was read when it began and when it ended.
    pub is_cpu_own: bool,
    /// Processor time that the instance used between calls, and that was told with
    /// no call before. It is none of this call's.
    pub cpu_between: Duration,
    /// The most memory that the instance ever had, as it was last read; `None`
    /// where nobody keeps it.
    pub memory_peak_bytes: Option<u64>,
}

/// How a step of a workflow says that its time went, and what it could not hand over
/// as it was.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Phases {
    /// Until its arguments were there.
    pub taking: Duration,
    /// Of the function itself.
    pub running: Duration,
    /// Until its result could be handed over.
    pub giving: Duration,
    /// Types of objects of its result that were pickled, and how many of each.
    pub pickled: Vec<(String, u32)>,
}
