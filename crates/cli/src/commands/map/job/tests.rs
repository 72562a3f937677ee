// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use super::*;

fn made(path: &str, kind: u8, text: &str) -> Made {
    Made { path: path.as_bytes().to_vec(), kind, handle: Handle::blob(text.as_bytes()) }
}

#[test]
fn what_two_files_made_at_one_path_is_a_conflict_of_both() {
    let mut outputs = Outputs::default();
    let first = [made("log", b'f', "the same"), made("a.o", b'f', "one"), made("empty", b'd', "")];
    assert_eq!(outputs.take(&first, 0).unwrap(), first);
    let second = [made("log", b'f', "the same"), made("a.o", b'f', "two"), made("b.o", b'f', "three")];
    assert_eq!(outputs.take(&second, 1).unwrap(), [second[0].clone(), second[2].clone()]);
    assert_eq!(outputs.conflicts, [(b"a.o".to_vec(), 0, 1)]);
    for owner in 2..100 {
        outputs.take(&[made("a.o/below", b'f', "x")], owner).unwrap();
    }
    assert_eq!((outputs.conflicting, outputs.conflicts.len()), (99, CONFLICTS_MAX));
}

#[test]
fn only_what_is_missing_is_sent_and_only_the_busy_are_asked_again() {
    let problem = |status, text: &str| -> anyhow::Error {
        Stop::from_problem(status, serde_json::from_str(text).unwrap()).into()
    };
    let missing =
        problem(404, r#"{"type": "urn:sinew:failure-missing-data", "failure": {"code": "missing-data"}}"#);
    let busy = problem(503, r#"{"type": "urn:sinew:busy", "title": "busy"}"#);
    let trap = problem(422, r#"{"type": "urn:sinew:failure-trap", "failure": {"code": "trap"}}"#);
    assert_eq!([&missing, &busy, &trap].map(is_unknown), [true, false, false]);
    assert_eq!([&missing, &busy, &trap].map(is_busy), [false, true, false]);
}
