// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::io::Read as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::*;

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
fn what_is_executed_gets_the_descriptor_and_fixed_addresses() {
    let file = memory_file("test", b"for the child").unwrap();
    let fd = file.as_raw_fd();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("cat /dev/fd/{fd} /proc/self/personality")]);
    command.stdout(std::process::Stdio::piped());
    // SAFETY: both calls are kernel calls without allocation.
    unsafe {
        command.pre_exec(move || {
            keep_on_exec(file.as_fd())?;
            fix_addresses()
        });
    }
    let mut text = String::new();
    let mut child = command.spawn().unwrap();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(text.starts_with("for the child0004"), "{text}");
}
