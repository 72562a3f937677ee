// SPDX-License-Identifier: Apache-2.0
//! Calls that are made later, by a node that is killed while they are.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home};

const KILLS: usize = 8;
const CLIENTS: usize = 4;
pub(super) const ECHO: &str = r#"(module (func (export "apply") (param i32) (result i32) (i32.const 3)))"#;

/// A folder with a function that answers what it was sent.
pub(super) fn echo_source(home: &Path) -> PathBuf {
    let source = home.join("echo");
    std::fs::create_dir_all(&source).unwrap();
    // An attempt counts when it is begun, and on a busy machine the same call may be
    // under way each time that the node is killed.
    let attempts = KILLS + 2;
    let manifest = format!(
        "[functions.echo]\nruntime = \"wasm\"\nsource = \"echo.wat\"\nasync = {{ max-attempts = {attempts} }}\n"
    );
    std::fs::write(source.join("sinew.toml"), manifest).unwrap();
    std::fs::write(source.join("echo.wat"), ECHO).unwrap();
    source
}

/// An answer's status and body; `None` if the node went away.
fn ask(address: &str, request: &str, body: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head = format!(
        "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// Sends calls until the node is gone; what was taken: id and body.
fn send_until(address: &str, client: usize, is_over: &AtomicBool) -> BTreeMap<String, String> {
    let mut taken = BTreeMap::new();
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let body = format!("{address} {client} {number} {}", "x".repeat(number % 300));
        let Some((202, answer)) = ask(address, "POST /async-function/echo", &body) else { break };
        let Ok(answer) = serde_json::from_str::<Value>(&answer) else { break };
        taken.insert(answer["id"].as_str().unwrap().to_owned(), body);
    }
    taken
}

fn wait_until_quiet(node: &Node) {
    let begun = Instant::now();
    loop {
        let (_, metrics) = ask(&node.address, "GET /metrics", "").unwrap();
        let count = |state: &str| {
            let line = format!("state=\"{state}\"}} ");
            metrics.lines().filter_map(|each| each.split_once(&line)).all(|(_, number)| number == "0")
        };
        if count("waiting") && count("running") {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{metrics}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn no_call_that_was_taken_is_lost_by_kills() {
    let home = home();
    let source = echo_source(home.path());
    let node = Node::start(home.path());
    node.deploy(&source);
    node.kill();
    let mut taken = BTreeMap::new();
    for round in 0..KILLS {
        let node = Node::start(home.path());
        let address = node.address.clone();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    scope.spawn({
                        let (address, is_over) = (&address, &is_over);
                        move || send_until(address, client, is_over)
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(100 + 37 * round as u64));
            node.kill();
            is_over.store(true, Ordering::Relaxed);
            clients.into_iter().for_each(|client| taken.extend(client.join().unwrap()));
        });
    }
    let node = Node::start(home.path());
    wait_until_quiet(&node);
    assert!(taken.len() > KILLS * CLIENTS, "{} calls were taken", taken.len());
    for (id, body) in &taken {
        let (status, answer) = ask(&node.address, &format!("GET /v1/async/{id}/result"), "").unwrap();
        assert_eq!((status, answer.as_str()), (200, body.as_str()), "{id}");
    }
    assert_eq!(node.ok(&["dlq", "list", "-o", "json"]), "");
    eprintln!("{} calls taken over {KILLS} kills, none lost", taken.len());
}

/// It takes a minute at most, as schedules do, whatever else the machine does.
#[test]
fn a_schedule_calls_its_function() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let source = "def handler(event, context):\n    print('told', sorted(event), context.http.method)\n    return event\n";
    node.deploy(&node.python("nightly", "schedules = [\"* * * * *\"]\n", source));
    let queue: Value =
        serde_json::from_str(node.http("GET /v1/queue", b"").split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let due = queue["schedules"][0]["next_ms"].as_u64().unwrap();
    assert!(due.is_multiple_of(60_000), "{queue}");
    // A node that is killed before is no reason not to.
    node.kill();
    let node = Node::start(home.path());
    let begun = Instant::now();
    let record = loop {
        let logs = node.ok(&["logs", "nightly", "-o", "json"]);
        if let Some(line) = logs.lines().next() {
            break serde_json::from_str::<Value>(line).unwrap();
        }
        assert!(begun.elapsed() < Duration::from_secs(150), "nothing was called");
        std::thread::sleep(Duration::from_millis(200));
    };
    assert_eq!(record["status"], 200, "{record}");
    let told = record["lines"][0]["text"].as_str().unwrap();
    assert!(told.starts_with("told ['schedule', 'scheduled_ms'"), "{told}");
}

#[test]
fn a_call_that_fails_is_a_dead_letter_and_redriven_when_it_is_mended() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let settings = "async = { max-attempts = 2, min-backoff = \"10ms\" }\n";
    let broken =
        "def handler(event, context):\n    print('saw', event['month'])\n    raise ValueError('not today')\n";
    let folder = node.python("report", settings, broken);
    node.deploy(&folder);
    let id = node.ok(&["invoke", "report", "--async", "-d", "{\"month\": 7}"]);
    let begun = Instant::now();
    let letters = loop {
        let letters = node.ok(&["dlq", "list", "-o", "json"]);
        if !letters.is_empty() {
            break letters;
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    };
    let letter: Value = serde_json::from_str(&letters).unwrap();
    assert_eq!((&letter["id"], &letter["attempts"]), (&json!(id), &json!(2)));
    let shown = node.ok(&["dlq", "show", &id]);
    assert!(shown.contains("not today") && shown.contains("{\"month\": 7}"), "{shown}");
    let logs = node.ok(&["logs", "report", "--request-id", &id]);
    assert_eq!(logs.matches("saw 7").count(), 2, "{logs}");
    // It outlives the node, mended or not.
    node.kill();
    let node = Node::start(home.path());
    std::fs::write(
        folder.join("main.py"),
        "def handler(event, context):\n    return {'month': event['month']}\n",
    )
    .unwrap();
    node.deploy(&folder);
    assert_eq!(node.ok(&["dlq", "redrive", "--function", "report"]), "1 redriven");
    wait_until_quiet(&node);
    let (status, answer) = ask(&node.address, &format!("GET /v1/async/{id}/result"), "").unwrap();
    assert_eq!((status, serde_json::from_str::<Value>(&answer).unwrap()), (200, json!({"month": 7})));
    assert_eq!(node.ok(&["dlq", "list", "-o", "json"]), "");
}
