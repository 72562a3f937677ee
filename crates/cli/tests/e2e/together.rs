// SPDX-License-Identifier: Apache-2.0
//! Functions that are together, and call each other within one instance: they answer as
//! they do apart, what is seen of them is the same, and a deployment is seen at once.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home};

/// Asks as the event says, and tells what it got, or how that failed.
const PYTHON: &str = r#"
import sinew

def ask(event):
    try:
        return {"got": sinew.call(event["name"], event.get("payload"))}
    except sinew.CallError as error:
        return {"status": error.status, "reason": error.reason, "component": error.component, "tip": error.suggestion}

def echo(event, context):
    return {"event": event, "name": context.function_name, "version": context.function_version}

def raises(event):
    return {}[event["key"]]

def wrong(event):
    return {"number": {1, 2}}

def teapot(event):
    return {"statusCode": 418, "body": "short and stout"}

def nothing(event):
    print("nothing to say")

def text(event):
    return "a text"

async def later(event):
    return await sinew.call_async("echo", ["later", event])

async def app(scope, receive, send):
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": message["body"] + scope["method"].encode()})

def again(event):
    return ask({"name": "again", "payload": event})

async def fans(event):
    import asyncio
    return await asyncio.gather(*(sinew.call_async("alone") for _ in range(6)))

under_way = 0

def alone(event):
    import time
    global under_way
    under_way += 1
    time.sleep(0.02)
    at_once, under_way = under_way, under_way - 1
    return at_once

def buffer(event):
    data = bytearray(b"as it was")
    told = sinew.call("given", data)
    data[:] = b"and after"
    return told.decode()

def given(event):
    return event

def batched(event):
    return event
"#;

const NODE: &str = r#"
exports.ask = async ({ name, payload }) => {
  try {
    return { got: await sinew.call(name, payload) };
  } catch ({ status, reason, component, suggestion }) {
    return { status, reason, component, tip: suggestion };
  }
};
exports.echo = async (event, { functionName, functionVersion }) => ({ event, name: functionName, version: functionVersion });
exports.raises = async (event) => event.nothing.there;
exports.wrong = () => ({ number: 1n });
exports.teapot = () => ({ statusCode: 418, body: 'short and stout' });
exports.nothing = () => void console.log('nothing to say');
exports.text = () => 'a text';
exports.later = (event, context, callback) => sinew.call('echo', ['later', event]).then((got) => callback(null, got), callback);
exports.app = (req, res) => {
  const pieces = [];
  req.on('data', (piece) => pieces.push(piece));
  req.on('end', () => res.writeHead(200, { 'content-type': 'text/plain' }).end(Buffer.concat(pieces) + req.method));
};
exports.again = (event) => exports.ask({ name: 'again', payload: event });
exports.fans = () => Promise.all(Array.from({ length: 6 }, () => sinew.call('alone')));
let underWay = 0;
exports.alone = async () => {
  underWay++;
  await new Promise((done) => setTimeout(done, 20));
  return underWay--;
};
exports.buffer = async () => {
  const data = Buffer.from('as it was');
  const told = sinew.call('given', data);
  data.fill('x');
  return String(await told);
};
exports.given = (event) => event;
let queue;
exports.batched = (event) => {
  const flush = () => queue.splice(0).forEach(({ event, done, fail }) => sinew.call('echo', event).then(done, fail));
  if (!queue) setInterval(flush, 2);
  return new Promise((done, fail) => (queue ??= []).push({ event, done, fail }));
};
exports.slow = () => new Promise((done) => setTimeout(done, 60_000));
"#;

/// Those that are called as they are come first.
const FUNCTIONS: [&str; 15] = [
    "ask", "echo", "raises", "wrong", "teapot", "nothing", "text", "later", "app", "fans", "buffer",
    "batched", "again", "alone", "given",
];
const CALLED: usize = 12;

fn file_of(runtime: &str) -> &'static str {
    if runtime == "node" { "main.js" } else { "main.py" }
}

/// A folder with all of them.
fn folder(home: &Path, runtime: &str, source: &str, together: &str) -> PathBuf {
    let folder = home.join("source");
    std::fs::create_dir_all(&folder).unwrap();
    let of = |name: &&str| {
        format!("[functions.{name}]\nruntime = \"{runtime}\"\nhandler = \"main.{name}\"\n{together}\n")
    };
    let mut manifest: String = FUNCTIONS.iter().map(of).collect();
    if runtime == "node" {
        manifest += &of(&"slow");
        manifest += "timeout = \"300ms\"\n";
    }
    std::fs::write(folder.join("sinew.toml"), manifest).unwrap();
    std::fs::write(folder.join(file_of(runtime)), source).unwrap();
    folder
}

/// What is asked, and must be answered alike.
fn asked(runtime: &str) -> Vec<Value> {
    let mut all: Vec<Value> = FUNCTIONS[1..CALLED].iter().map(|name| json!({ "name": name })).collect();
    all.extend([
        json!({ "name": "echo", "payload": { "deep": [1, { "er": "ü" }], "none": null } }),
        json!({ "name": "echo", "payload": "a text" }),
        json!({ "name": "app", "payload": "to an application " }),
        json!({ "name": "raises", "payload": { "key": "of no value" } }),
        json!({ "name": "again", "payload": "until it is too deep" }),
        json!({ "name": "nobody" }),
    ]);
    if runtime == "node" {
        all.push(json!({ "name": "slow" }));
    }
    all
}

fn answers_are_alike(runtime: &str, source: &str) {
    if !is_root() {
        return;
    }
    let homes = [home(), home()];
    let nodes = homes.each_ref().map(|home| Node::start(home.path()));
    for (node, together) in nodes.iter().zip(["", "together = \"all\""]) {
        node.deploy(&folder(&node.home, runtime, source, together));
    }
    for event in asked(runtime) {
        // The first time the node is asked, and says that it is not to be.
        for round in 0..2 {
            let [apart, together] = nodes.each_ref().map(|node| node.call("ask", &event));
            assert_eq!(apart, together, "{runtime} {event} {round}");
            assert_eq!(apart.0, 200, "{event} {apart:?}");
        }
    }
    for (node, name) in [(&nodes[0], "apart"), (&nodes[1], "together")] {
        let records = records_of(node, "echo");
        let within = records.iter().filter(|record| record["start"] == "within").count();
        // What a timer asks for, which the callee has set up, is of the request that runs.
        let is_right = if name == "together" { within > records.len() / 2 } else { within == 0 };
        assert!(is_right && !records.is_empty(), "{name}: {records:?}");
    }
}

/// The records of a function's requests.
fn records_of(node: &Node, function: &str) -> Vec<Value> {
    let printed = node.ok(&["logs", function, "-o", "json", "-n", "1000"]);
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn functions_in_python_answer_together_as_they_do_apart() {
    answers_are_alike("python", PYTHON);
}

#[test]
fn functions_in_node_answer_together_as_they_do_apart() {
    answers_are_alike("node", NODE);
}

#[test]
fn what_is_deployed_or_rolled_back_serves_the_next_request_wherever_it_runs() {
    if !is_root() {
        return;
    }
    for (runtime, source) in [("python", PYTHON), ("node", NODE)] {
        let home = home();
        let node = Node::start(home.path());
        let folder = folder(&node.home, runtime, source, "together = \"all\"");
        node.deploy(&folder);
        let asks = || {
            let (status, got) = node.call("ask", &json!({ "name": "echo" }));
            assert_eq!(status, 200, "{got}");
            (got["got"]["version"].clone(), got["got"]["event"].clone())
        };
        for _ in 0..3 {
            assert_eq!(asks(), (json!(1), json!({})));
        }
        let file = folder.join(file_of(runtime));
        let changed = if runtime == "node" {
            source.replace("({ event, name", "({ event: 'new', name")
        } else {
            source.replace("{\"event\": event", "{\"event\": \"new\"")
        };
        assert_ne!(changed, source);
        std::fs::write(&file, changed).unwrap();
        node.deploy(&folder);
        for _ in 0..3 {
            assert_eq!(asks(), (json!(2), json!("new")), "{runtime}");
        }
        assert_eq!(records_of(&node, "echo").last().unwrap()["start"], "within");
        // What calls it has the code of its own version, so that another one is called where it is.
        node.ok(&["rollback", "echo"]);
        for _ in 0..3 {
            assert_eq!(asks(), (json!(1), json!({})), "{runtime}");
        }
        assert_ne!(records_of(&node, "echo").last().unwrap()["start"], "within");
    }
}

#[test]
fn what_is_called_within_an_instance_is_in_the_tree_of_calls_below_who_called() {
    if !is_root() {
        return;
    }
    for (runtime, source) in [("python", PYTHON), ("node", NODE)] {
        let home = home();
        let node = Node::start(home.path());
        node.deploy(&folder(&node.home, runtime, source, "together = \"all\""));
        node.call("ask", &json!({ "name": "later" }));
        let answer = super::http_with(
            &node.address,
            "POST /function/ask",
            "content-type: application/json\r\nx-request-id: tree\r\n",
            br#"{"name":"later"}"#,
        );
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let told = node.ok(&["describe", "--request-id", "tree"]);
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines[1].starts_with("ask@1 "), "{told}");
        assert!(lines[2].starts_with("└─ later@1") && lines[2].contains(" within "), "{told}");
        assert!(lines[3].starts_with("   └─ echo@1") && lines[3].contains(" within "), "{told}");
        // What it prints belongs to the request that it is a part of.
        node.call("ask", &json!({ "name": "nothing" }));
        let logs = node.ok(&["logs", "ask"]);
        assert!(logs.contains("nothing to say"), "{logs}");
    }
}

#[test]
fn who_serves_a_line_calls_within_itself_what_serves_now() {
    if !is_root() {
        return;
    }
    for (runtime, source) in [("python", PYTHON), ("node", NODE)] {
        let home = home();
        let node = Node::start(home.path());
        let folder = folder(&node.home, runtime, source, "together = \"all\"");
        let manifest = folder.join("sinew.toml");
        let outer = format!("[functions.outer]\nruntime = \"{runtime}\"\nhandler = \"main.ask\"\n");
        std::fs::write(&manifest, std::fs::read_to_string(&manifest).unwrap() + &outer).unwrap();
        node.deploy(&folder);
        let asks = |name: &str| {
            let (status, got) = node.call("outer", &json!({ "name": "ask", "payload": { "name": name } }));
            assert_eq!(status, 200, "{got}");
            got["got"].clone()
        };
        for _ in 0..40 {
            assert_eq!(asks("echo")["got"]["version"], 1);
        }
        assert!(asks("raises")["reason"].as_str().unwrap().contains("raises, version 1"), "{runtime}");
        assert!(asks("again").to_string().contains("wait for each other already"), "{runtime}");
        let of = |function: &str, start: &str| {
            records_of(&node, function).iter().filter(|record| record["start"] == start).count()
        };
        assert!(of("ask", "line") > 0, "{runtime}: {:?}", records_of(&node, "ask"));
        assert!(of("echo", "within") > 0, "{runtime}");
        // Only what is called within is another one.
        let file = folder.join(file_of(runtime));
        std::fs::write(&file, format!("{source}\n")).unwrap();
        node.deploy(&folder);
        node.ok(&["rollback", "ask"]);
        for _ in 0..5 {
            assert_eq!(asks("echo")["got"]["version"], 2, "{runtime}");
        }
        assert_ne!(records_of(&node, "echo").last().unwrap()["start"], "within");
        node.ok(&["rollback", "echo"]);
        for _ in 0..5 {
            assert_eq!(asks("echo")["got"]["version"], 1, "{runtime}");
        }
        assert_eq!(records_of(&node, "echo").last().unwrap()["start"], "within");
    }
}

#[test]
fn the_end_of_what_is_called_is_that_of_its_caller_and_of_nobody_else() {
    if !is_root() {
        return;
    }
    let ends = [
        ("python", PYTHON, "import os\ndef ends(event):\n    os._exit(3)\n"),
        ("node", NODE, "exports.ends = () => process.exit(3);\n"),
    ];
    for (runtime, source, ending) in ends {
        let home = home();
        let node = Node::start(home.path());
        let folder = folder(&node.home, runtime, &format!("{source}{ending}"), "together = \"all\"");
        let manifest = folder.join("sinew.toml");
        let text = std::fs::read_to_string(&manifest).unwrap().replace("main.text", "main.ends");
        std::fs::write(&manifest, text).unwrap();
        node.deploy(&folder);
        for _ in 0..3 {
            let (status, problem) = node.call("ask", &json!({ "name": "text" }));
            assert_eq!((status, problem["component"].as_str()), (500, Some("function")), "{problem}");
            assert!(problem["detail"].as_str().unwrap().contains("status 3"), "{problem}");
            let (status, got) = node.call("ask", &json!({ "name": "echo" }));
            assert_eq!((status, &got["got"]["name"]), (200, &json!("echo")), "{got}");
        }
    }
}

#[test]
fn requests_that_one_instance_of_node_serves_at_once_call_within_it_each_for_itself() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let source = "exports.many = async ({ at }) => {\n  const wait = (n) => sinew.call('waits', { at: `${at} ${n}`, ms: (n * 7) % 11 });\n  \
                  return Promise.all(Array.from({ length: 8 }, (_, n) => wait(n)));\n};\n\
                  exports.waits = async ({ at, ms }, context) => {\n  await new Promise((done) => setTimeout(done, ms));\n  \
                  console.log(`waited ${at}`);\n  return `${await sinew.call('tells', at)} ${context.request_id}`;\n};\n\
                  exports.tells = async (at) => at;\n";
    let folder = node.home.join("many");
    std::fs::create_dir_all(&folder).unwrap();
    let of = |name: &str| {
        format!(
            "[functions.{name}]\nruntime = \"node\"\nhandler = \"main.{name}\"\ntogether = \"all\"\nrequests-per-instance = 16\nconcurrency = 1\n"
        )
    };
    std::fs::write(folder.join("sinew.toml"), ["many", "waits", "tells"].map(of).concat()).unwrap();
    std::fs::write(folder.join("main.js"), source).unwrap();
    node.deploy(&folder);
    // It is said once where they are called.
    let (status, told) = node.call("many", &json!({ "at": "first" }));
    assert_eq!(status, 200, "{told}");
    let (address, requests) = (&node.address, 6);
    std::thread::scope(|scope| {
        for at in 0..requests {
            scope.spawn(move || {
                let (id, body) = (format!("id-{at}"), format!("{{\"at\":\"at {at}\"}}"));
                let headers = format!("content-type: application/json\r\nx-request-id: {id}\r\n");
                let answer = super::http_with(address, "POST /function/many", &headers, body.as_bytes());
                let told = answer.split_once("\r\n\r\n").unwrap().1;
                let expected: Vec<String> = (0..8).map(|n| format!("at {at} {n} {id}")).collect();
                let told: Value = serde_json::from_str(told).unwrap();
                assert_eq!(told, json!(expected), "{answer}");
            });
        }
    });
    for at in 0..requests {
        let tree = node.ok(&["describe", "--request-id", &format!("id-{at}")]);
        assert_eq!(tree.matches("waits@1").count(), 8, "{tree}");
        // One of those is called here, and the others where there is nothing to do.
        let here = tree.lines().filter(|line| line.contains("waits@1") && line.contains(" within ")).count();
        assert_eq!((here, tree.matches("tells@1").count()), (1, 8), "{tree}");
        let log = node.ok(&["logs", "--request-id", &format!("id-{at}")]);
        assert_eq!(log.matches(&format!("waited at {at} ")).count(), 8, "{log}");
    }
}

#[test]
fn who_would_wait_for_itself_by_way_of_a_call_within_an_instance_is_told_at_once() {
    if !is_root() {
        return;
    }
    for runtime in ["python", "node"] {
        let home = home();
        let node = Node::start(home.path());
        let folder = node.home.join("cycle");
        std::fs::create_dir_all(&folder).unwrap();
        let of = |name: &str, more: &str| {
            format!(
                "[functions.{name}]\nruntime = \"{runtime}\"\nhandler = \"main.{name}\"\nconcurrency = 1\n{more}\n"
            )
        };
        let together = "together = \"both\"";
        let manifest = [of("first", together), of("second", together), of("third", "")].concat();
        std::fs::write(folder.join("sinew.toml"), manifest).unwrap();
        let (file, source) = if runtime == "node" {
            let calls = |from: &str, to: &str| format!("exports.{from} = () => sinew.call('{to}');\n");
            (
                "main.js",
                [calls("first", "second"), calls("second", "third"), calls("third", "first")].concat(),
            )
        } else {
            let calls = |from: &str, to: &str| format!("def {from}(event):\n    return sinew.call('{to}')\n");
            let all = [calls("first", "second"), calls("second", "third"), calls("third", "first")].concat();
            ("main.py", format!("import sinew\n{all}"))
        };
        std::fs::write(folder.join(file), source).unwrap();
        node.deploy(&folder);
        for _ in 0..3 {
            let (status, problem) = node.call("first", &json!({}));
            assert_eq!(status, 500, "{problem}");
            assert!(problem.to_string().contains("is called back by what it calls"), "{problem}");
        }
    }
}
