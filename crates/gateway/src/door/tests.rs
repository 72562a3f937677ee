// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use axum::http::{HeaderMap, Uri};

use super::Door;

#[test]
fn the_request_line_has_precedence_over_the_host_header() {
    let mut headers = HeaderMap::new();
    headers.insert("host", "localhost".parse().unwrap());
    let absolute: Uri = "http://evil.example/v1/status".parse().unwrap();
    assert!(Door::loopback().check(&absolute, &headers).is_err());
    let origin_form: Uri = "/v1/status".parse().unwrap();
    assert!(Door::loopback().check(&origin_form, &headers).is_ok());
}
