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
    assert_eq!(sinew(&["fsck", "--home", folder.path().to_str().unwrap()]).status.code(), Some(4));
    assert!(text(&sinew(&["backup", at])).contains("no node"));
}

#[test]
fn a_node_that_is_named_is_checked_and_no_other_home() {
    let (damaged, sound) = (home(), home());
    let (folder, usual) = (tempfile::tempdir().unwrap(), sound.path().to_str().unwrap());
    let node = Node::start(sound.path());
    put(&node, folder.path(), "sound", 300_000);
    assert_eq!(node.terminate(), 0);
    let node = Node::start(damaged.path());
    let large = put(&node, folder.path(), "large", 300_000);
    flip(&file_of(damaged.path(), &large));
    let url = format!("http://{}", node.address);
    let fsck = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
        command.args([&["fsck"], more].concat()).env("SINEW_HOME", usual).env_remove("SINEW_NODE");
        command.env_remove("XDG_DATA_HOME").env("HOME", "/nonexistent").output().unwrap()
    };
    // Of the usual home, which no node uses.
    assert_eq!(fsck(&[]).status.code(), Some(0), "{}", text(&fsck(&[])));
    let named = fsck(&["--node", &url]);
    assert!(named.status.code() == Some(8) && text(&named).contains(&large), "{}", text(&named));
    let repair = fsck(&["--node", &url, "--repair"]);
    assert!(
        repair.status.code() == Some(2) && text(&repair).contains("does not repair itself"),
        "{}",
        text(&repair)
    );
    assert_eq!(node.terminate(), 0);
    let away = fsck(&["--node", &url]);
    assert_eq!(away.status.code(), Some(7), "the usual home is not meant: {}", text(&away));
}

#[test]
fn what_is_not_there_is_not_found_and_no_backup_lies_in_its_home() {
    let (home, folder) = (home(), tempfile::tempdir().unwrap());
    let backup = folder.path().join("b");
    let (to, at) = (backup.to_str().unwrap(), home.path().to_str().unwrap());
    let node = Node::start(home.path());
    put(&node, folder.path(), "small", 500);
    node.ok(&["backup", to, "--name", "first"]);
    for missing in [
        &["restore", to, "--label", "nobody"][..],
        &["restore", to, "--label", "data/", "--point", "nobody"],
        &["backup", to, "--forget", "nobody"],
        &["backup", "/nonexistent/b", "--list"],
        &["restore", to, "--to", folder.path().join("new").to_str().unwrap(), "--point", "nobody"],
        &["fsck", "--home", "/nonexistent/home"],
        &["backup", to, "--home", "/nonexistent/home"],
    ] {
        let output = node.run(missing);
        assert_eq!(output.status.code(), Some(4), "{missing:?}: {}", text(&output));
    }
    // By whatever way the folder is named, and whether it is there.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(home.path(), &link).unwrap();
    for inside in ["b", "packs/b", "new/er/b"] {
        for home in [home.path(), &link] {
            let refused = node.run(&["backup", home.join(inside).to_str().unwrap()]);
            assert!(
                refused.status.code() == Some(1) && text(&refused).contains("lies in the home"),
                "{inside}: {}",
                text(&refused)
            );
        }
    }
    assert!(!home.path().join("b").exists() && !home.path().join("new").exists());
    assert_eq!(node.terminate(), 0);
    let refused = sinew(&["backup", &format!("{at}/b"), "--home", at]);
    assert!(text(&refused).contains("lies in the home"), "{}", text(&refused));
    let restored = ok(&["restore", to, "--to", folder.path().join("new").to_str().unwrap()]);
    assert!(restored.contains("node.key") && restored.contains("another signer's"), "{restored}");
}

#[test]
fn a_damaged_point_is_told() {
    let (home, folder) = (home(), tempfile::tempdir().unwrap());
    let backup = folder.path().join("b");
    let to = backup.to_str().unwrap();
    let node = Node::start(home.path());
    put(&node, folder.path(), "small", 500);
    node.ok(&["backup", to, "--name", "a-first"]);
    let lengths = || -> Vec<(PathBuf, u64)> {
        let packs = std::fs::read_dir(backup.join("packs")).unwrap().map(|pack| pack.unwrap());
        packs.map(|pack| (pack.path(), pack.metadata().unwrap().len())).collect()
    };
    let first = lengths();
    put(&node, folder.path(), "other", 500);
    node.ok(&["backup", to, "--name", "b-second"]);
    assert_eq!(node.terminate(), 0);
    // What was written for the second point only.
    let mut damaged = 0;
    for (pack, len) in lengths() {
        let before = first.iter().find(|(other, _)| *other == pack).map_or(32, |(_, before)| *before);
        if before < len {
            let mut bytes = std::fs::read(&pack).unwrap();
            bytes[before as usize..].fill(9);
            std::fs::write(&pack, bytes).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0, "the second point is somewhere");
    let listed = sinew(&["backup", to, "--list"]);
    assert_eq!(listed.status.code(), Some(8), "{}", text(&listed));
    assert!(text(&listed).contains("a-first") && text(&listed).contains("b-second"), "{}", text(&listed));
    assert!(text(&listed).contains("damaged"), "{}", text(&listed));
    let listed = lines(&sinew(&["backup", to, "--list", "-o", "json"]));
    let damaged = listed.iter().find(|point| point["point"] == "b-second").unwrap();
    assert!(damaged["damaged"].is_string(), "{damaged}");
    // The newest that can be read is restored, and the other one named.
    let told = sinew(&["restore", to, "--to", folder.path().join("new").to_str().unwrap()]);
    assert!(text(&told).contains("a-first") && text(&told).contains("b-second"), "{}", text(&told));
}
