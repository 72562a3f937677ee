// SPDX-License-Identifier: Apache-2.0
//! Mounts, by the descriptor-based calls: a mount is made and restricted
//! while nobody can reach it, and then put in its place.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags,
};

/// What a mount does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restrictions(u64);

impl Restrictions {
    /// Nothing may be written.
    pub const READ_ONLY: Self = Self(1);
    /// Set-user-id bits mean nothing.
    pub const NO_SETUID: Self = Self(2);
    /// Devices cannot be opened.
    pub const NO_DEVICES: Self = Self(4);
    /// Nothing can be executed.
    pub const NO_EXEC: Self = Self(8);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn attributes(self) -> MountAttrFlags {
        MountAttrFlags::from_bits_retain(u32::try_from(self.0).unwrap_or(0))
    }
}

/// Lets nothing that is mounted here be seen outside of this mount namespace,
/// or the other way round.
///
/// # Errors
/// What the kernel says.
pub fn make_mounts_private() -> io::Result<()> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", flags)?)
}

/// A new file system of this type, mounted nowhere yet. An option without a
/// value is a flag.
///
/// # Errors
/// ENODEV if the kernel does not know it, EINVAL for an unknown option.
pub fn new_file_system(
    kind: &str,
    options: &[(&str, &str)],
    restrictions: Restrictions,
) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        if value.is_empty() {
            rustix::mount::fsconfig_set_flag(context.as_fd(), *key)?;
        } else {
            rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)?;
        }
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    Ok(rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, restrictions.attributes())?)
}

/// A memory file system with room for so many bytes and inodes.
///
/// # Errors
/// As [`new_file_system`].
pub fn new_memory_files(
    bytes: u64,
    inodes: u64,
    mode: u32,
    restrictions: Restrictions,
) -> io::Result<OwnedFd> {
    let (bytes, inodes, mode) = (bytes.to_string(), inodes.to_string(), format!("{mode:o}"));
    let options = [("size", bytes.as_str()), ("nr_inodes", &inodes), ("mode", &mode)];
    new_file_system("tmpfs", &options, restrictions)
}

/// What is at `path` with all mounted below it, once more, mounted nowhere
/// yet. Restrictions hold for all of it.
///
/// # Errors
/// `NotFound`, and what the kernel says.
pub fn copy_tree(path: &Path, restrictions: Restrictions) -> io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = rustix::mount::open_tree(CWD, path, flags)?;
    set_attributes(tree.as_fd(), restrictions.0, 1 << 18, true)?;
    Ok(tree)
}

/// Restricts one mount further, without those below it.
///
/// # Errors
/// What the kernel says.
pub fn restrict(mount: BorrowedFd<'_>, restrictions: Restrictions) -> io::Result<()> {
    set_attributes(mount, restrictions.0, 0, false)
}

/// `propagation` 0 leaves it as it is.
fn set_attributes(mount: BorrowedFd<'_>, set: u64, propagation: u64, recursive: bool) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    let attributes = Attributes { set, clear: 0, propagation, user_namespace: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the structure is the kernel's `mount_attr` in its first version,
    // whose size goes with it; the path is an empty C string.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Puts a mount in its place. A relative path is taken from the working
/// directory.
///
/// # Errors
/// `NotFound` if there is no such place.
pub fn attach(mount: BorrowedFd<'_>, place: &Path) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(rustix::mount::move_mount(mount, c"", CWD, place, flags)?)
}

/// Makes the mount at the working directory the root, and lets go of the old
/// root with all its mounts unless `keep_old`, which leaves it reachable.
///
/// # Errors
/// What the kernel says.
pub fn change_root(keep_old: Option<&Path>) -> io::Result<()> {
    if let Some(old) = keep_old {
        rustix::process::pivot_root(".", old)?;
    } else {
        // The old root comes to lie over the new one at ".", and is taken away there.
        rustix::process::pivot_root(".", ".")?;
        rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    }
    Ok(rustix::process::chdir("/")?)
}

/// Takes a mount and all below it away from where it is.
///
/// # Errors
/// `InvalidInput` if nothing is mounted there.
pub fn detach(place: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(place, UnmountFlags::DETACH)?)
}

/// The working directory becomes what is mounted by this descriptor.
///
/// # Errors
/// What the kernel says.
pub fn change_directory(mount: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::process::fchdir(mount)?)
}

/// Bytes in all and inodes in all of the file system at `path`.
///
/// # Errors
/// `NotFound`.
pub fn file_system_size(path: &Path) -> io::Result<(u64, u64)> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let found = rustix::fs::statvfs(path.as_c_str())?;
    Ok((found.f_blocks * found.f_frsize, found.f_files))
}

#[cfg(test)]
mod tests;
