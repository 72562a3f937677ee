// SPDX-License-Identifier: Apache-2.0
//! The commands that handle data, as scripts use them: what they print on
//! stdout, for people and as JSON, and what they never print there.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::functions::is_root;
use super::{ADD, LOOP, Node, home, signal};

const FIB: &str = include_str!("../../../../guests/codelets/wat/fib.wat");
const TEXT: &str = "a text of more than thirty bytes, that is no literal\n";

impl Node {
    fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Every line that a command prints on stdout, each of which must be JSON.
    pub(super) fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let printed = self.ok(&[arguments, &["-o", "json"]].concat());
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn requests(&self) -> u64 {
        let metrics = self.http("GET /metrics", b"");
        let line = metrics.lines().find_map(|line| line.strip_prefix("sinew_requests ")).unwrap();
        line.parse().unwrap()
    }
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn data_goes_in_is_listed_named_and_comes_out() {
    let home = home();
    let node = Node::start(home.path());
    let (handle, _) = text(&node.run_with_input(&["put"], TEXT.as_bytes()));
    let handle = handle.trim_end().to_owned();
    assert_eq!(node.run(&["cat", &handle, &handle]).stdout, TEXT.repeat(2).as_bytes());
    let copy = home.path().join("copy");
    node.ok(&["get", &handle, "--to", copy.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), TEXT);

    // The same with progress, which must not come between the data.
    let put =
        node.run_with_input(&["put", "--shards", "8", "--progress", "--label", "shards"], TEXT.as_bytes());
    let (tree, progress) = text(&put);
    assert!(tree.starts_with("tree-") && tree.lines().count() == 1, "{tree}{progress}");
    let tree = tree.trim_end();
    let listed = node.ok(&["ls", "shards"]);
    let rows: Vec<Vec<&str>> = listed.lines().skip(1).map(|row| row.split_whitespace().collect()).collect();
    let entries = node.json(&["get", tree]);
    assert_eq!((rows.len(), entries.len()), (entries.len(), node.ok(&["get", "shards"]).lines().count()));
    let mut whole = Vec::new();
    for (index, (row, entry)) in rows.iter().zip(&entries).enumerate() {
        assert_eq!(
            (row[0], row[1], entry["index"].as_u64()),
            (&*index.to_string(), "blob", Some(index as u64))
        );
        assert_eq!(entry["handle"], **row.last().unwrap());
        whole.extend(node.run(&["get", row.last().unwrap()]).stdout);
    }
    assert_eq!(whole, TEXT.as_bytes());

    assert_eq!(node.ok(&["label", "text", &handle]), handle);
    assert_eq!(node.ok(&["label", "text"]), handle);
    let labels = node.json(&["label"]);
    let names: Vec<&str> = labels.iter().map(|label| label["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["shards", "text"]);
    assert_eq!(node.json(&["label", "text", "--delete"])[0]["deleted"], true);
    assert_eq!((node.code(&["label", "text"]), node.code(&["label", "text", "--delete"])), (4, 4));
    assert_eq!(node.terminate(), 0);
}

#[test]
fn sorted_lines_become_a_search_tree_and_keys_are_found() {
    let home = home();
    let node = Node::start(home.path());
    let lines: String = (0..2000).map(|number| format!("key {number:05}\tvalue\tof {number}\n")).collect();
    let put = |arguments: &[&str], lines: &str| {
        let output = node.run_with_input(&[&["put", "--keys"], arguments].concat(), lines.as_bytes());
        (output.status.code().unwrap(), text(&output))
    };
    let find = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/guests/find-key.wasm");
    let mut trees = Vec::new();
    for arity in ["3", "64", "2000", "1000000"] {
        let (code, (tree, said)) = put(&[arity, "--label", "keys"], &lines);
        assert_eq!(code, 0, "{said}");
        trees.push(tree);
        for number in [0, 1, 63, 64, 1187, 1999] {
            let look_up = format!(r#"@{find}("key {number:05}", !#keys[0], ref(#keys))"#);
            assert_eq!(node.ok(&["eval", &look_up]), format!("value\tof {number}"), "arity {arity}");
        }
        for absent in ["key", "key 00000x", "key 02000", "zzz"] {
            let look_up = format!(r#"@{find}("{absent}", !#keys[0], ref(#keys))"#);
            let (printed, said) = text(&node.run(&["eval", &look_up]));
            assert!(printed.is_empty() && said.contains("no such key"), "{absent}: {printed}{said}");
        }
    }
    // One node has all of them in both.
    assert_eq!(trees[2], trees[3]);
    trees.dedup();
    assert_eq!(trees.len(), 3);
    for (wrong, why) in [
        ("b\t1\na\t2\n", "-, line 2: the key \"a\" comes after a greater one"),
        ("a\t1\na\t2\n", "-, line 2: the key \"a\" is there twice"),
        ("a\t1\nb\n", "-, line 2: no tab stands between a key and its value"),
        ("", "- has no lines"),
    ] {
        let (code, (printed, said)) = put(&["4", "--label", "wrong"], wrong);
        assert!(code == 2 && printed.is_empty() && said.contains(why), "{code} {printed}{said}");
    }
    assert_eq!(node.code(&["label", "wrong"]), 4);
    assert_eq!(put(&["1"], "a\t1\n").0, 2);
    assert_eq!(node.terminate(), 0);
}

#[test]
fn expressions_come_from_stdin_and_what_is_none_is_the_callers_mistake() {
    let home = home();
    let node = Node::start(home.path());
    let add = node.codelet("add.wasm", ADD);
    let fib = node.codelet("fib.wasm", FIB);
    let expression = format!("{fib}({add}, 10u8)");
    let printed = node.run_with_input(&["eval", "-", "--as", "u64", "--progress"], expression.as_bytes());
    let (printed, progress) = text(&printed);
    assert!(printed == "55\n" && progress.contains("20 applied"), "{printed}{progress}");
    // Eleven calls of fib, each once, and nine additions.
    let goal = |number: u8| format!("{fib}({add}, {number}u8)");
    let computed = Node::start(&home.path().join("other"));
    assert_eq!(computed.json(&["eval", &goal(10)])[0]["applied"], 20);
    assert_eq!(computed.json(&["eval", &goal(11)])[0]["applied"], 2);
    let nothing = node.run_with_input(&["eval", "-"], b"\xff\xfe");
    assert_eq!(nothing.status.code(), Some(2), "{}", text(&nothing).1);
    for arguments in [&["nonsense"][..], &["eval"], &["eval", "[1u8"], &["--node", "ftp://x", "label"]] {
        let output = node.run(&[arguments, &["-o", "json"]].concat());
        let (printed, said) = text(&output);
        let error: Value = serde_json::from_str(said.trim_end()).unwrap();
        assert_eq!((printed.as_str(), output.status.code()), ("", Some(2)), "{said}");
        assert_eq!(error["error"]["exit_code"], 2, "{said}");
        assert!(!error["error"]["message"].as_str().unwrap().is_empty());
    }
}

#[test]
fn an_explanation_tells_whether_a_result_was_needed_again() {
    let home = home();
    let node = Node::start(home.path());
    let add = node.codelet("add.wasm", ADD);
    let call = format!("{add}(3u8, 4u8)");
    let explained = || node.json(&["explain", &call])[0]["steps"].clone();
    assert_eq!(explained(), serde_json::json!([]));
    node.ok(&["eval", &call]);
    assert_eq!((&explained()[0]["result"], &explained()[0]["memo_hit"]), (&"lit-07".into(), &false.into()));
    node.ok(&["eval", &call]);
    assert_eq!(explained()[0]["memo_hit"], true);
    assert!(node.ok(&["explain", &call]).contains("a memo hit since"));
    let made = node.ok(&["explain", "lit-07"]);
    assert!(made.contains("Made by") && made.contains("apply"), "{made}");
    assert!(node.ok(&["explain", &add]).contains("stateless"));
}

#[test]
fn whoever_presses_ctrl_c_leaves_nothing_running() {
    let home = home();
    let node = Node::start(home.path());
    let forever = node.codelet("loop.wasm", LOOP);
    let mut command = node.command(&["eval", &format!("{forever}()")]);
    let mut client: Child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let wait_for = |wanted: u64| {
        let begun = Instant::now();
        while node.requests() != wanted {
            assert!(begun.elapsed() < Duration::from_secs(20), "never {wanted} requests");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    wait_for(1);
    signal(&client, "INT");
    assert_eq!(client.wait().unwrap().code(), Some(130));
    wait_for(0);
}

#[test]
fn machines_are_looked_at_measured_and_completed_for() {
    let home = home();
    let node = Node::start(home.path());
    let checks = node.json(&["doctor", "--home", home.path().to_str().unwrap()]);
    assert!(!checks.is_empty() && checks.iter().all(Value::is_object), "{checks:?}");
    let measured = node.json(&["bench", "-n", "200", "--rounds", "2"]);
    assert!(!measured.is_empty(), "it says nothing");
    assert_eq!(node.run(&["bench", "missing", "-d", "{}"]).status.code(), Some(4));
    assert_eq!(node.run(&["bench", "--rate", "3"]).status.code(), Some(2), "a rate needs a function");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = node.ok(&["completion", shell]);
        assert!(script.contains("explain") && script.contains("deploy"), "{shell}");
        assert!(!script.contains("sandbox-init"), "{shell} offers what is for the node alone");
    }
    let bash = Path::new("/bin/bash");
    if bash.exists() {
        let script = home.path().join("completion");
        std::fs::write(&script, node.ok(&["completion", "bash"])).unwrap();
        let ask = format!(
            "source {}; COMP_WORDS=(sinew exp); COMP_CWORD=1; _sinew sinew exp sinew; echo ${{COMPREPLY[@]}}",
            script.display()
        );
        let reply = Command::new(bash).args(["--norc", "-c", &ask]).output().unwrap();
        assert_eq!(text(&reply).0.trim(), "explain", "{}", text(&reply).1);
    }
}

#[test]
fn a_function_is_loaded() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let script = "#!/bin/sh\nread word\n[ \"$word\" = end ] && exit 7\nprintf 'so %s' \"$word\"\n";
    let folder = node.script("says", "mode = \"stdin\"\n", script);
    // By the socket, where nobody has named the address.
    let deployed = node.json(&["deploy", folder.to_str().unwrap()]).remove(0);
    assert_eq!(deployed["url"], format!("http://{}/function/says", node.address), "{deployed}");
    let load = ["bench", "says", "-c", "2", "-z", "1s", "-d"];
    let seen = node.json(&[&load[..], &["yes"]].concat()).remove(0);
    let requests = seen["requests"].as_u64().unwrap();
    assert!(requests > 0 && seen["statuses"] == json!({"200": requests}), "{seen}");
    assert_eq!(seen["body_bytes"].as_u64().unwrap(), 6 * requests);
    let started: u64 =
        seen["starts"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(started, requests, "{seen}");
    assert!(seen["latency_us"]["p50"].as_u64() >= seen["node_us"]["p50"].as_u64(), "{seen}");

    // Five in a second are planned, and no more are asked.
    let seen = node.json(&["bench", "says", "-z", "1s", "--rate", "5", "-d", "yes"]).remove(0);
    assert_eq!(seen["requests"], 5, "{seen}");
    let failed = node.run(&[&load[..], &["end"]].concat());
    let (shown, said) = text(&failed);
    assert_eq!(failed.status.code(), Some(3), "{said}");
    assert!(
        shown.contains("500: ") && said.contains("requests to says failed") && said.contains("status 7"),
        "{shown}{said}"
    );
}
