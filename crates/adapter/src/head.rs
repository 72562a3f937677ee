// SPDX-License-Identifier: Apache-2.0
//! The heads of requests and answers: lines of JSON, as `docs/spec/functions.md`
//! describes them in its sections 5 and 6.

use serde::{Deserialize, Serialize};

/// What a request says besides its body.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) call: Call,
    pub(crate) http: Http,
}

/// The first line: the call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Call {
    pub(crate) request_id: String,
    pub(crate) function: String,
    pub(crate) version: u64,
    pub(crate) deadline_ms: u64,
    /// By which way it came: `http`, `lambda`, `call` …
    pub(crate) source: String,
    /// Of the body, if anybody said.
    pub(crate) content_type: String,
    /// `stream`: it comes while the call runs.
    pub(crate) body: String,
}

/// The second line: its HTTP side.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Http {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: Vec<(String, String)>,
    /// The pattern that it came by, and what stood for its names.
    pub(crate) route: Option<String>,
    pub(crate) params: Vec<(String, String)>,
    /// The address of who asks, if it is known.
    pub(crate) client: Option<String>,
    /// `https`, or nothing.
    pub(crate) scheme: Option<String>,
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
        let end = head.iter().position(|&byte| byte == b'\n').unwrap_or(head.len());
        let (call, http) = head.split_at(end);
        let call = serde_json::from_slice(call).unwrap_or_default();
        let mut http: Http = serde_json::from_slice(http).unwrap_or_default();
        if http.method.is_empty() {
            http.method = "POST".to_owned();
        }
        if !http.path.starts_with('/') {
            http.path.insert(0, '/');
        }
        Self { call, http }
    }

    /// The value of a header, by its lower-case name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.http.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// A result, or the beginning of one: length of the head, head, body.
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
