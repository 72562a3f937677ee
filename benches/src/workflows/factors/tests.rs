// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn time_in_which_two_steps_run_counts_once() {
    let step = |begun: u64, ended: u64| json!({"begun_us": begun, "ended_us": ended});
    let graph = json!({"graph": [step(30, 40), step(0, 10), step(5, 20), step(6, 7)]});
    assert_eq!(busy_us(&graph).unwrap(), 30.0);
    assert!(busy_us(&json!({"graph": [{"begun_us": 3}]})).is_err());
}
