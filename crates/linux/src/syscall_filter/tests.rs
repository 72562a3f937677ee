// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use super::*;
use crate::call_number;
use crate::test_thread::on_own_thread;

fn rule(name: &str, verdict: Verdict) -> Rule {
    Rule::always(call_number(name).unwrap(), verdict)
}

fn errno(done: i64) -> i32 {
    if done >= 0 { 0 } else { io::Error::last_os_error().raw_os_error().unwrap() }
}

#[test]
fn verdicts_are_carried_out() {
    on_own_thread(|| {
        let number = call_number("socket").unwrap();
        let unix = Argument { index: 0, mask: u32::MAX, value: 1 };
        let rules = [
            rule("getppid", Verdict::Refuse(71)),
            rule("getpgid", Verdict::Refuse(72)),
            Rule::depending(number, &[unix], Verdict::Allow, Verdict::Refuse(73)),
        ];
        let filter = SyscallFilter::new(&rules, Verdict::Allow).unwrap();
        let carried = SyscallFilter::from_bytes(filter.bytes()).unwrap();
        crate::forbid_new_privileges().unwrap();
        carried.install().unwrap();
        // SAFETY: calls that take numbers only.
        unsafe {
            assert_eq!(errno(libc::syscall(libc::SYS_getppid)), 71);
            assert_eq!(errno(libc::syscall(libc::SYS_getpgid, 0)), 72);
            assert_eq!(errno(libc::syscall(libc::SYS_getsid, 0)), 0);
            assert_eq!(errno(libc::syscall(libc::SYS_socket, 2, 1, 0)), 73);
            assert_eq!(errno(libc::syscall(libc::SYS_socket, 1, 1, 0)), 0);
        }
    });
}

#[test]
fn other_abis_are_refused() {
    on_own_thread(|| {
        let filter = SyscallFilter::new(&[rule("getppid", Verdict::Refuse(1))], Verdict::Allow).unwrap();
        // The kernel's architecture is looked at first, then the call.
        assert_eq!(&filter.bytes()[4..8], &4u32.to_ne_bytes());
        let refusing = SyscallFilter::new(&[], Verdict::Refuse(38)).unwrap();
        assert_eq!(refusing.bytes().len() % 8, 0);
    });
}

#[test]
fn nonsense_is_no_filter() {
    for bytes in [&[][..], &[0; 7], &[0; 8 * 4097]] {
        assert!(SyscallFilter::from_bytes(bytes).is_err());
    }
    on_own_thread(|| {
        crate::forbid_new_privileges().unwrap();
        assert!(SyscallFilter::from_bytes(&[0xff; 16]).unwrap().install().is_err());
    });
    let many = vec![rule("read", Verdict::Allow); 3000];
    assert!(SyscallFilter::new(&many, Verdict::Allow).is_err());
    assert!(has_syscall_filters());
}
