// SPDX-License-Identifier: Apache-2.0
//! A home is checked, kept in points in time, lost and made again: by the binary, with
//! the node and without it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::{Node, home, http_with};

fn sinew(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
    command.args(arguments).env_remove("SINEW_HOME").env_remove("SINEW_NODE").env_remove("XDG_DATA_HOME");
    // No home of whoever runs this is touched.
    command.env("HOME", "/nonexistent").output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn ok(arguments: &[&str]) -> String {
    let output = sinew(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    text(&output)
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Stores a file and gives it a name.
fn put(node: &Node, folder: &Path, name: &str, len: usize) -> String {
    let file = folder.join(name);
    std::fs::write(&file, name.repeat(len / name.len())).unwrap();
    let told = node.ok(&["put", file.to_str().unwrap()]);
    let handle = told.split_whitespace().next().unwrap().to_owned();
    node.ok(&["label", &format!("data/{name}"), &handle]);
    handle
}

/// Where a large object's file is.
fn file_of(home: &Path, handle: &str) -> PathBuf {
    let folders = std::fs::read_dir(home.join("objects")).unwrap();
    let found = folders.map(|folder| folder.unwrap().path().join(handle)).find(|path| path.exists());
    found.unwrap()
}

fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[1000] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_home_is_backed_up_lost_and_restored() {
    let (home, folder) = (home(), tempfile::tempdir().unwrap());
    let backup = folder.path().join("b");
    let to = backup.to_str().unwrap();
    let node = Node::start(home.path());
    put(&node, folder.path(), "small", 500);
    put(&node, folder.path(), "large", 300_000);
    node.ok(&["key", "create", "--scope", "invoke"]);
    let mut secret = node.command(&["secret", "set", "TOKEN"]);
    let secret = secret.stdin(std::fs::File::open(folder.path().join("small")).unwrap()).output().unwrap();
    assert!(secret.status.success(), "{}", text(&secret));
    let first = node.json(&["backup", to, "--name", "first"]);
    assert_eq!((&first[0]["labels"], &first[0]["missing"]), (&2.into(), &0.into()), "{first:?}");
    let again = node.json(&["backup", to]);
    assert_eq!((&again[0]["new_objects"], &again[0]["new_bytes"]), (&0.into(), &0.into()), "{again:?}");
    let taken = node.run(&["backup", to, "--name", "first"]);
    assert!(
        taken.status.code() == Some(1) && text(&taken).contains("has one of this name"),
        "{}",
        text(&taken)
    );
    // Not through a door that others may use.
    let wish = format!("{{\"to\": \"{to}\", \"point\": \"x\"}}");
    let refused =
        http_with(&node.address, "POST /v1/backup", "Content-Type: application/json\r\n", wish.as_bytes());
    assert!(refused.starts_with("HTTP/1.1 40"), "{refused}");
    let listed = lines(&sinew(&["backup", to, "--list", "-o", "json"]));
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert!(ok(&["backup", to, "--list"]).contains("sealed"));
    assert!(ok(&["backup", to, "--verify"]).contains("objects are sound"));
    node.kill();
    let key = home.path().join("secrets.key");
    let again = folder.path().join("again");
    let told = ok(&["restore", to, "--to", again.to_str().unwrap(), "--secrets-key", key.to_str().unwrap()]);
    assert!(told.contains("2 labels") && told.contains("sinew up --home"), "{told}");
    let taken = sinew(&["restore", to, "--to", again.to_str().unwrap()]);
    assert!(
        taken.status.code() == Some(1) && text(&taken).contains("has something in it"),
        "{}",
        text(&taken)
    );
    let node = Node::start(&again);
    let get = node.run(&["get", "data/large"]);
    assert_eq!(get.stdout, "large".repeat(60_000).as_bytes());
    assert!(node.ok(&["secret", "list"]).contains("TOKEN"));
    assert_eq!(node.json(&["key", "list"]).len(), 1);
    // A label that is gone comes back into the running node.
    node.ok(&["label", "data/large", "--delete"]);
    assert!(node.ok(&["restore", to, "--label", "data/"]).contains("2 labels"));
    assert_eq!(node.code(&["get", "data/large"]), 0);
    assert_eq!(node.terminate(), 0);
    let without = folder.path().join("without");
    let told = ok(&["restore", to, "--to", without.to_str().unwrap(), "--point", "first"]);
    assert!(told.contains("secrets.sealed"), "{told}");
    let node = Node::start(&without);
    assert_eq!(node.ok(&["secret", "list", "-o", "json"]), "");
    assert_eq!(node.terminate(), 0);
    assert!(ok(&["backup", to, "--keep", "1"]).contains("forgotten: first"));
    assert_eq!(lines(&sinew(&["backup", to, "--list", "-o", "json"])).len(), 1);
}

#[test]
fn damage_is_named_and_healed_from_a_backup() {
    let (home, folder) = (home(), tempfile::tempdir().unwrap());
    let backup = folder.path().join("b");
    let (to, at) = (backup.to_str().unwrap(), home.path().to_str().unwrap());
    let node = Node::start(home.path());
    put(&node, folder.path(), "small", 500);
    let large = put(&node, folder.path(), "large", 300_000);
    node.ok(&["backup", to]);
    let clean = node.run(&["fsck", "--speed", "100MiB"]);
    assert_eq!(clean.status.code(), Some(0), "{}", text(&clean));
    let path = file_of(home.path(), &large);
    flip(&path);
    let found = node.run(&["fsck", "-o", "json"]);
    assert_eq!(found.status.code(), Some(8), "{}", text(&found));
    let damaged = lines(&found).into_iter().find(|line| line["kind"] == "damaged").unwrap();
    assert_eq!(damaged["object"], large.as_str());
    let hurt = lines(&found).into_iter().find(|line| line["kind"] == "hurt").unwrap();
    assert_eq!(hurt["place"], "data/large");
    assert!(path.exists(), "nothing is changed");
    let in_use = node.run(&["fsck", "--repair", "--home", at]);
    assert!(text(&in_use).contains("is in use by process"), "{}", text(&in_use));
    node.kill();
    let found = sinew(&["fsck", "--home", at]);
    assert!(found.status.code() == Some(8) && text(&found).contains("1 labels are hurt"), "{}", text(&found));
    let lost = sinew(&["fsck", "--home", at, "--repair"]);
    assert!(lost.status.code() == Some(8) && text(&lost).contains("1 objects are lost"), "{}", text(&lost));
    assert!(!path.exists() && home.path().join("quarantine").read_dir().unwrap().count() == 1);
    let healed = ok(&["fsck", "--home", at, "--repair", "--from", to]);
    assert!(healed.contains("1 objects were put back"), "{healed}");
    let clean = ok(&["fsck", "--home", at]);
    assert!(clean.contains("1 damaged files are in quarantine"), "{clean}");
    let node = Node::start(home.path());
    assert_eq!(node.run(&["get", "data/large"]).stdout, "large".repeat(60_000).as_bytes());
    assert_eq!(node.terminate(), 0);
    assert_eq!(sinew(&["fsck", "--home", folder.path().to_str().unwrap()]).status.code(), Some(1));
    assert!(text(&sinew(&["backup", at])).contains("no node"));
}
