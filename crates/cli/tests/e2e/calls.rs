// SPDX-License-Identifier: Apache-2.0
//! Functions that call functions: what they pass and get, what they are told
//! when that fails, how it ends, and what is seen of it afterwards.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home};

const MANIFEST: &str = r#"
[functions.ask]
runtime = "python"
handler = "ask.handler"
timeout = "20s"

[functions.asknode]
runtime = "node"
handler = "ask.handler"
timeout = "20s"

[functions.echo]
runtime = "python"
handler = "echo.handler"

[functions.echonode]
runtime = "node"
handler = "echo.handler"

[functions.sum]
runtime = "python"
handler = "echo.total"
pure = true

[functions.pureask]
runtime = "python"
handler = "ask.handler"
pure = true

[functions.again]
runtime = "python"
handler = "ask.handler"
concurrency = 1

[functions.there]
runtime = "python"
handler = "ask.handler"
concurrency = 1

[functions.back]
runtime = "node"
handler = "ask.handler"
concurrency = 1

[functions.link1]
runtime = "node"
handler = "ask.handler"
concurrency = 1

[functions.link2]
runtime = "node"
handler = "ask.handler"
concurrency = 1

[functions.link3]
runtime = "node"
handler = "ask.handler"
concurrency = 1

[functions.hurried]
runtime = "python"
handler = "ask.handler"
timeout = "1s"
"#;

/// Does what the event says, and tells how it failed.
const ASK_PY: &str = r#"
import base64, sinew, sys, threading, time
from concurrent.futures import ThreadPoolExecutor

def is_waiting(thread):
    """Whether it has called, and waits for the answer."""
    frame = sys._current_frames().get(thread.ident)
    while frame and frame.f_code.co_name != "wait":
        frame = frame.f_back
    return frame is not None

async def later(event):
    return await sinew.call_async(event["name"], event.get("payload"))

def handler(event, context):
    print("asks for", event["name"])
    how = event.get("how")
    try:
        if how == "bytes":
            return base64.b64encode(sinew.call(event["name"], bytes(range(256)))).decode()
        if how == "threads":
            with ThreadPoolExecutor(8) as pool:
                return list(pool.map(lambda n: sinew.call(event["name"], {"n": n}), range(20)))
        if how == "left":
            # Nobody waits for it: it ends with this request.
            thread = threading.Thread(target=lambda: sinew.call(event["name"], event["payload"]))
            thread.start()
            while not is_waiting(thread):
                time.sleep(0.005)
            return "left"
        if how == "async":
            import asyncio
            return asyncio.run(later(event))
        return sinew.call(event["name"], event.get("payload"))
    except sinew.CallError as error:
        return {"failed": str(error), "status": error.status, "id": error.request_id, "component": error.component}
    except Exception as error:
        return {"refused": str(error)}
"#;

const ASK_JS: &str = r#"
exports.handler = async (event) => {
  console.log("asks for", event.name);
  try {
    if (event.how === "bytes") {
      return (await sinew.call(event.name, Buffer.from([...Array(256).keys()]))).toString("base64");
    }
    if (event.how === "all") {
      return await Promise.all([...Array(20).keys()].map((n) => sinew.call(event.name, { n })));
    }
    if (event.how === "many") return await Promise.all([...Array(70).keys()].map(() => sinew.call(event.name, {})));
    return await sinew.call(event.name, event.payload);
  } catch (error) {
    if (!(error instanceof sinew.CallError)) return { refused: error.message };
    return { failed: error.message, status: error.status, id: error.requestId, component: error.component };
  }
};
"#;

const ECHO_PY: &str = r#"
import time

def handler(event, context):
    if isinstance(event, dict) and event.get("do") == "raise":
        print("about to fail")
        raise ValueError("not today")
    if isinstance(event, dict) and event.get("do") == "sleep":
        time.sleep(30)
    if isinstance(event, dict) and event.get("do") == "none":
        return None
    if isinstance(event, dict) and event.get("do") == "status":
        return {"statusCode": 404, "body": "no such thing"}
    return event

def total(event):
    return sum(event)
"#;

const ECHO_JS: &str = "exports.handler = async (event) => (event && event.do === 'raise' ? Promise.reject(new RangeError('not today')) : event && event.do === 'none' ? null : event);\n";

fn deployed(node: &Node) {
    let folder = node.home.join("calls");
    std::fs::create_dir_all(&folder).unwrap();
    for (file, text) in [
        ("sinew.toml", MANIFEST),
        ("ask.py", ASK_PY),
        ("ask.js", ASK_JS),
        ("echo.py", ECHO_PY),
        ("echo.js", ECHO_JS),
    ] {
        std::fs::write(folder.join(file), text).unwrap();
    }
    node.ok(&["deploy", folder.to_str().unwrap()]);
}

/// What the node remembers of a request, and of all calls that it led to.
fn records(node: &Node, id: &str) -> Vec<Value> {
    let logs = node.http(&format!("GET /v1/logs?request_id={id}"), b"");
    let logs: Value = serde_json::from_str(logs.split_once("\r\n\r\n").unwrap().1).unwrap();
    logs["records"].as_array().unwrap().clone()
}

#[test]
fn functions_call_functions_of_any_language_and_the_tree_is_seen() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node);
    let everything = json!({"text": "grüße", "list": [1, 2.5, null, true], "nested": {"a": []}});
    for caller in ["ask", "asknode"] {
        for callee in ["echo", "echonode"] {
            for payload in [everything.clone(), json!("a text"), json!(["x".repeat(200_000)])] {
                let asked = json!({"name": callee, "payload": payload});
                let (status, answer) = node.call(caller, &asked);
                assert_eq!((status, &answer), (200, &payload), "{caller} {callee}");
            }
            let none = node.call(caller, &json!({"name": callee, "payload": {"do": "none"}}));
            assert_eq!(none.0, 204, "{caller} {callee}: {none:?}");
            let (_, bytes) = node.call(caller, &json!({"name": callee, "how": "bytes"}));
            assert!(bytes.as_str().unwrap().starts_with("AAECAwQFBg"), "{caller} {callee}: {bytes}");
        }
    }
    let numbers: Vec<Value> = (0..20).map(|n| json!({"n": n})).collect();
    assert_eq!(node.call("ask", &json!({"name": "echo", "how": "threads"})), (200, json!(numbers)));
    assert_eq!(node.call("ask", &json!({"name": "echo", "how": "async", "payload": "x"})), (200, json!("x")));
    assert_eq!(node.call("asknode", &json!({"name": "echonode", "how": "all"})), (200, json!(numbers)));

    let through = json!({"name": "asknode", "payload": {"name": "echo", "payload": 7}});
    let answer = node.http("POST /function/ask", through.to_string().as_bytes());
    assert!(answer.ends_with("\r\n\r\n7"), "{answer}");
    let id = answer.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap();
    let records = records(&node, id);
    let of = |name: &str| records.iter().find(|record| record["function"] == name).unwrap();
    assert_eq!(records.len(), 3, "{records:?}");
    assert_eq!(of("ask")["parent"], Value::Null);
    assert_eq!(of("asknode")["parent"], of("ask")["span"]);
    assert_eq!(of("echo")["parent"], of("asknode")["span"]);
    assert!(of("asknode")["log"].as_str().unwrap().contains("asks for echo"), "{records:?}");
    assert!(of("asknode")["begun_us"].as_u64() >= of("ask")["begun_us"].as_u64());
    let told = node.ok(&["logs", "--request-id", id]);
    assert_eq!(told.matches(id).count(), 3, "{told}");
    let tree = node.ok(&["describe", "--request-id", id]);
    let lines: Vec<&str> = tree.lines().filter(|line| line.contains("@1")).collect();
    for (line, (indent, name)) in
        lines.iter().zip([("", "ask@1"), ("└─ ", "asknode@1"), ("   └─ ", "echo@1")])
    {
        assert!(line.starts_with(&format!("{indent}{name}")) && line.contains("200"), "{tree}");
    }
    assert_eq!(lines.len(), 3, "{tree}");
}

/// They have no instance in common: each of them has its own place.
#[test]
fn functions_of_one_code_call_each_other() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node);
    let event = json!({"name": "link2", "payload": {"name": "link3", "payload": {"name": "echonode", "payload": {"n": 1}}}});
    let direct = node.call("echonode", &json!({"n": 1}));
    for _ in 0..3 {
        assert_eq!(node.call("link1", &event), direct);
    }
}

#[test]
fn what_fails_in_a_function_that_is_called_is_told_to_the_caller() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node);
    for caller in ["ask", "asknode"] {
        let (_, told) = node.call(caller, &json!({"name": "echo", "payload": {"do": "raise"}}));
        let text = told["failed"].as_str().unwrap();
        for part in
            ["calling echo failed", "version 1", "ValueError: not today", "echo.py", "component function"]
        {
            assert!(text.contains(part), "{caller}, {part}: {text}");
        }
        assert_eq!(told["status"], 500);
        let records = records(&node, told["id"].as_str().unwrap());
        let callee = records.iter().find(|record| record["function"] == "echo").unwrap();
        assert!(callee["failure"].as_str().unwrap().contains("not today"), "{records:?}");
        assert!(callee["log"].as_str().unwrap().contains("about to fail"), "{records:?}");

        let (_, told) = node.call(caller, &json!({"name": "echo", "payload": {"do": "status"}}));
        assert!(told["failed"].as_str().unwrap().contains("status 404: no such thing"), "{told}");
        let (_, told) = node.call(caller, &json!({"name": "ekho"}));
        let text = told["failed"].as_str().unwrap();
        assert!(
            text.contains("there is no function \"ekho\"") && text.contains("did you mean echo?"),
            "{text}"
        );
        assert_eq!(told["status"], 404);
        let (_, told) = node.call(caller, &json!({"name": "x".repeat(1000)}));
        assert!(told["refused"].as_str().unwrap().contains("128 bytes"), "{told}");
        let (_, told) = node.call(caller, &json!({"name": "echo\r\nx: y"}));
        assert_eq!(told["status"], 404, "{told}");
    }
    let (_, told) = node.call("asknode", &json!({"name": "echo", "how": "many"}));
    assert!(told["refused"].as_str().unwrap().contains("64 calls"), "{told}");
    // The caller goes on after all of that.
    assert_eq!(node.call("asknode", &json!({"name": "echo", "payload": 1})), (200, json!(1)));
}

#[test]
fn pure_functions_are_called_once_and_call_none() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node);
    let asked = json!({"name": "sum", "payload": [1, 2, 3]});
    for start in ["forked", "memo"] {
        let answer = node.http("POST /function/ask", asked.to_string().as_bytes());
        assert!(answer.ends_with("\r\n\r\n6"), "{answer}");
        let id = answer.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap();
        let records = records(&node, id);
        let callee = records.iter().find(|record| record["function"] == "sum").unwrap();
        let caller = records.iter().find(|record| record["function"] == "ask").unwrap();
        assert!(caller["span"].is_string() && callee["parent"] == caller["span"], "{records:?}");
        let is_warm = callee["start"] == "prewarmed" || callee["start"] == "warm";
        assert!(callee["start"] == start || (start == "forked" && is_warm), "{start}: {callee}");
    }
    let (_, told) = node.call("pureask", &asked);
    let text = told["failed"].as_str().unwrap();
    assert!(text.contains("a pure function calls no other") && text.contains("pure = true"), "{text}");
}

#[test]
fn what_would_wait_for_itself_is_refused_and_the_fleet_goes_on() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node);
    let begun = Instant::now();
    let (_, told) = node.call("again", &json!({"name": "again", "payload": {"name": "echo", "payload": 1}}));
    let text = told["failed"].as_str().unwrap();
    assert!(text.contains("again cannot call again now") && text.contains("all of its 1 places"), "{text}");
    assert!(text.contains("raise concurrency"), "{text}");
    let round =
        json!({"name": "back", "payload": {"name": "there", "payload": {"name": "echo", "payload": 1}}});
    let (_, told) = node.call("there", &round);
    let text = told["failed"].as_str().unwrap();
    assert!(text.contains("back cannot call there now") && text.contains("is called back"), "{text}");
    // Both ways at once: whoever closes the cycle is refused, and the other one goes on.
    let ways = [("there", "back"), ("back", "there")];
    std::thread::scope(|scope| {
        for (from, to) in ways.into_iter().cycle().take(8) {
            let node = &node;
            scope.spawn(move || {
                let asked = json!({"name": to, "payload": {"name": "echo", "payload": 1}});
                let (status, told) = node.call(from, &asked);
                let is_refused = told["failed"].as_str().is_some_and(|text| text.contains("cannot call"));
                assert!(status == 200 && (told == json!(1) || is_refused), "{told}");
            });
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(20), "some waited for their deadline");
    // Where there are places enough, it is the depth that ends it.
    let deep = (0..20)
        .fold(json!({"name": "echo", "payload": 1}), |inner, _| json!({"name": "ask", "payload": inner}));
    let (_, told) = node.call("ask", &deep);
    let text = told["failed"].as_str().unwrap();
    assert!(text.contains("16 calls") || text.contains("cannot call ask now"), "{text}");
    let twice = json!({"name": "ask", "payload": {"name": "echo", "payload": 1}});
    assert_eq!(node.call("ask", &twice), (200, json!(1)), "a control: a function may call itself");
}

#[test]
fn calls_end_with_their_caller() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node);
    let asleep = json!({"name": "echo", "payload": {"do": "sleep"}});
    let begun = Instant::now();
    // Both have the same deadline: it may hear of the other one's before its own.
    let (status, told) = node.call("hurried", &asleep);
    assert!(status == 504 || told["status"] == 504, "{told}");
    let left = json!({"name": "echo", "payload": {"do": "sleep"}, "how": "left"});
    assert_eq!(node.call("ask", &left).1, json!("left"));
    // Long before it would wake up, what was called is over. The second call may have
    // been left before it began: then it is in no log.
    let shown = |request: &str| -> Value {
        serde_json::from_str(node.http(request, b"").split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    loop {
        let logs = shown("GET /v1/logs?function=echo");
        let records = logs["records"].as_array().unwrap();
        let busy = shown("GET /v1/functions/echo")["instances"]["busy"].as_u64().unwrap();
        if busy == 0 && !records.is_empty() {
            let ended = records.iter().all(|record| {
                matches!(record["status"].as_u64(), Some(499 | 504)) && record["parent"].is_string()
            });
            assert!(ended && records.len() <= 2, "{logs}");
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(15), "it runs on: {logs}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(node.call("ask", &json!({"name": "echo", "payload": 5})), (200, json!(5)));
}

#[test]
fn an_executable_calls_functions_at_an_address_of_its_own() {
    if !is_root() || !std::path::Path::new("/usr/bin/curl").exists() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node);
    let script = "#!/bin/sh\ncurl -s -H 'content-type: application/json' --data-binary @- $SINEW_URL/function/echonode\n";
    node.ok(&["deploy", node.script("shell", "mode = \"stdin\"\n", script).to_str().unwrap()]);
    let everything = json!({"text": "grüße", "list": [1, 2.5, null, true]});
    assert_eq!(node.call("shell", &everything), (200, everything));
    let (_, problem) = node.call("shell", &json!({"do": "raise"}));
    assert_eq!((&problem["status"], &problem["component"]), (&json!(500), &json!("function")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("RangeError: not today"), "{problem}");
    let records = records(&node, problem["request_id"].as_str().unwrap());
    assert_eq!(records.len(), 2, "{records:?}");
    // And is called by others as any function is.
    let asked = json!({"name": "shell", "payload": {"a": 1}});
    assert_eq!(node.call("ask", &asked), (200, json!({"a": 1})));
}

#[test]
fn the_example_does_what_it_says() {
    if !is_root() || !std::path::Path::new("/usr/bin/curl").exists() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    node.ok(&["deploy", concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/calls")]);
    let (status, told) = node.call("order", &json!({"items": ["tea", "milk", "gold"]}));
    let order = json!({"cents": 470, "prices": {"tea": 350, "milk": 120}, "unknown": ["gold"]});
    assert_eq!((status, told), (200, order));
    let id = "0198c0de-0000-7000-8000-00000000ca11";
    let headers = format!("x-request-id: {id}\r\n");
    let printed =
        super::http_with(&node.address, "POST /function/receipt", &headers, br#"{"items":["tea"]}"#);
    assert!(printed.contains("# Your order\n{\"cents\":350,"), "{printed}");
    // What came by a line is written down a little later.
    let begun = Instant::now();
    loop {
        let tree = node.ok(&["describe", "--request-id", id]);
        if ["receipt", "order", "price"].iter().all(|function| tree.contains(function)) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{tree}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
