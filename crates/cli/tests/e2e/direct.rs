// SPDX-License-Identifier: Apache-2.0
//! Calls of functions by functions on lines, without the node on their way: the same
//! answers, failures and records as by the node.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home, http_with};

/// What functions are written in: the first one, the second one, and all others.
type Languages = [&'static str; 3];

const ALIKE: [Languages; 3] = [["python"; 3], ["node"; 3], ["native"; 3]];
const MIXED: [Languages; 5] = [
    ["python", "node", "python"],
    ["node", "python", "node"],
    ["native", "python", "native"],
    ["python", "native", "node"],
    ["node", "native", "python"],
];

fn manifest([first, second, others]: Languages) -> String {
    let one = |name: &str, language: &str, more: &str| {
        let (runtime, handler) = match language {
            "native" => ("executable\"\nmode = \"native", "chain"),
            _ => (language, "chain.handler"),
        };
        format!("[functions.{name}]\nruntime = \"{runtime}\"\nhandler = \"{handler}\"\n{more}\n")
    };
    one("first", first, "timeout = \"60s\"")
        + &one("second", second, "timeout = \"60s\"\nconcurrency = 1")
        + &one("third", others, "timeout = \"60s\"\nconcurrency = 1")
        + &one("brief", others, "timeout = \"2s\"")
        + &one("retried", others, "timeout = \"60s\"\nidempotent = true")
        + &one("shared", "node", "timeout = \"60s\"\nconcurrency = 1\nrequests-per-instance = 16")
}

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
    if do == "leave":
        time.sleep(0.1)
        threading.Thread(target=sinew.call, args=("third", {"do": "sleep", "s": 50}), daemon=True).start()
        time.sleep(0.3)
        return {"left": True}
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

/// The same in JavaScript; and several calls at once.
const CHAIN_JS: &str = r#"
const VERSION = 1;
let served = 0;
const slept = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

exports.handler = async (event, context) => {
  served++;
  if (event.then) return called(event.then, event.times ?? 1, event.last, event.at_once);
  switch (event.do) {
    case "version": return { version: VERSION, pid: process.pid, served };
    case "print": console.log("printed by", context.functionName); break;
    case "raise": console.log("about to fail"); throw new RangeError("not today");
    case "reject": Promise.reject(new RangeError("nobody caught this")); break;
    case "exit": process.exit(3);
    case "sleep": await slept(event.s * 1000); break;
    case "leave": await slept(100); sinew.call("third", { do: "sleep", s: 50 }); return { left: true };
    case "status": return { statusCode: 404, headers: { "content-type": "text/x" }, body: "no such thing" };
    case "long": return "y".repeat(200_000);
    case "none": return null;
  }
  return { event, id: context.awsRequestId, left: context.getRemainingTimeInMillis(), function: context.functionName };
};

async function called([name, event], times, last, atOnce) {
  try {
    let told;
    for (let time = 0; time < times; time++) told = await sinew.call(name, event);
    if (atOnce) return await Promise.all(Array.from({ length: atOnce }, (_, at) => sinew.call(name, { at })));
    return last ? await sinew.call(name, last) : told;
  } catch (error) {
    if (!(error instanceof sinew.CallError)) throw error;
    return { failed: error.message, status: error.status, id: error.requestId, component: error.component, body: error.body.length };
  }
}
"#;

fn deployed(node: &Node, languages: Languages, version: u32) {
    let folder = node.home.join("direct");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("sinew.toml"), manifest(languages)).unwrap();
    for (file, source) in [("chain.py", CHAIN), ("chain.js", CHAIN_JS)] {
        let source = source.replace("VERSION = 1", &format!("VERSION = {version}"));
        std::fs::write(folder.join(file), source).unwrap();
    }
    if languages.contains(&"native") {
        compile(node, &folder, version);
    }
    node.ok(&["deploy", folder.to_str().unwrap()]);
}

/// The same in C, with what `sinew sdk` writes.
fn compile(node: &Node, folder: &Path, version: u32) {
    let source = include_str!("chain.c").replace("VERSION 1", &format!("VERSION {version}"));
    std::fs::write(folder.join("chain.c"), source).unwrap();
    node.ok(&["sdk", "c", "--to", folder.to_str().unwrap()]);
    let flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", "chain", "chain.c", "-pthread"];
    // What is undefined ends the program.
    let traps = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"];
    let compiled = Command::new("cc").args(flags).args(traps).current_dir(folder).status();
    assert!(compiled.unwrap().success());
}

/// Does it on a node for each of these, with functions in them.
fn in_each(all: &[Languages], test: impl Fn(&Node, Languages)) {
    if !is_root() {
        return;
    }
    for languages in all {
        let home = home();
        let node = Node::start(home.path());
        deployed(&node, *languages, 1);
        test(&node, *languages);
    }
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
    in_each(&ALIKE, a_chain_is_written_down_whole);
}

#[test]
fn functions_in_python_and_node_call_each_other_on_lines() {
    in_each(&MIXED, a_chain_is_written_down_whole);
}

fn a_chain_is_written_down_whole(node: &Node, _: Languages) {
    let event =
        json!({"then": ["second", {"then": ["third", {"do": "print", "text": "grüße"}]}], "times": 40});
    let told = named(node, "a-chain", "first", &event);
    assert_eq!((&told["id"], &told["function"]), (&json!("a-chain"), &json!("third")));
    assert_eq!(told["event"], event["then"][1]["then"][1]);
    assert!(told["left"].as_u64().unwrap() > 1000, "{told}");
    let records = records(node, "a-chain", 81);
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
    in_each(&ALIKE, what_does_not_go_by_line);
}

#[test]
fn what_does_not_go_by_line_is_told_to_functions_in_other_languages() {
    let languages = [
        ["python", "node", "node"],
        ["node", "python", "python"],
        ["python", "native", "native"],
        ["native", "node", "node"],
    ];
    in_each(&languages, what_does_not_go_by_line);
}

fn what_does_not_go_by_line(node: &Node, _: Languages) {
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
    in_each(&ALIKE, a_line_is_taken_back);
}

fn a_line_is_taken_back(node: &Node, languages: Languages) {
    let calls = json!({"then": ["third", {"do": "version"}], "times": 30});
    let before = named(node, "before", "first", &calls);
    assert!(on_line(&starts(&records(node, "before", 31), "third")) >= 15);
    // Its only instance is at the end of a line.
    let direct = node.call("third", &json!({"do": "version"}));
    assert_eq!((direct.0, &direct.1["pid"]), (200, &before["pid"]));
    deployed(node, languages, 2);
    assert_eq!(named(node, "after", "first", &calls)["version"], 2);
    assert!(on_line(&starts(&records(node, "after", 31), "third")) >= 10);
}

#[test]
fn calls_at_once_of_which_one_finds_the_line_are_all_answered() {
    in_each(&[["node"; 3], ["node", "node", "python"]], |node, _| {
        let event = json!({"then": ["second", {"do": "echo"}], "times": 30, "at_once": 40});
        let told = named(node, "at-once", "first", &event);
        let each: Vec<_> = told.as_array().unwrap().iter().map(|one| one["event"]["at"].clone()).collect();
        assert_eq!(each, (0..40).map(Value::from).collect::<Vec<_>>(), "{told}");
        let starts = starts(&records(node, "at-once", 71), "second");
        let on_line = on_line(&starts);
        assert!(starts.len() == 70 && (15..=67).contains(&on_line), "{on_line} {starts:?}");
    });
}

#[test]
fn what_nobody_catches_on_a_line_fails_its_request_and_what_is_left_behind_is_ended() {
    in_each(&[["node"; 3], ["python"; 3], ["node", "python", "node"], ["native"; 3]], |node, languages| {
        if languages[2] == "node" {
            let rejected = json!({"then": ["third", {"do": "none"}], "times": 30, "last": {"do": "reject"}});
            let told = node.call("first", &rejected);
            let failed = told.1["failed"].as_str().unwrap();
            assert!(told.1["status"] == 500 && failed.contains("nobody caught this"), "{told:?}");
        }
        // By a line, of a caller that does not wait: its callee is free at once.
        let lines = json!({"then": ["third", {"do": "none"}], "times": 30});
        let left = json!({"then": ["second", lines], "last": {"do": "leave"}});
        assert_eq!(named(node, "left", "first", &left), json!({"left": true}));
        let begun = Instant::now();
        assert_eq!(node.call("third", &json!({"do": "version"})).0, 200);
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        // What was left is written down, as by the node: a request of its own caller.
        let records = records(node, "left", 34);
        let spans: Vec<_> = records.iter().filter(|record| record["function"] == "second").collect();
        let left: Vec<_> = records.iter().filter(|record| record["status"] == 499).collect();
        assert!(left.len() == 1 && spans.len() == 2, "{records:?}");
        assert_eq!((&left[0]["function"], &left[0]["start"]), (&json!("third"), &json!("line")), "{left:?}");
        assert!(spans.iter().any(|span| span["span"] == left[0]["parent"]), "{left:?}");
        let failure = left[0]["failure"].as_str().unwrap();
        assert!(failure.contains("its caller ended"), "{left:?}");
    });
}

#[test]
fn a_call_that_would_wait_for_who_serves_on_a_line_is_refused_at_once() {
    in_each(&ALIKE, |node, _| {
        // There are lines from the first to the second and from there to the third one, before anybody
        // knows that the third one calls the second one too.
        let back = json!({"then": ["third", {"then": ["second", {"do": "none"}]}]});
        let calls =
            json!({"then": ["second", {"then": ["third", {"do": "none"}]}], "times": 40, "last": back});
        let begun = Instant::now();
        let told = node.call("first", &calls);
        let failed = told.1["failed"].as_str().unwrap_or_default();
        assert!(told.1["status"] == 503 && failed.contains("places are taken"), "{told:?}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        assert_eq!(node.call("second", &json!({"do": "version"})).0, 200, "it goes on");
    });
}

#[test]
fn no_line_takes_an_instance_that_serves_several_requests_at_once() {
    in_each(&[["node"; 3]], |node, _| {
        // Its only instance is called back by what it calls.
        let back = json!({"then": ["shared", {"do": "version"}]});
        let calls = json!({"then": ["shared", {"then": ["second", back]}], "times": 20});
        let told = named(node, "shared", "first", &calls);
        assert_eq!(told["version"], 1, "{told}");
        let records = records(node, "shared", 61);
        let (shared, second) = (starts(&records, "shared"), starts(&records, "second"));
        assert_eq!((shared.len(), on_line(&shared), second.len()), (40, 0, 20), "{shared:?}");
    });
}
