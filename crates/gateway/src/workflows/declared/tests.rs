// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn read(steps: Value) -> Result<Declaration, String> {
    Declaration::read(json!({"steps": steps}).to_string().as_bytes())
}

fn refused(steps: Value) -> String {
    read(steps).unwrap_err()
}

fn names(declaration: &Declaration) -> Vec<&str> {
    declaration.steps.iter().map(|step| step.name.as_str()).collect()
}

#[test]
fn steps_come_after_those_that_they_need() {
    let declaration = read(json!({
        "a-join": {"with": {"all": "{{ resize }}", "title": "{{ event.title }}"}, "after": ["notify"]},
        "list": {"call": "lister:canary"},
        "notify": {"when": "{{ list.is_new }}", "with": "new"},
        "resize": {"each": "{{ list.images }}", "with": {"image": "{{ item }}", "at": "{{ index }}"}, "retries": 2},
    }))
    .unwrap();
    assert_eq!(names(&declaration), ["list", "notify", "resize", "a-join"]);
    let needs: Vec<&[usize]> = declaration.steps.iter().map(|step| step.needs.as_slice()).collect();
    let mut last = needs[3].to_vec();
    last.sort_unstable();
    assert_eq!((&needs[..3], last.as_slice()), (&[&[][..], &[0], &[0]][..], &[1, 2][..]));
    assert_eq!(
        (declaration.steps[0].call.as_str(), declaration.steps[2].call.as_str()),
        ("lister:canary", "resize")
    );
    assert_eq!(declaration.steps[2].options.retries, 2);
    // What nobody needs is the result, whatever its place was.
    let mut result = Vec::new();
    declaration.result.visit(&mut |reference| result.push(reference.root));
    assert_eq!(result, [Root::Step(3)]);
}

#[test]
fn what_several_return_that_nobody_needs_is_an_object() {
    let declaration = read(json!({"a": {}, "b": {}})).unwrap();
    let Template::Object(members) = &declaration.result else { panic!("{:?}", declaration.result) };
    let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn what_is_wrong_is_told_with_the_step() {
    let told = refused(json!({"list": {}, "resize": {"with": "{{ lsit }}"}}));
    assert_eq!(told, "step resize: with: there is no step `lsit`; did you mean `list`?");
    assert!(
        refused(json!({"a": {"with": "{{ b }}"}, "b": {"after": ["a"]}, "c": {}}))
            .contains("wait for each other, or for one that does: a, b")
    );
    assert!(refused(json!({"a": {"with": "{{ a }}"}})).contains("wait for each other"));
    assert!(refused(json!({"a": {"each": "{{ item }}"}})).contains("beside `each`"));
    assert!(refused(json!({"a": {"with": "{{ item }}"}})).contains("beside `each`"));
    assert!(refused(json!({"a": {"after": ["event"]}})).contains("is no step"));
    assert!(refused(json!({"a": {"retries": 101}})).contains("retries is 101"));
    assert!(refused(json!({"a": {"timeout_ms": 0}})).contains("timeout_ms is 0"));
    assert!(refused(json!({"a": {"wiht": 1}})).contains("wiht"));
    assert!(refused(json!({})).contains("1 to 250"));
    for name in ["event", "item", "index", "", "1", "a b", "a.b"] {
        assert!(refused(json!({name: {"call": "a"}})).contains("a step's name"), "{name}");
    }
    for call in ["", "A", "a/b", "a:", ":a", "@steps", "a:b:c"] {
        assert!(refused(json!({"a": {"call": call}})).contains("no function's name"), "{call}");
    }
    let result = Declaration::read(br#"{"steps": {"a": {}}, "result": "{{ b }}"}"#).unwrap_err();
    assert!(result.starts_with("result: there is no step `b`"), "{result}");
    let many = (0..251).map(|number| (format!("s{number}"), json!({}))).collect();
    assert!(refused(Value::Object(many)).contains("251"));
    assert!(Declaration::read(&vec![b' '; DECLARATION_BYTES_MAX + 1]).unwrap_err().contains("bytes"));
}

proptest! {
    /// Whatever steps need of each other: either all are in an order, or some wait for each other.
    #[test]
    fn orders_are_orders(needs in proptest::collection::vec(proptest::collection::vec(0_usize..12, 0..4), 1..12)) {
        let count = needs.len();
        let steps = needs.iter().enumerate().map(|(at, needs)| {
            let after: Vec<String> = needs.iter().map(|need| format!("s{}", need % count)).collect();
            (format!("s{at}"), json!({"after": after}))
        });
        match read(Value::Object(steps.collect())) {
            Ok(declaration) => {
                prop_assert_eq!(declaration.steps.len(), count);
                for (at, step) in declaration.steps.iter().enumerate() {
                    prop_assert!(step.needs.iter().all(|need| *need < at));
                }
            }
            Err(why) => prop_assert!(why.contains("wait for each other")),
        }
    }

    #[test]
    fn rubbish_is_refused_and_nothing_more(text in ".{0,200}") {
        let _ = Declaration::read(text.as_bytes());
    }
}
