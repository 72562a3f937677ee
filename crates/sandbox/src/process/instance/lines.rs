// SPDX-License-Identifier: Apache-2.0
//! Lines of one instance: those to functions that it calls, and the one that it
//! serves (`docs/spec/lines.md`).
//!
//! What an instance says of lines is believed for those that it has.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use adapter::frame::LINES_MAX;

use super::{AskId, Asked, Broken, Instance, Reported, Turn, UnderWay};
use crate::Spent;
use crate::line::{Line, LineAsk, LineReport};
use crate::nested::{NestedAnswer, NestedCall};

/// After so many answers by the node there may be a line.
const ANSWERS_MIN: u32 = 3;
/// How long after a line was opened there is no other one to the same function.
const PAUSE: Duration = Duration::from_millis(100);
/// The same after a line on which nothing was ever asked: an instance cannot have it, as
/// where it may share no memory, or somebody else wanted it.
const PAUSE_UNUSED: Duration = Duration::from_secs(2);
/// Names whose answers are counted.
const NAMES_MAX: usize = 64;
/// Lines that an instance may get and never use.
const UNUSED_MAX: u32 = 64;

const FORGOTTEN: NestedAnswer<'_> = NestedAnswer {
    status: 502,
    content_type: "text/plain",
    body: b"the call was begun, and how it ended is not known any more: its line ended too long ago",
};

/// The lines to functions that an instance calls.
#[derive(Default)]
pub(super) struct Lines {
    /// Whether the instance speaks them.
    are_spoken: bool,
    /// Those that are over are kept for as long as somebody may ask for their ends.
    opened: Vec<Arc<Line>>,
    answers: HashMap<String, Answers>,
    unused: u32,
    /// The number of the last one.
    last: u32,
}

/// Answers of a function that came by the node.
#[derive(Default)]
struct Answers {
    count: u32,
    not_before: Option<Instant>,
}

impl Lines {
    /// Nobody calls any more. What is under way ends, as it would by the node. Who called had
    /// been told this, if that is known.
    pub(super) fn abandon(&mut self, head: Option<&Vec<u8>>) {
        self.opened.drain(..).for_each(|line| line.abandon(head.cloned()));
    }

    /// No call is under way that could ask for the end of a line.
    pub(super) fn forget_ended(&mut self) {
        self.forget(|line| line.is_over());
    }

    /// Forgets those that are over and of which this is so. One on which nothing was ever asked is
    /// not tried again at once.
    fn forget(&mut self, which: impl Fn(&Line) -> bool) {
        let Self { opened, answers, unused, .. } = self;
        opened.retain(|line| {
            let is_kept = !which(line);
            if !is_kept && line.asked() != 0 {
                *unused = 0;
            } else if !is_kept {
                *unused += 1;
                if let Some(known) = answers.get_mut(&line.terms().function) {
                    known.not_before = Some(Instant::now() + PAUSE_UNUSED);
                }
            }
            is_kept
        });
    }

    fn find(&self, id: u32) -> Option<&Arc<Line>> {
        self.opened.iter().find(|line| line.id() == id)
    }

    /// Whether it never had a line of this number, also none that was forgotten.
    fn is_none(&self, id: u32) -> bool {
        self.last == 0 || id > self.last
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.abandon(None);
    }
}

impl Instance {
    /// Has it serve a line, as the call of this turn.
    pub(super) fn serve(&mut self, turn: Turn, line: &Arc<Line>, now: Instant) -> Result<(), Broken> {
        self.channel.serve(turn, line)?;
        line.bind();
        // What it used so far is of no request on the line.
        self.meter.told(now, &[], &*self.life.place);
        Ok(())
    }

    /// There may be lines to functions that it calls.
    pub(crate) fn speaks_lines(&mut self) {
        self.lines.are_spoken = true;
    }

    /// Whether there is to be a line to a function that has answered once more.
    pub(crate) fn wants_line(&mut self, function: &str) -> bool {
        if !self.lines.are_spoken {
            return false;
        }
        self.lines.forget(|line| line.is_over() && line.asked() == 0 && line.terms().function == function);
        let Lines { opened, answers, unused, .. } = &mut self.lines;
        if !answers.contains_key(function) && answers.len() >= NAMES_MAX {
            answers.clear();
        }
        let known = answers.entry(function.to_owned()).or_default();
        known.count += 1;
        let is_early = known.not_before.is_some_and(|before| Instant::now() < before);
        if known.count < ANSWERS_MIN || is_early || *unused >= UNUSED_MAX {
            return false;
        }
        let is_there = |line: &Line| line.is_open() || (line.asked() == 0 && !line.is_over());
        if opened.iter().any(|line| is_there(line) && line.terms().function == function) {
            return false;
        }
        // One that is shut may still be in use, and its caller asks for its end then.
        if opened.iter().filter(|line| !line.is_over()).count() >= LINES_MAX {
            return false;
        }
        if opened.len() >= 2 * LINES_MAX {
            let Some(over) = opened.iter().position(|line| line.is_over()) else { return false };
            opened.remove(over);
        }
        known.count = 0;
        true
    }

    /// Has it call a function over a line from now on.
    pub(crate) fn open_line(&mut self, line: Arc<Line>) {
        if self.channel.line(&line).is_ok() {
            if let Some(known) = self.lines.answers.get_mut(&line.terms().function) {
                known.not_before = Some(Instant::now() + PAUSE);
            }
            line.is_handed_out();
            self.lines.last = line.id();
            self.lines.opened.push(line);
            self.flush();
        } else {
            line.shut();
        }
    }

    /// A call that was begun on a line, and is to be told how it ended. `None`: it has been told that
    /// nobody knows.
    pub(super) fn asked_again(
        &mut self,
        turn: Turn,
        line: u32,
        id: AskId,
        nested: NestedCall,
    ) -> Result<Option<Asked>, Broken> {
        let Some(found) = self.lines.find(line) else {
            if self.lines.is_none(line) {
                return Err(Broken::Lie("a call on a line that it does not have"));
            }
            self.asked(turn, id, nested)?;
            self.tell(turn, id, FORGOTTEN)?;
            return Ok(None);
        };
        if found.terms().function != nested.function {
            return Err(Broken::Lie("a call on a line to another function"));
        }
        let line = LineAsk { again: Some(Arc::clone(found)), ..nested.line };
        self.asked(turn, id, NestedCall { line, ..nested }).map(Some)
    }

    /// The call of this turn, which may be over, waits no longer for what is under way on a line.
    pub(super) fn dropped(&mut self, turn: Turn, line: u32) -> Result<(), Broken> {
        let Some(found) = self.lines.find(line) else {
            // It may be one that was forgotten, and that it could not have.
            return if self.lines.is_none(line) {
                Err(Broken::Lie("the end of a line that it does not have"))
            } else {
                Ok(())
            };
        };
        found.abandon(self.under_way.iter().find(|call| call.turn == turn).and_then(told));
        Ok(())
    }

    /// What the one call that is under way was told; of several nobody knows which one calls.
    pub(super) fn told_alone(&self) -> Option<Vec<u8>> {
        match self.under_way.as_slice() {
            [call] => told(call),
            _ => None,
        }
    }

    /// What was told the request that it serves on its line; nothing: that is over. What the request before
    /// asked for is wanted by nobody any more.
    pub(super) fn serving(&mut self, turn: Turn, head: Vec<u8>) -> Result<(), Broken> {
        let call = self.under_way.iter_mut().find(|call| call.turn == turn && call.others.line.is_some());
        let call = call.ok_or(Broken::Lie("a request on a line that it does not serve"))?;
        call.line_head = Some(head).filter(|head| !head.is_empty());
        call.pending.clear();
        Ok(())
    }

    /// Requests that it served on its line.
    pub(super) fn reported(&mut self, turn: Turn, reports: Vec<LineReport>) -> Result<Reported, Broken> {
        let call = self.under_way.iter_mut().find(|call| call.turn == turn);
        let served = call.and_then(|call| Some((call.others.line.clone()?, std::mem::take(&mut call.log))));
        let (line, log) = served.ok_or(Broken::Lie("a report of a line that it does not serve"))?;
        if !line.may_report(reports.len(), Instant::now()) {
            return Err(Broken::Lie("more reports than there can have been requests"));
        }
        let times: Vec<_> = reports.iter().map(|report| (report.running, report.waiting)).collect();
        let spent = self.meter.told(Instant::now(), &times, &*self.life.place);
        let records = Arc::clone(line.records());
        let calls = reports.into_iter().zip(spent).collect();
        Ok(Reported { records, calls, counted: Vec::new(), log })
    }

    /// What the last call on a line took, which it did not report. Where all were answered
    /// there, what was used since the last report is nobody's, as between calls.
    pub(super) fn spent_on(&mut self, line: &Line, has_answered: bool, now: Instant) -> Option<Box<Spent>> {
        if has_answered {
            self.meter.told(now, &[], &*self.life.place);
            return None;
        }
        let running = line.serving_for(now);
        self.meter.told(now, &[(running, Duration::ZERO)], &*self.life.place).pop().map(Box::new)
    }

    /// A call has waited for so long for answers on lines.
    pub(super) fn waited(&mut self, turn: Turn, time: Duration) -> Result<(), Broken> {
        let call = self.under_way.iter_mut().find(|call| call.turn == turn);
        let call = call.ok_or(Broken::Lie("a wait of no call"))?;
        if let Some(served) = &mut call.served {
            self.meter.waited(served, Instant::now(), time);
        }
        Ok(())
    }
}

/// What a call was told, or the request that it serves on its line.
pub(super) fn told(call: &UnderWay) -> Option<Vec<u8>> {
    match call.others.line {
        Some(_) => call.line_head.clone(),
        None => call.others.callees.as_ref().and_then(|callees| callees.head()),
    }
}
