// SPDX-License-Identifier: Apache-2.0
//! Calls that have used up their time.
//!
//! As a rule the instance ends with such a call, for nothing else stops code
//! that runs. A server that goes on answering others beside it is asked to end
//! that call alone: its adapter closes the connection, which is what servers
//! know from clients that leave. One that has answered nobody for as long as
//! the late call ran may be stuck, and is ended.

use std::time::{Duration, Instant};

use super::{Instance, UnderWay};

/// An adapter that does not end a call by then is not there any more.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

impl Instance {
    /// Whether a call in it has used up its time, and the instance has to end.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        let is_late = |call: &UnderWay| match call.told_to_end {
            Some(since) => now.saturating_duration_since(since) >= ENDS_WITHIN,
            None => call.deadline <= now && !self.can_end_alone(call),
        };
        let is_on_line = |call: &UnderWay| call.others.line.as_ref().is_some_and(|line| line.is_late(now));
        self.served().any(|call| is_late(call) || is_on_line(call))
    }

    /// Whether a call has used up its time that can be ended alone, and is not told so yet.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.ends_late_alone && self.under_way.iter().any(|call| self.is_to_end(call, now))
    }

    /// Has those calls end.
    pub(crate) fn end_overdue(&mut self, now: Instant) {
        let overdue: Vec<_> =
            self.under_way.iter().filter(|call| self.is_to_end(call, now)).map(|call| call.turn).collect();
        for call in self.under_way.iter_mut().filter(|call| overdue.contains(&call.turn)) {
            call.told_to_end = Some(now);
            // If nothing can be sent any more, whoever reads will find out why.
            _ = self.channel.left(call.turn);
        }
        _ = self.channel.flush();
    }

    fn is_to_end(&self, call: &UnderWay, now: Instant) -> bool {
        call.deadline <= now && call.told_to_end.is_none() && self.can_end_alone(call)
    }

    /// Whether it has answered another call in time since this one came.
    fn can_end_alone(&self, call: &UnderWay) -> bool {
        self.ends_late_alone && self.last_in_time.is_some_and(|last| last > call.came)
    }
}
