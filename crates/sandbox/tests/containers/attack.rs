// SPDX-License-Identifier: Apache-2.0
//! Hostile code: what runs in the containers. Each attack prints `done`, or
//! `refused` with the error number. All of them are bounded, for the runs in
//! which nothing stops them.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::ExitCode;
use std::time::Duration;

/// An attack that nothing stops stops here.
const PROCESSES_MAX: usize = 300;
const MEMORY_MAX: usize = 256 << 20;
const FILES_MAX: usize = 1000;

pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match attack(&words) {
        Ok(()) => println!("done"),
        Err(error) => println!("refused {} {error}", error.raw_os_error().unwrap_or(-1)),
    }
    ExitCode::SUCCESS
}

fn attack(words: &[&str]) -> io::Result<()> {
    match *words {
        ["hello"] => Ok(()),
        ["call", name] => call(name),
        ["ptrace"] => ptrace(),
        ["raw-socket"] => socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP),
        ["netlink-socket"] => socket(libc::AF_NETLINK, libc::SOCK_RAW, 0),
        ["packet-socket"] => socket(libc::AF_PACKET, libc::SOCK_RAW, 0),
        ["abstract-socket", name] => {
            UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?).map(drop)
        }
        ["tcp", address] => {
            let address = address.parse().map_err(io::Error::other)?;
            std::net::TcpStream::connect_timeout(&address, Duration::from_secs(2)).map(drop)
        }
        ["read", ref paths @ ..] => first_of(paths, |path| File::open(path).map(drop)),
        ["read-all", path] => fs::read(path).map(drop),
        ["write", ref paths @ ..] => first_of(paths, |path| fs::write(path, b"changed")),
        ["see", ref paths @ ..] => first_of(paths, |path| fs::symlink_metadata(path).map(drop)),
        ["kill", pid] => system(libc::SYS_kill, &[pid.parse().unwrap(), 0]).map(drop),
        ["device"] => device(),
        ["is-root"] => {
            if system(libc::SYS_geteuid, &[])? == 0 {
                Ok(())
            } else {
                Err(io::Error::from_raw_os_error(1))
            }
        }
        ["fork-bomb"] => fork_bomb(),
        ["memory-bomb"] => memory_bomb(),
        ["fill-bytes"] => fill(PROCESSES_MAX, &vec![1; 100 << 10]),
        ["fill-inodes"] => fill(20_000, b""),
        ["exhaust-files"] => exhaust_files(),
        ["core"] => core(),
        ["spin"] => loop {
            std::hint::spin_loop();
        },
        ["block-signals"] => block_signals(),
        ["daemon"] => daemon(),
        ["flood"] => loop {
            io::stdout().write_all(&[b'x'; 4096])?;
        },
        _ => Err(io::Error::other("no such attack")),
    }
}

/// Any system call with any arguments.
fn system(call: i64, arguments: &[usize]) -> io::Result<usize> {
    let [a, b, c, d, e, f] = std::array::from_fn(|at| arguments.get(at).copied().unwrap_or(0));
    // SAFETY: whoever calls passes null or memory of this process that is large
    // enough and lives on; what else happens to a process of hostile code is
    // the kernel's business, and what is tested.
    let done = unsafe { libc::syscall(call, a, b, c, d, e, f) };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

fn first_of(paths: &[&str], try_it: fn(&str) -> io::Result<()>) -> io::Result<()> {
    let mut last = io::Error::other("no path");
    for path in paths {
        match try_it(path) {
            Ok(()) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Calls that change nothing even where they are allowed: what they are given
/// is wrong in a way that is only looked at after the rights.
fn call(name: &str) -> io::Result<()> {
    let done = match name {
        "setns" => {
            let own = File::open("/proc/self/ns/uts")?;
            system(libc::SYS_setns, &[own.as_raw_fd() as usize])
        }
        "clone-user" => {
            let done = system(libc::SYS_clone, &[(libc::CLONE_NEWUSER | libc::SIGCHLD) as usize]);
            if matches!(done, Ok(0)) {
                leave();
            }
            done
        }
        "terminal-input" => match system(libc::SYS_ioctl, &[0, libc::TIOCSTI as usize, at(c"x")]) {
            // There is no terminal, which is only looked at without a filter.
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => Ok(0),
            other => other,
        },
        _ => by_name(name),
    };
    match done {
        // The rights were there, and only then was nonsense found.
        Err(error) if !is_past_rights(&error) => Err(error),
        _ => Ok(()),
    }
}

fn at(text: &'static CStr) -> usize {
    text.as_ptr() as usize
}

fn by_name(name: &str) -> io::Result<usize> {
    const NONE: usize = 0;
    /// No descriptor, or the current processor.
    const ANY: usize = usize::MAX;
    let mut zeros = [0u64; 64];
    // A perf event: software, the processor's clock, in user mode.
    let mut event = [0u64; 16];
    [event[0], event[5]] = [1 | 128 << 32, 1 << 5 | 1 << 6];
    // An array of one number, for programs in the kernel.
    let map: [u32; 18] = std::array::from_fn(|at| [2, 4, 8, 1].get(at).copied().unwrap_or(0));
    let no_time = [0i64, -1];
    let (path, tmp, tmpfs, user) = (at(c"/nowhere"), at(c"/tmp"), at(c"tmpfs"), at(c"user"));
    let zeros_at = zeros.as_mut_ptr() as usize;
    match name {
        "mount" => system(libc::SYS_mount, &[tmpfs, tmp, tmpfs]),
        "umount" => system(libc::SYS_umount2, &[tmp, libc::MNT_DETACH as usize]),
        "fsopen" => system(libc::SYS_fsopen, &[tmpfs]),
        "unshare-user" => system(libc::SYS_unshare, &[libc::CLONE_NEWUSER as usize]),
        "unshare-net" => system(libc::SYS_unshare, &[libc::CLONE_NEWNET as usize]),
        // The session's keyring, number -3, made if it is not there.
        "keyctl" => system(libc::SYS_keyctl, &[0, (-3isize) as usize, 1]),
        "add-key" => system(libc::SYS_add_key, &[user, user, user, 4, (-3isize) as usize]),
        "bpf" => system(libc::SYS_bpf, &[0, map.as_ptr() as usize, 72]),
        "io-uring" => system(libc::SYS_io_uring_setup, &[2, zeros_at]),
        "perf" => system(libc::SYS_perf_event_open, &[event.as_ptr() as usize, 0, ANY, ANY, 0]),
        "userfaultfd" => system(libc::SYS_userfaultfd, &[1]),
        "chroot" => system(libc::SYS_chroot, &[tmp]),
        "pivot-root" => system(libc::SYS_pivot_root, &[path, path]),
        "reboot" => system(libc::SYS_reboot, &[]),
        "swapon" => system(libc::SYS_swapon, &[path]),
        "kexec" => system(libc::SYS_kexec_load, &[0, 0, NONE, 0xffff_0000]),
        "init-module" => system(libc::SYS_init_module, &[NONE, 0, NONE]),
        "settimeofday" => system(libc::SYS_settimeofday, &[no_time.as_ptr() as usize]),
        "sethostname" => system(libc::SYS_sethostname, &[tmp, 3]),
        "open-by-handle" => system(libc::SYS_open_by_handle_at, &[ANY, zeros_at]),
        "process-vm-readv" => {
            let own = std::process::id() as usize;
            system(libc::SYS_process_vm_readv, &[own, zeros_at, 0, zeros_at, 0])
        }
        "personality" => system(libc::SYS_personality, &[0x0040_0000]),
        "setuid" => system(libc::SYS_setresuid, &[0, 0, 0]),
        _ => Err(io::Error::other("no such call")),
    }
}

fn is_past_rights(error: &io::Error) -> bool {
    let stopped = [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::EAFNOSUPPORT];
    error.raw_os_error().is_some_and(|number| !stopped.contains(&number))
}

fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<()> {
    system(libc::SYS_socket, &[family, kind, protocol].map(|number| number as usize)).map(drop)
}

/// Forks; 0 in the child. There is one thread, so that the child is whole.
fn fork() -> io::Result<usize> {
    system(libc::SYS_clone, &[libc::SIGCHLD as usize])
}

fn pause() -> ! {
    loop {
        let _ = system(libc::SYS_ppoll, &[]);
    }
}

/// Ends this process without what the other side of a fork has to do at its end.
fn leave() -> ! {
    let _ = system(libc::SYS_exit_group, &[]);
    std::process::abort()
}

fn ptrace() -> io::Result<()> {
    let child = fork()?;
    if child == 0 {
        pause();
    }
    let done = system(libc::SYS_ptrace, &[libc::PTRACE_ATTACH as usize, child]);
    system(libc::SYS_kill, &[child, libc::SIGKILL as usize])?;
    done.map(drop)
}

fn device() -> io::Result<()> {
    // The same as /dev/zero, so that reading it harms nobody.
    let zero = usize::try_from(libc::makedev(1, 5)).unwrap();
    let mode = (libc::S_IFCHR | 0o666) as usize;
    let here = libc::AT_FDCWD as usize;
    system(libc::SYS_mknodat, &[here, at(c"/tmp/device"), mode, zero])?;
    File::open("/tmp/device").map(drop)
}

fn fork_bomb() -> io::Result<()> {
    for _ in 0..PROCESSES_MAX {
        if fork()? == 0 {
            // Who reads our output is to see the end of it.
            let _ = system(libc::SYS_close_range, &[0, 2, 0]);
            pause();
        }
    }
    Ok(())
}

fn memory_bomb() -> io::Result<()> {
    let mut kept = Vec::new();
    while kept.len() < MEMORY_MAX >> 20 {
        kept.push(std::hint::black_box(vec![1u8; 1 << 20]));
    }
    Ok(())
}

fn fill(files: usize, bytes: &[u8]) -> io::Result<()> {
    for number in 0..files {
        fs::write(format!("/tmp/{number}"), bytes)?;
    }
    Ok(())
}

fn exhaust_files() -> io::Result<()> {
    let most = [1u64 << 20; 2];
    let raised = limit(libc::RLIMIT_NOFILE as usize, Some(most));
    if raised.is_err() {
        let [_, hard] = limit(libc::RLIMIT_NOFILE as usize, None)?;
        limit(libc::RLIMIT_NOFILE as usize, Some([hard; 2]))?;
    }
    let mut kept = Vec::new();
    while kept.len() < FILES_MAX {
        kept.push(File::open("/dev/null")?);
    }
    Ok(())
}

/// Sets a limit, soft and hard, and tells what it was before.
fn limit(which: usize, new: Option<[u64; 2]>) -> io::Result<[u64; 2]> {
    let mut old = [0u64; 2];
    let new = new.as_ref().map_or(0, |new| new.as_ptr() as usize);
    system(libc::SYS_prlimit64, &[0, which, new, old.as_mut_ptr() as usize])?;
    Ok(old)
}

fn core() -> io::Result<()> {
    let [_, hard] = limit(libc::RLIMIT_CORE as usize, None)?;
    if hard == 0 { Err(io::Error::from_raw_os_error(libc::EPERM)) } else { Ok(()) }
}

fn block_signals() -> io::Result<()> {
    let all = u64::MAX;
    system(libc::SYS_rt_sigprocmask, &[libc::SIG_BLOCK as usize, &raw const all as usize, 0, 8])?;
    system(libc::SYS_kill, &[std::process::id() as usize, libc::SIGTERM as usize])?;
    println!("still here");
    pause()
}

/// Leaves a process behind that has no parent here, session or descriptor.
fn daemon() -> io::Result<()> {
    if fork()? == 0 {
        system(libc::SYS_setsid, &[])?;
        if fork()? == 0 {
            system(libc::SYS_close_range, &[0, 64, 0])?;
            pause();
        }
        leave();
    }
    // Long enough for it to be there.
    std::thread::sleep(Duration::from_millis(50));
    fs::write("/tmp/probe", b"x")
}
