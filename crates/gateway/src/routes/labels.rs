// SPDX-License-Identifier: Apache-2.0
//! `/v1/labels`: names that people give to handles.
//!
//! Labels are the only mutable thing here, and the roots of what is kept.
//! Their names may contain slashes: the path after `/v1/labels/` is one name.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use store::Awaited;

use super::path_text;
use super::tier::{UntilQuery, kept, level};
use crate::body::{blocking, json};
use crate::problem::Problem;
use crate::router::Shared;
use crate::text::{check_label, parse_handle};

#[derive(Debug, Serialize)]
pub(crate) struct Label {
    name: String,
    handle: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Labels {
    labels: Vec<Label>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    handle: String,
}

pub(crate) async fn list(State(shared): State<Arc<Shared>>) -> Result<Json<Labels>, Problem> {
    let labels = blocking(move || shared.backend.labels()).await?.map_err(|error| Problem::store(&error))?;
    let labels = labels.into_iter().map(|(name, handle)| Label { name, handle: handle.to_string() });
    Ok(Json(Labels { labels: labels.collect() }))
}

pub(crate) async fn get(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<Label>, Problem> {
    let name = label_name(path)?;
    let wanted = name.clone();
    let found = blocking(move || shared.backend.label(&wanted)).await?;
    match found.map_err(|error| Problem::store(&error))? {
        Some(handle) => Ok(Json(Label { name, handle: handle.to_string() })),
        None => Err(no_such_label(&name)),
    }
}

pub(crate) async fn put(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
    until: UntilQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Label>), Problem> {
    let until = level(&shared, until)?;
    let name = label_name(path)?;
    refuse_functions(&name)?;
    let target: Target = json(&shared, &headers, body).await?;
    let handle = parse_handle(&target.handle)?;
    let label = name.clone();
    let backend = shared.backend.clone();
    let set = blocking(move || {
        let before = backend.label(&label)?;
        backend.set_label(&label, handle)?;
        Ok::<_, store::Error>(before)
    });
    let before = set.await?.map_err(|error| Problem::store(&error))?;
    kept(&shared, until, Awaited::Labels(vec![handle])).await?;
    let status = if before.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(Label { name, handle: handle.to_string() })))
}

pub(crate) async fn remove(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, Problem> {
    let name = label_name(path)?;
    refuse_functions(&name)?;
    let wanted = name.clone();
    let removed = blocking(move || shared.backend.remove_label(&wanted)).await?;
    match removed.map_err(|error| Problem::store(&error))? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(no_such_label(&name)),
    }
}

fn label_name(path: Result<Path<String>, PathRejection>) -> Result<String, Problem> {
    let name = path_text(path)?;
    check_label(&name)?;
    Ok(name)
}

/// Functions' labels move only with what serves.
fn refuse_functions(name: &str) -> Result<(), Problem> {
    if !name.starts_with("function/") {
        return Ok(());
    }
    let detail = format!("{name:?} belongs to a function, and follows its deployments");
    Err(Problem::bad_request("bad-label", detail)
        .suggest("use /v1/functions, or `sinew deploy`, `rollback`, `delete`"))
}

fn no_such_label(name: &str) -> Problem {
    let detail = format!("there is no label {name:?}");
    Problem::new(StatusCode::NOT_FOUND, "label-not-found", "No such label", "store", detail)
        .suggest("GET /v1/labels lists them")
}
