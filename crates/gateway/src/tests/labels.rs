// SPDX-License-Identifier: Apache-2.0
//! Names for handles.

use axum::body::Body;
use axum::http::Request;
use objects::Handle;
use serde_json::json;

use super::{Answer, House};

async fn put(house: &House, name: &str, handle: Handle) -> Answer {
    let request = Request::put(format!("/v1/labels/{name}")).header("content-type", "application/json");
    let body = json!({"handle": handle.to_string()}).to_string();
    house.send(request.body(Body::from(body)).unwrap()).await
}

async fn delete(house: &House, name: &str) -> Answer {
    house.send(Request::delete(format!("/v1/labels/{name}")).body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn a_label_is_made_moved_listed_and_removed() {
    let house = House::new();
    assert_eq!(put(&house, "build/latest", Handle::u64(1)).await.status, 201);
    assert_eq!(put(&house, "a.b-c_d", Handle::u64(2)).await.status, 201);
    assert_eq!(put(&house, "build/latest", Handle::u64(3)).await.status, 200);
    let one = house.get("/v1/labels/build/latest").await.json();
    assert_eq!(one, json!({"name": "build/latest", "handle": Handle::u64(3).to_string()}));
    let all = house.get("/v1/labels").await.json();
    assert_eq!(all["labels"][0]["name"], "a.b-c_d");
    assert_eq!(all["labels"].as_array().unwrap().len(), 2);
    assert_eq!(delete(&house, "build/latest").await.status, 204);
    assert_eq!(delete(&house, "build/latest").await.problem(404), "label-not-found");
    assert_eq!(house.get("/v1/labels/build/latest").await.problem(404), "label-not-found");
}

#[tokio::test]
async fn names_and_targets_are_checked() {
    let house = House::new();
    let long = "x".repeat(129);
    for name in ["%20", "a%20b", "caf%C3%A9", "%00", "lit-00", "a%5Cb", "a%3Fb", &long] {
        assert_eq!(put(&house, name, Handle::u64(1)).await.problem(400), "bad-label", "{name}");
        assert_eq!(house.get(&format!("/v1/labels/{name}")).await.problem(400), "bad-label", "{name}");
        assert_eq!(delete(&house, name).await.problem(400), "bad-label", "{name}");
    }
    house.get("/v1/labels/").await.problem(404);
    assert_eq!(house.get("/v1/labels/%FF").await.problem(400), "bad-path");
    assert_eq!(put(&house, &long[..128], Handle::u64(1)).await.status, 201);
    for body in ["", "{}", "{\"handle\":\"no\"}", "{\"handle\":\"lit-\",\"x\":1}"] {
        let request = Request::put("/v1/labels/fine").header("content-type", "application/json");
        house.send(request.body(Body::from(body)).unwrap()).await.problem(400);
    }
    house.get("/v1/labels/fine").await.problem(404);
}
