// SPDX-License-Identifier: Apache-2.0

use super::*;

fn text(told: Told, seconds: u64) -> String {
    evaluation_text(told, Duration::from_secs(seconds))
}

#[test]
fn a_loop_is_shown_to_run() {
    assert_eq!(text(Told::default(), 3), "1 running");
    assert_eq!(text(Told { waiting: 3, ..Told::default() }, 0), "3 waiting");
}

#[test]
fn what_is_done_of_what_is_known_is_shown_with_its_rate() {
    let told = Told { applied: 12_000, waiting: 3, known: 20_480, done: 12_010, memo_hits: 14 };
    assert_eq!(text(told, 4), "12,010 of 20,480 done, 12,000 applied (3,000/s), 14 remembered, 3 waiting");
    // Of less than a second, and of less than one a second, no rate is told.
    assert_eq!(text(Told { applied: 5, ..Told::default() }, 0), "5 applied, 1 running");
    assert_eq!(text(Told { applied: 5, ..Told::default() }, 9), "5 applied, 1 running");
}

#[test]
fn time_is_told_in_seconds_and_minutes() {
    assert_eq!(elapsed_text(Duration::from_millis(59_900)), "59 s");
    assert_eq!(elapsed_text(Duration::from_secs(61)), "1 min 1 s");
}
