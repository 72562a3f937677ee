// SPDX-License-Identifier: Apache-2.0
//! Request bodies: bounded in length, in silence and in memory.
//!
//! [`Arriving`] hands a body on piece by piece and fails when it is longer
//! than allowed, ends early, or pauses for too long. [`buffered`] collects a
//! whole body within a budget that all requests share.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use futures_util::future::poll_immediate;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::Problem;
use crate::router::Shared;

/// The unit of the shared memory budget.
pub(crate) const BUDGET_UNIT_BYTES: u64 = 64 << 10;

/// A body on its way in.
pub(crate) struct Arriving {
    body: Body,
    promised: Option<u64>,
    seen: u64,
    limit: u64,
    idle: Duration,
}

impl Arriving {
    /// Refuses at once what promises to be over `limit` bytes.
    pub(crate) fn new(headers: &HeaderMap, body: Body, limit: u64, idle: Duration) -> Result<Self, Problem> {
        let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let promised = length.and_then(|text| text.parse::<u64>().ok());
        match promised {
            Some(promised) if promised > limit => Err(Problem::too_large(limit)),
            _ => Ok(Self { body, promised, seen: 0, limit, idle }),
        }
    }

    /// The next piece; `None` once the body has arrived whole.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            // Most bodies are here with their heads: no timer is set for what is not waited for.
            let mut frame = pin!(self.body.frame());
            let frame = match poll_immediate(&mut frame).await {
                Some(frame) => Ok(frame),
                None => tokio::time::timeout(self.idle, frame).await,
            };
            let Ok(frame) = frame else {
                let detail = format!("nothing of the body arrived for {} s", self.idle.as_secs_f32());
                return Err(incomplete(StatusCode::REQUEST_TIMEOUT, "body-timeout", detail));
            };
            let Some(frame) = frame else { return self.ended() };
            let frame = frame
                .map_err(|error| incomplete(StatusCode::BAD_REQUEST, "body-incomplete", error.to_string()))?;
            // Trailers mean nothing here.
            let Ok(piece) = frame.into_data() else { continue };
            self.seen += piece.len() as u64;
            if self.seen > self.limit {
                return Err(Problem::too_large(self.limit));
            }
            if self.promised.is_some_and(|promised| self.seen > promised) {
                return self.ended();
            }
            return Ok(Some(piece));
        }
    }

    fn ended(&self) -> Result<Option<Bytes>, Problem> {
        match self.promised {
            Some(promised) if promised != self.seen => {
                let detail = format!("{} of {promised} bytes arrived", self.seen);
                Err(incomplete(StatusCode::BAD_REQUEST, "body-incomplete", detail))
            }
            _ => Ok(None),
        }
    }
}

fn incomplete(status: StatusCode, kind: &str, detail: String) -> Problem {
    Problem::new(status, kind, "The body did not arrive whole", "client", detail)
        .suggest("send it again; nothing of this request was stored")
}

/// A body that is whole in memory, and its share of the budget.
pub(crate) struct Buffered {
    /// The body.
    pub(crate) bytes: Vec<u8>,
    _share: Share,
}

/// What one body holds of the shared budget.
struct Share {
    budget: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl Share {
    /// Takes as much as `len` bytes need, or fails at once: waiting while
    /// holding a part could make two bodies wait for each other.
    fn grow_to(&mut self, len: u64) -> Result<(), Problem> {
        let held = self.held.as_ref().map_or(0, |permit| permit.num_permits() as u64);
        let wanted = len.div_ceil(BUDGET_UNIT_BYTES).saturating_sub(held);
        if wanted == 0 {
            return Ok(());
        }
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let Ok(more) = self.budget.clone().try_acquire_many_owned(wanted) else {
            return Err(Problem::busy("gateway", "the memory for bodies of requests is in use"));
        };
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        Ok(())
    }
}

/// A body that is here already, with its share.
///
/// # Errors
/// 503 if the budget is used up.
pub(crate) fn held(shared: &Shared, bytes: Vec<u8>) -> Result<Buffered, Problem> {
    let mut share = Share { budget: shared.buffered.clone(), held: None };
    share.grow_to(bytes.len() as u64)?;
    Ok(Buffered { bytes, _share: share })
}

/// Collects a body of at most `limit` bytes.
pub(crate) async fn buffered(
    shared: &Shared,
    headers: &HeaderMap,
    body: Body,
    limit: u64,
) -> Result<Buffered, Problem> {
    let mut arriving = Arriving::new(headers, body, limit, shared.options.body_idle_timeout)?;
    let mut share = Share { budget: shared.buffered.clone(), held: None };
    let promised = arriving.promised.unwrap_or(0);
    share.grow_to(promised)?;
    // The promise was checked against the limit; a larger one never gets here.
    let mut bytes = Vec::with_capacity(usize::try_from(promised).unwrap_or(0));
    while let Some(piece) = arriving.next().await? {
        share.grow_to(bytes.len() as u64 + piece.len() as u64)?;
        bytes.extend_from_slice(&piece);
    }
    Ok(Buffered { bytes, _share: share })
}

/// The media type of the body, without parameters, in lower case.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    value.split(';').next().unwrap_or("").trim().to_ascii_lowercase()
}

/// 415, naming what the endpoint takes.
pub(crate) fn unsupported_media_type(found: &str, takes: &str) -> Problem {
    let found =
        if found.is_empty() { "no Content-Type".to_owned() } else { format!("Content-Type {found:?}") };
    Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported-media-type",
        "The body is of a type that this endpoint does not take",
        "gateway",
        format!("the request has {found}"),
    )
    .suggest(format!("send {takes}"))
}

/// Reads a JSON body.
pub(crate) async fn json<T: DeserializeOwned>(
    shared: &Shared,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Problem> {
    let found = media_type(headers);
    if found != "application/json" {
        return Err(unsupported_media_type(&found, "application/json"));
    }
    let body = buffered(shared, headers, body, shared.options.json_max_bytes).await?;
    serde_json::from_slice(&body.bytes).map_err(|error| {
        Problem::bad_request("bad-json", error.to_string())
            .suggest("see /openapi.json for what the body holds")
    })
}

/// Runs what may block on the disk off the event loop.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let span = tracing::Span::current();
    let done = tokio::task::spawn_blocking(move || span.in_scope(work)).await;
    done.map_err(|error| {
        tracing::error!(%error, "a blocking call did not end well");
        Problem::internal("gateway", "a call of the node did not end well")
    })
}
