// SPDX-License-Identifier: Apache-2.0
//! The endpoints, one file per resource. A handler reads the request, calls
//! the backend (off the event loop where it can block), and returns an answer
//! or a [`crate::problem::Problem`].

pub(crate) mod blobs;
pub(crate) mod bundles;
pub(crate) mod call;
pub(crate) mod collection;
pub(crate) mod dashboard;
pub(crate) mod dead_letters;
pub(crate) mod deferred;
pub(crate) mod evaluate;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod functions;
pub(crate) mod identity;
pub(crate) mod inventory;
pub(crate) mod keys;
pub(crate) mod labels;
pub(crate) mod lambda;
pub(crate) mod logs;
pub(crate) mod mcp;
pub(crate) mod objects;
pub(crate) mod operations;
pub(crate) mod runs;
pub(crate) mod secrets;
pub(crate) mod tier;
pub(crate) mod trees;
pub(crate) mod upkeep;

use ::objects::Handle;
use axum::Json;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::problem::Problem;

/// The answer to data that was stored.
#[derive(Debug, Serialize)]
struct Stored {
    handle: String,
    size: u64,
}

/// 201 with the new object's handle and address.
fn stored(handle: Handle) -> Response {
    let body = Stored { handle: handle.to_string(), size: handle.size() };
    let mut response = (StatusCode::CREATED, Json(body)).into_response();
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/objects/{handle}")) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// The one parameter of a path. It may not be UTF-8 once decoded.
fn path_text(path: Result<Path<String>, PathRejection>) -> Result<String, Problem> {
    match path {
        Ok(Path(text)) => Ok(text),
        Err(rejection) => Err(Problem::bad_request("bad-path", rejection.body_text())),
    }
}
