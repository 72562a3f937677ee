// SPDX-License-Identifier: Apache-2.0
//! A node that is told to stop while it is asked: what it has begun it ends,
//! what comes after is refused, and what waits is made by the next one.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::functions::is_root;
use super::{Node, home, http, signal};

const UNDER_WAY: usize = 8;
const GENEROUS: Duration = Duration::from_secs(60);

pub(super) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < GENEROUS, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The body of an answer that must be a whole one.
fn body(answer: &str) -> &str {
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
    answer.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn a_node_that_is_told_to_stop_loses_no_request() {
    loses_no_request("1");
}

#[test]
fn a_node_with_several_event_loops_that_is_told_to_stop_loses_no_request() {
    loses_no_request("3");
}

fn loses_no_request(event_loops: &str) {
    if !is_root() {
        return;
    }
    let home = home();
    let mut node = Node::start_with(home.path(), &["--listen", "127.0.0.1:0", "--event-loops", event_loops]);
    let slow = "import time\ndef handler(event, context):\n    time.sleep(3)\n    return {'number': event['number']}\n";
    let folder = node.python("slow", "", slow);
    node.deploy(&folder);
    let address = node.address.clone();
    let answered = AtomicUsize::new(0);
    let mut waiting = Vec::new();
    std::thread::scope(|scope| {
        for number in 0..UNDER_WAY {
            let (address, answered) = (&address, &answered);
            scope.spawn(move || {
                let answer =
                    http(address, "POST /function/slow", format!("{{\"number\":{number}}}").as_bytes());
                let answer: Value = serde_json::from_str(body(&answer)).unwrap();
                assert_eq!(answer["number"], number);
                answered.fetch_add(1, Ordering::Relaxed);
            });
        }
        // Those who ask are counted too.
        let under_way = format!("sinew_http_requests_in_flight {}", UNDER_WAY + 1);
        wait_for("all are under way", || http(&address, "GET /metrics", b"").contains(&under_way));
        // More than run at a time: some of them wait when the node stops.
        for number in 0..40 {
            let answer =
                http(&address, "POST /async-function/slow", format!("{{\"number\":{number}}}").as_bytes());
            let taken: Value = serde_json::from_str(body(&answer)).unwrap();
            waiting.push((taken["id"].as_str().unwrap().to_owned(), number));
        }
        signal(&node.child, "TERM");
        wait_for("new ones are refused", || TcpStream::connect(&address).is_err());
    });
    assert_eq!(answered.load(Ordering::Relaxed), UNDER_WAY);
    wait_for("it ends", || node.child.try_wait().unwrap().is_some());
    assert_eq!(node.child.try_wait().unwrap().and_then(|status| status.code()), Some(0));
    let node = Node::start(home.path());
    for (id, number) in waiting {
        let path = format!("GET /v1/async/{id}/result");
        let mut answer = String::new();
        wait_for("a call that waited is made", || {
            answer = http(&node.address, &path, b"");
            !answer.starts_with("HTTP/1.1 202")
        });
        let answer: Value = serde_json::from_str(body(&answer)).unwrap();
        assert_eq!(answer["number"], number);
    }
}

/// The client has its answer long before, so that no connection keeps the node from ending.
#[test]
fn a_node_that_is_told_to_stop_waits_for_what_comes_after_answers() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let address = listener.local_addr().unwrap();
    let source = format!(
        "import asyncio, urllib.request\n\
         async def handler(scope, receive, send):\n    assert scope['type'] == 'http'\n    \
         await send({{'type': 'http.response.start', 'status': 200}})\n    \
         await send({{'type': 'http.response.body', 'body': b'done'}})\n    \
         await asyncio.sleep(4)\n    \
         await asyncio.to_thread(urllib.request.urlopen, 'http://{address}/')\n"
    );
    let folder = node.python("after", &format!("allow-hosts = [\"{address}\"]\n"), &source);
    node.deploy(&folder);
    let answer = node.http("POST /function/after", b"");
    assert!(body(&answer).contains("done"), "{answer}");
    let reached = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    });
    assert_eq!(node.terminate(), 0);
    wait_for("what came after the answer is done", || reached.is_finished());
}

/// For longer than either of both ways of ending may take.
const ENDLESS: &str = "import time\ndef handler(event, context):\n    time.sleep(300)\n";

#[test]
fn a_node_waits_no_longer_than_it_is_told_and_no_more_once_it_is_told_again() {
    if !is_root() {
        return;
    }
    for (drain, is_told_again) in [("1", false), ("86400", true)] {
        let home = home();
        let mut node = Node::start_with(home.path(), &["--listen", "127.0.0.1:0", "--drain", drain]);
        node.deploy(&node.python("endless", "timeout = \"10m\"\n", ENDLESS));
        let address = node.address.clone();
        let asking = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            let request = "POST /function/endless HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = Vec::new();
            _ = stream.read_to_end(&mut answer);
            String::from_utf8_lossy(&answer).into_owned()
        });
        let is_busy = |node: &Node| {
            let told: Value = serde_json::from_str(&node.ok(&["describe", "endless", "-o", "json"])).unwrap();
            told["instances"]["busy"] == 1
        };
        wait_for("it is under way", || is_busy(&node));
        signal(&node.child, "TERM");
        // What comes together is told once.
        signal(&node.child, "INT");
        if is_told_again {
            std::thread::sleep(Duration::from_millis(2500));
            assert!(node.child.try_wait().unwrap().is_none(), "it waits for what is under way");
            signal(&node.child, "TERM");
        }
        let told = Instant::now();
        wait_for("it ends", || node.child.try_wait().unwrap().is_some());
        assert!(told.elapsed() < Duration::from_secs(20), "it took {:?}", told.elapsed());
        assert_eq!(node.child.try_wait().unwrap().and_then(|status| status.code()), Some(0));
        assert!(!asking.join().unwrap().starts_with("HTTP/1.1 200"));
    }
}
