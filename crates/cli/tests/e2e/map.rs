// SPDX-License-Identifier: Apache-2.0
//! `sinew map`: a program for each of many files.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::programs::CAT;
use super::{Node, home, signal};

/// Prints the file that its first argument names, and writes it to the path of its second argument, in
/// the directory for what is made, if there is one. A file that begins with `!` has it trap, with `?` end with 9 and
/// what its stderr says, and with `@` never end.
const COPY: &str = r#"(module
  (import "wasi_snapshot_preview1" "args_get" (func $arguments (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 4)
  (func $must (param i32) (if (local.get 0) (then unreachable)))
  (func $length (param $at i32) (result i32) (local $len i32)
    (loop $more (if (i32.load8_u (i32.add (local.get $at) (local.get $len)))
      (then (local.set $len (i32.add (local.get $len) (i32.const 1))) (br $more))))
    (local.get $len))
  (func $file (param $directory i32) (param $name i32) (param $flags i32) (param $rights i64) (result i32)
    (call $must (call $open (local.get $directory) (i32.const 1) (local.get $name) (call $length (local.get $name))
      (local.get $flags) (local.get $rights) (i64.const 0) (i32.const 0) (i32.const 16)))
    (i32.load (i32.const 16)))
  (func (export "_start") (local $first i32)
    (call $must (call $arguments (i32.const 1024) (i32.const 2048)))
    (i32.store (i32.const 0) (i32.const 65536))
    (i32.store (i32.const 4) (i32.const 65536))
    (call $must (call $read (call $file (i32.const 3) (i32.load (i32.const 1028)) (i32.const 0) (i64.const 2))
      (i32.const 0) (i32.const 1) (i32.const 4)))
    (call $must (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
    (local.set $first (i32.load8_u (i32.const 65536)))
    (if (i32.eq (local.get $first) (i32.const 33)) (then unreachable))
    (if (i32.eq (local.get $first) (i32.const 63)) (then
      (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))
      (call $exit (i32.const 9))))
    (if (i32.eq (local.get $first) (i32.const 64)) (then (loop $forever (br $forever))))
    (if (i32.load (i32.const 1032)) (then
      (call $must (call $write
        (call $file (i32.const 4) (i32.load (i32.const 1032)) (i32.const 9) (i64.const 0x40))
        (i32.const 0) (i32.const 1) (i32.const 8)))))))"#;

/// `warm` writes a `W` to its memory; `show`, of a path, prints that and the file.
const WARM: &str = r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func $must (param i32) (if (local.get 0) (then unreachable)))
  (func (export "warm") (i32.store8 (i32.const 4096) (i32.const 87)))
  (func (export "room") (param i32) (result i32) (i32.const 2048))
  (func (export "show") (param $at i32) (param $len i32)
    (call $must (call $open (i32.const 3) (i32.const 0) (local.get $at) (local.get $len) (i32.const 0)
      (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 16)))
    (i32.store (i32.const 0) (i32.const 4097))
    (i32.store (i32.const 4) (i32.const 1024))
    (call $must (call $read (i32.load (i32.const 16)) (i32.const 0) (i32.const 1) (i32.const 4)))
    (i32.store (i32.const 0) (i32.const 4096))
    (i32.store (i32.const 4) (i32.add (i32.load (i32.const 4)) (i32.const 1)))
    (call $must (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"#;

/// A node, its program, and a directory with files.
struct Workshop {
    node: Node,
    program: String,
    files: PathBuf,
    _home: tempfile::TempDir,
}

impl Workshop {
    fn new(files: &[(&[u8], &str)]) -> Self {
        let home = home();
        let node = Node::start(home.path());
        let program = node.codelet("copy.wasm", COPY).split_off(1);
        let folder = home.path().join("files");
        for (name, text) in files {
            let path = folder.join(OsStr::from_bytes(name));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self { node, program, files: folder, _home: home }
    }

    fn map<T: AsRef<OsStr>>(&self, arguments: &[T]) -> Output {
        self.map_of(&self.program, arguments)
    }

    /// The same with another program.
    fn map_of<T: AsRef<OsStr>>(&self, program: &str, arguments: &[T]) -> Output {
        let mut command = self.node.command(&["map", program]);
        command.args(arguments).current_dir(&self.files).output().unwrap()
    }

    /// The last line of a map that ended with this code.
    fn summary(&self, code: i32, arguments: &[&str]) -> Value {
        let mapped = self.map(&[&["-o", "json"], arguments].concat());
        let errors = String::from_utf8_lossy(&mapped.stderr);
        assert_eq!(mapped.status.code(), Some(code), "{errors}");
        let lines = String::from_utf8(mapped.stdout).unwrap();
        let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        last["summary"].clone()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.files.join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.files.join(name)).unwrap()
    }
}

/// All that is below a directory.
fn below(path: &Path) -> Vec<OsString> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        names.push(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            names.extend(below(&entry.path()));
        }
    }
    names.sort();
    names
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn counts(summary: &Value) -> [u64; 4] {
    ["files", "run", "remembered", "failed"].map(|name| summary[name].as_u64().unwrap())
}

#[test]
fn only_what_changed_is_run_again() {
    let long = "a line that is longer than a literal is\n".repeat(100);
    let workshop = Workshop::new(&[
        (b"src/a.txt", "of a\n"),
        (b"src/deep/er/b.txt", "of b\n"),
        (b"src/deep/with space.txt", &long),
        (b"src/caf\xe9.txt", "of a name that is no text\n"),
        (b"src/.hidden.txt", "!"),
        (b"shared/used.h", "one"),
    ]);
    let map =
        ["src/**/*.txt", "--with", "shared/*", "--out", "made", "--label", "made", "--", "{}", "{.}.copy"];
    let mapped = workshop.map(&map);
    assert_eq!(mapped.status.code(), Some(0), "{}", text(&mapped.stderr));
    // In the order of the names, whoever was first.
    let expected = format!("of a\nof a name that is no text\nof b\n{long}");
    assert_eq!(text(&mapped.stdout), expected);
    assert!(
        text(&mapped.stderr).starts_with("4 files: 4 ok (4 run, 0 remembered) in"),
        "{}",
        text(&mapped.stderr)
    );
    assert_eq!(
        (workshop.read("made/src/deep/er/b.copy"), workshop.read("made/src/deep/with space.copy")),
        ("of b\n".to_owned(), long)
    );
    let strange = workshop.files.join(OsString::from_vec(b"made/src/caf\xe9.copy".to_vec()));
    assert_eq!(fs::read(&strange).unwrap(), b"of a name that is no text\n");

    // Nothing is run, and no file is touched.
    let before = fs::metadata(&strange).unwrap().modified().unwrap();
    assert_eq!(counts(&workshop.summary(0, &map)), [4, 0, 4, 0]);
    assert_eq!(fs::metadata(&strange).unwrap().modified().unwrap(), before);
    // What was taken away is there again, and is not run for that.
    fs::remove_dir_all(workshop.files.join("made")).unwrap();
    workshop.write("src/a.txt", "of another a\n");
    assert_eq!(counts(&workshop.summary(0, &map)), [4, 1, 3, 0]);
    assert_eq!(
        (workshop.read("made/src/a.copy"), workshop.read("made/src/deep/er/b.copy")),
        ("of another a\n".to_owned(), "of b\n".to_owned())
    );
    // What all share is part of each.
    workshop.write("shared/used.h", "two");
    assert_eq!(counts(&workshop.summary(0, &map)), [4, 4, 0, 0]);

    // What they made is one tree, which the next program is given without its passing here.
    let run = ["run", &workshop.program, "--dir", "#made=/in:ro", "--", "src/deep/er/b.copy"];
    assert_eq!(workshop.node.ok(&run), "of b");
}

#[test]
fn failures_are_listed_and_the_rest_is_done() {
    let workshop = Workshop::new(&[(b"a", "fine\n"), (b"b", "!"), (b"c", "?why\n"), (b"d", "fine too\n")]);
    let map = ["?", "--out", "../made", "--label", "made", "--progress", "--", "{}", "{}.out"];
    for _ in 0..2 {
        let mapped = workshop.map(&map);
        assert_eq!(mapped.status.code(), Some(3));
        assert_eq!(text(&mapped.stdout), "fine\n?why\nfine too\n");
        let told = text(&mapped.stderr);
        assert!(told.contains("?why\n") && told.contains("failed: b: ") && told.contains("(trap)"), "{told}");
        assert!(told.contains("failed: c: exit code 9") && told.contains("2 of 4 files failed\n"), "{told}");
        assert!(told.contains("4 files: 2 ok ("), "{told}");
    }
    // What is fine is there, what failed has left nothing, and nobody is given half of it by name.
    assert_eq!(below(&workshop.files.join("../made")), ["a.out", "d.out"]);
    assert_eq!(workshop.node.code(&["get", "made"]), 4);
    let mapped = workshop.map(&[&["-o", "json"][..], &map[..1]].concat());
    let lines: Vec<Value> =
        text(&mapped.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 5);
    assert_eq!((&lines[0]["file"], &lines[0]["stdout"]["text"]), (&"a".into(), &"fine\n".into()));
    assert_eq!(lines[1]["error"]["problem"]["failure"]["code"], "trap");
    assert_eq!((&lines[2]["status"], &lines[2]["stderr"]["text"]), (&9.into(), &"?why\n".into()));
    assert_eq!(counts(&lines[4]["summary"]), [4, 2, 0, 2]);
    // Mended, the label is set.
    workshop.write("b", "mended\n");
    workshop.write("c", "mended as well\n");
    assert_eq!(counts(&workshop.summary(0, &map)), [4, 2, 2, 0]);
    assert_eq!(below(&workshop.files.join("../made")), ["a.out", "b.out", "c.out", "d.out"]);
    assert_eq!(workshop.node.code(&["get", "made"]), 0);
}

#[test]
fn who_writes_to_one_path_is_named() {
    let workshop = Workshop::new(&[(b"a", "one\n"), (b"b", "two\n"), (b"c", "one\n")]);
    let mapped = workshop.map(&["a", "b", "--label", "made", "--", "{}", "same"]);
    assert_eq!(mapped.status.code(), Some(3));
    let told = text(&mapped.stderr);
    assert!(
        told.contains("same was made of ") && told.contains("a and of b") | told.contains("b and of a"),
        "{told}"
    );
    assert!(told.contains("2 files: 2 ok"), "{told}");
    assert_eq!(workshop.node.code(&["get", "made"]), 4);
    // The same file is no conflict.
    assert_eq!(
        counts(&workshop.summary(0, &["a", "c", "--label", "made", "--", "{}", "same"])),
        [2, 1, 1, 0]
    );
}

#[test]
fn wrong_command_lines_say_what_is_wrong() {
    let workshop = Workshop::new(&[(b"x/a.txt", "text\n")]);
    let told = |code: i32, arguments: &[&str], expected: &str| {
        let mapped = workshop.map(arguments);
        let told = text(&mapped.stderr);
        assert!(mapped.status.code() == Some(code) && told.contains(expected), "{arguments:?}: {told}");
    };
    told(4, &["*.c"], "no file matches *.c");
    told(4, &["none.c"], "none.c");
    told(2, &["x"], "'x/**' means all files in it");
    told(2, &["x/**", "--dir", "x=/"], "/ is not free");
    told(2, &["x/**", "--dir", "x=/out"], "/out is not free");
    told(2, &["x/**", "--braces", "ab"], "braces");
    told(2, &[], "FILES");
    told(4, &["x/**", "--exclude", "**/a.*"], "no files are left");
    // What no file can help is told once.
    told(3, &["x/**", "--memory", "900GiB"], "are wanted, this node has");
    fs::write(workshop.files.join("no.wasm"), wat::parse_str("(module)").unwrap()).unwrap();
    let mapped = workshop.map_of("no.wasm", &["x/**"]);
    assert_eq!((mapped.status.code(), text(&mapped.stderr).contains("files failed")), (Some(3), false));
    // What lies above is named by its whole path.
    fs::create_dir(workshop.files.join("y")).unwrap();
    let mut command = workshop.node.command(&["map", &workshop.program, "../x/a.txt"]);
    let mapped = command.current_dir(workshop.files.join("y")).output().unwrap();
    // The path is absolute, and programs know only relative ones without a library: it is not in the directory.
    assert_eq!(mapped.status.code(), Some(3), "{}", text(&mapped.stderr));
    assert!(text(&mapped.stderr).contains(workshop.files.to_str().unwrap()));
}

#[test]
fn ctrl_c_leaves_nothing_half_written_and_what_is_done_is_remembered() {
    let workshop = Workshop::new(&[(b"a", "fine\n"), (b"b", "fine too\n"), (b"z", "@")]);
    let mut command = workshop.node.command(&["map", &workshop.program]);
    command.args(["?", "--out", "../made", "--", "{}", "{}"]).current_dir(&workshop.files);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let made = workshop.files.join("../made");
    let begun = Instant::now();
    while !(made.join("a").exists() && made.join("b").exists()) {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing was made");
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(&child, "INT");
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended.stderr));
    assert_eq!(below(&made), ["a", "b"]);
    workshop.write("z", "fine by now\n");
    let summary = workshop.summary(0, &["?", "--out", "../made", "--", "{}", "{}"]);
    assert_eq!(counts(&summary), [3, 1, 2, 0]);
    assert_eq!(fs::read_to_string(made.join("z")).unwrap(), "fine by now\n");
}

#[test]
fn stdin_and_stdout_are_files_of_each() {
    let long = "a line\n".repeat(30_000);
    let workshop = Workshop::new(&[
        (b"in/a.txt", "of a\n"),
        (b"in/long.txt", &long),
        (b"list", "in/long.txt\n./in/a.txt\n"),
    ]);
    let cat = workshop.node.codelet("cat.wasm", CAT).split_off(1);
    let map = ["--files-from", "list", "--stdin", "{}", "--stdout", "{.}.copy", "--out", "made"];
    let mapped = workshop.map_of(&cat, &map);
    assert_eq!((mapped.status.code(), &*text(&mapped.stdout)), (Some(0), ""), "{}", text(&mapped.stderr));
    assert_eq!(
        (workshop.read("made/in/a.copy"), workshop.read("made/in/long.copy")),
        ("of a\n".to_owned(), long)
    );
    // In the order of the list.
    let mapped = workshop.map_of(&cat, &["--files-from", "list", "--stdin", "{.}.txt", "-o", "json"]);
    let files: Vec<Value> = text(&mapped.stdout)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["file"].clone())
        .collect();
    assert_eq!(files, [Value::from("in/long.txt"), "in/a.txt".into(), Value::Null]);
    // Two that print to one path differ.
    let mapped = workshop.map_of(&cat, &["in/*", "--stdin", "{}", "--stdout", "one"]);
    assert_eq!(mapped.status.code(), Some(3), "{}", text(&mapped.stderr));
    let mapped = workshop.map_of(&cat, &["in/*", "--stdin", "{}", "--stdout", "../{/}"]);
    assert!(text(&mapped.stderr).contains("is no path for what is printed"), "{}", text(&mapped.stderr));
}

#[test]
fn programs_go_on_from_a_snapshot_with_a_file_each() {
    let workshop = Workshop::new(&[(b"x/a", "of a\n"), (b"x/b", "of b\n")]);
    let program = workshop.node.codelet("warm.wasm", WARM).split_off(1);
    let empty = workshop.files.join("empty");
    fs::create_dir(&empty).unwrap();
    let [files, out] = ["/:ro", "/out"].map(|guest| format!("{}={guest}", empty.display()));
    workshop.node.ok(&[
        "run",
        &program,
        "--dir",
        &files,
        "--dir",
        &out,
        "--entry",
        "warm",
        "--snapshot",
        "warm",
    ]);
    workshop.node.ok(&["run", &program, "--entry", "warm", "--snapshot", "blind"]);
    let map = |label: &str| workshop.map_of(&program, &["x/*", "--from", label, "--entry", "show:room={}"]);
    let mapped = map("#warm");
    assert_eq!(text(&mapped.stdout), "Wof a\nWof b\n", "{}", text(&mapped.stderr));
    // Without a directory for the file none would be looked at.
    let mapped = map("#blind");
    assert_eq!(mapped.status.code(), Some(2));
    assert!(text(&mapped.stderr).contains("no directory for its file"), "{}", text(&mapped.stderr));
}

#[test]
fn what_was_collected_is_run_again_and_not_missed() {
    let long = "a line that is longer than a literal is\n".repeat(100);
    let mut workshop = Workshop::new(&[(b"a.txt", &long), (b"b.txt", &long.to_uppercase())]);
    let map = ["*.txt", "--out", "made", "--", "{}", "{.}.copy"];
    assert_eq!(counts(&workshop.summary(0, &map)), [2, 2, 0, 0]);
    assert_eq!(counts(&workshop.summary(0, &map)), [2, 0, 2, 0]);
    let home = workshop.node.home.clone();
    signal(&workshop.node.child, "TERM");
    assert_eq!(workshop.node.child.wait().unwrap().code(), Some(0));
    let old = std::time::SystemTime::now() - Duration::from_secs(2 * 24 * 3600);
    let mut pending = vec![home.join("packs"), home.join("objects")];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
        }
    }
    workshop.node = Node::start(&home);
    assert!(!workshop.node.ok(&["gc"]).contains("went: 0 objects"));
    fs::remove_dir_all(workshop.files.join("made")).unwrap();
    assert_eq!(counts(&workshop.summary(0, &map)), [2, 2, 0, 0]);
    assert_eq!(workshop.read("made/a.copy"), long);
}
