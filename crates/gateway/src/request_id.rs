// SPDX-License-Identifier: Apache-2.0
//! Names of requests.
//!
//! A client may bring its own in `X-Request-Id` if it matches
//! `^[A-Za-z0-9._-]{1,64}$`; every other request gets a new UUIDv7. The name
//! is safe to write to logs and headers as it is.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName};
use uuid::fmt::Hyphenated;

use crate::unique;

/// The header, both ways.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const LEN_MAX: usize = 64;

/// A request's name. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) Arc<str>);

impl RequestId {
    /// The client's name for the request if it is a sane one, else a new one.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let brought = headers.get(&X_REQUEST_ID).and_then(|value| value.to_str().ok());
        match brought.filter(|id| is_sane(id)) {
            Some(id) => Self(id.into()),
            None => Self::new(),
        }
    }

    /// One that was given before, or a new one if it is none.
    pub(crate) fn from_text(text: &str) -> Self {
        if is_sane(text) { Self(text.into()) } else { Self::new() }
    }

    /// A new one.
    pub(crate) fn new() -> Self {
        let mut text = [0; Hyphenated::LENGTH];
        Self(Arc::from(&*unique::uuid().hyphenated().encode_lower(&mut text)))
    }
}

fn is_sane(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !id.is_empty() && id.len() <= LEN_MAX && id.bytes().all(allowed)
}

#[cfg(test)]
mod tests;
