// SPDX-License-Identifier: Apache-2.0
//! Calls that are made later: taken, made, tried again, given up.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use objects::FailureCode;
use queue::{Embedded, Id, Message, Options as QueueOptions, Policy, Queue as _, Schedule};
use serde_json::Value;
use tokio::task::JoinSet;

use super::fake::{Fake, Script};
use super::{Answer, House};
use crate::{Gateway, Options};

/// A house that makes the calls that wait.
struct Later {
    house: House,
    _calls: JoinSet<()>,
}

const QUICK: Policy = Policy { max_attempts: 3, max_age_ms: 60_000, min_backoff_ms: 1, max_backoff_ms: 2 };

fn later_with(options: QueueOptions) -> Later {
    let mut fake = Fake::new();
    fake.queue = Some(std::sync::Arc::new(Embedded::in_memory(options).unwrap()));
    let fake = std::sync::Arc::new(fake);
    let gateway = Gateway::new(fake.clone(), Options::default());
    let mut calls = JoinSet::new();
    calls.spawn(gateway.make_calls(std::future::pending()));
    fake.functions.add("hello", 2, |served| served.delivery = QUICK);
    fake.gives(r#"{"status":201,"headers":[["x-a","b"]]}"#, b"body");
    Later {
        house: House { router: gateway.router(crate::Door::Private, crate::Access::Owner), fake },
        _calls: calls,
    }
}

fn later() -> Later {
    later_with(QueueOptions::default())
}

impl Later {
    async fn call(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::post(format!("/async-function/{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.house.send(request.body(Body::from("the body")).unwrap()).await
    }

    async fn taken(&self, path: &str) -> String {
        let answer = self.call(path, &[]).await;
        assert_eq!(answer.status, 202);
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    /// The call's state, once it is this.
    async fn state(&self, id: &str, wanted: &str) -> Value {
        for _ in 0..2000 {
            let answer = self.house.get(&format!("/v1/async/{id}")).await;
            assert_eq!(answer.status, 200);
            let document = answer.json();
            if document["state"] == wanted {
                return document;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{id} is never {wanted}");
    }

    async fn letters(&self) -> Vec<Value> {
        self.house.get("/v1/dlq").await.json()["letters"].as_array().unwrap().clone()
    }

    async fn post(&self, path: &str) -> Answer {
        self.house.send(Request::post(path).body(Body::empty()).unwrap()).await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.house.send(Request::delete(path).body(Body::empty()).unwrap()).await
    }
}

#[tokio::test]
async fn a_call_is_taken_made_and_answered_by_its_id() {
    let later = later();
    let answer = later.call("hello:1/a/b?c=d", &[("x-mine", "yes")]).await;
    assert_eq!(answer.status, 202);
    let told = answer.json();
    let id = told["id"].as_str().unwrap();
    assert_eq!(answer.header("location"), format!("/v1/async/{id}"));
    assert_eq!(answer.header("x-request-id"), id, "the request has no other name");
    let state = later.state(id, "succeeded").await;
    assert_eq!(
        (&state["attempts"], &state["status"], &state["version"]),
        (&1.into(), &201.into(), &1.into())
    );
    let result = later.house.get(state["result"].as_str().unwrap()).await;
    assert_eq!((result.status.as_u16(), result.header("x-a"), &result.body[..]), (201, "b", &b"body"[..]));
    assert!(result.header("content-security-policy").contains("sandbox"));
    let (head, body) = later.house.fake.last_call();
    assert_eq!(body, b"the body");
    assert_eq!(
        (&head["path"], &head["query"], &head["request_id"]),
        (&"/a/b".into(), &"c=d".into(), &id.into())
    );
    assert!(head["headers"].as_array().unwrap().contains(&serde_json::json!(["x-mine", "yes"])));
    let logs = later.house.get(&format!("/v1/logs?request_id={id}")).await.json();
    assert_eq!(logs["records"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_name_that_a_client_brings_twice_is_two_calls() {
    let later = later();
    let headers = [("x-request-id", "0193e0a0-0000-7000-8000-000000000001")];
    let first = later.call("hello", &headers).await.json();
    let second = later.call("hello", &headers).await.json();
    assert_ne!(first["id"], second["id"]);
    assert_eq!(first["request_id"], headers[0].1);
    later.state(second["id"].as_str().unwrap(), "succeeded").await;
    assert_eq!(later.house.fake.last_call().0["request_id"], headers[0].1);
}

#[tokio::test]
async fn what_nobody_serves_is_refused_at_once() {
    let later = later();
    assert_eq!(later.call("nobody", &[]).await.problem(404), "function-not-found");
    assert_eq!(later.call("hello:9", &[]).await.problem(404), "function-not-found");
    for path in ["/v1/async/nothing", "/v1/async/0193e0a0-0000-7000-8000-000000000001", "/v1/dlq/x"] {
        assert_eq!(later.house.get(path).await.problem(404), "call-not-found");
    }
    let without = House::new();
    without.fake.functions.add("hello", 1, |_| {});
    let request = Request::post("/async-function/hello").body(Body::empty()).unwrap();
    assert_eq!(without.send(request).await.problem(501), "no-queue");
}

#[tokio::test]
async fn what_fails_is_tried_again_and_then_a_dead_letter() {
    let later = later();
    *later.house.fake.otherwise.lock().unwrap() = Some(Script::Fails(FailureCode::Guest));
    let id = later.taken("hello").await;
    let dead = later.state(&id, "dead").await;
    assert_eq!(dead["attempts"], 3);
    assert!(dead["reason"].as_str().unwrap().contains("why"), "{dead}");
    assert_eq!(later.house.get(&format!("/v1/async/{id}/result")).await.problem(409), "dead-letter");
    let letter = later.house.get(&format!("/v1/dlq/{id}")).await.json();
    assert_eq!((&letter["body"], &letter["request"]["target"]), (&"the body".into(), &"hello".into()));
    // Mended, it is redriven.
    later.house.fake.gives("{}", b"at last");
    assert_eq!(later.post(&format!("/v1/dlq/{id}/redrive")).await.status, 202);
    later.state(&id, "succeeded").await;
    assert_eq!(later.house.get(&format!("/v1/async/{id}/result")).await.body, b"at last");
    assert!(later.letters().await.is_empty());
    assert_eq!(later.post(&format!("/v1/dlq/{id}/redrive")).await.problem(404), "call-not-found");
}

#[tokio::test]
async fn an_answer_that_no_attempt_can_better_is_a_dead_letter_at_once() {
    let later = later();
    later.house.fake.gives(r#"{"status":422}"#, b"no such month");
    let id = later.taken("hello").await;
    let dead = later.state(&id, "dead").await;
    assert_eq!(dead["attempts"], 1);
    assert!(dead["reason"].as_str().unwrap().contains("422: no such month"), "{dead}");
    let second = later.taken("hello").await;
    later.state(&second, "dead").await;
    assert_eq!(later.letters().await.len(), 2);
    assert_eq!(later.delete(&format!("/v1/dlq/{id}")).await.status, 204);
    assert_eq!(later.delete("/v1/dlq?function=other").await.json()["purged"], 0);
    assert_eq!(later.delete("/v1/dlq").await.json()["purged"], 1);
    assert!(later.letters().await.is_empty());
}

#[tokio::test]
async fn a_key_makes_two_requests_one_call() {
    let later = later();
    let first = later.call("hello", &[("x-dedup-key", "order 7")]).await.json();
    let second = later.call("hello", &[("x-dedup-key", "order 7")]).await.json();
    let other = later.call("hello", &[("x-dedup-key", "order 8"), ("x-dedup-window", "1")]).await.json();
    assert_eq!((&second["id"], &second["duplicate"]), (&first["id"], &true.into()));
    assert!(other["id"] != first["id"] && other["duplicate"] == false);
    for wrong in [("x-dedup-key", ""), ("x-dedup-window", "0"), ("x-dedup-window", "86401")] {
        assert_eq!(later.call("hello", &[wrong]).await.problem(400), "bad-dedup");
    }
}

#[tokio::test]
async fn a_full_queue_says_when_to_come_back() {
    let later = later_with(QueueOptions { messages_max: 4, lane_percent: 50, ..QueueOptions::default() });
    *later.house.fake.otherwise.lock().unwrap() = Some(Script::Hangs);
    later.house.fake.functions.add("other", 1, |_| {});
    for path in ["hello", "hello", "other", "other"] {
        later.taken(path).await;
    }
    let refused = later.call("hello", &[]).await;
    assert_eq!((refused.problem(503).as_str(), refused.header("retry-after")), ("busy", "1"));
    assert_eq!(refused.json()["component"], "queue");
}

#[tokio::test]
async fn a_function_that_hangs_delays_no_other() {
    let later = later();
    later.house.fake.functions.add("well", 1, |served| served.is_pure = true);
    *later.house.fake.otherwise.lock().unwrap() = Some(Script::Hangs);
    for _ in 0..50 {
        later.taken("hello").await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
        if later
            .house
            .get("/metrics")
            .await
            .body
            .windows(40)
            .any(|line| line.ends_with(br#"state="running"} 4"#))
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    later.house.fake.gives("{}", b"fine");
    let id = later.taken("well").await;
    later.state(&id, "succeeded").await;
    let metrics = String::from_utf8(later.house.get("/metrics").await.body).unwrap();
    for line in [
        r#"sinew_queue_messages{function="hello",state="running"} 4"#,
        r#"sinew_queue_messages{function="hello",state="waiting"} 46"#,
        "sinew_queue_taken_total 51",
        "sinew_queue_retries_total 0",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn an_event_of_lambda_is_taken_and_whatever_is_returned_is_fine() {
    let later = later();
    later.house.fake.gives(r#"{"status":500}"#, b"{}");
    let request =
        Request::post("/2015-03-31/functions/hello/invocations").header("x-amz-invocation-type", "Event");
    let answer = later.house.send(request.body(Body::from("{}")).unwrap()).await;
    assert_eq!((answer.status.as_u16(), answer.body.len()), (202, 0));
    let id = answer.header("x-amzn-requestid").to_owned();
    later.state(&id, "succeeded").await;
    assert_eq!(later.house.fake.last_call().0["source"], "lambda");
}

#[tokio::test]
async fn a_schedule_that_was_missed_is_called_once() {
    const MINUTE_MS: u64 = 60_000;
    let queue = Arc::new(Embedded::in_memory(QueueOptions::default()).unwrap());
    let now = crate::deferred::now_ms();
    // The node before this one was there ten minutes ago.
    let mark = |name: &str, ago: u64| {
        let message = Message {
            id: Id(u128::from(ago)),
            lane: "nobody".to_owned(),
            head: Vec::new(),
            body: Vec::new(),
            due_ms: u64::MAX,
            dedup: None,
            mark: Some((format!("schedule/{name}/* * * * *"), now - ago)),
        };
        queue.push(message, now - ago).unwrap();
    };
    mark("hello", 10 * MINUTE_MS);
    mark("strict", 11 * MINUTE_MS);
    let mut fake = Fake::new();
    fake.queue = Some(queue.clone());
    let fake = Arc::new(fake);
    let schedules = || vec![Schedule::parse("* * * * *").unwrap()];
    fake.functions.add("hello", 1, |served| served.schedules = schedules());
    fake.functions.add("strict", 1, |served| {
        served.schedules = schedules();
        served.delivery.max_age_ms = 0;
    });
    fake.functions.add("new", 1, |served| served.schedules = schedules());
    fake.gives("{}", b"done");
    let gateway = Gateway::new(fake.clone(), Options::default());
    let mut calls = JoinSet::new();
    calls.spawn(gateway.make_calls(std::future::pending()));
    for _ in 0..400 {
        if queue.stats().outcomes > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (head, body) = fake.last_call();
    assert_eq!((&head["function"], &head["source"]), (&"hello".into(), &"schedule".into()));
    let body: Value = serde_json::from_slice(&body).unwrap();
    let time_ms = body["scheduled_ms"].as_u64().unwrap();
    assert!(time_ms.is_multiple_of(MINUTE_MS) && now - time_ms < 2 * MINUTE_MS, "{body}");
    assert_eq!(queue.mark("schedule/hello/* * * * *"), Some(time_ms));
    // A full minute may pass while this runs: then each of them is called once more.
    let calls = fake.requests.lock().unwrap().len();
    let minutes = (crate::deferred::now_ms() / MINUTE_MS - now / MINUTE_MS) as usize;
    assert!(calls <= 1 + 3 * minutes, "{calls} calls");
}

impl Later {
    /// Results that were sent, once there are so many.
    async fn sent(&self, number: usize) -> Vec<(String, axum::http::HeaderMap, Vec<u8>)> {
        for _ in 0..2000 {
            let sent = self.house.fake.callbacks.sent.lock().unwrap().clone();
            if sent.len() >= number {
                return sent;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never {number} results");
    }

    async fn called_back(&self) -> String {
        let headers = [("x-callback-url", "https://hooks.example/done"), ("x-request-id", "mine")];
        let answer = self.call("hello", &headers).await;
        assert_eq!(answer.status, 202, "{:?}", answer.json());
        answer.json()["id"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_result_goes_to_where_the_caller_wants_it() {
    let later = later();
    later.house.fake.gives(r#"{"status":201,"headers":[["content-type","text/x"],["x-a","b"]]}"#, b"body");
    let id = later.called_back().await;
    later.state(&id, "succeeded").await;
    let (url, headers, body) = later.sent(1).await.remove(0);
    assert_eq!((url.as_str(), &body[..]), ("https://hooks.example/done", &b"body"[..]));
    for (name, value) in [
        ("content-type", "text/x"),
        ("x-sinew-status", "201"),
        ("x-sinew-attempt", "1"),
        ("x-request-id", "mine"),
        ("ce-specversion", "1.0"),
        ("ce-type", "sinew.call.succeeded"),
        ("ce-source", "/async-function/hello"),
        ("ce-subject", &id),
    ] {
        assert_eq!(headers[name], value, "{name}");
    }
    assert!(!headers.contains_key("x-a"), "a header for whoever asks");
    let (head, _) = later.house.fake.last_call();
    assert!(!head["headers"].to_string().contains("callback"), "the function is not told");
    // The control: without the header nothing is sent.
    let plain = later.taken("hello").await;
    later.state(&plain, "succeeded").await;
    let id = later.called_back().await;
    later.state(&id, "succeeded").await;
    assert_eq!(later.sent(2).await.len(), 2);
}

#[tokio::test]
async fn a_result_is_sent_until_it_is_taken() {
    let later = later();
    later.house.fake.callbacks.answers.lock().unwrap().push(Ok(503));
    later.called_back().await;
    let sent = later.sent(2).await;
    let attempts: Vec<_> = sent.iter().map(|(_, headers, _)| headers["x-sinew-attempt"].clone()).collect();
    assert_eq!(attempts, ["1", "2"]);
    assert_eq!(sent[0].1["ce-id"], sent[1].1["ce-id"], "it is known as the same event");
    assert!(later.letters().await.is_empty());
}

#[tokio::test]
async fn a_result_that_nobody_may_get_is_a_dead_letter() {
    let later = later();
    let refusal = Err(crate::Unsent::Never("it has a private address".to_owned()));
    later.house.fake.callbacks.answers.lock().unwrap().push(refusal);
    later.called_back().await;
    later.sent(1).await;
    let letter = loop {
        if let Some(letter) = later.letters().await.pop() {
            break letter;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(letter["function"], "callback:hello");
    let id = letter["id"].as_str().unwrap();
    let shown = later.house.get(&format!("/v1/dlq/{id}")).await.json();
    assert_eq!(shown["callback"]["url"], "https://hooks.example/done");
    assert!(shown["reason"].as_str().unwrap().contains("private"), "{shown}");
    assert_eq!(later.post(&format!("/v1/dlq/{id}/redrive")).await.status, 202);
    assert_eq!(later.sent(2).await[1].2, b"body");
}

#[tokio::test]
async fn a_call_that_is_given_up_is_told_too() {
    let later = later();
    later.house.fake.gives(r#"{"status":404,"headers":[]}"#, b"no such month");
    later.called_back().await;
    let (_, headers, body) = later.sent(1).await.remove(0);
    assert_eq!(
        (&headers["ce-type"], &headers["content-type"]),
        (&"sinew.call.dead".parse().unwrap(), &"application/json".parse().unwrap())
    );
    let told: Value = serde_json::from_slice(&body).unwrap();
    assert!(told["reason"].as_str().unwrap().contains("no such month"), "{told}");
}

#[tokio::test]
async fn a_callback_that_is_not_allowed_is_refused_at_once() {
    let later = later();
    let refused = later.call("hello", &[("x-callback-url", "http://10.0.0.1/")]).await;
    assert_eq!(refused.status, 400);
    assert!(refused.json()["type"].as_str().unwrap().ends_with(":bad-callback"));
    assert!(refused.json()["detail"].as_str().unwrap().contains("X-Callback-Url"), "it says which header");
    let metrics = later.house.get("/metrics").await;
    assert!(String::from_utf8_lossy(&metrics.body).contains("sinew_queue_taken_total 0"));
}
