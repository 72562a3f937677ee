// SPDX-License-Identifier: Apache-2.0
//! What surrounds every request: its id, its log line, its numbers, its panics.
//!
//! The outermost layer. It writes problems out (they travel inwards to
//! outwards as extensions) because only here the request's id is known
//! together with the answer.

use std::borrow::Cow;
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
pub(crate) async fn envelope(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or(UNMATCHED.into(), |matched| Cow::Owned(matched.as_str().to_owned()));
    let answer = |request: Request| {
        let id = request.extensions().get::<RequestId>().map_or("", |id| &id.0);
        let (method, path) = (request.method(), request.uri().path());
        let span = tracing::info_span!("request", request_id = id, %method, path);
        next.run(request).instrument(span)
    };
    surround(&shared, route, request, answer).await
}

/// Has a request answered, and does all that is to be done around that.
pub(crate) async fn surround<F: Future<Output = Response>>(
    shared: &Shared,
    route: Cow<'static, str>,
    mut request: Request,
    answer: impl FnOnce(Request) -> F,
) -> Response {
    let id = RequestId::of(request.headers());
    request.extensions_mut().insert(id.clone());
    let mut observed = shared.metrics.begin(request.method().as_str(), route);
    let (method, path) = (request.method().clone(), request.uri().clone());
    let answer = AssertUnwindSafe(answer(request)).catch_unwind().await;
    let mut response = answer.unwrap_or_else(|_| {
        // The panic hook has already written where and why.
        Problem::internal("gateway", "a handler panicked").into_response()
    });
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        response = problem.write_out(response, &id.0);
    }
    let status = response.status();
    let took_us = observed.answered(status.as_u16()).as_micros() as u64;
    let (path, status) = (path.path(), status.as_u16());
    if response.status().is_server_error() {
        tracing::warn!(request_id = &*id.0, %method, path, status, took_us, "answered");
    } else {
        tracing::debug!(request_id = &*id.0, %method, path, status, took_us, "answered");
    }
    let headers = response.headers_mut();
    // Blobs are bytes that somebody else chose: no browser shall guess a type.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Ok(value) = HeaderValue::from_str(&id.0) {
        headers.insert(X_REQUEST_ID, value);
    }
    response
}
