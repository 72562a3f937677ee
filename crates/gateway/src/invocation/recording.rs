// SPDX-License-Identifier: Apache-2.0
//! A request under way: whatever becomes of it is recorded.

use std::io::Write as _;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderName, HeaderValue, StatusCode};
use objects::Handle;

use super::Passed;
use super::lines::WITHIN;
use super::passing::Passing;
use super::step::StepTimes;
use super::trace::{Context, Span};
use super::{micros_now, millis, since_1970};
use crate::admission::Permit;
use crate::backend::{Evaluated, Evaluation};
use crate::functions::{CallReport, Served};
use crate::journal::Record;
use crate::printed::{Log, Printed};
use crate::problem::{CLIENT_CLOSED, Problem};
use crate::request_id::RequestId;
use crate::router::Shared;
use crate::tenants::Holding;
use crate::usage::{Spent, Usage, micros};

pub(crate) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// How much longer a function may run once its client has left. Most calls end
/// sooner, and their instance serves on; one that does not is stopped with it.
const PARTING: Duration = Duration::from_secs(1);

/// What most say of their timing.
const TIMING_BYTES: usize = 80;

/// A request under way.
pub(super) struct Recording {
    shared: Arc<Shared>,
    served: Arc<Served>,
    id: RequestId,
    begun: Instant,
    running: Option<Running>,
    report: Option<CallReport>,
    /// What a codelet took, which has no report.
    evaluated: Option<Evaluated>,
    /// What a program printed, which has no report.
    printed: Printed,
    bodies: Bodies,
    /// Processor time of the instance that is no call's.
    cpu_between: Duration,
    is_recorded: bool,
    place: Place,
    /// Its part of its tenant's quota.
    holding: Option<Box<Holding>>,
    /// It was left while it ran: what it took is not known.
    is_untold: bool,
    body_problem: Option<Problem>,
}

/// Bytes that came and went.
#[derive(Debug, Clone, Copy, Default)]
struct Bodies {
    received: u64,
    sent: u64,
}

/// Where in the tree of its request's calls it stands.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    pub(super) span: Option<Span>,
    pub(super) parent: Option<Span>,
    /// A function called it, not a client.
    pub(super) is_nested: bool,
    /// Its place in a trace that is told.
    pub(super) context: Option<Context>,
    /// By which door it came.
    pub(super) source: &'static str,
}

/// What is stopped if nobody waits for it.
pub(super) struct Running {
    pub(super) evaluation: Box<dyn Evaluation>,
    pub(super) goal: Handle,
    pub(super) permit: Permit,
    /// Its body, if that is passed on while it comes.
    pub(super) passing: Option<Box<Passing>>,
    /// Dropped after all the rest: what it consists of.
    pub(super) _passed: Option<Passed>,
}

impl Recording {
    pub(super) fn begin(
        shared: &Arc<Shared>,
        served: &Arc<Served>,
        id: &RequestId,
        place: Place,
        received_bytes: usize,
    ) -> Self {
        Self {
            shared: shared.clone(),
            served: served.clone(),
            id: id.clone(),
            begun: Instant::now(),
            running: None,
            report: None,
            evaluated: None,
            printed: Printed::default(),
            bodies: Bodies { received: received_bytes as u64, sent: 0 },
            cpu_between: Duration::ZERO,
            is_recorded: false,
            place,
            holding: None,
            is_untold: false,
            body_problem: None,
        }
    }

    /// It is a tenant's, and so is what its function calls.
    pub(super) fn holds(&mut self, mut holding: Box<Holding>) {
        if let Some(span) = self.place.span {
            holding.is_named(&self.shared.tenants, span);
        }
        self.holding = Some(holding);
    }

    /// So much of the answer's body goes out.
    pub(super) fn sends(&mut self, bytes: usize) {
        self.bodies.sent += bytes as u64;
    }

    /// From now on it runs. The end is to be told.
    pub(super) fn runs(&mut self, running: Running) -> &mut Running {
        self.running.insert(running)
    }

    /// It does not run any more.
    pub(super) fn ran(&mut self) {
        if let Some(running) = self.running.take() {
            self.report = report_of(&self.shared, &running);
            if let Some(report) = self.report.as_ref().filter(|report| report.start == WITHIN) {
                // It may have begun before it was asked for.
                let begun = Instant::now().checked_sub(report.whole);
                self.begun = begun.map_or(self.begun, |begun| begun.min(self.begun));
            }
            if let Some(passing) = &running.passing {
                self.bodies.received = passing.bytes();
                self.body_problem = passing.problem();
            }
        }
    }

    /// Why its body did not come whole, if that is the client's doing.
    pub(super) fn body_problem(&mut self) -> Option<Problem> {
        self.body_problem.take()
    }

    /// It ran elsewhere, until now.
    pub(super) fn told(&mut self, report: CallReport) {
        self.begun = self.begun.checked_sub(report.whole).unwrap_or(self.begun);
        self.report = Some(report);
    }

    /// It has ended.
    pub(super) fn ended(&mut self, end: &Evaluated) {
        self.evaluated = Some(*end);
        self.ran();
    }

    /// A program printed this to its stderr, when it ran.
    pub(super) fn printed(&mut self, text: Vec<u8>) {
        self.printed = Printed::error(text);
    }

    /// Waits for the end of what runs. `None`: nothing does.
    pub(super) async fn finished(&mut self) -> Option<Evaluated> {
        let end = self.running.as_mut()?.evaluation.finished().await;
        self.ended(&end);
        Some(end)
    }

    /// Who serves, and what.
    pub(super) fn parties(&self) -> (Arc<Shared>, Arc<Served>) {
        (Arc::clone(&self.shared), Arc::clone(&self.served))
    }

    /// Whether an instance ran for it.
    pub(super) fn has_report(&self) -> bool {
        self.report.is_some()
    }

    /// Where its time went, if it is a step and an instance ran for it.
    pub(super) fn step_times(&mut self) -> Option<StepTimes> {
        let CallReport { start, queued, starting, spent, phases, .. } = self.report.as_mut()?;
        let spent = spent.as_ref()?;
        let (running, memory_peak_bytes) = (spent.running, spent.memory_peak_bytes);
        let has_followed = *start == WITHIN;
        let queued = *queued + *starting;
        Some(StepTimes { queued, running, memory_peak_bytes, phases: phases.take(), has_followed })
    }

    /// What it printed, once it has run.
    pub(super) fn log(&self) -> &[u8] {
        &self.report.as_ref().map_or(&self.printed, |report| &report.log).bytes
    }

    /// Records the end, and says what it took as browsers read it.
    pub(super) fn end(mut self, status: StatusCode, failure: Option<String>) -> HeaderValue {
        let record = self.record(status.as_u16(), failure);
        let timing = timing(&record);
        self.keep(record);
        timing
    }

    fn record(&mut self, status: u16, failure: Option<String>) -> Record {
        self.is_recorded = true;
        let report = self.report.take();
        let unreported = if failure.is_some() { "none" } else { "memo" };
        let start = report.as_ref().map_or(unreported, |report| report.start);
        let printed = std::mem::take(&mut self.printed);
        let report = report.unwrap_or_else(|| CallReport { log: printed, ..CallReport::default() });
        let usage = self.usage(&report, failure.is_some());
        if let Some(holding) = &mut self.holding {
            // Where nobody counts processor time, it is as if all of the time was such.
            // And of what runs on when it is left, all since it was begun: to leave saves nothing.
            let told = Duration::from_micros(usage.cpu_us.unwrap_or(usage.held_us));
            holding.took(if self.is_untold { self.begun.elapsed() } else { told });
        }
        self.cpu_between = report.spent.map_or(Duration::ZERO, |spent| spent.cpu_between);
        let (now, took) = (since_1970(), self.begun.elapsed());
        Record {
            sequence: 0,
            span: self.place.span,
            parent: self.place.parent,
            begun_us: micros(now.saturating_sub(took)),
            time_ms: millis(now),
            request_id: self.id.0.as_ref().to_owned(),
            tenant: self.holding.as_ref().map(|holding| holding.tenant().to_owned()),
            function: self.served.name.clone(),
            version: self.served.version,
            status,
            start: self.start_of_module().unwrap_or(start),
            total_us: micros(took),
            queued_us: micros(report.queued),
            starting_us: micros(report.starting),
            usage,
            failure,
            log: log_of(report.log),
        }
    }

    /// In what a module ran: nothing, if a program's result was remembered.
    fn start_of_module(&self) -> Option<&'static str> {
        let is_remembered = self.evaluated.is_some_and(|end| end.applied == 0);
        match (self.served.is_codelet, self.served.is_program) {
            (_, true) if is_remembered => Some("memo"),
            (_, true) => Some("program"),
            (is_codelet, _) => is_codelet.then_some("codelet"),
        }
    }

    fn usage(&self, report: &CallReport, has_failed: bool) -> Usage {
        let (memory, rates) = (self.served.memory_bytes, &self.shared.options.rates);
        let Bodies { received, sent } = self.bodies;
        let of_codelet = |end: &Evaluated| Spent {
            running: end.ran,
            held: end.ran,
            // It never waits.
            cpu: Some(end.ran),
            is_cpu_own: true,
            fuel: end.fuel,
            ..Spent::default()
        };
        let codelet = self.evaluated.as_ref().filter(|_| self.served.is_codelet).map(of_codelet);
        match report.spent.or(codelet) {
            Some(spent) => Usage::of(&spent, memory, (received, sent), rates),
            None if has_failed => Usage::none(memory, received, rates),
            None => Usage::of(&Spent::default(), memory, (received, sent), rates),
        }
    }

    fn keep(&self, record: Record) {
        keep(&self.shared, &self.served, &self.place, record, self.cpu_between);
    }

    fn left(&mut self) {
        let who = if self.place.is_nested { "its caller ended" } else { "the client left" };
        let record = self.record(CLIENT_CLOSED, Some(format!("{who} before the answer")));
        self.keep(record);
    }
}

/// Counts and keeps what became of a request.
pub(super) fn keep(shared: &Shared, served: &Served, place: &Place, record: Record, cpu_between: Duration) {
    count(shared, served, &record, cpu_between);
    tell(&record);
    if let (Some(tracer), Some(context)) = (&shared.tracer, place.context) {
        tracer.ended(context, place.source, &record);
    }
    // When it ended: the clock was read for that.
    let (ended_us, record) = (record.begun_us.saturating_add(record.total_us), record.fit_to_keep());
    let told = shared.journal.lock().unwrap_or_else(PoisonError::into_inner).add(record, ended_us);
    if let (Some(archive), Some(record)) = (&shared.archive, told) {
        archive.keep(record);
    }
}

/// Only counts it.
pub(super) fn count(shared: &Shared, served: &Served, record: &Record, cpu_between: Duration) {
    served.ended(shared.started.elapsed(), record, cpu_between);
}

/// The line of those who follow the node's own log.
fn tell(record: &Record) {
    let Record { request_id, function, version, status, start, total_us, queued_us, starting_us, .. } =
        record;
    let Usage { held_us, cpu_us, memory_peak_bytes, received_bytes, sent_bytes, price, .. } = record.usage;
    tracing::debug!(
        request_id,
        function,
        version,
        status,
        start,
        total_us,
        queued_us,
        starting_us,
        held_us,
        cpu_us,
        memory_peak_bytes,
        received_bytes,
        sent_bytes,
        price,
        "a request to a function has ended"
    );
}

/// What was printed, with the time of day.
pub(super) fn log_of(printed: Printed) -> Log {
    // Most print nothing, and need no clock for it.
    if printed.bytes.is_empty() { Log::default() } else { Log::of(printed, (Instant::now(), micros_now())) }
}

/// What a request took, as browsers read it: in milliseconds.
fn timing(record: &Record) -> HeaderValue {
    let mut text = Vec::with_capacity(TIMING_BYTES);
    text.extend_from_slice(b"total;dur=");
    write_ms(&mut text, record.total_us);
    text.extend_from_slice(b", queue;dur=");
    write_ms(&mut text, record.queued_us);
    text.extend_from_slice(b", start;desc=");
    text.extend_from_slice(record.start.as_bytes());
    text.extend_from_slice(b";dur=");
    write_ms(&mut text, record.starting_us);
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("total"))
}

/// Microseconds as milliseconds with three digits behind the point.
fn write_ms(text: &mut Vec<u8>, us: u64) {
    // A vector takes all that is written.
    _ = write!(text, "{}", us / 1000);
    let digit = |place: u64| b'0' + (us / place % 10) as u8;
    text.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
}

fn report_of(shared: &Shared, running: &Running) -> Option<CallReport> {
    shared.backend.functions()?.take_report(running.goal.thunk()?)
}

impl Drop for Recording {
    /// The client has left. What runs gets a little longer.
    fn drop(&mut self) {
        if self.is_recorded {
            return;
        }
        let Some(mut running) = self.running.take() else { return self.left() };
        // Where there is no event loop any more, the node is ending.
        let Ok(handle) = tokio::runtime::Handle::try_current() else { return self.left() };
        // Whoever waits for more of the body hears that none comes.
        if let Some(passing) = running.passing.take() {
            self.bodies.received = passing.bytes();
        }
        let (begun, bodies, place) = (self.begun, self.bodies, self.place);
        let mut recording = Self::begin(&self.shared, &self.served, &self.id, place, 0);
        (recording.begun, recording.bodies) = (begun, bodies);
        recording.holding = self.holding.take();
        let parting_max = if place.is_nested { Duration::ZERO } else { PARTING };
        self.is_recorded = true;
        let parting = async move {
            // Dropping it afterwards stops what still runs.
            let end = tokio::time::timeout(parting_max, running.evaluation.finished()).await;
            // Nobody takes what it led to, which may be much memory.
            if let Ok(end) = end
                && !(recording.served.is_pure || recording.served.is_codelet)
            {
                recording.shared.backend.drop_passed(end.result);
            }
            recording.report = report_of(&recording.shared, &running);
            let told = recording.report.as_ref().and_then(|report| report.spent.as_ref());
            recording.is_untold = told.is_none();
            recording.left();
            drop(running.permit);
        };
        let mut departed = self.shared.departed.lock().unwrap_or_else(PoisonError::into_inner);
        while departed.try_join_next().is_some() {}
        departed.spawn_on(parting, &handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_milliseconds() {
        let record =
            Record { start: "warm", total_us: 12_034, queued_us: 7, starting_us: 100, ..Record::default() };
        assert_eq!(timing(&record), "total;dur=12.034, queue;dur=0.007, start;desc=warm;dur=0.100");
    }
}
