// SPDX-License-Identifier: Apache-2.0
//! Affinity as the kernel reports it back.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::io::ErrorKind;

use super::{available_cpus, current_cpu, pin_to_cpu};

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
