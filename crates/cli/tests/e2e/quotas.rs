// SPDX-License-Identifier: Apache-2.0
//! Tenants' quotas of memory and processor time, against functions that use them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home, http_with};

const WORK_PY: &str = r#"
import time, sinew

def handler(event, context):
    end = time.process_time() + event.get("burn", 0)
    while time.process_time() < end:
        pass
    if event.get("call"):
        try:
            return sinew.call("work", event["call"])
        except sinew.CallError as error:
            return {"status": error.status, "reason": error.reason}
    time.sleep(event.get("sleep", 0))
    return {"n": 1}
"#;

fn node_with_work(home: &std::path::Path) -> Node {
    let node = Node::start(home);
    node.deploy(&node.python("work", "timeout = \"30s\"\nconcurrency = 4\nmemory = \"128MiB\"\n", WORK_PY));
    node
}

/// The status, the headers and the body of a call with a key.
fn call(node: &Node, key: &str, event: &Value) -> (u16, String, Value) {
    let headers = format!("X-Api-Key: {key}\r\nContent-Type: application/json\r\n");
    let answer = http_with(&node.address, "POST /function/work", &headers, event.to_string().as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), serde_json::from_str(body).unwrap())
}

#[test]
fn a_tenants_memory_is_that_of_its_chain_of_calls() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = node_with_work(home.path());
    let small = node.ok(&["key", "create", "--scope", "invoke", "--tenant", "small", "--memory", "200MiB"]);
    let large = node.ok(&["key", "create", "--scope", "invoke", "--tenant", "large", "--memory", "256MiB"]);
    let chain = json!({"call": {"sleep": 0}});
    let (status, _, told) = call(&node, &small, &chain);
    assert_eq!((status, &told["status"]), (200, &json!(429)), "{told}");
    assert!(told["reason"].as_str().unwrap().contains("256 MiB of memory with one more of work"), "{told}");
    assert_eq!(call(&node, &large, &chain).2, json!({"n": 1}));
    // Nothing is left of it, also of a call that was ended by its deadline or its client.
    assert_eq!(call(&node, &small, &json!({})).0, 200);
    for line in node.ok(&["key", "list", "-o", "json"]).lines() {
        let key: Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (&key["in_use"]["requests"], &key["in_use"]["memory_bytes"]),
            (&json!(0), &json!(0)),
            "{key}"
        );
        assert!(key["in_use"]["calls"].as_u64() > Some(1), "{key}");
    }
    let table = node.ok(&["key", "list"]);
    assert!(table.contains("MEMORY") && table.contains("200MiB") && table.contains("256MiB"), "{table}");
    assert_eq!(node.terminate(), 0);
}

#[test]
fn a_tenant_that_has_used_its_processor_time_is_refused_and_others_are_not() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = node_with_work(home.path());
    // 0.5 s may be used in advance.
    let key = node.ok(&["key", "create", "--scope", "invoke", "--tenant", "busy", "--cpu", "0.05"]);
    let other = node.ok(&["key", "create", "--scope", "invoke", "--tenant", "calm", "--cpu", "0.05"]);
    // What a function calls is charged to whom it called for.
    assert_eq!(call(&node, &key, &json!({"call": {"burn": 0.7}})).0, 200);
    let begun = Instant::now();
    let (status, head, told) = call(&node, &key, &json!({}));
    assert_eq!((status, &told["quota"]["resource"]), (429, &json!("cpu")), "{told}");
    let seconds: u64 =
        head.split("retry-after: ").nth(1).unwrap().split("\r\n").next().unwrap().parse().unwrap();
    assert!((1..30).contains(&seconds), "{head}");
    assert_eq!(call(&node, &other, &json!({})).0, 200);
    // It is as it said.
    std::thread::sleep(Duration::from_secs(seconds).saturating_sub(begun.elapsed()));
    assert_eq!(call(&node, &key, &json!({})).0, 200);
    assert_eq!(node.terminate(), 0);
}
