// SPDX-License-Identifier: Apache-2.0
//! `/v1/runs`: the runs of workflows.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::path_text;
use crate::body::blocking;
use crate::problem::Problem;
use crate::router::Shared;
use crate::workflows::{Listed, Wanted, cancel, find, list};

const LIMIT_DEFAULT: usize = 20;
const LIMIT_MAX: usize = 1000;

#[derive(Debug, Deserialize)]
pub(crate) struct Listing {
    workflow: Option<String>,
    limit: Option<usize>,
}

/// The workflows of the node, and the last runs.
pub(crate) async fn all(
    State(shared): State<Arc<Shared>>,
    listing: Result<Query<Listing>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Query(listing) = listing.map_err(|error| Problem::bad_request("bad-query", error.body_text()))?;
    let limit = listing.limit.unwrap_or(LIMIT_DEFAULT).min(LIMIT_MAX);
    let wanted = Wanted { workflow: listing.workflow.as_deref(), limit };
    let Listed { workflows, runs } = list(&shared, &wanted);
    let workflows: Vec<Value> = workflows
        .iter()
        .map(|served| json!({ "name": served.name, "version": served.version, "runtime": served.runtime }))
        .collect();
    Ok(Json(json!({ "workflows": workflows, "runs": runs })))
}

#[derive(Debug, Deserialize)]
pub(crate) struct Detail {
    /// Whether the steps are told.
    #[serde(default = "yes")]
    steps: bool,
}

fn yes() -> bool {
    true
}

/// One run, with its steps unless nobody wants them.
pub(crate) async fn one(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
    detail: Result<Query<Detail>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Query(detail) = detail.map_err(|error| Problem::bad_request("bad-query", error.body_text()))?;
    let id = path_text(path)?;
    blocking(move || find(&shared, &id, detail.steps)).await?.map(Json)
}

/// Has one end.
pub(crate) async fn stop(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, Problem> {
    let id = path_text(path)?;
    blocking(move || cancel(&shared, &id)).await?.map(|()| StatusCode::ACCEPTED)
}
