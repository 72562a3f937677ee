// SPDX-License-Identifier: Apache-2.0
//! Several requests at once, and connections that are kept.

use super::*;

/// A server that has a thread for each connection, and answers when it is told so: `/wait/N` when `N` is written into
/// the fifo of that name. It counts its connections.
const SERVER: &str = r#"#!/usr/bin/python3
import http.client, http.server, os, socket, socketserver, sys, time
def say(line): os.write(1, f"{line}\n".encode())
connections = -1  # The first one only looks whether somebody listens.
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def address_string(self): return "-"
    def do_GET(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        what = self.path.strip("/").split("?")[0].split("/")
        if what[0] == "wait":
            say(f"waits {what[1]} for {self.headers['x-request-id']}")
            with open(what[1]) as told: body = told.read().encode()
        if what[0] == "leave":
            # Like a server that is tired of an idle connection.
            self.close_connection = True
            if os.path.exists("left"): body = b"stays"
            else:
                open("left", "w").close()
                return
        if what[0] == "call":
            at = self.headers["sinew-url"] if what[1] == "its" else os.environ["SINEW_URL"]
            host, _, path = at.removeprefix("http://").partition("/")
            peer = http.client.HTTPConnection(host)
            peer.request("POST", (f"/{path}" if path else "") + "/function/g", body)
            answer = peer.getresponse()
            body = b"%d %s" % (answer.status, answer.read())
        if what[0] == "say": say(what[1])
        if what[0] == "close":
            self.close_connection = True
            return
        if what[0] == "end": os._exit(6)
        if what[0] == "none":
            self.wfile.write(b"HTTP/1.1 204 None\r\ncontent-length: 38\r\n\r\n")
            time.sleep(0.05)
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")
            return
        if what[0] == "trailers":
            self.wfile.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\na: b\r\n\r\n")
            return
        self.send_response_only(200)
        told = b"%d %s" % (connections, body)
        self.send_header("content-length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)
    do_POST = do_GET
class Server(socketserver.ThreadingUnixStreamServer):
    request_queue_size = int(os.environ.get("BACKLOG", "64"))
    daemon_threads = True
    def get_request(self):
        global connections
        connections += 1
        return super().get_request()
Server(os.environ["SINEW_SOCKET"], Handler).serve_forever()
"#;

impl Node {
    fn serving(script: &str) -> Option<Self> {
        Self::serving_at_once(script, 64)
    }

    fn serving_at_once(script: &str, calls: u16) -> Option<Self> {
        if !Path::new("/usr/bin/python3").exists() {
            eprintln!("skipped: there is no /usr/bin/python3");
            return None;
        }
        let mut node = Self::with_bounds(script, Mode::Http, 1 << 20, 1000, calls);
        assert_eq!(node.hear(), Heard::Loaded);
        Some(node)
    }

    /// Begins a call beside those that run.
    fn begin(&mut self, method: &str, path: &str, body: &[u8]) -> u32 {
        let turn = self.turn + 1;
        let head = HEAD
            .replace("/a b", path)
            .replace("PUT", method)
            .replace("\"r1\"", &format!("\"request-of-turn-{turn}\""));
        self.ask(&head, body);
        turn
    }

    /// The next frame of any call, but for what is printed: that is kept, behind its call.
    fn any(&mut self) -> (u32, u8, Vec<u8>) {
        loop {
            let mut header = [0; 9];
            self.stream.read_exact(&mut header).unwrap();
            let len = u32::from_le_bytes(header[..4].try_into().unwrap());
            let turn = u32::from_le_bytes(header[5..].try_into().unwrap());
            let mut payload = vec![0; len as usize];
            self.stream.read_exact(&mut payload).unwrap();
            if header[4] != 8 {
                return (turn, header[4], payload);
            }
            self.log.push_str(&format!("{turn}: {}", String::from_utf8_lossy(&payload[1..])));
        }
    }

    /// What the next one that ends has answered.
    fn next_body(&mut self) -> (u32, String) {
        let (turn, kind, payload) = self.any();
        assert_eq!(kind, 5, "{}", String::from_utf8_lossy(&payload));
        let len = u32::from_le_bytes(payload[..4].try_into().unwrap()) as usize;
        (turn, String::from_utf8_lossy(&payload[4 + len..]).into_owned())
    }

    fn fifo(&self, name: &str) {
        let path = self.folder.path().join(name);
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    fn tell(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }
}

#[test]
fn requests_that_come_at_once_are_answered_as_they_end() {
    let Some(mut node) = Node::serving(SERVER) else { return };
    ["a", "b"].into_iter().for_each(|name| node.fifo(name));
    let (first, second) = (node.begin("GET", "/wait/a", b""), node.begin("GET", "/wait/b", b""));
    let third = node.begin("POST", "/", b"third");
    assert_eq!(node.next_body(), (third, "3 third".to_owned()));
    node.tell("b", "two");
    assert_eq!(node.next_body(), (second, "3 two".to_owned()));
    node.tell("a", "one");
    assert_eq!(node.next_body(), (first, "3 one".to_owned()));
    // What names a request is told with it; the rest of what is printed meanwhile is nobody's.
    for (turn, name) in [(first, "a"), (second, "b")] {
        let line = format!("{turn}: waits {name} for request-of-turn-{turn}\n");
        assert!(node.log.contains(&line), "{line} {}", node.log);
    }
}

#[test]
fn the_end_of_the_program_is_that_of_all_its_requests() {
    let Some(mut node) = Node::serving(SERVER) else { return };
    node.fifo("a");
    let mut begun = vec![node.begin("GET", "/wait/a", b""), node.begin("GET", "/end", b"")];
    for _ in 0..2 {
        let (turn, kind, payload) = node.any();
        assert!(kind == 6 && String::from_utf8_lossy(&payload).contains("ended with status 6"));
        begun.retain(|begun| *begun != turn);
    }
    assert!(begun.is_empty());
    // It is started again.
    let next = node.begin("POST", "/", b"next");
    assert_eq!(node.next_body(), (next, "1 next".to_owned()));
}

#[test]
fn a_call_of_another_function_is_of_the_request_that_it_names() {
    let Some(mut node) = Node::serving(SERVER) else { return };
    node.fifo("a");
    let told = |id: &[u8]| [id, &200_u16.to_le_bytes(), b"\0\0back"].concat();
    // Of one that runs alone anyhow.
    let alone = node.begin("POST", "/call/any", b"alone");
    let (turn, kind, ask) = node.any();
    assert!((turn, kind) == (alone, 10) && ask.ends_with(b"alone"));
    node.send(11, &told(&ask[..4]));
    assert_eq!(node.next_body(), (alone, "1 200 back".to_owned()));
    let waits = node.begin("GET", "/wait/a", b"");
    let calls = node.begin("POST", "/call/its", b"its");
    let (turn, kind, ask) = node.any();
    assert!((turn, kind) == (calls, 10) && ask.ends_with(b"its"));
    node.send(11, &told(&ask[..4]));
    let (turn, body) = node.next_body();
    assert!(turn == calls && body.ends_with("200 back"), "{body}");
    // Of two that run, nobody knows which.
    let asks = node.begin("POST", "/call/any", b"whose");
    let (turn, body) = node.next_body();
    assert!(turn == asks && body.contains("409") && body.contains("sinew-url"), "{body}");
    node.tell("a", "one");
    assert_eq!(node.next_body().0, waits);
}

#[test]
fn a_connection_is_kept_while_nothing_is_left_on_it() {
    let Some(mut node) = Node::serving(SERVER) else { return };
    let mut post = |path: &str| {
        let turn = node.begin("POST", path, b"x");
        let (of, kind, payload) = node.any();
        assert_eq!(of, turn);
        (kind, String::from_utf8_lossy(&payload).into_owned())
    };
    for _ in 0..3 {
        assert!(post("/").1.ends_with("1 x"));
    }
    // What may have been heard is not said again.
    let (kind, told) = post("/leave");
    assert!(kind == 6 && told.contains("without an answer"), "{told}");
    assert!(post("/").1.ends_with("2 x"));
    // Trailers would be the next answer's beginning.
    assert!(post("/trailers").1.ends_with('x'));
    assert!(post("/").1.ends_with("3 x"));
    std::thread::sleep(std::time::Duration::from_millis(1200));
    assert!(post("/").1.ends_with("4 x"), "one that is idle for long is closed");
}

#[test]
fn what_can_be_asked_again_is_if_a_kept_connection_gives_nothing() {
    let Some(mut node) = Node::serving(SERVER) else { return };
    let first = node.begin("GET", "/", b"x");
    assert_eq!(node.next_body(), (first, "1 x".to_owned()));
    let again = node.begin("GET", "/leave", b"x");
    assert_eq!(node.next_body(), (again, "2 stays".to_owned()));
    // On a connection of its own it is the program's answer that it gives none.
    fs::remove_file(node.folder.path().join("left")).unwrap();
    node.begin("GET", "/leave", b"x");
    let (_, kind, told) = node.any();
    assert!(kind == 6 && String::from_utf8_lossy(&told).contains("without an answer"));
}

#[test]
fn a_program_that_accepts_few_connections_gets_them_one_after_the_other() {
    let slow = "connections += 1\n        time.sleep(0.02)";
    let script = SERVER.replace("connections += 1", slow);
    let script = script.replace("os.environ.get(\"BACKLOG\", \"64\")", "1");
    let Some(mut node) = Node::serving(&script) else { return };
    let mut begun: Vec<u32> = (0..20).map(|_| node.begin("POST", "/", b"x")).collect();
    while !begun.is_empty() {
        let (turn, body) = node.next_body();
        assert!(body.ends_with(" x"), "{body}");
        begun.retain(|begun| *begun != turn);
    }
}

#[test]
fn a_failure_is_told_with_what_was_printed_for_it_and_for_nobody_else() {
    let Some(mut node) = Node::serving(SERVER) else { return };
    node.fifo("a");
    let waits = node.begin("GET", "/wait/a", b"");
    let says = node.begin("POST", "/say/the-password-of-Ada", b"");
    assert_eq!(node.next_body().0, says);
    let closed = node.begin("POST", "/close", b"");
    let (turn, kind, told) = node.any();
    let told = String::from_utf8_lossy(&told).into_owned();
    assert!((turn, kind) == (closed, 6) && told.contains("without an answer"), "{told}");
    assert!(!told.contains("Ada") && !told.contains("waits"), "{told}");
    node.tell("a", "one");
    assert_eq!(node.next_body().0, waits);
    // Alone it is its own.
    node.begin("POST", "/say/of-nobody-else", b"");
    node.any();
    assert!(node.log.contains("the-password-of-Ada") && node.log.contains("of-nobody-else"), "{}", node.log);
}

#[test]
fn a_body_where_there_is_to_be_none_is_no_other_request_s_answer() {
    let Some(mut node) = Node::serving(SERVER) else { return };
    for method in ["GET", "HEAD", "POST"] {
        let none = node.begin(method, "/none", b"");
        let (turn, kind, _) = node.any();
        assert_eq!((turn, kind), (none, 5));
        std::thread::sleep(std::time::Duration::from_millis(100));
        let next = node.begin("POST", "/", b"own");
        let (turn, body) = node.next_body();
        assert!(turn == next && body.ends_with("own"), "{method}: {body}");
    }
}

#[test]
fn requests_that_get_no_answer_keep_no_other_one_waiting() {
    let Some(mut node) = Node::serving(SERVER) else { return };
    let first = node.begin("POST", "/", b"first");
    assert_eq!(node.next_body().0, first);
    (0..20).for_each(|_| _ = node.begin("POST", "/close", b""));
    let last = node.begin("POST", "/", b"last");
    let mut failed_before = 0;
    loop {
        match node.any() {
            (turn, 5, _) if turn == last => break,
            (_, 6, _) => failed_before += 1,
            other => panic!("{other:?}"),
        }
    }
    // One after the other, each would be found out about for twenty milliseconds.
    assert!(failed_before < 20, "{failed_before}");
    for _ in failed_before..20 {
        assert_eq!(node.any().1, 6);
    }
}

#[test]
fn what_is_printed_while_nothing_runs_has_a_bound() {
    let chatty = SERVER.replace(
        "Server(os.environ",
        "import threading\nthreading.Timer(0.3, lambda: say('x' * 200000)).start()\nServer(os.environ",
    );
    if !Path::new("/usr/bin/python3").exists() {
        return eprintln!("skipped: there is no /usr/bin/python3");
    }
    let mut node = Node::with_bounds(&chatty, Mode::Http, 1 << 20, 1 << 20, 64);
    assert_eq!(node.hear(), Heard::Loaded);
    std::thread::sleep(std::time::Duration::from_millis(800));
    let next = node.begin("POST", "/", b"own");
    assert_eq!(node.next_body().0, next);
    // With the note that some of it is missing.
    assert!(node.log.len() < (32 << 10) + 200 && node.log.contains("over 32768 bytes"), "{}", node.log.len());
}

#[test]
fn many_that_wait_for_a_connection_are_served_in_order() {
    let script = SERVER.replace("class Server(", "import threading\nclass Server(").replace(
        "daemon_threads = True",
        "daemon_threads = True\n    def process_request(self, *given):\n        self.process_request_thread(*given)",
    );
    let script =
        script.replace("os.environ.get(\"BACKLOG\", \"64\")", "1").replace("HTTP/1.1\"\n", "HTTP/1.0\"\n");
    let Some(mut node) = Node::serving(&script) else { return };
    node.fifo("a");
    let waits = node.begin("GET", "/wait/a", b"");
    let begun: Vec<u32> = (0..60).map(|_| node.begin("POST", "/", b"x")).collect();
    node.tell("a", "one");
    let mut ended = Vec::new();
    while ended.len() < 61 {
        ended.push(node.next_body().0);
    }
    assert_eq!(ended, [&[waits][..], &begun].concat());
}

#[test]
fn a_request_that_nobody_waits_for_ends_alone() {
    let Some(mut node) = Node::serving(SERVER) else { return };
    node.fifo("a");
    let waits = node.begin("GET", "/wait/a", b"");
    let first = node.begin("POST", "/", b"first");
    assert_eq!(node.next_body().0, first);
    let last = node.turn;
    node.turn = waits;
    node.send(14, b"");
    let (turn, kind, told) = node.any();
    assert_eq!((turn, kind), (waits, 6));
    assert!(String::from_utf8_lossy(&told).contains("nobody waits for the answer"));
    // Of what is over, nothing more is said.
    node.send(14, b"");
    node.turn = last;
    let next = node.begin("POST", "/", b"next");
    let (turn, body) = node.next_body();
    assert!(turn == next && body.ends_with("next"), "{body}");
}

/// It accepts when it is told so, and closes what it has answered on.
const STUBBORN: &str = r#"#!/usr/bin/python3
import os, socket
at = socket.socket(socket.AF_UNIX)
at.bind(os.environ["SINEW_SOCKET"])
at.listen(0)
at.accept()[0].close()
def request(peer):
    come = b""
    while b"\r\n\r\n" not in come: come += peer.recv(9999)
def answer(peer, more=b""): peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n" + more + b"\r\nok")
first = at.accept()[0]
request(first)
answer(first)
request(first)
with open("go") as told: told.read()
first.close()
while True:
    with open("go") as told: told.read()
    peer = at.accept()[0]
    request(peer)
    # Otherwise the next one may be sent on it just before it is closed.
    answer(peer, b"connection: close\r\n")
    peer.close()
"#;

#[test]
fn one_that_lost_its_connection_gets_another_in_its_turn() {
    let Some(mut node) = Node::serving(STUBBORN) else { return };
    node.fifo("go");
    let first = node.begin("GET", "/", b"");
    assert_eq!(node.next_body().0, first);
    // On the connection that is kept; two more fill the queue, and one stands in line for it.
    let again = node.begin("GET", "/again", b"");
    std::thread::sleep(std::time::Duration::from_millis(50));
    let others: Vec<u32> = (0..3).map(|_| node.begin("POST", "/", b"")).collect();
    std::thread::sleep(std::time::Duration::from_millis(50));
    node.tell("go", "");
    std::thread::sleep(std::time::Duration::from_millis(50));
    let mut ended = Vec::new();
    for _ in 0..4 {
        node.tell("go", "");
        ended.push(node.next_body().0);
    }
    ended.sort_unstable();
    assert_eq!(ended, [&[again][..], &others].concat());
}

#[test]
fn after_one_was_given_up_a_call_is_still_of_the_only_one_that_there_can_be() {
    for (calls, is_clear) in [(1, true), (64, false)] {
        let Some(mut node) = Node::serving_at_once(SERVER, calls) else { return };
        node.fifo("a");
        node.begin("GET", "/wait/a", b"");
        node.send(14, b"");
        assert_eq!(node.any().1, 6);
        let asks = node.begin("POST", "/call/any", b"whose");
        if is_clear {
            let (turn, kind, ask) = node.any();
            assert_eq!((turn, kind), (asks, 10));
            node.send(11, &[&ask[..4], &200_u16.to_le_bytes(), b"\0\0back"].concat());
        }
        let (turn, body) = node.next_body();
        assert!(turn == asks && body.contains(if is_clear { "200 back" } else { "409" }), "{body}");
    }
}
