// SPDX-License-Identifier: Apache-2.0
//! Bodies of requests that are passed to functions while they come: that they
//! come whole, that a function that does not read keeps the client waiting and
//! the node small, that answers may begin before they end, and what becomes of
//! those that break off.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home};

const MANIFEST: &str = r#"
[functions.fetch]
runtime = "node"
handler = "upload.fetch"
body = "stream"
requests-per-instance = 4
timeout = "60s"

[functions.reqres]
runtime = "node"
handler = "reqres.handler"
body = "stream"
timeout = "60s"

[functions.asgi]
runtime = "python"
handler = "app.app"
body = "stream"
timeout = "60s"

[functions.several]
runtime = "python"
handler = "app.app"
body = "stream"
requests-per-instance = 4
timeout = "60s"

[functions.wsgi]
runtime = "python"
handler = "wsgi.app"
body = "stream"
requests-per-instance = 4
timeout = "60s"

[functions.program]
runtime = "executable"
handler = "program"
body = "stream"
timeout = "60s"
"#;

/// All of these answer with the length and a sum of what came; by the query, they read nothing, answer
/// each piece at once, or wait before they read.
const UPLOAD_JS: &str = r#"
let left = 0, pieces = 0;
exports.fetch = async (request) => {
  const how = new URL(request.url).searchParams.get("how");
  if (how === "state") return Response.json({ left, pieces });
  if (how === "refuse") return new Response("no", { status: 403 });
  if (how === "late") await new Promise((resolve) => setTimeout(resolve, 1500));
  if (how === "echo") {
    const reader = request.body.getReader();
    return new Response(new ReadableStream({
      async pull(to) {
        const { done, value } = await reader.read();
        if (done) to.close();
        else to.enqueue(value);
      },
    }));
  }
  let length = 0, sum = 0;
  try {
    for await (const piece of request.body) {
      pieces++;
      length += piece.length;
      for (let at = 0; at < piece.length; at += 4096) sum += piece[at];
    }
  } catch (error) {
    left++;
    throw error;
  }
  return Response.json({ length });
};
"#;

const REQRES_JS: &str = r#"
let left = 0;
exports.handler = (req, res) => {
  const how = new URL(req.url, "http://x").searchParams.get("how");
  if (how === "state") return res.end(JSON.stringify({ left }));
  if (how === "refuse") return res.writeHead(403).end("no");
  if (how === "echo") return req.pipe(res);
  let length = 0;
  req.on("data", (piece) => { length += piece.length; });
  req.on("aborted", () => { left++; });
  req.on("end", () => res.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ length })));
};
"#;

const APP_PY: &str = r#"
import asyncio, json

left = 0

async def app(scope, receive, send):
    global left
    assert scope["type"] == "http"
    how = scope["query_string"].decode().partition("how=")[2]
    async def answer(status, body, more=False):
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": body, "more_body": more})
    if how == "state":
        return await answer(200, json.dumps({"left": left}).encode())
    if how == "refuse":
        return await answer(403, b"no")
    if how == "late":
        await asyncio.sleep(1.5)
    if how == "echo":
        await answer(200, b"", more=True)
    length = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            left += 1
            return await answer(400, b"{}")
        length += len(message["body"])
        if how == "echo":
            await send({"type": "http.response.body", "body": message["body"], "more_body": message["more_body"]})
        if not message["more_body"]:
            break
    if how != "echo":
        await answer(200, json.dumps({"length": length}).encode())
"#;

const WSGI_PY: &str = r#"
import json, time

left = 0

def echoed(body):
    while piece := body.read1(65536):
        yield piece

def app(environ, start_response):
    global left
    how = environ["QUERY_STRING"].partition("how=")[2]
    body = environ["wsgi.input"]
    if how == "state":
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps({"left": left}).encode()]
    if how == "refuse":
        start_response("403 Forbidden", [])
        return [b"no"]
    if how == "late":
        time.sleep(1.5)
    if how == "echo":
        start_response("200 OK", [])(b"")
        return echoed(body)
    length = 0
    try:
        while piece := body.read1(65536):
            length += len(piece)
    except OSError:
        left += 1
        raise
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"length": length}).encode()]
"#;

const PROGRAM: &str = r#"#!/usr/bin/python3
import http.server, json, os, sys
left = 0
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        global left
        if self.path.endswith("how=state"):
            return self.answer(200, json.dumps({"left": left}).encode())
        if self.path.endswith("how=refuse"):
            return self.answer(403, b"no")
        length = 0
        if "content-length" in self.headers:
            whole = int(self.headers["content-length"])
            while length < whole and (piece := self.rfile.read(min(65536, whole - length))):
                length += len(piece)
            if length < whole:
                left += 1
                return
        else:
            while (line := self.rfile.readline().strip()) and (size := int(line, 16)):
                length += len(self.rfile.read(size))
                self.rfile.readline()
            if line == b"":
                left += 1
                return
        self.answer(200, json.dumps({"length": length}).encode())
    do_GET = do_POST
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"#;

const ALL: [&str; 6] = ["fetch", "reqres", "asgi", "several", "wsgi", "program"];

fn deployed(home: &std::path::Path) -> Node {
    let node = Node::start(home);
    let folder = home.join("uploads");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in [
        ("sinew.toml", MANIFEST),
        ("upload.js", UPLOAD_JS),
        ("reqres.js", REQRES_JS),
        ("app.py", APP_PY),
        ("wsgi.py", WSGI_PY),
        ("program", PROGRAM),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    std::fs::set_permissions(folder.join("program"), PermissionsExt::from_mode(0o755)).unwrap();
    node.ok(&["deploy", folder.to_str().unwrap()]);
    node
}

/// A connection on which the head of an upload was sent.
fn upload(node: &Node, function: &str, how: &str, length: &str) -> TcpStream {
    let mut stream = TcpStream::connect(&node.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(50))).unwrap();
    let head = format!("POST /function/{function}?how={how} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// What comes until the answer is whole, by its length or its last chunk.
fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut text = Vec::new();
    let mut piece = [0; 65536];
    loop {
        let whole = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = whole.split_once("\r\n\r\n") {
            let head = head.to_lowercase();
            let length =
                head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
            if length == Some(body.len()) || body.ends_with("0\r\n\r\n") {
                return (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned());
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => panic!("the answer is not whole: {whole}"),
            Ok(len) => text.extend(&piece[..len]),
        }
    }
}

fn state(node: &Node, function: &str) -> Value {
    let answer = node.http(&format!("GET /function/{function}?how=state"), b"");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn bodies_come_whole_however_they_are_sent() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = deployed(home.path());
    const MIB: usize = 3;
    let block: Vec<u8> = (0..1 << 20).map(|at: u32| at as u8).collect();
    for function in ALL {
        let mut counted = upload(&node, function, "", &format!("Content-Length: {}", MIB << 20));
        (0..MIB).for_each(|_| counted.write_all(&block).unwrap());
        let (status, body) = answer(&mut counted);
        let told: Value =
            serde_json::from_str(&body).unwrap_or_else(|_| panic!("{function}: {status} {body}"));
        assert_eq!((status, &told["length"]), (200, &json!(MIB << 20)), "{function}");
        let mut chunked = upload(&node, function, "", "Transfer-Encoding: chunked");
        for part in block.chunks(77_777) {
            chunked.write_all(format!("{:x}\r\n", part.len()).as_bytes()).unwrap();
            chunked.write_all(part).unwrap();
            chunked.write_all(b"\r\n").unwrap();
        }
        chunked.write_all(b"0\r\n\r\n").unwrap();
        let (status, body) = answer(&mut chunked);
        let told: Value =
            serde_json::from_str(&body).unwrap_or_else(|_| panic!("{function}: {status} {body}"));
        assert_eq!((status, &told["length"]), (200, &json!(1 << 20)), "{function}");
        // What is short comes at once, and what is none as well; a call by a function and one that is made later are whole.
        let brief = node.http(&format!("POST /function/{function}"), b"abc");
        assert!(brief.contains("\"length\""), "{function}: {brief}");
        let later = node.http(&format!("POST /async-function/{function}"), &block[..100_000]);
        let id: Value = serde_json::from_str(later.split_once("\r\n\r\n").unwrap().1).unwrap();
        let begun = Instant::now();
        loop {
            let told = node.http(&format!("GET /v1/async/{}/result", id["id"].as_str().unwrap()), b"");
            if told.contains("100000") {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{function}: {told}");
            std::thread::sleep(Duration::from_millis(20));
        }
        // By HTTP/2, too.
        let file = home.path().join("body");
        std::fs::write(&file, &block).unwrap();
        let url = format!("http://{}/function/{function}", node.address);
        let sent = Command::new("curl")
            .args(["-s", "--http2-prior-knowledge", "-T", file.to_str().unwrap(), "-X", "POST", &url])
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        let told: Value = serde_json::from_slice(&sent.stdout)
            .unwrap_or_else(|_| panic!("{function}: {}", String::from_utf8_lossy(&sent.stdout)));
        assert_eq!(told["length"], 1 << 20, "{function}");
    }
    let record = node.http("GET /v1/logs?limit=1", b"");
    assert!(record.contains("\"received_bytes\":1048576"), "{record}");
    assert_eq!(node.terminate(), 0);
}

/// The most memory that the node ever had.
fn peak_kib(node: &Node) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_function_that_does_not_read_keeps_its_client_waiting_and_the_node_small() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = deployed(home.path());
    for function in ["fetch", "asgi", "several", "wsgi"] {
        // One request before, for what it takes anyway.
        let mut first = upload(&node, function, "late", "Content-Length: 100000");
        first.write_all(&[0; 100_000]).unwrap();
        assert_eq!(answer(&mut first).0, 200);
        let before = peak_kib(&node);
        const LENGTH: usize = 256 << 20;
        let mut stream = upload(&node, function, "late", &format!("Content-Length: {LENGTH}"));
        stream.set_nonblocking(true).unwrap();
        let (block, mut sent, begun) = (vec![0; 1 << 20], 0, Instant::now());
        while begun.elapsed() < Duration::from_secs(1) {
            match stream.write(&block) {
                Ok(len) => sent += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(5))
                }
                Err(error) => panic!("{error}"),
            }
        }
        // What the kernel keeps between us and the node, mostly.
        assert!(sent < 16 << 20, "{function}: {sent} bytes were taken that nobody reads");
        stream.set_nonblocking(false).unwrap();
        while sent < LENGTH {
            sent += stream.write(&block[..block.len().min(LENGTH - sent)]).unwrap();
        }
        let (status, body) = answer(&mut stream);
        assert!(status == 200 && body.contains(&LENGTH.to_string()), "{function}: {body}");
        let grown = peak_kib(&node).saturating_sub(before);
        // A few huge pages, which come with the first work; and no part of what was sent.
        assert!(grown < 24 << 10, "{function}: the node grew by {grown} KiB");
    }
    assert_eq!(node.terminate(), 0);
}

#[test]
fn an_answer_may_begin_before_the_body_has_ended() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = deployed(home.path());
    for function in ["fetch", "reqres", "asgi"] {
        let mut stream = upload(&node, function, "echo", "Transfer-Encoding: chunked");
        let mut heard = String::new();
        let mut piece = [0; 4096];
        // Each word is sent when the one before has come back.
        for word in ["first", "second", "third"] {
            stream.write_all(format!("{:x}\r\n{word}\r\n", word.len()).as_bytes()).unwrap();
            while !heard.contains(word) {
                let len = stream.read(&mut piece).unwrap();
                assert!(len > 0, "{function}: {heard}");
                heard.push_str(&String::from_utf8_lossy(&piece[..len]));
            }
        }
        stream.write_all(b"0\r\n\r\n").unwrap();
        while !heard.ends_with("0\r\n\r\n") {
            let len = stream.read(&mut piece).unwrap();
            heard.push_str(&String::from_utf8_lossy(&piece[..len]));
            assert!(len > 0, "{function}: {heard}");
        }
        assert!(heard.starts_with("HTTP/1.1 200"), "{function}: {heard}");
    }
    assert_eq!(node.terminate(), 0);
}

#[test]
fn who_answers_without_reading_is_heard_and_who_leaves_too() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = deployed(home.path());
    for function in ALL {
        let mut refused =
            upload(&node, function, "refuse", "Content-Length: 1000000\r\nExpect: 100-continue");
        assert!(answer_after_continue(&mut refused).contains("403"), "{function}");
        // Who sends on hears it as well.
        let file = home.path().join("long");
        std::fs::write(&file, vec![0; 12 << 20]).unwrap();
        let url = format!("http://{}/function/{function}?how=refuse", node.address);
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            let arguments = ["-s", "-o", "/dev/null", "-w", "%{http_code}", version, "-H", "Expect:", "-T"];
            let mut curl = Command::new("curl");
            let sent = curl.args(arguments).arg(&file).args(["-X", "POST", &url]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&sent.stdout), "403", "{function}, {version}");
        }
        // A client that leaves in the middle.
        let mut left = upload(&node, function, "", "Content-Length: 1000000");
        left.write_all(&[0; 100_000]).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        drop(left);
        let begun = Instant::now();
        while state(&node, function)["left"] != 1 {
            assert!(begun.elapsed() < Duration::from_secs(15), "{function}: {}", state(&node, function));
            std::thread::sleep(Duration::from_millis(20));
        }
        // And it serves on.
        assert!(
            node.http(&format!("POST /function/{function}"), b"abc").contains("\"length\""),
            "{function}"
        );
    }
    assert_eq!(node.terminate(), 0);
}

/// What comes after a status of 100, if that comes first.
fn answer_after_continue(stream: &mut TcpStream) -> String {
    let (mut text, mut piece) = (String::new(), [0; 65536]);
    loop {
        let len = stream.read(&mut piece).unwrap();
        text.push_str(&String::from_utf8_lossy(&piece[..len]));
        if text.contains(" 403 ") || len == 0 {
            return text;
        }
    }
}
