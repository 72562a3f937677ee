// SPDX-License-Identifier: Apache-2.0
//! What the tests of several modules share: the vectors of the specification
//! and strategies that make handles. Also the tests that keep the text of the
//! specification and the code together.

#![allow(clippy::unwrap_used)]

pub(crate) mod strategies;
pub(crate) mod vectors;

use crate::FailureCode;
use vectors::{bytes, handle, list, string, vectors};

const SPECIFICATION: &str = include_str!("../../../docs/spec/objects.md");

#[test]
fn the_worked_example_is_what_the_text_says() {
    let example = &vectors()["example"];
    assert!(SPECIFICATION.contains(string(&example["module"])));
    for step in list(&example["handles"]) {
        assert!(SPECIFICATION.contains(string(&step["bytes"])), "{}", step["name"]);
        assert!(SPECIFICATION.contains(string(&step["text"])), "{}", step["name"]);
        assert_eq!(handle(&step["bytes"]).to_string(), string(&step["text"]), "{}", step["name"]);
    }
}

#[test]
fn the_worked_example_can_be_made() {
    let example = &vectors()["example"];
    let expected = |name: &str| {
        let step = list(&example["handles"]).iter().find(|step| step["name"] == name).unwrap();
        handle(&step["bytes"])
    };
    let limits = crate::Handle::blob(b"");
    let procedure = crate::Handle::blob(&bytes(&example["module"]));
    let argument = crate::Handle::blob(b"hi");
    let call: crate::TreeBuilder = [limits, procedure, argument].into_iter().collect();
    let tree = call.view().handle();
    let thunk = tree.application().unwrap();
    assert_eq!(
        [limits, procedure, argument],
        [expected("limits"), expected("procedure"), expected("argument")]
    );
    assert_eq!([tree, thunk], [expected("tree"), expected("thunk")]);
    assert_eq!(thunk.strict().unwrap(), expected("encode"));
}

#[test]
fn the_text_lists_every_failure_code() {
    for code in FailureCode::ALL {
        let row = SPECIFICATION.lines().find(|line| line.starts_with(&format!("| `{code}` |")));
        let answer = if code.is_deterministic() { "| yes |" } else { "| no |" };
        assert!(row.unwrap_or_else(|| panic!("no row for {code}")).ends_with(answer), "{code}");
    }
    let rows = SPECIFICATION.lines().filter(|line| line.ends_with("| yes |") || line.ends_with("| no |"));
    assert_eq!(rows.count(), FailureCode::ALL.len());
}
