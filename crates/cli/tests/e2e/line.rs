// SPDX-License-Identifier: Apache-2.0
//! Requests that stand in line in an instance: when the one before them ends
//! it, another instance serves them. And those that an instance serves at once.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::functions::is_root;
use super::{Node, home, http};

const CLIENTS: usize = 12;
const ENDS: usize = 8;

/// Tells the clients to end.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn who_stands_in_line_behind_an_end_is_served_elsewhere() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let source = "import os\ndef handler(event, context):\n    if event.get('end'):\n        os._exit(3)\n    \
                  return {'number': event['number']}\n";
    ends_harm_nobody(&node, &node.python("brief", "concurrency = 1\n", source));
}

#[test]
fn who_stands_in_line_in_node_behind_an_end_is_served_elsewhere() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    // Some before their first turn of the loop, some after several.
    let source = "let calls = 0;\nexports.handler = async ({ end, number }) => {\n  if (++calls % 2) \
                  await new Promise((done) => setImmediate(done));\n  if (end) process.exit(3);\n  \
                  return { number };\n};\n";
    ends_harm_nobody(&node, &node.nodejs("brief", "concurrency = 1\n", source));
}

/// Many clients, and some that end the instance: nobody else fails, and each gets the answer of their own request.
fn ends_harm_nobody(node: &Node, folder: &Path) {
    node.deploy(folder);
    let (address, is_over, served) = (&node.address, AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (is_over, served) = (&is_over, &served);
            scope.spawn(move || {
                for number in (client..).step_by(CLIENTS).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    let body = format!("{{\"number\":{number}}}");
                    let answer = http(address, "POST /function/brief", body.as_bytes());
                    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(&body), "{answer}");
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Also where an assertion fails: the clients would go on for ever.
        let _ends = Ends(&is_over);
        for end in 1..=ENDS {
            let begun = Instant::now();
            while served.load(Ordering::Relaxed) < 100 * end && begun.elapsed() < Duration::from_secs(30) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let answer = http(address, "POST /function/brief", b"{\"end\":true}");
            assert!(answer.starts_with("HTTP/1.1 500") && answer.contains("status 3"), "{answer}");
        }
    });
    assert!(served.into_inner() >= 100 * ENDS);
}

#[test]
fn who_stands_in_line_behind_a_long_request_is_served_elsewhere() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let settings = "concurrency = 2\n";
    let python = "import time\ndef handler(event, context):\n    time.sleep(event.get('seconds', 0))\n    return event\n";
    // It keeps the event loop, as one that computes does.
    let nodejs = "exports.handler = async (event) => {\n  for (const end = Date.now() + 1000 * (event.seconds ?? 0); \
                  Date.now() < end; );\n  return event;\n};\n";
    for (name, folder) in [
        ("long-py", node.python("long-py", settings, python)),
        ("long-js", node.nodejs("long-js", settings, nodejs)),
    ] {
        node.deploy(&folder);
        long_ones_hold_up_nobody(&node, name);
    }
}

/// Many clients, and now and then a request of two seconds: nobody else waits for that, as one instance is free of it.
fn long_ones_hold_up_nobody(node: &Node, name: &str) {
    let (address, request) = (&node.address, &format!("POST /function/{name}"));
    let (is_over, slowest_ms, served) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let answer = http(address, request, b"{}");
                    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                    slowest_ms.fetch_max(begun.elapsed().as_millis() as usize, Ordering::Relaxed);
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _ends = Ends(&is_over);
        // Instances are there, and what requests take is known.
        let begun = Instant::now();
        while served.load(Ordering::Relaxed) < 200 && begun.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(1));
        }
        slowest_ms.store(0, Ordering::Relaxed);
        for _ in 0..3 {
            let answer = http(address, request, b"{\"seconds\":2}");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    });
    let slowest_ms = slowest_ms.into_inner();
    assert!(slowest_ms < 1500, "{name}: one of {} requests took {slowest_ms} ms", served.into_inner());
}

#[test]
fn who_shares_an_instance_with_a_late_request_is_told() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let settings = "concurrency = 1\nrequests-per-instance = 4\ntimeout = \"2s\"\n";
    let source = "exports.handler = ({ asks }) => asks ?? new Promise(() => {});\n";
    node.deploy(&node.nodejs("shared", settings, source));
    assert_eq!(node.call("shared", &json!({ "asks": 1 })), (200, json!(1)));
    std::thread::scope(|scope| {
        // Where another one is answered meanwhile, the late one would end alone.
        let hangs = || scope.spawn(|| http(&node.address, "POST /function/shared", b"{}"));
        let late = hangs();
        std::thread::sleep(Duration::from_millis(300));
        let beside = hangs();
        let (late, beside) = (late.join().unwrap(), beside.join().unwrap());
        assert!(late.starts_with("HTTP/1.1 504"), "{late}");
        assert!(beside.contains("another request in it took too long"), "{beside}");
    });
}
