// SPDX-License-Identifier: Apache-2.0
//! The test vectors of `docs/spec/evaluation.md`, by the evaluator and by the
//! naive one.

use objects::{Handle, TreeBuilder};
use serde_json::Value;

use super::host::World;
use super::machine::{Machine, evaluate_on_threads};
use super::reference::Reference;

const VECTORS: &str = include_str!("../../../../docs/spec/vectors/evaluation.json");

fn handle(value: &Value) -> Handle {
    value.as_str().expect("handles are text").parse().expect("handles are well-formed")
}

/// Stores what a case gives, checking every handle.
fn give(world: &World, case: &Value) {
    for object in case["objects"].as_array().unwrap() {
        let made = match (object["blob"].as_str(), object["tree"].as_array()) {
            (Some(hex), None) => {
                let digits: Vec<char> = hex.chars().collect();
                let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
                world.blob(&digits.chunks(2).map(byte).collect::<Vec<u8>>())
            }
            (None, Some(entries)) => world.tree(&entries.iter().map(handle).collect::<Vec<_>>()),
            _ => panic!("an object is a blob or a tree"),
        };
        assert_eq!(made, handle(&object["handle"]), "{}", case["name"]);
    }
}

fn check(world: &World, case: &Value, result: Handle, by: &str) {
    let name = &case["name"];
    if let Some(failure) = case.get("failure") {
        let (given, _) = world.explain(result);
        assert_eq!(given.code.as_str(), failure["code"].as_str().unwrap(), "{name} by {by}");
        assert_eq!(given.application, handle(&failure["application"]), "{name} by {by}");
    } else {
        assert_eq!(result, handle(&case["result"]), "{name} by {by}");
    }
}

#[test]
fn the_vectors_hold() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert!(cases.len() >= 100);
    for case in cases {
        let goal = handle(&case["goal"]);
        let applications = case["applications"].as_u64().unwrap() as usize;

        let mut machine = Machine::new();
        give(&machine.world, case);
        let result = machine.evaluate(goal);
        check(&machine.world, case, result, "one worker");
        assert_eq!(machine.world.counts().total(), applications, "{}", case["name"]);
        // A second time nothing runs, whatever came out.
        let again = machine.evaluate(goal);
        check(&machine.world, case, again, "memory");
        assert_eq!(machine.world.counts().total(), applications, "{}", case["name"]);

        let world = World::new();
        give(&world, case);
        for result in evaluate_on_threads(&world, 2, &[goal, goal]) {
            check(&world, case, result, "two workers");
        }

        let world = World::new();
        give(&world, case);
        let mut reference = Reference::new(&world);
        let result = reference.evaluate(goal);
        check(&world, case, result, "the reference");
        assert_eq!(reference.applied.len(), applications, "{}", case["name"]);
    }
}

#[test]
fn the_worked_example_of_the_specification_holds() {
    let text = include_str!("../../../../docs/spec/evaluation.md");
    // `name = handle` lines of the first fenced block.
    let block = text.split("```").nth(1).unwrap();
    let named = |name: &str| -> Handle {
        let line = block.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.and_then(|line| line.split_whitespace().nth(2)).expect(name).parse().expect(name)
    };
    let world = World::new();
    let limits = Handle::blob(b"");
    let add = Handle::blob(b"add");
    let (one, two, three) = (Handle::u64(1), Handle::u64(2), Handle::u64(3));
    let inner = world.tree(&[limits, add, two, three]);
    let outer = world.tree(&[limits, add, one, inner.application().unwrap().strict().unwrap()]);
    let resolved: TreeBuilder = [limits, add, one, Handle::u64(5)].into_iter().collect();
    let expected = [
        ("inner", inner),
        ("outer", outer),
        ("goal", outer.application().unwrap().strict().unwrap()),
        ("resolved", resolved.view().handle()),
        ("result", Handle::u64(6)),
    ];
    for (name, handle) in expected {
        assert_eq!(named(name), handle, "{name}");
    }
    let mut machine = Machine::over(world, super::machine::scheduler(1));
    assert_eq!(machine.evaluate(named("goal")), named("result"));
    // The relations that the text lists.
    for (key, result) in [
        (inner.application().unwrap(), Handle::u64(5)),
        (outer.application().unwrap(), named("resolved").application().unwrap()),
        (named("resolved").application().unwrap(), named("result")),
        (named("goal"), named("result")),
    ] {
        assert_eq!(machine.world.relation(key).unwrap().0, result);
    }
}
