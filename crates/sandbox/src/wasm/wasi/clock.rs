// SPDX-License-Identifier: Apache-2.0
//! A program's time, which is data like all else it sees.
//!
//! It begins where the application says and goes on only when it is looked at, or
//! waited for: each look is a microsecond later than the one before, so that whoever
//! waits in a loop gets there, and a wait is over at once.

/// How much later each look is, and what clocks say of their resolution, in nanoseconds.
pub(crate) const TICK: u64 = 1000;
/// When a program begins if nobody says: 2000-01-01, in nanoseconds since 1970. Archives
/// of some kinds know no time before 1980.
pub(crate) const BEGIN: u64 = 946_684_800_000_000_000;

/// All clocks of a program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    begin: u64,
    elapsed: u64,
}

impl Clock {
    /// Clocks of a program that begins at this time of day.
    pub(crate) fn new(begin: u64) -> Self {
        Self { begin, elapsed: 0 }
    }

    /// Nanoseconds since 1970, without looking: what files are marked with.
    pub(crate) fn time_of_day(&self) -> u64 {
        self.begin.saturating_add(self.elapsed)
    }

    /// Nanoseconds since the program began, without looking.
    pub(crate) fn elapsed(&self) -> u64 {
        self.elapsed
    }

    /// Time passes: somebody looks.
    pub(crate) fn tick(&mut self) {
        self.pass(TICK);
    }

    /// Time passes.
    pub(crate) fn pass(&mut self, nanos: u64) {
        self.elapsed = self.elapsed.saturating_add(nanos);
    }
}
