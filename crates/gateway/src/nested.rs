// SPDX-License-Identifier: Apache-2.0
//! Calls of functions by functions: the same invocations as clients' requests,
//! without HTTP in between.
//!
//! A call has the caller's request id and trace, ends with the caller at the
//! latest, and counts by the limits of the function that is called, among
//! the requests of the node, and for the tenant of whoever called first. What may be
//! called from where is decided here: [`DEPTH_MAX`] calls may wait for each
//! other, and none that could wait for itself waits for a place
//! (`nested/graph.rs`).

mod graph;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use tokio::task::AbortHandle;

use crate::admission::permit;
use crate::body::held;
use crate::client::Client;
use crate::functions::{Functions, Served};
use crate::invocation::{
    Answer, Invocation, LineEnd, LineOffer, Nesting, Span, TRACEPARENT, TraceParent, since_1970,
};
use crate::problem::{PROBLEM_MEDIA_TYPE, Problem};
use crate::request_id::RequestId;
use crate::router::Shared;
use crate::routes::call::served;
use crate::routes::functions::{no_functions, unknown};
use crate::text::shortened;
use crate::workflows::{self, Told};
pub(crate) use graph::CallGraph;

/// Functions that may wait for one another.
pub(crate) const DEPTH_MAX: u32 = 16;
/// Names that are looked through for the one that was meant.
const NAMES_MAX: usize = 10_000;

/// What a function asks of another one.
#[derive(Debug)]
pub struct NestedRequest {
    /// The name of the one that is called, as it stands after `/function/`.
    pub function: String,
    /// What the body is; may be empty.
    pub content_type: String,
    /// What the function gets.
    pub body: Vec<u8>,
    /// The head that the caller's application has as an argument.
    pub caller_head: Vec<u8>,
    /// When the caller must have ended.
    pub deadline: Instant,
    /// The caller serves a request on a line: this is the function, and the head is what its
    /// own caller says.
    pub on_line: Option<String>,
    /// The head is that of a function that was called within the instance of this head's application.
    pub root_head: Option<Vec<u8>>,
    /// It was begun on a line, or within the caller's instance, and ended so.
    pub begun: Option<LineEnd>,
}

/// What came of it.
#[derive(Debug)]
pub struct NestedEnd {
    /// As by HTTP; below 400 it went well.
    pub status: u16,
    /// What the body is; may be empty.
    pub content_type: String,
    /// The answer, or the problem that there is instead.
    pub body: Bytes,
    /// Further calls may take a line.
    pub line: Option<LineOffer>,
}

/// Makes calls of functions by functions.
#[derive(Clone)]
pub struct NestedCalls(Weak<Shared>);

/// A call under way; dropping this stops it.
#[derive(Debug)]
pub struct NestedCall(Option<AbortHandle>);

impl Drop for NestedCall {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl NestedCalls {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self(Arc::downgrade(shared))
    }

    /// Begins a call; `then` hears its end, maybe before this returns. To be
    /// called on the node's event loop.
    pub fn begin(&self, request: NestedRequest, then: impl FnOnce(NestedEnd) + Send + 'static) -> NestedCall {
        let (Some(shared), Ok(handle)) = (self.0.upgrade(), tokio::runtime::Handle::try_current()) else {
            then(NestedEnd::refused(&Problem::busy("node", "the node is stopping"), ""));
            return NestedCall(None);
        };
        let task = handle.spawn(async move { then(make(&shared, request).await) });
        NestedCall(Some(task.abort_handle()))
    }

    /// A function that is called within the instance of its caller, who was told this head, if the
    /// instance has all that this takes; else the call is to be made, and what is wrong with it is told then.
    /// The requests of tenants are not: their quotas are asked for each call.
    pub fn within(&self, function: &str, caller_head: &[u8]) -> Option<LineOffer> {
        let shared = self.0.upgrade()?;
        let caller = Caller::read(caller_head).ok()?;
        if caller.depth >= DEPTH_MAX || !caller.is_sealed(&shared) {
            return None;
        }
        let served = shared.backend.functions()?.served(function, None, 0)?;
        // It takes no place, but who waits for one may wait by way of it.
        shared.calls.could_wait_for_itself(&caller.function, &served.name);
        LineOffer::within(&shared, &served, &caller.function)
    }
}

impl NestedEnd {
    fn refused(problem: &Problem, request_id: &str) -> Self {
        let (status, body) = (problem.status().as_u16(), problem.to_json(request_id).into());
        Self { status, content_type: PROBLEM_MEDIA_TYPE.to_owned(), body, line: None }
    }

    fn of((answer, line): (Answer, Option<LineOffer>)) -> Self {
        let kind = answer.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let content_type = kind.unwrap_or_default().to_owned();
        Self { status: answer.status.as_u16(), content_type, body: answer.body, line }
    }
}

/// Who calls: what is read of the head that it was given.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Caller {
    pub(crate) request_id: String,
    pub(crate) function: String,
    pub(crate) version: u64,
    depth: u32,
    /// In milliseconds since 1970.
    deadline_ms: u64,
    seal: String,
    /// From the head's second line.
    #[serde(skip)]
    traceparent: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CallerHttp {
    headers: Vec<(String, String)>,
}

impl Caller {
    pub(crate) fn read(head: &[u8]) -> Result<Self, Problem> {
        if head.is_empty() {
            return Err(refused(
                StatusCode::FORBIDDEN,
                "pure-call",
                "a pure function calls no other: its result depends on its body alone, and the other's may change",
            )
            .suggest("remove `pure = true` from sinew.toml, or call the other function from outside of it"));
        }
        let is_line_break = |byte: &u8| *byte == b'\n';
        let read = |head: &[u8]| {
            let (call, http) = head.split_at(head.iter().position(is_line_break)?);
            let mut caller: Self = serde_json::from_slice(call).ok()?;
            let CallerHttp { headers } = serde_json::from_slice(http).ok()?;
            let mut headers = headers.into_iter();
            caller.traceparent =
                headers.find(|(name, _)| *name == TRACEPARENT.as_str()).map(|(_, value)| value);
            Some(caller)
        };
        read(head).ok_or_else(foreign)
    }

    /// Whether a function that serves a line can be what it says of itself.
    fn is_on_line(&self, shared: &Shared, function: &str) -> bool {
        self.function == function && self.is_sealed(shared)
    }

    /// Whether it can have been called within the instance of this one, whom the node has told its head: for the same
    /// request, deeper, and with no more time.
    fn is_within(&self, root_head: &[u8]) -> bool {
        let Ok(root) = Self::read(root_head) else { return false };
        let trace =
            |caller: &Self| TraceParent::read(caller.traceparent.as_ref()?.as_bytes()).map(|own| own.trace);
        let is_same =
            self.request_id == root.request_id && trace(self).is_some_and(|own| trace(&root) == Some(own));
        is_same && self.depth > root.depth && self.deadline_ms <= root.deadline_ms
    }

    /// Whether its request's id and its trace are those that the gateway has told.
    pub(crate) fn is_sealed(&self, shared: &Shared) -> bool {
        let traceparent = self.traceparent.as_deref().unwrap_or_default();
        shared.sealer.holds_text(&self.seal, &self.request_id, traceparent)
    }

    /// The time that it has, by its own word.
    fn left(&self) -> Duration {
        Duration::from_millis(self.deadline_ms).saturating_sub(since_1970())
    }

    pub(crate) fn id(&self) -> RequestId {
        RequestId::from_text(&self.request_id)
    }

    /// What the caller itself is named by.
    pub(crate) fn span(&self) -> Option<Span> {
        TraceParent::read(self.traceparent.as_ref()?.as_bytes()).map(|own| own.span())
    }

    fn traceparent(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(self.traceparent.as_ref()?).ok()
    }
}

/// With this a workflow's orders to its run begin, and no function's name does.
const ORDER: char = '@';

/// Whether a call of this name is for the run that the caller is, and of no function.
pub fn is_order(function: &str) -> bool {
    function.starts_with(ORDER)
}

async fn make(shared: &Arc<Shared>, request: NestedRequest) -> NestedEnd {
    let caller = match Caller::read(&request.caller_head) {
        Ok(caller) => caller,
        Err(problem) => return NestedEnd::refused(&problem, ""),
    };
    let id = caller.id();
    if let Some(word) = request.function.strip_prefix(ORDER) {
        // Whoever serves a line says itself for whom it does.
        if request.on_line.is_some() {
            return NestedEnd::refused(&foreign(), &id.0);
        }
        return match workflows::order(shared, &caller, word, &request.body).await {
            Ok(Told { content_type, body }) => {
                NestedEnd { status: 200, content_type: content_type.into_owned(), body, line: None }
            }
            Err(problem) => NestedEnd::refused(&problem, &id.0),
        };
    }
    match invoke(shared, &caller, &id, request).await {
        Ok(answer) => NestedEnd::of(answer),
        Err(problem) => NestedEnd::refused(&problem, &id.0),
    }
}

async fn invoke(
    shared: &Arc<Shared>,
    caller: &Caller,
    id: &RequestId,
    request: NestedRequest,
) -> Result<(Answer, Option<LineOffer>), Problem> {
    if request.on_line.as_ref().is_some_and(|function| !caller.is_on_line(shared, function)) {
        return Err(foreign());
    }
    if request.root_head.as_ref().is_some_and(|root| !caller.is_within(root)) {
        return Err(foreign());
    }
    let functions = shared.backend.functions().ok_or_else(no_functions)?;
    let headers = headers(caller, &request.content_type)?;
    let served = callee(shared, functions, &request.function, &headers)?;
    let depth = caller.depth.saturating_add(1);
    if depth > DEPTH_MAX {
        let why = format!("{DEPTH_MAX} calls of functions by functions wait for each other already");
        let problem = refused(StatusCode::LOOP_DETECTED, "calls-too-deep", &why);
        return Err(problem.suggest("does the function call itself, by way of others, without an end?"));
    }
    let begun = request.begun.filter(|end| !(served.is_idempotent && end.is_trap()));
    let is_cyclic = shared.calls.could_wait_for_itself(&caller.function, &served.name);
    if begun.is_none() && is_cyclic && !functions.has_place(&served) {
        return Err(waits_for_itself(caller, &served));
    }
    let told = request.on_line.as_ref().and_then(|_| Instant::now().checked_add(caller.left()));
    let deadline = told.map_or(request.deadline, |told| request.deadline.min(told));
    if begun.is_none() && deadline <= Instant::now() + Duration::from_millis(1) {
        return Err(refused(StatusCode::GATEWAY_TIMEOUT, "caller-too-late", "the caller's time is over"));
    }
    let nesting = Nesting { caller: caller.function.clone(), depth, deadline };
    // Who is on a line has no tenant, or there would be no seal.
    let span = caller.span().filter(|_| request.on_line.is_none());
    let tenancy = span.and_then(|span| shared.tenants.of_caller(span));
    let has_line = !is_cyclic && tenancy.is_none() && !request.function.contains(':');
    let line = if has_line { LineOffer::of(shared, &served, &caller.function) } else { None };
    let invocation = Invocation {
        served,
        id,
        method: "POST",
        path: "/",
        query: "",
        headers: &headers,
        routed: None,
        client: Client::default(),
        source: "call",
        nesting: Some(nesting),
        tenancy,
        durable: None,
        memory: None,
    };
    if let Some(end) = begun {
        let answer = invocation.conclude(shared, request.body.len(), end).await.answer;
        return answer.map(|answer| (answer, line));
    }
    let (permit, body) = (permit(shared)?, held(shared, request.body)?);
    Ok((invocation.run(shared, permit, body).await.answer?, line))
}

/// What the function that is called hears besides the body.
fn headers(caller: &Caller, content_type: &str) -> Result<HeaderMap, Problem> {
    let mut headers = HeaderMap::with_capacity(2);
    if !content_type.is_empty() {
        let kind = HeaderValue::from_str(content_type);
        let kind =
            kind.map_err(|_| Problem::bad_request("bad-content-type", "the content type is no header"));
        headers.insert(CONTENT_TYPE, kind?);
    }
    if let Some(traceparent) = caller.traceparent() {
        headers.insert(TRACEPARENT, traceparent);
    }
    Ok(headers)
}

/// The function of a name, or that there is none, and which one was meant.
fn callee(
    shared: &Shared,
    functions: &dyn Functions,
    target: &str,
    headers: &HeaderMap,
) -> Result<Arc<Served>, Problem> {
    let name = target.split_once(':').map_or(target, |(name, _)| name);
    served(shared, target, headers).map_err(|problem| {
        if functions.served(name, None, 0).is_some() {
            return problem;
        }
        let all = functions.all();
        let names = all.iter().take(NAMES_MAX).map(|known| known.name.as_str());
        match objects::closest(&shortened(name), names) {
            Some(near) => unknown(name).suggest(format!("did you mean {near}?")),
            None => problem,
        }
    })
}

fn foreign() -> Problem {
    refused(StatusCode::BAD_REQUEST, "bad-caller", "the caller was not called by this gateway")
}

fn waits_for_itself(caller: &Caller, served: &Served) -> Problem {
    let (from, to, most) = (&caller.function, &served.name, served.concurrency);
    let cycle = if from == to { "calls itself" } else { "is called back by what it calls" };
    let why = format!(
        "{from} cannot call {to} now: {to} {cycle}, and all of its {most} places are taken, \
         maybe by those that would wait for this call"
    );
    let problem = refused(StatusCode::SERVICE_UNAVAILABLE, "call-waits-for-itself", &why);
    problem.suggest(
        "raise concurrency in sinew.toml, or have the functions call each other in one direction only",
    )
}

fn refused(status: StatusCode, kind: &str, why: &str) -> Problem {
    Problem::new(status, kind, "The function cannot be called from here", "gateway", why)
}
