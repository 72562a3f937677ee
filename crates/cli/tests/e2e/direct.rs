// SPDX-License-Identifier: Apache-2.0
//! Calls of functions by functions on lines, without the node on their way: the same
//! answers, failures and records as by the node.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home, http_with};

const MANIFEST: &str = r#"
[functions.first]
runtime = "python"
handler = "chain.handler"
timeout = "60s"

[functions.second]
runtime = "python"
handler = "chain.handler"
timeout = "60s"

[functions.third]
runtime = "python"
handler = "chain.handler"
timeout = "60s"
concurrency = 1

[functions.brief]
runtime = "python"
handler = "chain.handler"
timeout = "2s"

[functions.retried]
runtime = "python"
handler = "chain.handler"
timeout = "60s"
idempotent = true
"#;

/// Calls what the event says, so often, and tells the last answer or failure.
const CHAIN: &str = r#"
import os, sinew, threading, time

VERSION = 1
SERVED = 0

def handler(event, context):
    global SERVED
    SERVED += 1
    do = event.get("do")
    if "then" in event:
        return called(event["then"], event.get("times", 1), event.get("last"))
    if do == "version":
        return {"version": VERSION, "pid": os.getpid(), "served": SERVED}
    if do == "print":
        print("printed by", context.function_name)
    if do == "raise":
        print("about to fail")
        raise ValueError("not today")
    if do == "exit":
        os._exit(3)
    if do == "sleep":
        time.sleep(event["s"])
    if do == "status":
        return {"statusCode": 404, "headers": {"content-type": "text/x"}, "body": "no such thing"}
    if do == "long":
        return "y" * 200_000
    if do == "none":
        return None
    return {"event": event, "id": context.request_id, "left": context.get_remaining_time_in_millis(),
            "function": context.function_name}

def called(steps, times, last):
    name, event = steps
    try:
        for _ in range(times):
            told = sinew.call(name, event)
        return sinew.call(name, last) if last else told
    except sinew.CallError as error:
        return {"failed": str(error), "status": error.status, "id": error.request_id, "component": error.component,
                "body": len(error.body)}
"#;

fn deployed(node: &Node, source: &str) {
    let folder = node.home.join("direct");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("sinew.toml"), MANIFEST).unwrap();
    std::fs::write(folder.join("chain.py"), source).unwrap();
    node.ok(&["deploy", folder.to_str().unwrap()]);
}

/// What the node remembers of a request, as soon as that are so many calls.
fn records(node: &Node, id: &str, count: usize) -> Vec<Value> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let logs = node.http(&format!("GET /v1/logs?request_id={id}&limit=1000"), b"");
        let logs: Value = serde_json::from_str(logs.split_once("\r\n\r\n").unwrap().1).unwrap();
        let records = logs["records"].as_array().unwrap().clone();
        if records.len() >= count || Instant::now() > deadline {
            assert_eq!(records.len(), count, "{records:?}");
            return records;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Calls a function under a name for the request.
fn named(node: &Node, id: &str, function: &str, event: &Value) -> Value {
    let headers = format!("x-request-id: {id}\r\ncontent-type: application/json\r\n");
    let body = event.to_string();
    let answer = http_with(&node.address, &format!("POST /function/{function}"), &headers, body.as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(body).unwrap()
}

fn starts(records: &[Value], function: &str) -> Vec<String> {
    let its = records.iter().filter(|record| record["function"] == function);
    its.map(|record| record["start"].as_str().unwrap().to_owned()).collect()
}

fn on_line(starts: &[String]) -> usize {
    starts.iter().filter(|start| *start == "line").count()
}

#[test]
fn a_chain_of_calls_takes_lines_and_is_written_down_whole() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node, CHAIN);
    let event =
        json!({"then": ["second", {"then": ["third", {"do": "print", "text": "grüße"}]}], "times": 40});
    let told = named(&node, "a-chain", "first", &event);
    assert_eq!((&told["id"], &told["function"]), (&json!("a-chain"), &json!("third")));
    assert_eq!(told["event"], event["then"][1]["then"][1]);
    assert!(told["left"].as_u64().unwrap() > 1000, "{told}");
    let records = records(&node, "a-chain", 81);
    for function in ["second", "third"] {
        let starts = starts(&records, function);
        assert!(starts.len() == 40 && on_line(&starts) >= 20, "{function}: {starts:?}");
    }
    let spans_of = |function: &str| -> Vec<&Value> {
        records.iter().filter(|record| record["function"] == function).map(|record| &record["span"]).collect()
    };
    let (first, second) = (spans_of("first"), spans_of("second"));
    for record in &records {
        let parents = match record["function"].as_str().unwrap() {
            "second" => &first,
            "third" => &second,
            _ => continue,
        };
        assert!(parents.contains(&&record["parent"]), "{record}");
        assert_eq!(record["status"], 200, "{record}");
        assert!(record["usage"]["received_bytes"].as_u64().unwrap() > 0, "{record}");
        let log = record["log"].as_str().unwrap();
        assert_eq!(log, if record["function"] == "third" { "printed by third\n" } else { "" }, "{record}");
    }
    let described = node.ok(&["describe", "--request-id", "a-chain"]);
    assert!(described.contains("third") && described.contains("second"), "{described}");
    let metrics = node.http("GET /metrics", b"");
    let counted = metrics
        .lines()
        .find(|line| line.contains("requests_total") && line.contains("\"third\"") && line.ends_with(" 40"));
    assert!(counted.is_some(), "{metrics}");
}

#[test]
fn what_does_not_go_by_line_is_told_as_by_the_node() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node, CHAIN);
    let told = |function: &str, times: u32, last: &Value| {
        let event = json!({"then": [function, {"do": "none"}], "times": times, "last": last});
        let mut told = node.call("first", &event);
        // They differ from request to request.
        if !told.1.is_object() {
            return told;
        }
        if let Some(failed) = told.1.get_mut("failed") {
            let text = failed.as_str().unwrap();
            let (before, after) = text.split_once("request ").unwrap_or((text, ")"));
            *failed = json!(format!("{before}{}", after.split_once(')').unwrap().1));
        }
        told.1["id"] = Value::Null;
        told
    };
    for last in [
        json!({"do": "raise"}),
        json!({"do": "exit"}),
        json!({"do": "status"}),
        json!({"do": "long"}),
        json!({"do": "echo", "long": "x".repeat(200_000)}),
    ] {
        // Without calls before it there is no line.
        let (by_node, by_line) = (told("third", 0, &last), told("third", 30, &last));
        let shorter = |told: &(u16, Value)| {
            let mut told = told.clone();
            told.1.as_object_mut().map(|answer| answer.remove("left"));
            told
        };
        if last["do"] == "echo" || last["do"] == "long" {
            assert_eq!(shorter(&by_node), shorter(&by_line), "{}", last["do"]);
        } else {
            assert_eq!(by_node, by_line, "{last}");
            assert!(by_node.1["failed"].is_string(), "{by_node:?}");
        }
    }
    // What takes longer than the function may is ended on a line too.
    let late = told("brief", 30, &json!({"do": "sleep", "s": 30}));
    assert_eq!((late.0, &late.1["status"]), (200, &json!(504)), "{late:?}");
    // What was begun is repeated only where that does no harm.
    let retried = told("retried", 30, &json!({"do": "exit"}));
    assert_eq!(retried.1["status"], 500, "{retried:?}");
}

#[test]
fn a_line_is_taken_back_when_others_need_the_instance_or_another_version_serves() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node, CHAIN);
    let calls = json!({"then": ["third", {"do": "version"}], "times": 30});
    let before = named(&node, "before", "first", &calls);
    assert!(on_line(&starts(&records(&node, "before", 31), "third")) >= 15);
    // Its only instance is at the end of a line.
    let direct = node.call("third", &json!({"do": "version"}));
    assert_eq!((direct.0, &direct.1["pid"]), (200, &before["pid"]));
    deployed(&node, &CHAIN.replace("VERSION = 1", "VERSION = 2"));
    assert_eq!(named(&node, "after", "first", &calls)["version"], 2);
    assert!(on_line(&starts(&records(&node, "after", 31), "third")) >= 10);
}
