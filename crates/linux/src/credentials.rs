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
