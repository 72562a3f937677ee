// SPDX-License-Identifier: Apache-2.0
//! Native functions that hand each other memory: trees with pointers, which the steps of a
//! declared workflow make and map.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::functions::is_root;
use super::workflows::{begun, done, is, kept_result, last, result, wait_until};
use super::{Node, home};

/// The functions of memory.c, each with its own name.
fn manifest() -> String {
    let native = |name: &str, values: &str| {
        format!(
            "[functions.{name}]\nruntime = \"executable\"\nmode = \"native\"\nhandler = \"memory\"\nmemory = \"64 MiB\"\n{values}\n"
        )
    };
    let all = ["make", "forge", "look", "merge", "outside"].map(|name| native(name, "values = \"map\""));
    all.concat() + &native("blind", "") + WORKFLOWS
}

const WORKFLOWS: &str = r#"
[functions.tree]
runtime = "workflow"
result = ["{{ first }}", "{{ second }}"]
[functions.tree.steps.make]
with = "{{ event.text }}"
[functions.tree.steps.first]
call = "look"
with = "{{ make }}"
[functions.tree.steps.second]
call = "look"
after = ["first"]
with = { one = "{{ make }}", note = "as {{ event.note? }}", again = ["{{ make }}"] }

[functions.many]
runtime = "workflow"
result = ["{{ look }}"]
[functions.many.steps.make]
each = "{{ event.texts }}"
[functions.many.steps.merge]
with = "{{ make }}"
[functions.many.steps.look]
with = { merged = "{{ merge }}", second = "{{ make[1] }}" }
[functions.many.steps.each]
call = "look"
each = "{{ make }}"

[functions.heavy]
runtime = "workflow"
[functions.heavy.steps.make]
[functions.heavy.steps.look]
with = "{{ make }}"

[functions.forged]
runtime = "workflow"
[functions.forged.steps.forge]
with = "{{ event.text }}"
[functions.forged.steps.look]
with = "{{ forge }}"

[functions.blinded]
runtime = "workflow"
[functions.blinded.steps.make]
[functions.blinded.steps.blind]
with = "{{ make }}"
retries = 3

[functions.bare]
runtime = "workflow"
[functions.bare.steps.make]

[functions.within]
runtime = "workflow"
[functions.within.steps.make]
[functions.within.steps.look]
with = "text: {{ make }}"

[functions.slow]
runtime = "executable"
mode = "stdin"
handler = "slow.sh"

[functions.lasting]
runtime = "workflow"
result = "{{ look }}"
[functions.lasting.steps.make]
with = "{{ event.text }}"
[functions.lasting.steps.slow]
after = ["make"]
[functions.lasting.steps.look]
after = ["slow"]
with = "{{ make }}"

[functions.lenient]
runtime = "workflow"
result = "{{ last }}"
[functions.lenient.steps.make]
with = "{{ event.text }}"
may-fail = true
[functions.lenient.steps.look]
with = "{{ make }}"
may-fail = true
[functions.lenient.steps.slow]
after = ["look"]
[functions.lenient.steps.last]
call = "look"
after = ["slow"]
with = "{{ make }}"

[functions.strange]
runtime = "workflow"
[functions.strange.steps.outside]
"#;

fn deployed(home: &Path) -> Option<Node> {
    if !is_root() {
        return None;
    }
    let node = Node::start(home);
    let folder = home.join("memory");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("sinew.toml"), manifest()).unwrap();
    std::fs::write(folder.join("memory.c"), include_str!("memory.c")).unwrap();
    std::fs::write(folder.join("slow.sh"), "#!/bin/sh\nsleep 2\n").unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder.join("slow.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    node.ok(&["sdk", "c", "--to", folder.to_str().unwrap()]);
    // As users compile it, in two parts; what is undefined ends the program.
    let flags = [
        "-std=gnu11",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
        "memory",
        "memory.c",
        "sinew.c",
        "-pthread",
    ];
    let more = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"];
    let compiled = Command::new("cc").args(flags).args(more).current_dir(&folder).status();
    assert!(compiled.unwrap().success());
    node.ok(&["deploy", folder.to_str().unwrap()]);
    Some(node)
}

/// What a run answers that ends with a look.
fn looked(node: &Node, workflow: &str, event: &Value) -> String {
    node.ok(&["invoke", workflow, "-d", &event.to_string()])
}

/// What a run that fails says.
fn failure(node: &Node, workflow: &str, event: &Value) -> String {
    let told = node.run(&["invoke", workflow, "-d", &event.to_string()]);
    assert!(!told.status.success(), "{workflow}");
    String::from_utf8_lossy(&told.stderr).into_owned()
}

#[test]
fn what_one_makes_others_map_where_it_is() {
    let home = home();
    let Some(node) = deployed(home.path()) else { return };
    let told = result(&node, "tree", &json!({"text": "the cat and the mat and the hat"}));
    let words = "application/x-words 5/8 the=3";
    // The same value twice is one; what the first one has written to it nobody sees.
    assert_eq!(told, json!([words, words]));
    let run = last(&node, "tree");
    let step = &run["graph"][0];
    assert_eq!((&step["function"], &step["is_mapped"]), (&json!("make"), &json!(true)), "{run}");
    assert!(step["result_bytes"].as_u64().unwrap() >= 4096, "{run}");
    let told = result(&node, "many", &json!({"texts": ["the one", "the other", "of the two"]}));
    assert_eq!(told[0], "application/x-words 5/7 the=3, application/x-words 2/2 the=1");
    assert_eq!(last(&node, "many")["steps"]["done"], 8);
}

#[test]
fn values_leave_no_memory_behind() {
    let home = home();
    let Some(node) = deployed(home.path()) else { return };
    // Each is charged to the process that made it, of which the limit is 64 MiB, for as long as it lives; and
    // what was mapped is mapped no more.
    for _ in 0..12 {
        let told = looked(&node, "heavy", &json!({"ballast": 20 << 20}));
        assert_eq!(told, "application/x-words 1/1 the=0");
    }
    let told = failure(&node, "heavy", &json!({"ballast": 200 << 20}));
    assert!(told.contains("no memory for ballast"), "{told}");
    assert_eq!(looked(&node, "heavy", &json!({"ballast": 1})), "application/x-words 1/1 the=0");
}

#[test]
fn memory_is_for_steps_that_map_it() {
    let home = home();
    let Some(node) = deployed(home.path()) else { return };
    // By any other way the function is told that it has none, and can answer otherwise.
    assert_eq!(node.ok(&["invoke", "make", "-d", "{}"]), "no memory");
    let event = json!({"text": "the end"});
    let told = failure(&node, "blinded", &event);
    assert!(told.contains("blind, version 1, is given memory of another step, and maps none"), "{told}");
    assert!(!told.contains("attempts"), "it is not tried again: {told}");
    let told = failure(&node, "bare", &event);
    assert!(told.contains("make returned is memory, which only steps can map"), "{told}");
    let told = failure(&node, "within", &event);
    assert!(told.contains("`make`: it is memory, which cannot be a part of a text"), "{told}");
    assert_eq!(looked(&node, "strange", &json!({})), "-22 -22 -22 -22 bounded");
}

#[test]
fn who_forges_a_value_harms_nobody() {
    let home = home();
    let Some(node) = deployed(home.path()) else { return };
    let told = failure(&node, "forged", &json!({"text": "the lie"}));
    assert!(
        told.contains("look, failed") && told.contains("a value cannot be mapped: Protocol error"),
        "{told}"
    );
    let told = result(&node, "tree", &json!({"text": "the truth"}));
    assert_eq!(told[0], "application/x-words 2/2 the=1");
}

/// Ends the node during the step `slow` of a workflow, of which so many others have ended; the run as it is when it has
/// gone on to the right result.
fn gone_on(workflow: &str, ended: u64) -> Option<Value> {
    let home = home();
    let node = deployed(home.path())?;
    let id = begun(&node, workflow, &json!({"text": "the long way of the word"}));
    wait_until(&node, &id, |run| done(run) == ended && run["steps"]["running"] == 1);
    node.kill();
    let node = Node::start(home.path());
    let run = wait_until(&node, &id, is("succeeded"));
    let got = kept_result(&node, &id);
    assert!(got.ends_with("application/x-words 5/6 the=2"), "{got} {run}");
    Some(run)
}

#[test]
fn a_run_that_goes_on_makes_its_memory_again() {
    let Some(run) = gone_on("lasting", 1) else { return };
    assert_eq!((&run["steps"]["remembered"], &run["steps"]["done"]), (&json!(0), &json!(3)), "{run}");
}

#[test]
fn a_step_that_was_given_memory_of_one_that_may_fail_is_made_again_too() {
    let Some(run) = gone_on("lenient", 2) else { return };
    assert_eq!((&run["steps"]["remembered"], &run["steps"]["done"]), (&json!(0), &json!(4)), "{run}");
}
