// SPDX-License-Identifier: Apache-2.0
//! Requests to functions: who gets them, what it is told, what comes of it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use objects::{FailureCode, Handle};
use serde_json::json;
use tower::ServiceExt;

use super::House;
use super::fake::Script;
use crate::Routed;

fn house() -> House {
    let house = House::new();
    house.fake.functions.add("hello", 2, |_| {});
    house.fake.gives(r#"{"status":201,"headers":[["x-a","b"]]}"#, b"body");
    house
}

#[tokio::test]
async fn a_call_is_told_what_came_and_answers_as_it_says() {
    let house = house();
    let answer = house.get_with("/function/hello:2/a/b?c=d", &[("x-mine", "yes"), ("te", "trailers")]).await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("x-a"), answer.body.as_slice()),
        (201, "b", &b"body"[..])
    );
    assert!(answer.header("server-timing").contains("warm"), "{:?}", answer.headers);
    let (head, body) = house.fake.last_call();
    assert_eq!((&head["path"], &head["query"], &head["version"]), (&json!("/a/b"), &json!("c=d"), &json!(2)));
    let headers = head["headers"].as_array().unwrap();
    assert!(headers.contains(&json!(["x-mine", "yes"])) && body.is_empty(), "{head}");
    assert!(headers.iter().all(|header| header[0] != "te"));
    assert!(headers.iter().any(|header| header[0] == "traceparent"), "{head}");
    assert!(head.get("params").is_none());
}

#[tokio::test]
async fn what_a_request_consists_of_goes_with_it() {
    let house = house();
    house.fake.functions.add("pure", 1, |served| served.is_pure = true);
    let Some(Script::Gives(result, _)) = *house.fake.otherwise.lock().unwrap() else { panic!("no result") };
    let dropped = || house.fake.dropped.lock().unwrap().clone();
    house.get("/function/pure").await;
    assert_eq!(dropped(), [], "it is remembered");
    house.post("/function/hello", "text/plain", "a body of more than thirty bytes, no literal").await;
    let definition = house.fake.requests.lock().unwrap().last().unwrap().goal.thunk().unwrap().definition();
    let tree = house.fake.store.get(definition).unwrap().unwrap();
    let entries: Vec<Handle> = tree.as_tree().iter().collect();
    let [.., head, body] = entries[..] else { panic!("no call") };
    let mut expected = vec![head, body, definition, result];
    let mut found = dropped();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    // Whose client leaves goes as well.
    *house.fake.otherwise.lock().unwrap() = Some(Script::Hangs);
    let left = tokio::time::timeout(Duration::from_millis(50), house.get("/function/hello"));
    assert!(left.await.is_err());
    while house.fake.cancelled.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(dropped().len(), 4 + 3, "no result");
    // What it is answered all the same nobody takes.
    *house.fake.otherwise.lock().unwrap() = Some(Script::Takes(Duration::from_millis(200), result));
    let left = tokio::time::timeout(Duration::from_millis(50), house.get("/function/hello"));
    assert!(left.await.is_err());
    let deadline = Instant::now() + Duration::from_secs(10);
    while dropped().len() < 4 + 3 + 4 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(dropped().iter().filter(|handle| **handle == result).count(), 2);
}

#[tokio::test]
async fn versions_are_reached_by_number_by_lot_and_by_key() {
    let house = house();
    assert_eq!(house.get("/function/hello:1").await.status, 201);
    assert_eq!(house.fake.last_call().0["version"], 1);
    for wrong in ["/function/hello:3", "/function/hello:stable", "/function/nobody", "/function/nobody:1"] {
        assert_eq!(house.get(wrong).await.problem(404), "function-not-found", "{wrong}");
    }
    let mut of_two = 0;
    for _ in 0..100 {
        house.get("/function/hello").await;
        of_two += u32::from(house.fake.last_call().0["version"] == 2);
    }
    assert!((48..=52).contains(&of_two), "{of_two} of 100 with a share of half");
    let mut seen = std::collections::BTreeSet::new();
    for key in 0..40 {
        let key = format!("user-{key}");
        let mut versions = std::collections::BTreeSet::new();
        for _ in 0..3 {
            house.get_with("/function/hello", &[("x-sinew-version-key", &key)]).await;
            versions.insert(house.fake.last_call().0["version"].as_u64().unwrap());
        }
        assert_eq!(versions.len(), 1, "{key} stays with its version");
        seen.extend(versions);
    }
    assert_eq!(seen.len(), 2, "and not all with the same");
}

#[tokio::test]
async fn a_route_leads_to_its_function_and_shadows_nothing() {
    let house = house();
    let routed = Routed {
        function: "hello".to_owned(),
        pattern: "/users/{id}".to_owned(),
        params: vec![("id".to_owned(), "7".to_owned())],
        at_home: false,
    };
    for path in ["GET /users/7", "GET /healthz", "GET /v1/status"] {
        house.fake.functions.routes.lock().unwrap().push((path.to_owned(), routed.clone()));
    }
    assert_eq!(house.get("/users/7?x=1").await.status, 201);
    let (head, _) = house.fake.last_call();
    assert_eq!((&head["path"], &head["route"]), (&json!("/users/7"), &json!("/users/{id}")));
    assert_eq!(head["params"], json!([["id", "7"]]));
    assert_eq!(house.get("/healthz").await.body, b"ok\n");
    assert_eq!(house.get("/v1/status").await.json()["api"], "v1");
    let wrong = house.post_json("/users/7", "{}").await;
    assert_eq!((wrong.problem(405).as_str(), wrong.header("allow")), ("method-not-allowed", "GET"));
    assert_eq!(house.get("/users/8").await.problem(404), "no-such-route");
}

#[tokio::test]
async fn who_installs_packages_is_told_what_they_are_for() {
    let house = house();
    let told = house.get("/v1/interpreters/python").await.json();
    let expected =
        json!({"program": "/usr/bin/python3", "version": "3.14.2", "abi": "cpython-314-x86_64-linux-gnu"});
    assert_eq!(told, expected);
    house.get("/v1/interpreters/cobol").await.problem(404);
    // A catch-all route of a function has none of it.
    house.get("/v1/interpreters/").await.problem(404);
}

/// The node's log, once there is anything in it.
async fn recorded(house: &House) -> serde_json::Value {
    for _ in 0..2000 {
        let logs = house.get("/v1/logs").await.json();
        if logs["records"] != json!([]) {
            return logs;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nothing was recorded");
}

#[tokio::test]
async fn a_call_whose_client_left_is_stopped_a_moment_later() {
    let house = house();
    *house.fake.otherwise.lock().unwrap() = Some(Script::Hangs);
    let request = Request::get("/function/hello").body(Body::empty()).unwrap();
    let call = house.router.clone().oneshot(request);
    assert!(tokio::time::timeout(Duration::from_millis(50), call).await.is_err(), "it hangs");
    let logs = recorded(&house).await;
    assert_eq!(logs["records"][0]["status"], 499, "{logs}");
    assert_eq!(house.fake.cancelled.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_call_that_ends_after_its_client_left_is_not_stopped() {
    let house = house();
    let result = house.fake.store.put_blob(&[2, 0, 0, 0, b'{', b'}']).unwrap();
    *house.fake.otherwise.lock().unwrap() = Some(Script::Takes(Duration::from_millis(300), result));
    let request = Request::get("/function/hello").body(Body::empty()).unwrap();
    let call = house.router.clone().oneshot(request);
    assert!(tokio::time::timeout(Duration::from_millis(50), call).await.is_err());
    let logs = recorded(&house).await;
    assert_eq!((&logs["records"][0]["status"], &logs["records"][0]["start"]), (&json!(499), &json!("warm")));
    assert_eq!(house.fake.cancelled.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn metrics_tell_versions_apart() {
    let house = house();
    for _ in 0..3 {
        house.get("/function/hello:2").await;
    }
    house.get("/function/hello:1").await;
    let text = String::from_utf8(house.get("/metrics").await.body).unwrap();
    for line in [
        "sinew_function_version_requests_total{function=\"hello\",version=\"2\"} 3",
        "sinew_function_version_requests_total{function=\"hello\",version=\"1\"} 1",
        "sinew_function_egress_total{function=\"hello\",version=\"1\",what=\"refused\"} 4",
        "sinew_function_egress_bytes_total{function=\"hello\",version=\"1\",what=\"sent\"} 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
    }
}

#[tokio::test]
async fn secrets_come_in_and_never_go_out() {
    let house = house();
    let put = |name: &str, value: Vec<u8>| {
        house.send(Request::put(format!("/v1/secrets/{name}")).body(Body::from(value)).unwrap())
    };
    assert_eq!(put("DB", b"hunter2".to_vec()).await.json()["changed"], true);
    assert_eq!(house.fake.functions.secrets.lock().unwrap()["DB"], "hunter2");
    let listed = house.get("/v1/secrets").await;
    assert_eq!(listed.json(), json!({"secrets": [{"name": "DB", "used_by": ["hello"]}]}));
    assert_eq!(put("DB", vec![0xff]).await.problem(400), "bad-secret");
    assert_eq!(put("DB", vec![b'x'; (64 << 10) + 1]).await.problem(413), "body-too-large");
    assert_eq!(put("broken", b"hunter2".to_vec()).await.problem(400), "bad-deployment");
    assert_eq!(house.get("/v1/secrets/DB").await.problem(405), "method-not-allowed");
    let delete = || house.send(Request::delete("/v1/secrets/DB").body(Body::empty()).unwrap());
    assert_eq!(delete().await.status, 204);
    assert_eq!(delete().await.status, 404);
}

#[tokio::test]
async fn clients_of_lambda_are_answered_in_its_words() {
    let house = house();
    *house.fake.functions.log.lock().unwrap() = [vec![b'x'; 5000], b"end".to_vec()].concat();
    let path = "/2015-03-31/functions/hello%3A1/invocations";
    let request = Request::post(path).header("x-amz-log-type", "Tail").header("authorization", "AWS4 secret");
    let answer = house.send(request.body(Body::from("{\"a\":1}")).unwrap()).await;
    assert_eq!((answer.status.as_u16(), answer.body.as_slice()), (200, &b"body"[..]), "as it is");
    assert_eq!((answer.header("x-amz-executed-version"), answer.header("x-amz-function-error")), ("1", ""));
    let log = BASE64.decode(answer.header("x-amz-log-result")).unwrap();
    assert!(log.len() == 4096 && log.ends_with(b"end"));
    let (head, body) = house.fake.last_call();
    assert_eq!((&head["source"], body.as_slice()), (&json!("lambda"), &b"{\"a\":1}"[..]));
    assert!(!head.to_string().contains("secret"), "{head}");
    let dry = Request::post(path).header("x-amz-invocation-type", "DryRun").body(Body::empty()).unwrap();
    assert_eq!(house.send(dry).await.status, 204);
    let missing = house.post_json("/2015-03-31/functions/nobody/invocations", "{}").await;
    assert_eq!(missing.status, 404);
    assert_eq!(missing.header("x-amzn-errortype"), "ResourceNotFoundException");
    for (code, status, error) in [
        (FailureCode::Trap, 200, "Unhandled"),
        (FailureCode::Deadline, 200, "Unhandled"),
        (FailureCode::Resources, 429, ""),
    ] {
        *house.fake.otherwise.lock().unwrap() = Some(Script::Fails(code));
        let answer = house.post_json(path, "{}").await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("x-amz-function-error")),
            (status, error),
            "{code}"
        );
        if status == 200 {
            assert_eq!(answer.json()["errorMessage"], "why");
        }
    }
}

#[tokio::test]
async fn events_reach_functions_in_one_form() {
    let house = house();
    let event = r#"{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"x":1}}"#;
    assert_eq!(house.post("/function/hello", "application/cloudevents+json", event).await.status, 201);
    let structured = house.fake.last_call();
    let binary = Request::post("/function/hello").header("content-type", "application/json");
    let binary = [("specversion", "1.0"), ("id", "1"), ("source", "/s"), ("type", "t")]
        .iter()
        .fold(binary, |request, (name, value)| request.header(format!("ce-{name}"), *value));
    assert_eq!(house.send(binary.body(Body::from(r#"{"x":1}"#)).unwrap()).await.status, 201);
    let told = house.fake.last_call();
    for (head, body) in [structured, told] {
        assert_eq!((&head["source"], body.as_slice()), (&json!("event"), &br#"{"x":1}"#[..]));
        let headers = head["headers"].as_array().unwrap();
        for header in [json!(["ce-type", "t"]), json!(["content-type", "application/json"])] {
            assert!(headers.contains(&header), "{head}");
        }
    }
    let wrong = house.post("/function/hello", "application/cloudevents+json", "{}").await;
    assert_eq!(wrong.problem(400), "bad-event");
    let batch = house.post("/function/hello", "application/cloudevents-batch+json", "[]").await;
    assert_eq!(batch.problem(415), "unsupported-media-type");
}

#[tokio::test]
async fn an_instance_that_ended_is_replaced_once_where_the_function_allows_it() {
    let house = house();
    house.fake.functions.add("again", 1, |served| served.is_idempotent = true);
    let fine = house.fake.store.put_blob(b"\0\0\0\0fine").unwrap();
    let set = |script| *house.fake.otherwise.lock().unwrap() = Some(script);
    let asked = || house.fake.requests.lock().unwrap().len();
    set(Script::Recovers(FailureCode::Trap, fine));
    let answer = house.get("/function/again").await;
    assert_eq!((answer.status.as_u16(), &answer.body[..], asked()), (200, &b"fine"[..], 2));
    // Not where it may have done something already.
    set(Script::Recovers(FailureCode::Trap, fine));
    assert_eq!((house.get("/function/hello").await.status.as_u16(), asked()), (500, 3));
    // What the function itself says, it would say again; and once is enough.
    set(Script::Recovers(FailureCode::Guest, fine));
    assert_eq!((house.get("/function/again").await.status.as_u16(), asked()), (500, 4));
    set(Script::Fails(FailureCode::Trap));
    assert_eq!((house.get("/function/again").await.status.as_u16(), asked()), (500, 6));
}
