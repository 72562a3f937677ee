// SPDX-License-Identifier: Apache-2.0
//! Lines between instances: when one may be opened, whom it leads to, and when it
//! is taken back (`docs/spec/lines.md`).
//!
//! To the fleet a line is a call of its function that takes long. It is opened only
//! to an instance that has nothing to do, and taken back as soon as anybody waits
//! for one.

use std::sync::{Arc, Weak};
use std::time::Instant;

use foldhash::HashMap;
use gateway::LineCall;
use objects::{Handle, Limits};
use parking_lot::Mutex;
use sandbox::keep_alive::{self, Fleet, Function, Start};
use sandbox::process::Image;
use sandbox::{
    Call, Line, LineEnd, LineOffer, LineRecords, LineReport, LineTerms, LineTold, Outcome, Printed, Since,
    Spent, Within,
};

use super::{Processes, fault_of, reports};

/// Lines of a node.
const LINES_MAX: usize = 256;

/// The lines that are open, or not over yet.
#[derive(Default)]
pub(super) struct Lines(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// By number: the line, and the procedure that it leads to.
    by_id: HashMap<u32, (Arc<Line>, Handle)>,
    last: u32,
    is_over: bool,
}

impl Lines {
    /// Makes one under a new number, if there may be one more.
    fn add(&self, procedure: Handle, make: impl FnOnce(u32) -> Option<Arc<Line>>) -> Option<Arc<Line>> {
        let mut known = self.0.lock();
        if known.is_over || known.by_id.len() >= LINES_MAX {
            return None;
        }
        known.last = known.last.wrapping_add(1);
        let id = known.last;
        if known.by_id.contains_key(&id) {
            return None;
        }
        let line = make(id)?;
        known.by_id.insert(id, (Arc::clone(&line), procedure));
        Some(line)
    }

    /// Whether there are any.
    pub(super) fn are_any(&self) -> bool {
        !self.0.lock().by_id.is_empty()
    }

    fn remove(&self, id: u32) {
        self.0.lock().by_id.remove(&id);
    }

    /// Takes those back that lead to a procedure; whether there are any.
    pub(super) fn recall(&self, procedure: Handle) -> bool {
        self.recall_those(|_, other| other == procedure)
    }

    /// Instances of a procedure that serve something on lines now, by their word.
    pub(super) fn in_use(&self, procedure: Handle) -> usize {
        let known = self.0.lock();
        known.by_id.values().filter(|(line, other)| *other == procedure && line.is_in_use()).count()
    }

    /// Takes those back that lead to a function, or all.
    pub(super) fn recall_named(&self, function: Option<&str>) {
        self.recall_those(|line, _| function.is_none_or(|function| line.terms().function == function));
    }

    /// Takes all back, and lets none be opened any more.
    pub(super) fn close(&self) {
        self.0.lock().is_over = true;
        self.recall_named(None);
    }

    fn recall_those(&self, which: impl Fn(&Line, Handle) -> bool) -> bool {
        let known = self.0.lock();
        let those = known.by_id.values().filter(|(line, procedure)| which(line, *procedure));
        those.map(|(line, _)| line.shut()).count() > 0
    }
}

/// What comes with the answer of a function: there may be a line to it.
pub(super) struct Opening {
    pub(super) processes: Weak<Processes>,
    pub(super) offer: gateway::LineOffer,
}

impl LineOffer for Opening {
    fn open(self: Box<Self>, told: LineTold) {
        let opened = self.processes.upgrade().and_then(|processes| processes.open_line(self.offer));
        if let Some(line) = opened {
            told(line);
        }
    }
}

/// Writes down what was served on a line.
struct Records(Arc<gateway::LineOffer>);

impl LineRecords for Records {
    fn served(&self, calls: Vec<(LineReport, Spent)>, log: Printed) {
        let (last, mut log) = (calls.len().saturating_sub(1), reports::printed(log));
        for (at, (report, spent)) in calls.into_iter().enumerate() {
            let log = if at == last { std::mem::take(&mut log) } else { gateway::Printed::default() };
            self.0.record(&call_of(&report), &reports::told(&spent), log);
        }
    }

    fn counted(&self, calls: Vec<(LineReport, Spent)>) {
        calls.iter().for_each(|(report, spent)| self.0.count(&call_of(report), &reports::told(spent)));
    }

    fn left(&self, head: Option<Vec<u8>>, end: LineEnd) {
        self.0.record_left(head.as_deref().unwrap_or_default(), super::nested::told(end));
    }
}

/// A call that was reported, in words of the gateway.
fn call_of(report: &LineReport) -> LineCall<'_> {
    LineCall {
        request_id: &report.request_id,
        seal: report.seal,
        trace: report.trace,
        flags: report.flags,
        parent: report.parent,
        span: report.span,
        status: report.status,
        received: report.received_bytes.into(),
        sent: report.sent_bytes.into(),
        ended_ago: report.ended_ago,
    }
}

impl Processes {
    /// A line to the function of an offer, if an instance of it has nothing to do.
    fn open_line(self: &Arc<Self>, offer: gateway::LineOffer) -> Option<Arc<Line>> {
        let served = Arc::clone(offer.served());
        if !self.speaks_lines(served.procedure) {
            return None;
        }
        let (procedure, limits) = (served.procedure, Limits::from_handle(*served.prefix.first()?).ok()?);
        let (fleet, function) = (self.known_fleet()?, self.expected(procedure).function(procedure, limits));
        if !fleet.has_idle(&function) {
            return None;
        }
        // A line has no arguments.
        let application = self.store.get(Handle::blob(b"")).ok()??;
        let terms = LineTerms {
            caller: offer.caller().to_owned(),
            function: served.name.clone(),
            version: served.version,
            timeout: served.timeout,
        };
        let offer = Arc::new(offer);
        let records: Arc<dyn LineRecords> = Arc::new(Records(Arc::clone(&offer)));
        let line = self.lines.add(procedure, |id| Line::new(id, terms, records).ok())?;
        self.options.traffic.opens(Arc::clone(&line));
        // Whoever changes what serves takes the lines back that are known here, after it was changed.
        if !offer.is_whole() {
            self.line_is_over(line.id());
            return None;
        }
        let call = Call {
            application,
            handle: procedure,
            limits,
            procedure,
            deadline: None,
            callees: self.nested.callees_of_line(self, &line, procedure),
            audience: None,
            line: Some(Arc::clone(&line)),
            followers: None,
        };
        let (processes, over) = (Arc::downgrade(self), Arc::clone(&line));
        let told = Box::new(move |ended: Result<(Outcome, Start), keep_alive::Error>| {
            if let Some(processes) = processes.upgrade() {
                processes.line_is_over(over.id());
            }
            over.ended(end_of(ended));
        });
        let ticket = fleet.begin(&function, call, Instant::now(), told);
        let fleet = Arc::downgrade(&fleet);
        line.cancelled_by(Box::new(move || {
            if let Some(fleet) = fleet.upgrade() {
                fleet.cancel(ticket);
            }
        }));
        line.is_open().then_some(line)
    }

    /// Whether a function serves on lines: one with an instance whose adapter speaks them, or
    /// that does so itself.
    fn speaks_lines(&self, procedure: Handle) -> bool {
        if !procedure.is_object() || !procedure.names_tree() {
            return false;
        }
        let Ok(Some(tree)) = self.store.get(procedure) else { return false };
        Image::read(&self.store, tree.as_tree()).is_ok_and(|image| image.speaks_lines())
    }

    /// What an instance is told of the function of an offer, if it has this in common with it.
    pub(super) fn told_within(
        &self,
        offer: gateway::LineOffer,
        together: Handle,
        since: Since,
    ) -> Option<Within> {
        let served = Arc::clone(offer.served());
        if self.together(served.procedure) != Some(together) {
            return None;
        }
        let tree = self.store.get(served.procedure).ok()??;
        let image = Image::read(&self.store, tree.as_tree()).ok()?;
        Some(Within {
            function: served.name.clone(),
            version: served.version,
            timeout: served.timeout,
            handler: image.settings.handler,
            records: Arc::new(Records(Arc::new(offer))),
            since,
        })
    }

    /// What a procedure has in common with those that may be called within its instances.
    pub(super) fn together(&self, procedure: Handle) -> Option<Handle> {
        self.expected(procedure).together
    }

    fn line_is_over(&self, id: u32) {
        self.lines.remove(id);
        self.options.traffic.is_over(id);
    }

    /// Takes lines back, if a call waits: to its function, or else all of them, where it is memory
    /// that it waits for.
    pub(super) fn make_way(&self, fleet: &Fleet, function: &Function) {
        if !self.lines.recall(function.spec.procedure) && fleet.lacks_memory(function) {
            self.lines.recall_named(None);
        }
    }

    /// Takes the lines to a function back, or to all: another version may serve now.
    pub(crate) fn recall_lines(&self, function: Option<&str>) {
        self.changes.note();
        self.lines.recall_named(function);
        // Who serves a line may call what has changed within itself, and is told only with a call.
        self.lines.recall_those(|_, procedure| self.together(procedure).is_some());
    }
}

/// How the last call on a line ended; `None`: it had its answer there.
fn end_of(ended: Result<(Outcome, Start), keep_alive::Error>) -> Option<LineEnd> {
    match ended {
        Ok((Outcome { result: Ok(result), .. }, _)) if result == Handle::blob(b"") => None,
        Ok((Outcome { result, log, spent, .. }, _)) => Some(LineEnd { result, log, spent }),
        Err(error) => Some(LineEnd { result: Err(fault_of(error)), log: Printed::default(), spent: None }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;

    struct Nobody;

    impl LineRecords for Nobody {
        fn served(&self, _: Vec<(LineReport, Spent)>, _: Printed) {}
        fn counted(&self, _: Vec<(LineReport, Spent)>) {}
        fn left(&self, _: Option<Vec<u8>>, _: LineEnd) {}
    }

    fn add(lines: &Lines, procedure: u64, function: &str) -> Option<Arc<Line>> {
        let terms = LineTerms {
            caller: "caller".to_owned(),
            function: function.to_owned(),
            version: 1,
            timeout: Duration::from_secs(60),
        };
        lines.add(Handle::u64(procedure), |id| Line::new(id, terms, Arc::new(Nobody)).ok())
    }

    #[test]
    fn lines_are_taken_back_by_procedure_by_name_and_all_and_none_comes_after() {
        let lines = Lines::default();
        let (one, other) = (add(&lines, 1, "f").unwrap(), add(&lines, 2, "g").unwrap());
        assert_ne!(one.id(), other.id());
        assert!(!lines.recall(Handle::u64(3)) && lines.recall(Handle::u64(1)));
        lines.remove(one.id());
        assert!(!lines.recall(Handle::u64(1)), "it is over");
        lines.recall_named(Some("f"));
        lines.close();
        assert!(add(&lines, 1, "f").is_none());
    }

    #[test]
    fn there_are_no_more_than_there_may_be() {
        let lines = Lines::default();
        // Each takes eight descriptors and two mappings.
        let most = 16 * LINES_MAX as u64;
        if linux::files_max().is_some_and(|files| files < most) {
            linux::set_resource_limit("RLIMIT_NOFILE", most, most).unwrap();
        }
        let made: Vec<_> = (0..LINES_MAX + 3).map(|_| add(&lines, 1, "f")).collect();
        assert_eq!(made.iter().flatten().count(), LINES_MAX);
    }
}
