// SPDX-License-Identifier: Apache-2.0
//! Namespaces: leaving the ones of the parent, entering those of a process.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::thread::{ThreadNameSpaceType, UnshareFlags};

/// A set of kinds of namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespaces(u32);

impl Namespaces {
    /// None.
    pub const NONE: Self = Self(0);
    /// What is mounted where.
    pub const MOUNT: Self = Self(0x0002_0000);
    /// The root of the control groups.
    pub const CGROUP: Self = Self(0x0200_0000);
    /// The host's name.
    pub const UTS: Self = Self(0x0400_0000);
    /// System V objects and message queues.
    pub const IPC: Self = Self(0x0800_0000);
    /// Users, groups and capabilities.
    pub const USER: Self = Self(0x1000_0000);
    /// Process numbers, of children made from now on.
    pub const PID: Self = Self(0x2000_0000);
    /// Network devices, addresses and sockets.
    pub const NET: Self = Self(0x4000_0000);

    /// Those of either set.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The kernel's `CLONE_NEW…` bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// From the kernel's bits; those of other meanings are dropped.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & 0x7e02_0000)
    }
}

/// Gives the calling process new namespaces.
///
/// # Errors
/// `PermissionDenied` without the capability, ENOSPC at the configured number
/// of namespaces.
pub fn unshare(kinds: Namespaces) -> io::Result<()> {
    // SAFETY: the flag that is dangerous, a file table of one's own, cannot be
    // in the set.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::from_bits_retain(kinds.0))? };
    Ok(())
}

/// Moves the calling thread into the namespaces of a process; for `PID`, its
/// children.
///
/// # Errors
/// `PermissionDenied` without the capability in both.
pub fn enter(pidfd: BorrowedFd<'_>, kinds: Namespaces) -> io::Result<()> {
    rustix::thread::move_into_thread_name_spaces(pidfd, ThreadNameSpaceType::from_bits_retain(kinds.0))?;
    Ok(())
}

/// Moves the calling thread into the namespace that a file stands for, one
/// below `/proc/PID/ns` or a bind of it; for `PID`, its children.
///
/// # Errors
/// `InvalidInput` if the file stands for a namespace of another kind.
pub fn enter_file(file: BorrowedFd<'_>, kind: Namespaces) -> io::Result<()> {
    // SAFETY: the call takes a descriptor and a number.
    let done = unsafe { libc::setns(file.as_raw_fd(), kind.0 as libc::c_int) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Puts mounts that are mounted nowhere yet into the mount namespace of a
/// process, each in its place there. Nothing of the calling thread changes.
///
/// # Errors
/// `PermissionDenied` without the capability, `NotFound` for a place that is
/// not there; mounts before that one stay.
#[expect(clippy::disallowed_methods, reason = "what a thread of its own enters, no other has to leave")]
pub fn attach_in(pidfd: BorrowedFd<'_>, mounts: &[(OwnedFd, &Path)]) -> io::Result<()> {
    let enter_and_attach = || {
        // A thread that shares its root and working directory with others may
        // not enter.
        // SAFETY: the flag that is dangerous, a file table of one's own, is not
        // in the set.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS)? };
        enter(pidfd, Namespaces::MOUNT)?;
        mounts.iter().try_for_each(|(mount, place)| crate::attach(mount.as_fd(), place))
    };
    std::thread::scope(|scope| {
        let entered =
            std::thread::Builder::new().name("mounts".to_owned()).spawn_scoped(scope, enter_and_attach)?;
        entered.join().unwrap_or_else(|_| Err(io::Error::other("the thread that mounts has panicked")))
    })
}

/// Gives this process's new user namespace one user and one group: itself,
/// under the number `inside`.
///
/// # Errors
/// What writing the maps says.
pub fn map_own_user(inside: u32, user: u32, group: u32) -> io::Result<()> {
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{inside} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{inside} {group} 1"))
}

/// Bounds what processes in this process's user namespace have of inotify.
///
/// # Errors
/// What writing the settings says, as where `/proc/sys` is read-only.
pub fn limit_inotify(instances: u32, watches: u32) -> io::Result<()> {
    std::fs::write("/proc/sys/user/max_inotify_instances", instances.to_string())?;
    std::fs::write("/proc/sys/user/max_inotify_watches", watches.to_string())
}

/// Numbers of users, and the same of groups, that a user namespace has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserRange {
    /// The first one, inside.
    pub inside: u32,
    /// The same one, in the namespace around.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// Gives the calling process a new user namespace with these users and groups,
/// in which it has all capabilities.
///
/// # Errors
/// `PermissionDenied` without CAP_SETUID and CAP_SETGID in the namespace
/// around, `InvalidInput` for ranges that overlap or more than one thread.
pub fn unshare_users(ranges: &[UserRange]) -> io::Result<()> {
    let lines = |range: &UserRange| format!("{} {} {}\n", range.inside, range.outside, range.count);
    let map: String = ranges.iter().map(lines).collect();
    let (own, other) = crate::message_pair()?;
    let maps =
        [format!("/proc/{}/uid_map", std::process::id()), format!("/proc/{}/gid_map", std::process::id())];
    // Who has the capability to write them stays in the namespace around.
    match crate::fork(false)? {
        crate::Forked::Child => {
            drop(own);
            let has_entered = crate::receive_message(&other).is_ok_and(|message| message.is_some());
            let write = || maps.iter().try_for_each(|file| std::fs::write(file, &map));
            let errno = match has_entered.then(write) {
                Some(Ok(())) => 0,
                Some(Err(error)) => error.raw_os_error().unwrap_or(libc::EIO),
                None => libc::EPIPE,
            };
            // Whoever has gone does not need to hear.
            _ = crate::send_message(&other, &errno.to_le_bytes(), &[]);
            // SAFETY: the call ends the process, and what it inherited from its
            // parent is not dropped here a second time.
            unsafe { libc::_exit(0) }
        }
        crate::Forked::Parent(writer) => {
            drop(other);
            let writer = crate::open_process(writer)?;
            let entered = unshare(Namespaces::USER);
            if entered.is_ok() {
                crate::send_message(&own, &[1], &[])?;
            } else {
                crate::end_messages(&own);
            }
            let written = crate::receive_message(&own)?;
            // It has said all that it had to say.
            crate::wait_process(writer.as_fd(), std::time::Duration::from_secs(1))?;
            entered?;
            match written.as_ref().map(|(bytes, _)| bytes.as_slice()) {
                Some(&[a, b, c, d]) if [a, b, c, d] == [0; 4] => Ok(()),
                Some(&[a, b, c, d]) => Err(io::Error::from_raw_os_error(i32::from_le_bytes([a, b, c, d]))),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }
}

/// Files that stand for namespaces of the calling process, in the order of
/// `kinds`, each of which is one kind: who has them can enter, with the
/// capability to, whoever this process is.
///
/// # Errors
/// `InvalidInput` for what is not one kind that is known, else what opening says.
pub fn own_namespaces(kinds: &[Namespaces]) -> io::Result<Vec<OwnedFd>> {
    let open = |kind: &Namespaces| {
        let name = match *kind {
            Namespaces::MOUNT => "mnt",
            Namespaces::UTS => "uts",
            Namespaces::IPC => "ipc",
            Namespaces::NET => "net",
            Namespaces::PID => "pid",
            Namespaces::USER => "user",
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        Ok(std::fs::File::open(Path::new("/proc/self/ns").join(name))?.into())
    };
    kinds.iter().map(open).collect()
}

/// This process's user and group.
pub fn own_user() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Names the host, in this UTS namespace.
///
/// # Errors
/// `PermissionDenied` without the capability.
pub fn set_host_name(name: &str) -> io::Result<()> {
    Ok(rustix::system::sethostname(name.as_bytes())?)
}

/// The name of this host; nothing if it is not text.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_str().unwrap_or_default().to_owned()
}

/// Gives this process a new, empty session keyring. A kernel without keyrings
/// has nothing to leave behind.
///
/// # Errors
/// What the kernel says.
pub fn leave_session_keyring() -> io::Result<()> {
    let name: *const libc::c_char = std::ptr::null();
    // SAFETY: a null name asks for an anonymous keyring; nothing else is passed.
    let done = unsafe { libc::syscall(libc::SYS_keyctl, 1, name) };
    match io::Error::last_os_error() {
        _ if done >= 0 => Ok(()),
        error if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests;
