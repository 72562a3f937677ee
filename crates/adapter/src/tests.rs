// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod asking;
mod at_once;

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread::JoinHandle;

use super::*;
use crate::answer::Reading;

/// What the node hears.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Loaded,
    Result(u16, String, Vec<u8>),
    Raised(String),
    BadResult(String),
    /// Bytes of a result, the first with its head.
    Piece(Vec<u8>),
}

/// The node's end, with a program behind the other one.
struct Node {
    stream: UnixStream,
    log: String,
    /// Of the last call.
    turn: u32,
    thread: Option<JoinHandle<io::Result<()>>>,
    folder: tempfile::TempDir,
}

impl Node {
    /// A script as the program, of which all that is in the container is in `folder`.
    fn with(script: &str, mode: Mode, result_max: u64) -> Self {
        Self::with_bounds(script, mode, result_max, 1000, 1)
    }

    fn with_bounds(script: &str, mode: Mode, result_max: u64, log_max: u64, calls: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("main");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let (stream, theirs) = UnixStream::pair().unwrap();
        let settings = Settings {
            program,
            mode,
            takes_http_event: false,
            function: "greet".to_owned(),
            memory_mib: "256".to_owned(),
            environment: vec![("WHO".to_owned(), "Ada".to_owned())],
            directory: folder.path().to_owned(),
            folder: folder.path().to_owned(),
        };
        let thread = std::thread::spawn(move || serve(theirs, settings));
        let mut node = Self { stream, log: String::new(), turn: 0, thread: Some(thread), folder };
        assert_eq!(node.frame().0, 1, "hello");
        let mut load = Vec::new();
        load.extend(result_max.to_le_bytes());
        load.extend(log_max.to_le_bytes());
        load.extend(calls.to_le_bytes());
        load.extend(0_u16.to_le_bytes());
        node.send(2, &load);
        node
    }

    fn send(&mut self, kind: u8, payload: &[u8]) {
        self.stream.write_all(&(payload.len() as u32).to_le_bytes()).unwrap();
        self.stream.write_all(&[kind]).unwrap();
        self.stream.write_all(&self.turn.to_le_bytes()).unwrap();
        self.stream.write_all(payload).unwrap();
    }

    fn frame(&mut self) -> (u8, Vec<u8>) {
        let mut header = [0; 9];
        self.stream.read_exact(&mut header).unwrap();
        let len = u32::from_le_bytes(header[..4].try_into().unwrap());
        let turn = u32::from_le_bytes(header[5..].try_into().unwrap());
        // Answers are those of their call; logs also of what is between calls.
        assert!(turn == self.turn || (header[4] == 8 && turn == 0), "{turn} {}", self.turn);
        let mut payload = vec![0; len as usize];
        self.stream.read_exact(&mut payload).unwrap();
        (header[4], payload)
    }

    fn hear(&mut self) -> Heard {
        loop {
            let (kind, payload) = self.frame();
            match kind {
                8 => self.log.push_str(std::str::from_utf8(&payload[1..]).unwrap()),
                3 => return Heard::Loaded,
                5 if payload.is_empty() => return Heard::Result(0, String::new(), payload),
                5 => {
                    let len = u32::from_le_bytes(payload[..4].try_into().unwrap()) as usize;
                    let head: serde_json::Value = serde_json::from_slice(&payload[4..4 + len]).unwrap();
                    let status = head["status"].as_u64().unwrap() as u16;
                    return Heard::Result(status, head["headers"].to_string(), payload[4 + len..].to_vec());
                }
                6 => return Heard::Raised(String::from_utf8_lossy(&payload).replace('\0', "")),
                7 => return Heard::BadResult(String::from_utf8(payload).unwrap()),
                12 => return Heard::Piece(payload),
                other => panic!("frame {other}"),
            }
        }
    }

    /// Calls it, and puts together what comes in pieces.
    fn call(&mut self, head: &str, body: &[u8]) -> Heard {
        self.ask(head, body);
        let mut heard = self.hear();
        let mut whole = Vec::new();
        while let Heard::Piece(piece) = &heard {
            self.send(13, &(piece.len() as u32).to_le_bytes());
            whole.extend_from_slice(piece);
            heard = self.hear();
        }
        match heard {
            Heard::Result(0, _, rest) if !whole.is_empty() => {
                let len = u32::from_le_bytes(whole[..4].try_into().unwrap()) as usize;
                let head: serde_json::Value = serde_json::from_slice(&whole[4..4 + len]).unwrap();
                assert!(rest.is_empty());
                let status = head["status"].as_u64().unwrap() as u16;
                Heard::Result(status, head["headers"].to_string(), whole[4 + len..].to_vec())
            }
            heard => heard,
        }
    }

    fn ask(&mut self, head: &str, body: &[u8]) {
        let mut payload = 3_u32.to_le_bytes().to_vec();
        for len in [1, head.len(), body.len()] {
            payload.extend((len as u32).to_le_bytes());
        }
        payload.extend([b"i", head.as_bytes(), body].concat());
        self.turn += 1;
        self.send(4, &payload);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        _ = self.stream.shutdown(std::net::Shutdown::Both);
        // What ends the channel ends the adapter.
        _ = self.thread.take().unwrap().join();
    }
}

/// [`run`], with settings of the test's own and a socket instead of the port.
fn serve(channel: UnixStream, settings: Settings) -> io::Result<()> {
    let mut channel = Channel::open(channel)?;
    channel.load()?;
    Serving::new(channel, settings, 1)?.run()
}

const HEAD: &str = r#"{"request_id":"r1","function":"f","version":7,"deadline_ms":5,"source":"http"}
    {"method":"PUT","path":"/a b","query":"q=1","headers":[["content-type","text/x"],["x-y","z"],["proxy","evil"]]}"#;

#[test]
fn a_program_that_is_run_each_time_reads_and_prints() {
    let script = "#!/bin/sh\nread line\necho \"$REQUEST_METHOD $PATH_INFO $QUERY_STRING $CONTENT_TYPE $HTTP_X_Y\
        [$HTTP_PROXY] $SINEW_REQUEST_ID $CONTENT_LENGTH $WHO $line\"\necho told >&2\n";
    let mut node = Node::with(script, Mode::Standard, 1000);
    assert_eq!(node.hear(), Heard::Loaded);
    let said = b"PUT /a b q=1 text/x z[] r1 5 Ada hello\n".to_vec();
    let kind = r#"[["content-type","text/plain; charset=utf-8"]]"#.to_owned();
    assert_eq!(node.call(HEAD, b"hello"), Heard::Result(200, kind, said));
    assert_eq!(node.log, "told\n");
}

#[test]
fn a_program_calls_other_functions_at_its_own_address() {
    if !Path::new("/usr/bin/curl").exists() {
        eprintln!("skipped: there is no curl");
        return;
    }
    let script = "#!/bin/sh\ncurl -s -w ' %{http_code} %{content_type}' -H 'content-type: a/b' --data-binary @- $SINEW_URL/function/g\n";
    let mut node = Node::with(script, Mode::Standard, 1 << 20);
    assert_eq!(node.hear(), Heard::Loaded);
    let large = vec![b'x'; 3 << 20];
    for (body, status) in [(&b"hello"[..], 200_u16), (&large, 503)] {
        let mut payload = 3_u32.to_le_bytes().to_vec();
        payload.extend([1, HEAD.len() as u32, body.len() as u32].iter().flat_map(|len| len.to_le_bytes()));
        payload.extend([b"i", HEAD.as_bytes(), body].concat());
        node.turn += 1;
        node.send(4, &payload);
        let (kind, ask) = node.frame();
        let (id, rest) = ask.split_at(4);
        assert_eq!((kind, rest), (10, &[b"\x01\0g\x03\0a/b", body].concat()[..]));
        node.send(11, &[id, &status.to_le_bytes(), b"\x03\0c/d", b"back"].concat());
        let said = format!("back {status} c/d").into_bytes();
        assert!(matches!(node.hear(), Heard::Result(200, _, told) if told == said));
    }
    // Who reads to the end of the connection hears it.
    let script = "#!/usr/bin/python3\nimport os, socket\nat = socket.socket()\n\
        at.connect(('127.0.0.1', int(os.environ['SINEW_URL'].rpartition(':')[2])))\n\
        at.sendall(b'POST /function/g HTTP/1.1\\r\\ncontent-length: 0\\r\\n\\r\\n')\n\
        while piece := at.recv(99): print(len(piece) > 0)\n";
    let mut node = Node::with(script, Mode::Standard, 1 << 20);
    assert_eq!(node.hear(), Heard::Loaded);
    node.ask(HEAD, b"");
    let (_, ask) = node.frame();
    node.send(11, &[&ask[..4], &200_u16.to_le_bytes(), b"\x03\0c/dback"].concat());
    assert!(matches!(node.hear(), Heard::Result(200, _, said) if said.starts_with(b"True")));
    // An answer that comes after the request is nobody's.
    let mut quick = Node::with("#!/bin/sh\ncat\n", Mode::Standard, 1000);
    assert_eq!(quick.hear(), Heard::Loaded);
    quick.send(11, b"\x01\0\0\0\xc8\0\0\0late");
    assert!(matches!(quick.call(HEAD, b"hello"), Heard::Result(200, _, told) if told == b"hello"));
}

#[test]
fn a_program_that_reads_nothing_and_one_that_prints_much_do_not_hang() {
    let mut node = Node::with("#!/bin/sh\necho '{}'\n", Mode::Standard, 1000);
    assert_eq!(node.hear(), Heard::Loaded);
    let large = vec![b'x'; 4 << 20];
    let json = r#"[["content-type","application/json"]]"#.to_owned();
    assert_eq!(node.call(HEAD, &large), Heard::Result(200, json, b"{}\n".to_vec()));
    // A pipe takes less than this in either direction.
    let mut echo =
        Node::with("#!/bin/sh\ncat; cat /dev/zero | head -c 300000 >&2\n", Mode::Standard, 8 << 20);
    assert_eq!(echo.hear(), Heard::Loaded);
    let Heard::Result(200, _, body) = echo.call(HEAD, &large) else { panic!() };
    assert_eq!(body.len(), large.len());
    assert!(echo.log.len() < 1100 && echo.log.contains("output over 1000 bytes was dropped"));
}

#[test]
fn what_is_wrong_with_a_program_is_told() {
    let mut node = Node::with("#!/bin/sh\necho why >&2\nexit 3\n", Mode::Standard, 10);
    assert_eq!(node.hear(), Heard::Loaded);
    let Heard::Raised(told) = node.call(HEAD, b"") else { panic!() };
    assert!(told.contains("ended with status 3") && told.contains("why"), "{told}");
    let mut node = Node::with("#!/bin/sh\nkill -9 $$\n", Mode::Standard, 10);
    assert_eq!(node.hear(), Heard::Loaded);
    let Heard::Raised(told) = node.call(HEAD, b"") else { panic!() };
    assert!(told.contains("signal 9"), "{told}");
    let mut node = Node::with("#!/bin/sh\ncat /dev/zero\n", Mode::Standard, 10);
    assert_eq!(node.hear(), Heard::Loaded);
    let Heard::BadResult(told) = node.call(HEAD, b"") else { panic!() };
    assert!(told.contains("more than 10 bytes"), "{told}");
    // It serves on, whatever went wrong.
    let Heard::BadResult(_) = node.call(HEAD, b"") else { panic!() };
}

#[test]
fn what_cannot_be_run_is_told_when_it_is_loaded() {
    let mut node = Node::with("no program", Mode::Http, 10);
    let Heard::Raised(told) = node.hear() else { panic!() };
    assert!(told.contains("is no program for this machine"), "{told}");
    let mut node = Node::with("#!/no/such/interpreter\n", Mode::Http, 10);
    let Heard::Raised(told) = node.hear() else { panic!() };
    assert!(told.contains("its interpreter or loader is not in the container"), "{told}");
    let mut node = Node::with("#!/bin/sh\necho oh >&2; exit 4\n", Mode::Http, 10);
    let Heard::Raised(told) = node.hear() else { panic!() };
    assert!(told.contains("ended with status 4 before it listened") && told.contains("oh"), "{told}");
}

/// A server in Python on the socket, with a path for each way to misbehave.
const SERVER: &str = r#"#!/usr/bin/python3
import http.server, os, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def address_string(self): return "-"
    def do_PUT(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        path = self.path.split("?")[0]
        if path == "/exit": os._exit(5)
        if path == "/close":
            self.close_connection = True
            return
        if path == "/junk": return self.wfile.write(b"not http at all\r\n\r\n")
        if path == "/endless":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            try:
                while True: self.wfile.write(b"x" * 65536)
            except OSError:
                print("left", flush=True)
                self.close_connection = True
                return
        if path == "/events":
            self.wfile.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
            # Goes on when somebody has heard that.
            with open("heard") as heard: heard.read()
            self.wfile.write(b"3\r\ntwo\r\n0\r\n\r\n")
            return
        print("served", self.path, self.headers["x-y"], self.headers["x-request-id"], flush=True)
        self.send_response_only(201)
        self.send_header("X-A", "1")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"3\r\nabc\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
class Server(socketserver.UnixStreamServer): pass
Server(os.environ["SINEW_SOCKET"], Handler).serve_forever()
"#;

#[test]
fn a_server_is_asked_and_its_misdeeds_are_told() {
    if !Path::new("/usr/bin/python3").exists() {
        return eprintln!("skipped: there is no /usr/bin/python3");
    }
    let mut node = Node::with(SERVER, Mode::Http, 1 << 20);
    assert_eq!(node.hear(), Heard::Loaded);
    let at = |path: &str| HEAD.replace("/a b", path);
    let answer = node.call(&at("/x"), b"body");
    assert_eq!(answer, Heard::Result(201, r#"[["x-a","1"]]"#.to_owned(), b"abcbody".to_vec()));
    assert_eq!(node.log, "served /x?q=1 z r1\n");
    let Heard::BadResult(told) = node.call(&at("/junk"), b"b") else { panic!() };
    assert!(told.contains("does not answer with HTTP/1.1"), "{told}");
    // As much as there is room for, and no more.
    node.ask(&at("/endless"), b"b");
    let mut len = 0;
    while len < 256 << 10 {
        let Heard::Piece(piece) = node.hear() else { panic!("no piece") };
        len += piece.len();
    }
    assert_eq!(len, 256 << 10);
    node.send(14, b"");
    let Heard::Raised(told) = node.hear() else { panic!() };
    assert!(told.contains("nobody waits for the answer"), "{told}");
    let Heard::Raised(told) = node.call(&at("/close"), b"b") else { panic!() };
    assert!(told.contains("closed the connection without an answer"), "{told}");
    let Heard::Raised(told) = node.call(&at("/exit"), b"b") else { panic!() };
    assert!(told.contains("ended with status 5 during the call"), "{told}");
    // It is started again.
    assert!(matches!(node.call(&at("/x"), b""), Heard::Result(201, ..)));
    assert!(node.folder.path().join("http.sock").exists());
}

#[test]
fn what_has_to_be_waited_for_is_sent_before_it_is_whole() {
    if !Path::new("/usr/bin/python3").exists() {
        return eprintln!("skipped: there is no /usr/bin/python3");
    }
    let mut node = Node::with(SERVER, Mode::Http, 1 << 20);
    assert_eq!(node.hear(), Heard::Loaded);
    let fifo = node.folder.path().join("heard");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut begins = Vec::new();
    node.ask(&HEAD.replace("/a b", "/events"), b"");
    while !begins.ends_with(b"one") {
        let Heard::Piece(piece) = node.hear() else { panic!("no piece") };
        begins.extend(piece);
    }
    fs::write(&fifo, b"").unwrap();
    assert_eq!(node.hear(), Heard::Piece(b"two".to_vec()));
    assert_eq!(node.hear(), Heard::Result(0, String::new(), Vec::new()));
    // Room that comes late is nobody's: the next answer is whole, however the program's writes come.
    node.send(13, &9_u32.to_le_bytes());
    let Heard::Result(201, _, body) = node.call(&HEAD.replace("/a b", "/x"), b"b") else { panic!() };
    assert_eq!(body, b"abcb");
    // More than there is room for is sent as it is taken.
    let large = vec![b'x'; 1 << 20];
    let Heard::Result(201, _, body) = node.call(&HEAD.replace("/a b", "/x"), &large) else { panic!() };
    assert_eq!(body.len(), 3 + large.len());
}

#[test]
fn a_program_that_has_closed_its_output_may_call_others() {
    if !Path::new("/usr/bin/curl").exists() {
        return eprintln!("skipped: there is no curl");
    }
    let script = "#!/bin/sh\necho said\nexec >&-\ncurl -s -d hello $SINEW_URL/function/g >&2\n";
    let mut node = Node::with(script, Mode::Standard, 1 << 20);
    assert_eq!(node.hear(), Heard::Loaded);
    node.ask(HEAD, b"");
    let (kind, ask) = node.frame();
    assert_eq!(kind, 10);
    node.send(11, &[&ask[..4], &200_u16.to_le_bytes(), b"\x03\0c/dback"].concat());
    assert!(matches!(node.hear(), Heard::Result(200, _, said) if said == b"said\n"));
    assert_eq!(node.log, "back");
}

fn read(pieces: &[&[u8]], is_head_only: bool, most: usize) -> Result<Vec<u8>, String> {
    let mut reading = Reading::new(is_head_only, most);
    for piece in pieces {
        reading.take(piece)?;
    }
    if !reading.is_whole {
        reading.end()?;
    }
    reading.whole()
}

#[test]
fn answers_are_read_however_they_come() {
    let whole = |body: &str| {
        let head = r#"{"status":200,"headers":[["a","b"]]}"#;
        [&(head.len() as u32).to_le_bytes(), head.as_bytes(), body.as_bytes()].concat()
    };
    let counted = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 3\r\n\r\nabcd";
    let chunked =
        b"HTTP/1.1 200 OK\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
    let closed = b"HTTP/1.0 200 OK\r\nA: b\r\n\r\nabc";
    for bytes in [&counted[..], chunked, closed] {
        assert_eq!(read(&[bytes], false, 3), Ok(whole("abc")));
        let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&pieces, false, 3), Ok(whole("abc")));
        assert!(read(&[bytes], false, 2).unwrap_err().contains("more than 2 bytes"));
    }
    assert_eq!(read(&[b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 9\r\n\r\n"], true, 3), Ok(whole("")));
}

#[test]
fn what_is_no_answer_is_told() {
    for (bytes, why) in [
        (&b"HTTP/2 200\r\n\r\n"[..], "HTTP/1.1"),
        (b"HTTP/1.1 20\r\n\r\n", "HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nnothing\r\n\r\n", "no header"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "no length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", "before its end"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "no length"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "more than 9 bytes"),
        (b"", "before its end"),
    ] {
        let told = read(&[bytes], false, 9).unwrap_err();
        assert!(told.contains(why), "{told}");
    }
    assert!(read(&[&vec![b'a'; 70_000]], false, 9).unwrap_err().contains("head"));
    let endless =
        [&b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..], &vec![b'1'; 70_000]].concat();
    assert!(read(&[&endless], false, 9).unwrap_err().contains("no end"));
}
