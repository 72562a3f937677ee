// SPDX-License-Identifier: Apache-2.0
//! The commands about functions, as their users meet them, against a node
//! that only remembers.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod fake_node;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use fake_node::{FakeNode, State};
use objects::{Handle, Limits};

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn pairs(state: &State, handle: Handle) -> Vec<(String, String)> {
    let entries: Vec<String> =
        state.tree(handle).into_iter().map(|entry| String::from_utf8(state.blob(entry)).unwrap()).collect();
    entries.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[test]
fn a_new_function_is_deployed_as_the_specification_says() {
    let node = FakeNode::start();
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("hello");
    let printed = node.run(&["new", "hello", "--to", text(&folder)]);
    assert!(printed.status.success());
    let next = String::from_utf8(printed.stderr).unwrap();
    assert!(next.contains("cd ") && next.contains("sinew dev"), "{next}");
    let (code, told) = node.fails(&["new", "hello", "--to", text(&folder)]);
    assert!(code == 1 && told.contains("is there already; nothing was written"), "{told}");
    write(&folder.join("bin/tool"), "#!/bin/sh\n");
    fs::set_permissions(folder.join("bin/tool"), fs::Permissions::from_mode(0o755)).unwrap();
    write(&folder.join("__pycache__/main.pyc"), "x");
    write(&folder.join("tests/a.py"), "x");

    let line = node.ok(&["deploy", text(&folder)]);
    assert!(line.starts_with(&format!("hello  version 1  new  {}  ", node.url("hello"))), "{line}");
    let state = node.state();
    let [tag, procedure, limits, serving] = state.tree(state.deployment("hello"))[..] else {
        panic!("a deployment")
    };
    assert_eq!(state.blob(tag), b"sinew:function/1");
    assert_eq!(Limits::from_handle(limits).unwrap().memory_bytes, 256 << 20);
    assert_eq!(pairs(&state, serving), [pair("runtime", "python")]);
    let [runtime, code, layers, settings] = state.tree(procedure)[..] else { panic!("a procedure") };
    assert_eq!(state.blob(runtime), b"sinew:python");
    assert!(state.tree(layers).is_empty());
    assert_eq!(
        pairs(&state, settings),
        [pair("env.GREETING", "Hello"), pair("function", "hello"), pair("timeout-ms", "10000")]
    );
    // What is compiled here, where there is a Python, comes first; what lay there does not come along.
    let [names, ref compiled @ .., bin, main] = state.tree(code)[..] else { panic!("a directory") };
    let names = String::from_utf8(state.blob(names)).unwrap();
    assert_eq!(names.strip_prefix("d __pycache__\n").unwrap_or(&names), "d bin\nf main.py\n");
    for folder in compiled {
        let [names, module] = state.tree(*folder)[..] else { panic!("one module") };
        assert!(state.blob(names).starts_with(b"f main.cpython-") && state.blob(module).len() > 16);
    }
    assert_eq!(state.blob(state.tree(bin)[0]), b"x tool\n");
    assert_eq!(state.blob(main), fs::read(folder.join("main.py")).unwrap());
}

#[test]
fn every_language_can_be_deployed() {
    let node = FakeNode::start();
    let root = tempfile::tempdir().unwrap();
    for language in ["python", "node", "shell", "wasm"] {
        let folder = root.path().join(language);
        node.ok(&["new", language, "--runtime", language, "--to", text(&folder)]);
        node.ok(&["deploy", text(&folder)]);
    }
    let state = node.state();
    let module = state.blob(state.tree(state.deployment("wasm"))[1]);
    assert!(module.starts_with(b"\0asm"));
}

#[test]
fn deploying_again_tells_what_changed() {
    let node = FakeNode::start();
    let root = tempfile::tempdir().unwrap();
    let manifest = root.path().join("sinew.toml");
    let functions = "[functions.a]\nruntime = \"python\"\n[functions.b]\nruntime = \"python\"\n";
    write(&manifest, functions);
    write(&root.path().join("main.py"), "def handler(event): return 1\n");
    let deploy = || node.ok(&["deploy", text(root.path())]);
    assert_eq!(deploy().lines().filter(|line| line.contains("  version 1  new  ")).count(), 2);
    assert_eq!(deploy().lines().filter(|line| line.contains("  version 1  unchanged  ")).count(), 2);
    write(&root.path().join("main.py"), "def handler(event): return 2\n");
    write(&manifest, &format!("{functions}concurrency = 3\ntimeout = \"5s\"\n"));
    let printed = deploy();
    assert!(printed.contains("a  version 2  changed: code  http"), "{printed}");
    assert!(printed.contains("b  version 2  changed: code, settings, serving  http"), "{printed}");
    let answer = node.json(&["deploy", text(root.path()), "--function", "b"]);
    assert_eq!(
        (&answer["name"], &answer["version"], &answer["changed"]),
        (&"b".into(), &2.into(), &false.into())
    );
}

#[test]
fn nothing_is_switched_before_all_is_uploaded() {
    let node = FakeNode::start();
    let root = tempfile::tempdir().unwrap();
    write(
        &root.path().join("sinew.toml"),
        "[functions.a]\nruntime = \"python\"\n[functions.b]\nruntime = \"node\"\nsource = \"missing\"\n",
    );
    write(&root.path().join("main.py"), "");
    let (code, told) = node.fails(&["deploy", text(root.path())]);
    assert!(code == 4 && told.contains("missing") && told.contains("`source` of the function b"), "{told}");
    assert!(
        node.state()
            .requests
            .iter()
            .all(|request| request.path != "/v1/functions" || request.method == "GET")
    );
}

#[test]
fn what_the_node_refuses_is_named() {
    let node = FakeNode::start();
    let root = tempfile::tempdir().unwrap();
    let functions =
        ["b", "broken", "c", "d"].map(|name| format!("[functions.{name}]\nruntime = \"python\"\n"));
    write(&root.path().join("sinew.toml"), &functions.concat());
    write(&root.path().join("main.py"), "");
    let (code, told) = node.fails(&["deploy", text(root.path())]);
    assert!(code == 1 && told.contains("broken was not deployed: so it did"), "{told}");
    assert!(told.contains("what served before still does") && told.contains("request: id-7"), "{told}");
    assert!(told.contains("not deployed either, for all are or none: b, c, d\n"), "{told}");
    assert!(node.state().functions.is_empty(), "nor is what comes before it");
    let (_, alone) = node.fails(&["deploy", text(root.path()), "--function", "broken"]);
    assert!(!alone.contains("either"), "{alone}");
}

#[test]
fn a_build_makes_the_code() {
    let node = FakeNode::start();
    let root = tempfile::tempdir().unwrap();
    let manifest = |command: &str| {
        let build = format!("build = {{ command = '{command}', output = \"dist\" }}\n");
        write(
            &root.path().join("sinew.toml"),
            &format!("[function]\nname = \"a\"\nruntime = \"python\"\n{build}"),
        );
    };
    manifest("mkdir -p dist && echo made > dist/main.py");
    node.ok(&["deploy", text(root.path())]);
    {
        let state = node.state();
        let code = state.tree(state.tree(state.deployment("a"))[1])[1];
        // Behind what was compiled of it.
        assert_eq!(state.blob(*state.tree(code).last().unwrap()), b"made\n");
    }
    manifest("echo out; echo problem >&2; exit 3");
    let (code, told) = node.fails(&["deploy", text(root.path())]);
    assert_eq!(code, 1);
    for expected in ["the build of a failed", "exit status: 3", "out\nproblem", "nothing was deployed"] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
}

#[test]
fn a_wrong_manifest_is_a_usage_error_with_its_place() {
    let node = FakeNode::start();
    let root = tempfile::tempdir().unwrap();
    write(&root.path().join("sinew.toml"), "[functions.a]\nruntime = \"python\"\nhandlr = \"x.y\"\n");
    let (code, told) = node.fails(&["deploy", text(root.path())]);
    assert_eq!(code, 2);
    assert!(
        told.contains("sinew.toml:3:1: unknown field `handlr`") && told.contains("did you mean `handler`?"),
        "{told}"
    );
    let (code, told) = node.fails(&["deploy", text(&root.path().join("none"))]);
    assert!(code == 4, "{told}");
    fs::remove_file(root.path().join("sinew.toml")).unwrap();
    let (code, told) = node.fails(&["deploy", text(root.path())]);
    assert!(code == 4 && told.contains("`sinew new NAME` writes one"), "{told}");
}

/// A node with one function of two versions.
fn with_hello() -> FakeNode {
    let node = FakeNode::start();
    let root = tempfile::tempdir().unwrap();
    write(&root.path().join("sinew.toml"), "[functions.hello]\nruntime = \"python\"\n");
    for version in ["1", "2"] {
        write(&root.path().join("main.py"), version);
        node.ok(&["deploy", text(root.path())]);
    }
    node
}

#[test]
fn invoking_sends_a_body_and_prints_one() {
    let node = with_hello();
    assert_eq!(node.ok(&["invoke", "hello", "--data-raw", "@x"]), "@x");
    assert_eq!(node.ok(&["invoke", "hello", "-d", "{\"a\": 1}"]), "{\"a\": 1}");
    assert_eq!(node.state().requests.last().unwrap().headers["content-type"], "application/json");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), vec![b'x'; 3 << 20]).unwrap();
    assert_eq!(node.ok(&["invoke", "hello", "--file", text(file.path())]).len(), 3 << 20);
    let mut child = node
        .command(&["invoke", "hello", "--path", "/x?y=1", "--method", "PUT", "-H", "X-A: b"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"from stdin").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"from stdin");
    let last = node.state().requests.last().unwrap().clone();
    assert_eq!((last.method.as_str(), last.path.as_str()), ("PUT", "/function/hello/x?y=1"));
    assert_eq!(last.headers["x-a"], "b");
    let output = node.run(&["invoke", "hello", "-d", "x", "-v"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("< HTTP/1.1 200") && told.contains("< x-request-id: id-7"), "{told}");
    let answer = node.json(&["invoke", "hello", "-d", "x"]);
    assert_eq!(answer["body"], "x");
    assert_eq!((&answer["status"], &answer["request_id"]), (&200.into(), &"id-7".into()));
}

#[test]
fn the_exit_code_says_how_a_call_failed() {
    let node = with_hello();
    for (path, code, told) in [
        ("/raises", 3, "it went wrong (trap): mine"),
        ("/slow", 5, "it went wrong (deadline)"),
        ("/full", 1, "repeat the command in a moment"),
        ("/missing", 3, "hello answered with status 404"),
        ("/own-problem", 3, "about:blank"),
    ] {
        let (found, printed) = node.fails(&["invoke", "hello", "-d", "", "--path", path]);
        assert_eq!(found, code, "{path}: {printed}");
        assert!(path == "/own-problem" || printed.contains(told), "{path}: {printed}");
    }
    assert!(node.fails(&["invoke", "hello", "-d", "", "-p", "/raises"]).1.contains("request: id-7"));
    assert_eq!(node.run(&["invoke", "hello", "-d", "", "-p", "/missing"]).stdout, b"not here");
    let (code, told) = node.fails(&["invoke", "helo", "-d", ""]);
    assert!(code == 4 && told.contains("did you mean hello?"), "{told}");
    assert_eq!(node.fails(&["invoke", "Not A Name", "-d", ""]).0, 2);
}

#[test]
fn functions_are_listed_described_rolled_back_and_deleted() {
    let node = with_hello();
    let listed = node.ok(&["list"]);
    assert!(listed.lines().nth(1).unwrap().starts_with("hello        2  python     12,345"), "{listed}");
    assert_eq!(node.json(&["list"])["name"], "hello");
    let described = node.ok(&["describe", "hello"]);
    assert!(
        described.contains("handler      main.handler\n") && described.contains("  serves\n"),
        "{described}"
    );
    assert_eq!(node.json(&["describe", "hello"])["version"], 2);
    assert!(node.fails(&["describe", "helo"]).1.contains("did you mean hello?"));

    assert!(node.ok(&["rollback", "hello"]).starts_with("hello  version 1  rolled back  http"));
    assert_eq!(node.json(&["rollback", "hello", "--to", "2"])["version"], 2);
    let (code, told) = node.fails(&["rollback", "hello", "--to", "9"]);
    assert!(code == 4 && told.contains("`sinew describe hello` lists the versions"), "{told}");
    assert_eq!(node.fails(&["rollback", "hello", "--to", "0"]).0, 2);
    assert_eq!(node.fails(&["rollback", "other"]).0, 4);

    let (code, told) = node.fails(&["delete", "hello"]);
    assert!(code == 2 && told.contains("sinew delete hello --yes"), "{told}");
    assert_eq!(node.ok(&["delete", "hello", "--yes"]), "hello  deleted\n");
    assert_eq!(node.fails(&["delete", "hello", "--yes"]).0, 4);
    assert_eq!(
        node.ok(&["list"]),
        "NAME  VERSION  RUNTIME  REQUESTS  FAILURES  COLD STARTS  IDLE  BUSY  DEPLOYED  URL  ROUTES\n"
    );
}
