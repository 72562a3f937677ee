// SPDX-License-Identifier: Apache-2.0
//! The processes that become a bundle's container.
//!
//! ```text
//!  creator ── fork ──→ first ── fork, as a sibling ──→ the container's process
//!      control groups, namespaces  │                 the file tree, then it waits,
//!   writes the maps of users ←─────┤                 gives up its rights, and is
//!   hears the process's number ←───┘                 replaced by the program
//! ```
//!
//! Two named pipes in the container's folder join it to later operations: a
//! byte in `start` sets it off, and `answer` says why it could not be, or ends
//! without a word when the program has taken over.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use linux::{ChosenGroup, Forked, Namespaces};

use super::description::{Bundle, ProcessOf};
use super::tree;

/// First byte of what the new processes say: the maps of users are awaited.
pub(super) const AWAITS_MAPS: u8 = b'M';
/// The container's process is there; its number follows.
pub(super) const PROCESS: u8 = b'P';
/// The container is made.
pub(super) const MADE: u8 = b'R';
/// Something failed; the text follows.
pub(super) const FAILED: u8 = b'E';

/// The pipe that sets a container off.
pub(super) const START_PIPE: &str = "start";
/// The pipe that says why it could not be.
pub(super) const ANSWER_PIPE: &str = "answer";

/// What the first process does; returns only to fail.
pub(super) fn first(bundle: &Bundle, folder: &Path, group: &ChosenGroup, control: &OwnedFd) -> ! {
    let done = prepare(bundle, folder, group, control);
    if let Err(error) = &done {
        say_failure(control.as_fd(), error);
    }
    std::process::exit(i32::from(done.is_err()))
}

fn say_failure(control: BorrowedFd<'_>, error: &io::Error) {
    let mut text = vec![FAILED];
    text.extend(error.to_string().bytes().take(1024));
    // Who made the container may be gone.
    let _ = linux::send_message(control, &text, &[]);
}

fn prepare(bundle: &Bundle, folder: &Path, group: &ChosenGroup, control: &OwnedFd) -> io::Result<()> {
    let pipes = Pipes {
        start: linux::hold_named_pipe(&folder.join(START_PIPE))?,
        answer: linux::hold_named_pipe(&folder.join(ANSWER_PIPE))?,
    };
    group.join()?;
    if let Some(score) = bundle.process.as_ref().and_then(|process| process.oom_score) {
        fs::write("/proc/self/oom_score_adj", score.to_string()).map_err(step("set process.oomScoreAdj"))?;
    }
    // Found before any of them is entered; that of users comes first.
    let mut files = Vec::new();
    for namespace in &bundle.namespaces {
        let Some(path) = &namespace.path else { continue };
        let file = File::open(path).map_err(|error| named(path, &error))?;
        files.push((file, namespace.kind, path));
    }
    files.sort_by_key(|(_, kind, _)| *kind != Namespaces::USER);
    for (file, kind, path) in &files {
        linux::enter_file(file.as_fd(), *kind).map_err(|error| named(path, &error))?;
    }
    if bundle.has_new(Namespaces::USER) {
        linux::unshare(Namespaces::USER).map_err(step("make a user namespace"))?;
        linux::send_message(control, &[AWAITS_MAPS], &[])?;
        linux::receive_message(control)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        linux::become_user_with(0, 0, Some(&[]))
            .map_err(step("become the first user of linux.uidMappings"))?;
    }
    let new = bundle.new_namespaces().without(Namespaces::USER);
    linux::unshare(new).map_err(step("make namespaces"))?;
    match linux::fork(true).map_err(step("fork"))? {
        Forked::Parent(pid) => {
            let mut message = vec![PROCESS];
            message.extend(pid.to_le_bytes());
            linux::send_message(control, &message, &[])
        }
        Forked::Child => {
            let error = become_container(bundle, pipes, control);
            say_failure(control.as_fd(), &error);
            std::process::exit(1)
        }
    }
}

struct Pipes {
    start: File,
    answer: File,
}

/// Makes what is in the new namespaces, waits, and is replaced by the
/// program; returns only why not.
fn become_container(bundle: &Bundle, mut pipes: Pipes, control: &OwnedFd) -> io::Error {
    linux::leave_session();
    if let Err(error) = furnish(bundle) {
        return error;
    }
    if let Err(error) = tell_made(control.as_fd()) {
        return error;
    }
    let mut byte = [0];
    if let Err(error) = pipes.start.read_exact(&mut byte) {
        return error;
    }
    let error = match &bundle.process {
        Some(process) => execute(process, !bundle.has_own(Namespaces::USER) || may_set_groups()),
        None => io::Error::other("the bundle has no process"),
    };
    // Whoever started it reads this; the pipe holds far more than this text.
    let text: Vec<u8> = error.to_string().bytes().take(1024).collect();
    let _ = pipes.answer.write_all(&text);
    error
}

/// Says that the container is made. The connection stays open: whoever forked
/// this process may have yet to tell its number on it.
pub(super) fn tell_made(control: BorrowedFd<'_>) -> io::Result<()> {
    linux::send_message(control, &[MADE], &[])
}

fn furnish(bundle: &Bundle) -> io::Result<()> {
    for (name, value) in &bundle.parameters {
        let file = Path::new("/proc/sys").join(name.replace('.', "/"));
        fs::write(&file, value).map_err(|error| named(&file, &error))?;
    }
    tree::enter(bundle, !bundle.has_own(Namespaces::USER))?;
    match &bundle.host_name {
        Some(name) => linux::set_host_name(name).map_err(step("name the host")),
        None => Ok(()),
    }
}

fn may_set_groups() -> bool {
    fs::read_to_string("/proc/self/setgroups").is_ok_and(|text| text.trim() == "allow")
}

/// Gives up what the program is not to have, and becomes it.
#[expect(clippy::disallowed_methods, reason = "this is where a bundle's program is started")]
#[allow(unsafe_code)]
fn execute(process: &ProcessOf, may_set_groups: bool) -> io::Error {
    let Some((program, arguments)) = process.arguments.split_first() else {
        return io::Error::other("process.args is empty");
    };
    linux::reset_signals();
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(process.environment.iter().map(|(name, value)| (name, value)));
    command.current_dir(&process.directory);
    let confined = process.clone();
    // SAFETY: the process has one thread, so whatever the closure does finds
    // every lock free and the heap whole.
    unsafe { command.pre_exec(move || confine(&confined, may_set_groups)) };
    let error = command.exec();
    named(Path::new(program), &error)
}

fn confine(process: &ProcessOf, may_set_groups: bool) -> io::Result<()> {
    // A working directory that lies outside of the root has no path.
    if !std::env::current_dir()?.starts_with("/") {
        return Err(io::Error::other("process.cwd leads out of the container"));
    }
    for limit in &process.limits {
        linux::set_resource_limit(&limit.name, limit.soft, limit.hard)
            .map_err(step("set process.rlimits"))?;
    }
    if let Some(mask) = process.file_mask {
        linux::set_file_mask(mask);
    }
    if process.forbids_new_privileges {
        linux::forbid_new_privileges()?;
    }
    linux::limit_bounding_set(process.bounding).map_err(step("limit the bounding set"))?;
    let install = || process.filter.as_ref().map_or(Ok(()), linux::SyscallFilter::install);
    // Without new privileges being forbidden, a filter takes a capability.
    if !process.forbids_new_privileges {
        install().map_err(step("install linux.seccomp"))?;
    }
    let groups = may_set_groups.then_some(process.groups.as_slice());
    if groups.is_none() && !process.groups.is_empty() {
        return Err(io::Error::other("process.user.additionalGids cannot be set in this user namespace"));
    }
    linux::become_user_with(process.user.0, process.user.1, groups).map_err(step("become process.user"))?;
    linux::hold_capabilities(&process.capabilities).map_err(step("hold process.capabilities"))?;
    if process.forbids_new_privileges {
        install().map_err(step("install linux.seccomp"))?;
    }
    Ok(())
}

fn step(what: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
