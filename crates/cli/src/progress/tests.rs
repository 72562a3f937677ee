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

#[test]
fn files_are_told_with_their_rate_and_the_time_left() {
    let tally = Tally { all: 5_000, done: 1_200, remembered: 1_100, failed: 2 };
    assert_eq!(tally_text(tally, Some(20.0)), "1,100 remembered, 2 failed, 20/s, 3 min 10 s left");
    assert_eq!(tally_text(Tally { all: 3, ..Tally::default() }, None), "begun");
    assert_eq!(tally_text(Tally { all: 30, done: 1, ..Tally::default() }, Some(0.5)), "0.5/s, 58 s left");
}

#[test]
fn the_pace_is_that_of_late() {
    let mut pace = Pace::default();
    let second = Duration::from_secs;
    assert_eq!(pace.per_second(), None);
    // A thousand that are remembered, at once, and then one a second.
    pace.see(0, second(0));
    pace.see(1_000, second(1));
    assert_eq!(pace.per_second(), Some(1_000.0));
    for after in 2..60 {
        pace.see(998 + after, second(after));
    }
    let lately = pace.per_second().unwrap();
    assert!((0.9..1.1).contains(&lately), "{lately}");
    assert!(pace.seen.len() < 30, "what is older is forgotten");
}
