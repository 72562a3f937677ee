// SPDX-License-Identifier: Apache-2.0
//! Lines of one instance: those to functions that it calls, and the one that it
//! serves (`docs/spec/lines.md`).
//!
//! What an instance says of lines is believed for those that it has.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use adapter::frame::LINES_MAX;

use super::{Broken, Instance, Reported, Turn};
use crate::Spent;
use crate::line::{Line, LineAsk, LineReport};
use crate::nested::NestedCall;
use crate::process::language::Language;

/// After so many answers by the node there may be a line.
const ANSWERS_MIN: u32 = 3;
/// How long after a line was opened there is no other one to the same function.
const PAUSE: Duration = Duration::from_millis(100);
/// The same after a line on which nothing was ever asked: an instance cannot have it, as
/// where it may share no memory, or somebody else wanted it.
const PAUSE_UNUSED: Duration = Duration::from_secs(2);
/// Names whose answers are counted.
const NAMES_MAX: usize = 64;

/// The lines to functions that an instance calls.
#[derive(Default)]
pub(super) struct Lines {
    opened: Vec<Arc<Line>>,
    answers: HashMap<String, Answers>,
}

/// Answers of a function that came by the node.
#[derive(Default)]
struct Answers {
    count: u32,
    not_before: Option<Instant>,
}

impl Lines {
    /// Nobody calls any more. What is under way ends, as it would by the node.
    pub(super) fn abandon(&mut self) {
        self.opened.drain(..).for_each(|line| line.abandon());
    }

    fn find(&self, id: u32) -> Option<&Arc<Line>> {
        self.opened.iter().find(|line| line.id() == id)
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.abandon();
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

    /// Whether there is to be a line to a function that has answered once more.
    pub(crate) fn wants_line(&mut self, function: &str) -> bool {
        if self.terms.language == Language::Executable {
            return false;
        }
        let Lines { opened, answers } = &mut self.lines;
        if !answers.contains_key(function) && answers.len() >= NAMES_MAX {
            answers.clear();
        }
        let known = answers.entry(function.to_owned()).or_default();
        known.count += 1;
        if known.count < ANSWERS_MIN || known.not_before.is_some_and(|before| Instant::now() < before) {
            return false;
        }
        let is_unused =
            |line: &Arc<Line>| !line.is_open() && line.terms().function == function && line.asked() == 0;
        if let Some(unused) = opened.iter().position(is_unused) {
            opened.remove(unused);
            known.not_before = Some(Instant::now() + PAUSE_UNUSED);
            return false;
        }
        // Those that are over are kept for as long as somebody may ask for their ends.
        if opened.iter().any(|line| line.is_open() && line.terms().function == function) {
            return false;
        }
        if opened.len() >= LINES_MAX {
            let Some(over) = opened.iter().position(|line| !line.is_open()) else { return false };
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
            self.lines.opened.push(line);
            self.flush();
        } else {
            line.shut();
        }
    }

    /// A call that was begun on a line, and is to be told how it ended.
    pub(super) fn asked_again(&self, line: u32, nested: NestedCall) -> Result<NestedCall, Broken> {
        let line = self.lines.find(line).filter(|line| line.terms().function == nested.function);
        let line = line.ok_or(Broken::Lie("a call on a line that it does not have"))?;
        Ok(NestedCall { line: LineAsk { again: Some(Arc::clone(line)), ..nested.line }, ..nested })
    }

    /// Nobody waits for what is under way on a line.
    pub(super) fn dropped(&mut self, line: u32) -> Result<(), Broken> {
        let line = self.lines.find(line).ok_or(Broken::Lie("the end of a line that it does not have"))?;
        line.abandon();
        Ok(())
    }

    /// What was told the request that it serves on its line.
    pub(super) fn serving(&mut self, turn: Turn, head: Vec<u8>) -> Result<(), Broken> {
        let call = self.under_way.iter_mut().find(|call| call.turn == turn && call.others.line.is_some());
        call.ok_or(Broken::Lie("a request on a line that it does not serve"))?.line_head = Some(head);
        Ok(())
    }

    /// Requests that it served on its line.
    pub(super) fn reported(&mut self, turn: Turn, reports: Vec<LineReport>) -> Result<Reported, Broken> {
        let call = self.under_way.iter_mut().find(|call| call.turn == turn);
        let served = call.and_then(|call| Some((call.others.line.clone()?, std::mem::take(&mut call.log))));
        let (line, log) = served.ok_or(Broken::Lie("a report of a line that it does not serve"))?;
        let times: Vec<_> = reports.iter().map(|report| (report.running, report.waiting)).collect();
        let spent = self.meter.told(Instant::now(), &times, &*self.life.place);
        Ok(Reported { line, calls: reports.into_iter().zip(spent).collect(), log })
    }

    /// What the last call on a line took, which it did not report.
    pub(super) fn spent_on(&mut self, line: &Line, now: Instant) -> Option<Box<Spent>> {
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
