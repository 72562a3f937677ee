// SPDX-License-Identifier: Apache-2.0
//! Affinity as the kernel reports it back.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::io::ErrorKind;

use super::{
    ProcessorTime, available_cpus, current_cpu, lower_priority, niceness, pin_to_cpu, processor_time,
    set_niceness, time_of,
};

#[test]
fn a_pinned_thread_runs_on_that_cpu_only() {
    let cpus = available_cpus().unwrap();
    assert!(!cpus.is_empty());
    for &cpu in &cpus {
        let seen = std::thread::spawn(move || {
            pin_to_cpu(cpu).unwrap();
            (available_cpus().unwrap(), current_cpu())
        });
        assert_eq!(seen.join().unwrap(), (vec![cpu], cpu));
    }
}

#[test]
fn an_absent_cpu_is_refused() {
    for cpu in [1023, 1024, usize::MAX] {
        assert_eq!(pin_to_cpu(cpu).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn a_thread_lowers_its_own_priority_and_no_other_s() {
    let before = niceness().unwrap();
    let lowered = std::thread::spawn(move || {
        lower_priority(3).unwrap();
        let lowered = niceness().unwrap();
        // To take it back takes a right.
        let is_back = set_niceness(before).is_ok();
        assert_eq!(niceness().unwrap(), if is_back { before } else { lowered });
        lowered
    });
    assert_eq!(lowered.join().unwrap(), (before + 3).min(19));
    assert_eq!(niceness().unwrap(), before);
}

#[test]
fn processors_are_counted_that_may_be_used() {
    let text = "cpu  100 0 100 900 100 0 0 0 50 0\ncpu0 10 1 20 300 5 1 2 3 7 0\ncpu1 90 0 80 600 95 0 0 0 43 0\nintr 5\n";
    assert_eq!(time_of(text, &[0]), Some(ProcessorTime { idle: 305, all: 342 }));
    assert_eq!(time_of(text, &[0, 1]), Some(ProcessorTime { idle: 1000, all: 1207 }));
    for none in ["", "cpu 1 2 3 4 5", "cpu0 1 2", "cpu0 a b c d e", "intr 0 1"] {
        assert_eq!(time_of(none, &[0, 1]), None, "{none}");
    }
    let now = processor_time().unwrap();
    assert!(now.idle <= now.all);
}
