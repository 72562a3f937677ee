// SPDX-License-Identifier: Apache-2.0
//! The operations on a bundle's container: create, start, state, kill, delete.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use linux::{ChosenGroup, Forked};

use super::description::{Bundle, IdRange};
use super::enter::{self, ANSWER_PIPE, AWAITS_MAPS, FAILED, MADE, PROCESS, START_PIPE};
use crate::process::Error;

/// How long a container may take to be made or started.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the kernel may take to let go of what has ended.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// A process, so that no other one of the same number is taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Birth {
    /// Its number.
    pub pid: u32,
    /// When it was started, in the kernel's ticks since boot.
    pub ticks: u64,
}

/// Where a container is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Made; its program does not run yet.
    Created,
    /// Its program runs.
    Running,
    /// Its program has ended.
    Stopped,
}

impl Status {
    /// The runtime specification's word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Stopped => "stopped",
        }
    }
}

/// Makes a container that waits to be started. The calling process has one
/// thread, and its streams become the program's. `folder` is there and empty.
///
/// # Errors
/// [`Error::Invalid`] for what the bundle may not ask for here,
/// [`Error::Prepare`] with what went wrong; nothing is left behind then.
pub fn create(bundle: &Bundle, folder: &Path) -> Result<Birth, Error> {
    bundle.check()?;
    let group = ChosenGroup::at(&bundle.control_group).map_err(Error::kernel("find the control group"))?;
    let settings = bundle.resources.settings(&group)?;
    if !group.processes().is_empty() {
        let what = format!("linux.cgroupsPath: {} is in use", bundle.control_group.display());
        return Err(Error::Invalid(what));
    }
    for pipe in [START_PIPE, ANSWER_PIPE] {
        linux::make_named_pipe(&folder.join(pipe)).map_err(Error::kernel("make a pipe"))?;
    }
    let made = group
        .make(&settings)
        .map_err(|error| Error::Prepare(error.to_string()))
        .and_then(|()| populate(bundle, folder, &group));
    if made.is_err() {
        // What is left of a container that was not made is of no use to anybody,
        // least of all a process whose number was never told.
        kill_all_in(&group);
        let _ = group.remove(END_PATIENCE);
    }
    made
}

fn populate(bundle: &Bundle, folder: &Path, group: &ChosenGroup) -> Result<Birth, Error> {
    let (control, theirs) = linux::message_pair().map_err(Error::kernel("make a socket"))?;
    linux::close_on_exec_from(3).map_err(Error::kernel("close descriptors"))?;
    let first = match linux::fork(false).map_err(Error::kernel("fork"))? {
        Forked::Child => {
            drop(control);
            enter::first(bundle, folder, group, &theirs)
        }
        Forked::Parent(pid) => pid,
    };
    drop(theirs);
    let mut process = None;
    let listened = listen(&control, bundle, first, &mut process);
    let first = linux::open_process(first).map_err(Error::kernel("find a child"))?;
    match (listened, process) {
        (Ok(()), Some(pid)) => {
            linux::wait_process(first.as_fd(), PATIENCE).map_err(Error::kernel("wait for a child"))?;
            birth(pid).ok_or(Error::Ended)
        }
        (failed, process) => {
            let _ = linux::kill_process(first.as_fd());
            if let Some(pidfd) = process.and_then(|pid| linux::open_process(pid).ok()) {
                let _ = linux::kill_process(pidfd.as_fd());
                let _ = linux::wait_process(pidfd.as_fd(), END_PATIENCE);
            }
            let _ = linux::wait_process(first.as_fd(), END_PATIENCE);
            failed.and(Err(Error::Ended))
        }
    }
}

/// Hears the new processes until the container is made.
fn listen(
    control: &std::os::fd::OwnedFd,
    bundle: &Bundle,
    first: u32,
    process: &mut Option<u32>,
) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    let mut is_made = false;
    while process.is_none() || !is_made {
        let left = deadline.saturating_duration_since(Instant::now());
        if !linux::wait_readable(control, left).map_err(Error::kernel("wait for a container"))? {
            return Err(Error::Timeout("the new container", PATIENCE.as_secs()));
        }
        let heard = linux::receive_message(control).map_err(Error::kernel("hear a container"))?;
        match heard.as_ref().map(|(message, _)| message.as_slice()) {
            Some([AWAITS_MAPS]) => {
                map(first, "uid_map", &bundle.users)?;
                map(first, "gid_map", &bundle.groups)?;
                linux::send_message(control, b"m", &[]).map_err(Error::kernel("answer a container"))?;
            }
            Some([PROCESS, number @ ..]) => *process = number.try_into().ok().map(u32::from_le_bytes),
            Some([MADE]) => is_made = true,
            Some([FAILED, text @ ..]) => {
                return Err(Error::Prepare(String::from_utf8_lossy(text).into_owned()));
            }
            _ => return Err(Error::Prepare("its process ended".to_owned())),
        }
    }
    Ok(())
}

fn map(pid: u32, file: &str, ranges: &[IdRange]) -> Result<(), Error> {
    let lines = ranges.iter().map(|range| format!("{} {} {}\n", range.inside, range.outside, range.count));
    fs::write(format!("/proc/{pid}/{file}"), lines.collect::<String>())
        .map_err(|error| Error::Prepare(format!("linux.uidMappings, linux.gidMappings: {error}")))
}

/// The process of a number, if it lives.
fn birth(pid: u32) -> Option<Birth> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut fields = line.get(line.rfind(')')? + 2..)?.split(' ');
    let state = fields.next()?;
    let ticks = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X" | "x")).then_some(Birth { pid, ticks })
}

/// Where the container is in its life.
pub fn status(folder: &Path, process: Birth) -> Status {
    match birth(process.pid) {
        Some(found) if found == process => {
            if folder.join(START_PIPE).exists() {
                Status::Created
            } else {
                Status::Running
            }
        }
        _ => Status::Stopped,
    }
}

/// Has a created container run its program.
///
/// # Errors
/// [`Error::Invalid`] if it is not created, [`Error::Program`] if the program
/// cannot be executed; the container has stopped then.
pub fn start(folder: &Path, process: Birth) -> Result<(), Error> {
    let now = status(folder, process);
    let refused = |now: Status| Error::Invalid(format!("the container is {}, not created", now.name()));
    if now != Status::Created {
        return Err(refused(now));
    }
    let mut answer =
        linux::open_named_pipe(&folder.join(ANSWER_PIPE), false).map_err(Error::kernel("open a pipe"))?;
    let pipe = folder.join(START_PIPE);
    let mut go = linux::open_named_pipe(&pipe, true).map_err(|_| refused(Status::Stopped))?;
    // Whoever removes the name starts the container, and no other does.
    fs::remove_file(&pipe).map_err(|_| refused(Status::Running))?;
    go.write_all(b"s").map_err(Error::kernel("start a container"))?;
    let reason = read_answer(&mut answer)?;
    if reason.is_empty() { Ok(()) } else { Err(Error::Program(reason)) }
}

fn read_answer(answer: &mut fs::File) -> Result<String, Error> {
    let (deadline, mut text) = (Instant::now() + PATIENCE, Vec::new());
    let mut buffer = [0; 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if !linux::wait_readable(&*answer, left).map_err(Error::kernel("wait for a program"))? {
            return Err(Error::Timeout("the container's process", PATIENCE.as_secs()));
        }
        match answer.read(&mut buffer) {
            Ok(0) => return Ok(String::from_utf8_lossy(&text).into_owned()),
            Ok(read) if text.len() < buffer.len() => text.extend_from_slice(&buffer[..read]),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(Error::kernel("hear of a program")(error)),
        }
    }
}

/// Sends the container's process a signal.
///
/// # Errors
/// [`Error::Invalid`] if it has stopped, [`Error::Kernel`] for what is no
/// signal.
pub fn kill(folder: &Path, process: Birth, signal: i32) -> Result<(), Error> {
    let stopped = || Error::Invalid("the container is stopped, and takes no signals".to_owned());
    let pidfd = linux::open_process(process.pid).map_err(|_| stopped())?;
    // The number may have become another process's before it was opened.
    if status(folder, process) == Status::Stopped {
        return Err(stopped());
    }
    linux::send_signal(pidfd.as_fd(), signal).map_err(Error::kernel("send a signal"))
}

/// Takes away what is left of a stopped container: processes that it left
/// behind, its control group and its folder.
///
/// # Errors
/// [`Error::Invalid`] unless it has stopped.
pub fn remove(folder: &Path, process: Birth, control_group: &Path) -> Result<(), Error> {
    let now = status(folder, process);
    if now != Status::Stopped {
        return Err(Error::Invalid(format!("the container is {}, not stopped", now.name())));
    }
    let group = ChosenGroup::at(control_group).map_err(Error::kernel("find the control group"))?;
    // Without a namespace of processes others outlive the first.
    kill_all_in(&group);
    group.remove(END_PATIENCE).map_err(Error::kernel("remove a control group"))?;
    fs::remove_dir_all(folder).map_err(Error::kernel("remove a container's folder"))
}

fn kill_all_in(group: &ChosenGroup) {
    for pid in group.processes() {
        if let Ok(pidfd) = linux::open_process(pid) {
            let _ = linux::kill_process(pidfd.as_fd());
        }
    }
}

/// Writes the number of the container's process, at once as a whole.
///
/// # Errors
/// What writing the file says.
pub fn pid_file(path: &Path, process: Birth) -> Result<(), Error> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    fs::write(&name, process.pid.to_string())
        .and_then(|()| fs::rename(&name, path))
        .map_err(Error::kernel("write the pid file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_may_be_made_before_its_number_is_told() {
        let (control, theirs) = linux::message_pair().unwrap();
        let container = theirs.try_clone().unwrap();
        enter::tell_made(container.as_fd()).unwrap();
        drop(container);
        let mut number = vec![PROCESS];
        number.extend(7u32.to_le_bytes());
        linux::send_message(&theirs, &number, &[]).unwrap();
        let mut process = None;
        listen(&control, &Bundle::default(), 0, &mut process).unwrap();
        assert_eq!(process, Some(7));
    }

    #[test]
    fn processes_that_are_gone_before_it_is_made_are_an_error() {
        let (control, theirs) = linux::message_pair().unwrap();
        enter::tell_made(theirs.as_fd()).unwrap();
        drop(theirs);
        let heard = listen(&control, &Bundle::default(), 0, &mut None);
        assert!(matches!(heard, Err(Error::Prepare(text)) if text.contains("its process ended")));
    }
}
