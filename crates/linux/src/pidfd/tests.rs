// SPDX-License-Identifier: Apache-2.0
// Children are waited for by their descriptors.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::zombie_processes)]

use std::os::fd::AsFd as _;
use std::process::Command;
use std::time::Instant;

use super::*;

#[test]
fn a_process_is_killed_and_reaped_by_its_descriptor() {
    let child = Command::new("sleep").arg("100").spawn().unwrap();
    let pidfd = open_process(child.id()).unwrap();
    assert_eq!(process_number(pidfd.as_fd()).unwrap(), child.id());
    assert_eq!(own_number(child.id()).unwrap(), child.id());
    assert_eq!(wait_process(pidfd.as_fd(), Duration::from_millis(20)).unwrap(), None);
    kill_process(pidfd.as_fd()).unwrap();
    assert_eq!(wait_process(pidfd.as_fd(), Duration::from_secs(10)).unwrap(), Some(Exit::Signal(9)));
    kill_process(pidfd.as_fd()).unwrap();
    assert!(process_number(pidfd.as_fd()).is_err() && own_number(child.id()).is_err(), "it is reaped");
    assert!(!std::path::Path::new(&format!("/proc/{}", child.id())).exists());
}

#[test]
fn a_status_is_told() {
    let child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
    let pidfd = open_process(child.id()).unwrap();
    assert_eq!(wait_process(pidfd.as_fd(), Duration::from_secs(10)).unwrap(), Some(Exit::Code(7)));
    assert!(wait_process(pidfd.as_fd(), Duration::from_secs(1)).is_err(), "it is reaped once");
}

#[test]
fn children_of_a_group_are_reaped_whoever_they_are() {
    use std::os::unix::process::CommandExt as _;
    let is_there = |pid: u32| std::path::Path::new(&format!("/proc/{pid}")).exists();
    let mut first = Command::new("true").process_group(0).spawn().unwrap();
    let group = first.id();
    // Who may have ended is in the group until it is reaped.
    let others = ["0", "0.1", "100"].map(|time| {
        let mut command = Command::new("sleep");
        command.arg(time).process_group(i32::try_from(group).unwrap()).spawn().unwrap().id()
    });
    let other_group = Command::new("true").process_group(0).spawn().unwrap();
    // The first one is not reaped yet.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(others.map(is_there), [true; 3]);
    kill_group(group);
    first.wait().unwrap();
    assert!(reap_group(group, Duration::from_secs(10)));
    assert_eq!(others.map(is_there), [false; 3]);
    assert!(is_there(other_group.id()), "of another group");
    assert!(reap_group(other_group.id(), Duration::from_secs(10)) && !is_there(other_group.id()));
    let lives = Command::new("sleep").arg("100").process_group(0).spawn().unwrap().id();
    assert!(!reap_group(lives, Duration::ZERO) && is_there(lives), "it lives on");
    kill_group(lives);
    assert!(reap_group(lives, Duration::from_secs(10)) && !is_there(lives));
    assert!(reap_group(0, Duration::ZERO) && reap_group(u32::MAX, Duration::ZERO));
}

#[test]
fn what_is_not_there_is_not_opened() {
    assert_eq!(open_process(u32::MAX).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    assert!(open_process(0).is_err());
}

#[test]
fn waiting_has_an_end() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let (other, _open) = std::io::pipe().unwrap();
    let began = Instant::now();
    assert!(!wait_readable(&reader, Duration::from_millis(30)).unwrap());
    assert!(began.elapsed() >= Duration::from_millis(30));
    io::Write::write_all(&mut writer, b"x").unwrap();
    assert!(wait_readable(&reader, Duration::from_secs(10)).unwrap());
    let both = wait_either(other.as_fd(), reader.as_fd(), Duration::from_secs(10)).unwrap();
    assert_eq!(both, [false, true]);
}

#[test]
fn many_threads_are_not_forked() {
    // A test has its own thread beside the main one.
    assert_eq!(fork(false).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}
