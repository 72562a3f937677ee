// SPDX-License-Identifier: Apache-2.0
//! A request under way: whatever becomes of it is recorded.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderName, HeaderValue, StatusCode};
use objects::Handle;

use super::Passed;
use super::trace::Span;
use super::{millis, since_1970};
use crate::admission::Permit;
use crate::backend::{Evaluated, Evaluation};
use crate::functions::{CallReport, Served};
use crate::journal::Record;
use crate::problem::CLIENT_CLOSED;
use crate::request_id::RequestId;
use crate::router::Shared;

pub(crate) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// How much longer a function may run once its client has left. Most calls end
/// sooner, and their instance serves on; one that does not is stopped with it.
const PARTING: Duration = Duration::from_secs(1);

/// A request under way.
pub(super) struct Recording {
    shared: Arc<Shared>,
    served: Arc<Served>,
    id: RequestId,
    begun: Instant,
    running: Option<Running>,
    report: Option<CallReport>,
    is_recorded: bool,
    place: Place,
}

/// Where in the tree of its request's calls it stands.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    pub(super) span: Option<Span>,
    pub(super) parent: Option<Span>,
    /// A function called it, not a client.
    pub(super) is_nested: bool,
}

/// What is stopped if nobody waits for it.
pub(super) struct Running {
    pub(super) evaluation: Box<dyn Evaluation>,
    pub(super) goal: Handle,
    pub(super) permit: Permit,
    /// Dropped after all the rest: what it consists of.
    pub(super) _passed: Option<Passed>,
}

impl Recording {
    pub(super) fn begin(shared: &Arc<Shared>, served: &Arc<Served>, id: &RequestId, place: Place) -> Self {
        let (shared, served, id) = (shared.clone(), served.clone(), id.clone());
        let begun = Instant::now();
        Self { shared, served, id, begun, running: None, report: None, is_recorded: false, place }
    }

    /// From now on it runs. The end is to be told.
    pub(super) fn runs(&mut self, running: Running) -> &mut Running {
        self.running.insert(running)
    }

    /// It does not run any more.
    pub(super) fn ran(&mut self) {
        if let Some(running) = self.running.take() {
            self.report = report_of(&self.shared, &running);
        }
    }

    /// Waits for the end of what runs. `None`: nothing does.
    pub(super) async fn finished(&mut self) -> Option<Evaluated> {
        let end = self.running.as_mut()?.evaluation.finished().await;
        self.ran();
        Some(end)
    }

    /// Who serves, and what.
    pub(super) fn parties(&self) -> (Arc<Shared>, Arc<Served>) {
        (Arc::clone(&self.shared), Arc::clone(&self.served))
    }

    /// What it printed, once it has run.
    pub(super) fn log(&self) -> &[u8] {
        self.report.as_ref().map_or(&[], |report| &report.log)
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
        let report = report.unwrap_or_default();
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (now, took) = (since_1970(), self.begun.elapsed());
        Record {
            sequence: 0,
            span: self.place.span,
            parent: self.place.parent,
            begun_us: micros(now.saturating_sub(took)),
            time_ms: millis(now),
            request_id: self.id.0.as_ref().to_owned(),
            function: self.served.name.clone(),
            version: self.served.version,
            status,
            start: if self.served.is_codelet { "codelet" } else { start },
            total_us: micros(took),
            queued_us: micros(report.queued),
            starting_us: micros(report.starting),
            failure,
            log: text_of(report.log),
        }
    }

    fn keep(&self, record: Record) {
        let now = self.shared.started.elapsed();
        self.served.ended(now, record.total_us, record.start, record.failure.is_some());
        self.shared.journal.lock().unwrap_or_else(PoisonError::into_inner).add(record);
    }

    fn left(&mut self) {
        let who = if self.place.is_nested { "its caller ended" } else { "the client left" };
        let record = self.record(CLIENT_CLOSED, Some(format!("{who} before the answer")));
        self.keep(record);
    }
}

/// What was printed, as a text: what is no UTF-8 is replaced.
fn text_of(log: Vec<u8>) -> String {
    String::from_utf8(log).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// What a request took, as browsers read it: in milliseconds.
fn timing(record: &Record) -> HeaderValue {
    let [total, queued, starting] =
        [record.total_us, record.queued_us, record.starting_us].map(|us| (us / 1000, us % 1000));
    let text = format!(
        "total;dur={}.{:03}, queue;dur={}.{:03}, start;desc={};dur={}.{:03}",
        total.0, total.1, queued.0, queued.1, record.start, starting.0, starting.1,
    );
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("total"))
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
        let (shared, served, id, begun, place) =
            (self.shared.clone(), self.served.clone(), self.id.clone(), self.begun, self.place);
        let parting_max = if place.is_nested { Duration::ZERO } else { PARTING };
        self.is_recorded = true;
        let parting = async move {
            let mut recording =
                Self { shared, served, id, begun, running: None, report: None, is_recorded: false, place };
            // Dropping it afterwards stops what still runs.
            let _ = tokio::time::timeout(parting_max, running.evaluation.finished()).await;
            recording.report = report_of(&recording.shared, &running);
            recording.left();
            drop(running.permit);
        };
        let mut departed = self.shared.departed.lock().unwrap_or_else(PoisonError::into_inner);
        while departed.try_join_next().is_some() {}
        departed.spawn_on(parting, &handle);
    }
}
