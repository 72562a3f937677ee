// SPDX-License-Identifier: Apache-2.0
//! `POST /v1/bundles`: many objects in one request, stored in one commit.
//!
//! The whole bundle is read before anything is stored, so a bundle that is
//! cut off or malformed stores nothing.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use objects::{BundleReader, BundleRecord, Handle};
use serde::Serialize;
use store::Awaited;

use crate::BUNDLE_MEDIA_TYPE;
use crate::behind::{Objects, Place};
use crate::body::{Buffered, blocking, buffered, media_type, unsupported_media_type};
use crate::problem::Problem;
use crate::router::Shared;
use crate::routes::tier::{Level, UntilQuery, kept, level};

#[derive(Debug, Serialize)]
struct Answer {
    handles: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<String>,
}

/// What became of a bundle.
pub(crate) struct Kept {
    /// What it held.
    pub(crate) handles: Vec<Handle>,
    /// What it asks to evaluate.
    pub(crate) goal: Option<Handle>,
}

/// How long the objects must live.
pub(crate) enum Lifetime {
    /// Durably.
    Stored,
    /// Durably, soon; until then in memory.
    Behind(Place),
    /// As inputs of an evaluation that follows at once.
    Evaluation,
}

pub(crate) async fn put(
    State(shared): State<Arc<Shared>>,
    until: UntilQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let until = level(&shared, until)?;
    let found = media_type(&headers);
    if found != BUNDLE_MEDIA_TYPE {
        return Err(unsupported_media_type(&found, BUNDLE_MEDIA_TYPE));
    }
    let bundle = buffered(&shared, &headers, body, shared.options.bundle_max_bytes).await?;
    let place = (until == Level::Memory).then(|| shared.behind.place(bundle.bytes.len())).flatten();
    let lifetime = place.map_or(Lifetime::Stored, Lifetime::Behind);
    let held = keep(&shared, bundle, lifetime).await?;
    let handles = held.handles.len();
    kept(&shared, until, Awaited::Objects(held.handles)).await?;
    let answer = Answer { handles, goal: held.goal.map(|goal| goal.to_string()) };
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

/// Reads a bundle and keeps its objects.
pub(crate) async fn keep(
    shared: &Arc<Shared>,
    bundle: Buffered,
    lifetime: Lifetime,
) -> Result<Kept, Problem> {
    let shared = shared.clone();
    blocking(move || {
        let records = BundleReader::new(&bundle.bytes).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let records = records.map_err(|error| {
            Problem::bad_request("bad-bundle", error.to_string())
                .suggest("nothing of the bundle was stored; see docs/spec for the format")
        })?;
        let kept = match lifetime {
            Lifetime::Stored => shared.backend.put_many(&records),
            Lifetime::Evaluation | Lifetime::Behind(_) => shared.backend.keep_many(&records),
        };
        let mut handles = kept.map_err(|error| Problem::store(&error))?;
        let goal = goal(&records);
        // It stands last, and is no object of the bundle.
        handles.truncate(records.len() - usize::from(goal.is_some()));
        if let Lifetime::Behind(place) = lifetime {
            drop(records);
            shared.behind.write(&shared.backend, place, Objects::Bundle(bundle));
        }
        Ok(Kept { handles, goal })
    })
    .await?
}

fn goal(records: &[BundleRecord<'_>]) -> Option<Handle> {
    match records.last() {
        Some(BundleRecord::Goal(goal)) => Some(*goal),
        _ => None,
    }
}
