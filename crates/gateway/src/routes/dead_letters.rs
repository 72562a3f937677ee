// SPDX-License-Identifier: Apache-2.0
//! `/v1/dlq`: calls that nobody tries any more.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use queue::{Id, Queue, State as Where};
use serde::Deserialize;
use serde_json::{Value, json};

use super::deferred::{document, message_id, unknown};
use crate::body::blocking;
use crate::deferred::{Call, Parcel, now_ms, queue, refused};
use crate::problem::Problem;
use crate::router::Shared;

const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1000;
/// Letters that one request redrives or purges at most.
const CHANGED_MAX: usize = 1000;
/// Bytes of a body that are shown.
const SHOWN_MAX: usize = 64 << 10;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Selection {
    function: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

fn selection(query: Result<Query<Selection>, QueryRejection>) -> Result<(Selection, Option<Id>), Problem> {
    let bad = |detail: String| Problem::bad_request("bad-query", detail);
    let Query(selection) = query.map_err(|rejection| bad(rejection.body_text()))?;
    let after = selection.after.as_deref().map(str::parse).transpose();
    let after = after.map_err(|()| bad("after is the id of a dead letter".to_owned()))?;
    Ok((selection, after))
}

pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<Selection>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let (selection, after) = selection(query)?;
    let limit = selection.limit.unwrap_or(LIMIT_DEFAULT).min(LIMIT_MAX);
    let letters = queue(&shared)?.dead(selection.function.as_deref(), after, limit);
    Ok(Json(json!({ "letters": letters.iter().map(document).collect::<Vec<_>>() })))
}

pub(crate) async fn get(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Problem> {
    let id = message_id(path)?;
    let queue = queue(&shared)?;
    let status = queue.status(id).filter(|status| status.state == Where::Dead);
    let status = status.ok_or_else(|| no_letter(id))?;
    let payload = blocking(move || queue.payload(id)).await?.map_err(|error| refused(&error))?;
    let mut told = document(&status);
    if let Some((head, body)) = payload {
        if let Ok(call) = serde_json::from_slice::<Call>(&head) {
            told["request"] = json!({
                "target": call.target, "method": call.method, "path": call.path, "query": call.query,
                "headers": call.headers, "request_id": call.request_id,
            });
        }
        if let Ok(parcel) = serde_json::from_slice::<Parcel>(&head) {
            told["callback"] = json!({
                "url": parcel.callback_url, "call": parcel.call, "headers": parcel.headers,
            });
        }
        told["body_bytes"] = body.len().into();
        let shown = &body[..body.len().min(SHOWN_MAX)];
        match std::str::from_utf8(shown) {
            Ok(text) => told["body"] = text.into(),
            Err(_) => told["body_base64"] = BASE64.encode(shown).into(),
        }
    }
    Ok(Json(told))
}

fn no_letter(id: Id) -> Problem {
    unknown(&id.to_string()).suggest("`sinew dlq list` names the dead letters")
}

pub(crate) async fn redrive(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let id = message_id(path)?;
    let queue = queue(&shared)?;
    let is_done = blocking(move || queue.redrive(id, now_ms())).await?.map_err(|error| refused(&error))?;
    if !is_done {
        return Err(no_letter(id));
    }
    shared.wake.wake();
    Ok((StatusCode::ACCEPTED, Json(json!({ "id": id.to_string(), "status": format!("/v1/async/{id}") }))))
}

pub(crate) async fn purge(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, Problem> {
    let id = message_id(path)?;
    let queue = queue(&shared)?;
    let is_done = blocking(move || queue.purge(id)).await?.map_err(|error| refused(&error))?;
    if is_done { Ok(StatusCode::NO_CONTENT) } else { Err(no_letter(id)) }
}

/// Does it to dead letters that were there when it began; how many it did, and
/// whether there were more.
async fn each(
    shared: &Shared,
    selection: Selection,
    act: impl Fn(&dyn Queue, Id) -> Result<bool, queue::Error> + Send + 'static,
) -> Result<(usize, bool), Problem> {
    let queue = queue(shared)?;
    let limit = selection.limit.unwrap_or(CHANGED_MAX).min(CHANGED_MAX);
    let work = move || {
        let letters = queue.dead(selection.function.as_deref(), None, limit + 1);
        let mut done = 0;
        for letter in letters.iter().take(limit) {
            done += usize::from(act(&*queue, letter.id)?);
        }
        Ok((done, letters.len() > limit))
    };
    blocking(work).await?.map_err(|error| refused(&error))
}

pub(crate) async fn redrive_all(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<Selection>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let (selection, _) = selection(query)?;
    let (done, is_more) = each(&shared, selection, |queue, id| queue.redrive(id, now_ms())).await?;
    shared.wake.wake();
    Ok(Json(json!({ "redriven": done, "more": is_more })))
}

pub(crate) async fn purge_all(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<Selection>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let (selection, _) = selection(query)?;
    let (done, is_more) = each(&shared, selection, |queue, id| queue.purge(id)).await?;
    Ok(Json(json!({ "purged": done, "more": is_more })))
}
