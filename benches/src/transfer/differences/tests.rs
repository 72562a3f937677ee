// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn what_processes_tell_is_added() {
    let mut counts = Counts::default();
    let told = serde_json::json!({"transfers": 10, "mapped": 8, "wrong": 1, "processes that failed": 0});
    counts.add(&told).unwrap();
    counts.add(&told).unwrap();
    assert_eq!(counts, Counts { transfers: 20, mapped: 16, handed_on: 0, wrong: 2, processes_failed: 0 });
    assert!(counts.add(&serde_json::json!({"transfers": 10})).is_err());
}
