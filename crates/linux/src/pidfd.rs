// SPDX-License-Identifier: Apache-2.0
//! Processes by descriptor: a number may be given to another process, a
//! descriptor means this one for as long as it is open.

// `clone` has no safe form: both sides go on from here.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{self, Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It returned this status.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// A descriptor for a process of this pid namespace; closed on exec.
///
/// # Errors
/// `NotFound` (as ESRCH) if there is none.
pub fn open_process(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    Ok(process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// The number of a process in the pid namespace of this one's `/proc`.
///
/// # Errors
/// `NotFound` if it has ended, or has no number here.
pub fn process_number(pidfd: BorrowedFd<'_>) -> io::Result<u32> {
    let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))?;
    let number = told.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
    number.filter(|number| *number > 0).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The number that a process of this one's `/proc` has in its own pid namespace.
///
/// # Errors
/// `NotFound` if it has ended.
pub fn own_number(pid: u32) -> io::Result<u32> {
    let told = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let numbers = told.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let own = numbers.and_then(|numbers| numbers.split_whitespace().last()?.parse().ok());
    own.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Ends the process at once. One that has ended already is no error.
///
/// # Errors
/// `PermissionDenied` if it belongs to somebody else.
pub fn kill_process(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    match process::pidfd_send_signal(pidfd, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sends a process a signal, by its number.
///
/// # Errors
/// `InvalidInput` for what is no signal; ESRCH if the process has ended.
pub fn send_signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let number = Signal::from_named_raw(signal).or_else(|| {
        // SAFETY: the C library keeps 32 and 33 for itself; those above are free.
        (34..=64).contains(&signal).then(|| unsafe { Signal::from_raw_unchecked(signal) })
    });
    Ok(process::pidfd_send_signal(pidfd, number.ok_or(Errno::INVAL)?)?)
}

/// Asks the process to end in order (SIGTERM). One that has ended already is
/// no error.
///
/// # Errors
/// `PermissionDenied` if it belongs to somebody else.
pub fn ask_to_end(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    match process::pidfd_send_signal(pidfd, Signal::TERM) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits until a descriptor can be read, or a process has ended; false when
/// the time is over before.
///
/// # Errors
/// What `poll` says.
pub fn wait_readable(fd: impl AsFd, timeout: Duration) -> io::Result<bool> {
    let deadline = std::time::Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until a descriptor can be read, or also written to if that is wanted;
/// false when the time is over before.
///
/// # Errors
/// What `poll` says.
pub fn wait_ready(fd: impl AsFd, to_write: bool, timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(timeout).map_err(|_| Errno::INVAL)?;
    let wanted = if to_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    match poll(&mut [PollFd::new(&fd, wanted)], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Waits until one of two descriptors can be read, or the time is over; which
/// of them can be.
///
/// # Errors
/// What `poll` says.
pub fn wait_either(
    first: BorrowedFd<'_>,
    second: BorrowedFd<'_>,
    timeout: Duration,
) -> io::Result<[bool; 2]> {
    let timeout = Timespec::try_from(timeout).map_err(|_| Errno::INVAL)?;
    let mut fds = [PollFd::new(&first, PollFlags::IN), PollFd::new(&second, PollFlags::IN)];
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) => Ok([!fds[0].revents().is_empty(), !fds[1].revents().is_empty()]),
        Err(Errno::INTR) => Ok([false; 2]),
        Err(error) => Err(error.into()),
    }
}

/// Waits for the end of a child of this process and reaps it; `None` when the
/// time is over before.
///
/// # Errors
/// ECHILD if it is not a child, or was reaped by somebody else.
pub fn wait_process(pidfd: BorrowedFd<'_>, timeout: Duration) -> io::Result<Option<Exit>> {
    if !wait_readable(pidfd, timeout)? {
        return Ok(None);
    }
    let status = process::waitid(WaitId::PidFd(pidfd), WaitIdOptions::EXITED | WaitIdOptions::NOHANG)?;
    Ok(status.map(|status| match status.exit_status() {
        Some(code) => Exit::Code(code),
        None => Exit::Signal(status.terminating_signal().unwrap_or_default()),
    }))
}

/// Kills all processes of the group that a child of this one has made, which is not reaped yet:
/// so long the number is nobody else's.
pub fn kill_group(group: u32) {
    if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        // That there is none any more is no matter.
        let _ = process::kill_process_group(group, Signal::KILL);
    }
}

/// Reaps all children of this process that are in this process group, of which nobody
/// has told who they are, as they end. Whether none is left when the time is over.
///
/// The group's number must be that of a child which made it, and was reaped just now: it can be
/// another group's only once none of this one is left and all other numbers were used.
pub fn reap_group(group: u32, patience: Duration) -> bool {
    let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) else { return true };
    let deadline = Instant::now() + patience;
    loop {
        let ended = process::waitid(WaitId::Pgid(Some(group)), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        match ended {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Err(_) => return true,
            Ok(None) if Instant::now() > deadline => return false,
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Reaps one ended child of this process, whichever; `None` if none has ended.
pub fn reap_any() -> Option<(u32, Exit)> {
    loop {
        let (pid, status) = match process::wait(WaitOptions::NOHANG) {
            Err(Errno::INTR) => continue,
            Err(_) | Ok(None) => return None,
            Ok(Some(ended)) => ended,
        };
        let exit = match status.exit_status() {
            Some(code) => Exit::Code(code),
            None => Exit::Signal(status.terminating_signal().unwrap_or_default()),
        };
        return Some((pid.as_raw_nonzero().get().unsigned_abs(), exit));
    }
}

/// A descriptor of this process, for whoever is to signal it and to wait for it.
///
/// # Errors
/// What the kernel says.
pub fn own_process() -> io::Result<OwnedFd> {
    open_process(std::process::id())
}

/// Which side of a [`fork`] this is.
#[derive(Debug)]
pub enum Forked {
    /// The new process.
    Child,
    /// The old one; the child's number in its pid namespace.
    Parent(u32),
}

/// Forks this process. With `as_sibling` the child's parent is this process's
/// parent, which then reaps it.
///
/// # Errors
/// `InvalidInput` if the process has more than one thread: the child would
/// find the locks of the others taken for ever. Else what `clone` says.
pub fn fork(as_sibling: bool) -> io::Result<Forked> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the process has more than one thread"));
    }
    let flags = if as_sibling { libc::CLONE_PARENT } else { 0 } | libc::SIGCHLD;
    let none = 0usize;
    // SAFETY: without CLONE_VM the child gets a copy of the memory and of the
    // stack, like after fork(); there is one thread, so no lock is held by
    // another one.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags as usize, none, none, none, none) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(u32::try_from(pid).map_err(|_| Errno::RANGE)?)),
    }
}

/// A descriptor that can be read when a child of this process has ended. The
/// signal itself is blocked from here on, in this thread and its children.
///
/// # Errors
/// What the kernel says.
pub fn child_events() -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd as _;
    // SAFETY: the set is a local that is filled in before it is used, and the
    // descriptor that comes back is owned by nobody else.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Takes all that is waiting out of a descriptor of [`child_events`].
pub fn drain_events(fd: BorrowedFd<'_>) {
    let mut buffer = [0u8; 1024];
    while rustix::io::read(fd, &mut buffer).is_ok_and(|len| len > 0) {}
}

/// Blocks no signal and handles none, as a program expects to be started.
pub fn reset_signals() {
    // SAFETY: the set is a local; the default disposition is a valid one for
    // every number, and the kernel refuses those that cannot be set.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

/// Leaves the session of the parent, and with that its terminal. A leader of
/// a group, who cannot, has done so before.
pub fn leave_session() {
    let _ = process::setsid();
}

#[cfg(test)]
mod tests;
