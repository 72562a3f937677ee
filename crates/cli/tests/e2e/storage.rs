// SPDX-License-Identifier: Apache-2.0
//! What nobody needs leaves the disk, and homes of older versions are told.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::{Node, home, http_with};

/// The files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Makes all objects two days old.
fn age(home: &Path) {
    let before = SystemTime::now() - Duration::from_secs(2 * 24 * 3600);
    for path in files(&home.join("packs")).into_iter().chain(files(&home.join("objects"))) {
        File::options().write(true).open(path).unwrap().set_modified(before).unwrap();
    }
}

fn put(node: &Node, folder: &Path, name: &str, len: usize) -> String {
    let file = folder.join(name);
    std::fs::write(&file, name.repeat(len / name.len())).unwrap();
    let told = node.ok(&["put", file.to_str().unwrap()]);
    told.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn what_has_no_name_and_is_old_is_collected() {
    let home = home();
    let files = tempfile::tempdir().unwrap();
    let node = Node::start(home.path());
    let lost = [put(&node, files.path(), "small", 500), put(&node, files.path(), "large", 500_000)];
    let kept = [put(&node, files.path(), "short", 500), put(&node, files.path(), "longer", 500_000)];
    node.ok(&["label", "a", &kept[0]]);
    node.ok(&["label", "b", &kept[1]]);
    let young = node.json(&["gc"]);
    assert_eq!((&young[0]["objects"], &young[0]["kept_objects"]), (&0.into(), &4.into()), "{young:?}");
    node.kill();
    age(home.path());
    let node = Node::start(home.path());
    let trial = node.json(&["gc", "--dry-run"]);
    assert_eq!((&trial[0]["objects"], &trial[0]["dry_run"]), (&2.into(), &true.into()), "{trial:?}");
    assert_eq!(node.code(&["get", &lost[0]]), 0);
    // Whoever uploads asks first what is there, and counts on it.
    assert_eq!(put(&node, files.path(), "large", 500_000), lost[1]);
    let told = node.ok(&["gc"]);
    assert!(told.contains("went: 1 objects") && told.contains("stay: 3 objects"), "{told}");
    assert_eq!((node.code(&["get", &lost[0]]), node.code(&["get", &lost[1]])), (4, 0));
    assert_eq!((node.code(&["get", &kept[0]]), node.code(&["get", &kept[1]])), (0, 0));
    assert_eq!(node.code(&["gc", "--keep", "10m"]), 1);
    // Trials are not told.
    node.ok(&["gc", "--dry-run"]);
    let status = &node.json(&["gc", "--status"])[0];
    assert_eq!((&status["under_way"], &status["every_s"]), (&Value::Null, &Value::Null), "{status}");
    let last = &status["last"];
    assert_eq!(
        (&last["begun_by"], &last["collected"]["objects"]),
        (&"request".into(), &1.into()),
        "{status}"
    );
    let told = node.ok(&["gc", "--status"]);
    assert!(told.contains("no collection is under way") && told.contains("1 objects went"), "{told}");
    assert_eq!(node.json(&["gc", "--stop"])[0]["stopping"], false);
    assert_eq!(node.code(&["gc", "--stop", "--dry-run"]), 2);
    let metrics = node.http("GET /metrics", b"");
    assert!(metrics.contains("sinew_objects_collected_total 1"), "{metrics}");
    assert_eq!(node.terminate(), 0);
}

#[test]
fn a_collection_that_the_node_began_by_itself_is_told() {
    let home = home();
    let config = home.path().join("node.toml");
    std::fs::write(&config, "[collection]\nevery_s = 8\n").unwrap();
    let node =
        Node::start_with(home.path(), &["--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    let begun = std::time::Instant::now();
    let last = loop {
        let status = node.json(&["gc", "--status"]).remove(0);
        assert_eq!(status["every_s"], 8, "{status}");
        if !status["last"].is_null() {
            break status["last"].clone();
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{status}");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!((&last["begun_by"], &last["error"]), (&"itself".into(), &Value::Null), "{last}");
    assert!(node.ok(&["gc", "--status"]).contains("the node collects every 8"));
    assert_eq!(node.terminate(), 0);
}

#[test]
fn what_is_stored_is_listed_for_people_and_programs_and_for_the_operator_alone() {
    let home = home();
    let files = tempfile::tempdir().unwrap();
    let node = Node::start_with(home.path(), &["--listen", "0.0.0.0:0", "--insecure-http"]);
    assert_eq!(node.ok(&["ls"]), "nothing is stored");
    let small: Vec<String> = ["one", "two", "three"].map(|name| put(&node, files.path(), name, 600)).into();
    let large = put(&node, files.path(), "large", 200_000);
    let tree = node.ok(&["put", "--tree", files.path().to_str().unwrap()]);
    let tree = tree.split_whitespace().next().unwrap();
    let all = node.json(&["ls"]);
    let handles: Vec<&str> = all.iter().map(|object| object["handle"].as_str().unwrap()).collect();
    for handle in small.iter().chain([&large]).map(String::as_str).chain([tree]) {
        assert!(handles.contains(&handle), "{handle}: {handles:?}");
    }
    assert!(all.iter().all(|object| object["place"] == "disk" && object["promised"] == true), "{all:?}");
    assert_eq!(node.json(&["ls", "--limit", "2"]), all[..2]);
    assert_eq!(node.json(&["ls", "--after", handles[1]]), all[2..]);
    let told = node.run(&["ls", "--limit", "2"]);
    let (listed, hint) = (String::from_utf8(told.stdout).unwrap(), String::from_utf8(told.stderr).unwrap());
    assert!(listed.contains(handles[1]) && !listed.contains(handles[2]), "{listed}");
    assert!(listed.lines().last().unwrap().starts_with("all ") && listed.contains("blob  disk"), "{listed}");
    assert!(hint.contains(&format!("2 of {} are shown", all.len())) && hint.contains(handles[1]), "{hint}");
    let largest = node.json(&["ls", "--largest", "--limit", "1"]);
    assert_eq!((largest.len(), largest[0]["handle"].as_str()), (1, Some(large.as_str())));
    assert_eq!(node.json(&["ls", "--kind", "tree", "--min-bytes", "32"]).len(), all.len() - 4);
    assert_eq!(node.code(&["ls", "--kind", "blob", tree]), 2);
    // Handles grant what they name, so not every key is told all of them.
    let status = |scope: &str| {
        let key = node.ok(&["key", "create", "--scope", scope]);
        let answer =
            http_with(&node.address, "GET /v1/objects", &format!("Authorization: Bearer {key}\r\n"), b"");
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!((status("deploy"), status("admin")), ("403".to_owned(), "200".to_owned()));
    node.kill();
    age(home.path());
    let node = Node::start(home.path());
    node.ok(&["gc"]);
    assert_eq!(node.ok(&["ls"]), "nothing is stored");
    assert_eq!(node.terminate(), 0);
}

/// Makes 100,000 bytes, after a while: what takes less than 50 µs is not remembered over an end of the node.
const MAKE: &str = r#"(module
  (import "sinew_v1" "blob" (func $blob (param i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "apply") (param i32) (result i32)
    (local $at i32)
    (loop $next
      (i32.store8 (i32.rem_u (local.get $at) (i32.const 100000)) (local.get $at))
      (br_if $next (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 1))) (i32.const 3000000))))
    (call $blob (i32.const 0) (i32.const 100000))))"#;

#[test]
fn a_remembered_result_whose_object_was_collected_is_computed_again() {
    let home = home();
    let node = Node::start(home.path());
    let make = node.codelet("make.wasm", MAKE);
    let ask = |node: &Node| node.json(&["eval", &format!("{make}(7u8)")]).remove(0);
    let first = ask(&node);
    assert_eq!(ask(&node)["memo_hit"], true);
    assert_eq!(node.terminate(), 0);
    age(home.path());
    let node = Node::start(home.path());
    let told = node.ok(&["gc"]);
    assert!(!told.contains("went: 0 objects"), "{told}");
    let again = ask(&node);
    assert_eq!((&again["result"], &again["applied"]), (&first["result"], &1.into()), "{again}");
    let bytes = node.run(&["cat", first["result"].as_str().unwrap()]);
    assert_eq!(bytes.stdout.len(), 100_000, "{}", String::from_utf8_lossy(&bytes.stderr));
    assert_eq!(node.terminate(), 0);
}

fn upgrade(home: &Path) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
    command.args(["upgrade", "-o", "json", "--home"]).arg(home);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), text.into_owned())
}

#[test]
fn a_home_of_another_version_is_told_and_upgraded() {
    let home = home();
    assert_eq!(upgrade(home.path()).0, 4, "it is none yet");
    let node = Node::start(home.path());
    let handle = put(&node, home.path(), "content", 700);
    let (code, told) = upgrade(home.path());
    assert!(code == 1 && told.contains("is in use by process"), "{told}");
    assert_eq!(node.terminate(), 0);
    let (code, told) = upgrade(home.path());
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((code, &told["objects"]), (0, &Value::Null), "it is up to date");
    for old in ["sinew-store 1", "sinew-store 2"] {
        std::fs::write(home.path().join("FORMAT"), format!("{old}\n")).unwrap();
        let up = Command::new(env!("CARGO_BIN_EXE_sinew")).arg("up").env("SINEW_HOME", home.path()).output();
        let refused = String::from_utf8(up.unwrap().stderr).unwrap();
        assert!(refused.contains(old) && refused.contains("`sinew upgrade`"), "{refused}");
        let (code, told) = upgrade(home.path());
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!((code, &told["objects"]), (0, &0.into()));
        let now = std::fs::read_to_string(home.path().join("FORMAT")).unwrap();
        assert_eq!(now, "sinew-store 3\n");
    }
    let node = Node::start(home.path());
    assert_eq!(node.code(&["get", &handle]), 0);
    assert_eq!(node.terminate(), 0);
}
