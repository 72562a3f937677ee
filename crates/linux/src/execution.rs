// SPDX-License-Identifier: Apache-2.0
//! What a program that is about to be executed is given: descriptors, files
//! without a name, and addresses.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::FdFlags;

/// Has every descriptor from `first` on closed when a program is executed.
///
/// # Errors
/// What the kernel says.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: the call takes three numbers, and closes nothing now.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has a descriptor stay open when a program is executed. Safe between a fork
/// and that.
///
/// # Errors
/// What the kernel says.
pub fn keep_on_exec(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::io::fcntl_setfd(fd, FdFlags::empty())?)
}

/// Has programs that this process executes lie at addresses that are the same
/// every time. Safe between a fork and that.
///
/// # Errors
/// What the kernel says; a kernel without personalities refuses.
pub fn fix_addresses() -> io::Result<()> {
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: the call takes a number, and with this one only answers.
    let now = unsafe { libc::personality(ASK) };
    if now < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call takes a number. What it changes, the addresses of the
    // next program, nothing in this process relies on.
    let done = unsafe { libc::personality((now | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A file in memory with these bytes, which nobody can change any more; closed
/// on exec. `/proc/self/fd` names it for as long as it is open.
///
/// # Errors
/// What the kernel says: in practice that there are too many open files.
pub fn memory_file(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(file);
    file.write_all(bytes)?;
    let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, all)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests;
