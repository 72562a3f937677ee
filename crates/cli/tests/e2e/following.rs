// SPDX-License-Identifier: Apache-2.0
//! Steps that follow one another in one instance: they are what they are apart, in all but where they run.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::workflows::{begun, last, result, wait_until};
use super::{Node, home};

const MAIN: &str = r#"
import decimal, json, os, sys, time
from sinew import StepError, call, function, isolated, workflow

instance = None
def here():
    global instance
    instance = instance or os.urandom(8).hex()
    return instance

seen = []

@function
def first(value):
    seen.append(value)
    return {"value": value, "at": [here()]}

@function
def then(told, more=0):
    print("then", told["value"])
    told["value"] += more
    told["at"].append(here())
    return told

@function
def last(told):
    return {**told, "at": [*told["at"], here()]}

@workflow
def chain(event):
    told = first(event["value"])
    for more in range(event.get("length", 1)):
        told = then(told, more=more)
    return last(told)

@workflow
def fans(event):
    told = first(event["value"])
    return [then(told, more=more) for more in range(event["width"])]

@function(timeout="59s")
def elsewhere(told):
    return then.__wrapped__(told)

@function(pure=True)
def pure(told):
    return then.__wrapped__(told)

@function(isolated=True)
def alone(told):
    return then.__wrapped__(told)

@workflow
def kept_apart(event):
    told = first(event["value"])
    return {"elsewhere": elsewhere(told), "pure": pure(told), "alone": alone(told), "isolated": then(isolated(told))}

@function
def kept(told):
    """What the step before it has, too, if it is not its own."""
    told["value"].append("changed")
    return told

@function
def of_before(value, told=None):
    global cached
    cached = value
    return {"value": cached, "at": [here()]}

@function
def cache(told):
    return [cached, told["value"], told["at"] == [here()]]

cached = None

@workflow
def changes(event):
    return cache(kept(of_before([event["value"]])))

@function
def long_text(size):
    return {"value": "x" * size, "at": [here()]}

@function
def length(told):
    return [len(told["value"]), told["at"] == [here()]]

@function
def numbers_of(told):
    return list(range(30_000))

@workflow
def ends_long(event):
    numbers_of(first(event["value"]))
    return event["value"]

@workflow
def sizes(event):
    return length(long_text(event["size"]))

tried = []

@function(retries=2, retry_delay="10ms")
def fails(told, often):
    print("tries", told["value"])
    tried.append(1)
    if len(tried) <= often:
        raise ValueError(f"no {told['value']}")
    tried.clear()
    return told

@workflow
def failing(event):
    return last(fails(first(event["value"]), event["often"]))

@function
def ends(told, how):
    if how == "exit":
        os._exit(3)
    if how == "sleep":
        time.sleep(60)
    if how == "nothing":
        return lambda: 0
    return told

@workflow
def ending(event):
    told = first(event["value"])
    ended = ends(told, event["how"])
    try:
        return last(ended).result()["value"]
    except StepError as error:
        return {"failed": error.reason, "first": told.result()["value"]}

@function
def asks(told):
    return [call("asked", told["value"]), told["at"] == [here()]]

@workflow
def asking(event):
    return asks(first(event["value"]))

@function(concurrency=2)
def two_at_a_time(told):
    begun = time.monotonic()
    time.sleep(0.002)
    return [told["value"], begun, time.monotonic(), told["at"] == [here()]]

@workflow
def queueing(event):
    return [two_at_a_time(first(value)) for value in range(event["width"])]

def asked(event):
    return event * 2

@function
def mix(number, *values):
    if number % 7 == 3:
        time.sleep(0.001)
    return (number * 31 + sum(values) * 17) % 1000003

@workflow
def graph(event):
    made = []
    for number, needs in enumerate(event["needs"]):
        made.append(mix(number, *(made[need] for need in needs)))
    return made

@function(concurrency=2, retries=2, retry_delay="10ms")
def only(told, fails=0, seconds=0):
    if seconds:
        begun = time.monotonic()
        time.sleep(seconds)
        return [begun, time.monotonic()]
    # Where it has followed.
    if fails and told["at"] == [here()]:
        raise ValueError("once more")
    return told

@function(retries=1, retry_delay="60s")
def waits_again(told, fails):
    if fails:
        raise ValueError("after a while")
    return told

@workflow
def retrying(event):
    return only(only(first(event["value"]), fails=event["fails"]))

@workflow
def holding(event):
    if event.get("beside"):
        return [only(None, seconds=2) for _ in range(2)]
    return only(waits_again(first(event["value"]), event["fails"]))

def shape(value):
    "What it is, and which parts of it are one."
    seen, told, left = {}, [], [value]
    while left:
        one = left.pop()
        if isinstance(one, (list, dict, tuple, set)) and one:
            if id(one) in seen:
                told.append(seen[id(one)])
                continue
            seen[id(one)] = len(seen)
            told.append((type(one).__name__, len(one)))
            left.extend(part for pair in one.items() for part in pair) if isinstance(one, dict) else left.extend(one)
        else:
            told.append(f"{type(one).__name__} {one!r}")
    return told

def cycle(size):
    inner = {"size": size}
    made = [inner, (inner, [inner]), size]
    inner["all"] = made
    made.append(made)
    return made

def tuple_cycle(size):
    made = ([size],)
    made[0].append(made)
    return made

def deep(size):
    made = [size]
    for _ in range(min(size, 40)):
        made = [made, {"in": made}]
    return made

@function
def made_of(kind, size):
    kinds = {
        "cycle": lambda: cycle(size), "tuple_cycle": lambda: tuple_cycle(size), "deep": lambda: deep(size),
        "many_shared": lambda: [[at] for at in range(size)] * 2,
        "int": lambda: size, "big": lambda: 7 ** size, "text": lambda: "\u00e9" * size, "bytes": lambda: b"b" * size,
        "none": lambda: None, "float": lambda: size / 3, "list": lambda: list(range(size)),
        "dict": lambda: {str(at): [at, (at,)] for at in range(size)}, "set": lambda: {*range(size)},
        "decimal": lambda: decimal.Decimal(size) / 7, "shared": lambda: [[1, 2]] * 3, "error": lambda: ValueError(size),
        "true": lambda: True, "tuples": lambda: [((size, "a"), ((), size))] * 2,
    }
    return kinds[kind]()

@function
def shown(value):
    if isinstance(value, list) and value and isinstance(value[0], list):
        value[0].append(3)
    return shape(value)

@function(timeout="58s")
def shown_apart(value):
    return shown.__wrapped__(value)

@workflow
def compared(event):
    return [shown(made_of(event["kind"], event["size"])), shown_apart(made_of(event["kind"], event["size"]))]
"#;

const WORKFLOWS: [&str; 14] = [
    "ends-long",
    "graph",
    "retrying",
    "holding",
    "chain",
    "fans",
    "kept-apart",
    "changes",
    "sizes",
    "failing",
    "ending",
    "asking",
    "queueing",
    "compared",
];

fn deploy(node: &Node, home: &Path) {
    let source = home.join("following");
    std::fs::create_dir_all(&source).unwrap();
    let function = |name: &&str| {
        let workflow = if *name == "asked" { "" } else { "workflow = true\n" };
        let handler = name.replace('-', "_");
        format!(
            "[functions.{name}]\nruntime = \"python\"\nhandler = \"main.{handler}\"\nmemory = \"64MiB\"\n{workflow}"
        )
    };
    let manifest: String = WORKFLOWS.iter().chain(&["asked"]).map(function).collect();
    std::fs::write(source.join("main.py"), MAIN).unwrap();
    std::fs::write(source.join("sinew.toml"), manifest).unwrap();
    node.deploy(&source);
}

/// Has it known of a workflow's steps that they are brief, and be so in a run: the first times they load what they need, and on
/// a busy machine any may take long. Of a chain all steps follow, of others at least one.
fn until_it_follows(node: &Node, workflow: &str, event: &Value) -> Value {
    let begun = Instant::now();
    loop {
        let told = result(node, workflow, event);
        let run = last(node, workflow);
        let graph = run["graph"].as_array().unwrap();
        let is_chain = graph.iter().enumerate().all(|(at, step)| at == 0 || step["needs"] == json!([at - 1]));
        let least = if is_chain { graph.len() - 1 } else { 1 };
        if followed(&run).count() >= least {
            return told;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing follows anything: {run}");
    }
}

/// The steps of a run that have followed others.
fn followed(run: &Value) -> impl Iterator<Item = &Value> {
    let graph = run["graph"].as_array().unwrap();
    graph.iter().filter(|step| step["has_followed"] == true)
}

fn instances(told: &Value) -> usize {
    told["at"].as_array().unwrap().iter().map(|at| at.as_str().unwrap()).collect::<HashSet<_>>().len()
}

#[test]
fn steps_of_a_chain_follow_one_another_and_are_steps_like_others() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    let event = json!({"value": 5, "length": 3});
    let apart = result(&node, "chain", &event);
    assert_eq!(
        (&apart["value"], instances(&apart)),
        (&json!(8), 3),
        "of nothing it is known that it is brief"
    );
    // All of a chain, as soon as all of it is known.
    let begun = Instant::now();
    let told = loop {
        let told = until_it_follows(&node, "chain", &event);
        if instances(&told) == 1 {
            break told;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{told}");
    };
    assert_eq!(told["value"], 8);
    let run = last(&node, "chain");
    assert_eq!((followed(&run).count(), &run["steps"]["done"]), (4, &json!(5)), "{run}");
    for step in run["graph"].as_array().unwrap() {
        let times = ["made_us", "ready_us", "begun_us", "ended_us"].map(|name| step[name].as_u64().unwrap());
        assert!(times.is_sorted() && step["attempts"] == 1, "{step}");
        assert!(step["ran_us"].as_u64().unwrap() <= times[3] - times[1], "{step}");
    }
    // Each has a record of its own, with what it has printed.
    let request = run["request_id"].as_str().unwrap();
    let printed = node.ok(&["logs", "chain.then", "--request-id", request, "-o", "json"]);
    let records: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let printed: Vec<_> = records.iter().map(|record| (&record["start"], &record["log"])).collect();
    let within = json!("within");
    let logs = ["then 5\n", "then 5\n", "then 6\n"].map(|log| json!(log));
    assert_eq!(printed, logs.iter().map(|log| (&within, log)).collect::<Vec<_>>());
    // More than are sent at once.
    let begun = Instant::now();
    loop {
        let long = result(&node, "chain", &json!({"value": 0, "length": 100}));
        assert_eq!(long["value"], (0..100).sum::<u64>());
        if followed(&last(&node, "chain")).count() > 90 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    // Of several that wait for one, one follows it.
    let wide = until_it_follows(&node, "fans", &json!({"value": 1, "width": 4}));
    let values: Vec<u64> =
        wide.as_array().unwrap().iter().map(|told| told["value"].as_u64().unwrap()).collect();
    assert_eq!(values, [1, 2, 3, 4]);
    assert_eq!(followed(&last(&node, "fans")).count(), 1);
}

#[test]
fn what_is_run_in_another_way_or_has_to_be_apart_follows_nothing() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    for value in 0..12 {
        let told = result(&node, "kept-apart", &json!({"value": value}));
        for (which, told) in told.as_object().unwrap() {
            assert_eq!((&told["value"], instances(told)), (&json!(value), 2), "{which} {told}");
        }
        assert_eq!(followed(&last(&node, "kept-apart")).count(), 0);
    }
    // The negative control.
    until_it_follows(&node, "chain", &json!({"value": 1}));
    // Nor does anything in a run that goes on after an end of the node: what a step was given is kept before it is begun.
    let id = begun(&node, "chain", &json!({"value": 1}));
    let run = wait_until(&node, &id, |run| run["state"] == "succeeded");
    assert_eq!(followed(&run).count(), 0);
}

#[test]
fn what_follows_has_a_value_of_its_own_and_long_ones_are_handed_over() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    let told = until_it_follows(&node, "changes", &json!({"value": "it"}));
    let begun = Instant::now();
    let mut told = told;
    while told[2] != true {
        told = result(&node, "changes", &json!({"value": "it"}));
        assert!(begun.elapsed() < Duration::from_secs(60), "{told}");
    }
    assert_eq!(told, json!([["it"], ["it", "changed"], true]), "what the first one has kept is as it was");
    assert_eq!(until_it_follows(&node, "sizes", &json!({"size": 100_000})), json!([100_000, true]));
    // It is given that itself (decision 0110).
    assert_eq!(result(&node, "sizes", &json!({"size": 1_000_000})), json!([1_000_000, true]));
    assert_eq!(until_it_follows(&node, "sizes", &json!({"size": 10})), json!([10, true]));
    // What nothing follows is mapped as ever, though it has followed.
    let begun = Instant::now();
    loop {
        until_it_follows(&node, "ends-long", &json!({"value": 1}));
        let run = last(&node, "ends-long");
        if run["graph"][1]["is_mapped"] == true {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{run}");
    }
}

#[test]
fn values_are_what_they_are_apart() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    let kinds = [
        "int",
        "big",
        "text",
        "bytes",
        "none",
        "float",
        "list",
        "dict",
        "set",
        "decimal",
        "shared",
        "error",
        "true",
        "tuples",
        "cycle",
        "tuple_cycle",
        "deep",
        "many_shared",
    ];
    until_it_follows(&node, "compared", &json!({"kind": "int", "size": 1}));
    let mut all = 0;
    for (kind, size) in kinds.iter().flat_map(|kind| [0, 1, 3, 300, 9000].map(|size| (kind, size))) {
        // Python shows no longer numbers.
        let size = if *kind == "big" { size.min(300) } else { size };
        let told = result(&node, "compared", &json!({"kind": kind, "size": size}));
        assert_eq!(told[0], told[1], "{kind} {size}");
        all += followed(&last(&node, "compared")).count();
    }
    assert!(all > 10, "{all}");
}

#[test]
fn a_step_that_follows_fails_by_itself_and_is_tried_again() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    let begun = Instant::now();
    loop {
        until_it_follows(&node, "failing", &json!({"value": 1, "often": 0}));
        let told = node.run(&["invoke", "failing", "-d", r#"{"value": 7, "often": 3}"#]);
        let text = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(!told.status.success() && text.contains("main.fails, failed after 3 attempts"), "{text}");
        assert!(text.contains("ValueError: no 7"), "{text}");
        let run = last(&node, "failing");
        let graph = run["graph"].as_array().unwrap();
        let states = graph.iter().map(|step| (step["state"].as_str().unwrap(), step["attempts"].as_u64()));
        let states: Vec<_> = states.collect();
        assert_eq!(states, [("done", Some(1)), ("failed", Some(3)), ("failed", Some(0))], "{run}");
        let request = run["request_id"].as_str().unwrap();
        let printed = node.ok(&["logs", "failing.fails", "--request-id", request]);
        assert_eq!(printed.matches("tries 7").count(), 3, "{printed}");
        // The first time it is where the other one was, and never again.
        match printed.matches("within").count() {
            0 => assert!(begun.elapsed() < Duration::from_secs(60), "{printed}"),
            count => {
                assert_eq!(count, 1, "{printed}");
                break;
            }
        }
    }
}

#[test]
fn an_instance_that_ends_in_what_follows_takes_nothing_back() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    until_it_follows(&node, "ending", &json!({"value": 1, "how": ""}));
    for how in ["exit", "nothing"] {
        until_it_follows(&node, "ending", &json!({"value": 1, "how": ""}));
        let told = result(&node, "ending", &json!({"value": 3, "how": how}));
        assert_eq!(told["first"], 3, "{told}");
        let why = if how == "exit" { "ended" } else { "cannot be passed on" };
        assert!(told["failed"].as_str().unwrap().contains(why), "{told}");
        let run = last(&node, "ending");
        assert_eq!(run["graph"][0]["attempts"], 1, "{run}");
    }
    // Whoever cancels a run stops what has followed.
    let (mut asking, id) = begun_beside(&node, "ending", r#"{"value": 3, "how": "sleep"}"#);
    wait_until(&node, &id, |run| run["graph"][0]["state"] == "done");
    let cancelled = Instant::now();
    node.ok(&["workflow", "cancel", &id]);
    wait_until(&node, &id, |run| run["state"] == "cancelled");
    asking.wait().unwrap();
    assert_eq!(result(&node, "ending", &json!({"value": 2, "how": ""})), 2);
    assert!(cancelled.elapsed() < Duration::from_secs(30));
}

/// A run that is not waited for: who asks for it, and its name.
#[expect(clippy::zombie_processes, reason = "it is waited for by the caller, and else ends with the test")]
fn begun_beside(node: &Node, workflow: &str, event: &str) -> (Child, String) {
    let before = last(node, workflow)["id"].clone();
    let mut command = node.command(&["invoke", workflow, "-d", event]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    loop {
        let run = last(node, workflow);
        if run["id"] != before {
            return (child, run["id"].as_str().unwrap().to_owned());
        }
        assert!(begun.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_follows_calls_others_as_itself() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    let begun = Instant::now();
    loop {
        let told = until_it_follows(&node, "asking", &json!({"value": 21}));
        assert_eq!(told[0], 42);
        if told[1] == true {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    let run = last(&node, "asking");
    let tree = node.ok(&["describe", "--request-id", run["request_id"].as_str().unwrap(), "-o", "json"]);
    let tree: Value = serde_json::from_str(&tree).unwrap();
    let calls = tree["calls"].as_array().unwrap();
    let of =
        |name: &str| calls.iter().find(|call| call["function"] == name).unwrap_or_else(|| panic!("{tree}"));
    assert_eq!(
        (&of("asking.asks")["start"], &of("asked")["parent"]),
        (&json!("within"), &of("asking.asks")["span"])
    );
}

/// What each step of a workflow needs, by chance: mostly one step, often the last one.
fn needs_of(seed: u64) -> Vec<Vec<usize>> {
    let mut state = seed * 2 + 1;
    let mut below = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % most
    };
    let needs = (0..40).map(|number| match (number, below(8)) {
        (0, _) | (_, 0) => Vec::new(),
        (_, 1..=3) => vec![number - 1],
        (_, 4..=5) => vec![below(number)],
        _ => (0..=below(3)).map(|_| below(number)).collect(),
    });
    needs.collect()
}

#[test]
fn whatever_the_graph_each_step_is_given_what_it_needs() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    let mut all = 0;
    for seed in 0..40 {
        let needs = needs_of(seed);
        let mut expected: Vec<usize> = Vec::new();
        for (number, needs) in needs.iter().enumerate() {
            let sum: usize = needs.iter().map(|need| expected[*need]).sum();
            expected.push((number * 31 + sum * 17) % 1_000_003);
        }
        assert_eq!(result(&node, "graph", &json!({"needs": needs})), json!(expected), "{seed}");
        let run = last(&node, "graph");
        all += followed(&run).count();
        for step in followed(&run) {
            assert_eq!(step["needs"].as_array().unwrap().len(), 1, "{step}");
        }
    }
    assert!(all > 40, "{all}");
}

#[test]
fn what_is_tried_again_waits_for_no_place_that_its_own_followers_have() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    until_it_follows(&node, "retrying", &json!({"value": 1, "fails": 0}));
    let begun = Instant::now();
    while last(&node, "retrying")["graph"][1]["attempts"] != 2 {
        let told = result(&node, "retrying", &json!({"value": 2, "fails": 1}));
        assert_eq!((&told["value"], begun.elapsed() < Duration::from_secs(60)), (&json!(2), true));
    }
    // Nor does it keep others from theirs meanwhile.
    until_it_follows(&node, "holding", &json!({"value": 1, "fails": false}));
    let (mut held, id) = begun_beside(&node, "holding", r#"{"value": 1, "fails": true}"#);
    wait_until(&node, &id, |run| {
        let step = &run["graph"][1];
        step["attempts"] == 1 && step["ran_us"].is_u64() && step["state"] == "running"
    });
    let beside = result(&node, "holding", &json!({"beside": true}));
    let told = beside.as_array().unwrap().iter();
    let times: Vec<_> = told.map(|told| (told[0].as_f64(), told[1].as_f64())).collect();
    assert!(times[0].0 < times[1].1 && times[1].0 < times[0].1, "one after the other: {beside}");
    held.kill().unwrap();
    held.wait().unwrap();
}

#[test]
fn no_more_of_a_function_run_at_a_time_than_may() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    let mut have_followed = 0;
    for _ in 0..10 {
        let told = result(&node, "queueing", &json!({"width": 12}));
        let mut times: Vec<(f64, f64)> = told
            .as_array()
            .unwrap()
            .iter()
            .map(|told| (told[1].as_f64().unwrap(), told[2].as_f64().unwrap()))
            .collect();
        times.sort_by(|one, other| one.0.total_cmp(&other.0));
        let beside = |at: usize| times[..at].iter().filter(|other| other.1 > times[at].0).count();
        assert!((0..times.len()).all(|at| beside(at) <= 1), "{told}");
        have_followed += told.as_array().unwrap().iter().filter(|told| told[3] == true).count();
    }
    assert!(have_followed > 0);
}
