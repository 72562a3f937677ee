// SPDX-License-Identifier: Apache-2.0
//! Functions that an instance calls within itself: which it was told of, and what
//! it tells of them (`process/within.rs`, decision 0107).
//!
//! What it says is believed for functions that it was told of, and is bounded. It
//! charges nobody: processor and memory are those of the call in which it ran.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use objects::FailureCode;

use super::{Answer, AskId, Asked, Broken, Instance, Reported, Turn, late};
use crate::line::{LineAsk, LineEnd, LineReport};
use crate::process::within::AskWithin;
use crate::within::{Since, Within};
use crate::{Fault, Printed, Spent};

/// Functions of which it may have been told: twice as many as are together, for those of before may be under way.
const GIVEN_MAX: usize = 128;
/// Calls of an instance that are written down, and that are counted, in a window. More are not looked at.
const WINDOW: Duration = Duration::from_secs(1);
const WRITTEN_MAX: usize = 1000;
const COUNTED_MAX: usize = 100_000;

/// What an instance was told.
#[derive(Default)]
pub(super) struct Withins {
    /// By number.
    given: VecDeque<(u32, Within)>,
    /// The number of the last one.
    last: u32,
    /// Since when all holds that it was told; nothing does.
    held: Option<Since>,
    /// Since when so many calls were reported.
    window: Option<Instant>,
    reported: usize,
}

impl Withins {
    /// The number of a function, if there is room for one more. Several may have asked for it before they were told.
    fn number_of(&mut self, within: &Within) -> Option<u32> {
        let Self { given, last, .. } = self;
        let is_it = |known: &Within| {
            known.function == within.function && known.version == within.version && known.since.is_now()
        };
        if let Some((number, _)) = given.iter().find(|(_, known)| is_it(known)) {
            return Some(*number);
        }
        if given.len() >= GIVEN_MAX {
            let stale = given.iter().position(|(_, known)| !known.since.is_now())?;
            given.remove(stale);
        }
        *last = last.checked_add(1)?;
        given.push_back((*last, within.clone()));
        Some(*last)
    }

    /// One that it was told of; `None`: it is forgotten.
    fn find(&self, number: u32) -> Result<Option<&Within>, Broken> {
        if number == 0 || number > self.last {
            return Err(Broken::Lie("a call within it of a function that it was not told of"));
        }
        Ok(self.given.iter().find_map(|(given, within)| (*given == number).then_some(within)))
    }

    /// How many calls of these are written down, and how many are counted besides.
    fn take(&mut self, calls: usize, now: Instant) -> (usize, usize) {
        if self.window.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            (self.window, self.reported) = (Some(now), 0);
        }
        let before = self.reported;
        self.reported = before.saturating_add(calls).min(COUNTED_MAX);
        let all = self.reported - before;
        let written = WRITTEN_MAX.saturating_sub(before).min(all);
        (written, all - written)
    }
}

impl Instance {
    /// Has an instance that asks for a function call it within itself; false: somebody else has to make the call.
    pub(crate) fn tell_within(&mut self, turn: Turn, id: AskId, within: &Within) -> bool {
        let Some(number) = self.withins.number_of(within) else { return false };
        if !self.end_ask(turn, id) {
            return true;
        }
        // If nothing can be sent any more, whoever reads will find out why.
        _ = self.channel.within(turn, id, number, within);
        if within.since.is_now() {
            self.withins.held.get_or_insert_with(|| within.since.clone());
        } else {
            _ = self.channel.within_over();
        }
        self.flush();
        true
    }

    /// Whoever is called from now on calls nothing within itself that may have changed.
    pub(super) fn refresh_withins(&mut self) {
        if self.withins.held.as_ref().is_some_and(|held| !held.is_now()) {
            self.withins.held = None;
            _ = self.channel.within_over();
        }
    }

    /// An ask by a function that is called within it, or of one that was.
    pub(super) fn asked_within(&mut self, turn: Turn, ask: AskWithin) -> Result<Option<Asked>, Broken> {
        let AskWithin { asker, is_for_others, again, ended, id, mut nested } = ask;
        let mut line = LineAsk { is_for_others, ..LineAsk::default() };
        if let Some((number, head)) = asker {
            let asker = self.withins.find(number)?.map(|within| within.function.clone());
            // One that is forgotten is nobody whom the gateway knows.
            line.function = Some(asker.unwrap_or_default());
            line.head = Some(head);
        }
        if let Some((number, running, answer)) = ended {
            if self.withins.find(number)?.is_some_and(|within| within.function != nested.function) {
                return Err(Broken::Lie("the end of a call of another function"));
            }
            let spent = Some(Box::new(Spent { running, ..Spent::default() }));
            let fault = match answer {
                None => late("the call"),
                Some(Answer::Raised(raised)) => self.exception(&raised),
                Some(Answer::BadResult(why)) => Fault::new(FailureCode::BadResult, why),
                Some(_) => return Err(Broken::Lie("an end that is no failure")),
            };
            line.ended = Some(LineEnd { result: Err(fault), log: Printed::default(), spent });
        }
        nested.line = line;
        match again {
            Some(line) => self.asked_again(turn, line, id, nested),
            None => self.asked(turn, id, nested).map(Some),
        }
    }

    /// Calls within it that have ended.
    pub(super) fn reported_within(
        &mut self,
        number: u32,
        reports: Vec<LineReport>,
    ) -> Result<Option<Reported>, Broken> {
        let Some(within) = self.withins.find(number)? else { return Ok(None) };
        let records = Arc::clone(&within.records);
        let (written, counted) = self.withins.take(reports.len(), Instant::now());
        let calls = reports.into_iter().take(written + counted).map(|report| {
            let LineReport { running, waiting, .. } = report;
            (report, Spent { running, waiting, ..Spent::default() })
        });
        let mut calls: Vec<_> = calls.collect();
        let counted = calls.split_off(written);
        Ok(Some(Reported { records, calls, counted, log: Printed::default() }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::Changes;
    use crate::line::Nowhere;

    fn within(function: &str, since: Since) -> Within {
        let records = Arc::new(Nowhere);
        let (function, timeout) = (function.to_owned(), Duration::from_secs(1));
        Within { function, version: 1, timeout, handler: None, records, since }
    }

    #[test]
    fn a_function_has_one_number_until_something_changes_and_what_is_old_goes_first() {
        let (changes, mut withins) = (Changes::default(), Withins::default());
        let old = changes.now();
        assert_eq!(withins.number_of(&within("f", old.clone())), Some(1));
        assert_eq!(withins.number_of(&within("f", changes.now())), Some(1));
        changes.note();
        assert_eq!(withins.number_of(&within("f", changes.now())), Some(2));
        for other in 2..GIVEN_MAX {
            assert!(withins.number_of(&within(&other.to_string(), changes.now())).is_some());
        }
        assert_eq!(withins.find(1).unwrap().unwrap().function, "f");
        let last = withins.number_of(&within("one more", changes.now())).unwrap();
        assert!(withins.find(1).unwrap().is_none() && withins.find(2).unwrap().is_some());
        assert_eq!(withins.number_of(&within("too many", changes.now())), None);
        assert!(withins.find(last + 1).is_err() && withins.find(0).is_err());
    }

    #[test]
    fn very_many_calls_are_counted_and_not_written_down_and_more_are_not_looked_at() {
        let (mut withins, now) = (Withins::default(), Instant::now());
        assert_eq!(withins.take(32, now), (32, 0));
        assert_eq!(withins.take(WRITTEN_MAX, now), (WRITTEN_MAX - 32, 32));
        assert_eq!(withins.take(COUNTED_MAX, now), (0, COUNTED_MAX - WRITTEN_MAX - 32));
        assert_eq!(withins.take(1, now), (0, 0));
        assert_eq!(withins.take(1, now + WINDOW), (1, 0));
    }
}
