// SPDX-License-Identifier: Apache-2.0
//! Computations: their results, failures, limits and cancellation.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use objects::{BundleWriter, FailureCode, Handle, TreeBuilder};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::House;
use super::fake::Script;
use crate::{BUNDLE_MEDIA_TYPE, Options, Priority, Recording};

fn wish(goal: Handle) -> String {
    json!({"handle": goal.to_string()}).to_string()
}

#[tokio::test]
async fn a_result_says_what_it_is_and_what_it_cost() {
    let house = House::new();
    let goal = house.fake.application(b"a");
    house.fake.script(goal, Script::Gives(Handle::blob(b"hello"), 3));
    let answer = house.post_json("/v1/evaluate", &wish(goal)).await;
    assert_eq!(answer.status, 200);
    let expected = json!({
        "result": "lit-68656c6c6f", "kind": "blob", "size": 5, "applied": 3, "memo_hit": false,
        "wall_ns": 1234, "value_hex": "68656c6c6f",
        "cost": {"inputs_bytes": 10, "reserved_bytes": 20, "fuel": 30, "cpu_us": 4.0},
    });
    assert_eq!(answer.json(), expected);

    // Blobs up to 4 KiB are repeated, others not; a memo hit applies nothing.
    for (len, repeated) in [(4096, true), (4097, false)] {
        let blob = house.fake.store.put_blob(&vec![1; len]).unwrap();
        house.fake.script(goal, Script::Gives(blob, 0));
        let answer = house.post_json("/v1/evaluate", &wish(goal)).await.json();
        assert_eq!(answer["value_hex"].is_string(), repeated);
        assert_eq!(answer["memo_hit"], true);
    }
}

#[tokio::test]
async fn context_reaches_the_backend_and_is_bounded() {
    let house = House::with(Options { evaluation_max: Duration::from_secs(10), ..Options::default() });
    let handle = Handle::u64(1).to_string();
    let cases = [
        (json!({"handle": handle}), 10_000, Priority::Normal),
        (json!({"handle": handle, "deadline_ms": 250, "priority": "high"}), 250, Priority::High),
        (json!({"handle": handle, "deadline_ms": u64::MAX, "priority": "low"}), 10_000, Priority::Low),
    ];
    for (body, deadline_ms, priority) in cases {
        assert_eq!(house.post_json("/v1/evaluate", &body.to_string()).await.status, 200);
        let request = house.fake.requests.lock().unwrap().pop().unwrap();
        assert_eq!(request.deadline, Some(Duration::from_millis(deadline_ms)));
        assert_eq!(request.priority, priority);
    }
}

#[tokio::test]
async fn a_term_and_a_receipt_are_wishes_of_the_request() {
    let house = House::with(Options { evaluation_max: Duration::from_secs(10), ..Options::default() });
    let handle = Handle::u64(1).to_string();
    let seconds = Duration::from_secs;
    for (body, by, recording) in [
        (json!({"handle": handle}), None, None),
        (
            json!({"handle": handle, "by_ms": 3000, "receipt": true}),
            Some(seconds(3)),
            Some(Recording::Remembering),
        ),
        (json!({"handle": handle, "by_ms": 3000, "deadline_ms": 3000}), Some(seconds(3)), None),
        // Not longer than anything may take.
        (
            json!({"handle": handle, "by_ms": u64::MAX, "fresh": true}),
            Some(seconds(10)),
            Some(Recording::Fresh),
        ),
        (json!({"handle": handle, "receipt": true, "fresh": true}), None, Some(Recording::Fresh)),
    ] {
        assert_eq!(house.post_json("/v1/evaluate", &body.to_string()).await.status, 200, "{body}");
        let request = house.fake.requests.lock().unwrap().pop().unwrap();
        assert_eq!((request.by, request.recording), (by, recording), "{body}");
    }
    let late = json!({"handle": handle, "by_ms": 3001, "deadline_ms": 3000});
    let refused = house.post_json("/v1/evaluate", &late.to_string()).await;
    assert_eq!(refused.status, 400);
    assert!(house.fake.requests.lock().unwrap().is_empty());
    assert!(refused.json()["type"].as_str().unwrap().ends_with(":bad-term"));
}

#[tokio::test]
async fn a_bundle_brings_the_computation_along() {
    let house = House::new();
    let mut writer = BundleWriter::new();
    let blob = writer.blob(&[6; 500]);
    let tree: TreeBuilder = [Handle::literal(b"").unwrap(), blob].into_iter().collect();
    let goal = writer.tree(tree.view()).application().unwrap();
    let bundle = writer.goal(goal);
    let path = "/v1/evaluate?deadline_ms=77&priority=low";
    let answer = house.post(path, BUNDLE_MEDIA_TYPE, bundle.clone()).await;
    assert_eq!(answer.json()["result"], goal.to_string());
    let request = house.fake.requests.lock().unwrap().pop().unwrap();
    assert_eq!((request.goal, request.priority), (goal, Priority::Low));
    assert_eq!(request.deadline, Some(Duration::from_millis(77)));
    assert_eq!(house.get(&format!("/v1/objects/{blob}")).await.body, vec![6; 500]);

    let cases = [
        (path, &b"SNB1"[..], 400, "no-goal"),
        (path, &b"SNB2"[..], 400, "bad-bundle"),
        (path, &bundle[..bundle.len() - 1], 400, "bad-bundle"),
        ("/v1/evaluate?priority=urgent", &bundle[..], 400, "bad-priority"),
        ("/v1/evaluate?deadline_ms=-1", &bundle[..], 400, "bad-query"),
    ];
    for (path, body, status, kind) in cases {
        let answer = house.post(path, BUNDLE_MEDIA_TYPE, body.to_vec()).await;
        assert_eq!(answer.problem(status), kind, "{path}");
    }
    assert!(house.fake.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn bad_wishes() {
    let house = House::new();
    let cases = [
        ("{}", "bad-json"),
        ("null", "bad-json"),
        ("{\"handle\":\"x\"}", "bad-handle"),
        ("{\"handle\":\"lit-\",\"deadline\":5}", "bad-json"),
        ("{\"handle\":\"lit-\",\"deadline_ms\":-5}", "bad-json"),
        ("{\"handle\":\"lit-\",\"deadline_ms\":1.5}", "bad-json"),
        ("{\"handle\":\"lit-\",\"priority\":\"urgent\"}", "bad-priority"),
        ("\u{0}\u{1F600}", "bad-json"),
    ];
    for (body, kind) in cases {
        assert_eq!(house.post_json("/v1/evaluate", body).await.problem(400), kind, "{body}");
    }
    let deep = "[".repeat(100_000);
    assert_eq!(house.post_json("/v1/evaluate", &deep).await.problem(400), "bad-json");
    house.post("/v1/evaluate", "text/plain", "{}").await.problem(415);
    house.send(Request::post("/v1/evaluate").body(Body::from("{}")).unwrap()).await.problem(415);
}

#[tokio::test]
async fn every_failure_code_has_its_status_and_its_story() {
    let house = House::new();
    let goal = house.fake.application(b"f");
    for code in FailureCode::ALL {
        house.fake.script(goal, Script::Fails(code));
        let status = match code {
            FailureCode::MissingData => 404,
            FailureCode::Deadline => 504,
            FailureCode::Cancelled => 499,
            FailureCode::Resources => 503,
            _ => 422,
        };
        let answer = house.post_json("/v1/evaluate", &wish(goal)).await;
        assert_eq!(answer.problem(status), format!("failure-{code}"));
        let problem = answer.json();
        let (handle, _) = house.fake.failure(code, goal);
        let expected = json!({
            "code": code.as_str(), "application": goal.to_string(), "detail": "why",
            "handle": handle.to_string(), "deterministic": code.is_deterministic(),
        });
        assert_eq!(problem["failure"], expected);
        assert!(problem["suggestion"].is_string());
        assert_eq!(answer.headers.contains_key("retry-after"), status == 503);
        // The failure can be read and explained afterwards.
        let read = house.get(&format!("/v1/objects/{handle}")).await.json();
        assert_eq!((&read["kind"], &read["size"]), (&"failure".into(), &3.into()));
    }
}

#[tokio::test]
async fn a_node_that_takes_no_more_says_when_to_come_back() {
    let house = House::new();
    let goal = house.fake.application(b"r");
    house.fake.script(goal, Script::Refused);
    let answer = house.post_json("/v1/evaluate", &wish(goal)).await;
    assert_eq!(answer.problem(503), "busy");
    assert_eq!(answer.header("retry-after"), "1");
    assert!(answer.json()["detail"].as_str().unwrap().contains("the queue is full"));
}

async fn lines(house: &House, goal: Handle) -> Vec<Value> {
    let request = Request::post("/v1/evaluate")
        .header("content-type", "application/json")
        .header("accept", "application/x-ndjson")
        .header("x-request-id", "mine");
    let answer = house.send(request.body(Body::from(wish(goal))).unwrap()).await;
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    let text = String::from_utf8(answer.body).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn progress_is_a_stream_of_lines_whose_last_is_the_end() {
    let house = House::with(Options { progress_interval: Duration::from_millis(5), ..Options::default() });
    let goal = house.fake.application(b"p");
    house.fake.script(goal, Script::Takes(Duration::from_millis(50), Handle::u64(1)));
    let told = lines(&house, goal).await;
    assert!(told.len() > 2, "{told:?}");
    assert_eq!(told[0], progress());
    assert_eq!(told.last().unwrap()["event"], "result");
    assert_eq!(told.last().unwrap()["result"], Handle::u64(1).to_string());

    house.fake.script(goal, Script::Fails(FailureCode::Trap));
    let told = lines(&house, goal).await;
    let last = told.last().unwrap();
    assert_eq!((&last["event"], &last["status"]), (&"failure".into(), &422.into()));
    assert_eq!((&last["request_id"], &last["failure"]["code"]), (&"mine".into(), &"trap".into()));
}

#[tokio::test]
async fn a_client_that_leaves_cancels() {
    let house = House::with(Options { progress_interval: Duration::from_millis(5), ..Options::default() });
    let goal = house.fake.application(b"h");
    house.fake.script(goal, Script::Hangs);
    let request = |accept: &str| {
        let request = Request::post("/v1/evaluate").header("content-type", "application/json");
        request.header("accept", accept).body(Body::from(wish(goal))).unwrap()
    };
    // Before the answer's head.
    let waiting = house.router.clone().oneshot(request("application/json"));
    tokio::time::timeout(Duration::from_millis(50), waiting).await.unwrap_err();
    assert_eq!(house.fake.cancelled.load(Ordering::SeqCst), 1);
    // In the middle of the progress.
    let mut response = house.router.clone().oneshot(request("application/x-ndjson")).await.unwrap();
    for _ in 0..3 {
        let frame = response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
        let line: Value = serde_json::from_slice(&frame).unwrap();
        assert_eq!(line, progress());
    }
    assert_eq!(house.fake.cancelled.load(Ordering::SeqCst), 1);
    drop(response);
    assert_eq!(house.fake.cancelled.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_panic_is_a_problem_and_harms_no_later_request() {
    let house = House::new();
    let goal = house.fake.application(b"boom");
    house.fake.script(goal, Script::Panics);
    let answer = house.post_json("/v1/evaluate", &wish(goal)).await;
    assert_eq!(answer.problem(500), "internal");
    assert!(!String::from_utf8_lossy(&answer.body).contains("planted"));
    assert_eq!(house.get("/v1/status").await.status, 200);
}

/// What the fake always says.
fn progress() -> Value {
    json!({"event": "progress", "applied": 3, "waiting": 4, "known": 9, "done": 7, "memo_hits": 5})
}
