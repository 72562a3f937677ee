// SPDX-License-Identifier: Apache-2.0
//! What a function says in its result (`docs/spec/functions.md`, section 6).

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use objects::Handle;
use serde::Deserialize;

use super::HOP_BY_HOP;

/// The bit of the head's length that says that the answer is not remembered. Of
/// one whose body was not kept nothing is read: whoever heard it needs no more.
const PASSING: u32 = 1 << 31;
/// What a function cannot say: lengths are counted, and the rest is about all
/// that this address answers.
const WITHHELD: [HeaderName; 3] = [
    CONTENT_LENGTH,
    HeaderName::from_static("service-worker-allowed"),
    HeaderName::from_static("clear-site-data"),
];
/// Heads of answers that a thread remembers, and how long they are at most.
const KNOWN_MAX: usize = 8;
const KNOWN_BYTES_MAX: usize = 512;
/// More headers than most answers have.
const HEADERS_USUAL: usize = 64;
/// Those that the gateway adds, so that their table need not grow.
const OWN_HEADERS: usize = 4;
const PAGES: &str = "sandbox allow-scripts allow-forms allow-popups allow-downloads allow-modals";

/// A function's answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// It is this, which others map, and has no body.
    pub(crate) memory: Option<Handle>,
}

impl Answer {
    /// That of a codelet, whose result is the body.
    pub(super) fn of_codelet(body: Bytes, kind: Option<HeaderValue>) -> Self {
        let kind = kind.unwrap_or(HeaderValue::from_static("application/octet-stream"));
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind)]);
        Self { status: StatusCode::OK, headers, body, memory: None }
    }

    /// Memory, by what stands for it.
    pub(super) fn of_memory(memory: Handle) -> Self {
        let (status, headers, body) = (StatusCode::OK, HeaderMap::new(), Bytes::new());
        Self { status, headers, body, memory: Some(memory) }
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let mut response = self.into_page();
        // A page of a function is no page of the node's, although it comes from
        // the same address: its scripts have an origin of their own.
        response.headers_mut().append(CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGES));
        response
    }
}

impl Answer {
    /// As it is, where all pages of its origin are the function's.
    pub(super) fn into_page(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

/// What a function says of its answer besides the body.
#[derive(Debug, Deserialize)]
struct Head<'a> {
    #[serde(default = "ok")]
    status: u16,
    #[serde(default, borrow)]
    headers: Vec<(Text<'a>, Text<'a>)>,
}

/// A text that is copied only where it has escapes.
#[derive(Debug, Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

const fn ok() -> u16 {
    200
}

/// The answer that a result describes.
pub(super) fn read(result: Bytes) -> Result<Answer, &'static str> {
    let Some((len, _)) = result.split_first_chunk() else { return Err("is too short") };
    let len = (u32::from_le_bytes(*len) & !PASSING) as usize;
    let head_end = len.checked_add(4).filter(|end| *end <= result.len());
    let Some(head_end) = head_end else { return Err("ends within its head") };
    let head = KNOWN.with_borrow_mut(|known| known.read(&result[4..head_end]))?;
    // To ask for a map of more than it can ever hold panics; one that grows refuses what is too much.
    let mut headers = HeaderMap::with_capacity(head.headers.len().min(HEADERS_USUAL) + OWN_HEADERS);
    for (name, value) in &head.headers {
        let kept = headers.try_append(name, value.clone());
        kept.map_err(|_| "has too many headers")?;
    }
    Ok(Answer { status: head.status, headers, body: result.slice(head_end..), memory: None })
}

/// A head that was read: what it says, without what a function cannot say.
struct ReadHead {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl ReadHead {
    fn read(head: &[u8]) -> Result<Self, &'static str> {
        let head = match head {
            [] => Head { status: ok(), headers: Vec::new() },
            head => {
                serde_json::from_slice(head).map_err(|_| "has a head that is not like the specification")?
            }
        };
        let status = StatusCode::from_u16(head.status).ok().filter(|status| !status.is_informational());
        let status = status.ok_or("has a status that is none")?;
        let mut headers = Vec::with_capacity(head.headers.len());
        for (name, value) in head.headers {
            let name =
                HeaderName::from_bytes(name.0.as_bytes()).map_err(|_| "has a header with a bad name")?;
            let value = HeaderValue::from_str(&value.0).map_err(|_| "has a header with a bad value")?;
            if !HOP_BY_HOP.contains(&name) && !WITHHELD.contains(&name) {
                headers.push((name, value));
            }
        }
        Ok(Self { status, headers })
    }
}

thread_local! {
    static KNOWN: RefCell<KnownHeads> = const { RefCell::new(KnownHeads(Vec::new())) };
}

/// The heads that were read last, the latest first: most answers have the head of one before them, byte by byte.
struct KnownHeads(Vec<(Box<[u8]>, Rc<ReadHead>)>);

impl KnownHeads {
    fn read(&mut self, head: &[u8]) -> Result<Rc<ReadHead>, &'static str> {
        let Self(known) = self;
        match known.iter().position(|(text, _)| **text == *head) {
            Some(0) => {}
            Some(place) => known[..=place].rotate_right(1),
            None => {
                let read = Rc::new(ReadHead::read(head)?);
                if head.len() > KNOWN_BYTES_MAX {
                    return Ok(read);
                }
                known.truncate(KNOWN_MAX - 1);
                known.insert(0, (head.into(), read));
            }
        }
        Ok(Rc::clone(&known[0].1))
    }
}

#[cfg(test)]
mod tests;
