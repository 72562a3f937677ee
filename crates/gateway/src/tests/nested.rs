// SPDX-License-Identifier: Apache-2.0
//! Calls of functions by functions: what is handed down, what is refused, what
//! is written down.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ::objects::FailureCode;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::fake::{Fake, Script};
use super::{Arc, House, Options};
use crate::{Access, Door, Gateway, NestedCall, NestedCalls, NestedEnd, NestedRequest};

pub(super) const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

pub(super) struct Calls {
    pub(super) fake: Arc<Fake>,
    gateway: Gateway,
    calls: NestedCalls,
}

pub(super) fn calls() -> Calls {
    let fake = Arc::new(Fake::new());
    let gateway = Gateway::new(fake.clone(), Options::default());
    let calls = gateway.nested_calls();
    fake.functions.add("resize", 1, |_| {});
    fake.gives(r#"{"status":201,"headers":[["content-type","a/b"],["x-a","b"]]}"#, b"body");
    Calls { fake, gateway, calls }
}

pub(super) fn head(depth: u32) -> String {
    let call = json!({"request_id": "r-1", "function": "caller", "depth": depth});
    format!("{call}\n{}", json!({"headers": [["traceparent", PARENT]]}))
}

pub(super) fn request(function: &str, head: &str) -> NestedRequest {
    NestedRequest {
        function: function.to_owned(),
        content_type: "application/json".to_owned(),
        body: b"[1]".to_vec(),
        caller_head: head.as_bytes().to_vec(),
        deadline: Instant::now() + Duration::from_secs(5),
        on_line: None,
        root_head: None,
        begun: None,
    }
}

impl Calls {
    fn begin(&self, request: NestedRequest) -> (NestedCall, oneshot::Receiver<NestedEnd>) {
        let (sender, receiver) = oneshot::channel();
        (self.calls.begin(request, |end| drop(sender.send(end))), receiver)
    }

    pub(super) async fn made(&self, request: NestedRequest) -> NestedEnd {
        let (_call, end) = self.begin(request);
        end.await.unwrap()
    }

    /// The kind of the problem, and the problem.
    pub(super) async fn refused(&self, request: NestedRequest, status: u16) -> (String, Value) {
        let end = self.made(request).await;
        let problem: Value = serde_json::from_slice(&end.body).unwrap();
        assert_eq!(
            (end.status, end.content_type.as_str()),
            (status, "application/problem+json"),
            "{problem}"
        );
        let kind = problem["type"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
        (kind, problem)
    }

    pub(super) async fn records(&self) -> Vec<Value> {
        let router = self.gateway.router(Door::Private, Access::Owner);
        let house = House { fake: self.fake.clone(), router };
        house.get("/v1/logs").await.json()["records"].as_array().unwrap().clone()
    }
}

#[tokio::test]
async fn a_call_hands_down_what_its_caller_has() {
    let calls = calls();
    let end = calls.made(request("resize", &head(2))).await;
    assert_eq!((end.status, end.content_type.as_str(), &end.body[..]), (201, "a/b", &b"body"[..]));
    let (told, body) = calls.fake.last_call();
    assert_eq!(
        (&told["request_id"], &told["caller"], &told["depth"]),
        (&json!("r-1"), &json!("caller"), &json!(3))
    );
    assert_eq!(
        (&told["source"], &told["method"], body.as_slice()),
        (&json!("call"), &json!("POST"), &b"[1]"[..])
    );
    let headers = told["headers"].as_array().unwrap();
    let traceparent = headers.iter().find(|header| header[0] == "traceparent").unwrap()[1].as_str().unwrap();
    assert!(traceparent.starts_with(&PARENT[..36]) && traceparent != PARENT, "{traceparent}");
    assert!(headers.contains(&json!(["content-type", "application/json"])), "{told}");
    // It has the caller's time, which is less than its own.
    let asked = calls.fake.requests.lock().unwrap().last().unwrap().deadline.unwrap();
    assert!(asked <= Duration::from_secs(5), "{asked:?}");
    let record = calls.records().await.swap_remove(0);
    assert_eq!((&record["request_id"], &record["parent"]), (&json!("r-1"), &json!("b7ad6b7169203331")));
    assert_eq!(record["span"], traceparent[36..52]);
}

#[tokio::test]
async fn what_may_not_be_called_is_refused_with_a_reason() {
    let calls = calls();
    let (kind, problem) = calls.refused(request("resise", &head(0)), 404).await;
    assert_eq!(
        (kind.as_str(), &problem["suggestion"]),
        ("function-not-found", &json!("did you mean resize?"))
    );
    assert_eq!(problem["request_id"], "r-1");
    assert_eq!(calls.refused(request("resize:9", &head(0)), 404).await.0, "function-not-found");
    assert_eq!(calls.refused(request("resize", &head(16)), 508).await.0, "calls-too-deep");
    assert_eq!(calls.refused(request("resize", &head(u32::MAX)), 508).await.0, "calls-too-deep");
    let pure = NestedRequest { caller_head: Vec::new(), ..request("resize", &head(0)) };
    assert_eq!(calls.refused(pure, 403).await.0, "pure-call");
    let forged = NestedRequest { caller_head: b"{\"depth\":".to_vec(), ..request("resize", &head(0)) };
    assert_eq!(calls.refused(forged, 400).await.0, "bad-caller");
    let half = NestedRequest { caller_head: b"{\"depth\":1}".to_vec(), ..request("resize", &head(0)) };
    assert_eq!(calls.refused(half, 400).await.0, "bad-caller");
    let split = NestedRequest { content_type: "a/b\r\nx: y".to_owned(), ..request("resize", &head(0)) };
    assert_eq!(calls.refused(split, 400).await.0, "bad-content-type");
    let late = NestedRequest { deadline: Instant::now(), ..request("resize", &head(0)) };
    assert_eq!(calls.refused(late, 504).await.0, "caller-too-late");
    assert!(calls.records().await.is_empty(), "none of it ran");
    // The control: the deepest that there may be.
    assert_eq!(calls.made(request("resize", &head(15))).await.status, 201);
}

#[tokio::test]
async fn a_call_along_a_cycle_does_not_wait_for_a_place() {
    let calls = calls();
    calls.fake.functions.add("caller", 1, |_| {});
    calls.fake.functions.is_full.store(true, Ordering::SeqCst);
    assert_eq!(calls.made(request("resize", &head(0))).await.status, 201, "it may wait: nothing leads back");
    let back = format!("{}\n{{}}", json!({"request_id": "r-1", "function": "resize"}));
    let (kind, problem) = calls.refused(request("caller", &back), 503).await;
    assert_eq!(kind, "call-waits-for-itself");
    assert!(problem["detail"].as_str().unwrap().contains("resize cannot call caller now"), "{problem}");
    assert_eq!(calls.refused(request("resize", &head(0)), 503).await.0, "call-waits-for-itself");
    calls.fake.functions.is_full.store(false, Ordering::SeqCst);
    assert_eq!(calls.made(request("caller", &back)).await.status, 201, "where there is a place it runs");
}

#[tokio::test]
async fn a_failure_is_a_problem_that_names_function_and_reason() {
    let calls = calls();
    *calls.fake.otherwise.lock().unwrap() = Some(Script::Fails(FailureCode::Trap));
    let (_, problem) = calls.refused(request("resize", &head(0)), 500).await;
    assert_eq!((&problem["component"], &problem["request_id"]), (&json!("function"), &json!("r-1")));
    assert_eq!(problem["detail"], "function resize, version 1: why");
    assert_eq!(calls.records().await[0]["failure"], "function resize, version 1: why");
}

#[tokio::test]
async fn a_call_ends_with_its_caller() {
    let calls = calls();
    *calls.fake.otherwise.lock().unwrap() = Some(Script::Hangs);
    let (call, end) = calls.begin(request("resize", &head(0)));
    while calls.fake.requests.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    drop(call);
    assert!(end.await.is_err(), "nobody is told");
    while calls.records().await.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(calls.fake.cancelled.load(Ordering::SeqCst), 1);
    let record = calls.records().await.swap_remove(0);
    assert_eq!(
        (&record["status"], &record["failure"]),
        (&json!(499), &json!("its caller ended before the answer"))
    );
}
