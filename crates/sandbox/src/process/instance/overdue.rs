// SPDX-License-Identifier: Apache-2.0
//! Calls that have used up their time.
//!
//! As a rule the instance ends with such a call, for nothing else stops code
//! that runs. One that goes on answering others beside it is asked to end that
//! call alone. Its adapter answers for it, and has what runs hear of it as it
//! can: it closes the connection to a server, which is what servers know from
//! clients that leave; cancels a task in Python; aborts a signal in Node. One
//! that has answered nobody for as long as the late call ran may be stuck, and
//! is ended. So is one in which as many were late within a few minutes as it
//! serves at once: what does not hear goes on, and no limit would hold for it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Acted, Instance, Sources, UnderWay};

/// An adapter that does not end a call by then is not there any more.
const ENDS_WITHIN: Duration = Duration::from_secs(3);
/// How long an interpreter may take to say where it is, between two of its steps.
const SAYS_WITHIN: Duration = Duration::from_millis(100);
/// A call that was ended longer ago has ended in the program, too.
const REMEMBERED: Duration = Duration::from_secs(600);

/// Calls that were ended alone.
pub(super) struct Overdue {
    most: usize,
    /// The last ones, oldest first.
    ended: VecDeque<Instant>,
}

impl Overdue {
    /// For so many within a few minutes.
    pub(super) fn new(most: u16) -> Self {
        Self { most: most.into(), ended: VecDeque::new() }
    }

    fn takes_one_more(&self, now: Instant) -> bool {
        let is_new = |at: &&Instant| now.saturating_duration_since(**at) < REMEMBERED;
        self.ended.iter().rev().take_while(is_new).count() < self.most
    }

    fn note(&mut self, now: Instant) {
        if self.ended.len() == self.most {
            self.ended.pop_front();
        }
        self.ended.push_back(now);
    }
}

impl Instance {
    /// Whether a call in it has used up its time, and the instance has to end.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        let is_late = |call: &UnderWay| match call.told_to_end {
            Some(since) => now.saturating_duration_since(since) >= ENDS_WITHIN,
            None => call.deadline <= now && !self.can_end_alone(call, now),
        };
        let is_on_line = |call: &UnderWay| call.others.line.as_ref().is_some_and(|line| line.is_late(now));
        self.served().any(|call| is_late(call) || is_on_line(call))
    }

    /// Whether a call has used up its time that can be ended alone, and is not told so yet.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.overdue.is_some() && self.under_way.iter().any(|call| self.is_to_end(call, now))
    }

    /// Has those calls end.
    pub(crate) fn end_overdue(&mut self, now: Instant) {
        while let Some(place) = self.under_way.iter().position(|call| self.is_to_end(call, now)) {
            let call = &mut self.under_way[place];
            call.told_to_end = Some(now);
            self.overdue.iter_mut().for_each(|overdue| overdue.note(now));
            // If nothing can be sent any more, whoever reads will find out why.
            _ = self.channel.overdue(call.turn);
        }
        _ = self.channel.flush();
    }

    /// Has it say where it is before it ends, for whoever looks into the log of a late call. That waits for a moment. If a
    /// call ends meanwhile, the instance is ended for being late all the same.
    pub(crate) fn ask_where(&mut self, acted: &mut Acted, sources: Sources<'_>) {
        let Some(signal) = self.terms.language.where_signal() else { return };
        // What stands in line is not to begin now.
        if let Ok(recalled) = self.recall() {
            acted.ended.extend(recalled);
        }
        let deadline = Instant::now() + SAYS_WITHIN;
        self.has_said = !self.life.place.signal(self.pid, signal);
        while !self.has_said && self.channel.wait(deadline).is_ok() && self.act(acted, sources).is_ok() {}
    }

    /// Whether it is this call that the instance ends with, where one is late.
    pub(super) fn is_to_blame(call: &UnderWay, now: Instant) -> bool {
        call.deadline <= now || call.others.line.as_ref().is_some_and(|line| line.is_late(now))
    }

    fn is_to_end(&self, call: &UnderWay, now: Instant) -> bool {
        call.deadline <= now && call.told_to_end.is_none() && self.can_end_alone(call, now)
    }

    /// Whether it has answered another call in time since this one came.
    fn can_end_alone(&self, call: &UnderWay, now: Instant) -> bool {
        let has_room = self.overdue.as_ref().is_some_and(|overdue| overdue.takes_one_more(now));
        has_room && self.last_in_time.is_some_and(|last| last > call.came)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_it_serves_at_once_end_alone_within_a_few_minutes() {
        let (mut overdue, begun) = (Overdue::new(3), Instant::now());
        for second in 0..3 {
            assert!(overdue.takes_one_more(begun + Duration::from_secs(second)));
            overdue.note(begun + Duration::from_secs(second));
        }
        let later = |seconds| begun + REMEMBERED + Duration::from_secs(seconds);
        assert!(!overdue.takes_one_more(begun + Duration::from_secs(3)));
        assert!(overdue.takes_one_more(later(0)), "the first is long over");
        overdue.note(later(0));
        assert!(!overdue.takes_one_more(later(0)) && overdue.takes_one_more(later(1)));
    }
}
