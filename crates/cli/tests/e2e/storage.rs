// SPDX-License-Identifier: Apache-2.0
//! What nobody needs leaves the disk, and homes of older versions are told.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::{Node, home};

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
    let metrics = node.http("GET /metrics", b"");
    assert!(metrics.contains("sinew_objects_collected_total 1"), "{metrics}");
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
    std::fs::write(home.path().join("FORMAT"), "sinew-store 1\n").unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_sinew")).arg("up").env("SINEW_HOME", home.path()).output();
    let refused = String::from_utf8(refused.unwrap().stderr).unwrap();
    assert!(refused.contains("sinew-store 1") && refused.contains("`sinew upgrade`"), "{refused}");
    let (code, told) = upgrade(home.path());
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((code, &told["objects"]), (0, &0.into()));
    let node = Node::start(home.path());
    assert_eq!(node.code(&["get", &handle]), 0);
    assert_eq!(node.terminate(), 0);
}
