// SPDX-License-Identifier: Apache-2.0
//! Functions that an instance calls within itself: which it was told of, and what
//! it tells of them (`process/within.rs`, decision 0107).
//!
//! What it says is believed for functions that it was told of. None of it costs
//! anybody: processor and memory are those of the call in which it ran.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use objects::FailureCode;

use super::{Answer, AskId, Asked, Broken, Instance, Reported, Turn, late};
use crate::line::{LineAsk, LineEnd, LineRecords, LineReport};
use crate::process::within::AskWithin;
use crate::within::Within;
use crate::{Fault, Spent};

/// Functions whose reports may come.
const GIVEN_MAX: usize = 64;
/// Calls of one of them that may be reported in a window, each of which takes a microsecond at least.
const WINDOW: Duration = Duration::from_secs(1);
const REPORTED_MAX: usize = 1_000_000;

/// What an instance was told.
#[derive(Default)]
pub(super) struct Withins {
    given: VecDeque<Given>,
    /// The number of the last one.
    last: u32,
    /// It may call some of them now.
    are_held: bool,
}

struct Given {
    number: u32,
    within: Within,
    /// Since when so many calls were reported.
    since: Instant,
    reported: usize,
}

impl Withins {
    /// The number of a function. Several may have asked for it before they were told.
    fn number_of(&mut self, within: &Within) -> u32 {
        let Self { given, last, are_held } = self;
        *are_held = true;
        let is_it = |known: &Within| {
            known.function == within.function && known.version == within.version && known.since.is_now()
        };
        if let Some(known) = given.iter().find(|given| is_it(&given.within)) {
            return known.number;
        }
        *last = last.checked_add(1).unwrap_or(1);
        if given.len() >= GIVEN_MAX {
            given.pop_front();
        }
        given.push_back(Given { number: *last, within: within.clone(), since: Instant::now(), reported: 0 });
        *last
    }

    /// One that it was told of; `None`: it is forgotten.
    fn find(&mut self, number: u32) -> Result<Option<&mut Given>, Broken> {
        if number == 0 || number > self.last {
            return Err(Broken::Lie("a call within it of a function that it was not told of"));
        }
        Ok(self.given.iter_mut().find(|given| given.number == number))
    }
}

impl Instance {
    /// Has an instance that asks for a function call it within itself.
    pub(crate) fn tell_within(&mut self, turn: Turn, id: AskId, within: Within) {
        if !self.is_answered(turn, id) {
            return;
        }
        // If nothing can be sent any more, whoever reads will find out why.
        _ = self.channel.within(turn, id, self.withins.number_of(&within), &within);
        self.flush();
    }

    /// Whoever is called from now on calls nothing within itself that may have changed.
    pub(super) fn refresh_withins(&mut self) {
        let Withins { given, are_held, .. } = &mut self.withins;
        if *are_held && !given.iter().all(|given| given.within.since.is_now()) {
            *are_held = false;
            _ = self.channel.within_over();
        }
    }

    /// An ask by a function that is called within it, or of one that was.
    pub(super) fn asked_within(&mut self, turn: Turn, ask: AskWithin) -> Result<Option<Asked>, Broken> {
        let AskWithin { asker, again, ended, id, mut nested } = ask;
        let mut line = LineAsk::default();
        if let Some((number, head)) = asker {
            let asker = self.withins.find(number)?.map(|given| given.within.function.clone());
            // One that is forgotten is nobody whom the gateway knows.
            line.function = Some(asker.unwrap_or_default());
            line.head = Some(head);
        }
        if let Some((number, running, answer)) = ended {
            let known = self.withins.find(number)?.map(|given| given.within.function.clone());
            if known.is_some_and(|function| function != nested.function) {
                return Err(Broken::Lie("the end of a call of another function"));
            }
            let spent = Some(Box::new(Spent { running, ..Spent::default() }));
            let fault = match answer {
                None => late("the call"),
                Some(Answer::Raised(raised)) => self.exception(&raised),
                Some(Answer::BadResult(why)) => Fault::new(FailureCode::BadResult, why),
                Some(_) => return Err(Broken::Lie("an end that is no failure")),
            };
            line.ended = Some(LineEnd { result: Err(fault), log: Vec::new(), spent });
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
        let Some(given) = self.withins.find(number)? else { return Ok(None) };
        let now = Instant::now();
        if now.saturating_duration_since(given.since) >= WINDOW {
            (given.since, given.reported) = (now, 0);
        }
        given.reported += reports.len();
        if given.reported > REPORTED_MAX {
            return Err(Broken::Lie("more reports than there can have been requests"));
        }
        let records: Arc<dyn LineRecords> = Arc::clone(&given.within.records);
        let spent = |report: &LineReport| Spent {
            running: report.running,
            waiting: report.waiting,
            ..Spent::default()
        };
        let calls =
            reports.into_iter().map(|report| (spent(&report), report)).map(|(spent, report)| (report, spent));
        Ok(Some(Reported { records, calls: calls.collect(), log: Vec::new() }))
    }
}
