// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use clap::Parser as _;

use super::*;

/// A report of so many files, of which the first ones failed.
fn reported(all: u64, failed: u64, remembered: u64, check: impl FnOnce(&Report<'_>)) {
    let output =
        Output::new(&crate::arguments::Arguments::try_parse_from(["sinew", "version"]).unwrap().global);
    let mut report = Report::new(&[], false, &output);
    report.tally = Tally { all, done: all, remembered, failed };
    report.failures = (0..failed.min(REPEATED_MAX as u64)).map(|at| format!("{at}.c: exit code 1")).collect();
    check(&report);
}

#[test]
fn the_last_line_adds_up() {
    let took = Duration::from_millis(3210);
    reported(512, 1, 510, |report| {
        assert_eq!(report.summary(took), "512 files: 511 ok (1 run, 510 remembered), 1 failed in 3.21 s");
        let json = report.summary_json(took);
        assert_eq!((&json["ok"], &json["run"], &json["failed"]), (&511.into(), &1.into(), &1.into()));
    });
    reported(1, 0, 0, |report| {
        assert_eq!(report.summary(took), "1 file: 1 ok (1 run, 0 remembered) in 3.21 s");
        assert!(report.failure().is_none());
    });
}

#[test]
fn failures_are_listed_up_to_a_number() {
    reported(40, 12, 0, |report| {
        let stop = report.failure().unwrap();
        assert_eq!(stop.code, Code::Failure);
        assert!(stop.message.starts_with("12 of 40 files failed\n  0.c: exit code 1\n"), "{}", stop.message);
        assert!(stop.message.ends_with("  and 2 more"), "{}", stop.message);
    });
}
