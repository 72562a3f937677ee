// SPDX-License-Identifier: Apache-2.0
//! What operators see.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use super::House;
use crate::backend::CollectRequest;

#[tokio::test]
async fn health_readiness_and_status() {
    let house = House::new();
    assert_eq!(house.get("/healthz").await.body, b"ok\n");
    assert_eq!(house.get("/readyz").await.body, b"ready\n");
    let status = house.get("/v1/status").await.json();
    assert_eq!((&status["ready"], &status["api"]), (&true.into(), &"v1".into()));
    assert_eq!(status["numbers"]["store_memory_bytes"], 12);
    *house.fake.waiting_for.lock().unwrap() = Some("the store is opening".to_owned());
    assert_eq!(house.get("/readyz").await.problem(503), "not-ready");
    assert_eq!(house.get("/healthz").await.status, 200);
    let status = house.get("/v1/status").await.json();
    assert_eq!(status["waiting_for"], "the store is opening");
}

#[tokio::test]
async fn metrics_count_requests_by_pattern_and_class() {
    let house = House::new();
    house.get("/v1/objects/lit-").await;
    house.get("/v1/objects/lit-00").await;
    house.get("/v1/objects/nonsense").await;
    house.get("/no/such/path").await;
    let metrics = house.get("/metrics").await;
    assert!(metrics.header("content-type").starts_with("application/openmetrics-text"));
    let text = String::from_utf8(metrics.body).unwrap();
    for line in [
        "sinew_http_requests_total{method=\"GET\",route=\"/v1/objects/{handle}\",status=\"2xx\"} 2",
        "sinew_http_requests_total{method=\"GET\",route=\"/v1/objects/{handle}\",status=\"4xx\"} 1",
        "sinew_http_requests_total{method=\"GET\",route=\"unmatched\",status=\"4xx\"} 1",
        "sinew_http_request_duration_seconds_count{route=\"/v1/objects/{handle}\"} 3",
        "sinew_http_requests_in_flight 1",
        "sinew_store_memory_bytes 12",
        "sinew_applications_total 34",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(!text.contains("nonsense") && !text.contains("/no/such"), "{text}");
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems() {
    let house = House::new();
    for path in ["/", "/v1", "/v1/object", "/v1/objects/", "/v1/blobs/x", "/%F0%9F%A6%80", "/v2/status"] {
        assert_eq!(house.get(path).await.problem(404), "no-such-route", "{path}");
    }
    let cases = [
        ("GET", "/v1/evaluate", "POST"),
        ("POST", "/healthz", "GET,HEAD"),
        ("BREW", "/v1/status", "GET,HEAD"),
    ];
    for (method, path, allow) in cases {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let answer = house.send(request).await;
        assert_eq!(answer.problem(405), "method-not-allowed", "{method} {path}");
        assert_eq!(answer.header("allow"), allow);
    }
}

#[tokio::test]
async fn the_openapi_document_is_served() {
    let house = House::new();
    let answer = house.get("/openapi.json").await;
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.json()["info"]["version"], env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn a_collection_keeps_what_it_is_told_and_an_hour_at_least() {
    let house = House::new();
    let collect = async |wish: &str| {
        let request = Request::post("/v1/collect").header("content-type", "application/json");
        house.send(request.body(Body::from(wish.to_owned())).unwrap()).await
    };
    let dry = "{\"kept_s\": 3600, \"dry_run\": true, \"drop_derived\": true, \"drop_bytes_min\": 8192, \"drop_nanos_per_kib\": 7}";
    let told = collect("{}").await.json();
    assert_eq!((&told["objects"], &told["bytes"], &told["dry_run"]), (&3.into(), &500.into(), &false.into()));
    assert_eq!(told["tier"], json!({"error": "it does not answer"}), "the disk's is told all the same");
    assert_eq!(collect(dry).await.problem(409), "collecting");
    for wish in ["{\"kept_s\": 3599}", "{\"kept_s\": -1}", "{\"keep\": 7200}", ""] {
        collect(wish).await.problem(400);
    }
    let asked = house.fake.collections.lock().unwrap().clone();
    let dry = CollectRequest {
        kept: Some(Duration::from_secs(3600)),
        is_trial: true,
        drop_derived: Some(true),
        drop_bytes_min: Some(8192),
        drop_nanos_per_kib: Some(7),
    };
    assert_eq!(asked, [CollectRequest::default(), dry]);
}

#[tokio::test]
async fn a_collection_of_the_durable_tier_keeps_an_hour_at_least_and_tells_what_went() {
    let house = House::new();
    let collect = async |wish: &str| {
        let request = Request::post("/v1/tier/collect").header("content-type", "application/json");
        house.send(request.body(Body::from(wish.to_owned())).unwrap()).await
    };
    for wish in ["{\"kept_s\": 3599}", "{\"kept_s\": -1}", "{\"keep\": 7200}", ""] {
        collect(wish).await.problem(400);
    }
    let told = collect("{\"kept_s\": 3600, \"dry_run\": true}").await.json();
    assert_eq!(
        (&told["objects"], &told["moved_bytes"], &told["dry_run"]),
        (&7.into(), &3600.into(), &true.into())
    );
}

#[tokio::test]
async fn exports_are_of_data_and_say_why_they_fail() {
    let house = House::new();
    let export = async |wish: serde_json::Value| {
        let request = Request::post("/v1/export").header("content-type", "application/json");
        house.send(request.body(Body::from(wish.to_string())).unwrap()).await
    };
    let blob = objects::Handle::blob(&[7; 100]);
    let to = |url: &str| json!({"object": blob.to_string(), "url": url});
    let told = export(to("s3://bucket/key")).await.json();
    assert_eq!((&told["written"], &told["known_bytes"]), (&2.into(), &9.into()));
    let by_ref = json!({
        "object": blob.lowered().unwrap().to_string(), "url": "s3://bucket/k", "content_type": "text/csv",
    });
    assert_eq!(export(by_ref).await.json()["object"], blob.to_string());
    let asked = house.fake.exports.lock().unwrap().clone();
    assert!(asked.iter().all(|asked| asked.object == blob));
    assert_eq!([&*asked[0].content_type, &*asked[1].content_type], ["application/octet-stream", "text/csv"]);
    assert_eq!(export(to("s3://bucket/failed")).await.problem(502), "export-failed");
    assert_eq!(export(to("s3://bucket/refused")).await.problem(400), "bad-export");
    assert_eq!(export(to("s3://bucket/missing")).await.problem(404), "object-not-found");
    let thunk = blob.identification().unwrap().to_string();
    for wrong in
        [json!({"object": thunk, "url": "s3://a/b"}), json!({"object": "x", "url": "s3://a/b"}), json!({})]
    {
        export(wrong).await.problem(400);
    }
    assert_eq!(house.fake.exports.lock().unwrap().len(), 5);
}
