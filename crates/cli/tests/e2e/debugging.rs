// SPDX-License-Identifier: Apache-2.0
//! `sinew dev --debug` as an editor meets it: a breakpoint is hit in the running
//! handler, a variable read, the handler let go on, and its answer is right.
//! Nobody is timed meanwhile: the functions have a millisecond by their manifest.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use super::dev::{Dev, call, new};
use super::functions::is_root;
use super::requirements::environment;

/// Enough for a slow machine; nothing is measured.
const PATIENCE: Duration = Duration::from_secs(180);

const PYTHON: &str = "def handler(event, context):\n    name = event['name']\n    told = 'Hello, ' + name\n    return told + '!'\n";
const NODE: &str = "export const handler = (event) => {\n  const { name } = event;\n  const told = `Hello, ${name}`;\n  return told + '!';\n};\n";

fn connected(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A session of the debug adapter protocol.
struct Adapter {
    stream: BufReader<TcpStream>,
    last: u64,
}

impl Adapter {
    /// Attaches, and breaks at a line of `main.py`.
    fn attach(address: &str, folder: &Path, line: u64) -> Self {
        let mut adapter = Self { stream: BufReader::new(connected(address)), last: 0 };
        adapter.ask("initialize", &json!({"adapterID": "test", "pathFormat": "path", "linesStartAt1": true}));
        let mappings = json!([{"localRoot": folder, "remoteRoot": "/app"}]);
        let attach = adapter.send("attach", &json!({"pathMappings": mappings}));
        adapter.wait(|message| message["event"] == "initialized");
        let source = json!({"path": folder.join("main.py")});
        let set = adapter.ask("setBreakpoints", &json!({"source": source, "breakpoints": [{"line": line}]}));
        assert_eq!(set["body"]["breakpoints"][0]["verified"], true, "{set}");
        adapter.ask("configurationDone", &json!({}));
        assert_ne!(attach, 0);
        adapter
    }

    fn send(&mut self, command: &str, arguments: &Value) -> u64 {
        self.last += 1;
        let asked = json!({"seq": self.last, "type": "request", "command": command, "arguments": arguments});
        let text = asked.to_string();
        write!(self.stream.get_mut(), "Content-Length: {}\r\n\r\n{text}", text.len()).unwrap();
        self.last
    }

    fn ask(&mut self, command: &str, arguments: &Value) -> Value {
        let number = self.send(command, arguments);
        let answer = self.wait(|message| message["request_seq"] == number && message["type"] == "response");
        assert_eq!(answer["success"], true, "{command}: {answer}");
        answer
    }

    /// The next message of which this holds.
    fn wait(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut len = 0;
            loop {
                let mut line = String::new();
                assert_ne!(
                    self.stream.read_line(&mut line).unwrap(),
                    0,
                    "the debugger closed the connection"
                );
                match line.trim().strip_prefix("Content-Length: ") {
                    Some(told) => len = told.parse().unwrap(),
                    None if line.trim().is_empty() => break,
                    None => {}
                }
            }
            let mut text = vec![0; len];
            self.stream.read_exact(&mut text).unwrap();
            let message: Value = serde_json::from_slice(&text).unwrap();
            if is_it(&message) {
                return message;
            }
        }
    }

    /// The variable `name` where it has stopped; lets it go on.
    fn read_and_continue(&mut self) -> String {
        let stopped = self.wait(|message| message["event"] == "stopped");
        let thread = &stopped["body"]["threadId"];
        let stack = self.ask("stackTrace", &json!({"threadId": thread}));
        let frame = &stack["body"]["stackFrames"][0];
        assert_eq!((&frame["name"], &frame["line"]), (&"handler".into(), &3.into()), "{frame}");
        let value = self.ask("evaluate", &json!({"expression": "name", "frameId": frame["id"]}));
        self.ask("continue", &json!({"threadId": thread}));
        value["body"]["result"].as_str().unwrap().to_owned()
    }
}

/// The head of an answer.
fn head_of(stream: &mut BufReader<TcpStream>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
    }
    head
}

/// A session of Node's inspector: text messages of a WebSocket.
struct Inspector {
    stream: BufReader<TcpStream>,
    last: u64,
}

impl Inspector {
    fn attach(address: &str, line: u64) -> Self {
        let mut stream = BufReader::new(connected(address));
        write!(stream.get_mut(), "GET /json/list HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        let len =
            head_of(&mut stream).lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
        let mut listed = vec![0; len.unwrap()];
        stream.read_exact(&mut listed).unwrap();
        let targets: Value = serde_json::from_slice(&listed).unwrap();
        let url = targets[0]["webSocketDebuggerUrl"].as_str().unwrap().to_owned();
        let (_, path) = url.strip_prefix("ws://").unwrap().split_once('/').unwrap();
        let mut stream = connected(address);
        write!(
            stream,
            "GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c2luZXdzaW5ld3NpbmV3cw==\r\n\r\n"
        )
        .unwrap();
        let mut stream = BufReader::new(stream);
        let head = head_of(&mut stream);
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        let mut inspector = Self { stream, last: 0 };
        inspector.ask("Runtime.enable", &json!({}));
        inspector.ask("Debugger.enable", &json!({}));
        let place = json!({"lineNumber": line - 1, "urlRegex": "/app/index\\.mjs(\\?.*)?$"});
        let set = inspector.ask("Debugger.setBreakpointByUrl", &place);
        assert_eq!(set["result"]["locations"].as_array().unwrap().len(), 1, "{set}");
        inspector
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let text = json!({"id": self.last, "method": method, "params": params}).to_string();
        // Whole, text, masked with zeros, with a length of two bytes.
        let mut frame = vec![0x81, 0xfe];
        frame.extend((text.len() as u16).to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(text.as_bytes());
        self.stream.get_mut().write_all(&frame).unwrap();
        let id = self.last;
        self.wait(|message| message["id"] == id)
    }

    fn wait(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut head = [0; 2];
            self.stream.read_exact(&mut head).unwrap();
            let mut len = [0; 8];
            let extended = match head[1] {
                126 => 2,
                127 => 8,
                _ => 0,
            };
            self.stream.read_exact(&mut len[8 - extended..]).unwrap();
            let len = if extended == 0 { u64::from(head[1]) } else { u64::from_be_bytes(len) };
            let mut text = vec![0; usize::try_from(len).unwrap()];
            self.stream.read_exact(&mut text).unwrap();
            let message: Value = serde_json::from_slice(&text).unwrap();
            if is_it(&message) {
                return message;
            }
        }
    }

    fn read_and_continue(&mut self) -> String {
        let paused = self.wait(|message| message["method"] == "Debugger.paused");
        let frame = &paused["params"]["callFrames"][0];
        assert_eq!(frame["functionName"], "handler", "{frame}");
        let asked = json!({"callFrameId": frame["callFrameId"], "expression": "name"});
        let value = self.ask("Debugger.evaluateOnCallFrame", &asked);
        self.ask("Debugger.resume", &json!({}));
        value["result"]["result"]["value"].as_str().unwrap().to_owned()
    }
}

/// A request that waits for its answer.
fn calling(url: &str) -> JoinHandle<(u16, String)> {
    let url = url.to_owned();
    std::thread::spawn(move || call(&url, "{\"name\": \"Ada\"}"))
}

/// A directory with a function, and `sinew dev --debug` in it.
fn debugged(
    language: &str,
    (file, source): (&str, &str),
    programs: Option<&Path>,
) -> (tempfile::TempDir, Dev, String, String) {
    let home = tempfile::tempdir().unwrap();
    new(language, home.path());
    std::fs::write(home.path().join(file), source).unwrap();
    let manifest = std::fs::read_to_string(home.path().join("sinew.toml")).unwrap();
    let (begins, ends) = manifest.split_once("timeout = \"10s\"").unwrap();
    let manifest = format!("{begins}timeout = \"1ms\"{ends}");
    std::fs::write(home.path().join("sinew.toml"), manifest).unwrap();
    let dev = Dev::start_with(home.path(), &["--debug"], programs);
    let debug = dev.wait("debug");
    assert_eq!(debug["launch"]["request"], "attach");
    let address = debug["address"].as_str().unwrap().to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let url = dev.wait("ready")["functions"][0]["url"].as_str().unwrap().to_owned();
    (home, dev, address, url)
}

#[test]
fn python_stops_where_it_is_told() {
    if !is_root() {
        return;
    }
    let Some(programs) = environment("debugpy", "debugpy", &["debugpy==1.8.22"]) else {
        return eprintln!("skipped: debugpy cannot be fetched");
    };
    let (home, dev, address, url) = debugged("python", ("main.py", PYTHON), Some(&programs));
    let folder = home.path().canonicalize().unwrap();
    let mut adapter = Adapter::attach(&address, &folder, 3);
    let answer = calling(&url);
    assert_eq!(adapter.read_and_continue(), "'Ada'");
    assert_eq!(answer.join().unwrap(), (200, "Hello, Ada!".to_owned()));
    // What is edited is served by another instance, at the same address.
    dev.write("main.py", &PYTHON.replace("'!'", "'?'"));
    dev.wait("reloaded");
    let mut adapter = Adapter::attach(&address, &folder, 3);
    let answer = calling(&url);
    assert_eq!(adapter.read_and_continue(), "'Ada'");
    assert_eq!(answer.join().unwrap(), (200, "Hello, Ada?".to_owned()));
    // A page in a browser is let nowhere.
    let mut page = connected(&address);
    page.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}").unwrap();
    let mut told = Vec::new();
    _ = page.read_to_end(&mut told);
    assert!(told.is_empty());
    assert_eq!(dev.interrupt(), 0);
}

#[test]
fn node_stops_where_it_is_told() {
    if !is_root() {
        return;
    }
    let (_home, dev, address, url) = debugged("node", ("index.mjs", NODE), None);
    let mut inspector = Inspector::attach(&address, 3);
    let answer = calling(&url);
    assert_eq!(inspector.read_and_continue(), "Ada");
    assert_eq!(answer.join().unwrap(), (200, "Hello, Ada!".to_owned()));
    dev.write("index.mjs", &NODE.replace("'!'", "'?'"));
    dev.wait("reloaded");
    let mut inspector = Inspector::attach(&address, 3);
    let answer = calling(&url);
    assert_eq!(inspector.read_and_continue(), "Ada");
    assert_eq!(answer.join().unwrap(), (200, "Hello, Ada?".to_owned()));
    assert_eq!(dev.interrupt(), 0);
}

#[test]
fn a_node_that_runs_already_lets_nobody_in() {
    let home = tempfile::tempdir().unwrap();
    new("wasm", home.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
    let refused = command.args(["--node", "http://127.0.0.1:9", "dev", "--debug"]).current_dir(home.path());
    let refused = refused.output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && told.contains("a node of this directory's own"), "{told}");
}
