// SPDX-License-Identifier: Apache-2.0
//! Answers that are sent while the function still makes them.
//!
//! The client asks for the next bytes when it has room for them, and the function
//! may send more when they are taken: so the slower of the two sets the pace. If
//! the function fails after the head has gone out, the body breaks off, which HTTP
//! tells apart from its end. What becomes of the request is recorded with its end.
//!
//! A function may say that its answer is whole and go on, with what other servers call
//! background tasks. The client's request is over then; the call is not, with its time,
//! its place among those that run, and its log.

use std::fmt;
use std::future::poll_fn;
use std::sync::PoisonError;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;

use super::failure_of;
use super::recording::Recording;
use crate::backend::Pieces;
use crate::invocation::Answer;

/// An answer under way.
struct Streamed {
    /// What came with the head.
    first: Bytes,
    rest: Box<dyn Pieces>,
    recording: Recording,
    status: StatusCode,
}

/// Why an answer has no end.
#[derive(Debug)]
struct Cut(String);

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Cut {}

/// The response that begins with this answer.
pub(super) fn response(
    mut answer: Answer,
    rest: Box<dyn Pieces>,
    recording: Recording,
    at_home: bool,
) -> Response {
    let (first, status) = (std::mem::take(&mut answer.body), answer.status);
    let streamed = Streamed { first, rest, recording, status };
    let pieces = unfold(Some(streamed), |streamed| async { streamed?.next().await });
    let mut response = if at_home { answer.into_page() } else { answer.into_response() };
    *response.body_mut() = Body::from_stream(pieces);
    response
}

impl Streamed {
    /// The next bytes, and what is left; an error is the last of all.
    async fn next(mut self) -> Option<(Result<Bytes, Cut>, Option<Self>)> {
        if !self.first.is_empty() {
            let first = std::mem::take(&mut self.first);
            self.recording.sends(first.len());
            return Some((Ok(first), Some(self)));
        }
        if let Some(piece) = poll_fn(|context| self.rest.poll_next(context)).await {
            self.recording.sends(piece.len());
            return Some((Ok(piece), Some(self)));
        }
        if self.rest.is_whole() {
            self.goes_on();
            return None;
        }
        let why = self.ends().await?;
        Some((Err(why), None))
    }

    /// The client has all, and need not wait for what the function still does.
    fn goes_on(self) {
        let shared = self.recording.parties().0;
        let mut going_on = shared.going_on.lock().unwrap_or_else(PoisonError::into_inner);
        while going_on.try_join_next().is_some() {}
        going_on.spawn(async { _ = self.ends().await });
    }

    /// How the function ended, if that was not well.
    async fn ends(mut self) -> Option<Cut> {
        let end = self.recording.finished().await?;
        let (shared, served) = self.recording.parties();
        if end.failure.is_none() {
            // Nobody can ask for it again.
            shared.backend.drop_passed(end.result);
        }
        let problem = match failure_of(&shared, &served, &end).await {
            Ok(problem) => problem,
            Err(problem) => Some(problem),
        };
        let why = problem.map(|problem| problem.detail().to_owned());
        self.recording.end(self.status, why.clone());
        why.map(Cut)
    }
}
