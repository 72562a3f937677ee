// SPDX-License-Identifier: Apache-2.0
//! Hostile code: what runs in the containers. Each attack prints `done`, or
//! `refused` with the error number. All of them are bounded, for the runs in
//! which nothing stops them.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::ExitCode;
use std::ptr::{null, null_mut};
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
        ["write", ref paths @ ..] => first_of(paths, |path| fs::write(path, b"changed")),
        ["see", ref paths @ ..] => first_of(paths, |path| fs::symlink_metadata(path).map(drop)),
        ["kill", pid] => check(unsafe { libc::kill(pid.parse().unwrap(), 0) }.into()),
        ["device"] => device(),
        ["is-root"] => {
            if unsafe { libc::geteuid() } == 0 {
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

fn check(done: i64) -> io::Result<()> {
    if done >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
    let path = CString::new("/nowhere").unwrap();
    let tmp = CString::new("/tmp").unwrap();
    let tmpfs = CString::new("tmpfs").unwrap();
    let mut zeros = [0u64; 64];
    // A perf event: software, the cpu clock, of this process, in user mode.
    let mut event = [0u64; 16];
    event[0] = 1 | 128 << 32;
    event[5] = 1 << 5 | 1 << 6;
    let zeros_at = zeros.as_mut_ptr();
    let (p, t, fs) = (path.as_ptr(), tmp.as_ptr(), tmpfs.as_ptr());
    let none = null::<u8>();
    // SAFETY: pointers are to locals or null, and these calls look at rights first.
    let done = unsafe {
        match name {
            "mount" => libc::syscall(libc::SYS_mount, fs, t, fs, 0, none),
            "umount" => libc::syscall(libc::SYS_umount2, t, libc::MNT_DETACH),
            "fsopen" => libc::syscall(libc::SYS_fsopen, fs, 0),
            "unshare-user" => libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUSER),
            "unshare-net" => libc::syscall(libc::SYS_unshare, libc::CLONE_NEWNET),
            "clone-user" => {
                let pid = libc::syscall(libc::SYS_clone, libc::CLONE_NEWUSER | libc::SIGCHLD, 0, 0, 0, 0);
                if pid == 0 {
                    libc::_exit(0);
                }
                pid
            }
            "setns" => {
                let own = File::open("/proc/self/ns/uts")?;
                libc::syscall(libc::SYS_setns, std::os::fd::AsRawFd::as_raw_fd(&own), 0)
            }
            "keyctl" => libc::syscall(libc::SYS_keyctl, 0, -3, 1),
            "add-key" => {
                let user = c"user".as_ptr();
                libc::syscall(libc::SYS_add_key, user, user, user, 4, -3)
            }
            "bpf" => {
                // An array of one number.
                zeros[0] = 2 | 4 << 32;
                zeros[1] = 8 | 1 << 32;
                libc::syscall(libc::SYS_bpf, 0, zeros_at, 72)
            }
            "io-uring" => libc::syscall(libc::SYS_io_uring_setup, 2, zeros_at),
            "perf" => libc::syscall(libc::SYS_perf_event_open, event.as_ptr(), 0, -1, -1, 0),
            "userfaultfd" => libc::syscall(libc::SYS_userfaultfd, 1),
            "chroot" => libc::syscall(libc::SYS_chroot, t),
            "pivot-root" => libc::syscall(libc::SYS_pivot_root, p, p),
            "reboot" => libc::syscall(libc::SYS_reboot, 0, 0, 0, none),
            "swapon" => libc::syscall(libc::SYS_swapon, p, 0),
            "kexec" => libc::syscall(libc::SYS_kexec_load, 0, 0, none, 0xffff_0000u64),
            "init-module" => libc::syscall(libc::SYS_init_module, none, 0, none),
            "settimeofday" => libc::syscall(libc::SYS_settimeofday, [0i64, -1].as_ptr(), none),
            "sethostname" => libc::syscall(libc::SYS_sethostname, t, 3),
            "open-by-handle" => libc::syscall(libc::SYS_open_by_handle_at, -1, zeros_at, 0),
            "process-vm-readv" => {
                let parent = libc::getpid();
                libc::syscall(libc::SYS_process_vm_readv, parent, zeros_at, 0, zeros_at, 0, 0)
            }
            "personality" => libc::syscall(libc::SYS_personality, 0x0040_0000),
            "setuid" => libc::syscall(libc::SYS_setresuid, 0, 0, 0),
            "terminal-input" => {
                // Refused as EPERM; without a filter, no terminal is there.
                let done = libc::syscall(libc::SYS_ioctl, 0, libc::TIOCSTI, t);
                if done < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOTTY) {
                    0
                } else {
                    done
                }
            }
            _ => return Err(io::Error::other("no such call")),
        }
    };
    match check(done) {
        // The rights were there, and only then was nonsense found.
        Err(error) if is_past_rights(&error) => Ok(()),
        other => other,
    }
}

fn is_past_rights(error: &io::Error) -> bool {
    let stopped = [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::EAFNOSUPPORT];
    error.raw_os_error().is_some_and(|number| !stopped.contains(&number))
}

fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<()> {
    check(unsafe { libc::socket(family, kind, protocol) }.into())
}

/// Forks; 0 in the child.
fn fork() -> io::Result<i32> {
    let pid = unsafe { libc::fork() };
    check(pid.into())?;
    Ok(pid)
}

fn pause() -> ! {
    loop {
        unsafe { libc::pause() };
    }
}

fn ptrace() -> io::Result<()> {
    let child = fork()?;
    if child == 0 {
        pause();
    }
    let done = unsafe { libc::ptrace(libc::PTRACE_ATTACH, child, null_mut::<u8>(), null_mut::<u8>()) };
    let done = check(done);
    unsafe { libc::kill(child, libc::SIGKILL) };
    done
}

fn device() -> io::Result<()> {
    let path = CString::new("/tmp/device").unwrap();
    // The same as /dev/zero, so that reading it harms nobody.
    check(unsafe { libc::mknod(path.as_ptr(), libc::S_IFCHR | 0o666, libc::makedev(1, 5)) }.into())?;
    File::open("/tmp/device").map(drop)
}

fn fork_bomb() -> io::Result<()> {
    for _ in 0..PROCESSES_MAX {
        if fork()? == 0 {
            // Who reads our output is to see the end of it.
            (0..3).for_each(|fd| check(unsafe { libc::close(fd) }.into()).unwrap_or(()));
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
    let most = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
    let raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &most) };
    let mut held = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut held) };
    if raised != 0 {
        held.rlim_cur = held.rlim_max;
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &held) };
    }
    let mut kept = Vec::new();
    while kept.len() < FILES_MAX {
        kept.push(File::open("/dev/null")?);
    }
    Ok(())
}

fn core() -> io::Result<()> {
    let mut held = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    check(unsafe { libc::getrlimit(libc::RLIMIT_CORE, &mut held) }.into())?;
    if held.rlim_max == 0 { Err(io::Error::from_raw_os_error(libc::EPERM)) } else { Ok(()) }
}

fn block_signals() -> io::Result<()> {
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &all, null_mut());
        libc::kill(libc::getpid(), libc::SIGTERM);
    }
    println!("still here");
    pause()
}

/// Leaves a process behind that has no parent here, session or descriptor.
fn daemon() -> io::Result<()> {
    if fork()? == 0 {
        unsafe { libc::setsid() };
        if fork()? == 0 {
            for fd in 0..64 {
                unsafe { libc::close(fd) };
            }
            pause();
        }
        unsafe { libc::_exit(0) };
    }
    // Long enough for it to be there.
    std::thread::sleep(Duration::from_millis(50));
    let mut probe = OpenOptions::new().write(true).create(true).mode(0o600).open("/tmp/probe")?;
    probe.write_all(b"x")
}
