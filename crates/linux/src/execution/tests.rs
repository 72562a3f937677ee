// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::*;
use rustix::io::FdFlags;

#[test]
fn a_memory_file_is_read_and_not_written() {
    let file = memory_file("test", b"whole").unwrap();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    assert_eq!(std::fs::read(&path).unwrap(), b"whole");
    let mut writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    assert_eq!(writer.write_all(b"other").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    assert!(rustix::io::fcntl_getfd(&file).unwrap().contains(FdFlags::CLOEXEC));
}

#[test]
fn what_is_executed_gets_fixed_addresses() {
    let mut command = Command::new("/bin/cat");
    command.arg("/proc/self/personality");
    // SAFETY: it is kernel calls without allocation.
    unsafe { command.pre_exec(fix_addresses) };
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(text.starts_with("0004"), "{text}");
}
