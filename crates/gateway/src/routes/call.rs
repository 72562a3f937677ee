// SPDX-License-Identifier: Apache-2.0
//! `/function/{name}`: a request becomes an application of the function, and
//! its result the answer (`docs/spec/functions.md`, sections 5 and 6).

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, TE, TRANSFER_ENCODING, UPGRADE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use objects::{BundleRecord, FailureCode, Handle, TreeBuilder};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::evaluate::failure_detail;
use super::functions::{no_functions, unknown};
use super::objects::load;
use crate::admission::Permit;
use crate::backend::{EvaluateRequest, Priority};
use crate::body::{Buffered, blocking, buffered};
use crate::functions::{CallReport, Served};
use crate::journal::Record;
use crate::problem::{CLIENT_CLOSED, Problem};
use crate::request_id::RequestId;
use crate::router::Shared;

/// How much longer the gateway waits than the function may take, so that it is
/// the function's own end that is told.
const GRACE: Duration = Duration::from_secs(5);
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// Where functions answer.
const PREFIX: &str = "/function/";
/// Bodies up to this are stored without leaving the event loop.
const INLINE_BYTES_MAX: usize = 64 << 10;
/// Headers that are about one connection, and no function's matter.
const HOP_BY_HOP: [HeaderName; 6] = [
    CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("trailer"),
];

/// What a function cannot say: lengths are counted, and the rest is about all
/// that this address answers.
const WITHHELD: [HeaderName; 3] = [
    CONTENT_LENGTH,
    HeaderName::from_static("service-worker-allowed"),
    HeaderName::from_static("clear-site-data"),
];
const PAGES: &str = "sandbox allow-scripts allow-forms allow-popups allow-downloads allow-modals";

/// What a function learns of a request besides its body.
#[derive(Debug, Serialize)]
struct RequestHead<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
    headers: Vec<(&'a str, String)>,
    request_id: &'a str,
    function: &'a str,
    version: u64,
    deadline_ms: u64,
    source: &'static str,
}

/// What a function says of its answer besides the body.
#[derive(Debug, Deserialize)]
struct AnswerHead {
    #[serde(default = "ok")]
    status: u16,
    #[serde(default)]
    headers: Vec<(String, String)>,
}

const fn ok() -> u16 {
    200
}

pub(crate) async fn call(
    State(shared): State<Arc<Shared>>,
    Extension(_permit): Extension<Permit>,
    Extension(id): Extension<RequestId>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let rest = uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let (name, path) = rest.find('/').map_or((rest, "/"), |slash| rest.split_at(slash));
    let functions = shared.backend.functions().ok_or_else(no_functions)?;
    let served = functions.served(name).ok_or_else(|| unknown(name))?;
    let body = buffered(&shared, &headers, body, shared.options.call_max_bytes).await?;
    let head = request_head(&served, &method, path, uri.query().unwrap_or_default(), &headers, &id);
    let mut recording = Recording::begin(&shared, &served, &id);
    let answer = run(&shared, &served, head, body, &mut recording.report).await;
    let (status, failure) = match &answer {
        Ok(response) => (response.status(), None),
        Err(problem) => (problem.status(), Some(problem.detail().to_owned())),
    };
    let timing = recording.end(status, failure);
    match answer {
        Ok(mut response) => {
            response.headers_mut().insert(SERVER_TIMING, timing);
            Ok(response)
        }
        Err(problem) => Err(problem.header(SERVER_TIMING, timing)),
    }
}

/// A request under way. Whatever becomes of it is recorded, also if its client
/// leaves.
struct Recording {
    shared: Arc<Shared>,
    served: Arc<Served>,
    id: RequestId,
    begun: Instant,
    report: Option<CallReport>,
    is_recorded: bool,
}

impl Recording {
    fn begin(shared: &Arc<Shared>, served: &Arc<Served>, id: &RequestId) -> Self {
        let (shared, served, id) = (shared.clone(), served.clone(), id.clone());
        Self { shared, served, id, begun: Instant::now(), report: None, is_recorded: false }
    }

    /// Records the end, and says what it took as browsers read it.
    fn end(mut self, status: StatusCode, failure: Option<String>) -> HeaderValue {
        let record = self.record(status.as_u16(), failure);
        let [total, queued, starting] =
            [record.total_us, record.queued_us, record.starting_us].map(|us| us as f64 / 1000.0);
        let word = record.start;
        let text =
            format!("total;dur={total:.3}, queue;dur={queued:.3}, start;desc={word};dur={starting:.3}");
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("total"))
    }

    fn record(&mut self, status: u16, failure: Option<String>) -> Record {
        self.is_recorded = true;
        let report = self.report.take();
        let unreported = if failure.is_some() { "none" } else { "memo" };
        let start = report.as_ref().map_or(unreported, |report| report.start);
        let report = report.unwrap_or_default();
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let record = Record {
            sequence: 0,
            time_ms: millis(since_1970()),
            request_id: self.id.0.clone(),
            function: self.served.name.clone(),
            version: self.served.version,
            status,
            start: if self.served.is_codelet { "codelet" } else { start },
            total_us: micros(self.begun.elapsed()),
            queued_us: micros(report.queued),
            starting_us: micros(report.starting),
            failure,
            log: String::from_utf8_lossy(&report.log).into_owned(),
        };
        let now = self.shared.started.elapsed();
        self.served.counts.ended(now, record.total_us, record.start, record.failure.is_some());
        self.shared.journal.lock().unwrap_or_else(PoisonError::into_inner).add(record.clone());
        record
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.record(CLIENT_CLOSED, Some("the client left before the answer".to_owned()));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "people and functions are told the time of day")]
fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn request_head(
    served: &Served,
    method: &Method,
    path: &str,
    query: &str,
    headers: &HeaderMap,
    id: &RequestId,
) -> Vec<u8> {
    if served.is_pure || served.is_codelet {
        return Vec::new();
    }
    let told = headers.iter().filter(|(name, _)| !HOP_BY_HOP.contains(name));
    let head = RequestHead {
        method: method.as_str(),
        path,
        query,
        headers: told
            .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect(),
        request_id: &id.0,
        function: &served.name,
        version: served.version,
        deadline_ms: millis(since_1970() + served.timeout),
        source: "http",
    };
    // Strings and numbers only: serialization has nothing to fail on.
    serde_json::to_vec(&head).unwrap_or_default()
}

async fn run(
    shared: &Arc<Shared>,
    served: &Arc<Served>,
    head: Vec<u8>,
    body: Buffered,
    report: &mut Option<CallReport>,
) -> Result<Response, Problem> {
    let goal = if body.bytes.len() <= INLINE_BYTES_MAX {
        keep(shared, served, &head, &body.bytes)?
    } else {
        let (shared, served) = (shared.clone(), served.clone());
        blocking(move || keep(&shared, &served, &head, &body.bytes)).await??
    };
    // It may wait as long for an instance as it may then run.
    let deadline = Some(served.timeout.saturating_mul(2).saturating_add(GRACE));
    let request =
        EvaluateRequest { goal, deadline, priority: Priority::Normal, is_repeatable: served.is_pure };
    let mut evaluation =
        shared.backend.evaluate(request).map_err(|reason| Problem::busy("evaluator", reason))?;
    let end = evaluation.finished().await;
    *report = goal.thunk().and_then(|thunk| shared.backend.functions()?.take_report(thunk));
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
    let bytes = load(shared, end.result).await?.ok_or_else(|| Problem::object_not_found(end.result))?;
    if served.is_codelet {
        let kind = HeaderValue::from_static("application/octet-stream");
        return Ok(([(CONTENT_TYPE, kind)], bytes).into_response());
    }
    answer(bytes).map_err(not_an_answer)
}

/// Keeps what the application consists of, and names the application.
fn keep(shared: &Shared, served: &Served, head: &[u8], body: &[u8]) -> Result<Handle, Problem> {
    let mut tree: TreeBuilder = served.prefix.iter().copied().collect();
    if !served.is_codelet {
        // One of its own for each request, so that no two are one computation.
        let unique = if served.is_pure { None } else { Some(Uuid::now_v7().into_bytes()) };
        tree.push(Handle::blob(unique.as_ref().map_or(&[], |id| id.as_slice())));
        tree.push(Handle::blob(head));
    }
    tree.push(Handle::blob(body));
    let records = [BundleRecord::Blob(head), BundleRecord::Blob(body), BundleRecord::Tree(tree.view())];
    // What is asked for once leaves no trace on the disk: it may hold secrets.
    let kept =
        if served.is_pure { shared.backend.keep_many(&records) } else { shared.backend.pass_many(&records) };
    let kept = kept.map_err(|error| Problem::store(&error))?;
    let application = kept.last().and_then(|tree| tree.application()).and_then(Handle::strict);
    application.ok_or_else(|| Problem::internal("gateway", "a request could not be made an application"))
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

/// The answer that a function's result describes.
fn answer(result: Bytes) -> Result<Response, &'static str> {
    let Some((len, _)) = result.split_first_chunk() else { return Err("is too short") };
    let head_end = (u32::from_le_bytes(*len) as usize).checked_add(4).filter(|end| *end <= result.len());
    let Some(head_end) = head_end else { return Err("ends within its head") };
    let head = match &result[4..head_end] {
        [] => AnswerHead { status: ok(), headers: Vec::new() },
        head => serde_json::from_slice(head).map_err(|_| "has a head that is not like the specification")?,
    };
    let status = StatusCode::from_u16(head.status).ok().filter(|status| !status.is_informational());
    let status = status.ok_or("has a status that is none")?;
    let mut response = (status, result.slice(head_end..)).into_response();
    let answered = response.headers_mut();
    answered.remove(CONTENT_TYPE);
    for (name, value) in head.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| "has a header with a bad name")?;
        let value = HeaderValue::from_str(&value).map_err(|_| "has a header with a bad value")?;
        if !HOP_BY_HOP.contains(&name) && !WITHHELD.contains(&name) {
            answered.append(name, value);
        }
    }
    // A page of a function is no page of the node's, although it comes from the
    // same address: its scripts have an origin of their own.
    answered.append(CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGES));
    Ok(response)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn result(head: &str, body: &[u8]) -> Bytes {
        [&(head.len() as u32).to_le_bytes(), head.as_bytes(), body].concat().into()
    }

    #[test]
    fn answers_are_what_the_function_says() {
        let said = r#"{"status":201,"headers":[["content-type","a/b"],["set-cookie","x"],["set-cookie","y"],
            ["transfer-encoding","chunked"],["content-length","999"],["Service-Worker-Allowed","/"]]}"#;
        let response = answer(result(said, b"body")).unwrap();
        assert_eq!(response.status(), 201);
        let names: Vec<&str> = response.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["content-type", "set-cookie", "content-security-policy"]);
        assert_eq!(response.headers().get_all("set-cookie").iter().count(), 2);
        assert_eq!(answer(result("", b"")).unwrap().status(), 200);
        assert_eq!(answer(result("{}", b"x")).unwrap().headers().len(), 1);
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for (head, why) in [
            (r#"{"status":99}"#, "status"),
            (r#"{"status":101}"#, "status"),
            (r#"{"status":"ok"}"#, "head"),
            (r#"{"headers":[["a b","c"]]}"#, "name"),
            (r#"{"headers":[["a","c\r\nd: e"]]}"#, "value"),
            ("[]x", "head"),
        ] {
            assert!(answer(result(head, b"")).unwrap_err().contains(why), "{head}");
        }
        assert!(answer(Bytes::from_static(b"abc")).is_err());
        assert!(answer(Bytes::from_static(b"\xff\xff\xff\xff{}")).is_err());
        assert!(answer(Bytes::from_static(b"\x03\0\0\0{}")).is_err());
    }
}
