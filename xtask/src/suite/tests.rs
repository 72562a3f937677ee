// SPDX-License-Identifier: Apache-2.0
//! Counting what `cargo test` prints.

use super::*;

#[test]
fn results_are_added_up() {
    let mut output = TestOutput::default();
    for line in [
        "running 3 tests",
        "test a ... ok",
        "test deep::b ... ignored, needs a device",
        "successes:",
        "---- bucket::moto::is_read stdout ----",
        "skipped: moto cannot be fetched",
        "",
        "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        "test result: FAILED. 40 passed; 3 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.25s",
    ] {
        output.look(line);
    }
    assert_eq!((output.passed, output.failed), (42, 3));
    assert_eq!(output.ignored, ["deep::b"]);
    assert_eq!(output.skipped, ["bucket::moto::is_read: moto cannot be fetched"]);
}

#[test]
fn why_tests_have_failed_is_told_again() {
    let mut output = TestOutput::default();
    for line in [
        "successes:",
        "---- expects_a_panic stdout ----",
        "thread 'expects_a_panic' panicked at a.rs:1:2:",
        "failures:",
        "---- fails stdout ----",
        "what a node tells",
        "thread 'fails' panicked at b.rs:3:4:",
        "left is not right",
        "failures:",
        "    fails",
        "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.25s",
        "thread 'of another step' panicked",
    ] {
        output.look(line);
    }
    let told = ["---- fails stdout ----", "thread 'fails' panicked at b.rs:3:4:", "left is not right"];
    assert_eq!(output.told, told);
}

#[test]
fn an_unlisted_skip_fails() {
    assert!(IGNORED.iter().all(|(name, reason)| !name.is_empty() && !reason.is_empty()));
}
