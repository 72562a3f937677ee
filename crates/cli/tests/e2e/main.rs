// SPDX-License-Identifier: Apache-2.0
//! The binary `sinew` as its users meet it: a node as a process, commands
//! against it, HTTP on loopback, and a node that is killed.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod acting;
mod asking;
mod at_once;
mod callbacks;
mod calls;
mod clang;
mod commands;
mod dashboard;
mod debugging;
mod dev;
mod direct;
mod draining;
mod edited;
mod egress;
mod events;
mod executables;
mod following;
mod frameworks;
mod functions;
mod given;
mod hosts;
mod http2;
mod http_events;
mod images;
mod java;
mod kept;
mod keys;
mod lambda;
mod later;
mod later_python;
mod line;
mod logs;
mod loops;
mod map;
mod mcp;
mod memory;
mod metering;
mod models;
mod program_functions;
mod programs;
mod quotas;
mod ready;
mod receipts;
mod recomputing;
mod redeploy;
mod requirements;
mod runs;
mod s3;
mod sdk;
mod sources;
mod storage;
mod streams;
mod tier;
mod tls;
mod together;
mod traces;
mod unprivileged;
mod upkeep;
mod uploads;
mod values;
mod wasi_python;
mod workflows;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const ADD: &str = include_str!("../../../../guests/codelets/wat/add.wat");
const LOOP: &str = r#"(module (func (export "apply") (param i32) (result i32) (loop (br 0)) (i32.const 0)))"#;
const TRAP: &str = r#"(module (func (export "apply") (param i32) (result i32) unreachable))"#;

/// A node of its own process, killed when dropped.
struct Node {
    child: Child,
    address: String,
    home: PathBuf,
}

impl Node {
    fn start(home: &Path) -> Self {
        Self::start_with(home, &["--listen", "127.0.0.1:0"])
    }

    fn start_with(home: &Path, more: &[&str]) -> Self {
        Self::start_in(home, more, &[])
    }

    /// With these variables in its environment.
    fn start_in(home: &Path, more: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sinew"))
            .args(["up", "-o", "json", "--workers", "2", "--memory", "1GiB"])
            .args(more)
            .arg("--home")
            .arg(home)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let address = ready["address"]
            .as_str()
            .unwrap()
            .trim_start_matches("http://")
            .trim_start_matches("https://")
            .to_owned();
        Self { child, address, home: home.to_owned() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
        command.args(arguments).env("SINEW_HOME", &self.home).env_remove("SINEW_NODE").stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What a command prints, without the line's end.
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    fn code(&self, arguments: &[&str]) -> i32 {
        self.run(arguments).status.code().unwrap()
    }

    fn codelet(&self, name: &str, text: &str) -> String {
        let path = self.home.join(name);
        std::fs::write(&path, wat::parse_str(text).unwrap()).unwrap();
        format!("@{}", path.display())
    }

    /// Sends a request and returns the whole answer. The connection is closed after it.
    fn http(&self, request: &str, body: &[u8]) -> String {
        http(&self.address, request, body)
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn terminate(mut self) -> i32 {
        signal(&self.child, "TERM");
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn http(address: &str, request: &str, body: &[u8]) -> String {
    http_with(address, request, "", body)
}

/// The same with headers, each ended as lines of HTTP are.
fn http_with(address: &str, request: &str, headers: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head = format!(
        "{request} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn home() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn the_version_names_its_commit() {
    let output = Command::new(env!("CARGO_BIN_EXE_sinew")).args(["version", "-o", "json"]).output().unwrap();
    let version: Value = serde_json::from_slice(&output.stdout).unwrap();
    let commit = version["commit"].as_str().unwrap();
    // Where the sources lie in a repository of their own, git knows it.
    if Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.git").exists() {
        let hash = commit.strip_suffix("-dirty").unwrap_or(commit);
        let is_hash = hash.len() == 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_hash, "{commit}");
    }
    assert!(!commit.is_empty());
}

#[test]
fn evaluates_and_remembers() {
    let home = home();
    let node = Node::start(home.path());
    let add = node.codelet("add.wasm", ADD);
    let expression = format!("{add}(3u8, 4u8)");
    assert_eq!(node.ok(&["eval", &expression, "--as", "hex"]).trim_start_matches("0x"), "07");
    let again: Value = serde_json::from_str(&node.ok(&["eval", &expression, "-o", "json"])).unwrap();
    assert_eq!((again["memo_hit"].as_bool(), again["applied"].as_u64()), (Some(true), Some(0)));
    assert!(node.ok(&["explain", &expression]).contains("argument 1 lit-04"));
    let nested = format!("{add}(!{add}(1u8, 2u8), !{add}(3u8, 4u8))");
    assert_eq!(node.ok(&["eval", &nested, "--as", "hex"]).trim_start_matches("0x"), "0a");
}

#[test]
fn exit_codes_tell_what_happened() {
    let home = home();
    let node = Node::start(home.path());
    let trap = node.codelet("trap.wasm", TRAP);
    let forever = node.codelet("loop.wasm", LOOP);
    assert_eq!(node.code(&["eval", &format!("{trap}()")]), 3);
    assert_eq!(node.code(&["eval", "[1u8"]), 2);
    assert_eq!(node.code(&["get", "no-such-label"]), 4);
    let begun = Instant::now();
    assert_eq!(node.code(&["eval", &format!("{forever}()"), "--deadline", "100ms"]), 5);
    assert!(begun.elapsed() < Duration::from_secs(20));
    let output = node.run(&["eval", &format!("{trap}()")]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("trap") && message.contains("unreachable"), "{message}");
    node.kill();
    let elsewhere = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sinew"))
        .args(["eval", "1u8"])
        .env("SINEW_HOME", elsewhere.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert!(String::from_utf8_lossy(&output.stderr).contains("sinew up"));
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let home = home();
    let node = Node::start(home.path());
    let file = home.path().join("input");
    let bytes: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&file, &bytes).unwrap();
    let handle = node.ok(&["put", file.to_str().unwrap()]);
    let handle = handle.split_whitespace().next().unwrap().to_owned();
    node.ok(&["label", "kept", &handle]);
    node.kill();
    let node = Node::start(home.path());
    let mut get = node.command(&["get", "kept"]);
    assert_eq!(get.output().unwrap().stdout, bytes);
    let range = node.run(&["get", &handle, "--range", "4..12"]).stdout;
    assert_eq!(range, bytes[4..12]);
    assert_eq!(node.terminate(), 0);
}

#[test]
fn http_answers_as_documented() {
    let home = home();
    let node = Node::start(home.path());
    assert!(node.http("GET /healthz", b"").starts_with("HTTP/1.1 200"));
    assert!(node.http("GET /readyz", b"").starts_with("HTTP/1.1 200"));
    let stored = node.http("POST /v1/blobs", b"some bytes that are longer than thirty of them");
    assert!(
        stored.starts_with("HTTP/1.1 201") && stored.to_lowercase().contains("x-request-id:"),
        "{stored}"
    );
    let refused = node.http("GET /v1/objects/nonsense", b"");
    assert!(refused.starts_with("HTTP/1.1 400") && refused.contains("application/problem+json"), "{refused}");
    let metrics = node.http("GET /metrics", b"");
    assert!(metrics.contains("sinew_applications"), "{metrics}");
    // This very one; the one before may be just about to end.
    let open = metrics.lines().find_map(|line| line.strip_prefix("sinew_http_connections "));
    assert!(open.unwrap().parse::<u64>().unwrap() >= 1, "{metrics}");
    let document = node.http("GET /openapi.json", b"");
    assert!(document.contains("/v1/evaluate"));
}

#[test]
fn a_client_that_leaves_cancels_its_evaluation() {
    let home = home();
    let node = Node::start(home.path());
    let forever = node.codelet("loop.wasm", LOOP);
    let mut clients: Vec<Child> = (0..2)
        .map(|number| {
            let mut command = node.command(&["eval", &format!("{forever}({number}u8)")]);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    let requests = |node: &Node| -> u64 {
        let metrics = node.http("GET /metrics", b"");
        let line = metrics.lines().find(|line| line.starts_with("sinew_requests ")).unwrap().to_owned();
        line.split(' ').nth(1).unwrap().parse().unwrap()
    };
    let wait_for = |wanted: u64| {
        let begun = Instant::now();
        while requests(&node) != wanted {
            assert!(begun.elapsed() < Duration::from_secs(20), "never {wanted} requests");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    wait_for(2);
    for client in &mut clients {
        client.kill().unwrap();
        client.wait().unwrap();
    }
    wait_for(0);
    // Both workers are free again.
    let add = node.codelet("add.wasm", ADD);
    assert_eq!(node.ok(&["eval", &format!("{add}(1u8, 1u8)"), "--as", "hex"]).trim_start_matches("0x"), "02");
}

#[test]
fn a_second_node_on_the_same_home_is_refused() {
    let home = home();
    let node = Node::start(home.path());
    let output = Command::new(env!("CARGO_BIN_EXE_sinew"))
        .args(["up", "--listen", "off", "--home"])
        .arg(home.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains(&node.child.id().to_string()) || message.contains("another"), "{message}");
}
