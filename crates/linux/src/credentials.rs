// SPDX-License-Identifier: Apache-2.0
//! Giving up rights: users, groups, capabilities, limits of a process.
//!
//! All of it holds for the calling thread; a process that gives up rights has
//! one thread.

#![allow(unsafe_code)]

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};

/// Limits of a process and what it starts. What is `None` stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessLimits {
    /// Open descriptors.
    pub files: Option<u64>,
    /// Processes of this user.
    pub processes: Option<u64>,
    /// Bytes of a file that it writes.
    pub file_bytes: Option<u64>,
    /// Bytes of a core dump.
    pub core_bytes: Option<u64>,
    /// Bytes in message queues.
    pub queue_bytes: Option<u64>,
    /// Bytes that it may lock into memory.
    pub locked_bytes: Option<u64>,
    /// Bytes of memory of its own that it may have mapped to be written.
    pub data_bytes: Option<u64>,
}

/// Sets limits, soft and hard: they can not be raised again without rights.
///
/// # Errors
/// `PermissionDenied` for more than the hard limit that holds now.
pub fn set_process_limits(limits: &ProcessLimits) -> io::Result<()> {
    let wanted = [
        (Resource::Nofile, limits.files),
        (Resource::Nproc, limits.processes),
        (Resource::Fsize, limits.file_bytes),
        (Resource::Core, limits.core_bytes),
        (Resource::Msgqueue, limits.queue_bytes),
        (Resource::Memlock, limits.locked_bytes),
        (Resource::Data, limits.data_bytes),
    ];
    for (resource, most) in wanted {
        let Some(most) = most else { continue };
        // Where the process has less already, it keeps the less.
        let hard = rustix::process::getrlimit(resource).maximum;
        let most = hard.map_or(most, |hard| hard.min(most));
        rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}

/// Sets one limit by its name, as `RLIMIT_NOFILE`; false if there is none of
/// that name. `u64::MAX` is no limit.
///
/// # Errors
/// `PermissionDenied` for more than the hard limit without the capability.
pub fn set_resource_limit(name: &str, soft: u64, hard: u64) -> io::Result<bool> {
    let Some((_, resource)) = RESOURCES.iter().find(|(known, _)| *known == name) else { return Ok(false) };
    let value = |most: u64| (most != u64::MAX).then_some(most);
    rustix::process::setrlimit(*resource, Rlimit { current: value(soft), maximum: value(hard) })?;
    Ok(true)
}

const RESOURCES: [(&str, Resource); 16] = [
    ("RLIMIT_AS", Resource::As),
    ("RLIMIT_CORE", Resource::Core),
    ("RLIMIT_CPU", Resource::Cpu),
    ("RLIMIT_DATA", Resource::Data),
    ("RLIMIT_FSIZE", Resource::Fsize),
    ("RLIMIT_LOCKS", Resource::Locks),
    ("RLIMIT_MEMLOCK", Resource::Memlock),
    ("RLIMIT_MSGQUEUE", Resource::Msgqueue),
    ("RLIMIT_NICE", Resource::Nice),
    ("RLIMIT_NOFILE", Resource::Nofile),
    ("RLIMIT_NPROC", Resource::Nproc),
    ("RLIMIT_RSS", Resource::Rss),
    ("RLIMIT_RTPRIO", Resource::Rtprio),
    ("RLIMIT_RTTIME", Resource::Rttime),
    ("RLIMIT_SIGPENDING", Resource::Sigpending),
    ("RLIMIT_STACK", Resource::Stack),
];

/// Whether there is a limit of this name.
pub fn has_resource_limit(name: &str) -> bool {
    RESOURCES.iter().any(|(known, _)| *known == name)
}

/// Takes every capability out of the bounding and the ambient set, so that
/// none can come back by executing a file.
///
/// # Errors
/// `PermissionDenied` without CAP_SETPCAP.
pub fn drop_bounding_set() -> io::Result<()> {
    rustix::thread::clear_ambient_capability_set()?;
    for number in 0..64u64 {
        // SAFETY: the call takes four numbers.
        let held = unsafe { libc::prctl(libc::PR_CAPBSET_READ, number, 0, 0, 0) };
        if held < 0 {
            // The kernel knows no capability of this number or above.
            break;
        }
        // SAFETY: as above.
        if held == 1 && unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Becomes this user and group, in all respects and for ever. `with_groups`
/// drops the supplementary groups, which a user namespace may forbid.
///
/// # Errors
/// `PermissionDenied` without the capabilities.
pub fn become_user(user: u32, group: u32, with_groups: bool) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    if with_groups {
        rustix::thread::set_thread_groups(&[])?;
    }
    rustix::thread::set_thread_res_gid(group, group, group)?;
    Ok(rustix::thread::set_thread_res_uid(user, user, user)?)
}

/// Becomes this user and group with these supplementary groups, or those that
/// it has; the permitted capabilities are kept, for [`hold_capabilities`].
///
/// # Errors
/// `PermissionDenied` without the capabilities.
pub fn become_user_with(user: u32, group: u32, groups: Option<&[u32]>) -> io::Result<()> {
    if let Some(groups) = groups {
        let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
        rustix::thread::set_thread_groups(&groups)?;
    }
    rustix::thread::set_keep_capabilities(true)?;
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)?;
    Ok(rustix::thread::set_keep_capabilities(false)?)
}

/// Sets of capabilities, as bits; that of bounding is set apart, before the
/// user is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeldCapabilities {
    /// In use.
    pub effective: u64,
    /// That may be taken into use.
    pub permitted: u64,
    /// That files can hand on.
    pub inheritable: u64,
    /// That every program gets.
    pub ambient: u64,
}

/// Leaves only these in the bounding set.
///
/// # Errors
/// `PermissionDenied` without CAP_SETPCAP.
pub fn limit_bounding_set(bits: u64) -> io::Result<()> {
    rustix::thread::clear_ambient_capability_set()?;
    for number in 0..64u64 {
        // SAFETY: the call takes four numbers.
        let held = unsafe { libc::prctl(libc::PR_CAPBSET_READ, number, 0, 0, 0) };
        if held < 0 {
            break;
        }
        let is_dropped = held == 1 && bits >> number & 1 == 0;
        // SAFETY: as above.
        if is_dropped && unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Holds exactly these capabilities.
///
/// # Errors
/// `PermissionDenied` for one that the process is not permitted.
pub fn hold_capabilities(held: &HeldCapabilities) -> io::Result<()> {
    let set = CapabilitySet::from_bits_retain;
    let sets = CapabilitySets {
        effective: set(held.effective),
        permitted: set(held.permitted),
        inheritable: set(held.inheritable),
    };
    rustix::thread::set_capabilities(None, sets)?;
    for number in (0..64u64).filter(|number| held.ambient >> number & 1 == 1) {
        // SAFETY: the call takes four numbers.
        let done = unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, number, 0, 0) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Keeps only the given capabilities, named by their bits; none of them is
/// inherited.
///
/// # Errors
/// `PermissionDenied` for one that the process does not have.
pub fn keep_capabilities(bits: u64) -> io::Result<()> {
    let held = rustix::thread::capabilities(None)?.permitted;
    let keep = CapabilitySet::from_bits_retain(bits) & held;
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// The capabilities that the calling thread can use, as bits.
///
/// # Errors
/// What the kernel says.
pub fn capabilities() -> io::Result<u64> {
    Ok(rustix::thread::capabilities(None)?.effective.bits())
}

/// Executing a file gives no rights from here on.
///
/// # Errors
/// What the kernel says.
pub fn forbid_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Others of the same user may not trace this process or look into it, and it
/// leaves no core. Executing a program undoes that.
///
/// # Errors
/// What the kernel says.
pub fn forbid_dumping() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

#[cfg(test)]
mod tests;
