// SPDX-License-Identifier: Apache-2.0
//! What was computed is dropped, and everybody who reads it has it all the same.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::{Node, home};

/// 256 KiB, told by a number and the first bytes of a blob; takes some hundred microseconds.
pub(super) const FILL: &str = r#"(module
  (import "sinew_v1" "read_u64" (func $read_u64 (param i32 i64) (result i64)))
  (import "sinew_v1" "blob" (func $blob (param i32 i32) (result i32)))
  (memory (export "memory") 4)
  (func (export "apply") (param i32) (result i32)
    (local $x i64) (local $at i32) (local $round i32)
    (local.set $x (i64.add
      (i64.mul (call $read_u64 (i32.const 3) (i64.const 0)) (i64.const 3))
      (call $read_u64 (i32.const 4) (i64.const 0))))
    (loop $again
      (local.set $at (i32.const 0))
      (loop $next
        (local.set $x (i64.add (i64.mul (local.get $x) (i64.const 6364136223846793005)) (i64.const 1442695040888963407)))
        (i64.store (local.get $at) (local.get $x))
        (br_if $next (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 8))) (i32.const 262144))))
      (br_if $again (i32.lt_u (local.tee $round (i32.add (local.get $round) (i32.const 1))) (i32.const 24))))
    (call $blob (i32.const 0) (i32.const 262144))))"#;

/// What it makes.
fn filled(seed: u64, before: &[u8]) -> Vec<u8> {
    let mut x = seed * 3;
    x = x.wrapping_add(u64::from_le_bytes(*before.first_chunk().unwrap()));
    let mut bytes = vec![0; 256 << 10];
    for _ in 0..24 {
        for place in bytes.as_chunks_mut::<8>().0 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *place = x.to_le_bytes();
        }
    }
    bytes
}

/// Makes all objects two days old.
pub(super) fn age(home: &Path) {
    let before = SystemTime::now() - Duration::from_secs(2 * 24 * 3600);
    for path in files(&home.join("packs")).into_iter().chain(files(&home.join("objects"))) {
        File::options().write(true).open(path).unwrap().set_modified(before).unwrap();
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

pub(super) fn result(node: &Node, expression: &str) -> String {
    node.json(&["eval", expression])[0]["result"].as_str().unwrap().to_owned()
}

pub(super) fn bytes(node: &Node, handle: &str) -> Vec<u8> {
    let output = node.run(&["cat", handle]);
    assert!(output.status.success(), "{handle}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

pub(super) fn number(node: &Node, name: &str) -> u64 {
    let metrics = node.http("GET /metrics", b"");
    let line = metrics.lines().find(|line| line.starts_with(name) && !line.starts_with('#'));
    line.and_then(|line| line.rsplit(' ').next()).unwrap().parse().unwrap()
}

/// A node with a chain of five, each with a name; it has ended, and all is old.
fn chain(home: &Path) -> (Vec<(String, Vec<u8>)>, String) {
    let node = Node::start(home);
    let fill = node.codelet("fill.wasm", FILL);
    let mut before = "0u64".to_owned();
    let mut chain = Vec::new();
    for link in 1..=5 {
        let handle = result(&node, &format!("{fill}({link}u64, {before})"));
        before.clone_from(&handle);
        node.ok(&["label", &format!("link-{link}"), &handle]);
        chain.push((handle.clone(), bytes(&node, &handle)));
    }
    assert_eq!(node.terminate(), 0);
    age(home);
    (chain, fill)
}

#[test]
fn what_was_dropped_is_read_as_if_it_were_there() {
    let home = home();
    let (links, fill) = chain(home.path());
    let node = Node::start(home.path());
    let trial = node.ok(&["gc", "--drop-derived", "--dry-run"]);
    assert!(trial.contains("would be dropped: 5 objects, 1.2 MiB"), "{trial}");
    let trial = &node.json(&["gc", "--drop-derived=1MiB", "--dry-run"])[0];
    assert_eq!(trial["dropped"], 0, "none is so large");
    let trial = &node.json(&["gc", "--drop-derived", "--drop-rate", "1ns", "--dry-run"])[0];
    assert_eq!(trial["dropped"], 0, "none is so cheap");
    let told = node.ok(&["gc", "--drop-derived", "--drop-rate", "1s"]);
    assert!(told.contains("dropped: 5 objects, 1.2 MiB; to make all of them again takes "), "{told}");
    assert!(!files(&home.path().join("objects")).iter().any(|file| file.is_file()));
    let (last, content) = &links[4];
    let story = &node.json(&["explain", last])[0];
    assert_eq!((&story["place"], &story["recipe"]["depth"]), (&"dropped".into(), &5.into()), "{story}");
    assert!(node.ok(&["explain", last]).contains("5 applications one after the other"));
    // A part of it, all of it, by its name, and as an argument.
    let part = node.http(&format!("GET /v1/objects/{last}"), b"");
    assert!(part.starts_with("HTTP/1.1 200"), "{}", part.lines().next().unwrap_or_default());
    assert_eq!(number(&node, "sinew_objects_remade_total"), 5);
    assert_eq!(&bytes(&node, last), content);
    assert_eq!(bytes(&node, "link-3"), links[2].1);
    assert_eq!(number(&node, "sinew_objects_remade_total"), 5, "it was made on the way");
    node.kill();
    let node = Node::start(home.path());
    let sixth = result(&node, &format!("{fill}(6u64, {})", links[4].0));
    // What was made again before goes to the disk as any result; so far as it had not come there.
    assert!(number(&node, "sinew_objects_remade_total") <= 5);
    assert_eq!(bytes(&node, &sixth), filled(6, content));
    // A result that is remembered, of which nothing is here.
    assert_eq!(result(&node, &format!("{fill}(1u64, 0u64)")), links[0].0);
    assert_eq!(number(&node, "sinew_objects_unmade_total"), 0);
    assert_eq!(node.terminate(), 0);
}

#[test]
fn many_readers_have_it_made_once_and_who_leaves_stops_it() {
    let home = home();
    let (links, _) = chain(home.path());
    let node = Node::start(home.path());
    node.ok(&["gc", "--drop-derived", "--drop-rate", "1s"]);
    let (last, content) = &links[4];
    let before = number(&node, "sinew_applications_total");
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..12).map(|_| scope.spawn(|| bytes(&node, last))).collect();
        readers.into_iter().for_each(|reader| assert_eq!(&reader.join().unwrap(), content));
    });
    assert_eq!(number(&node, "sinew_applications_total") - before, 5);
    assert_eq!(node.terminate(), 0);
}

#[test]
fn a_damaged_object_is_healed_if_it_was_computed() {
    let home = home();
    let (links, _) = chain(home.path());
    let node = Node::start(home.path());
    let file = home.path().join("note");
    fs::write(&file, vec![7; 100_000]).unwrap();
    let put = node.ok(&["put", file.to_str().unwrap()]).split_whitespace().next().unwrap().to_owned();
    assert_eq!(node.terminate(), 0);
    for path in files(&home.path().join("objects")) {
        let mut content = fs::read(&path).unwrap();
        content[70_000] ^= 4;
        fs::remove_file(&path).unwrap();
        fs::write(path, content).unwrap();
    }
    let node = Node::start(home.path());
    for (handle, content) in &links {
        assert_eq!(&bytes(&node, handle), content);
    }
    let refused = node.run(&["cat", &put]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains(&put), "{told}");
    let story: &Value = &node.json(&["explain", &links[0].0])[0];
    assert_eq!(story["recipe"]["depth"], 1, "{story}");
    assert_eq!(node.terminate(), 0);
}

#[test]
fn what_is_made_again_for_a_receipt_is_not_on_it() {
    let home = home();
    let (links, fill) = chain(home.path());
    let node = Node::start(home.path());
    assert!(node.ok(&["gc", "--drop-derived", "--drop-rate", "1s"]).contains("dropped: 5 objects"));
    let receipt = home.path().join("receipt");
    let expression = format!("{fill}(77u64, {})", links[4].0);
    let made = node.json(&["eval", &expression, "--receipt", receipt.to_str().unwrap()]);
    assert_eq!(bytes(&node, made[0]["result"].as_str().unwrap()), filled(77, &links[4].1));
    assert!(number(&node, "sinew_objects_remade") >= 1, "its input was not here");
    let told = |command: &str| node.json(&[command, receipt.to_str().unwrap()]).remove(0);
    let said = told("verify");
    assert_eq!((&said["applications"], &said["ran"]), (&1.into(), &1.into()), "{said}");
    // An audit of it, by a node that has dropped its input once more, finds the same.
    assert_eq!(node.terminate(), 0);
    age(home.path());
    let node = Node::start(home.path());
    assert!(node.ok(&["gc", "--drop-derived", "--drop-rate", "1s"]).contains("dropped: "));
    // What is not evaluated is stored all the same.
    node.ok(&["explain", &expression]);
    let audit = node.run(&["audit", receipt.to_str().unwrap()]);
    assert!(audit.status.success(), "{}", String::from_utf8_lossy(&audit.stderr));
}

#[test]
fn a_receipt_has_what_ran_for_it_and_also_makes_something_again() {
    let home = home();
    let (links, fill) = chain(home.path());
    let node = Node::start(home.path());
    assert!(node.ok(&["gc", "--drop-derived", "--drop-rate", "1s"]).contains("dropped: 5 objects"));
    let receipt = home.path().join("receipt");
    // What makes the first link again is an argument too.
    let expression = format!("{fill}(!{fill}(7u64, {}), !{fill}(1u64, 0u64))", links[0].0);
    node.ok(&["eval", &expression, "--receipt", receipt.to_str().unwrap()]);
    let said = node.json(&["verify", receipt.to_str().unwrap()]).remove(0);
    assert_eq!(said["applications"], 3, "{said}");
    assert_eq!(node.terminate(), 0);
    age(home.path());
    let node = Node::start(home.path());
    node.ok(&["explain", &expression]);
    assert!(node.ok(&["gc", "--drop-derived", "--drop-rate", "1s"]).contains("dropped: "));
    for _ in 0..2 {
        let audit = node.run(&["audit", receipt.to_str().unwrap()]);
        assert!(audit.status.success(), "{}", String::from_utf8_lossy(&audit.stderr));
    }
}
