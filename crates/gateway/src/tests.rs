// SPDX-License-Identifier: Apache-2.0
//! The gateway before a fake node: every endpoint, and what bad input gets.

#![allow(clippy::unwrap_used)]

mod arriving;
mod behind;
mod calling;
mod dashboard;
mod deferring;
mod doors;
mod evaluating;
mod explaining;
pub(crate) mod fake;
mod functions;
mod hosts;
mod keys;
mod labels;
mod limits;
mod lines;
mod logs;
mod mcp;
mod nested;
mod objects;
mod operations;
mod remaking;
mod tenants;
mod upkeep;
mod workflows;

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

use crate::{Front, Options, router};
use fake::Fake;

/// A fake node and the gateway before it.
struct House {
    fake: Arc<Fake>,
    router: Front,
}

impl House {
    fn new() -> Self {
        Self::with(Options::default())
    }

    fn with(options: Options) -> Self {
        let fake = Arc::new(Fake::new());
        Self { router: router(fake.clone(), options), fake }
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::empty()).unwrap()).await
    }

    async fn post(&self, path: &str, media_type: &str, body: impl Into<Body>) -> Answer {
        self.send(Request::post(path).header("content-type", media_type).body(body.into()).unwrap()).await
    }

    async fn post_json(&self, path: &str, body: &str) -> Answer {
        self.post(path, "application/json", body.to_owned()).await
    }
}

/// A response, whole.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Asserts that this is a complete problem, and returns the last part of its type.
    #[track_caller]
    fn problem(&self, status: u16) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", String::from_utf8_lossy(&self.body));
        assert_eq!(self.header("content-type"), "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["status"], status);
        assert_eq!(problem["request_id"], self.header("x-request-id"));
        for member in ["title", "detail", "component"] {
            assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {problem}");
        }
        problem["type"].as_str().unwrap().strip_prefix("urn:sinew:problem:").unwrap().to_owned()
    }
}
