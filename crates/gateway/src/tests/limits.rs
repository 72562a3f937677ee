// SPDX-License-Identifier: Apache-2.0
//! How many, how long, how much at once.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, Version};
use futures_util::stream::{self, StreamExt};
use http_body_util::BodyExt;
use objects::Handle;
use serde_json::json;
use tower::ServiceExt;

use super::House;
use super::fake::Script;
use crate::Options;

#[tokio::test]
async fn requests_over_the_limit_are_refused_but_operators_get_in() {
    let house = House::with(Options { requests_max: 1, ..Options::default() });
    let goal = house.fake.application(b"h");
    house.fake.script(goal, Script::Hangs);
    let request = Request::post("/v1/evaluate").header("content-type", "application/json");
    let request = request.body(Body::from(json!({"handle": goal.to_string()}).to_string())).unwrap();
    let hanging = house.router.clone().oneshot(request);
    tokio::pin!(hanging);
    tokio::time::timeout(Duration::from_millis(50), &mut hanging).await.unwrap_err();
    let refused = house.get("/v1/status").await;
    assert_eq!(refused.problem(503), "busy");
    assert_eq!(refused.header("retry-after"), "1");
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(house.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_download_counts_until_its_last_byte() {
    let house = House::with(Options { requests_max: 1, ..Options::default() });
    let handle = house.fake.store.put_blob(&[1; 2_000_000]).unwrap();
    let request = Request::get(format!("/v1/objects/{handle}")).body(Body::empty()).unwrap();
    let mut download = house.router.clone().oneshot(request).await.unwrap();
    let first = download.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.len() < 2_000_000, "it is not handed over in one piece");
    house.get("/v1/status").await.problem(503);
    let rest = download.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(first.len() + rest.len(), 2_000_000);
    assert_eq!(house.get("/v1/status").await.status, 200);
}

#[tokio::test]
async fn a_body_that_falls_silent_is_given_up() {
    let house = House::with(Options { body_idle_timeout: Duration::from_millis(20), ..Options::default() });
    let piece = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"SNB1"))]);
    let endless = piece.chain(stream::pending());
    let answer = house.post("/v1/blobs", "text/plain", Body::from_stream(endless)).await;
    assert_eq!(answer.problem(408), "body-timeout");
}

#[tokio::test]
async fn bodies_share_one_memory_budget() {
    let options = Options {
        buffered_max_bytes: 128 << 10,
        body_idle_timeout: Duration::from_secs(5),
        ..Options::default()
    };
    let house = House::with(options);
    // One body holds half of the budget and never ends.
    let piece = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"SNB1"))]);
    let body = Body::from_stream(piece.chain(stream::pending()));
    let request = Request::post("/v1/bundles").header("content-type", crate::BUNDLE_MEDIA_TYPE);
    let hanging = house.router.clone().oneshot(request.body(body).unwrap());
    tokio::pin!(hanging);
    tokio::time::timeout(Duration::from_millis(50), &mut hanging).await.unwrap_err();
    let octets = "application/octet-stream";
    let half = vec![0u8; 64 << 10];
    let more = vec![0u8; (64 << 10) + 32];
    assert_eq!(house.post("/v1/trees", octets, more.clone()).await.problem(503), "busy");
    // 32 zero bytes are no handle: it was read, and refused for that.
    assert_eq!(house.post("/v1/trees", octets, half).await.problem(400), "bad-tree");
    let blob = house.post("/v1/blobs", octets, more.clone()).await;
    assert_eq!(blob.json()["handle"], Handle::blob(&more).to_string());
}

#[tokio::test]
async fn what_is_sent_ahead_is_bounded_for_all() {
    let ahead_max_bytes = u64::from(crate::BODY_AHEAD_BYTES) + (8 << 10);
    let options =
        Options { ahead_max_bytes, body_idle_timeout: Duration::from_secs(60), ..Options::default() };
    let house = House::with(options);
    let upload = |version: Version, body: Body| {
        let request = Request::post("/v1/blobs").version(version).body(body).unwrap();
        house.send(request)
    };
    // Of a body of no known length all may come that its window lets in.
    let piece = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"SNB1"))]);
    let endless = upload(Version::HTTP_2, Body::from_stream(piece.chain(stream::pending())));
    let mut endless = Box::pin(endless);
    tokio::time::timeout(Duration::from_millis(50), &mut endless).await.err().unwrap();
    let refused = upload(Version::HTTP_2, vec![1; 9 << 10].into()).await;
    assert_eq!((refused.problem(503).as_str(), refused.header("retry-after")), ("busy", "1"));
    // What was answered holds nothing any more.
    for _ in 0..3 {
        assert_eq!(upload(Version::HTTP_2, vec![1; 8 << 10].into()).await.status, 201);
    }
    assert_eq!(house.get("/v1/status").await.status, 200, "it has no body");
    let other = upload(Version::HTTP_11, vec![1; 9 << 10].into()).await;
    assert_eq!(other.status, 201, "what nobody reads waits with its client");
    drop(endless);
    assert_eq!(upload(Version::HTTP_2, vec![1; 1 << 20].into()).await.status, 201);
}
