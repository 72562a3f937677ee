// SPDX-License-Identifier: Apache-2.0
//! Calls that are made later: what waits in the queue, and what came of it.
//!
//! A request is taken (`202`) once it is synced, and made by `dispatcher.rs`
//! until it succeeds or nothing more is tried. What the queue holds as head is
//! JSON, and the same as bytes of an outcome before the body.

mod callback;
mod dispatcher;
mod scheduler;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use queue::{Dedup, Error, Id, Message, Pushed, Queue};
use serde::{Deserialize, Serialize};

pub use callback::{Callbacks, Sending, Unsent};
pub(crate) use callback::{Parcel, wanted};
pub(crate) use dispatcher::{Dispatcher, Wake};

use crate::body::blocking;
use crate::invocation::{Answer, HOP_BY_HOP, millis, since_1970};
use crate::problem::Problem;
use crate::request_id::{RequestId, X_REQUEST_ID};
use crate::router::Shared;
use crate::tenants::{Quota, Tenancy};
use crate::unique;

/// An answer's body that is longer is not kept as a result.
const RESULT_BYTES_MAX: usize = 1 << 20;
/// What a key against duplicates is.
const DEDUP_KEY: HeaderName = HeaderName::from_static("x-dedup-key");
/// For how many seconds it counts.
const DEDUP_WINDOW: HeaderName = HeaderName::from_static("x-dedup-window");
const DEDUP_KEY_LEN_MAX: usize = 128;
const DEDUP_WINDOW_DEFAULT: Duration = Duration::from_secs(5 * 60);
const DEDUP_WINDOW_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A call, as it waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    /// `name`, `name:alias` or `name:version`.
    pub(crate) target: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) request_id: String,
    pub(crate) source: Source,
    /// Where the result is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) callback: Option<String>,
    /// For whom it is, if that is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<Payer>,
}

/// A tenant as the queue keeps it, with what its key allowed when the call was taken:
/// the key may be revoked before it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Payer {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) quota: Quota,
}

impl Payer {
    pub(crate) fn of(tenancy: &Tenancy) -> Self {
        Self { name: tenancy.name().to_owned(), quota: tenancy.quota() }
    }
}

/// How a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    Http,
    Event,
    Lambda,
    Schedule,
}

impl Source {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Event => "event",
            Self::Lambda => "lambda",
            Self::Schedule => "schedule",
        }
    }
}

impl Call {
    /// The headers as a request has them. What cannot be one is left out.
    pub(crate) fn header_map(&self) -> HeaderMap {
        header_map(&self.headers)
    }

    /// The function's name, which is the lane's.
    pub(crate) fn function(&self) -> &str {
        self.target.split(':').next().unwrap_or_default()
    }
}

/// Headers from text. What cannot be one is left out.
fn header_map(texts: &[(String, String)]) -> HeaderMap {
    let pairs = texts.iter().filter_map(|(name, value)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_str(value).ok()?))
    });
    let mut headers = HeaderMap::new();
    pairs.for_each(|(name, value)| _ = headers.append(name, value));
    headers
}

/// Headers as text, without those that are about a connection or the queue.
pub(crate) fn texts(headers: &HeaderMap) -> Vec<(String, String)> {
    let queues = [DEDUP_KEY, DEDUP_WINDOW, callback::CALLBACK_URL];
    let ours = |name: &HeaderName| HOP_BY_HOP.contains(name) || queues.contains(name);
    let told = headers.iter().filter(|(name, _)| !ours(name));
    told.map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    })
    .collect()
}

/// What came of a call that succeeded.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) version: u64,
    /// The body was too long to be kept: its length.
    pub(crate) omitted: Option<u64>,
}

impl Outcome {
    /// An answer, as the queue keeps it.
    pub(crate) fn encoded(answer: &Answer, version: u64) -> Vec<u8> {
        let is_kept = answer.body.len() <= RESULT_BYTES_MAX;
        let omitted = (!is_kept).then_some(answer.body.len() as u64);
        let outcome =
            Self { status: answer.status.as_u16(), headers: texts(&answer.headers), version, omitted };
        // Strings and numbers only: serialization has nothing to fail on.
        let head = serde_json::to_vec(&outcome).unwrap_or_default();
        let len = u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes();
        let body: &[u8] = if is_kept { &answer.body } else { &[] };
        [&len[..], &head, body].concat()
    }

    /// What was kept; `None` if it is no outcome.
    pub(crate) fn decoded(bytes: Vec<u8>) -> Option<(Self, Bytes)> {
        let bytes = Bytes::from(bytes);
        let len = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
        let head = bytes.get(4..4_usize.checked_add(len)?)?;
        Some((serde_json::from_slice(head).ok()?, bytes.slice(4 + len..)))
    }

    /// The answer again.
    pub(crate) fn answer(&self, body: Bytes) -> Option<Answer> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            headers.append(name, HeaderValue::from_str(value).ok()?);
        }
        Some(Answer { status: StatusCode::from_u16(self.status).ok()?, headers, body, memory: None })
    }
}

/// The node's queue.
///
/// # Errors
/// 501 if it has none.
pub(crate) fn queue(shared: &Shared) -> Result<Arc<dyn Queue>, Problem> {
    shared.backend.queue().ok_or_else(|| {
        let (status, title) = (StatusCode::NOT_IMPLEMENTED, "The node makes no calls later");
        Problem::new(status, "no-queue", title, "queue", "this node has no queue")
    })
}

/// A call that was taken.
pub(crate) struct Taken {
    pub(crate) id: Id,
    /// It was there before, with the same key.
    pub(crate) is_duplicate: bool,
}

/// Takes a call; it is durable when this returns.
pub(crate) async fn take(
    shared: &Arc<Shared>,
    call: Call,
    brought: &HeaderMap,
    body: Vec<u8>,
) -> Result<Taken, Problem> {
    let queue = queue(shared)?;
    // A client may bring the same request id twice, and a message's is its own.
    let own = if brought.contains_key(X_REQUEST_ID) { None } else { call.request_id.parse().ok() };
    let id = own.unwrap_or_else(|| Id(unique::uuid().as_u128()));
    let message = Message {
        id,
        lane: call.function().to_owned(),
        // Strings only: serialization has nothing to fail on.
        head: serde_json::to_vec(&call).unwrap_or_default(),
        body,
        due_ms: 0,
        dedup: dedup(brought)?,
        mark: None,
    };
    let pushed = blocking(move || queue.push(message, now_ms())).await?.map_err(|error| refused(&error))?;
    shared.wake.wake();
    Ok(match pushed {
        Pushed::New => Taken { id, is_duplicate: false },
        Pushed::Duplicate(id) => Taken { id, is_duplicate: true },
    })
}

fn dedup(headers: &HeaderMap) -> Result<Option<Dedup>, Problem> {
    let bad = |detail: String| Problem::bad_request("bad-dedup", detail);
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let window = match text(&DEDUP_WINDOW).map(str::parse) {
        None => DEDUP_WINDOW_DEFAULT,
        Some(Ok(seconds)) if (1..=DEDUP_WINDOW_MAX.as_secs()).contains(&seconds) => {
            Duration::from_secs(seconds)
        }
        Some(_) => {
            let most = DEDUP_WINDOW_MAX.as_secs();
            return Err(bad(format!("X-Dedup-Window is a number of seconds from 1 to {most}")));
        }
    };
    match text(&DEDUP_KEY) {
        None => Ok(None),
        Some(key) if !key.is_empty() && key.len() <= DEDUP_KEY_LEN_MAX => {
            Ok(Some(Dedup { key: key.to_owned(), window_ms: millis(window) }))
        }
        Some(_) => {
            Err(bad(format!("X-Dedup-Key has 1 to {DEDUP_KEY_LEN_MAX} printable characters of ASCII")))
        }
    }
}

/// Why the queue did not do it.
pub(crate) fn refused(error: &Error) -> Problem {
    match error {
        Error::Full { .. } | Error::KeysFull { .. } | Error::Closed => {
            Problem::busy("queue", error.to_string())
        }
        Error::LaneFull { dead: 0, .. } => Problem::busy("queue", error.to_string()),
        Error::LaneFull { .. } => Problem::busy("queue", error.to_string()).suggest(
            "try again later, or make room: `sinew dlq list`, `sinew dlq redrive`, `sinew dlq purge`",
        ),
        Error::Io { .. } | Error::Damaged { .. } => {
            tracing::error!(%error, "the queue failed");
            Problem::internal("queue", error.to_string())
        }
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    millis(since_1970())
}

/// The name under which a call runs and is logged.
fn request_id(call: &Call) -> RequestId {
    RequestId(call.request_id.as_str().into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_outcome_is_the_answer_again_unless_it_was_too_long() {
        let mut headers = HeaderMap::new();
        headers.append("x-a", "1".parse().unwrap());
        headers.append("x-a", "2".parse().unwrap());
        let body = Bytes::from_static(b"text");
        let answer = Answer { status: StatusCode::CREATED, headers, body, memory: None };
        let (outcome, body) = Outcome::decoded(Outcome::encoded(&answer, 7)).unwrap();
        assert_eq!((outcome.version, outcome.omitted, &body[..]), (7, None, &b"text"[..]));
        let again = outcome.answer(body).unwrap();
        assert_eq!((again.status, again.headers), (answer.status, answer.headers.clone()));
        let long = Answer { body: Bytes::from(vec![0; RESULT_BYTES_MAX + 1]), ..answer };
        let (outcome, body) = Outcome::decoded(Outcome::encoded(&long, 7)).unwrap();
        assert_eq!((outcome.omitted, body.len()), (Some(RESULT_BYTES_MAX as u64 + 1), 0));
        for wrong in [&b""[..], b"\xff\xff\xff\xff", b"\0\0\0\0"] {
            assert!(Outcome::decoded(wrong.to_vec()).is_none());
        }
    }
}
