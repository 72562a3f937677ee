// SPDX-License-Identifier: Apache-2.0
//! Workflows: steps, what they need of each other, how they fail, and runs that
//! go on after the node was killed.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Node, home};

const MAIN: &str = r#"
import asyncio, datetime, decimal, mmap, os, pickle, sys, time
from sinew import StepError, function, workflow

@function
def numbers(count):
    return list(range(count))

@function
def dated(count):
    return list(range(count, 2 * count)), [datetime.date.fromordinal(day) for day in range(1, 31)]

@function
def prices(count):
    return [decimal.Decimal(price) for price in range(count)]

@function
def lengths(*values):
    return [len(value) for value in values]

@workflow
def foreign(event):
    return lengths(dated(50_000), prices(20_000), prices(3))

@function
def total(numbers, factor=1):
    return factor * sum(numbers)

@function
def both(first, second):
    return [first, second, first is second]

@function(retries=2, retry_delay="10ms")
def fails(why):
    print("this is said before it fails")
    raise ValueError(why)

@function
def token(number):
    return (number, os.urandom(8).hex())

@function
def waits(seconds, *after):
    time.sleep(seconds)
    return list(after)

@function(pure=True)
def squared(number):
    return number * number

@function
def frame(rows):
    made = Rows(rows)
    return {"rows": made, "same": made.names, "text": "t" * rows, 5: [made]}

@function
def looks(frame, at):
    rows = frame["rows"]
    is_same = frame["same"] is rows.names and frame[5][0] is rows and type(rows) is Rows
    # What one does to it, no other one sees.
    frame["more"] = rows.names.pop()
    rows.numbers[at] = "changed"
    return [is_same, len(rows.names), sum(one for one in rows.numbers if one != "changed"), len(frame["text"]), kept()]

@function
def same(value):
    return value

instance = None

def own_bytes():
    with open("/proc/self/statm") as told:
        _, resident, shared, *_ = map(int, told.read().split())
    return (resident - shared) * 4096

@function
def remains(numbers, *after):
    """What this process has for itself before and after it has read them."""
    global instance
    instance = instance or os.urandom(8).hex()
    before = own_bytes()
    all = sum(numbers)
    return {"instance": instance, "before": before, "after": own_bytes(), "all": all, "counts": sys.version_info < (3, 12)}

@workflow
def remaining(event):
    first = remains(numbers(event["count"])).result()
    return [first, remains([], first["all"])]

class Rows:
    def __init__(self, rows):
        self.numbers = [at * 1000 for at in range(rows)]
        self.names = ["n%d" % at for at in range(rows)]

def kept():
    """Whether a value lies in this process where it was made."""
    with open("/proc/self/maps") as maps:
        return any(line.startswith(("1", "2", "3")) and "rw-p" in line and "sinew-outbox" in line for line in maps)

@workflow
def mapped(event):
    made = frame(event["rows"])
    first = [looks(made, at) for at in range(event["width"])]
    again = looks(same(same(made)), 1)
    return {"first": first, "again": again, "here": len(made.result()["rows"].names)}

@function
def large(number):
    time.sleep(0.4 * number)  # A node that is killed when it has the first one has not all.
    return {"token": os.urandom(8).hex(), "numbers": [at * 1000 for at in range(200_000)]}

@function
def token_of(value, seconds):
    time.sleep(seconds)
    return (value["token"], kept())

@function(pure=True)
def sum_of(numbers):
    return sum(numbers)

@workflow
def summed(event):
    return sum_of(numbers(event["count"]))

@workflow
def keeps(event):
    made = [large(number) for number in range(event["width"])]
    first = [token_of(one, 0) for one in made]
    return [first, [token_of(one, event["seconds"]) for one in made]]

@function
def grown(numbers):
    numbers.append(len(numbers))
    return numbers

@workflow
def sums(event):
    made = numbers(event["count"])
    parts = [total(made, factor=at) for at in range(event["width"])]
    return {"parts": parts, "all": total(parts), "count": event["count"]}

@workflow
def branches(event):
    left = event["from"]
    steps = 0
    made = numbers(left)
    while total(made).result() > event["until"]:
        left -= 1
        steps += 1
        made = numbers(left)
    same = numbers(3)
    return [left, steps, both(same, same), squared.map(range(4))]

async def awaits(event):
    made = await numbers(5)
    first = total(made)
    sums = await asyncio.gather(*(total(made, factor=at) for at in range(4)))
    try:
        await asyncio.gather(fails("awaited"), first)
    except StepError as error:
        sums.append(error.function)
    return sums

def failing(event):
    fine = numbers(4)
    wrong = fails("no such portfolio")
    after = total(wrong)
    beside = total(fine)
    if event.get("caught"):
        try:
            after.result()
        except StepError as error:
            return {"caught": error.reason, "beside": beside}
    return total([1, beside, after]) if event.get("returned") else beside

def long(event):
    tokens = token.map(range(event["tokens"]))
    held = waits(event["seconds"], *tokens)
    return total(numbers(waits(0, held, tokens[0]).result()[0].__len__()))

def links(event):
    at = waits(0.05, 0)
    for number in range(1, event["steps"]):
        at = waits(0.05, number, at)
    return at

def diverges(event):
    token(time.time_ns()).result()
    return waits(event["seconds"])

def mutates(event):
    made = numbers(3)
    return [grown(made), grown(made), made]

class Array:
    def __init__(self, data):
        self.data = data

    def __reduce_ex__(self, protocol):
        return Array, (pickle.PickleBuffer(self.data),)

@function
def array(size):
    return Array(bytearray(size))

@function
def marked(array, at):
    array.data[at] = 1
    return [sum(array.data), len(array.data)]

def arrays(event):
    made = array(event["size"])
    marks = [marked(made, at) for at in range(4)]
    return {"marks": marks, "own": sum(made.result().data), "after": marked(made, 9)}

held = None

@function
def holds(size):
    global held
    for name in os.listdir("/proc/self/fd"):
        if os.path.exists(f"/proc/self/fd/{name}") and "sinew-outbox" in os.readlink(f"/proc/self/fd/{name}"):
            held = mmap.mmap(int(name), size)
    return b"x" * size

def calls(event):
    import sinew
    return [sinew.call("sums", {"count": 3, "width": 2})["all"] for _ in range(6)]

def refused(event):
    try:
        return [str(eval(event["what"]))]
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
"#;

fn deploy(node: &Node, home: &Path) {
    let source = home.join("workflows");
    std::fs::create_dir_all(&source).unwrap();
    let names = [
        "sums",
        "branches",
        "awaits",
        "failing",
        "long",
        "links",
        "diverges",
        "mutates",
        "arrays",
        "mapped",
        "keeps",
        "summed",
        "foreign",
        "remaining",
    ];
    let mut manifest: String = names
        .iter()
        .map(|name| {
            format!("[functions.{name}]\nruntime = \"python\"\nhandler = \"main.{name}\"\nworkflow = true\n")
        })
        .collect();
    for (name, handler) in [("sent", "mapped"), ("refused", "refused")] {
        manifest.push_str(&format!(
            "[functions.{name}]\nruntime = \"python\"\nhandler = \"main.{handler}\"\nworkflow = true\nvalues = \"send\"\n",
        ));
    }
    manifest.push_str("[functions.plain]\nruntime = \"python\"\nhandler = \"main.sums\"\n");
    std::fs::write(source.join("main.py"), MAIN).unwrap();
    manifest.push_str("[functions.calls]\nruntime = \"python\"\nhandler = \"main.calls\"\n");
    std::fs::write(source.join("sinew.toml"), manifest).unwrap();
    node.deploy(&source);
}

pub(crate) fn result(node: &Node, workflow: &str, event: &Value) -> Value {
    serde_json::from_str(&node.ok(&["invoke", workflow, "-d", &event.to_string()])).unwrap()
}

/// The last run of a workflow.
pub(crate) fn last(node: &Node, workflow: &str) -> Value {
    let listed = node.ok(&["workflow", "list", workflow, "-n", "1", "-o", "json"]);
    let run: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    described(node, run["id"].as_str().unwrap())
}

fn described(node: &Node, id: &str) -> Value {
    serde_json::from_str(&node.ok(&["workflow", "describe", id, "-o", "json"])).unwrap()
}

/// Waits until a run is as it should be.
pub(crate) fn wait_until(node: &Node, id: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let run = described(node, id);
        if is_so(&run) {
            return run;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{run}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The answer with a detached run's result. A run has ended before its result is on the disk, and until
/// then who asks is told to ask again.
pub(crate) fn kept_result(node: &Node, id: &str) -> String {
    let begun = Instant::now();
    loop {
        let got = node.http(&format!("GET /v1/async/{id}/result"), b"");
        if !got.starts_with("HTTP/1.1 202") {
            assert!(got.starts_with("HTTP/1.1 200"), "{got}");
            return got;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{got}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn begun(node: &Node, workflow: &str, event: &Value) -> String {
    node.ok(&["workflow", "run", workflow, "--detach", "-d", &event.to_string()])
}

pub(crate) fn is(state: &str) -> impl Fn(&Value) -> bool {
    move |run| run["state"] == state
}

pub(crate) fn done(run: &Value) -> u64 {
    run["steps"]["done"].as_u64().unwrap_or(0)
}

#[test]
fn values_are_mapped_where_they_were_made() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    let rows: u64 = 100_000;
    let all: u64 = (0..rows).map(|at| at * 1000).sum();
    let looked = |at: u64, is_mapped: bool| json!([true, rows - 1, all - at * 1000, rows, is_mapped]);
    let expected = |width: u64, is_mapped| {
        let first: Vec<Value> = (0..width).map(|at| looked(at, is_mapped)).collect();
        json!({"first": first, "again": looked(1, is_mapped), "here": rows})
    };
    // More than there are instances: one maps the same value again and again.
    for width in [1, 40, 3] {
        assert_eq!(result(&node, "mapped", &json!({"rows": rows, "width": width})), expected(width, true));
    }
    let event = json!({"rows": rows, "width": 2});
    let run = node.ok(&["workflow", "run", "mapped", "-d", &event.to_string()]);
    assert_eq!(serde_json::from_str::<Value>(&run).unwrap(), expected(2, true));
    assert_eq!(result(&node, "sent", &event), expected(2, false));
}

/// In an instance, which nobody may look into, not even itself.
#[test]
fn what_was_only_read_takes_no_memory_after_the_call() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    let count: u64 = 600_000;
    let all: Vec<Value> = (0..5).map(|_| result(&node, "remaining", &json!({"count": count}))).collect();
    let bytes = |run: &Value, call: usize, when: &str| run[call][when].as_u64().unwrap();
    // Each number is of 32 bytes. With a thread that is late to end, it is the next call that gives them back.
    let has_copied = |run: &Value| bytes(run, 0, "after") > bytes(run, 0, "before") + 20 * count;
    let is_returned = |run: &Value| bytes(run, 1, "before") < bytes(run, 0, "before") + 8 * count;
    let is_so =
        |run: &&Value| run[0]["instance"] == run[1]["instance"] && run[0]["counts"] == has_copied(run);
    assert!(all.iter().filter(is_so).any(is_returned), "copies stay: {all:?}");
}

#[test]
fn what_was_mapped_is_there_after_a_kill_and_is_what_others_were_given() {
    let home = home();
    let mut node = Node::start(home.path());
    deploy(&node, home.path());
    let width = 3;
    let id = begun(&node, "keeps", &json!({"width": width, "seconds": 2}));
    // While values are written down; when they are, and those that were given them first have ended.
    for at in [1, 2 * width] {
        let run = wait_until(&node, &id, |run| done(run) >= at);
        assert_eq!(run["state"], "running", "{run}");
        node.kill();
        node = Node::start(home.path());
    }
    let run = wait_until(&node, &id, is("succeeded"));
    assert!(run["steps"]["remembered"].as_u64().unwrap() >= 2 * width, "{run}");
    let body = kept_result(&node, &id).split_once("\r\n\r\n").unwrap().1.to_owned();
    let [first, later]: [Vec<(String, bool)>; 2] = serde_json::from_str(&body).unwrap();
    // Each value is made anew, and then is another one, or all were given the same.
    let tokens = |from: &[(String, bool)]| from.iter().map(|one| one.0.clone()).collect::<Vec<_>>();
    assert_eq!(tokens(&first), tokens(&later));
    assert_eq!(first.len() as u64, width);
    assert!(first.iter().any(|one| one.1), "none was mapped: {body}");
    assert!(later.iter().all(|one| !one.1), "what a node before this one made cannot be mapped: {body}");
}

#[test]
fn steps_are_given_the_results_of_others_and_what_they_need_is_told() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    let told = result(&node, "sums", &json!({"count": 1000, "width": 20}));
    let parts: Vec<u64> = (0..20).map(|factor| factor * 499_500).collect();
    assert_eq!(told, json!({"parts": parts, "all": parts.iter().sum::<u64>(), "count": 1000}));
    let run = last(&node, "sums");
    assert_eq!((&run["state"], &run["steps"]["all"], done(&run)), (&json!("succeeded"), &json!(22), 22));
    let graph = run["graph"].as_array().unwrap();
    assert_eq!((&graph[0]["function"], &graph[0]["needs"]), (&json!("main.numbers"), &json!([])));
    assert_eq!(graph[21]["needs"], json!((1..21).collect::<Vec<_>>()));
    for step in graph {
        let times = ["made_us", "ready_us", "begun_us", "ended_us"].map(|name| step[name].as_u64().unwrap());
        assert!(times.is_sorted(), "{step}");
        let parts = ["queued_us", "transfer_in_us", "ran_us", "transfer_out_us"];
        let parts = parts.map(|name| step[name].as_u64().unwrap());
        assert!(parts.iter().sum::<u64>() <= times[3] - times[1] + 50, "{step}");
        for need in step["needs"].as_array().unwrap() {
            let needed = &graph[need.as_u64().unwrap() as usize];
            assert!(needed["ended_us"].as_u64().unwrap() <= times[1], "{step} {needed}");
        }
    }
    // A thousand arguments are some.
    let wide = result(&node, "sums", &json!({"count": 10, "width": 1000}));
    assert_eq!(wide["all"], json!(45 * (0..1000).sum::<u64>()));
    // People see it as a picture; and what its steps printed is the request's.
    let shown = node.ok(&["workflow", "describe", run["id"].as_str().unwrap(), "--steps"]);
    assert!(shown.contains("main.total") && shown.contains('█'), "{shown}");
    // However often a function calls it: a run is never on a line.
    assert_eq!(result(&node, "calls", &json!({})), json!([3, 3, 3, 3, 3, 3]));
    // Where it is no workflow, its calls are calls.
    let plain = result(&node, "plain", &json!({"count": 3, "width": 2}));
    assert_eq!(plain, json!({"parts": [0, 3], "all": 3, "count": 3}));
}

#[test]
fn what_could_not_be_mapped_is_counted_by_its_type() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    assert_eq!(result(&node, "foreign", &json!({})), json!([2, 20_000, 3]));
    let run = last(&node, "foreign");
    let step = |number: usize| &run["graph"][number];
    // A part of a value that is mapped; most of one; and one that is short is pickled anyway.
    assert_eq!(step(0)["pickled"], json!([{"type": "datetime.date", "count": 30}]));
    assert_eq!(
        (&step(1)["pickled"][0]["type"], &step(1)["pickled"][1]),
        (&json!("decimal.Decimal"), &Value::Null)
    );
    assert!(step(1)["pickled"][0]["count"].as_u64().unwrap() > 1000, "{}", step(1));
    assert_eq!((step(2).get("pickled"), step(3).get("pickled")), (None, None));
    let shown = node.ok(&["workflow", "describe", run["id"].as_str().unwrap()]);
    assert!(shown.contains("cannot be mapped") && shown.contains("datetime.date"), "{shown}");
    let metrics = node.http("GET /metrics", b"");
    let counted = r#"sinew_function_pickled_objects_total{function="foreign",type="datetime.date"} 30"#;
    assert!(metrics.contains(counted), "{metrics}");
    // The next call has nothing of the one before.
    result(&node, "foreign", &json!({}));
    assert_eq!(
        last(&node, "foreign")["graph"][0]["pickled"],
        json!([{"type": "datetime.date", "count": 30}])
    );
}

#[test]
fn the_graph_grows_by_what_results_say() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    let told = result(&node, "branches", &json!({"from": 10, "until": 20}));
    // An argument that stands in two places is one object.
    assert_eq!(told, json!([6, 4, [[0, 1, 2], [0, 1, 2], true], [0, 1, 4, 9]]));
    assert_eq!(result(&node, "awaits", &json!({})), json!([0, 10, 20, 30, "main.fails"]));
    // What a step changes is its own.
    assert_eq!(result(&node, "mutates", &json!({})), json!([[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2]]));
}

#[test]
fn pure_steps_are_remembered_from_run_to_run() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    for round in 0..2 {
        result(&node, "branches", &json!({"from": 2, "until": 20}));
        let run = last(&node, "branches");
        let steps = run["graph"].as_array().unwrap();
        let squared: Vec<&Value> = steps.iter().filter(|step| step["function"] == "main.squared").collect();
        let state = if round == 0 { "done" } else { "remembered" };
        assert_eq!(squared.len(), 4);
        assert!(squared.iter().all(|step| step["state"] == state), "{run}");
        // The others have effects, for all that anybody knows.
        assert!(
            steps.iter().all(|step| step["function"] == "main.squared" || step["state"] == "done"),
            "{run}"
        );
    }
    // Also those that are given what another step has mapped, which is elsewhere each time.
    for round in 0..2 {
        assert_eq!(result(&node, "summed", &json!({"count": 200_000})), json!(19_999_900_000_u64));
        let run = last(&node, "summed");
        let state = if round == 0 { "done" } else { "remembered" };
        assert_eq!((&run["graph"][0]["is_mapped"], &run["graph"][1]["state"]), (&json!(true), &json!(state)));
    }
}

#[test]
fn a_step_that_fails_is_named_with_its_traceback_and_the_rest_goes_on() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    let told = result(&node, "failing", &json!({"caught": true}));
    let reason = told["caught"].as_str().unwrap();
    assert!(
        reason.contains("main.fails, failed after 3 attempts: ValueError: no such portfolio"),
        "{reason}"
    );
    assert!(reason.contains("raise ValueError(why)") && !reason.contains("function.py"), "{reason}");
    assert_eq!(told["beside"], json!(6));
    let run = last(&node, "failing");
    let graph = run["graph"].as_array().unwrap();
    assert_eq!((&graph[1]["attempts"], &graph[1]["state"]), (&json!(3), &json!("failed")));
    assert_eq!((&graph[2]["failed_with"], &graph[2]["attempts"]), (&json!(1), &json!(0)));
    // A failure that nobody looked at fails the run, whatever that returns.
    for event in [json!({}), json!({"returned": true})] {
        let output = node.run(&["workflow", "run", "failing", "-d", &event.to_string()]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{errors}");
        assert!(errors.contains("main.fails") && errors.contains("no such portfolio"), "{errors}");
        assert!(errors.contains("sinew workflow describe") && output.stdout.is_empty(), "{errors}");
        let run = last(&node, "failing");
        assert_eq!(run["state"], "failed");
        assert!(run["failure"].as_str().unwrap().contains("no such portfolio"), "{run}");
    }
    let logs = node.ok(&["logs", "failing.fails"]);
    assert!(logs.contains("this is said before it fails"), "{logs}");
    assert!(node.ok(&["logs", "failing"]).contains("failing.total"));
}

#[test]
fn a_run_goes_on_where_it_was_when_the_node_is_killed() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    let id = begun(&node, "long", &json!({"tokens": 6, "seconds": 3}));
    wait_until(&node, &id, |run| done(run) == 6);
    node.kill();
    let node = Node::start(home.path());
    let run = wait_until(&node, &id, is("succeeded"));
    assert_eq!((&run["steps"]["remembered"], &run["steps"]["done"]), (&json!(6), &json!(10)), "{run}");
    let graph = run["graph"].as_array().unwrap();
    assert!(graph.iter().all(|step| (step["attempts"] == 0) == (step["state"] == "remembered")), "{run}");
    // It is known after its end, also to a node that never saw it.
    assert_eq!(node.terminate(), 0);
    let node = Node::start(home.path());
    assert_eq!(described(&node, &id), run);
    assert!(node.ok(&["workflow", "list"]).contains(&id));
    // The sum of numbers below six.
    let got = kept_result(&node, &id);
    assert!(got.ends_with("15"), "{got}");
}

#[test]
fn however_often_the_node_is_killed_no_step_that_has_ended_is_made_again() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    let id = begun(&node, "links", &json!({"steps": 40}));
    let mut node = Some(node);
    let mut before = 0;
    for _ in 0..4 {
        let at = before + 4;
        let run =
            wait_until(node.as_ref().unwrap(), &id, |run| done(run) >= at || run["state"] == "succeeded");
        // What is told to be done is on the disk.
        let ended = done(&run);
        node.take().unwrap().kill();
        let next = Node::start(home.path());
        let again = wait_until(&next, &id, |run| run["steps"]["all"] == 40);
        let remembered = again["steps"]["remembered"].as_u64().unwrap();
        assert!(remembered >= ended, "{ended} had ended, and {remembered} were known again");
        before = ended;
        node = Some(next);
    }
    let node = node.unwrap();
    let run = wait_until(&node, &id, is("succeeded"));
    assert_eq!(done(&run), 40);
    let mut nested = json!([0]);
    for number in 1..40 {
        nested = json!([number, nested]);
    }
    let got = kept_result(&node, &id);
    assert!(got.ends_with(&nested.to_string()), "{got}");
}

#[test]
fn a_workflow_that_does_something_else_after_a_kill_is_told_so() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    let id = begun(&node, "diverges", &json!({"seconds": 2}));
    wait_until(&node, &id, |run| done(run) == 1);
    node.kill();
    let node = Node::start(home.path());
    let run = wait_until(&node, &id, is("failed"));
    let failure = run["failure"].as_str().unwrap();
    assert!(failure.contains("made other steps than before") && failure.contains("main.token"), "{failure}");
}

#[test]
fn a_run_that_is_cancelled_ends_and_does_not_come_back() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    let id = begun(&node, "long", &json!({"tokens": 2, "seconds": 600}));
    wait_until(&node, &id, |run| done(run) == 2);
    node.ok(&["workflow", "cancel", &id]);
    let run = wait_until(&node, &id, |run| run["state"] != "running");
    assert_eq!(run["state"], "cancelled");
    // Its steps have ended with it.
    let begun_at = Instant::now();
    while node.ok(&["describe", "long", "-o", "json"]).contains("\"busy\":1") {
        assert!(begun_at.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    let again = node.run(&["workflow", "cancel", &id]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("has ended"));
    assert_eq!(node.code(&["workflow", "cancel", "00000000-0000-7000-8000-000000000000"]), 4);
    // One that a kill interrupts is not begun again either.
    let id = begun(&node, "long", &json!({"tokens": 2, "seconds": 600}));
    wait_until(&node, &id, |run| done(run) == 2);
    node.ok(&["workflow", "cancel", &id]);
    node.kill();
    let node = Node::start(home.path());
    let run = wait_until(&node, &id, |run| !matches!(run["state"].as_str(), Some("running" | "interrupted")));
    assert_eq!(run["state"], "cancelled", "{run}");
}

#[test]
fn what_cannot_be_a_step_is_refused_with_what_to_do() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    for (what, expected) in [
        ("total(lambda: 1).result()", "TypeError: an argument of main.total cannot be passed on"),
        ("numbers(1) == [0]", "no value yet"),
        ("total('x' * (16 << 20))", "have a step make it"),
        ("bool(numbers(1))", "no value yet: result() waits for it"),
        ("numbers(1) + 1", "no value yet"),
        ("function(lambda: 1)()", "defined at the top of its module"),
        ("function(memory='much')", "memory is 'much', which is no quantity like '512MiB'"),
        ("numbers.options(memory='4TiB')(1).result()", "and all instances of this node"),
        ("numbers.options(memory='511MiB')(1).result()", "are left beside the workflow itself"),
        ("numbers.options(retries=1000)(1).result()", "retries is 1000, not a number from 0 to 100"),
        ("numbers.options(pure='yes')", "pure is 'yes', not a number"),
        ("numbers.options(timeout='100ms') and waits.options(timeout='100ms')(5).result()", "took too long"),
        ("waits(2).result(timeout=0.1)", "TimeoutError"),
        // What it can still write to is nobody's value.
        ("holds(300_000).result()", "the result in shared memory is none"),
    ] {
        let told = result(&node, "refused", &json!({"what": what}));
        assert!(told[0].as_str().unwrap().contains(expected), "{what}: {told}");
    }
    assert_eq!(node.code(&["workflow", "run", "plain", "-d", "{}"]), 1);
    let source = home.path().join("wrong");
    std::fs::create_dir_all(&source).unwrap();
    std::fs::write(source.join("index.js"), "exports.handler = () => 1").unwrap();
    std::fs::write(
        source.join("sinew.toml"),
        "[function]\nname = \"x\"\nruntime = \"node\"\nworkflow = true\n",
    )
    .unwrap();
    let output = node.run(&["deploy", source.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("written in Python"));
}

#[test]
fn values_of_megabytes_reach_many_steps() {
    let home = home();
    let node = Node::start(home.path());
    deploy(&node, home.path());
    let told = result(&node, "sums", &json!({"count": 500_000, "width": 8}));
    assert_eq!(told["all"], json!(28_u64 * 124_999_750_000));
    let run = last(&node, "sums");
    assert!(run["graph"][0]["result_bytes"].as_u64().unwrap() > 1 << 20, "{run}");
    // Arrays are handed over as they are, or mapped where they are long: each step has its own.
    for size in [100, 3_000_000] {
        let told = result(&node, "arrays", &json!({"size": size}));
        assert_eq!(told, json!({"marks": vec![[1, size]; 4], "own": 0, "after": [1, size]}));
    }
    // A durable run has them on the disk.
    let id = begun(&node, "arrays", &json!({"size": 3_000_000}));
    wait_until(&node, &id, is("succeeded"));
}

const DECLARED: &str = r#"
[functions.list]
runtime = "node"
handler = "list.handler"
source = "list.js"

[functions.shout]
runtime = "python"
handler = "shout.handler"
source = "shout.py"

[functions.count]
runtime = "executable"
mode = "stdin"
handler = "count.sh"
source = "count.sh"

[functions.report]
runtime = "workflow"
routes = ["POST /report"]
result = { bytes = "{{ count }}", words = "{{ shout }}", first = "{{ list.words[0] }}" }

[functions.report.steps.list]

[functions.report.steps.shout]
each = "{{ list.words }}"
with = { word = "{{ item }}", mark = "{{ event.mark }}", seconds = "{{ event.seconds? }}" }
retries = 1
retry-delay = "10ms"

[functions.report.steps.count]
with = "{{ shout }}"

[functions.report.steps.silent]
call = "list"
when = "{{ event.again }}"
"#;

fn deploy_declared(node: &Node, home: &Path) {
    let source = home.join("declared");
    std::fs::create_dir_all(&source).unwrap();
    let write = |name: &str, text: &str| std::fs::write(source.join(name), text).unwrap();
    write("sinew.toml", DECLARED);
    write("list.js", "exports.handler = async (event) => ({ words: event.text.split(' ') });\n");
    write(
        "shout.py",
        "import os, time\ndef handler(event, context):\n    time.sleep(event['seconds'] or 0)\n    \
         assert event['word'] != 'bad', 'no such word'\n    return event['word'].upper() + event['mark']\n",
    );
    write("count.sh", "#!/bin/sh\nwc -c\n");
    use std::os::unix::fs::PermissionsExt as _;
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(source.join("count.sh"), executable).unwrap();
    node.deploy(&source);
}

#[test]
fn functions_in_three_languages_are_steps_of_a_declared_workflow() {
    let home = home();
    let node = Node::start(home.path());
    deploy_declared(&node, home.path());
    let told = result(&node, "report", &json!({"text": "a bb ccc", "mark": "!"}));
    assert_eq!(told, json!({"bytes": "19\n", "words": ["A!", "BB!", "CCC!"], "first": "a"}));
    let run = last(&node, "report");
    let steps: Vec<(&Value, &Value)> =
        run["graph"].as_array().unwrap().iter().map(|step| (&step["function"], &step["needs"])).collect();
    let each = |name: &str, needs: Value| (json!(name), needs);
    let expected = [
        each("list", json!([])),
        each("shout", json!([0])),
        each("shout", json!([0])),
        each("shout", json!([0])),
        each("count", json!([1, 2, 3])),
    ];
    assert_eq!(steps, expected.iter().map(|(name, needs)| (name, needs)).collect::<Vec<_>>());
    // One that fails is named with what it said, and by way of a route, too.
    let answer = node.http("POST /report", br#"{"text": "good bad", "mark": ""}"#);
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("no such word"), "{answer}");
    assert!(answer.contains("shout, failed after 2 attempts"), "{answer}");
    let text = DECLARED.replace("list.words }}", "lst.words }}");
    std::fs::write(home.path().join("declared/sinew.toml"), text).unwrap();
    let refused = node.run(&["deploy", home.path().join("declared").to_str().unwrap()]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("step shout: each: there is no step `lst`; did you mean `list`?"), "{told}");
}

#[test]
fn a_declared_workflow_goes_on_where_it_was_when_the_node_is_killed() {
    let home = home();
    let node = Node::start(home.path());
    deploy_declared(&node, home.path());
    let id = begun(&node, "report", &json!({"text": "a b", "mark": "!", "seconds": 2}));
    wait_until(&node, &id, |run| done(run) == 1 && run["steps"]["running"] == 2);
    node.kill();
    let node = Node::start(home.path());
    let run = wait_until(&node, &id, is("succeeded"));
    assert_eq!((&run["steps"]["remembered"], &run["steps"]["done"]), (&json!(1), &json!(4)), "{run}");
    let got = kept_result(&node, &id);
    assert!(got.contains(r#""words":["A!","B!"]"#), "{got}");
}
