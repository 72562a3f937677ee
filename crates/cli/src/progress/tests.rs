// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn a_loop_is_shown_to_run() {
    assert_eq!(evaluation_text(0, 0), "1 running");
    assert_eq!(evaluation_text(12_000, 0), "12,000 applied, 1 running");
    assert_eq!(evaluation_text(0, 3), "3 waiting");
    assert_eq!(evaluation_text(5, 3), "5 applied, 3 waiting");
}

#[test]
fn time_is_told_in_seconds_and_minutes() {
    assert_eq!(elapsed_text(Duration::from_millis(59_900)), "59 s");
    assert_eq!(elapsed_text(Duration::from_secs(61)), "1 min 1 s");
}
