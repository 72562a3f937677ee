// SPDX-License-Identifier: Apache-2.0
//! What functions print: seen while they run, whoever prints it, and found again after the node has ended.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::functions::is_root;
use super::{Node, home};

const PATIENCE: Duration = Duration::from_secs(60);

/// A follower of logs, and the lines that it prints.
struct Following(Child, Receiver<String>);

impl Following {
    fn begin(node: &Node, arguments: &[&str]) -> Self {
        let mut following = node.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let printed = BufReader::new(following.stdout.take().unwrap());
        std::thread::spawn(move || {
            printed.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)).unwrap_or_default();
        });
        Self(following, lines)
    }

    fn next(&self) -> String {
        self.1.recv_timeout(PATIENCE).unwrap()
    }

    /// The next record of a request that has ended.
    fn ended(&self) -> Value {
        loop {
            let told: Value = serde_json::from_str(&self.next()).unwrap();
            if told["running"].is_null() {
                return told;
            }
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Node {
    /// The lines that the last request to a function has printed.
    fn printed(&self, name: &str) -> Vec<(String, String)> {
        let record: Value = serde_json::from_str(&self.ok(&["logs", name, "-n", "1", "-o", "json"])).unwrap();
        let text = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
        let lines = record["lines"].as_array().unwrap().iter();
        lines.map(|line| (text(line, "stream"), text(line, "text"))).collect()
    }
}

#[test]
fn logs_are_followed_as_requests_end() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let source = "def handler(event, context):\n    print('heard', event)\n    return event\n";
    node.deploy(&node.python("inpython", "", source));
    node.call("inpython", &json!("before"));
    let following = Following::begin(&node, &["logs", "inpython", "-f", "-n", "1", "-o", "json"]);
    assert_eq!(following.ended()["log"], "heard before\n");
    for word in ["one", "two", "three"] {
        node.call("inpython", &json!(word));
        let record = following.ended();
        assert_eq!((&record["log"], &record["status"]), (&json!(format!("heard {word}\n")), &json!(200)));
    }
    drop(following);
    assert_eq!(node.terminate(), 0);
}

/// Each prints as it goes, and then takes long.
const SLOW_PYTHON: &str = "\
import subprocess, sys, time
def handler(event, context):
    print('begun')
    subprocess.run(['sh', '-c', 'echo from a program'])
    print('half a li', end='', flush=True)
    time.sleep(event)
    print('ne')
    print('over', file=sys.stderr)
    return 'over'
";
const SLOW_NODE: &str = "\
const { execFileSync } = require('child_process');
exports.handler = async (event) => {
  console.log('begun');
  execFileSync('sh', ['-c', 'echo from a program >&2'], { stdio: 'inherit' });
  process.stdout.write('half a li');
  await new Promise((resolve) => setTimeout(resolve, 1000 * event));
  console.log('ne');
  console.error('over');
  return 'over';
};
";

#[test]
fn what_runs_is_seen_while_it_runs_line_by_line() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    node.deploy(&node.python("inpython", "", SLOW_PYTHON));
    node.deploy(&node.nodejs("innode", "", SLOW_NODE));
    for name in ["inpython", "innode"] {
        let following = Following::begin(&node, &["logs", name, "-f"]);
        std::thread::scope(|scope| {
            scope.spawn(|| node.call(name, &json!(5)));
            let head = following.next();
            assert!(head.contains(&format!("  {name}@1  runs  ")), "{head}");
            // In this order, since nothing is looked for in between: a program's comes when it is found.
            let mut lines = [following.next(), following.next()];
            lines.sort();
            assert_eq!(lines, ["    begun", "    from a program"], "{name}");
            let records = node.ok(&["logs", name, "-o", "json"]);
            assert_eq!(records, "", "{name}: it has not ended");
        });
        let end = following.next();
        assert!(end.contains(&format!("  {name}@1  200  ")), "{end}");
        assert_eq!([following.next(), following.next()], ["    half a line", "    over"], "{name}");
        let printed = node.printed(name);
        let told: Vec<(&str, &str)> = printed.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert!(told.contains(&("err", "from a program")), "{told:?}");
        let own: Vec<_> = told.into_iter().filter(|(_, text)| *text != "from a program").collect();
        assert_eq!(own, [("out", "begun"), ("out", "half a line"), ("err", "over")], "{name}");
        let times = node.ok(&["logs", name, "-t"]);
        let line = times.lines().find(|line| line.ends_with("! over")).unwrap();
        assert_eq!(line.split_whitespace().next().map(str::len), Some("15:00:00.123Z".len()), "{times}");
    }
    assert_eq!(node.terminate(), 0);
}

#[test]
fn what_an_interpreter_says_when_it_breaks_is_in_the_logs() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let source = "\
import ctypes, os, sys
def reads_nothing():
    ctypes.string_at(0)
def handler(event, context):
    if event == 'flood':
        for _ in range(3000):
            os.write(2, b'x' * 1000)
        return 'flooded'
    if event == 'forks':
        pid = os.fork()
        if pid == 0:
            print('from a child')
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        return 'forked'
    os.write(2, b'last words\\n')
    reads_nothing()
";
    node.deploy(&node.python("breaks", "", source));
    assert_eq!(node.call("breaks", &json!("crash")).0, 500);
    let crashed = node.ok(&["logs", "breaks", "-n", "1"]);
    for expected in ["    last words", "Segmentation fault", "main.py\", line 3 in reads_nothing"] {
        assert!(crashed.contains(expected), "{expected}: {crashed}");
    }
    assert_eq!(node.call("breaks", &json!("forks")), (200, json!("forked")));
    assert_eq!(node.printed("breaks"), [("err".to_owned(), "from a child".to_owned())]);
    // What is too much is said to be.
    assert_eq!(node.call("breaks", &json!("flood")), (200, json!("flooded")));
    let flooded = node.ok(&["logs", "breaks", "-n", "1"]);
    assert!(flooded.contains("[output over 1048576 bytes was dropped]"), "{}", flooded.len());
    assert_eq!(node.call("breaks", &json!("forks")), (200, json!("forked")), "it goes on");
    assert_eq!(node.printed("breaks"), [("err".to_owned(), "from a child".to_owned())]);
    assert_eq!(node.terminate(), 0);
}

#[test]
fn what_failed_is_found_after_the_node_was_killed() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let source = "\
def handler(event, context):
    if event != 'quiet':
        print('order', event)
    if event == 17:
        raise ValueError('no such order')
";
    let folder = node.python("orders", "", source);
    node.deploy(&folder);
    for event in [json!(16), json!(17), json!("quiet"), json!(18)] {
        node.call("orders", &event);
    }
    let before = node.ok(&["logs", "orders", "-n", "1", "-o", "json"]);
    std::thread::sleep(Duration::from_millis(500));
    node.kill();
    let node = Node::start(home.path());
    let logs = |more: &[&str]| node.ok(&[&["logs", "orders"], more].concat());
    let all = logs(&[]);
    let orders: Vec<&str> = all.lines().filter_map(|line| line.strip_prefix("    order ")).collect();
    assert_eq!(orders, ["16", "17", "18"], "{all}");
    let failed = logs(&["--failed", "--since", "1h"]);
    assert!(failed.contains("ValueError: no such order") && !failed.contains("order 16"), "{failed}");
    assert_eq!(logs(&["--grep", "order 18", "-o", "json"]), before, "the same record");
    assert_eq!(logs(&["--since", "0s"]), "");
    let id = serde_json::from_str::<Value>(&before).unwrap()["request_id"].as_str().unwrap().to_owned();
    assert!(node.ok(&["logs", "--request-id", &id]).contains("    order 18"));
    // A follower goes on with what comes.
    let following = Following::begin(&node, &["logs", "orders", "-f", "-n", "1", "-o", "json"]);
    assert_eq!(following.ended()["log"], "order 18\n");
    node.call("orders", &json!(19));
    assert_eq!(following.ended()["log"], "order 19\n");
    drop(following);
    assert_eq!(node.terminate(), 0);
    let node = Node::start_with(home.path(), &["--logs", "0"]);
    assert_eq!(node.ok(&["logs", "orders"]), "", "it keeps none, and reads none");
    assert_eq!(node.terminate(), 0);
}

#[test]
fn a_program_that_serves_is_followed_too() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = home.path().join("shell");
    std::fs::create_dir_all(&folder).unwrap();
    let manifest = "[functions.shell]\nruntime = \"executable\"\nhandler = \"run.sh\"\nmode = \"stdin\"\n";
    std::fs::write(folder.join("sinew.toml"), manifest).unwrap();
    let script = folder.join("run.sh");
    std::fs::write(&script, "#!/bin/sh\necho begun >&2\nsleep 3\necho over >&2\necho answer\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    node.deploy(&folder);
    let following = Following::begin(&node, &["logs", "shell", "-f"]);
    std::thread::scope(|scope| {
        scope.spawn(|| node.ok(&["invoke", "shell"]));
        assert!(following.next().contains("  shell@1  runs  "));
        assert_eq!(following.next(), "    begun");
    });
    assert!(following.next().contains("  shell@1  200  "));
    assert_eq!(following.next(), "    over");
    drop(following);
    let lines =
        [("err", "begun"), ("err", "over")].map(|(stream, text)| (stream.to_owned(), text.to_owned()));
    assert_eq!(node.printed("shell"), lines);
    assert_eq!(node.terminate(), 0);
}
