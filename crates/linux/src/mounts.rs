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

/// What is set and what is cleared of a mount: the kernel's `MOUNT_ATTR_…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MountFlags {
    /// These hold from now on.
    pub set: u64,
    /// These no more.
    pub clear: u64,
}

impl MountFlags {
    /// Nothing may be written.
    pub const READ_ONLY: u64 = 0x1;
    /// Set-user-id bits mean nothing.
    pub const NO_SETUID: u64 = 0x2;
    /// Devices cannot be opened.
    pub const NO_DEVICES: u64 = 0x4;
    /// Nothing can be executed.
    pub const NO_EXEC: u64 = 0x8;
    /// When times of access are kept; 0 is at the first since a change.
    pub const ACCESS_TIMES: u64 = 0x70;
    /// Never.
    pub const NO_ACCESS_TIMES: u64 = 0x10;
    /// Always.
    pub const STRICT_ACCESS_TIMES: u64 = 0x20;
    /// Not of folders.
    pub const NO_FOLDER_TIMES: u64 = 0x80;
    /// Links are not followed.
    pub const NO_LINKS: u64 = 0x20_0000;
}

/// What other mount namespaces see of mounts below one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// All, and the other way round.
    Shared,
    /// None, but what is mounted there is seen here.
    Slave,
    /// None.
    Private,
    /// None, and it cannot be bound elsewhere.
    Unbindable,
}

impl Propagation {
    fn flags(self, recursive: bool) -> MountPropagationFlags {
        let one = match self {
            Self::Shared => MountPropagationFlags::SHARED,
            Self::Slave => MountPropagationFlags::DOWNSTREAM,
            Self::Private => MountPropagationFlags::PRIVATE,
            Self::Unbindable => MountPropagationFlags::UNBINDABLE,
        };
        if recursive { one | MountPropagationFlags::REC } else { one }
    }
}

/// Sets the propagation of what is mounted at a path.
///
/// # Errors
/// `InvalidInput` if nothing is mounted there.
pub fn propagate(place: &Path, propagation: Propagation, recursive: bool) -> io::Result<()> {
    Ok(rustix::mount::mount_change(place, propagation.flags(recursive))?)
}

/// Changes what a mount allows, with those below it if `recursive`.
///
/// # Errors
/// `PermissionDenied` for what a user namespace has locked.
pub fn change_mount(mount: BorrowedFd<'_>, flags: MountFlags, recursive: bool) -> io::Result<()> {
    set_attributes(mount, flags, 0, recursive)
}

/// A new file system with whatever its mount allows; otherwise like
/// [`new_file_system`].
///
/// # Errors
/// As [`new_file_system`].
pub fn new_mount(
    kind: &str,
    source: &str,
    options: &[(&str, &str)],
    flags: MountFlags,
) -> io::Result<OwnedFd> {
    let all: Vec<(&str, &str)> = [("source", source)].into_iter().chain(options.iter().copied()).collect();
    new_file_system(kind, &all, Restrictions(flags.set))
}

/// What is at `path` once more, mounted nowhere yet, with what is mounted
/// below it if `recursive`. It allows what the other allows.
///
/// # Errors
/// `NotFound`, and what the kernel says.
pub fn copy_mount(path: &Path, recursive: bool) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    Ok(rustix::mount::open_tree(CWD, path, flags)?)
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
    let flags = MountFlags { set: restrictions.0, clear: 0 };
    set_attributes(tree.as_fd(), flags, 1 << 18, true)?;
    Ok(tree)
}

/// Restricts one mount further, without those below it.
///
/// # Errors
/// What the kernel says.
pub fn restrict(mount: BorrowedFd<'_>, restrictions: Restrictions) -> io::Result<()> {
    set_attributes(mount, MountFlags { set: restrictions.0, clear: 0 }, 0, false)
}

/// `propagation` 0 leaves it as it is.
fn set_attributes(
    mount: BorrowedFd<'_>,
    change: MountFlags,
    propagation: u64,
    recursive: bool,
) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    let attributes = Attributes { set: change.set, clear: change.clear, propagation, user_namespace: 0 };
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
