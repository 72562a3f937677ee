// SPDX-License-Identifier: Apache-2.0
//! Runs as people see them while they go on, and what is left of their values: nothing when the node is killed, and nothing of one
//! run in the memory of the next.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::draining::wait_for;
use super::functions::is_root;
use super::workflows::result;
use super::{Node, home, http_with};

const MAIN: &str = r#"
import ctypes, os, re, time
from sinew import function, workflow

PART = 32 << 20
who = os.urandom(8).hex()

@function
def waits(seconds, *after):
    time.sleep(seconds)
    return seconds

@function(memory="256MiB", concurrency=1)
def makes(mark):
    rubbish = [f"{mark} {number}" for number in range(20_000)]
    return {"who": who, "mark": mark + "!", "numbers": list(range(1000, 200_000)), "rubbish": len(rubbish)}

@function
def holds(made, seconds):
    time.sleep(seconds)
    return len(made["numbers"])

@function
def looks(made, marks):
    """Which of these texts lie in memory that was mapped from others."""
    with open("/proc/self/maps") as maps:
        areas = [line.split()[0].split("-") for line in maps if "sinew-outbox" in line and "rw-p" in line]
    # Small objects are at the beginning, large pieces at the end; what is read in between would take memory.
    ends = [(int(begin, 16), int(end, 16)) for begin, end in areas]
    parts = [(at, min(PART, end - at)) for begin, end in ends for at in (begin, max(begin, end - PART))]
    texts = [(ctypes.c_char * size).from_address(at) for at, size in parts]
    found = [any(re.search(mark.encode(), text) for text in texts) for mark in marks]
    return {"who": made["who"], "areas": len(areas), "found": found}

@workflow
def slow(event):
    first = waits(0.7)
    return [waits(0.7, waits(0.7, first)).result() for _ in range(1)]

@workflow
def held(event):
    made = makes("held")
    return [holds(made, event["seconds"]), holds(made, 0)]

@workflow
def marked(event):
    made = makes(event["mark"])
    return [looks(made, event["marks"]) if event["marks"] else None, holds(made, 0)]
"#;

fn deployed(home: &std::path::Path) -> Node {
    let node = Node::start(home);
    let folder = home.join("runs");
    std::fs::create_dir_all(&folder).unwrap();
    let function = |name| {
        format!(
            "[functions.{name}]\nruntime = \"python\"\nsource = \"main.py\"\nhandler = \"main.{name}\"\nworkflow = true\n"
        )
    };
    std::fs::write(folder.join("sinew.toml"), ["slow", "held", "marked"].map(function).concat()).unwrap();
    std::fs::write(folder.join("main.py"), MAIN).unwrap();
    node.deploy(&folder);
    node
}

#[test]
fn a_run_shows_how_far_it_is_in_a_terminal() {
    let home = home();
    let node = deployed(home.path());
    // A terminal of its own (util-linux), which shows what it is given.
    let command = format!("{} workflow run slow", env!("CARGO_BIN_EXE_sinew"));
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &command, "/dev/null"]).env("SINEW_HOME", home.path()).env("TERM", "xterm");
    let shown = terminal.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.status.success(), "{text}");
    for part in ["0 of 3 steps", "main.waits 1 of 3, 1 running", "it goes on without this command", "0.7"] {
        assert!(text.contains(part), "{part}: {text:?}");
    }
    // Nobody looks at a file.
    let silent = node.run(&["workflow", "run", "slow"]);
    assert!(!String::from_utf8_lossy(&silent.stderr).contains("waits 1 of 3"));
}

/// Files in memory that are values, and that these processes have mapped or hold.
fn values_of(processes: &[u32]) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for process in processes {
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        let lines = maps.lines().filter(|line| line.contains("sinew-outbox"));
        found.extend(lines.filter_map(|line| line.split_whitespace().nth(4)?.parse::<u64>().ok()));
        for file in std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten() {
            let name = std::fs::read_link(file.path()).unwrap_or_default();
            if name.to_string_lossy().contains("sinew-outbox")
                && let Ok(what) = std::fs::metadata(file.path())
            {
                found.insert(std::os::unix::fs::MetadataExt::ino(&what));
            }
        }
    }
    found
}

fn all_processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()).collect()
}

/// A process and all that it has begun.
fn family(process: u32) -> Vec<u32> {
    let mut all = vec![process];
    let mut at = 0;
    while let Some(parent) = all.get(at).copied() {
        let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        at += 1;
    }
    all
}

#[test]
fn memory_of_values_is_gone_when_the_node_is_killed() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = deployed(home.path());
    assert_eq!(result(&node, "held", &json!({"seconds": 0})), json!([199_000, 199_000]));
    let invoked = ["invoke", "held", "-d", r#"{"seconds": 100}"#];
    let mut waiting = node.command(&invoked).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let of_values = || values_of(&family(node.child.id()));
    let is_mapped = |process: &u32| {
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        maps.lines().any(|line| line.contains("rw-p") && line.contains("sinew-outbox"))
    };
    wait_for("a consumer has a value mapped", || family(node.child.id()).iter().any(is_mapped));
    let of_values = of_values();
    assert!(!of_values.is_disjoint(&values_of(&all_processes())), "the test can see them");
    node.kill();
    waiting.wait().unwrap();
    wait_for("they are gone", || of_values.is_disjoint(&values_of(&all_processes())));
}

#[test]
fn nothing_of_an_earlier_run_lies_in_the_memory_of_a_value() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = deployed(home.path());
    let run = |mark: &str, marks: &[&str]| -> Value {
        result(&node, "marked", &json!({"mark": mark, "marks": marks}))[0].clone()
    };
    for secret in ["secret-one", "secret-two"] {
        assert_eq!(run(secret, &[]), json!(null));
    }
    let told = run("open", &["secret-one", "secret-two", "open!"]);
    assert!(told["areas"].as_u64().unwrap() > 0, "{told}");
    assert_eq!(told["found"], json!([false, false, true]), "{told}");
    // The instance that had made the secrets has made this as well.
    let again = run("more", &["nowhere"]);
    assert_eq!(again["who"], told["who"]);
}

#[test]
fn a_tenants_runs_are_given_no_values_of_another_ones() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = deployed(home.path());
    let key = |tenant: &str| node.ok(&["key", "create", "--scope", "invoke", "--tenant", tenant]);
    let (one, other) = (key("one"), key("other"));
    let run = |key: &str, mark: &str, marks: &[&str]| -> Value {
        let headers = format!("X-Api-Key: {key}\r\nContent-Type: application/json\r\n");
        let body = json!({"mark": mark, "marks": marks}).to_string();
        let answer = http_with(&node.address, "POST /function/marked", &headers, body.as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{answer}");
        serde_json::from_str::<Value>(body).unwrap()[0].clone()
    };
    assert_eq!(run(&one, "of-one", &[]), json!(null));
    let told = run(&other, "of-other", &["of-one", "of-other!"]);
    assert_eq!(told["found"], json!([false, true]), "{told}");
}
