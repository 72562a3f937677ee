// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs;

use super::*;
use crate::test_thread::{is_root, on_own_thread};

fn status(name: &str) -> String {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t")).unwrap().to_owned()
}

#[test]
fn nothing_is_left_of_root() {
    if !is_root() {
        return;
    }
    on_own_thread(|| {
        drop_bounding_set().unwrap();
        assert_eq!(status("CapBnd"), "0000000000000000");
        become_user(70_001, 70_002, true).unwrap();
        assert_eq!(status("Uid"), "70001\t70001\t70001\t70001");
        assert_eq!(status("Gid"), "70002\t70002\t70002\t70002");
        assert_eq!(status("Groups").trim(), "");
        keep_capabilities(0).unwrap();
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(status(set), "0000000000000000", "{set}");
        }
        assert_eq!(capabilities().unwrap(), 0);
        assert!(become_user(0, 0, false).is_err(), "there is no way back");
    });
}

#[test]
fn some_capabilities_are_kept() {
    if !is_root() {
        return;
    }
    on_own_thread(|| {
        keep_capabilities(1 << 5).unwrap();
        assert_eq!(capabilities().unwrap(), 1 << 5);
        keep_capabilities(u64::MAX).unwrap();
        assert_eq!(capabilities().unwrap(), 1 << 5, "none comes back");
    });
}

#[test]
fn new_privileges_are_forbidden_for_the_thread() {
    on_own_thread(|| {
        assert_eq!(status("NoNewPrivs"), "0");
        forbid_new_privileges().unwrap();
        assert_eq!(status("NoNewPrivs"), "1");
    });
}

/// Limits and dumping are the process's, so that a program of its own shows them.
#[test]
fn limits_are_set_and_never_raised() {
    let core = rustix::process::getrlimit(Resource::Core);
    set_process_limits(&ProcessLimits { queue_bytes: Some(4096), ..ProcessLimits::default() }).unwrap();
    set_process_limits(&ProcessLimits { queue_bytes: Some(1 << 20), ..ProcessLimits::default() }).unwrap();
    let queue = rustix::process::getrlimit(Resource::Msgqueue);
    assert_eq!((queue.current, queue.maximum), (Some(4096), Some(4096)));
    assert_eq!(rustix::process::getrlimit(Resource::Core), core, "what is not named stays");
}
