// SPDX-License-Identifier: Apache-2.0
//! What a call took of the machine, as the node itself has seen it. Nothing of
//! this is what a guest says.

use std::time::Duration;

/// What a call in an instance took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
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
