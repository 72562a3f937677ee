// SPDX-License-Identifier: Apache-2.0
//! Calls of functions by functions that do not pass the node (decision 0039):
//! who may make them, and how they are written down afterwards.
//!
//! Who calls on a line hands down the request's id and its trace. That both belong
//! together, and were told by this gateway, says a *seal*: a hash of both with a secret
//! of this process. So no function can have its calls written down for a request
//! that it has no part in. Requests of tenants have no seal: their quotas are asked
//! for each call.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use objects::{Failure, FailureCode, Handle, TreeBuilder};
use uuid::Uuid;
use uuid::fmt::Simple;

use super::recording::{self, Place, Recording};
use super::trace::{TraceParent, Traced};
use super::{Context, Ended, Invocation, Span, answer, failed, micros_now, not_an_answer, since_1970};
use crate::functions::{CallReport, Functions, Served};
use crate::journal::Record;
use crate::nested::Caller;
use crate::printed::Printed;
use crate::problem::Problem;
use crate::request_id::RequestId;
use crate::router::Shared;
use crate::routes::objects::load;
use crate::unique;
use crate::usage::{Spent, Usage, micros};

/// Bytes of a seal.
const SEAL_LEN: usize = 16;
/// Lots of requests among versions, the first and the last.
const LOTS: [u32; 2] = [0, 9_999];
/// How calls come to run that come over a line.
const START: &str = "line";
/// And those that are called within the instance of who calls.
pub(super) const WITHIN: &str = "within";

/// What seals are made with.
pub(crate) struct Sealer([u8; 32]);

impl Sealer {
    pub(crate) fn new() -> Self {
        Self(unique::random())
    }

    fn seal(&self, day: u64, request_id: &str, trace: [u8; 16], flags: u8) -> [u8; SEAL_LEN] {
        let text = [self.0.as_slice(), &day.to_le_bytes(), &trace, &[flags], request_id.as_bytes()].concat();
        let mut seal = [0; SEAL_LEN];
        seal.copy_from_slice(&Handle::blob(&text).as_bytes()[..SEAL_LEN]);
        seal
    }

    /// As the head of a request has it that is told now, a time since 1970.
    pub(super) fn text(&self, request_id: &str, own: TraceParent, now: Duration) -> Simple {
        let seal = self.seal(day_of(now), request_id, own.trace.to_be_bytes(), own.flags);
        Uuid::from_bytes(seal).simple()
    }

    /// Whether it is a seal of this: of today, or of the day before, for no request takes longer.
    fn holds(&self, seal: [u8; SEAL_LEN], request_id: &str, trace: [u8; 16], flags: u8) -> bool {
        let today = day_of(since_1970());
        let days = [today, today.saturating_sub(1)];
        days.into_iter().any(|day| self.seal(day, request_id, trace, flags) == seal)
    }

    /// The same of texts, as the head of a request has them.
    pub(crate) fn holds_text(&self, seal: &str, request_id: &str, traceparent: &str) -> bool {
        let Some(own) = TraceParent::read(traceparent.as_bytes()) else { return false };
        let bytes = u128::from_str_radix(seal, 16).ok().filter(|_| seal.len() == 2 * SEAL_LEN);
        let trace = own.trace.to_be_bytes();
        bytes.is_some_and(|seal| self.holds(seal.to_be_bytes(), request_id, trace, own.flags))
    }
}

/// The day of a time since 1970.
fn day_of(time: Duration) -> u64 {
    time.as_secs() / (24 * 60 * 60)
}

/// That there may be a line to a function.
pub struct LineOffer {
    shared: Arc<Shared>,
    served: Arc<Served>,
    caller: String,
    /// How its calls come to run.
    start: &'static str,
}

impl fmt::Debug for LineOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineOffer").field("caller", &self.caller).finish_non_exhaustive()
    }
}

impl LineOffer {
    /// If the function may be called without the node, by what it is.
    pub(crate) fn of(shared: &Arc<Shared>, served: &Arc<Served>, caller: &str) -> Option<Self> {
        // A line takes a whole instance: one that serves others meanwhile is worth more than that.
        let is_shared = served.calls_at_once > 1;
        // And a workflow is a run only where the gateway has it begun.
        let is_no_line = is_shared || served.is_workflow;
        let is_called_so = !(served.is_pure || served.is_codelet || served.streams_body || is_no_line);
        is_called_so.then(|| Self::new(shared, served, caller, START))
    }

    fn new(shared: &Arc<Shared>, served: &Arc<Served>, caller: &str, start: &'static str) -> Self {
        Self { shared: shared.clone(), served: served.clone(), caller: caller.to_owned(), start }
    }

    /// The same of a function that is to be called within the instance that calls it, which takes no place of its own
    /// and is no matter of whether one serves several requests at once.
    pub(crate) fn within(shared: &Arc<Shared>, served: &Arc<Served>, caller: &str) -> Option<Self> {
        let is_elsewhere = served.is_workflow || served.is_codelet;
        let is_called_so = !(served.is_pure || served.streams_body || is_elsewhere);
        Some(Self::new(shared, served, caller, WITHIN)).filter(|offer| is_called_so && offer.is_whole())
    }

    /// The function's version.
    pub fn served(&self) -> &Arc<Served> {
        &self.served
    }

    /// The function that calls.
    pub fn caller(&self) -> &str {
        &self.caller
    }

    /// Whether all requests to the function get this version now.
    pub fn is_whole(&self) -> bool {
        let functions = self.shared.backend.functions();
        let is_it = |functions: &dyn Functions, lot| {
            let served = functions.served(&self.served.name, None, lot);
            served.is_some_and(|served| Arc::ptr_eq(&served, &self.served))
        };
        functions.is_some_and(|functions| LOTS.into_iter().all(|lot| is_it(functions, lot)))
    }

    /// Writes down a call that was under way on the line when its caller left it. The caller
    /// had been told this.
    pub fn record_left(&self, head: &[u8], end: LineEnd) {
        let shared = &self.shared;
        let caller = Caller::read(head).ok().filter(|caller| caller.is_sealed(shared));
        let id = caller.as_ref().map_or_else(RequestId::new, Caller::id);
        let place = Place {
            span: Some(Span::random()),
            parent: caller.as_ref().and_then(Caller::span),
            is_nested: true,
            context: None,
            source: "call",
        };
        let mut recording = Recording::begin(shared, &self.served, &id, place, 0);
        recording.told(report_of(START, end.log, end.spent));
        // That nobody waits for it is what is recorded of it.
        drop(recording);
    }

    /// Writes down a call that was served on the line.
    pub fn record(&self, call: &LineCall<'_>, spent: &Spent, log: Printed) {
        let (shared, served) = (&self.shared, &self.served);
        let is_sealed = shared.sealer.holds(call.seal, call.request_id, call.trace, call.flags);
        // It was served, whoever it was for.
        let id = if is_sealed { RequestId::from_text(call.request_id) } else { RequestId::new() };
        let context = Context::told(call.trace, call.span, call.parent, call.flags);
        let place = Place {
            span: Some(Span::from_bits(call.span)),
            parent: is_sealed.then(|| Span::from_bits(call.parent)),
            is_nested: true,
            context: context.filter(|_| is_sealed && shared.tracer.is_some()),
            source: "call",
        };
        let record = Record {
            span: place.span,
            parent: place.parent,
            request_id: id.0.as_ref().to_owned(),
            log: recording::log_of(log),
            ..self.record_of(call, spent)
        };
        recording::keep(shared, served, &place, record, spent.cpu_between);
    }

    /// Counts it, and forgets it: there are too many of them to write each down.
    pub fn count(&self, call: &LineCall<'_>, spent: &Spent) {
        recording::count(&self.shared, &self.served, &self.record_of(call, spent), spent.cpu_between);
    }

    /// What is known of a call but for whom it was.
    fn record_of(&self, call: &LineCall<'_>, spent: &Spent) -> Record {
        let (shared, served) = (&self.shared, &self.served);
        let ended_us = micros_now().saturating_sub(micros(call.ended_ago));
        let usage = Usage::of(spent, served.memory_bytes, (call.received, call.sent), &shared.options.rates);
        Record {
            begun_us: ended_us.saturating_sub(micros(spent.running)),
            time_ms: ended_us / 1000,
            function: served.name.clone(),
            version: served.version,
            status: call.status,
            start: self.start,
            total_us: micros(spent.running),
            usage,
            ..Record::default()
        }
    }
}

fn report_of(start: &'static str, log: Printed, spent: Option<Spent>) -> CallReport {
    let whole = spent.map(|spent| spent.running).unwrap_or_default();
    CallReport { start, whole, log, spent, ..CallReport::default() }
}

/// A call that was served on a line, as its instance tells it.
#[derive(Debug)]
pub struct LineCall<'a> {
    /// The request that led to it.
    pub request_id: &'a str,
    /// What says that this and the trace belong together.
    pub seal: [u8; SEAL_LEN],
    /// The trace.
    pub trace: [u8; 16],
    /// Its flags.
    pub flags: u8,
    /// The span of the call that asked.
    pub parent: u64,
    /// Its own.
    pub span: u64,
    /// Of its answer.
    pub status: u16,
    /// Bytes of its body.
    pub received: u64,
    /// Bytes of its answer's body.
    pub sent: u64,
    /// How long ago it ended.
    pub ended_ago: Duration,
}

/// How a call ended that was begun on a line, and gave no answer there.
#[derive(Debug)]
pub struct LineEnd {
    /// Its result, or why there is none.
    pub result: Result<Handle, (FailureCode, String)>,
    /// What it printed.
    pub log: Printed,
    /// What it took.
    pub spent: Option<Spent>,
    /// It was called within the instance of who called, and on no line.
    pub is_within: bool,
}

impl LineEnd {
    /// Whether its instance ended before it answered, which says nothing about the
    /// request.
    pub(crate) fn is_trap(&self) -> bool {
        matches!(self.result, Err((FailureCode::Trap, _)))
    }
}

impl Invocation<'_> {
    /// The end of what has run already, on a line.
    pub(crate) async fn conclude(self, shared: &Arc<Shared>, received: usize, end: LineEnd) -> Ended {
        let samples = |trace| shared.tracer.as_ref().is_some_and(|tracer| tracer.samples(trace));
        let traced = Traced::begin(self.headers, samples);
        let place = self.place(Some(&traced), shared.tracer.is_some());
        let mut recording = Recording::begin(shared, &self.served, self.id, place, received);
        let LineEnd { result, log, spent, is_within } = end;
        recording.told(report_of(if is_within { WITHIN } else { START }, log, spent));
        let served = &self.served;
        let given = match result {
            Ok(result) => match load(shared, result).await {
                Ok(Some(bytes)) => {
                    shared.backend.drop_passed(result);
                    answer::read(bytes).map_err(|why| not_an_answer(served, why))
                }
                Ok(None) => Err(Problem::object_not_found(result)),
                Err(problem) => Err(problem),
            },
            Err((code, detail)) => Err(failure(served, code, detail)),
        };
        super::ended(given, recording)
    }
}

/// The problem of a call that failed on a line: what the same call would have by the node.
fn failure(served: &Served, code: FailureCode, detail: String) -> Problem {
    let mut tree: TreeBuilder = served.prefix.iter().copied().collect();
    tree.push(Handle::blob(&unique::random::<16>()));
    let application = tree.view().handle().application();
    let Some(application) = application else {
        return Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "The function failed",
            "gateway",
            detail,
        );
    };
    let failure = Failure { code, application, detail: Handle::blob(detail.as_bytes()) };
    let (handle, _) = failure.to_tree();
    failed(served, Problem::failure(handle, &failure, detail), code)
}
