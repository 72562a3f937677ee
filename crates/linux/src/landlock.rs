// SPDX-License-Identifier: Apache-2.0
//! Landlock: rules for files that a process gives itself, where the kernel
//! has them.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Execute, read a file, read a folder.
const READ: u64 = 0b1101;
/// All rights of the first version.
const ALL_1: u64 = (1 << 13) - 1;
/// Rights that mean something for a file that is not a folder.
const FOR_FILES: u64 = 0b111 | 1 << 14;

/// The version of Landlock that the kernel has; `None` if it has none, or it
/// is switched off.
pub fn landlock_version() -> Option<u32> {
    let none: *const u8 = std::ptr::null();
    // SAFETY: with this flag the call takes no structure and only answers.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, 1u32) };
    u32::try_from(version).ok().filter(|version| *version > 0)
}

/// From here on the calling thread may read below `read`, do everything below
/// `write`, and touch no other file. False if the kernel has no Landlock.
/// New privileges must be forbidden already.
///
/// # Errors
/// `NotFound` for a path that is not there, and what the kernel says.
pub fn restrict_files(read: &[&Path], write: &[&Path]) -> io::Result<bool> {
    let Some(version) = landlock_version() else { return Ok(false) };
    // Renaming across folders came with version 2, truncating with 3.
    let all = ALL_1 | if version >= 2 { 1 << 13 } else { 0 } | if version >= 3 { 1 << 14 } else { 0 };
    // SAFETY: the structure of the first version is one number; its size goes with it.
    let rules =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const all, size_of::<u64>(), 0u32) };
    let rules = i32::try_from(rules).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the call has just made this descriptor, and it is ours alone.
    let rules = unsafe { OwnedFd::from_raw_fd(rules) };
    let wanted = read.iter().map(|path| (path, READ)).chain(write.iter().map(|path| (path, all)));
    for (path, rights) in wanted {
        let place = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path)?;
        allow(&rules, &place, rights)?;
    }
    // SAFETY: the descriptor is open; the flags are none.
    let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0u32) };
    if done == 0 { Ok(true) } else { Err(io::Error::last_os_error()) }
}

fn allow(rules: &OwnedFd, place: &File, rights: u64) -> io::Result<()> {
    #[repr(C, packed)]
    struct PathBeneath {
        rights: u64,
        parent: i32,
    }
    let rights = if place.metadata()?.is_dir() { rights } else { rights & FOR_FILES };
    let rule = PathBeneath { rights, parent: place.as_raw_fd() };
    // SAFETY: rule type 1 takes this packed structure, which outlives the call.
    let done =
        unsafe { libc::syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), 1u32, &raw const rule, 0u32) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests;
