// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs;

use super::*;
use crate::test_thread::{is_root, on_own_thread};

fn link(kind: &str) -> String {
    fs::read_link(format!("/proc/thread-self/ns/{kind}")).unwrap().display().to_string()
}

#[test]
fn what_is_unshared_is_new_and_the_rest_is_not() {
    if !is_root() {
        return;
    }
    on_own_thread(|| {
        let before = [link("uts"), link("ipc"), link("net")];
        unshare(Namespaces::UTS.and(Namespaces::NET)).unwrap();
        let after = [link("uts"), link("ipc"), link("net")];
        assert_ne!((&before[0], &before[2]), (&after[0], &after[2]));
        assert_eq!(before[1], after[1]);
        set_host_name("elsewhere").unwrap();
        assert_eq!(fs::read_to_string("/proc/sys/kernel/hostname").unwrap(), "elsewhere\n");
    });
    assert_ne!(fs::read_to_string("/proc/sys/kernel/hostname").unwrap(), "elsewhere\n");
}

#[test]
fn the_namespaces_of_a_process_are_entered() {
    if !is_root() {
        return;
    }
    on_own_thread(|| {
        let home = link("uts");
        unshare(Namespaces::UTS).unwrap();
        assert_ne!(link("uts"), home);
        let main = crate::open_process(std::process::id()).unwrap();
        enter(std::os::fd::AsFd::as_fd(&main), Namespaces::UTS).unwrap();
        assert_eq!(link("uts"), home);
    });
}

#[test]
fn sets_are_the_kernels_bits() {
    let set = Namespaces::NET.and(Namespaces::PID).without(Namespaces::PID);
    assert_eq!(set, Namespaces::NET);
    assert_eq!(Namespaces::from_bits(u32::MAX).bits() & 0x100, 0, "memory cannot be asked for");
}

#[test]
fn the_session_keyring_is_new() {
    on_own_thread(|| {
        // SAFETY: the call takes three numbers, and only answers.
        let serial = || unsafe { libc::syscall(libc::SYS_keyctl, 0, -3, 1) };
        let before = serial();
        leave_session_keyring().unwrap();
        // A kernel without keyrings answers both with an error.
        assert!(before < 0 || serial() != before);
    });
}
