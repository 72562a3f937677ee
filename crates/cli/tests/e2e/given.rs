// SPDX-License-Identifier: Apache-2.0
//! Values that nobody else has or asks for are given to the next step as they are; all others are handed over as ever.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::functions::is_root;
use super::workflows::{begun, last, result, wait_until};
use super::{Node, home};

/// Steps tell whether they have the very object that the one before has made: `at` is where that was. `take` runs for so long that
/// it never follows for being brief.
const MAIN: &str = r#"
import os, signal, threading, time
from sinew import StepError, function, workflow

kept = []
LONG = 30_000
instance = None

def here():
    """Processes of one template may have different things at one address."""
    global instance
    instance = instance or os.urandom(8).hex()
    return instance

class Item:
    def __init__(self, number):
        self.number, self.more = number, [number]

def rows(event):
    kind = event["kind"]
    if kind == "items":
        return [Item(number) for number in range(LONG)]
    if kind == "numbers":
        return list(range(1_000_000, 1_000_000 + 10 * LONG))
    if kind == "lambda":
        return [[0], lambda: 0]
    if kind == "lock":
        return [[0], threading.Lock()]
    return [{"row": [number]} for number in range(LONG)]

def told_of(rows, event):
    return {"rows": rows, "at": [here(), id(rows), id(rows[0])], "dies": event.get("dies")}

def is_same(told):
    return told["at"] == [here(), id(told["rows"]), id(told["rows"][0])]

def sum_of(rows):
    return sum(row if isinstance(row, int) else row.number if isinstance(row, Item) else row["row"][0] for row in rows)

@function
def make(event):
    told = {**told_of(rows(event), event), "kept": [sum_of(rows) for rows in kept]}
    kept[:] = [told["rows"]] if event.get("keeps") else []
    return told

@function
def take(told, event=None):
    time.sleep(0.03)
    told_ = [is_same(told), sum_of(told["rows"]), *told.get("kept", [])]
    told["rows"].clear()
    return told_

@function(retries=1, retry_delay="10ms")
def take_again(told):
    return take.__wrapped__(told)

@function
def wash(told):
    time.sleep(0.03)
    told["rows"].append(dict(told["rows"][0]))
    return told

@function
def dies(told):
    if told["dies"]:
        os._exit(3)
    return take.__wrapped__(told)

@workflow
def once(event):
    return take(make(event))

@workflow
def named(event):
    made = make(event)
    return [take(made).result(), take(made, event).result()]

@workflow
def returned(event):
    made = make(event)
    taken = take(made)
    return taken

@workflow
def twice(event):
    made = make(event)
    return [take(made), take(made, 1)]

@workflow
def again(event):
    return take_again(make(event))

@workflow
def line(event):
    return take(wash(wash(make(event))))

@workflow
def fans(event):
    washed = wash(make(event))
    return [take(washed), take(washed)]

@workflow
def ends(event):
    try:
        return dies(make(event)).result()
    except StepError as error:
        return [error.reason]

@function(memory="128MiB")
def make_large(event):
    return told_of(list(range(1 << 40, (1 << 40) + event["numbers"])), event)

@function(memory="128MiB")
def take_large(told):
    time.sleep(0.03)
    bytearray(b"1") * (40 << 20)
    return [is_same(told), len(told["rows"])]

@workflow
def large(event):
    return take_large(make_large(event))

class Late(Exception):
    pass

def is_late(*_):
    raise Late("by its own clock")

@function
def interrupted(event):
    """What its own timer raises comes while it runs, while its result is given away, or not at all."""
    told = {"rows": [{"row": [number]} for number in range(10)], "whose": event["whose"]}
    if event["after_us"]:
        signal.signal(signal.SIGALRM, is_late)
        signal.setitimer(signal.ITIMER_REAL, event["after_us"] / 1e6)
    return told

@function
def whose(told):
    signal.setitimer(signal.ITIMER_REAL, 0)
    time.sleep(0.03)
    return told["whose"]

@workflow
def timed(event):
    try:
        return [whose(interrupted(event)).result()]
    except StepError as error:
        return [None, error.reason]

@function(concurrency=2)
def scarce(event):
    return told_of(rows(event), event)

@function(concurrency=64)
def plenty(told):
    return take.__wrapped__(told)

@workflow
def wide(event):
    return [plenty(scarce(event)) for _ in range(4)]

@workflow
def sent(event):
    return take(make(event))
"#;

const WORKFLOWS: [&str; 12] =
    ["timed", "wide", "once", "named", "returned", "twice", "again", "line", "fans", "ends", "large", "sent"];
/// Of all rows.
const SUM: u64 = 30_000 * 29_999 / 2;

fn node(home: &Path) -> Node {
    let node = Node::start(home);
    let source = home.join("given");
    std::fs::create_dir_all(&source).unwrap();
    let function = |name: &&str| {
        let sends = if *name == "sent" { "values = \"send\"\n" } else { "" };
        format!(
            "[functions.{name}]\nruntime = \"python\"\nhandler = \"main.{name}\"\nmemory = \"128MiB\"\nworkflow = true\n{sends}"
        )
    };
    std::fs::write(source.join("main.py"), MAIN).unwrap();
    std::fs::write(source.join("sinew.toml"), WORKFLOWS.iter().map(function).collect::<String>()).unwrap();
    node.deploy(&source);
    node
}

/// Runs a workflow until what it tells is so: of steps that are not known nothing is expected.
fn until(node: &Node, workflow: &str, event: &Value, is_so: impl Fn(&Value, &Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let told = result(node, workflow, event);
        let run = last(node, workflow);
        if is_so(&told, &run) {
            return told;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{told} {run}");
    }
}

fn have_followed(run: &Value) -> usize {
    let graph = run["graph"].as_array().unwrap();
    // Of steps that are not brief, those follow that were given what they need, and no others.
    let given = |step: &Value| run["graph"][step["needs"][0].as_u64().unwrap() as usize]["is_given"] == true;
    let followed: Vec<_> = graph.iter().filter(|step| step["has_followed"] == true).collect();
    assert!(followed.iter().all(|step| given(step)), "{run}");
    assert_eq!(graph.iter().filter(|step| step["is_given"] == true).count(), followed.len(), "{run}");
    followed.len()
}

/// What a node gives away, once it knows of the steps that they are as they are.
fn begins_to_give(node: &Node) {
    until(node, "once", &json!({"kind": "rows"}), |told, _| told[0] == true);
}

/// A workflow is run some times, as soon as those of its kind are known.
fn never(node: &Node, workflow: &str, event: &Value, expected: &Value) {
    for _ in 0..6 {
        assert_eq!(result(node, workflow, event), *expected, "{workflow} {event}");
    }
    assert_eq!(have_followed(&last(node, workflow)), 0);
}

#[test]
fn what_nobody_else_has_is_given_away() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = node(home.path());
    for kind in ["rows", "items", "numbers"] {
        let event = json!({"kind": kind});
        let told = until(&node, "once", &event, |told, _| told[0] == true);
        let sum = if kind == "numbers" { (1_000_000..1_300_000).sum() } else { SUM };
        assert_eq!(told, json!([true, sum]));
        let run = last(&node, "once");
        assert_eq!((have_followed(&run), run["graph"][1]["attempts"].as_u64()), (1, Some(1)), "{run}");
        assert!(run["graph"][1]["is_mapped"] != true, "{run}");
    }
    // Also where it is let go of by the end of the workflow, and from step to step.
    until(&node, "returned", &json!({"kind": "rows"}), |told, _| *told == json!([true, SUM]));
    let told = until(&node, "line", &json!({"kind": "rows"}), |told, run| {
        told[0] == true && have_followed(run) == 3
    });
    assert_eq!(told, json!([true, SUM]));
    // Who was given a value hands over what was made of it, for all that need that.
    let fans = json!([[false, SUM], [false, SUM]]);
    until(&node, "fans", &json!({"kind": "rows"}), |told, run| {
        assert_eq!(*told, fans);
        run["graph"][1]["has_followed"] == true && run["graph"][1]["is_mapped"] == true
    });
    // A run that goes on after an end of the node keeps what a step was given.
    let id = begun(&node, "once", &json!({"kind": "rows"}));
    let run = wait_until(&node, &id, |run| run["state"] == "succeeded");
    assert_eq!(have_followed(&run), 0, "{run}");
}

#[test]
fn what_others_may_ask_for_or_have_is_not_given_away() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = node(home.path());
    let event = json!({"kind": "rows"});
    // The negative control: it would be.
    begins_to_give(&node);
    let apart = json!([false, SUM]);
    never(&node, "twice", &event, &json!([apart, apart]));
    never(&node, "again", &event, &apart);
    never(&node, "sent", &event, &apart);
    for _ in 0..6 {
        // The workflow has it while it waits for the first result, and not any more when it does for the second one.
        let told = result(&node, "named", &event);
        assert_eq!((&told[0], &told[1][1]), (&apart, &json!(SUM)), "{told}");
    }
    // What its maker keeps is as it was, whatever the next one has done; and once it keeps nothing any more, it is given away.
    let keeps = json!({"kind": "rows", "keeps": true});
    let told = until(&node, "once", &keeps, |told, _| told.as_array().unwrap().len() == 3);
    assert_eq!(told, json!([false, SUM, SUM]));
    until(&node, "once", &event, |told, _| told[0] == true);
}

#[test]
fn what_cannot_be_passed_on_never_is() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = node(home.path());
    begins_to_give(&node);
    for kind in ["lambda", "lock"] {
        for _ in 0..3 {
            let told = node.run(&["invoke", "once", "-d", &json!({"kind": kind}).to_string()]);
            let text = String::from_utf8_lossy(&told.stderr).into_owned();
            assert!(!told.status.success() && text.contains("cannot be passed on"), "{text}");
        }
    }
}

#[test]
fn an_instance_that_ends_with_what_it_was_given_fails_that_step() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = node(home.path());
    until(&node, "ends", &json!({"kind": "rows"}), |told, _| told[0] == true);
    let told = result(&node, "ends", &json!({"kind": "rows", "dies": true}));
    assert!(told[0].as_str().is_some_and(|why| why.contains("ended")), "{told}");
    let run = last(&node, "ends");
    let states: Vec<_> =
        run["graph"].as_array().unwrap().iter().map(|step| (&step["state"], &step["attempts"])).collect();
    assert_eq!(states, [(&json!("done"), &json!(1)), (&json!("failed"), &json!(1))], "{run}");
    // Nothing of it is left.
    until(&node, "ends", &json!({"kind": "rows"}), |told, _| told[0] == true);
}

#[test]
fn what_a_function_raises_when_its_result_was_given_away_is_its_own_end() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = node(home.path());
    let of = |whose: u64, after_us: u64| json!({"whose": whose, "after_us": after_us});
    until(&node, "timed", &of(0, 0), |_, run| have_followed(run) == 1);
    let mut raised = 0;
    for turn in 1..60 {
        // From within the function to beyond what comes behind it.
        let told = result(&node, "timed", &of(turn, 5 + turn * 7));
        raised += u64::from(told[0].is_null());
        assert!(told[0] == turn || told[1].is_string(), "{told}");
        assert_eq!(
            result(&node, "timed", &of(1000 + turn, 0)),
            json!([1000 + turn]),
            "it is not another one's"
        );
    }
    assert!(raised > 3, "nothing was raised");
}

#[test]
fn what_runs_for_long_keeps_no_scarce_instance_from_others() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = node(home.path());
    let event = json!({"kind": "rows"});
    begins_to_give(&node);
    never(&node, "wide", &event, &json!([[false, SUM], [false, SUM], [false, SUM], [false, SUM]]));
}

#[test]
fn what_leaves_too_little_memory_for_the_next_step_is_handed_over() {
    if !is_root() {
        return;
    }
    let home = home();
    let node = node(home.path());
    until(&node, "large", &json!({"numbers": 50_000}), |told, _| told[0] == true);
    for _ in 0..4 {
        // 80 MB of 134, and the next one needs 45 to 50.
        let numbers = 2_000_000;
        assert_eq!(result(&node, "large", &json!({"numbers": numbers})), json!([false, numbers]));
    }
    assert_eq!(result(&node, "large", &json!({"numbers": 50_000}))[1], 50_000);
}
