// SPDX-License-Identifier: Apache-2.0
//! How many requests at once, and for how long.
//!
//! A request over the limit is refused at once, never queued: the client
//! knows better than we do whether to wait. A [`Permit`] is released when the
//! answer's head is written, or, for answers that stream, with the last byte
//! (the stream carries the permit).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::OwnedSemaphorePermit;

use crate::problem::Problem;
use crate::router::Shared;

/// The right to be one of the requests that run now.
#[derive(Debug, Clone)]
pub(crate) struct Permit {
    _held: Arc<OwnedSemaphorePermit>,
}

impl Permit {
    /// One of another number than that of the requests.
    pub(crate) fn of(held: OwnedSemaphorePermit) -> Self {
        Self { _held: Arc::new(held) }
    }
}

/// A permit for one more request.
///
/// # Errors
/// 503 at the limit.
pub(crate) fn permit(shared: &Shared) -> Result<Permit, Problem> {
    let held = shared.requests.clone().try_acquire_owned().map_err(|_| {
        let detail = format!("{} requests are running, which is the limit", shared.options.requests_max);
        Problem::busy("gateway", detail)
    })?;
    Ok(Permit { _held: Arc::new(held) })
}

/// The middleware of endpoints whose length the client decides: counted, and
/// limited by their own means (idle time, deadline).
pub(crate) async fn counted(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    match permit(&shared) {
        Ok(permit) => {
            request.extensions_mut().insert(permit);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// The middleware of endpoints that ought to answer soon.
pub(crate) async fn timed(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let limit = shared.options.answer_timeout;
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "answer-timeout",
            "The node took too long to answer",
            "gateway",
            format!("no answer after {} s", limit.as_secs_f32()),
        )
        .suggest("try again; `sinew doctor` checks the disk")
        .into_response(),
    }
}
