// SPDX-License-Identifier: Apache-2.0
//! `/dashboard/`: pages for people, from the folder `web/`, within the binary.
//!
//! They use this API as any other client does. What they show of functions is
//! untrusted; a strict policy stands behind the care that their code takes.

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use objects::Handle;

use super::path_text;
use crate::problem::Problem;

/// Own files and nothing else, in nobody's frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! file {
    ($name:literal, $kind:expr) => {
        ($name, $kind, include_bytes!(concat!("../../../../web/", $name)).as_slice())
    };
}

/// Name, media type, bytes.
const FILES: [(&str, &str, &[u8]); 17] = [
    file!("index.html", HTML),
    file!("style.css", CSS),
    file!("icon.svg", SVG),
    file!("main.js", JS),
    file!("api.js", JS),
    file!("acting.js", JS),
    file!("calling.js", JS),
    file!("elements.js", JS),
    file!("charts.js", JS),
    file!("functions.js", JS),
    file!("requests.js", JS),
    file!("runs.js", JS),
    file!("run_groups.js", JS),
    file!("run_graph.js", JS),
    file!("run_times.js", JS),
    file!("queue.js", JS),
    file!("key.js", JS),
];

pub(crate) async fn index(headers: HeaderMap) -> Response {
    serve(0, &headers)
}

pub(crate) async fn file(
    headers: HeaderMap,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let wanted = path_text(path)?;
    let found = FILES.iter().position(|(name, ..)| *name == wanted);
    found.map(|index| serve(index, &headers)).ok_or_else(|| {
        Problem::new(
            StatusCode::NOT_FOUND,
            "no-such-route",
            "Nothing answers at this path",
            "gateway",
            "the dashboard has no such file",
        )
        .suggest("open /dashboard/")
    })
}

/// Browsers ask each time, and get a file only if it changed.
fn serve(index: usize, headers: &HeaderMap) -> Response {
    let (_, kind, bytes) = FILES[index];
    let tag = format!("\"{}\"", Handle::blob(bytes));
    let is_known = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let tag = HeaderValue::from_str(&tag).unwrap_or(HeaderValue::from_static("\"\""));
    let fixed: [(HeaderName, &'static str); 5] = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    let head = (fixed, [(ETAG, tag)]);
    if is_known {
        return (StatusCode::NOT_MODIFIED, head).into_response();
    }
    (head, bytes).into_response()
}
