// SPDX-License-Identifier: Apache-2.0
//! A bucket of a server of S3 as the durable tier of nodes.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;

use super::recomputing::{FILL, age, bytes, number, result};
use super::s3::{Relay, Server, set_keys, with_each_server};
use super::{Node, home, http_with};

fn node(home: &Path, relay: &Relay, more: &str) -> Node {
    let settings = home.join("settings.toml");
    let text = format!(
        "[s3.data]\nendpoint = \"http://{}\"\nregion = \"eu-north-7\"\nwrite = true\n\
         [tier]\nurl = \"s3://data/nodes/a\"\nlinger_ms = 50\n{more}",
        relay.address
    );
    std::fs::write(&settings, text).unwrap();
    Node::start_with(home, &["--listen", "127.0.0.1:0", "--config", settings.to_str().unwrap()])
}

fn file(home: &Path, name: &str, len: usize) -> (String, Vec<u8>) {
    let bytes: Vec<u8> = (0..len).map(|at| (at * 31 % 251 + at / 65_536) as u8).collect();
    let path = home.join(name);
    std::fs::write(&path, &bytes).unwrap();
    (path.to_str().unwrap().to_owned(), bytes)
}

fn status(node: &Node) -> Value {
    serde_json::from_str(&node.ok(&["tier", "-o", "json"])).unwrap()
}

/// Both who waited and the queue had it sent; the queue finds that out a moment later.
fn settled(node: &Node) -> Value {
    loop {
        let told = status(node);
        if told["waiting_large"] == 0 {
            return told;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn failure(node: &Node, arguments: &[&str]) -> String {
    let output = node.run(arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn whether_it_is_there_is_known_without_it(node: &Node, relay: &Relay, large: &str, len: usize) {
    let before = relay.sent.load(Ordering::SeqCst);
    let head = http_with(&node.address, &format!("HEAD /v1/objects/{large}"), "", b"");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains(&format!("content-length: {len}")), "{head}");
    let tag = format!("If-None-Match: \"{large}\"\r\n");
    let known = http_with(&node.address, &format!("GET /v1/objects/{large}"), &tag, b"");
    assert!(known.starts_with("HTTP/1.1 304"), "{known}");
    let head = http_with(&node.address, &format!("HEAD /v1/objects/{large}"), "Range: bytes=5-9\r\n", b"");
    assert!(head.starts_with("HTTP/1.1 206") && head.contains("content-length: 5\r\n"), "{head}");
    let moved = relay.sent.load(Ordering::SeqCst) - before;
    assert!(moved < 100_000, "{moved} bytes came");
}

fn a_tree_of_what_is_nowhere_is_sent_alone(node: &Node) {
    let entries = format!(r#"{{"entries":["blob-{}-{}"]}}"#, "0".repeat(48), 5000);
    let headers = "Content-Type: application/json\r\n";
    let put = http_with(&node.address, "POST /v1/trees?until=tier", headers, entries.as_bytes());
    assert!(put.starts_with("HTTP/1.1 201"), "{put}");
    let body = put.split("\r\n\r\n").nth(1).unwrap();
    let tree = serde_json::from_str::<Value>(body).unwrap()["handle"].as_str().unwrap().to_owned();
    let whole = format!(r#"{{"handles":["{tree}"]}}"#);
    let told = http_with(&node.address, "POST /v1/tier/flush", headers, whole.as_bytes());
    assert!(told.starts_with("HTTP/1.1 504") && told.contains("1 of the objects are not here"), "{told}");
}

with_each_server!(
    a_bucket_does_what_the_store_asks_of_depots,
    a_node_whose_disk_is_lost_is_gone_on_with_from_its_bucket,
    a_bucket_that_cannot_be_reached_keeps_only_those_waiting_who_want_it,
    what_was_dropped_comes_the_way_that_explain_tells,
);

fn a_bucket_does_what_the_store_asks_of_depots(server: Server) {
    node::check_bucket("s3://data/depot", &format!("http://{}", server.address), "eu-north-7", &server.keys);
}

fn a_node_whose_disk_is_lost_is_gone_on_with_from_its_bucket(server: Server) {
    let relay = Relay::start(server.address);
    let (first_home, second_home) = (home(), home());
    let first = node(first_home.path(), &relay, "");
    set_keys(&first, &server.keys);
    let (small, small_bytes) = file(first_home.path(), "small", 3000);
    let (large, large_bytes) = file(first_home.path(), "large", 40 << 20);
    let small = first.ok(&["put", &small, "--label", "small", "--until", "tier"]);
    let large = first.ok(&["put", &large, "--until", "tier"]);
    let told = settled(&first);
    assert_eq!((&told["waiting_large"], &told["labels_wait"]), (&0.into(), &false.into()), "{told}");
    assert_eq!((&told["objects"], &told["trouble"]), (&2.into(), &Value::Null), "{told}");
    assert!(first.ok(&["tier"]).contains("nothing waits; labels are there"));
    assert!(first.ok(&["tier", "--flush"]).contains("2 objects"));
    a_tree_of_what_is_nowhere_is_sent_alone(&first);
    first.kill();

    let second = node(second_home.path(), &relay, "");
    set_keys(&second, &server.keys);
    second.ok(&["put", &file(second_home.path(), "other", 100).0]);
    let refused = failure(&second, &["tier", "--flush"]);
    assert!(refused.contains("another home owns it") && refused.contains("sinew tier --take"), "{refused}");
    assert_eq!(second.run(&["cat", &small]).status.code(), Some(4), "it knows nothing of it yet");
    let taken = second.ok(&["tier", "--take"]);
    assert_eq!(taken, "taken: 1 labels and 3 objects are new here");
    assert_eq!(second.ok(&["label", "small"]), small);
    assert!(second.ok(&["explain", &small]).contains("in the durable tier"));
    assert_eq!(second.run(&["cat", &small]).stdout, small_bytes);

    whether_it_is_there_is_known_without_it(&second, &relay, &large, 40 << 20);

    // A part of what is large moves kilobytes.
    let before = relay.sent.load(Ordering::SeqCst);
    let from = 33_333_333;
    let range = format!("Range: bytes={from}-{}\r\n", from + 1023);
    let answer = http_with(&second.address, &format!("GET /v1/objects/{large}"), &range, b"");
    assert!(answer.starts_with("HTTP/1.1 206"), "{}", &answer[..100.min(answer.len())]);
    std::thread::sleep(Duration::from_millis(200));
    let moved = relay.sent.load(Ordering::SeqCst) - before;
    assert!((1024..200_000).contains(&moved), "{moved} bytes came");
    let expression = format!("{large}[{from}..{}]", from + 40);
    let told: Value = serde_json::from_str(&second.ok(&["eval", &expression, "-o", "json"])).unwrap();
    let part = second.run(&["cat", told["result"].as_str().unwrap()]).stdout;
    assert_eq!(part, large_bytes[from..from + 40]);
    assert_eq!(status(&second)["brought"], 1, "the large one never came as a whole");
    assert_eq!(second.run(&["cat", &large]).stdout, large_bytes);
    second.ok(&["tier", "--flush"]);
    // Nothing is old enough to go from there.
    let told = second.ok(&["tier", "--collect", "--dry-run"]);
    assert!(
        told.starts_with("in the durable tier would go: 0 objects, 0 B; ") && told.ends_with(" stay"),
        "{told}"
    );
    assert!(
        second.ok(&["gc"]).contains("in the durable tier went: 0 objects"),
        "the disk's collection tells of both"
    );

    // The one before sends nothing any more.
    let first = node(first_home.path(), &relay, "");
    first.ok(&["put", &file(first_home.path(), "late", 200).0]);
    assert!(failure(&first, &["tier", "--flush"]).contains("another home owns it"));
    // The lane that sends finds it out for itself.
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while !first.ok(&["tier"]).contains("nothing is sent: another home owns it") {
        assert!(std::time::Instant::now() < until, "{}", first.ok(&["tier"]));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn a_bucket_that_cannot_be_reached_keeps_only_those_waiting_who_want_it(server: Server) {
    let relay = Relay::start(server.address);
    let home = home();
    let node = node(home.path(), &relay, "acknowledge = \"tier\"\npatience_s = 2\n");
    set_keys(&node, &server.keys);
    node.ok(&["put", &file(home.path(), "first", 100).0]);
    relay.is_broken.store(true, Ordering::SeqCst);
    let (path, bytes) = file(home.path(), "second", 100_000);
    let failed = failure(&node, &["put", &path]);
    assert!(
        failed.contains("s3://data/nodes/a/") && failed.contains("what was put is on the disk"),
        "{failed}"
    );
    assert!(failed.contains("sinew tier --flush"), "{failed}");
    let handle = node.ok(&["put", &path, "--until", "disk"]);
    let held = node.ok(&["put", &file(home.path(), "third", 5000).0, "--until", "memory"]);
    assert_eq!(node.run(&["cat", &handle]).stdout, bytes, "it is on the disk");
    assert_eq!(node.run(&["cat", &held]).stdout.len(), 5000);
    assert!(status(&node)["trouble"].is_string());
    relay.is_broken.store(false, Ordering::SeqCst);
    node.ok(&["tier", "--flush", "--patience", "60s"]);
    assert_eq!(status(&node)["objects"], 3);
    node.kill();
    // What flips on the disk comes from the bucket.
    let objects = home.path().join("objects");
    for folder in std::fs::read_dir(objects).unwrap() {
        for path in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            let path = path.unwrap().path();
            let mut damaged = std::fs::read(&path).unwrap();
            damaged[77] ^= 8;
            std::fs::write(&path, damaged).unwrap();
        }
    }
    let node = self::node(home.path(), &relay, "");
    assert_eq!(node.run(&["cat", &handle]).stdout, bytes);
    assert_eq!(status(&node)["brought"], 1);
}

/// What was computed is dropped, if it is on the disk.
fn drop_derived(home: &Path, relay: &Relay) {
    age(home);
    let node = node(home, relay, "");
    node.ok(&["gc", "--drop-derived", "--drop-rate", "1s"]);
    assert_eq!(node.terminate(), 0);
}

fn what_was_dropped_comes_the_way_that_explain_tells(server: Server) {
    let relay = Relay::start(server.address);
    let home = home();
    let first = node(home.path(), &relay, "");
    set_keys(&first, &server.keys);
    // Some tenth of a second.
    let fill = first.codelet("fill.wasm", &FILL.replace("(i32.const 24)", "(i32.const 2400)"));
    let object = result(&first, &format!("{fill}(1u64, 0u64)"));
    let content = bytes(&first, &object);
    first.ok(&["label", "kept", &object]);
    first.ok(&["tier", "--flush"]);
    assert_eq!(first.terminate(), 0);
    for (latency_ms, way, applied, brought) in [(60_000, "recipe", 1, 0), (1, "tier", 0, 1)] {
        drop_derived(home.path(), &relay);
        let settings = format!("latency_ms = {latency_ms}\nbytes_per_second = 1000000000000\n");
        let node = node(home.path(), &relay, &settings);
        let story = &node.json(&["explain", &object])[0];
        assert_eq!((&story["place"], &story["recipe"]["dropped"]), (&"tier".into(), &true.into()), "{story}");
        assert_eq!(story["transfer"]["comes_by"], way, "{story}");
        let before = number(&node, "sinew_applications_total");
        assert_eq!(bytes(&node, &object), content);
        assert_eq!(number(&node, "sinew_applications_total") - before, applied, "{way}");
        assert_eq!(status(&node)["brought"], brought, "{way}");
        assert_eq!(node.json(&["explain", &object])[0]["transfer"]["comes_by"], "nothing");
        assert_eq!(node.terminate(), 0);
    }
}
