// SPDX-License-Identifier: Apache-2.0
//! Answers that are sent while the function still makes them. Functions wait at
//! a gate between their first piece and the second, and the gate is opened when
//! the client has the first: whoever kept pieces back would wait for ever.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home};

const MANIFEST: &str = r#"
[functions.gate]
runtime = "node"
handler = "gate.handler"
concurrency = 1
requests-per-instance = 64
timeout = "20s"

[functions.fetch]
runtime = "node"
handler = "stream.fetch"
concurrency = 1
requests-per-instance = 16
timeout = "20s"

[functions.reqres]
runtime = "node"
handler = "reqres.handler"
timeout = "20s"

[functions.asgi]
runtime = "python"
handler = "app.app"
timeout = "20s"

[functions.wsgi]
runtime = "python"
handler = "wsgi.app"
timeout = "20s"

[functions.program]
runtime = "executable"
handler = "program"
timeout = "20s"

[functions.pure]
runtime = "python"
handler = "app.app"
pure = true

[functions.relay]
runtime = "python"
handler = "relay.handler"
timeout = "20s"
"#;

const GATE_JS: &str = r#"
const gates = {};
function gate(name) {
  if (!gates[name]) {
    let open;
    const opened = new Promise((resolve) => { open = resolve; });
    gates[name] = { open, opened };
  }
  return gates[name];
}
exports.handler = async ({ name, open }) => {
  if (open) gate(name).open();
  await gate(name).opened;
  return name;
};
"#;

const STREAM_JS: &str = r#"
let made = 0, cancelled = 0;
const bytes = (text) => new TextEncoder().encode(text);
const PIECE = new Uint8Array(65536).fill(120);
exports.fetch = async (request, env, ctx) => {
  const { name, how, pieces, after } = await request.json();
  if (after) {
    ctx.waitUntil(sinew.call("gate", { name: after }).then(() => console.log("went on", after)));
    return new Response("onetwo", { status: 201, headers: { "x-a": "b" } });
  }
  if (how === "state") return Response.json({ made, cancelled });
  if (how === "long") {
    return new Response(new ReadableStream({
      pull(to) { if (made++ < pieces) to.enqueue(PIECE); else to.close(); },
      cancel() { cancelled++; },
    }));
  }
  return new Response(new ReadableStream({
    async start(to) {
      to.enqueue(bytes("one"));
      await sinew.call("gate", { name });
      if (how === "fails") throw new RangeError("half way");
      to.enqueue(bytes("two"));
      to.close();
    },
    cancel() { cancelled++; },
  }), { status: 201, headers: { "x-a": "b" } });
};
"#;

const REQRES_JS: &str = r#"
exports.handler = (req, res) => {
  let body = "";
  req.on("data", (piece) => { body += piece; });
  req.on("end", async () => {
    const { name, how } = JSON.parse(body);
    res.writeHead(201, { "x-a": "b" });
    res.write("one");
    await sinew.call("gate", { name });
    if (how === "fails") return res.destroy(new RangeError("half way"));
    res.end("two");
  });
};
"#;

const APP_PY: &str = r#"
import json

async def app(scope, receive, send):
    assert scope["type"] == "http"
    asked = json.loads((await receive())["body"])
    await send({"type": "http.response.start", "status": 201, "headers": [(b"x-a", b"b")]})
    await send({"type": "http.response.body", "body": b"one", "more_body": True})
    if "name" in asked:
        import sinew
        await sinew.call_async("gate", {"name": asked["name"]})
    if asked.get("how") == "fails":
        raise RuntimeError("half way")
    await send({"type": "http.response.body", "body": b"two"})
    if "after" in asked:
        await sinew.call_async("gate", {"name": asked["after"]})
        print("went on", asked["after"])
"#;

const WSGI_PY: &str = r#"
import json, sinew

def app(environ, start_response):
    asked = json.loads(environ["wsgi.input"].read())
    start_response("201 Created", [("x-a", "b")])
    yield b"one"
    sinew.call("gate", {"name": asked["name"]})
    if asked.get("how") == "fails":
        raise RuntimeError("half way")
    yield b"two"
"#;

const RELAY_PY: &str = r#"
import sinew

def handler(event):
    return sinew.call(event["to"], event["payload"])
"#;

/// A server of whatever language.
const PROGRAM: &str = r#"#!/usr/bin/python3
import http.server, json, os, sys, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(201)
        self.send_header("x-a", "b")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"3\r\none\r\n")
        gate = json.dumps({"name": asked["name"]}).encode()
        urllib.request.urlopen(os.environ["SINEW_URL"] + "/function/gate", gate).read()
        if asked.get("how") == "fails":
            self.close_connection = True
            return print("half way", flush=True)
        self.wfile.write(b"3\r\ntwo\r\n0\r\n\r\n")
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"#;

const STREAMING: [&str; 5] = ["asgi", "fetch", "reqres", "wsgi", "program"];

fn deployed(node: &Node) {
    let folder = node.home.join("streams");
    std::fs::create_dir_all(&folder).unwrap();
    for (file, text) in [
        ("sinew.toml", MANIFEST),
        ("gate.js", GATE_JS),
        ("stream.js", STREAM_JS),
        ("reqres.js", REQRES_JS),
        ("app.py", APP_PY),
        ("wsgi.py", WSGI_PY),
        ("relay.py", RELAY_PY),
        ("program", PROGRAM),
    ] {
        std::fs::write(folder.join(file), text).unwrap();
    }
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.join("program"), executable).unwrap();
    node.ok(&["deploy", folder.to_str().unwrap()]);
}

/// A client that reads as it likes.
struct Client {
    child: Child,
    out: ChildStdout,
}

impl Client {
    fn post(node: &Node, version: &str, name: &str, event: &Value) -> Self {
        let url = format!("http://{}/function/{name}", node.address);
        let mut command = Command::new("curl");
        command.args(["-sN", "--max-time", "60", version, "-w", "\n%{http_code} %header{x-a}"]);
        command.args(["--data-binary", &event.to_string(), &url]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = child.stdout.take().unwrap();
        Self { child, out }
    }

    fn read(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.out.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// What is left of the answer, and how the client ended.
    fn rest(mut self) -> (String, i32) {
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        (text, self.child.wait().unwrap().code().unwrap())
    }
}

fn open(node: &Node, name: &str) {
    assert_eq!(node.call("gate", &json!({"name": name, "open": true})).0, 200);
}

const VERSIONS: [&str; 2] = ["--http1.1", "--http2-prior-knowledge"];

#[test]
fn the_first_piece_is_there_before_the_second_is_made() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node);
    for name in STREAMING {
        for version in VERSIONS {
            let gate = format!("{name}{version}");
            let mut client = Client::post(&node, version, name, &json!({"name": gate}));
            assert_eq!(client.read(3), b"one", "{gate}");
            open(&node, &gate);
            assert_eq!(client.rest(), ("two\n201 b".to_owned(), 0), "{gate}");
        }
    }
    // It is in the log with its status, as any other.
    assert!(node.ok(&["logs", "asgi"]).contains("201"));
}

/// What a function does after its answer is its call's, but the client does not wait for it.
#[test]
fn the_client_does_not_wait_for_what_comes_after_the_answer() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node);
    for name in ["asgi", "fetch"] {
        for version in VERSIONS {
            let (before, after) = (format!("before {name}{version}"), format!("after {name}{version}"));
            open(&node, &before);
            let event = json!({"name": before, "after": after});
            let whole = Client::post(&node, version, name, &event).rest();
            assert_eq!(whole, ("onetwo\n201 b".to_owned(), 0), "{after}");
            // It goes on, and has an instance to itself.
            let told = node.http(&format!("GET /v1/functions/{name}"), b"");
            assert!(told.contains("\"busy\":1"), "{told}");
            open(&node, &after);
            let begun = Instant::now();
            while !node.ok(&["logs", name]).contains(&format!("went on {after}")) {
                assert!(begun.elapsed() < Duration::from_secs(30), "{after} is in no log");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    // Whoever wants it whole waits for the end.
    open(&node, "g");
    let relayed = node.call("relay", &json!({"to": "asgi", "payload": {"name": "g", "after": "g"}}));
    assert_eq!(relayed, (200, json!("onetwo")));
}

#[test]
fn what_fails_half_way_breaks_off_and_is_no_answer() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node);
    for name in STREAMING {
        for version in VERSIONS {
            let gate = format!("{name}{version}");
            let event = json!({"name": gate, "how": "fails"});
            let mut client = Client::post(&node, version, name, &event);
            assert_eq!(client.read(3), b"one", "{gate}");
            open(&node, &gate);
            let (rest, code) = client.rest();
            // Of HTTP/1.1 the last chunk is missing, of HTTP/2 the stream is reset.
            assert_ne!(code, 0, "{gate}: {rest}");
            assert!(!rest.contains("two"), "{rest}");
        }
        assert!(node.ok(&["logs", name]).contains("half way"), "{name}");
        let gate = format!("{name} again");
        open(&node, &gate);
        assert_eq!(node.call(name, &json!({"name": gate})).0, 201, "it serves on");
    }
}

#[test]
fn who_wants_it_whole_gets_it_whole() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node);
    open(&node, "g");
    let event = json!({"name": "g"});
    for name in STREAMING {
        let relayed = node.call("relay", &json!({"to": name, "payload": event}));
        assert_eq!(relayed, (200, json!("onetwo")), "{name}");
        let path = format!("POST /2015-03-31/functions/{name}/invocations");
        let lambda = node.http(&path, event.to_string().as_bytes());
        assert!(lambda.ends_with("\r\n\r\nonetwo"), "{name}: {lambda}");
    }
    for start in ["forked", "memo"] {
        let answer = node.http("POST /function/pure", b"{}");
        assert!(answer.ends_with("\r\n\r\nonetwo") && answer.contains("content-length: 6"), "{answer}");
        if start == "memo" {
            assert!(answer.contains("start;desc=memo"), "{answer}");
        }
    }
}

/// What the function that streams says of itself.
fn state(node: &Node) -> (u64, u64) {
    let (status, state) = node.call("fetch", &json!({"how": "state"}));
    assert_eq!(status, 200, "{state}");
    (state["made"].as_u64().unwrap(), state["cancelled"].as_u64().unwrap())
}

#[test]
fn the_client_sets_the_pace_and_may_leave() {
    const PIECES: u64 = 2048;
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    deployed(&node);
    let event = json!({"how": "long", "pieces": PIECES});
    let mut client = Client::post(&node, "--http1.1", "fetch", &event);
    assert_eq!(client.read(1), b"x");
    // Nobody reads on. What is made settles far below all of it: sockets, a pipe
    // and our window hold some hundred pieces of 64 KiB.
    let mut made = 0;
    let begun = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let before = std::mem::replace(&mut made, state(&node).0);
        if before == made {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{made} pieces, and more come");
    }
    assert!(made < PIECES / 2, "{made} pieces were made for a client that reads none");
    let (rest, code) = client.rest();
    assert_eq!((rest.matches('x').count() as u64 + 1, code), (PIECES * 65536, 0));
    // The next one leaves after its first byte: the function hears of it.
    for version in VERSIONS {
        let (_, cancelled) = state(&node);
        let gate = format!("never{version}");
        let mut client = Client::post(&node, version, "fetch", &json!({"name": gate}));
        assert_eq!(client.read(3), b"one");
        client.child.kill().unwrap();
        client.child.wait().unwrap();
        let begun = Instant::now();
        while state(&node).1 == cancelled {
            assert!(begun.elapsed() < Duration::from_secs(20), "the function does not hear of it: {version}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
