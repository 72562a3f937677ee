// SPDX-License-Identifier: Apache-2.0
//! Instances that stand ready before anybody calls: with `min-instances`.

use std::time::Duration;

use serde_json::{Value, json};

use super::draining::wait_for;
use super::functions::is_root;
use super::{Node, home};

/// Tells how often this instance was called; ends when it is told to.
const COUNTS: &str = "import os\ncalls = 0\ndef handler(event, context):\n    global calls\n    calls += 1\n    \
                      if event.get('ends'):\n        os._exit(1)\n    return {'calls': calls, 'mark': MARK}\n";

fn source(mark: u64) -> String {
    format!("MARK = {mark}\n{COUNTS}")
}

impl Node {
    pub(super) fn described(&self, name: &str) -> Value {
        serde_json::from_str(&self.ok(&["describe", name, "-o", "json"])).unwrap()
    }

    /// Instances that wait for a request.
    fn idle(&self, name: &str) -> u64 {
        self.described(name)["instances"]["idle"].as_u64().unwrap()
    }

    /// How the last request came to run.
    fn last_start(&self, name: &str) -> String {
        let records = self.ok(&["logs", name, "-o", "json"]);
        let last: Value = serde_json::from_str(records.lines().last().unwrap()).unwrap();
        last["start"].as_str().unwrap().to_owned()
    }
}

#[test]
fn a_function_has_its_instances_before_it_is_called_and_after_the_node_was_killed() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let settings = "min-instances = 2\nkeep-alive = \"1s\"\n";
    node.deploy(&node.python("counts", settings, &source(1)));
    wait_for("two instances", || node.idle("counts") == 2);
    // For longer than instances are kept that nobody calls.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(node.idle("counts"), 2);
    assert_eq!(node.call("counts", &json!({})), (200, json!({"calls": 1, "mark": 1})));
    assert_eq!(node.last_start("counts"), "prewarmed");
    let (status, _) = node.call("counts", &json!({"ends": true}));
    assert!(status >= 500, "{status}");
    wait_for("another one in its place", || node.idle("counts") == 2);

    // Another one, so that what both may have at most is more than may be held.
    let settings = "min-instances = 1\nmemory = \"512MiB\"\n";
    node.deploy(&node.nodejs("other", settings, "exports.handler = () => 1;\n"));
    wait_for("one of the other", || node.idle("other") == 1);
    node.kill();
    let node = Node::start(home.path());
    wait_for("instances that nobody asked for", || node.idle("counts") == 2 && node.idle("other") == 1);
    assert_eq!(node.described("counts")["requests"], 0);
    // With another limit they are others, and those of before are gone.
    let settings = "min-instances = 1\nmemory = \"300MiB\"\nkeep-alive = \"1s\"\n";
    node.deploy(&node.python("counts", settings, &source(1)));
    wait_for("one, of the new limit", || node.idle("counts") == 1);
    node.ok(&["rollback", "counts", "--to", "1"]);
    wait_for("two of the first again", || node.idle("counts") == 2);
    // Whoever deploys or goes back waits for them; to load takes longer than it is waited for where none is made.
    let slowly = format!("import time\ntime.sleep(2.5)\n{}", source(3));
    node.deploy(&node.python("slow", "min-instances = 2\n", &slowly));
    assert_eq!(node.idle("slow"), 2, "a deployment waits for them");
    node.deploy(&node.python("slow", "", &source(4)));
    node.ok(&["rollback", "slow", "--to", "1"]);
    assert!(node.idle("slow") >= 2, "so does who goes back");
    node.ok(&["delete", "slow", "--yes"]);
    assert_eq!(node.call("counts", &json!({})), (200, json!({"calls": 1, "mark": 1})));
    assert_eq!(node.last_start("counts"), "prewarmed");

    // The next version is to have none: what it was loaded in is kept as others are.
    node.deploy(&node.python("counts", "keep-alive = \"1s\"\n", &source(2)));
    assert_eq!(node.call("counts", &json!({})).1["mark"], 2);
    wait_for("none", || node.idle("counts") == 0);
    // The same code, which is to have one, and back to two of the first.
    node.deploy(&node.python("counts", "min-instances = 1\nkeep-alive = \"1s\"\n", &source(2)));
    wait_for("one", || node.idle("counts") == 1);
    node.ok(&["rollback", "counts", "--to", "3"]);
    wait_for("none again, as version 3 says", || node.idle("counts") == 0);
    node.ok(&["rollback", "counts", "--to", "1"]);
    wait_for("two of the first", || node.idle("counts") == 2);
    assert_eq!(node.call("counts", &json!({})), (200, json!({"calls": 1, "mark": 1})));
    assert_eq!(node.last_start("counts"), "prewarmed");
    assert_eq!(node.terminate(), 0);
}

#[test]
fn versions_that_share_requests_have_their_own_and_a_new_one_stands_ready_where_none_is_kept() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let settings = "min-instances = 1\nkeep-alive = 0\n";
    node.deploy(&node.nodejs(
        "fresh",
        settings,
        "let calls = 0;\nexports.handler = async () => ({ calls: ++calls });\n",
    ));
    for _ in 0..3 {
        wait_for("a new one", || node.idle("fresh") == 1);
        assert_eq!(node.call("fresh", &json!({})), (200, json!({"calls": 1})));
        assert_eq!(node.last_start("fresh"), "prewarmed");
    }
    let settings = "min-instances = 1\nkeep-alive = \"1s\"\n";
    node.deploy(&node.python("shared", settings, &source(1)));
    node.deploy(&node.python("shared", settings, &source(2)));
    node.ok(&["alias", "shared", "live", "1@50", "2"]);
    std::thread::sleep(Duration::from_millis(2500));
    for _ in 0..12 {
        assert_eq!(node.call("shared", &json!({})).0, 200);
        assert!(["warm", "prewarmed"].contains(&node.last_start("shared").as_str()));
    }
    assert_eq!(node.terminate(), 0);
}
