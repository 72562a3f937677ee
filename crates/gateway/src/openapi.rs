// SPDX-License-Identifier: Apache-2.0
//! The OpenAPI 3.1 document that `/openapi.json` answers.
//!
//! `openapi.json` beside this file is the source; only the version is filled
//! in. A test holds its paths and methods against the router's table.

use axum::body::Bytes;
use serde_json::Value;

const SOURCE: &str = include_str!("openapi.json");

/// The document for a node of this version.
pub(crate) fn document(version: &str) -> Bytes {
    let Ok(mut document) = serde_json::from_str::<Value>(SOURCE) else {
        unreachable!("a test reads openapi.json")
    };
    document["info"]["version"] = version.into();
    Bytes::from(document.to_string())
}

#[cfg(test)]
mod tests;
