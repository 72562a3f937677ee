// SPDX-License-Identifier: Apache-2.0
//! What surrounds every request: its id, its span, its numbers, its panics.
//!
//! The outermost layer. It writes problems out (they travel inwards to
//! outwards as extensions) because only here the request's id is known
//! together with the answer.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::HeaderValue;
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tracing::Instrument;

use crate::metrics::UNMATCHED;
use crate::problem::Problem;
use crate::request_id::{RequestId, X_REQUEST_ID};
use crate::router::Shared;

/// The middleware.
pub(crate) async fn envelope(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = RequestId::of(request.headers());
    request.extensions_mut().insert(id.clone());
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or(UNMATCHED, MatchedPath::as_str).to_owned();
    let span = tracing::info_span!(
        "request",
        request_id = %id.0,
        method = %request.method(),
        path = %request.uri().path(),
    );
    let mut observed = shared.metrics.begin(request.method().as_str(), route);
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind().instrument(span.clone()).await;
    let mut response = answer.unwrap_or_else(|_| {
        // The panic hook has already written where and why.
        Problem::internal("gateway", "a handler panicked").into_response()
    });
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        response = problem.write_out(response, &id.0);
    }
    let status = response.status();
    let took = observed.answered(status.as_u16());
    span.in_scope(|| {
        if status.is_server_error() {
            tracing::warn!(status = status.as_u16(), took_us = took.as_micros() as u64, "answered");
        } else {
            tracing::debug!(status = status.as_u16(), took_us = took.as_micros() as u64, "answered");
        }
    });
    let headers = response.headers_mut();
    // Blobs are bytes that somebody else chose: no browser shall guess a type.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Ok(value) = HeaderValue::from_str(&id.0) {
        headers.insert(X_REQUEST_ID, value);
    }
    response
}
