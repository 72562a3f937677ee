// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn a_promised_peer_that_does_not_run_is_an_error() {
    let mut report = Report::new("some", true, true, Options::default());
    assert_eq!(report.peer("Mule", || Ok(3)), Some(3));
    report.complete().unwrap();
    assert_eq!(report.peer("Ray", || -> anyhow::Result<u32> { anyhow::bail!("no network") }), None);
    let error = report.complete().unwrap_err().to_string();
    assert!(error.contains("Ray (no network)") && !error.contains("Mule"), "{error}");
}

#[test]
fn peers_may_be_left_out() {
    let mut report = Report::new("some", true, false, Options::default());
    assert_eq!(report.peer("Ray", || -> anyhow::Result<u32> { panic!("it was run") }), None);
    report.complete().unwrap();
}

#[test]
fn a_part_that_failed_is_an_error_at_the_end() {
    let mut report = Report::new("some", true, true, Options::default());
    report.failed("the third", &anyhow::anyhow!("no memory"));
    report.add("the_fourth_ms", 4.0, "ms", "the fourth", 1);
    let error = report.complete().unwrap_err().to_string();
    assert!(error.contains("the third (no memory)"), "{error}");
}
