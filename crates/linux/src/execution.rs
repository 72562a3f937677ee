// SPDX-License-Identifier: Apache-2.0
//! What a program that is about to be executed is given: descriptors, files
//! without a name, and addresses.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags};

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

/// Makes `fd` the standard input, and closes every descriptor from 3 on.
///
/// # Safety
/// 1. Nobody uses a descriptor of this process but 0, 1 and 2 afterwards, not
///    to close it either.
///
/// # Errors
/// What the kernel says.
pub unsafe fn keep_only_as_stdin(fd: OwnedFd) -> io::Result<()> {
    let fd = std::os::fd::IntoRawFd::into_raw_fd(fd);
    // SAFETY: the call takes two numbers; what 0 was, nobody owns in this process.
    if unsafe { libc::dup2(fd, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call takes three numbers; the caller uses nothing that it closes.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
