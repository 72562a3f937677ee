// SPDX-License-Identifier: Apache-2.0
//! Bytes that clients of HTTP/2 may send ahead of whoever reads them.
//!
//! With HTTP/1.1 what nobody reads waits with the client. With HTTP/2 it cannot: other
//! requests share the connection. So each body has a window, [`BODY_AHEAD_BYTES`], a
//! connection has room for the windows of all its streams, so that none of them waits for
//! another, and all bodies of the node share one budget: a request that would exceed it
//! is refused before it is answered by anybody else.

use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::Version;
use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;

use crate::problem::Problem;

/// Bytes of one body that a client of HTTP/2 may send before any of them is read.
pub const BODY_AHEAD_BYTES: u32 = 256 << 10;
/// The unit of the budget: small enough that small bodies take little of it.
const UNIT_BYTES: u64 = 1 << 10;

/// The budget of all bodies.
pub(crate) struct Ahead(Arc<Semaphore>);

impl Ahead {
    pub(crate) fn new(bytes: u64) -> Self {
        let units = usize::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(Semaphore::MAX_PERMITS);
        Self(Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))))
    }

    /// The request, whose body holds as much of the budget as it may take, until it is dropped.
    ///
    /// # Errors
    /// 503 if there is not so much.
    pub(crate) fn admit(&self, request: Request) -> Result<Request, Problem> {
        if request.version() != Version::HTTP_2 || request.body().is_end_stream() {
            return Ok(request);
        }
        let window = u64::from(BODY_AHEAD_BYTES);
        let most = request.body().size_hint().upper().map_or(window, |upper| upper.min(window));
        let units = u32::try_from(most.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let Ok(held) = self.0.clone().try_acquire_many_owned(units) else {
            return Err(Problem::busy("gateway", "the memory for bodies that nobody has read yet is in use"));
        };
        let hold = move |error| {
            let _held = &held;
            error
        };
        // Of all that wraps a body this leaves the most of it as it was.
        Ok(request.map(|body| Body::new(body.map_err(hold))))
    }
}
