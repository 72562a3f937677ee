// SPDX-License-Identifier: Apache-2.0
//! `/v1/secrets`: names with values that functions get. Values come in and
//! never go out.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::functions::change;
use super::path_text;
use crate::body::buffered;
use crate::problem::Problem;
use crate::router::Shared;

/// Bytes of a value.
const VALUE_BYTES_MAX: u64 = 64 << 10;

pub(crate) async fn list(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Problem> {
    let secrets = change(shared, |functions| Ok(functions.secrets())).await?;
    let secrets = secrets.iter().map(|(name, users)| json!({ "name": name, "used_by": users }));
    Ok(Json(json!({ "secrets": secrets.collect::<Value>() })))
}

/// The body is the value, as it is.
pub(crate) async fn put(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Problem> {
    let name = path_text(path)?;
    let body = buffered(&shared, &headers, body, VALUE_BYTES_MAX).await?;
    let value = String::from_utf8(body.bytes.to_vec())
        .map_err(|_| Problem::bad_request("bad-secret", "the value of a secret is UTF-8"))?;
    let told = name.clone();
    let is_changed = change(shared, move |functions| functions.set_secret(&name, &value)).await?;
    Ok(Json(json!({ "name": told, "changed": is_changed })))
}

pub(crate) async fn remove(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, Problem> {
    let name = path_text(path)?;
    change(shared, move |functions| functions.remove_secret(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}
