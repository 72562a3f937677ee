// SPDX-License-Identifier: Apache-2.0
//! What `sinew sdk` writes for Python and Node, used as in anybody's tests: without a
//! node, and beside one that has the same functions.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::functions::is_root;
use super::{Node, home};

const APP: &str = include_str!("sdk_app.py");
const WORKFLOWS: [&str; 14] = [
    "finra",
    "kinds",
    "inner",
    "gathered",
    "unseen",
    "deep",
    "unwritten",
    "unsent",
    "seen_below",
    "one_of_two",
    "too_early",
    "first_failure",
    "in_a_coroutine",
    "given_a_coroutine",
];

fn sinew(folder: &Path, arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_sinew")).args(arguments).current_dir(folder).output().unwrap()
}

/// Runs tests of users in a folder; some of them are skipped without a node.
fn passes(folder: &Path, program: &str, arguments: &[&str], node: Option<&str>) {
    let mut command = Command::new("timeout");
    command.arg("120").arg(program).args(arguments).current_dir(folder);
    command.env_remove("SINEW_NODE").env_remove("SINEW_KEY").env("PYTHONDONTWRITEBYTECODE", "1");
    if let Some(node) = node {
        command.env("SINEW_NODE", node);
    }
    let output = command.output().unwrap();
    let told = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}", told.concat());
    // A suite that found no test would pass as well.
    let skips = told.concat().contains("skipped=3") || told.concat().contains("skipped 1");
    assert_eq!(skips, node.is_none(), "{}", told.concat());
}

/// The tests' folder, with what `sinew sdk` writes for both.
fn written(folder: &Path) {
    std::fs::write(folder.join("sdk_app.py"), APP).unwrap();
    std::fs::write(folder.join("sdk_app_test.py"), include_str!("sdk_app_test.py")).unwrap();
    std::fs::write(folder.join("sdk_app.test.mjs"), include_str!("sdk_app.test.mjs")).unwrap();
    for language in ["python", "node"] {
        assert!(sinew(folder, &["sdk", language]).status.success());
    }
}

fn tests_pass(folder: &Path, node: Option<&str>) {
    passes(folder, "python3", &["sdk_app_test.py"], node);
    passes(folder, "node", &["--test", "sdk_app.test.mjs"], node);
}

#[test]
fn tests_of_functions_and_workflows_need_no_node() {
    let folder = home();
    written(folder.path());
    tests_pass(folder.path(), None);
}

#[test]
fn what_a_workflow_gives_here_a_node_gives_too() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = home.path().join("app");
    std::fs::create_dir(&folder).unwrap();
    written(&folder);
    let mut manifest = String::new();
    for name in WORKFLOWS {
        let function = format!(
            "[functions.{}]\nruntime = \"python\"\nhandler = \"sdk_app.{name}\"\nworkflow = true\n",
            name.replace('_', "-")
        );
        manifest.push_str(&function);
    }
    for name in ["greet", "refuse"] {
        manifest
            .push_str(&format!("[functions.{name}]\nruntime = \"python\"\nhandler = \"sdk_app.{name}\"\n"));
    }
    std::fs::write(folder.join("sinew.toml"), manifest).unwrap();
    node.ok(&["deploy", folder.to_str().unwrap()]);
    tests_pass(&folder, Some(&format!("http://{}", node.address)));
    // By the node's socket, as the command line does by itself.
    let socket = home.path().join("node.sock");
    passes(&folder, "python3", &["sdk_app_test.py"], Some(socket.to_str().unwrap()));
    // What is written for Python is no code: a node has its own.
    std::fs::remove_file(folder.join("sinew.py")).unwrap();
    std::fs::remove_file(folder.join("sinew.pyi")).unwrap();
    let again = node.deploy(&folder);
    assert_eq!(again["changed"], false, "{again}");
}

#[test]
fn it_writes_over_its_own_files_alone() {
    let folder = home();
    let folder = folder.path();
    for (language, names) in [
        ("python", ["sinew.py", "sinew.pyi"].as_slice()),
        ("node", &["sinew.mjs", "sinew.d.mts"]),
        ("c", &["sinew.h", "sinew.c"]),
        ("schema", &["sinew.schema.json"]),
    ] {
        let told = sinew(folder, &["sdk", language, "--to", "sub", "-o", "json"]);
        let told: Value = serde_json::from_slice(&told.stdout).unwrap();
        let paths: Vec<String> = names.iter().map(|name| format!("sub/{name}")).collect();
        assert_eq!(told["files"], serde_json::json!(paths));
        assert!(sinew(folder, &["sdk", language, "--to", "sub"]).status.success());
        let last = folder.join(paths.last().unwrap());
        std::fs::write(&last, "mine").unwrap();
        let refused = sinew(folder, &["sdk", language, "--to", "sub"]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("is none of its files"));
        assert_eq!(std::fs::read_to_string(last).unwrap(), "mine");
    }
}
