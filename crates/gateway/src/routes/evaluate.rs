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
use crate::backend::{EvaluateRequest, Evaluated, Evaluation, Noted, Priority, Recording};
use crate::body::{blocking, buffered, json, media_type, unsupported_media_type};
use crate::problem::Problem;
use crate::receipts::{Unissued, issue};
use crate::request_id::RequestId;
use crate::router::Shared;
use crate::tenants::Tenancy;
use crate::text::{hex, parse_handle, parse_priority};
use crate::usage::Term;

/// The longest blob whose bytes the answer repeats.
const VALUE_BYTES_MAX: u64 = 4096;
/// The most bytes of a failure's detail that a problem repeats.
const DETAIL_BYTES_MAX: usize = 4096;
const NANOS_PER_MICRO: f64 = 1e3;
const NDJSON: &str = "application/x-ndjson";

/// The JSON form of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    handle: String,
    deadline_ms: Option<u64>,
    by_ms: Option<u64>,
    priority: Option<String>,
    #[serde(default)]
    receipt: bool,
    #[serde(default)]
    fresh: bool,
}

/// What does not change the computation. A bundle's request has it in the query.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Context {
    deadline_ms: Option<u64>,
    by_ms: Option<u64>,
    priority: Option<String>,
    #[serde(default)]
    receipt: bool,
    #[serde(default)]
    fresh: bool,
}

/// What is wanted beside the result.
#[derive(Debug, Clone)]
struct Extra {
    receipt: bool,
    term: Term,
    /// Who pays, if it came with a key.
    tenancy: Option<Arc<Tenancy>>,
}

/// What ran for a request cost so much; nothing where all of it was remembered.
#[derive(Debug, Serialize)]
struct Costs {
    inputs_bytes: u64,
    reserved_bytes: u64,
    fuel: u64,
    /// Processor time of what counts no fuel.
    cpu_us: f64,
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
    cost: Costs,
    #[serde(skip_serializing_if = "Option::is_none")]
    price: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    currency: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<String>,
    /// Why there is none, although one was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_receipt: Option<String>,
}

pub(crate) async fn evaluate(
    State(shared): State<Arc<Shared>>,
    Extension(permit): Extension<Permit>,
    Extension(id): Extension<RequestId>,
    tenancy: Option<Extension<Arc<Tenancy>>>,
    query: Result<Query<Context>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (mut request, mut extra) = read_request(&shared, query, &headers, body).await?;
    extra.tenancy = tenancy.map(|Extension(tenancy)| tenancy);
    request.tenant = extra.tenancy.as_ref().map(|tenancy| tenancy.name().to_owned());
    let mut evaluation =
        shared.backend.evaluate(request).map_err(|reason| Problem::busy("evaluator", reason))?;
    if accepts(&headers, NDJSON) {
        let stream = lines(shared, evaluation, extra, (permit, id));
        let mut response = Body::from_stream(stream).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(NDJSON));
        return Ok(response);
    }
    let end = evaluation.finished().await;
    let noted = evaluation.noted();
    Ok(Json(answer(&shared, end, noted, extra).await?).into_response())
}

async fn read_request(
    shared: &Arc<Shared>,
    query: Result<Query<Context>, QueryRejection>,
    headers: &HeaderMap,
    body: Body,
) -> Result<(EvaluateRequest, Extra), Problem> {
    let (goal, context) = match media_type(headers).as_str() {
        "application/json" => {
            let wish: Wish = json(shared, headers, body).await?;
            let Wish { handle, deadline_ms, by_ms, priority, receipt, fresh } = wish;
            (parse_handle(&handle)?, Context { deadline_ms, by_ms, priority, receipt, fresh })
        }
        BUNDLE_MEDIA_TYPE => {
            let Query(context) =
                query.map_err(|rejection| Problem::bad_request("bad-query", rejection.body_text()))?;
            // Checked before the bundle's objects are kept.
            priority(&context)?;
            by(&context)?;
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
    let by = by(&context)?.map(|by| by.min(deadline));
    let recording = match (context.fresh, context.receipt) {
        (true, _) => Some(Recording::Fresh),
        (false, true) => Some(Recording::Remembering),
        (false, false) => None,
    };
    let request = EvaluateRequest {
        goal,
        deadline: Some(deadline),
        priority: priority(&context)?,
        is_repeatable: true,
        streams: false,
        by,
        recording,
        tenant: None,
    };
    let term = by.map_or(Term::Now, Term::By);
    Ok((request, Extra { receipt: context.receipt, term, tenancy: None }))
}

/// By when the result is wanted, before the request is given up.
fn by(context: &Context) -> Result<Option<Duration>, Problem> {
    if let (Some(by_ms), Some(deadline_ms)) = (context.by_ms, context.deadline_ms)
        && by_ms > deadline_ms
    {
        let detail = format!("the result is wanted by {by_ms} ms, and given up before, at {deadline_ms} ms");
        return Err(Problem::bad_request("bad-term", detail)
            .suggest("leave deadline_ms away, or make it longer than by_ms"));
    }
    Ok(context.by_ms.map(Duration::from_millis))
}

fn priority(context: &Context) -> Result<Priority, Problem> {
    context.priority.as_deref().map_or(Ok(Priority::default()), parse_priority)
}

/// The end of an evaluation as an answer; a failure is a problem.
async fn answer(
    shared: &Arc<Shared>,
    end: Evaluated,
    noted: Option<Noted>,
    extra: Extra,
) -> Result<Answer, Problem> {
    let price = charge(shared, &end, &extra);
    // A failure that comes again has a receipt as any result. Of another one, why it
    // failed is of more use than why it has none.
    let noted = noted.filter(|_| extra.receipt);
    let is_told = end.failure.is_none_or(|failure| failure.code.is_deterministic());
    let (receipt, no_receipt) = match noted.filter(|_| is_told) {
        Some(noted) => match receipt(shared, noted, end.result, extra.term).await? {
            Ok(receipt) => (Some(receipt), None),
            Err(why) => (None, Some(why)),
        },
        None => (None, None),
    };
    if let Some(failure) = end.failure {
        let detail = failure_detail(shared, &failure).await?;
        return Err(Problem::failure(end.result, &failure, detail).with_receipt(receipt));
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
        cost: Costs {
            inputs_bytes: end.cost.inputs_bytes,
            reserved_bytes: end.cost.reserved_bytes,
            fuel: end.cost.fuel,
            cpu_us: end.uncounted_nanos as f64 / NANOS_PER_MICRO,
        },
        price,
        currency: price.map(|_| shared.options.rates.currency.clone()),
        receipt: receipt.map(|receipt| receipt.to_string()),
        no_receipt,
    })
}

/// What an evaluation that has ended costs, by the same rates as with a receipt; its tenant
/// has it on its account, and the log tells it.
fn charge(shared: &Shared, end: &Evaluated, extra: &Extra) -> Option<f64> {
    let Evaluated { cost, uncounted_nanos, .. } = *end;
    let parts = shared.options.rates.of_evaluation(&cost, uncounted_nanos, extra.term);
    let price = parts.map(crate::usage::whole);
    let tenant = extra.tenancy.as_deref();
    if let Some(tenancy) = tenant {
        tenancy.evaluated(cost, Duration::from_nanos(uncounted_nanos), price);
    }
    tracing::debug!(
        result = %end.result, tenant = tenant.map(Tenancy::name), applied = end.applied,
        inputs_bytes = cost.inputs_bytes, reserved_bytes = cost.reserved_bytes, fuel = cost.fuel,
        uncounted_nanos, price, "evaluated"
    );
    price
}

/// The handle of the receipt for an evaluation that has ended, or why it can have none.
async fn receipt(
    shared: &Arc<Shared>,
    noted: Noted,
    result: Handle,
    term: Term,
) -> Result<Result<Handle, String>, Problem> {
    let shared = shared.clone();
    let issued =
        blocking(move || issue(&*shared.backend, noted, result, &shared.options.rates, term)).await?;
    match issued {
        Ok(receipt) => Ok(Ok(receipt)),
        Err(Unissued::Refused(why)) => Ok(Err(why)),
        Err(Unissued::Failed(error)) => Err(Problem::store(&error)),
    }
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
    extra: Extra,
    (permit, id): (Permit, RequestId),
) -> impl futures_util::Stream<Item = Result<Vec<u8>, Infallible>> {
    let period = shared.options.progress_interval.max(Duration::from_millis(1));
    let mut interval = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let context = (shared, permit, id, extra);
    stream::unfold((Stage::Running(evaluation, interval), context), move |(stage, context)| async move {
        let Stage::Running(mut evaluation, mut interval) = stage else { return None };
        let end = tokio::select! {
            end = evaluation.finished() => Some(end),
            _ = interval.tick() => None,
        };
        let (line, stage) = match end {
            Some(end) => {
                let noted = evaluation.noted();
                (last_line(&context.0, end, (noted, context.3.clone()), &context.2).await, Stage::Ended)
            }
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

async fn last_line(
    shared: &Arc<Shared>,
    end: Evaluated,
    (noted, extra): (Option<Noted>, Extra),
    id: &RequestId,
) -> Value {
    let (event, body) = match answer(shared, end, noted, extra).await {
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
