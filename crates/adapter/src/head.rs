// SPDX-License-Identifier: Apache-2.0
//! The heads of requests and answers: JSON, as `docs/spec/functions.md`
//! describes it in its sections 5 and 6.

use serde::{Deserialize, Serialize};

/// What a request says besides its body.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) request_id: String,
    pub(crate) function: String,
    pub(crate) version: u64,
    pub(crate) deadline_ms: u64,
}

/// What an answer says besides its body.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    status: u16,
    headers: &'a [(String, String)],
}

impl Request {
    /// A pure function gets an empty head, and answers to the body alone.
    pub(crate) fn read(head: &[u8]) -> Self {
        let mut request: Self = serde_json::from_slice(head).unwrap_or_default();
        if request.method.is_empty() {
            request.method = "POST".to_owned();
        }
        if !request.path.starts_with('/') {
            request.path.insert(0, '/');
        }
        request
    }

    /// The value of a header, by its lower-case name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// A result: length of the head, head, body.
pub(crate) fn result(status: u16, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
    // Strings and numbers only: there is nothing to fail on.
    let head = serde_json::to_vec(&Answer { status, headers }).unwrap_or_default();
    let mut bytes = Vec::with_capacity(4 + head.len() + body.len());
    bytes.extend((head.len() as u32).to_le_bytes());
    bytes.extend(head);
    bytes.extend(body);
    bytes
}

/// What a body without a content type is.
pub(crate) fn content_type(body: &[u8]) -> &'static str {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    let is_json = || serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok();
    if matches!(first, Some(b'{' | b'[')) && is_json() {
        "application/json"
    } else if std::str::from_utf8(body).is_ok() {
        "text/plain; charset=utf-8"
    } else {
        "application/octet-stream"
    }
}
