// SPDX-License-Identifier: Apache-2.0
//! What operators and their tools ask: is it alive, is it ready, how is it
//! doing, what does it speak.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};

use crate::metrics::METRICS_MEDIA_TYPE;
use crate::problem::Problem;
use crate::router::Shared;

/// Alive: this process answers.
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Ready: send requests here.
pub(crate) async fn readyz(State(shared): State<Arc<Shared>>) -> Result<&'static str, Problem> {
    shared.backend.ready().map_err(|reason| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not-ready", "The node is not ready", "node", reason)
            .suggest("wait for GET /readyz to answer 200")
    })?;
    Ok("ready\n")
}

pub(crate) async fn metrics(State(shared): State<Arc<Shared>>) -> Result<impl IntoResponse, Problem> {
    let text = shared.metrics.exposition();
    let text = text.map_err(|_| Problem::internal("gateway", "the metrics could not be written"))?;
    Ok(([(CONTENT_TYPE, METRICS_MEDIA_TYPE)], text))
}

pub(crate) async fn openapi(
    State(shared): State<Arc<Shared>>,
) -> ([(axum::http::HeaderName, &'static str); 1], Bytes) {
    ([(CONTENT_TYPE, "application/json")], shared.openapi.clone())
}

pub(crate) async fn status(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let ready = shared.backend.ready();
    let numbers: Map<String, Value> = shared
        .backend
        .gauges()
        .into_iter()
        .map(|gauge| (gauge.name.to_owned(), gauge.value.into()))
        .collect();
    Json(json!({
        "version": shared.options.version,
        "commit": shared.options.commit,
        "api": "v1",
        "ready": ready.is_ok(),
        "waiting_for": ready.err(),
        "url": shared.url.get(),
        "uptime_s": shared.started.elapsed().as_secs(),
        "numbers": numbers,
    }))
}
