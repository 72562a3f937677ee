// SPDX-License-Identifier: Apache-2.0
//! Functions in Python of which one instance serves several requests at once: that it does,
//! that each has its own output and failure, and what becomes of those beside one that ends it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home};

const AT_ONCE: usize = 12;

/// All wait for a gate that others open, and then say how many they have been.
const APP_PY: &str = r#"
import asyncio, json, os, sys, threading, time
import sinew

running = most = 0

class Counted:
    def __enter__(self):
        global running, most
        running += 1
        most = max(most, running)
    def __exit__(self, *_):
        global running
        running -= 1

def told(event):
    return {"n": event["n"], "most": most, "pid": os.getpid(), "threads": threading.active_count()}

async def coroutine(event, context):
    print("begin", event["n"])
    with Counted():
        if "sleep" in event:
            await asyncio.sleep(event["sleep"])
        if event.get("exit"):
            os._exit(3)
        if "gate" in event:
            await sinew.call_async("gate", {"name": event["gate"]})
        print("end", event["n"])
        return told(event)

def thread(event, context):
    print("begin", event["n"])
    with Counted():
        if "sleep" in event:
            time.sleep(event["sleep"])
        if event.get("exit"):
            os._exit(3)
        if "gate" in event:
            sinew.call("gate", {"name": event["gate"]})
        print("end", event["n"])
        return told(event)

heard = []

async def asgi(scope, receive, send):
    assert scope["type"] == "http"
    if scope["path"].endswith("/listen"):
        await receive()
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"listening", "more_body": True})
        heard.append((await receive())["type"])
        return
    if scope["path"].endswith("/heard"):
        body = heard
    else:
        body = await coroutine(json.loads((await receive())["body"]), None)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})

def wsgi(environ, start_response):
    body = thread(json.loads(environ["wsgi.input"].read()), None)
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(body).encode()]
"#;

const GATE_JS: &str = r#"
const gates = {};
exports.handler = async ({ name, open }) => {
  gates[name] ??= (() => { let open; const opened = new Promise((resolve) => { open = resolve; }); return { open, opened, waiting: 0 }; })();
  if (open === undefined) gates[name].waiting++;
  if (open) gates[name].open();
  if (open === false) return gates[name].waiting;
  await gates[name].opened;
  return name;
};
"#;

const KINDS: [&str; 4] = ["coroutine", "thread", "asgi", "wsgi"];

fn deployed(node: &Node) {
    let folder = node.home.join("at-once");
    std::fs::create_dir_all(&folder).unwrap();
    let one = |name: &str| {
        format!(
            "[functions.{name}]\nruntime = \"python\"\nhandler = \"app.{name}\"\nconcurrency = 1\n\
             requests-per-instance = {AT_ONCE}\ntimeout = \"20s\"\nwaiting = 100\n\n"
        )
    };
    let gate = "[functions.gate]\nruntime = \"node\"\nhandler = \"gate.handler\"\nconcurrency = 1\nrequests-per-instance = 100\n";
    std::fs::write(folder.join("sinew.toml"), KINDS.map(one).concat() + gate).unwrap();
    std::fs::write(folder.join("app.py"), APP_PY).unwrap();
    std::fs::write(folder.join("gate.js"), GATE_JS).unwrap();
    node.ok(&["deploy", folder.to_str().unwrap()]);
}

/// Waits until so many requests stand at a gate.
fn stand_at(node: &Node, gate: &str, count: usize) {
    let begun = Instant::now();
    while node.call("gate", &json!({"name": gate, "open": false})).1 != json!(count) {
        assert!(begun.elapsed() < Duration::from_secs(15), "not {count} at {gate}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn one_instance_serves_as_many_as_it_is_said_to_and_no_more() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node);
    for kind in KINDS {
        std::thread::scope(|scope| {
            // Two more than it takes: they wait for it.
            let node = &node;
            let ask = |n| move || node.call(kind, &json!({"n": n, "gate": kind}));
            let asked: Vec<_> = (0..AT_ONCE + 2).map(|n| (n, scope.spawn(ask(n)))).collect();
            stand_at(node, kind, AT_ONCE);
            std::thread::sleep(Duration::from_millis(50));
            stand_at(node, kind, AT_ONCE);
            assert_eq!(node.call("gate", &json!({"name": kind, "open": true})).0, 200);
            let answers: Vec<_> = asked.into_iter().map(|(n, asked)| (n, asked.join().unwrap())).collect();
            for (n, (status, told)) in &answers {
                assert_eq!((*status, &told["n"]), (200, &json!(n)), "{kind}: {told}");
                assert_eq!(told["most"], AT_ONCE, "{kind}");
                assert_eq!(told["pid"], answers[0].1.1["pid"], "{kind}");
            }
        });
        // Each has its own output, though they were printed at the same time.
        let logs = node.ok(&["logs", kind, "-n", "100", "-o", "json"]);
        let outputs: Vec<_> = logs
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter_map(|record| record["output"].as_str().or(record["log"].as_str()).map(str::to_owned))
            .collect();
        for n in 0..AT_ONCE + 2 {
            let own = format!("begin {n}\nend {n}\n");
            assert!(outputs.contains(&own), "{kind}: {n} is in none of {outputs:?}");
        }
    }
}

#[test]
fn who_is_beside_one_that_takes_too_long_or_ends_the_process_may_try_again() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node);
    for kind in KINDS {
        let (_, before) = node.call(kind, &json!({"n": 0}));
        std::thread::scope(|scope| {
            let node = &node;
            let waits =
                scope.spawn(move || node.call(kind, &json!({"n": 1, "gate": format!("never {kind}")})));
            stand_at(node, &format!("never {kind}"), 1);
            let (status, ended) = node.call(kind, &json!({"n": 2, "exit": true}));
            assert!(status == 500 && ended.to_string().contains("status 3"), "{kind}: {ended}");
            let (status, told) = waits.join().unwrap();
            assert!(status >= 500, "{kind}: {told}");
        });
        let (status, after) = node.call(kind, &json!({"n": 3}));
        assert_eq!((status, &after["most"]), (200, &json!(1)), "{kind}: another instance: {before} {after}");
    }
}

const LATE_PY: &str = r#"
import asyncio, os, time
BORN = os.urandom(8).hex()

async def coroutine(event):
    if event:
        await asyncio.sleep(60)
    return [BORN]

def thread(event):
    if event:
        time.sleep(60)
    return [BORN]
"#;

const LATE_JS: &str = r#"
const born = crypto.randomUUID();
let heard = 0, open;
exports.event = async (event, context) => {
  if (event === 1) {
    context.signal.addEventListener("abort", () => heard++);
    // What it leaves behind is of nobody else.
    new Promise((resolve) => { open = resolve; }).then(() => { throw new Error("much later"); });
    await new Promise(() => {});
  }
  if (event === 2) {
    open();
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  return [born, heard];
};
exports.fetch = async (request) => {
  if ((await request.text()) === "1") await new Promise((_, reject) => request.signal.addEventListener("abort", reject));
  return Response.json([born]);
};
"#;

/// As long as a request of theirs may take.
const LATE: Duration = Duration::from_secs(4);

/// Asks what is answered at once, until the other one is; the instance has to be the same.
fn ask_beside(node: &Node, name: &str, is_over: impl Fn() -> bool) -> Value {
    let (status, told) = node.call(name, &json!(0));
    assert_eq!(status, 200, "{name}: {told}");
    while !is_over() {
        let (status, again) = node.call(name, &json!(0));
        assert_eq!((status, &again[0]), (200, &told[0]), "{name}: {again}");
        std::thread::sleep(Duration::from_millis(10));
    }
    told
}

fn ends_alone(node: &Node, name: &str) {
    std::thread::scope(|scope| {
        let late = scope.spawn(|| node.call(name, &json!(1)));
        let born = ask_beside(node, name, || late.is_finished())[0].clone();
        let (status, problem) = late.join().unwrap();
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(status == 504 && detail.contains("took too long"), "{name}: {problem}");
        // It serves on, whatever the late one does.
        let begun = Instant::now();
        assert_eq!(ask_beside(node, name, || begun.elapsed() > Duration::from_secs(2))[0], born, "{name}");
        match name {
            "coroutine" => {
                assert_says_where(node, name, &problem, "in coroutine\n    await asyncio.sleep(60)");
            }
            "thread" => assert_says_where(node, name, &problem, "in thread\n    time.sleep(60)"),
            "event" => {
                assert_eq!(node.call(name, &json!(2)), (200, json!([born, 1])), "its signal was aborted");
                assert!(
                    node.ok(&["logs", name, "-n", "1"]).contains("much later"),
                    "and what came of it is told"
                );
            }
            _ => {}
        }
        // Where nobody else is answered it may be stuck.
        let (status, problem) = node.call(name, &json!(1));
        assert_eq!(status, 504, "{name}: {problem}");
        match name {
            "coroutine" => {
                assert_says_where(node, name, &problem, "in coroutine\n    await asyncio.sleep(60)");
            }
            "thread" => assert_says_where(node, name, &problem, "in thread\n    time.sleep(60)"),
            _ => {}
        }
        assert_ne!(node.call(name, &json!(0)).1[0], born, "{name}");
    });
}

fn assert_says_where(node: &Node, name: &str, problem: &Value, place: &str) {
    let logs = node.ok(&["logs", name, "--request-id", problem["request_id"].as_str().unwrap()]);
    // Lines of output are shown apart from those that tell of requests.
    let output: Vec<_> = logs.lines().map(str::trim).collect();
    let output = output.join("\n");
    let place: Vec<_> = place.lines().map(str::trim).collect();
    let is_told = ["its time was used up here", "its instance was ended while it was here"]
        .iter()
        .any(|what| output.contains(what));
    let is_told = is_told && output.contains(&place.join("\n"));
    assert!(is_told, "{name}: {logs}");
}

#[test]
fn a_function_that_takes_too_long_says_where_it_was() {
    if !is_root() {
        return;
    }
    let source = r#"
import asyncio, subprocess, sys, time
print("loaded")
def handler(event):
    if event == "born":
        return "here"
    print("begun", end="")
    return globals()[event]()
def sleeps():
    time.sleep(60)
def computes():
    while True:
        pass
def runs():
    subprocess.run([sys.executable, "-c", "import time; time.sleep(60)"])
async def awaits():
    await deep()
async def deep():
    await asyncio.sleep(60)
"#;
    let home = home();
    let node = Node::start(home.path());
    node.deploy(&node.python("where", "timeout = \"1s\"\nconcurrency = 1\n", source));
    for (event, place) in [
        ("sleeps", "in sleeps\n    time.sleep(60)"),
        ("computes", "in computes\n"),
        ("runs", "in runs\n    subprocess.run("),
        ("awaits", "in deep\n    await asyncio.sleep(60)"),
    ] {
        let (status, problem) = node.call("where", &json!(event));
        assert_eq!(status, 504, "{event}: {problem}");
        assert_says_where(&node, "where", &problem, place);
        // Another instance serves at once.
        assert_eq!(node.call("where", &json!("born")), (200, json!("here")), "after {event}");
    }
}

#[test]
fn a_request_that_takes_too_long_ends_alone_where_others_are_answered() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = home.path().join("late");
    std::fs::create_dir_all(&folder).unwrap();
    let all = [("python", "coroutine"), ("python", "thread"), ("node", "event"), ("node", "fetch")];
    let one = |(runtime, name): (&str, &str)| {
        let seconds = LATE.as_secs();
        format!(
            "[functions.{name}]\nruntime = \"{runtime}\"\nhandler = \"main.{name}\"\nconcurrency = 1\n\
             requests-per-instance = 8\ntimeout = \"{seconds}s\"\n\n"
        )
    };
    std::fs::write(folder.join("sinew.toml"), all.map(one).concat()).unwrap();
    std::fs::write(folder.join("main.py"), LATE_PY).unwrap();
    std::fs::write(folder.join("main.js"), LATE_JS).unwrap();
    node.ok(&["deploy", folder.to_str().unwrap()]);
    std::thread::scope(|scope| {
        for (_, name) in all {
            scope.spawn(|| ends_alone(&node, name));
        }
    });
}

#[test]
fn an_application_hears_that_its_client_has_left() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node);
    let mut client = TcpStream::connect(&node.address).unwrap();
    client.write_all(b"GET /function/asgi/listen HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let (mut text, mut piece) = (String::new(), [0; 4096]);
    while !text.contains("listening") {
        let len = client.read(&mut piece).unwrap();
        assert!(len > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&piece[..len]));
    }
    let heard = || node.http("GET /function/asgi/heard", b"");
    assert!(heard().ends_with("[]"), "others are served beside it, and it has heard nothing");
    drop(client);
    let begun = Instant::now();
    while !heard().ends_with("[\"http.disconnect\"]") {
        assert!(begun.elapsed() < Duration::from_secs(10), "{}", heard());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_cannot_serve_several_is_not_deployed() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let refused = |folder: &std::path::Path| {
        let mut command = node.command(&["deploy", folder.to_str().unwrap()]);
        let done = command.stdin(Stdio::null()).output().unwrap();
        assert!(!done.status.success());
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let source = "def handler(event):\n    return 1\n";
    let folder = node.python("many", "requests-per-instance = 33\n", source);
    let told = refused(&folder);
    assert!(told.contains("at most 32 of requests-per-instance"), "{told}");
    let source = "from sinew import function, workflow\n@function()\ndef one(x):\n    return x\n\
        @workflow\ndef handler(event):\n    return one(1)\n";
    let folder = node.python("flow", "requests-per-instance = 2\n", source);
    std::fs::write(
        folder.join("sinew.toml"),
        "[functions.flow]\nruntime = \"python\"\nhandler = \"main.handler\"\nworkflow = true\nrequests-per-instance = 2\n",
    )
    .unwrap();
    let told = refused(&folder);
    assert!(told.contains("requests-per-instance"), "{told}");
    for (settings, why) in [
        ("requests-per-instance = 2\nmode = \"stdin\"\n", "one request at a time"),
        ("requests-per-instance = 129\n", "at most 128 of requests-per-instance"),
    ] {
        let told = refused(&node.script("program", settings, "#!/bin/sh\necho\n"));
        assert!(told.contains(why), "{told}");
    }
}
