// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::disallowed_methods, unsafe_code)]

use super::*;
use crate::call_number;
use crate::test_thread::on_own_thread;

fn call(name: &str) -> u32 {
    u32::try_from(call_number(name).unwrap()).unwrap()
}

/// What `lseek` of no descriptor with these offset and whence answers, under a
/// filter that refuses with 71 what the tests find, and with 72 `getppid`
/// behind it.
fn errno_of(tests: &[ArgumentTest], offset: u64) -> (i32, i32) {
    let rules = [
        ProfileRule { call: call("lseek"), all_of: tests.to_vec(), answer: ProfileAnswer::Refuse(71) },
        ProfileRule { call: call("getppid"), all_of: Vec::new(), answer: ProfileAnswer::Refuse(72) },
    ];
    let filter = SyscallFilter::of_profile(&rules, ProfileAnswer::Allow).unwrap();
    let mut found = (0, 0);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            crate::forbid_new_privileges().unwrap();
            filter.install().unwrap();
            // SAFETY: calls that take numbers only.
            let first = unsafe { libc::syscall(libc::SYS_lseek, -1, offset, 0) };
            assert_eq!(first, -1);
            let first = io::Error::last_os_error().raw_os_error().unwrap();
            // SAFETY: as above.
            let second = unsafe { libc::syscall(libc::SYS_getppid) };
            assert_eq!(second, -1);
            (first, io::Error::last_os_error().raw_os_error().unwrap())
        });
        found = asked.join().unwrap();
    });
    found
}

const BAD_DESCRIPTOR: i32 = 9;

#[test]
fn whole_arguments_are_compared() {
    use Comparison::*;
    let middle = 0x5_0000_0007_u64;
    let around = [0, 6, 7, 8, 0x5_0000_0006, middle, 0x5_0000_0008, 0x6_0000_0000, u64::MAX];
    for value in around {
        let cases = [
            (Equal, value == middle),
            (NotEqual, value != middle),
            (Less, value < middle),
            (LessOrEqual, value <= middle),
            (Greater, value > middle),
            (GreaterOrEqual, value >= middle),
            (MaskedEqual(0xf_0000_000f), value & 0xf_0000_000f == middle),
        ];
        for (comparison, holds) in cases {
            let test = ArgumentTest { index: 1, comparison, value: middle };
            let expected = if holds { 71 } else { BAD_DESCRIPTOR };
            assert_eq!(errno_of(&[test], value), (expected, 72), "{value:#x} {comparison:?}");
            // A second test that holds changes nothing, one that does not, all.
            let whence = |value| ArgumentTest { index: 2, comparison: Equal, value };
            assert_eq!(errno_of(&[test, whence(0)], value), (expected, 72));
            assert_eq!(errno_of(&[whence(1), test], value), (BAD_DESCRIPTOR, 72));
        }
    }
}

#[test]
fn the_first_rule_that_fits_decides() {
    on_own_thread(|| {
        let rule = |answer| ProfileRule { call: call("getsid"), all_of: Vec::new(), answer };
        let rules = [rule(ProfileAnswer::Refuse(71)), rule(ProfileAnswer::Allow)];
        crate::forbid_new_privileges().unwrap();
        SyscallFilter::of_profile(&rules, ProfileAnswer::Allow).unwrap().install().unwrap();
        // SAFETY: a call that takes a number only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_getsid, 0) }, -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(71));
    });
}

#[test]
fn a_seventh_argument_is_refused() {
    let test = ArgumentTest { index: 6, comparison: Comparison::Equal, value: 0 };
    let rule = ProfileRule { call: 0, all_of: vec![test], answer: ProfileAnswer::Allow };
    assert!(SyscallFilter::of_profile(&[rule], ProfileAnswer::Allow).is_err());
}
