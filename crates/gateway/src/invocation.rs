// SPDX-License-Identifier: Apache-2.0
//! A request to a function, by whatever door it came: it becomes an
//! application of the function, and its result an answer
//! (`docs/spec/functions.md`, sections 5 and 6).

mod answer;
mod recording;
mod trace;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::http::header::{CONNECTION, CONTENT_TYPE, TE, TRANSFER_ENCODING, UPGRADE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use objects::{BundleRecord, FailureCode, Handle, TreeBuilder};
use serde::Serialize;

pub(crate) use answer::Answer;
pub(crate) use recording::SERVER_TIMING;
use recording::{Place, Recording, Running};
pub(crate) use trace::{Span, TRACEPARENT};

use crate::admission::Permit;
use crate::backend::{EvaluateRequest, Evaluated, Priority};
use crate::body::{Buffered, blocking};
use crate::functions::{Routed, Served};
use crate::problem::Problem;
use crate::request_id::RequestId;
use crate::router::Shared;
use crate::routes::evaluate::failure_detail;
use crate::routes::objects::load;
use crate::unique;

/// How much longer the gateway waits than the function may take, so that it is
/// the function's own end that is told.
const GRACE: Duration = Duration::from_secs(2);
/// Bodies up to this are stored without leaving the event loop.
const INLINE_BYTES_MAX: usize = 64 << 10;
/// What most heads take at most.
const HEAD_BYTES: usize = 1 << 10;
/// Headers that are about one connection, and no function's matter.
pub(crate) const HOP_BY_HOP: [HeaderName; 6] = [
    CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("trailer"),
];

/// What is asked of a function.
pub(crate) struct Invocation<'a> {
    pub(crate) served: Arc<Served>,
    pub(crate) id: &'a RequestId,
    pub(crate) method: &'a str,
    /// What follows the function's own path, or all of it by a route.
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) routed: Option<&'a Routed>,
    /// How it came: `http`, `lambda`, `event` …
    pub(crate) source: &'static str,
    /// By which function, if it was one.
    pub(crate) nesting: Option<Nesting>,
}

/// What a function that calls another one hands down, besides the trace.
#[derive(Debug, Clone)]
pub(crate) struct Nesting {
    /// Its name.
    pub(crate) caller: String,
    /// Functions that wait for this call, one for another.
    pub(crate) depth: u32,
    /// When the caller must have ended.
    pub(crate) deadline: Instant,
}

/// How an invocation ended.
pub(crate) struct Ended {
    pub(crate) answer: Result<Answer, Problem>,
    /// What it took.
    pub(crate) timing: HeaderValue,
    /// What it printed, as far as that is known.
    pub(crate) log: Vec<u8>,
}

/// What a function learns of a request besides its body: the first line, which
/// every handler needs.
#[derive(Debug, Serialize)]
struct CallLine<'a> {
    request_id: &'a str,
    function: &'a str,
    version: u64,
    deadline_ms: u64,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    depth: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<Cow<'a, str>>,
}

/// The second line, which few handlers look at.
#[derive(Debug, Serialize)]
struct HttpLine<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
    headers: Vec<(&'a str, Cow<'a, str>)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a [(String, String)]>,
}

impl Invocation<'_> {
    /// Runs it. Dropped before its end, it counts as one whose client has left.
    pub(crate) async fn run(self, shared: &Arc<Shared>, permit: Permit, body: Buffered) -> Ended {
        // What gets no head can make no calls, and is in the trace as far as its caller.
        let has_head = !(self.served.is_pure || self.served.is_codelet);
        let traceparent = if has_head { trace::parent(self.headers) } else { String::new() };
        let place = self.place(&traceparent);
        let mut recording = Recording::begin(shared, &self.served, self.id, place);
        let time = self.time();
        let head = if has_head { self.head(traceparent, time) } else { Vec::new() };
        let latest = self.latest();
        let answer = answer(shared, &self.served, permit, head, body, latest, &mut recording).await;
        let log = recording.log().to_vec();
        let (status, failure) = match &answer {
            Ok(answer) => (answer.status, None),
            Err(problem) => (problem.status(), Some(problem.detail().to_owned())),
        };
        Ended { answer, timing: recording.end(status, failure), log }
    }

    /// How long it may take.
    fn time(&self) -> Duration {
        let own = self.served.timeout;
        let left = |nesting: &Nesting| nesting.deadline.saturating_duration_since(Instant::now());
        self.nesting.as_ref().map_or(own, |nesting| own.min(left(nesting)))
    }

    /// When nobody waits for it any more.
    fn latest(&self) -> Instant {
        let own = Instant::now() + self.served.timeout.saturating_add(GRACE);
        self.nesting.as_ref().map_or(own, |nesting| own.min(nesting.deadline))
    }

    fn place(&self, traceparent: &str) -> Place {
        let is_nested = self.nesting.is_some();
        let brought = self.headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
        let parent = if is_nested { brought.and_then(Span::of) } else { None };
        Place { span: Span::of(traceparent), parent, is_nested }
    }

    fn head(&self, traceparent: String, time: Duration) -> Vec<u8> {
        let served = &self.served;
        let told = self.headers.iter();
        let told = told.filter(|(name, _)| !HOP_BY_HOP.contains(name) && *name != trace::TRACEPARENT);
        let mut headers: Vec<(&str, Cow<'_, str>)> =
            told.map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes()))).collect();
        headers.push(("traceparent", traceparent.into()));
        let call = CallLine {
            request_id: &self.id.0,
            function: &served.name,
            version: served.version,
            deadline_ms: millis(since_1970() + time),
            source: self.source,
            caller: self.nesting.as_ref().map(|nesting| nesting.caller.as_str()),
            depth: self.nesting.as_ref().map(|nesting| nesting.depth),
            content_type: self.headers.get(CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes())),
        };
        let http = HttpLine {
            method: self.method,
            path: self.path,
            query: self.query,
            headers,
            route: self.routed.map(|routed| routed.pattern.as_str()),
            params: self.routed.map(|routed| routed.params.as_slice()),
        };
        let mut text = Vec::with_capacity(HEAD_BYTES);
        // Strings and numbers only: serialization has nothing to fail on.
        _ = serde_json::to_writer(&mut text, &call);
        text.push(b'\n');
        _ = serde_json::to_writer(&mut text, &http);
        text
    }
}

#[expect(clippy::disallowed_methods, reason = "people and functions are told the time of day")]
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

async fn answer(
    shared: &Arc<Shared>,
    served: &Arc<Served>,
    permit: Permit,
    head: Vec<u8>,
    body: Buffered,
    latest: Instant,
    recording: &mut Recording,
) -> Result<Answer, Problem> {
    let brought = Arc::new((head, body));
    let mut end = run(shared, served, permit.clone(), &brought, latest, recording).await?;
    // An instance that ended before it answered says nothing about the request,
    // which another one may be asked where the function allows it.
    if served.is_idempotent && end.failure.is_some_and(|failure| failure.code == FailureCode::Trap) {
        tracing::info!(function = served.name, "an instance ended before it answered; another one is asked");
        end = run(shared, served, permit, &brought, latest, recording).await?;
    }
    if let Some(failure) = end.failure {
        let detail = failure_detail(shared, &failure).await?;
        return Err(failed(served, Problem::failure(end.result, &failure, detail), failure.code));
    }
    let not_an_answer = |why: &str| {
        let detail = format!("function {}, version {}: its result {why}", served.name, served.version);
        Problem::new(StatusCode::BAD_GATEWAY, "bad-result", "The function gave no answer", "function", detail)
    };
    if end.result.names_tree() {
        return Err(not_an_answer("is a tree"));
    }
    let result = end.result;
    let bytes: Bytes = load(shared, result).await?.ok_or_else(|| Problem::object_not_found(result))?;
    // A codelet's may be one of its inputs.
    if !(served.is_pure || served.is_codelet) {
        shared.backend.drop_passed(result);
    }
    if served.is_codelet {
        return Ok(Answer::of_codelet(bytes));
    }
    answer::read(bytes).map_err(not_an_answer)
}

/// Evaluates the application of a function to a request, once.
async fn run(
    shared: &Arc<Shared>,
    served: &Arc<Served>,
    permit: Permit,
    brought: &Arc<(Vec<u8>, Buffered)>,
    latest: Instant,
    recording: &mut Recording,
) -> Result<Evaluated, Problem> {
    let (goal, passed) = if brought.1.bytes.len() <= INLINE_BYTES_MAX {
        keep(shared, served, &brought.0, &brought.1.bytes)?
    } else {
        let (shared, served, brought) = (shared.clone(), served.clone(), brought.clone());
        blocking(move || keep(&shared, &served, &brought.0, &brought.1.bytes)).await??
    };
    let deadline = Some(latest.saturating_duration_since(Instant::now()));
    let request =
        EvaluateRequest { goal, deadline, priority: Priority::Normal, is_repeatable: served.is_pure };
    let evaluation = shared.backend.evaluate(request).map_err(|reason| Problem::busy("evaluator", reason))?;
    let end =
        recording.runs(Running { evaluation, goal, permit, _passed: passed }).evaluation.finished().await;
    recording.ran();
    Ok(end)
}

/// What a request consists of, held until it has ended.
struct Passed {
    shared: Arc<Shared>,
    handles: Vec<Handle>,
}

impl Drop for Passed {
    fn drop(&mut self) {
        self.handles.iter().for_each(|&handle| self.shared.backend.drop_passed(handle));
    }
}

/// Keeps what the application consists of, and names the application.
fn keep(
    shared: &Arc<Shared>,
    served: &Served,
    head: &[u8],
    body: &[u8],
) -> Result<(Handle, Option<Passed>), Problem> {
    let mut tree: TreeBuilder = served.prefix.iter().copied().collect();
    if !served.is_codelet {
        // One of its own for each request, so that no two are one computation.
        let unique = if served.is_pure { None } else { Some(unique::uuid().into_bytes()) };
        tree.push(Handle::blob(unique.as_ref().map_or(&[], |id| id.as_slice())));
        tree.push(Handle::blob(head));
    }
    tree.push(Handle::blob(body));
    let records = [BundleRecord::Blob(head), BundleRecord::Blob(body), BundleRecord::Tree(tree.view())];
    // What is asked for once leaves no trace: it may hold secrets.
    let kept =
        if served.is_pure { shared.backend.keep_many(&records) } else { shared.backend.pass_many(&records) };
    let kept = kept.map_err(|error| Problem::store(&error))?;
    let application = kept.last().and_then(|tree| tree.application()).and_then(Handle::strict);
    let passed = (!served.is_pure).then(|| Passed { shared: shared.clone(), handles: kept });
    let goal =
        application.ok_or_else(|| Problem::internal("gateway", "a request could not be made an application"));
    Ok((goal?, passed))
}

/// A function that ends without an answer is a server's error, unlike a
/// computation that somebody sent.
fn failed(served: &Served, problem: Problem, code: FailureCode) -> Problem {
    let status = match code {
        FailureCode::Deadline => StatusCode::GATEWAY_TIMEOUT,
        FailureCode::Resources | FailureCode::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let title = match code {
        FailureCode::Deadline => "The function took too long",
        FailureCode::Resources | FailureCode::Cancelled => "The function cannot be served now",
        _ => "The function failed",
    };
    let next = match code {
        FailureCode::Deadline => "raise timeout in sinew.toml, or have the function do less",
        FailureCode::Memory => "raise memory in sinew.toml",
        FailureCode::Resources | FailureCode::Cancelled => {
            "try again; if it lasts, raise concurrency in sinew.toml or give the node more memory"
        }
        _ => "the detail is what the function said; mend it and `sinew deploy` again",
    };
    problem.of_function(status, title, &served.name, served.version).suggest(next)
}
