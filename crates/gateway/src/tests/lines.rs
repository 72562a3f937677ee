// SPDX-License-Identifier: Apache-2.0
//! Calls on lines: who may say what of them, and how they are written down.

use std::time::Duration;

use ::objects::FailureCode;
use serde_json::{Value, json};

use super::nested::{Calls, PARENT, calls, head, request};
use crate::{LineCall, LineEnd, NestedRequest, Printed, Spent};

const TRACE: [u8; 16] =
    [0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c];

/// The seal of a request that the gateway made a call for, as bytes.
async fn sealed(calls: &Calls) -> [u8; 16] {
    assert_eq!(calls.made(request("resize", &head(0))).await.status, 201);
    let (told, _) = calls.fake.last_call();
    let seal = u128::from_str_radix(told["seal"].as_str().unwrap(), 16).unwrap();
    seal.to_be_bytes()
}

fn call(seal: [u8; 16]) -> LineCall<'static> {
    LineCall {
        request_id: "r-1",
        seal,
        trace: TRACE,
        flags: 1,
        parent: 0xb7ad_6b71_6920_3331,
        span: 7,
        status: 404,
        received: 3,
        sent: 4,
        ended_ago: Duration::from_millis(1),
    }
}

#[tokio::test]
async fn a_call_on_a_line_is_written_down_for_its_request_if_its_seal_is_right() {
    let calls = calls();
    let seal = sealed(&calls).await;
    let offer = calls.made(request("resize", &head(0))).await.line.unwrap();
    assert_eq!((offer.served().name.as_str(), offer.caller(), offer.is_whole()), ("resize", "caller", true));
    let spent = Spent {
        running: Duration::from_micros(70),
        cpu: Some(Duration::from_micros(50)),
        ..Spent::default()
    };
    offer.record(&call(seal), &spent, Printed::error(b"printed".to_vec()));
    let of_another = LineCall { request_id: "r-2", ..call(seal) };
    offer.record(&of_another, &spent, Printed::default());
    let in_another_trace = LineCall { trace: [1; 16], ..call(seal) };
    offer.record(&in_another_trace, &spent, Printed::default());
    let records: Vec<Value> =
        calls.records().await.into_iter().filter(|record| record["start"] == "line").collect();
    assert_eq!(records.len(), 3, "what was served counts, whoever it was for");
    let first = &records[0];
    assert_eq!(
        (&first["request_id"], &first["parent"], &first["span"], &first["status"], &first["log"]),
        (&json!("r-1"), &json!(PARENT[36..52]), &json!("0000000000000007"), &json!(404), &json!("printed"))
    );
    assert_eq!((&first["total_us"], &first["usage"]["cpu_us"]), (&json!(70), &json!(50)));
    for forged in &records[1..] {
        assert!(forged["request_id"] != "r-1" && forged["request_id"] != "r-2", "{forged}");
        assert!(forged.get("parent").is_none(), "{forged}");
    }
}

#[tokio::test]
async fn who_serves_a_line_asks_for_the_request_that_it_was_told_and_no_other() {
    let calls = calls();
    let seal = u128::from_be_bytes(sealed(&calls).await);
    let asked = |id: &str, function: &str, seal: u128| {
        let line = json!({
            "request_id": id, "function": function, "depth": 2, "seal": format!("{seal:032x}"),
            "deadline_ms": u64::MAX,
        });
        let head = format!("{line}\n{}", json!({"headers": [["traceparent", PARENT]]}));
        NestedRequest { on_line: Some("caller".to_owned()), ..request("resize", &head) }
    };
    assert_eq!(calls.made(asked("r-1", "caller", seal)).await.status, 201);
    for forged in
        [asked("r-1", "caller", seal ^ 1), asked("r-2", "caller", seal), asked("r-1", "other", seal)]
    {
        assert_eq!(calls.refused(forged, 400).await.0, "bad-caller");
    }
    let late = NestedRequest {
        on_line: Some("caller".to_owned()),
        ..request(
            "resize",
            &String::from_utf8(asked("r-1", "caller", seal).caller_head)
                .unwrap()
                .replace(&u64::MAX.to_string(), "5"),
        )
    };
    assert_eq!(calls.refused(late, 504).await.0, "caller-too-late");
}

#[tokio::test]
async fn who_was_called_within_another_one_asks_for_the_request_of_that_one_deeper_and_with_no_more_time() {
    let calls = calls();
    let seal = u128::from_be_bytes(sealed(&calls).await);
    let head = |id: &str, depth: u32, deadline_ms: u64, traceparent: &str| {
        let call = json!({
            "request_id": id, "function": "caller", "depth": depth, "seal": format!("{seal:032x}"),
            "deadline_ms": deadline_ms,
        });
        format!("{call}\n{}", json!({"headers": [["traceparent", traceparent]]}))
    };
    let most = u64::MAX - 5;
    let asked = |id: &str, depth: u32, deadline_ms: u64, root_parent: &str| NestedRequest {
        on_line: Some("caller".to_owned()),
        root_head: Some(head("r-1", 2, most, root_parent).into_bytes()),
        ..request("resize", &head(id, depth, deadline_ms, PARENT))
    };
    // The call around it has a span of its own.
    let root = PARENT.replace("b7ad", "0001");
    assert_eq!(calls.made(asked("r-1", 3, most, &root)).await.status, 201);
    let other = PARENT.replace("0af7", "0001");
    for forged in [
        asked("r-1", 2, most, &root),
        asked("r-1", 0, most, &root),
        asked("r-1", 3, most + 1, &root),
        asked("r-1", 3, most, &other),
        asked("r-1", 3, most, "none"),
    ] {
        assert_eq!(calls.refused(forged, 400).await.0, "bad-caller");
    }
}

#[tokio::test]
async fn the_end_of_a_line_is_the_end_of_the_call_that_was_begun_on_it() {
    let calls = calls();
    let ended = |function: &str, code| {
        let end = LineEnd {
            result: Err((code, "it ended".to_owned())),
            log: Printed::error(b"last words".to_vec()),
            spent: None,
            is_within: false,
        };
        NestedRequest { begun: Some(end), ..request(function, &head(0)) }
    };
    let (kind, problem) = calls.refused(ended("resize", FailureCode::Trap), 500).await;
    assert_eq!(kind, "failure-trap");
    assert_eq!(problem["detail"], "function resize, version 1: it ended");
    assert_eq!(calls.refused(ended("resize", FailureCode::Deadline), 504).await.0, "failure-deadline");
    let records = calls.records().await;
    assert_eq!(
        (&records[0]["log"], &records[0]["status"]),
        (&json!("last words"), &json!(500)),
        "{records:?}"
    );
    // One that may be repeated is, as if it had been begun by the node.
    calls.fake.functions.add("again", 1, |served| served.is_idempotent = true);
    assert_eq!(calls.made(ended("again", FailureCode::Trap)).await.status, 201);
    assert_eq!(calls.refused(ended("again", FailureCode::Deadline), 504).await.0, "failure-deadline");
}

#[tokio::test]
async fn what_depends_on_the_node_has_no_line() {
    let calls = calls();
    calls.fake.functions.add("pure", 1, |served| served.is_pure = true);
    calls.fake.functions.add("streams", 1, |served| served.streams_body = true);
    for name in ["pure", "streams", "resize:1", "caller"] {
        calls.fake.functions.add("caller", 1, |_| {});
        let end = calls.made(request(name, &head(0))).await;
        assert!(end.line.is_none(), "{name}: {}", end.status);
    }
    // Versions that share the name's requests are told apart when the line is opened.
    calls.fake.functions.add("shared", 2, |_| {});
    assert!(!calls.made(request("shared", &head(0))).await.line.unwrap().is_whole());
}
