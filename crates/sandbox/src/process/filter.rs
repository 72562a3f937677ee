// SPDX-License-Identifier: Apache-2.0
//! Which system calls code in a container may make: a list of what CPython,
//! its libraries and ordinary programs need. The rest is refused.
//!
//! Calls that exist to change the machine, or that have let programs break
//! out of kernels before, get EPERM; those that are not named at all, and so
//! also every new one, get ENOSYS, on which libraries fall back to older ones.

use std::io;

use linux::{Argument, Rule, SyscallFilter, Verdict, call_number};

const EPERM: u16 = 1;
const ENOSYS: u16 = 38;
const EAFNOSUPPORT: u16 = 97;

/// What programs call all the time; tried first.
const FREQUENT: &[&str] = &[
    "read",
    "write",
    "futex",
    "openat",
    "close",
    "newfstatat",
    "fstat",
    "mmap",
    "munmap",
    "mprotect",
    "brk",
    "lseek",
    "recvmsg",
    "sendmsg",
    "poll",
    "epoll_wait",
    "clock_gettime",
    "madvise",
];

/// Allowed with any arguments.
const ALLOWED: &[&str] = &[
    "accept",
    "accept4",
    "bind",
    "capget",
    "chdir",
    "clock_getres",
    "clock_nanosleep",
    "close_range",
    "connect",
    "copy_file_range",
    "dup",
    "dup3",
    "epoll_create1",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_pwait2",
    "eventfd2",
    "execve",
    "execveat",
    "exit",
    "exit_group",
    "faccessat",
    "faccessat2",
    "fadvise64",
    "fallocate",
    "fchdir",
    "fchmod",
    "fchmodat",
    "fchown",
    "fchownat",
    "fcntl",
    "fdatasync",
    "flock",
    "fstatfs",
    "fsync",
    "ftruncate",
    "futex_waitv",
    "get_mempolicy",
    "get_robust_list",
    "getcpu",
    "getcwd",
    "getdents64",
    "getegid",
    "geteuid",
    "getgid",
    "getgroups",
    "getitimer",
    "getpeername",
    "getpgid",
    "getpid",
    "getppid",
    "getpriority",
    "getrandom",
    "getresgid",
    "getresuid",
    "getrlimit",
    "getrusage",
    "getsid",
    "getsockname",
    "getsockopt",
    "gettid",
    "gettimeofday",
    "getuid",
    "getxattr",
    "inotify_add_watch",
    "inotify_init1",
    "inotify_rm_watch",
    "kill",
    "lgetxattr",
    "linkat",
    "listen",
    "listxattr",
    "llistxattr",
    "mbind",
    "membarrier",
    "memfd_create",
    "mincore",
    "mkdirat",
    "mlock",
    "mlock2",
    "mremap",
    "msync",
    "munlock",
    "nanosleep",
    "openat2",
    "pidfd_open",
    "pidfd_send_signal",
    "pipe2",
    "pkey_alloc",
    "pkey_free",
    "pkey_mprotect",
    "ppoll",
    "pread64",
    "preadv",
    "preadv2",
    "prlimit64",
    "pselect6",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "readahead",
    "readlinkat",
    "readv",
    "recvfrom",
    "recvmmsg",
    "renameat",
    "renameat2",
    "restart_syscall",
    "rseq",
    "rt_sigaction",
    "rt_sigpending",
    "rt_sigprocmask",
    "rt_sigqueueinfo",
    "rt_sigreturn",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "rt_tgsigqueueinfo",
    "sched_get_priority_max",
    "sched_get_priority_min",
    "sched_getaffinity",
    "sched_getattr",
    "sched_getparam",
    "sched_getscheduler",
    "sched_rr_get_interval",
    "sched_setaffinity",
    "sched_yield",
    "semctl",
    "semget",
    "semop",
    "semtimedop",
    "sendfile",
    "sendmmsg",
    "sendto",
    "set_robust_list",
    "set_tid_address",
    "setitimer",
    "setpgid",
    "setpriority",
    "setrlimit",
    "setsid",
    "setsockopt",
    "shmat",
    "shmctl",
    "shmdt",
    "shmget",
    "shutdown",
    "sigaltstack",
    "signalfd4",
    "splice",
    "statfs",
    "statx",
    "symlinkat",
    "sync_file_range",
    "sysinfo",
    "tee",
    "tgkill",
    "timer_create",
    "timer_delete",
    "timer_getoverrun",
    "timer_gettime",
    "timer_settime",
    "timerfd_create",
    "timerfd_gettime",
    "timerfd_settime",
    "times",
    "tkill",
    "truncate",
    "umask",
    "uname",
    "unlinkat",
    "utimensat",
    "wait4",
    "waitid",
    "writev",
    "access",
    "alarm",
    "arch_prctl",
    "chmod",
    "chown",
    "creat",
    "dup2",
    "epoll_create",
    "eventfd",
    "fork",
    "getdents",
    "getpgrp",
    "inotify_init",
    "lchown",
    "link",
    "lstat",
    "mkdir",
    "open",
    "pause",
    "pipe",
    "readlink",
    "rename",
    "rmdir",
    "select",
    "signalfd",
    "stat",
    "symlink",
    "time",
    "unlink",
    "utime",
    "utimes",
    "vfork",
];

/// Refused with EPERM, because programs do not take ENOSYS for an answer, or
/// should tell the reader of a log that it was forbidden.
const FORBIDDEN: &[&str] = &[
    "acct",
    "add_key",
    "adjtimex",
    "bpf",
    "chroot",
    "clock_adjtime",
    "clock_settime",
    "delete_module",
    "fanotify_init",
    "fanotify_mark",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "init_module",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "lookup_dcookie",
    "mount",
    "mount_setattr",
    "move_mount",
    "move_pages",
    "name_to_handle_at",
    "open_by_handle_at",
    "open_tree",
    "perf_event_open",
    "personality",
    "pidfd_getfd",
    "pivot_root",
    "process_madvise",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "quotactl",
    "reboot",
    "request_key",
    "seccomp",
    "setdomainname",
    "setgid",
    "setgroups",
    "sethostname",
    "setns",
    "setregid",
    "setresgid",
    "setresuid",
    "setreuid",
    "settimeofday",
    "setuid",
    "swapoff",
    "swapon",
    "syslog",
    "umount2",
    "unshare",
    "userfaultfd",
    "vhangup",
    "ioperm",
    "iopl",
    "modify_ldt",
];

/// Every flag of `clone` that makes a namespace.
const NEW_NAMESPACES: [u32; 7] =
    [0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];
/// `ioctl`s that type into a terminal as if its user did.
const TERMINAL_INPUT: [u32; 2] = [0x5412, 0x541c];
/// What a process may say of itself by `prctl`: the death signal, whether it
/// dumps, its name, timer slack, no new privileges, huge pages, names of
/// memory; and reading the rest.
const ABOUT_ITSELF: [u32; 17] = [1, 2, 3, 4, 7, 15, 16, 21, 23, 27, 29, 30, 38, 39, 40, 42, 0x5356_4d41];
/// What a child of a template in a realm enters, and gives up.
const FORKING: &[&str] =
    &["setns", "capset", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"];
/// What it gives up by `prctl`: calls, capabilities that could come back, and
/// those that are handed on.
const GIVING_UP: [u32; 3] = [22, 24, 47];
/// Of `mknod`: pipes, plain files and sockets.
const PLAIN_NODES: [u32; 4] = [0, 0x1000, 0x8000, 0xc000];
/// The type of a file within its mode.
const NODE_TYPE: u32 = 0xf000;
/// Unix and the internet's two.
const FAMILIES: [u32; 3] = [1, 2, 10];

/// The filter of every container.
///
/// # Errors
/// If the kernel would not take it for its length.
pub(super) fn program_filter() -> io::Result<SyscallFilter> {
    let mut rules = always(FREQUENT, Verdict::Allow);
    rules.extend(by_argument());
    rules.extend(always(ALLOWED, Verdict::Allow));
    rules.extend(always(FORBIDDEN, Verdict::Refuse(EPERM)));
    SyscallFilter::new(&rules, Verdict::Refuse(ENOSYS))
}

/// What a template in a realm does besides: it forks instances into containers,
/// where they confine themselves. It may become users of containers, and no other.
///
/// # Errors
/// If the kernel would not take it for its length.
pub(super) fn template_filter(users: Argument) -> io::Result<SyscallFilter> {
    let (allow, forbid) = (Verdict::Allow, Verdict::Refuse(EPERM));
    let only = |name, any_of: &[Argument]| {
        call_number(name).map(|call| Rule::depending(call, any_of, allow, forbid))
    };
    let about: Vec<u32> = ABOUT_ITSELF.iter().chain(&GIVING_UP).copied().collect();
    let about: Vec<Argument> =
        about.into_iter().map(|value| Argument { index: 0, mask: u32::MAX, value }).collect();
    let nobody = Argument { index: 0, mask: u32::MAX, value: 0 };
    let mut rules = always(FREQUENT, allow);
    rules.extend(only("setuid", &[users]));
    rules.extend(only("setgid", &[users]));
    rules.extend(only("setgroups", &[nobody]));
    rules.extend(only("prctl", &about));
    rules.extend(always(FORKING, allow));
    rules.extend(by_argument());
    rules.extend(always(ALLOWED, allow));
    rules.extend(always(FORBIDDEN, forbid));
    SyscallFilter::new(&rules, Verdict::Refuse(ENOSYS))
}

fn always(names: &[&str], verdict: Verdict) -> Vec<Rule> {
    names.iter().filter_map(|name| call_number(name)).map(|call| Rule::always(call, verdict)).collect()
}

fn by_argument() -> Vec<Rule> {
    let (allow, forbid) = (Verdict::Allow, Verdict::Refuse(EPERM));
    let any = |index: u8, mask: u32, values: &[u32]| -> Vec<Argument> {
        values.iter().map(|value| Argument { index, mask, value: *value }).collect()
    };
    let bits: Vec<Argument> =
        NEW_NAMESPACES.iter().map(|bit| Argument { index: 0, mask: *bit, value: *bit }).collect();
    let whole = u32::MAX;
    // The kinds of sockets are tested together with the family by two rules:
    // a raw one is refused by the network namespace's owner already.
    let rules = [
        ("clone", bits, forbid, allow),
        ("ioctl", any(1, whole, &TERMINAL_INPUT), forbid, allow),
        ("prctl", any(0, whole, &ABOUT_ITSELF), allow, forbid),
        ("mknod", any(1, NODE_TYPE, &PLAIN_NODES), allow, forbid),
        ("mknodat", any(2, NODE_TYPE, &PLAIN_NODES), allow, forbid),
        ("socket", any(0, whole, &FAMILIES), allow, Verdict::Refuse(EAFNOSUPPORT)),
        ("socketpair", any(0, whole, &FAMILIES), allow, Verdict::Refuse(EAFNOSUPPORT)),
    ];
    let numbered = rules.into_iter().filter_map(|(name, any_of, then, otherwise)| {
        Some(Rule::depending(call_number(name)?, &any_of, then, otherwise))
    });
    numbered.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_name_is_known_once() {
        let mut names: Vec<&str> = [FREQUENT, ALLOWED, FORBIDDEN].concat();
        #[cfg(target_arch = "x86_64")]
        for name in &names {
            assert!(call_number(name).is_some(), "{name}");
        }
        names.sort_unstable();
        let len = names.len();
        names.dedup();
        assert_eq!(names.len(), len, "a call is listed twice");
    }

    /// What the kernel does with a filter, in the few instructions that ours
    /// have: what it returns for a call with this first argument.
    ///
    /// What this kernel refuses anyway, because it was built without it or for
    /// want of a capability, an attack cannot tell from what the filter
    /// refuses; the filter's own words can.
    fn decision(filter: &[u8], abi: u32, call: u32, arguments: impl AsRef<[u32]>) -> u32 {
        let argument = |index: usize| arguments.as_ref().get(index).copied().unwrap_or_default();
        let word = |at: u32| match at {
            0 => call,
            4 => abi,
            16 => argument(0),
            24 => argument(1),
            32 => argument(2),
            40 => argument(3),
            other => panic!("the filter reads at {other}"),
        };
        let (mut at, mut held) = (0, 0);
        loop {
            let one = &filter[at * 8..at * 8 + 8];
            let code = u16::from_ne_bytes([one[0], one[1]]);
            let value = u32::from_ne_bytes([one[4], one[5], one[6], one[7]]);
            let jump = |holds: bool| usize::from(if holds { one[2] } else { one[3] });
            at += 1 + match code {
                0x20 => {
                    held = word(value);
                    0
                }
                0x54 => {
                    held &= value;
                    0
                }
                0x15 => jump(held == value),
                0x35 => jump(held >= value),
                0x06 => return value,
                other => panic!("the filter has the instruction {other:#x}"),
            };
        }
    }

    #[cfg(target_arch = "x86_64")]
    const OWN_ABI: u32 = 0xc000_003e;
    #[cfg(target_arch = "aarch64")]
    const OWN_ABI: u32 = 0xc000_00b7;
    const ALLOWED_ANSWER: u32 = 0x7fff_0000;

    fn refusal(errno: u16) -> u32 {
        0x0005_0000 | u32::from(errno)
    }

    #[test]
    fn the_filter_itself_decides_every_call() {
        let filter = program_filter().unwrap();
        let asked = |name: &str, arguments| {
            let call = u32::try_from(call_number(name).unwrap()).unwrap();
            decision(filter.bytes(), OWN_ABI, call, arguments)
        };
        let known = |names: &[&'static str]| -> Vec<&'static str> {
            names.iter().copied().filter(|name| call_number(name).is_some()).collect()
        };
        for name in known(FORBIDDEN) {
            assert_eq!(asked(name, [0; 3]), refusal(EPERM), "{name}");
        }
        // The control: the same question about what is allowed.
        for name in known(FREQUENT).into_iter().chain(known(ALLOWED)) {
            assert_eq!(asked(name, [0; 3]), ALLOWED_ANSWER, "{name}");
        }
        let whole = 0..1024;
        let listed: Vec<u32> = [
            FREQUENT,
            ALLOWED,
            FORBIDDEN,
            &["clone", "ioctl", "prctl", "mknod", "mknodat", "socket", "socketpair"],
        ]
        .concat()
        .into_iter()
        .filter_map(|name| u32::try_from(call_number(name)?).ok())
        .collect();
        for call in whole.filter(|call| !listed.contains(call)) {
            assert_eq!(decision(filter.bytes(), OWN_ABI, call, [0; 3]), refusal(ENOSYS), "call {call}");
        }
        // Whatever the number, by another ABI it is refused.
        for call in 0..1024 {
            for (abi, call) in [(0x4000_0003, call), (OWN_ABI, 0x4000_0000 | call)] {
                assert_eq!(
                    decision(filter.bytes(), abi, call, [0; 3]),
                    refusal(ENOSYS),
                    "{abi:#x} {call:#x}"
                );
            }
        }
        for bit in NEW_NAMESPACES {
            assert_eq!(asked("clone", [bit | 17, 0, 0]), refusal(EPERM), "{bit:#x}");
        }
        assert_eq!(asked("clone", [17, 0, 0]), ALLOWED_ANSWER);
        assert_eq!(asked("socket", [1, 0, 0]), ALLOWED_ANSWER);
        for family in [0, 3, 16, 17, 38, 40] {
            assert_eq!(asked("socket", [family, 0, 0]), refusal(EAFNOSUPPORT), "family {family}");
        }
        for (kind, answer) in [(0x2000, refusal(EPERM)), (0x6000, refusal(EPERM)), (0x1000, ALLOWED_ANSWER)] {
            assert_eq!(asked("mknodat", [0, 0, kind | 0o600]), answer, "{kind:#x}");
        }
    }

    #[test]
    fn a_template_may_become_users_of_containers_alone() {
        let users = Argument { index: 0, mask: 0xf000_0000, value: 0x7000_0000 };
        let (template, function) = (template_filter(users).unwrap(), program_filter().unwrap());
        let number = |name: &str| u32::try_from(call_number(name).unwrap()).unwrap();
        let asked = |name: &str, first| decision(template.bytes(), OWN_ABI, number(name), [first, 0, 0]);
        for name in ["setuid", "setgid"] {
            assert_eq!(asked(name, 0x7000_1234), ALLOWED_ANSWER, "{name}");
            for other in [0, 1, 1000, 0x6fff_ffff, 0x8000_0000, u32::MAX] {
                assert_eq!(asked(name, other), refusal(EPERM), "{name} {other}");
            }
        }
        assert_eq!((asked("setgroups", 0), asked("setgroups", 1)), (ALLOWED_ANSWER, refusal(EPERM)));
        // All else is as for functions, but what it forks and confines with.
        for name in FORKING {
            assert_eq!(asked(name, 0), ALLOWED_ANSWER, "{name}");
        }
        for call in 0..1024 {
            let of = |filter: &SyscallFilter| decision(filter.bytes(), OWN_ABI, call, [0; 3]);
            let mut others = FORKING.iter().chain(&["setgroups"]);
            let is_more = others.any(|name| number(name) == call);
            assert!(is_more || of(&template) == of(&function), "call {call}");
        }
    }

    #[test]
    fn the_filter_fits() {
        assert!(program_filter().unwrap().bytes().len() < 8 << 10);
    }
}
