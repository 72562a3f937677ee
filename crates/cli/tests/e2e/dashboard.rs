// SPDX-License-Identifier: Apache-2.0
//! The dashboard in a real browser: what people read there, and that what
//! functions say stays text.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::functions::is_root;
use super::{Node, home};

const BROWSER: &str = "/usr/bin/chromium";

/// The text and the elements that a page consists of once its scripts ran.
fn page(node: &Node, hash: &str) -> String {
    let profile = tempfile::tempdir().unwrap();
    let child = Command::new("timeout")
        .args(["--kill-after=5", "60", BROWSER, "--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--disable-dev-shm-usage", "--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("http://{}/dashboard/{hash}", node.address))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(child.status.success(), "the browser ended with {}", child.status);
    String::from_utf8(child.stdout).unwrap()
}

#[test]
fn people_see_functions_their_requests_and_why_they_failed() {
    if !is_root() {
        return;
    }
    if !Path::new(BROWSER).exists() {
        eprintln!("skipped: no {BROWSER}; apt-get install chromium");
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let empty = page(&node, "");
    assert!(empty.contains("No function is deployed yet") && empty.contains("sinew deploy"), "{empty}");

    let source = "def handler(event, context):\n    print('<script>document.title = \"owned\"</script>')\n    \
                  if event.get('fail'):\n        raise ValueError('<img src=x onerror=owned()> no such thing')\n    \
                  return event\n";
    node.deploy(&node.python("greeter", "", source));
    for number in 0..3 {
        assert_eq!(node.call("greeter", &json!({"number": number})).0, 200);
    }
    assert_eq!(node.call("greeter", &json!({"fail": true})).0, 500);

    let list = page(&node, "");
    assert!(list.contains("href=\"#/functions/greeter\"") && list.contains("1 (25.0 %)"), "{list}");
    let function = page(&node, "#/functions/greeter");
    for shown in ["python, version 1", "sinew invoke greeter", "serves", "256 MiB", "<path class=\"half\""] {
        assert!(function.contains(shown), "{shown}\n{function}");
    }
    let failed = page(&node, "#/requests?failed=yes");
    let id = failed.split("href=\"#/requests/").nth(1).unwrap().split('"').next().unwrap();
    let request = page(&node, &format!("#/requests/{id}"));
    for shown in ["ValueError", "main.py", "line 4", "waited for its turn", "sinew logs --request-id"] {
        assert!(request.contains(shown), "{shown}\n{request}");
    }
    // Text, not elements.
    assert!(
        request.contains("&lt;script&gt;document.title") && request.contains("&lt;img src=x"),
        "{request}"
    );
    for (name, text) in [("list", &list), ("request", &request)] {
        assert!(!text.contains("<img src=\"x\"") && text.contains("<title>Sinew</title>"), "{name}");
    }
    assert!(page(&node, "#/requests/none").contains("remembers no request"));
    assert!(page(&node, "#/nowhere").contains("There is no such page"));
    the_queue_and_the_tree_of_calls_are_seen(&node);
    assert_eq!(node.terminate(), 0);
}

fn the_queue_and_the_tree_of_calls_are_seen(node: &Node) {
    // A call that is made later, and dies; a function with a schedule.
    let settings = "schedules = [\"0 3 * * *\"]\n[functions.broken.async]\nmax-attempts = 1\n";
    node.deploy(&node.python(
        "broken",
        settings,
        "import sinew\ndef handler(event, context):\n    raise ValueError('<b>no</b>')\n",
    ));
    node.http("POST /async-function/broken", b"{}");
    let is_dead = || node.ok(&["dlq", "list", "-o", "json"]).contains("broken");
    let begun = std::time::Instant::now();
    while !is_dead() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "it does not die");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let queue = page(node, "#/queue");
    for shown in
        ["dead letters", "0 3 * * *", "href=\"#/functions/broken\"", "&lt;b&gt;no", ">redrive</button>"]
    {
        assert!(queue.contains(shown), "{shown}\n{queue}");
    }
    // The tree of a request's calls, and what each took.
    node.deploy(&node.python(
        "outer",
        "",
        "import sinew\ndef handler(event, context):\n    return sinew.call('greeter', event)\n",
    ));
    let answer = node.http("POST /function/outer", b"{}");
    let id = answer
        .to_lowercase()
        .lines()
        .find_map(|line| line.strip_prefix("x-request-id: ").map(str::to_owned))
        .unwrap();
    let tree = page(node, &format!("#/requests/{id}"));
    for shown in [
        "Call tree",
        "processor, all calls",
        "waited for other functions",
        "memory of the instance",
        "href=\"#/functions/greeter\"",
    ] {
        assert!(tree.contains(shown), "{shown}\n{tree}");
    }
    assert!(page(node, "#/key").contains("type=\"password\""));
}
