// SPDX-License-Identifier: Apache-2.0
//! The dashboard in a real browser: what people read there, and that what
//! functions say stays text.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::functions::is_root;
use super::{Node, home};

pub(super) const BROWSER: &str = "/usr/bin/chromium";

pub(super) fn has_browser() -> bool {
    let is_there = Path::new(BROWSER).exists();
    if !is_there {
        eprintln!("skipped: no {BROWSER}; apt-get install chromium");
    }
    is_there
}

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
    if !is_root() || !has_browser() {
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
    for shown in
        ["python, version 1", "sinew invoke greeter", "all requests", "256 MiB", "<path class=\"half\""]
    {
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
    what_runs_and_by_which_stream_is_seen(&node);
    the_queue_and_the_tree_of_calls_are_seen(&node);
    runs_of_workflows_are_seen(&node);
    assert_eq!(node.terminate(), 0);
}

fn what_runs_and_by_which_stream_is_seen(node: &Node) {
    let source = "import sys, time\ndef handler(event, context):\n    print('one <b>')\n    \
                  print('two', file=sys.stderr, flush=True)\n    time.sleep(event)\n    return event\n";
    node.deploy(&node.python("slow", "", source));
    std::thread::scope(|scope| {
        scope.spawn(|| node.call("slow", &json!(10)));
        super::draining::wait_for("it prints", || {
            node.http("GET /v1/logs?running=", b"").contains("\"two\"")
        });
        let running = page(node, "#/requests");
        for shown in ["Running, and printing", "one &lt;b&gt;", "<span class=\"err\">two"] {
            assert!(running.contains(shown), "{shown}\n{running}");
        }
        let id = running.split("href=\"#/requests/").nth(1).unwrap().split('"').next().unwrap();
        let request = page(node, &format!("#/requests/{id}"));
        assert!(request.contains("It runs.") && request.contains("<span class=\"out\">one"), "{request}");
    });
    let found = page(node, "#/requests?text=one%20%3Cb");
    assert!(found.contains("#/functions/slow\"") && !found.contains("#/functions/greeter\""), "{found}");
}

const FLOW: &str = r#"
import datetime, time
from sinew import function, workflow

@function
def fetch(count):
    return list(range(count, 2 * count)), [datetime.date.fromordinal(day) for day in range(1, 31)]

@function
def audit(trades, rule, wrong):
    if rule == wrong:
        raise ValueError("<i>rule</i> seven")
    return rule

@function
def merge(verdicts):
    return len(verdicts)

@function
def waits(seconds):
    time.sleep(seconds)

@workflow
def finra(event):
    if "seconds" in event:
        return waits(event["seconds"])
    trades = fetch(50_000)
    return merge([audit(trades, rule, event.get("wrong")) for rule in range(event["rules"])])
"#;

/// The id of the last run.
fn last_run(node: &Node) -> String {
    let listed = node.ok(&["workflow", "list", "finra", "-n", "1", "-o", "json"]);
    let run: serde_json::Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    run["id"].as_str().unwrap().to_owned()
}

fn has_all(page: &str, shown: &[&str]) {
    for shown in shown {
        assert!(page.contains(shown), "{shown}\n{page}");
    }
}

fn runs_of_workflows_are_seen(node: &Node) {
    has_all(&page(node, "#/runs"), &["No workflow is deployed yet", "workflow = true"]);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("main.py"), FLOW).unwrap();
    let manifest = "[functions.finra]\nruntime = \"python\"\nhandler = \"main.finra\"\nworkflow = true\n";
    std::fs::write(dir.path().join("sinew.toml"), manifest).unwrap();
    node.deploy(dir.path());
    assert_eq!(node.ok(&["workflow", "run", "finra", "-d", r#"{"rules": 300}"#]).trim(), "300");
    let good = last_run(node);
    let run = page(node, &format!("#/runs/{good}"));
    // 300 steps are one group, and what was handed over is mapped.
    has_all(
        &run,
        &[
            "302/302",
            "×300",
            "class=\"edge mapped\"",
            "class=\"edge sent\"",
            "main.audit, 300 steps, 300 done",
        ],
    );
    has_all(&run, &["Where the time went", "took and gave values", "at a time", "began "]);
    assert!(run.matches("<rect").count() < 60, "as many elements as steps: {run}");
    let open = page(node, &format!("#/runs/{good}?open=main.audit%2F1&from=50"));
    has_all(
        &open,
        &["51 to 100 of 300", "aria-expanded=\"true\"", "and 60 more", "#/requests?function=finra.audit"],
    );
    assert!(open.matches("<tr>").count() < 70, "as many rows as steps: {open}");
    let printed = page(node, "#/requests?function=finra.audit");
    assert!(printed.contains("selected") && printed.contains("finra.audit</a>"), "{printed}");

    let wrong = node.run(&["workflow", "run", "finra", "-d", r#"{"rules": 9, "wrong": 7}"#]);
    assert_eq!(wrong.status.code(), Some(3));
    let bad = last_run(node);
    let run = page(node, &format!("#/runs/{bad}"));
    has_all(
        &run,
        &[
            "1 failed",
            "1 not made",
            "Why steps failed",
            "ValueError: &lt;i&gt;rule",
            "line 12",
            "class=\"node failed\"",
        ],
    );
    assert!(!run.contains("<i>"), "{run}");

    let live = a_run_that_goes_on_is_seen(node);
    let list = page(node, "#/runs");
    for id in [&good, &bad, &live] {
        assert!(list.contains(&format!("href=\"#/runs/{id}\"")), "{id}\n{list}");
    }
    has_all(&list, &["302/302", ">succeeded<", ">running<", ">failed<"]);
    a_run_that_was_cancelled_is_seen(node, &live);
}

fn a_run_that_goes_on_is_seen(node: &Node) -> String {
    node.http("POST /async-function/finra", br#"{"seconds": 600}"#);
    let begun = std::time::Instant::now();
    while !node.ok(&["workflow", "list", "finra", "-o", "json"]).contains("\"running\":1") {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "it does not begin");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let live = last_run(node);
    let run = page(node, &format!("#/runs/{live}"));
    has_all(&run, &["1 running", "class=\"node running\"", "running for", "cancel the run"]);
    live
}

fn a_run_that_was_cancelled_is_seen(node: &Node, id: &str) {
    node.ok(&["workflow", "cancel", id]);
    let begun = std::time::Instant::now();
    while !node.ok(&["workflow", "describe", id]).contains("cancelled") {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "it does not end");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let run = page(node, &format!("#/runs/{id}?open=main.waits%2F0"));
    has_all(&run, &[">cancelled<", ">stopped<", "0 of 1"]);
    assert!(!run.contains("1 running"), "{run}");
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
