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
fn what_has_not_ended_is_known() {
    let mut output = TestOutput::default();
    for line in [
        "test slow has been running for over 60 seconds",
        "test deep::hangs has been running for over 60 seconds",
        "test slow ... ok",
    ] {
        output.look(line);
    }
    assert_eq!(output.running.into_iter().collect::<Vec<_>>(), ["deep::hangs"]);
}

#[test]
fn what_says_nothing_is_ended_with_what_it_has_started() {
    let mut lines = Vec::new();
    let mut shell = process::command("sh");
    // The one that is started last holds the pipe, and has another group.
    shell.args(["-c", "setsid sleep 600 & echo $!; wait"]);
    let begun = Instant::now();
    let result = process::watch(&mut shell, Duration::from_secs(1), |line| lines.push(line.to_owned()));
    assert!(result.unwrap_err().to_string().ends_with("printed nothing for 1.0 s, and was ended"));
    assert!(begun.elapsed() < Duration::from_secs(60));
    let [pid] = &lines[..] else { panic!("{lines:?}") };
    // Whoever it is given to may reap it later.
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let is_over = |state: &str| state.is_empty() || state.contains(") Z ");
    while !is_over(&state()) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", state());
        std::thread::sleep(Duration::from_millis(10));
    }
    let well = process::watch(&mut process::command("true"), Duration::from_secs(60), |_| ());
    assert!(well.unwrap());
}

#[test]
fn an_unlisted_skip_fails() {
    assert!(IGNORED.iter().all(|(name, reason)| !name.is_empty() && !reason.is_empty()));
}
