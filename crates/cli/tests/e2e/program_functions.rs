// SPDX-License-Identifier: Apache-2.0
//! Whole programs as deployed functions.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Node, home, http};

/// Prints its arguments and variables, each with its zero.
const TOLD: &str = r#"(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $env_sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $env (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (drop (call $sizes (i32.const 16) (i32.const 4))) (drop (call $args (i32.const 100) (i32.const 200)))
    (i32.store (i32.const 0) (i32.const 200))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
    (drop (call $env_sizes (i32.const 16) (i32.const 4))) (drop (call $env (i32.const 100) (i32.const 200)))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"#;
const SPIN: &str = r#"(module (import "wasi_snapshot_preview1" "sched_yield" (func (result i32)))
  (memory (export "memory") 1) (func (export "_start") (loop $more (br $more))))"#;

fn source(home: &Path, name: &str, manifest: &str, text: &str) -> PathBuf {
    let folder = home.join(name);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("sinew.toml"), manifest).unwrap();
    fs::write(folder.join("main.wat"), text).unwrap();
    folder
}

#[test]
fn a_program_answers_with_what_it_prints() {
    let home = home();
    let node = Node::start(home.path());
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/functions/hello-program");
    let told = node.ok(&["deploy", example.to_str().unwrap()]);
    assert!(told.contains("hello  version 1  new"), "{told}");
    let ask = |body: &str| http(&node.address, "POST /function/hello", body.as_bytes());
    let answer = ask("Ada");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nHello, Ada"), "{answer}");
    assert!(answer.to_lowercase().contains("content-type: text/plain; charset=utf-8"), "{answer}");
    let starts = || {
        let lines = node.ok(&["logs", "hello", "-n", "50", "-o", "json"]);
        let start =
            |line: &str| serde_json::from_str::<Value>(line).unwrap()["start"].as_str().unwrap().to_owned();
        lines.lines().map(start).collect::<Vec<_>>()
    };
    assert!(ask("Ada").ends_with("Hello, Ada"));
    assert_eq!(starts(), ["program", "memo"], "the same body is not run twice");
    let long = "x".repeat(200_000);
    assert!(ask(&long).ends_with(&format!("Hello, {long}")));

    // What ends with another status than 0 has failed; who reads the logs sees why.
    for _ in 0..2 {
        let answer = ask("");
        assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
        let problem: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("exit code 3") && detail.contains("the body is empty"), "{problem}");
        assert_eq!(
            (&problem["component"], &problem["type"]),
            (&"function".into(), &"urn:sinew:problem:exit-code".into())
        );
        let id = problem["request_id"].as_str().unwrap();
        let logs = node.ok(&["logs", "--request-id", id]);
        assert!(logs.contains("the body is empty: it should be a name"), "{logs}");
    }
    assert!(node.ok(&["deploy", example.to_str().unwrap()]).contains("unchanged"));

    // Other files are another version, with other results.
    let copy = home.path().join("copy");
    fs::create_dir_all(copy.join("files")).unwrap();
    for file in ["sinew.toml", "hello.wat"] {
        fs::copy(example.join(file), copy.join(file)).unwrap();
    }
    fs::write(
        copy.join("files/greeting.txt"),
        "Good evening, this is a longer greeting than a literal has room for, ",
    )
    .unwrap();
    let told = node.ok(&["deploy", copy.to_str().unwrap()]);
    assert!(told.contains("changed: arguments"), "{told}");
    assert!(ask("Ada").ends_with("room for, Ada"));
}

#[test]
fn a_program_is_told_what_the_manifest_says() {
    let home = home();
    let node = Node::start(home.path());
    let manifest = "[functions.told]\nruntime = \"wasm\"\nsource = \"main.wat\"\nmemory = \"1 MiB\"\n\
        arguments = [\"-c\", \"a b\"]\nenvironment = { A = \"1\" }\n";
    let folder = source(home.path(), "told", manifest, TOLD);
    node.ok(&["deploy", folder.to_str().unwrap()]);
    assert_eq!(node.ok(&["invoke", "told"]), "told\0-c\0a b\0A=1\0");
    // An endless one ends where its time does, or its fuel.
    for (field, status, said) in
        [("timeout = \"300ms\"", "504", "deadline"), ("fuel = 1000000", "500", "fuel")]
    {
        let manifest = format!(
            "[functions.spin]\nruntime = \"wasm\"\nsource = \"main.wat\"\nmemory = \"1 MiB\"\n{field}\n"
        );
        let folder = source(home.path(), "spin", &manifest, SPIN);
        node.ok(&["deploy", folder.to_str().unwrap()]);
        let answer = http(&node.address, "POST /function/spin", b"");
        assert!(answer.contains(status) && answer.contains(said), "{field}: {answer}");
    }
    // A codelet is told nothing.
    let manifest = "[functions.echo]\nruntime = \"wasm\"\nsource = \"main.wat\"\narguments = [\"x\"]\n";
    let folder = source(home.path(), "echo", manifest, super::later::ECHO);
    let refused = node.run(&["deploy", folder.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && told.contains("codelet"), "{told}");
}
