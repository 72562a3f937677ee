// SPDX-License-Identifier: Apache-2.0
//! `/async-function/{name}`: a request that is made later. `/v1/async/{id}`:
//! what became of it.

use std::sync::Arc;

use axum::Extension;
use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header::{LOCATION, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use queue::{Id, State as Where, Status};
use serde_json::{Value, json};

use super::call::served;
use super::path_text;
use crate::body::{blocking, buffered};
use crate::client::{Client, Peer};
use crate::cloud_event;
use crate::deferred::{Call, Outcome, Payer, Source, now_ms, queue, refused, take, texts, wanted};
use crate::functions::Functions;
use crate::problem::Problem;
use crate::request_id::RequestId;
use crate::router::Shared;
use crate::tenants::Tenancy;
use crate::text::shortened;

const PREFIX: &str = "/async-function/";

pub(crate) async fn call(
    State(shared): State<Arc<Shared>>,
    Extension(id): Extension<RequestId>,
    (tenancy, peer): (Option<Extension<Arc<Tenancy>>>, Option<Extension<Peer>>),
    method: Method,
    uri: Uri,
    mut headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let rest = uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let (target, path) = rest.find('/').map_or((rest, "/"), |slash| rest.split_at(slash));
    // What others say of themselves without being believed is not kept for later.
    Client::of(peer.map(|Extension(peer)| peer), &mut headers, &shared.options.trusted_proxies);
    // What nobody serves is refused now, and not found out later.
    let served = served(&shared, target, &headers)?;
    let callback = wanted(&shared, &headers)?;
    let mut body = buffered(&shared, &headers, body, shared.options.deferred_max_bytes).await?;
    let mut source = Source::Http;
    if cloud_event::is_any(&headers) {
        cloud_event::unpack(&mut headers, &mut body.bytes)?;
        source = Source::Event;
    }
    let call = Call {
        target: target.to_owned(),
        method: method.as_str().to_owned(),
        path: path.to_owned(),
        query: uri.query().unwrap_or_default().to_owned(),
        headers: texts(&headers),
        request_id: id.0.to_string(),
        source,
        callback,
        tenant: tenancy.as_deref().map(|tenancy| Payer::of(tenancy)),
    };
    let taken = take(&shared, call, &headers, std::mem::take(&mut body.bytes)).await?;
    let location = format!("/v1/async/{}", taken.id);
    let told = json!({
        "id": taken.id.to_string(),
        "request_id": &*id.0,
        "function": served.name,
        "duplicate": taken.is_duplicate,
        "status": location,
    });
    let location = HeaderValue::from_str(&location).unwrap_or(HeaderValue::from_static("/"));
    Ok((StatusCode::ACCEPTED, [(LOCATION, location)], Json(told)).into_response())
}

/// Where the call is, in a word.
pub(crate) fn word(status: &Status) -> &'static str {
    match status.state {
        Where::Waiting if status.attempts == 0 => "queued",
        Where::Waiting => "retrying",
        Where::Running => "running",
        Where::Succeeded => "succeeded",
        Where::Dead => "dead",
    }
}

/// What is told of a call.
pub(crate) fn document(status: &Status) -> Value {
    let mut document = json!({
        "id": status.id.to_string(),
        "function": status.lane,
        "state": word(status),
        "attempts": status.attempts,
        "created_ms": status.created_ms,
    });
    if status.state == Where::Waiting && status.attempts > 0 {
        document["next_attempt_ms"] = status.due_ms.into();
    }
    if matches!(status.state, Where::Succeeded | Where::Dead) {
        document["ended_ms"] = status.ended_ms.into();
    }
    if !status.reason.is_empty() && status.state != Where::Succeeded {
        document["reason"] = status.reason.clone().into();
    }
    document
}

/// What waits, and what is due when: for people who look at the node.
pub(crate) async fn overview(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Problem> {
    let stats = queue(&shared)?.stats();
    let now = now_ms();
    let lanes = stats.lanes.iter().map(|lane| {
        let age_ms = lane.oldest_ms.map(|oldest| now.saturating_sub(oldest));
        json!({
            "lane": lane.lane, "waiting": lane.waiting, "running": lane.running, "dead": lane.dead,
            "oldest_age_ms": age_ms,
        })
    });
    let lanes: Vec<Value> = lanes.map(without_nulls).collect();
    let all = shared.backend.functions().map(Functions::all).unwrap_or_default();
    let scheduled = all.iter().flat_map(|served| served.schedules.iter().map(move |each| (served, each)));
    let schedules = scheduled.map(|(served, schedule)| {
        json!({ "function": served.name, "schedule": schedule.text(), "next_ms": schedule.after(now) })
    });
    let schedules: Vec<Value> = schedules.map(without_nulls).collect();
    Ok(Json(json!({
        "lanes": lanes, "schedules": schedules, "bytes": stats.bytes, "taken": stats.pushed,
        "retries": stats.retries, "died": stats.died,
    })))
}

/// What is not known is left out.
fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(members) = &mut value {
        members.retain(|_, member| !member.is_null());
    }
    value
}

pub(crate) fn message_id(path: Result<Path<String>, PathRejection>) -> Result<Id, Problem> {
    let text = path_text(path)?;
    text.parse().map_err(|()| unknown(&text))
}

pub(crate) fn unknown(id: &str) -> Problem {
    let detail = format!("nothing is known of the call {:?}", shortened(id));
    Problem::new(StatusCode::NOT_FOUND, "call-not-found", "No such call", "queue", detail).suggest(
        "results are kept for a day, dead letters for two weeks; `sinew logs --request-id ID` may know more",
    )
}

pub(crate) async fn status(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Problem> {
    let id = message_id(path)?;
    let queue = queue(&shared)?;
    let status = queue.status(id).ok_or_else(|| unknown(&id.to_string()))?;
    let mut told = document(&status);
    if status.state == Where::Succeeded {
        let outcome = blocking(move || queue.outcome(id)).await?.map_err(|error| refused(&error))?;
        if let Some((outcome, _)) = outcome.and_then(Outcome::decoded) {
            told["status"] = outcome.status.into();
            told["version"] = outcome.version.into();
            told["result"] = format!("/v1/async/{id}/result").into();
        }
    }
    Ok(Json(told))
}

/// The function's answer, as it was; 202 with the call's state before there is one.
pub(crate) async fn result(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let id = message_id(path)?;
    let queue = queue(&shared)?;
    let status = queue.status(id).ok_or_else(|| unknown(&id.to_string()))?;
    match status.state {
        Where::Waiting | Where::Running => {
            let later = [(RETRY_AFTER, HeaderValue::from_static("1"))];
            Ok((StatusCode::ACCEPTED, later, Json(document(&status))).into_response())
        }
        Where::Dead => {
            let title = "The call is a dead letter";
            Err(Problem::new(StatusCode::CONFLICT, "dead-letter", title, "queue", status.reason)
                .suggest(format!("`sinew dlq show {id}` has more, `sinew dlq redrive {id}` tries it again")))
        }
        Where::Succeeded => {
            let outcome = blocking(move || queue.outcome(id)).await?.map_err(|error| refused(&error))?;
            let (outcome, body) =
                outcome.and_then(Outcome::decoded).ok_or_else(|| unknown(&id.to_string()))?;
            if let Some(len) = outcome.omitted {
                let detail = format!("the answer's body had {len} bytes, which is too long to be kept");
                let title = "The result is not there";
                return Err(Problem::new(StatusCode::GONE, "result-too-long", title, "queue", detail));
            }
            let answer = outcome.answer(body);
            let answer = answer.ok_or_else(|| Problem::internal("queue", "a result is no answer"))?;
            Ok(answer.into_response())
        }
    }
}
