// SPDX-License-Identifier: Apache-2.0
//! `POST /v1/evaluate`: a computation becomes its result.
//!
//! The request is JSON that names a handle, or a bundle that brings the
//! computation along. The evaluation lives in this handler's future, or in
//! the stream of its answer: when the client leaves, hyper drops them and the
//! evaluation is cancelled with them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream;
use objects::{Failure, Handle, Kind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Interval, MissedTickBehavior};

use super::bundles::{Lifetime, keep};
use super::objects::{accepts, load};
use crate::BUNDLE_MEDIA_TYPE;
use crate::admission::Permit;
use crate::backend::{EvaluateRequest, Evaluated, Evaluation, Priority};
use crate::body::{buffered, json, media_type, unsupported_media_type};
use crate::problem::Problem;
use crate::request_id::RequestId;
use crate::router::Shared;
use crate::text::{hex, parse_handle, parse_priority};

/// The longest blob whose bytes the answer repeats.
const VALUE_BYTES_MAX: u64 = 4096;
/// The most bytes of a failure's detail that a problem repeats.
const DETAIL_BYTES_MAX: usize = 4096;
const NDJSON: &str = "application/x-ndjson";

/// The JSON form of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    handle: String,
    deadline_ms: Option<u64>,
    priority: Option<String>,
}

/// What does not change the computation. A bundle's request has it in the query.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Context {
    deadline_ms: Option<u64>,
    priority: Option<String>,
}

#[derive(Debug, Serialize)]
struct Answer {
    result: String,
    kind: &'static str,
    size: u64,
    applied: u64,
    memo_hit: bool,
    wall_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
}

pub(crate) async fn evaluate(
    State(shared): State<Arc<Shared>>,
    Extension(permit): Extension<Permit>,
    Extension(id): Extension<RequestId>,
    query: Result<Query<Context>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let request = read_request(&shared, query, &headers, body).await?;
    let mut evaluation =
        shared.backend.evaluate(request).map_err(|reason| Problem::busy("evaluator", reason))?;
    if accepts(&headers, NDJSON) {
        let mut response = Body::from_stream(lines(shared, evaluation, permit, id)).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(NDJSON));
        return Ok(response);
    }
    let end = evaluation.finished().await;
    Ok(Json(answer(&shared, end).await?).into_response())
}

async fn read_request(
    shared: &Arc<Shared>,
    query: Result<Query<Context>, QueryRejection>,
    headers: &HeaderMap,
    body: Body,
) -> Result<EvaluateRequest, Problem> {
    let (goal, context) = match media_type(headers).as_str() {
        "application/json" => {
            let wish: Wish = json(shared, headers, body).await?;
            let context = Context { deadline_ms: wish.deadline_ms, priority: wish.priority };
            (parse_handle(&wish.handle)?, context)
        }
        BUNDLE_MEDIA_TYPE => {
            let Query(context) =
                query.map_err(|rejection| Problem::bad_request("bad-query", rejection.body_text()))?;
            // Checked before the bundle's objects are kept.
            priority(&context)?;
            let bundle = buffered(shared, headers, body, shared.options.bundle_max_bytes).await?;
            let goal = keep(shared, bundle, Lifetime::Evaluation).await?.goal.ok_or_else(|| {
                Problem::bad_request("no-goal", "the bundle does not end with a goal")
                    .suggest("end it with a record of tag 2 that holds the handle to evaluate")
            })?;
            (goal, context)
        }
        found => {
            return Err(unsupported_media_type(found, &format!("application/json or {BUNDLE_MEDIA_TYPE}")));
        }
    };
    let longest = shared.options.evaluation_max;
    let deadline = context.deadline_ms.map_or(longest, |ms| Duration::from_millis(ms).min(longest));
    Ok(EvaluateRequest {
        goal,
        deadline: Some(deadline),
        priority: priority(&context)?,
        is_repeatable: true,
        streams: false,
    })
}

fn priority(context: &Context) -> Result<Priority, Problem> {
    context.priority.as_deref().map_or(Ok(Priority::default()), parse_priority)
}

/// The end of an evaluation as an answer; a failure is a problem.
async fn answer(shared: &Arc<Shared>, end: Evaluated) -> Result<Answer, Problem> {
    if let Some(failure) = end.failure {
        let detail = failure_detail(shared, &failure).await?;
        return Err(Problem::failure(end.result, &failure, detail));
    }
    let result = end.result;
    let value = match result.kind() {
        Kind::Blob if result.size() <= VALUE_BYTES_MAX => load(shared, result).await?,
        _ => None,
    };
    Ok(Answer {
        result: result.to_string(),
        kind: result.kind().name(),
        size: result.size(),
        applied: end.applied,
        memo_hit: end.applied == 0,
        wall_ns: u64::try_from(end.wall.as_nanos()).unwrap_or(u64::MAX),
        value_hex: value.map(|bytes| hex(&bytes)),
    })
}

/// A failure's text. What is not here, or not text, is said so.
pub(crate) async fn failure_detail(shared: &Arc<Shared>, failure: &Failure) -> Result<String, Problem> {
    Ok(match load(shared, failure.detail).await? {
        Some(bytes) => {
            String::from_utf8_lossy(bytes.get(..DETAIL_BYTES_MAX).unwrap_or(bytes.as_ref())).into_owned()
        }
        None => format!("{} (the detail {} is not on this node)", failure.code, failure.detail),
    })
}

/// What the stream of lines still has to do.
enum Stage {
    Running(Box<dyn Evaluation>, Interval),
    Ended,
}

/// A line of progress now and then, and the end as the last line.
fn lines(
    shared: Arc<Shared>,
    evaluation: Box<dyn Evaluation>,
    permit: Permit,
    id: RequestId,
) -> impl futures_util::Stream<Item = Result<Vec<u8>, Infallible>> {
    let period = shared.options.progress_interval.max(Duration::from_millis(1));
    let mut interval = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let context = (shared, permit, id);
    stream::unfold((Stage::Running(evaluation, interval), context), |(stage, context)| async move {
        let Stage::Running(mut evaluation, mut interval) = stage else { return None };
        let end = tokio::select! {
            end = evaluation.finished() => Some(end),
            _ = interval.tick() => None,
        };
        let (line, stage) = match end {
            Some(end) => (last_line(&context.0, end, &context.2).await, Stage::Ended),
            None => {
                let now = evaluation.progress();
                let line = json!({
                    "event": "progress", "applied": now.applied, "waiting": now.waiting,
                    "known": now.known, "done": now.done, "memo_hits": now.memo_hits,
                });
                (line, Stage::Running(evaluation, interval))
            }
        };
        Some((Ok(format!("{line}\n").into_bytes()), (stage, context)))
    })
}

async fn last_line(shared: &Arc<Shared>, end: Evaluated, id: &RequestId) -> Value {
    let (event, body) = match answer(shared, end).await {
        Ok(answer) => ("result", serde_json::to_value(&answer)),
        Err(problem) => ("failure", serde_json::from_slice(&problem.to_json(&id.0))),
    };
    // Both were made from strings and numbers just now.
    let mut line = body.unwrap_or_default();
    if let Value::Object(members) = &mut line {
        members.insert("event".to_owned(), event.into());
    }
    line
}

/// A handle for people's eyes only ends up in JSON through its text form.
pub(crate) fn handle_json(handle: Handle) -> Value {
    Value::String(handle.to_string())
}
