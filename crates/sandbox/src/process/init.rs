// SPDX-License-Identifier: Apache-2.0
//! The init of a container: what the hidden command `sandbox-init` is.
//!
//! It has one thread, and its standard input is a socket to the runtime, over
//! which it gets a [`Plan`]. It makes the namespaces, forks into them as a
//! sibling, so that the runtime is the parent of the container's pid 1, and ends.
//! Pid 1 sends a descriptor of itself, makes the file tree, says that it is
//! ready, and then reaps whatever ends in the container and starts what it is
//! told to. When the socket closes, because the runtime dropped the container
//! or died, pid 1 ends, and the kernel ends all others with it. (A death
//! signal would not do: it comes when the *thread* that prepared the container
//! ends.)

use std::fs::File;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use linux::{Exit, Forked, Namespaces, UserRange};

use super::bounds::Weakness;
use super::plan::{Attachments, Order, Plan, Users};
use super::rootfs;

/// First byte of what the init says: here is a descriptor of pid 1.
pub(super) const PID_1: u8 = b'P';
/// Another process, of which a descriptor comes along, makes the container.
pub(super) const MAKER: u8 = b'M';
/// The container is made. Of a realm, and in one, descriptors of its namespaces come
/// along.
pub(super) const READY: u8 = b'R';
/// A program was forked; a descriptor of its process comes along.
pub(super) const STARTED: u8 = b'S';
/// Something failed; the text follows.
pub(super) const FAILED: u8 = b'E';
/// To the init, with [`Attachments`] behind it: put them in their places.
pub(super) const ATTACH: u8 = b'A';
/// They are there, and nothing can be put anywhere any more.
pub(super) const ATTACHED: u8 = b'a';
/// To the init, with an [`Order`] behind it: start a program.
pub(super) const RUN: u8 = b'r';
/// To the init, with a port behind it: listen there on the loopback.
pub(super) const LISTEN: u8 = b'L';
/// It does; the descriptor comes along.
pub(super) const LISTENING: u8 = b'l';
/// To the init, with a port behind it: connect to there on the loopback.
pub(super) const CONNECT: u8 = b'C';
/// It is connected; the descriptor comes along.
pub(super) const CONNECTED: u8 = b'c';
/// To the init, with descriptors: what was forked into the container joins these
/// control groups.
pub(super) const JOIN: u8 = b'J';
/// It has.
pub(super) const JOINED: u8 = b'j';
/// On a program's own socket: it returned, and the status follows.
pub(super) const RETURNED: u8 = b'X';
/// On a program's own socket: a signal ended it, whose number follows.
pub(super) const SIGNALLED: u8 = b'K';

/// Programs that run at the same time by order of the runtime, at most.
const RUNNING_MAX: usize = 64;
/// What pid 1 keeps: to signal, and to become the container's user.
const CAPABILITIES_KEPT: u64 = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8;
/// CAP_SYS_ADMIN, over the container's own namespaces alone: what it keeps in
/// a user namespace until functions' files are in their places.
const CAPABILITY_MOUNT: u64 = 1 << 21;
/// What a template in a realm keeps, over the realm's own users and what belongs to
/// them: to become users of containers, and to enter their namespaces and files.
pub(super) const CAPABILITIES_OF_TEMPLATE: u64 = 1 << 6 | 1 << 7 | 1 << 8 | 1 << 18 | 1 << 21;
/// How long a listener on the loopback may keep pid 1 waiting.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
/// Inotify instances of a container whose user is the node's, who has 128 of his own
/// where nobody changed that.
const INOTIFY_INSTANCES: u32 = 16;
/// Files and folders that they watch.
const INOTIFY_WATCHES: u32 = 4096;
/// Numbers of processes that are tried.
const JOIN_TRIES: u32 = 4;
/// How often pid 1 wakes although nothing happened.
const HEARTBEAT: Duration = Duration::from_secs(3600);

/// Runs as a container's init. Returns when the container is to end.
pub fn main() -> ExitCode {
    let stdin = io::stdin();
    let control = stdin.as_fd();
    match start(control) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            fail(control, &error);
            ExitCode::FAILURE
        }
    }
}

/// Tells the runtime, if it still listens.
fn fail(socket: BorrowedFd<'_>, error: &io::Error) {
    let mut text = vec![FAILED];
    text.extend(error.to_string().bytes().take(1024));
    let _ = linux::send_message(socket, &text, &[]);
}

fn start(control: BorrowedFd<'_>) -> io::Result<()> {
    linux::close_on_exec_from(3)?;
    let (message, fds) = linux::receive_message(control)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let plan = Plan::decode(&message).ok_or(io::ErrorKind::InvalidData)?;
    if (plan.users.is_realm() || plan.users.is_within()) && linux::niceness()? != plan.niceness {
        // Inside there is nobody who may take it back.
        linux::set_niceness(plan.niceness).map_err(step("have the usual priority"))?;
    }
    match plan.users {
        Users::Host => {}
        Users::One { inside, user, group } | Users::RealmOfOne { inside, user, group } => {
            become_only_user(inside, user, group)?;
        }
        Users::Realm { first, count } => {
            let root = UserRange { inside: 0, outside: 0, count: 1 };
            let own = UserRange { inside: first, outside: first, count };
            linux::unshare_users(&[root, own]).map_err(step("make a user namespace"))?;
        }
        Users::Within | Users::OneWithin { .. } => {
            let [users, numbers] = fds.as_slice() else { return Err(io::ErrorKind::InvalidData.into()) };
            linux::enter_file(users.as_fd(), Namespaces::USER).map_err(step("enter a realm"))?;
            linux::enter_file(numbers.as_fd(), Namespaces::PID).map_err(step("enter a realm"))?;
            // While it has no number there, and none of its template's can look at it.
            if let Users::OneWithin { inside } = plan.users {
                become_only_user(inside, inside, inside)?;
            }
        }
    }
    drop(fds);
    // Whoever comes of this one has the host's files until its own are made, and
    // without root a template has its user, and rights over what it belongs to.
    if !plan.weakness.has(Weakness::SEEN) {
        linux::forbid_dumping()?;
    }
    if plan.users.is_within()
        // Only who was born in the realm may have children in namespaces below.
        && introduced(linux::fork(true).map_err(step("fork in a realm"))?, MAKER, control)?
    {
        return Ok(());
    }
    linux::unshare(namespaces(plan.weakness)).map_err(step("make namespaces"))?;
    linux::make_mounts_private().map_err(step("make mounts private"))?;
    if !plan.weakness.has(Weakness::HOST_NETWORK) {
        linux::bring_up_loopback().map_err(step("have a loopback"))?;
    }
    match introduced(linux::fork(true).map_err(step("fork"))?, PID_1, control)? {
        true => Ok(()),
        false => pid_1(control, &plan),
    }
}

/// Whether this is who has forked, and is to end: it may have been killed by now. Who was forked
/// says who it is, to the runtime, which is its parent. If that does not come to hear it, it finds
/// it in the process group of its first child, which it leaves with the first order.
fn introduced(forked: Forked, who: u8, control: BorrowedFd<'_>) -> io::Result<bool> {
    if let Forked::Parent(_) = forked {
        return Ok(true);
    }
    linux::send_message(control, &[who], &[linux::own_process()?.as_fd()])?;
    Ok(false)
}

/// Has a new user namespace, in which this user and group of the one around are
/// the only ones.
fn become_only_user(inside: u32, user: u32, group: u32) -> io::Result<()> {
    linux::unshare(Namespaces::USER).map_err(step("make a user namespace"))?;
    linux::map_own_user(inside, user, group).map_err(step("map the user"))?;
    // Outside they count for the node's user. Where that cannot be set they are all there are.
    _ = linux::limit_inotify(INOTIFY_INSTANCES, INOTIFY_WATCHES);
    Ok(())
}

/// Those that the container gets, besides that of users.
pub(super) fn namespaces(weakness: Weakness) -> Namespaces {
    let all = Namespaces::MOUNT.and(Namespaces::UTS).and(Namespaces::IPC);
    let all = if weakness.has(Weakness::HOST_NETWORK) { all } else { all.and(Namespaces::NET) };
    if weakness.has(Weakness::HOST_PROCESSES) { all } else { all.and(Namespaces::PID) }
}

/// What has to be entered to be in a container, where that takes descriptors: of a
/// realm what its containers are made in, and of a container in a realm what its
/// processes enter, first the namespace of process numbers, before the others that
/// of users, and last that of mounts, with which the root changes.
fn doors(users: Users, weakness: Weakness) -> Vec<Namespaces> {
    if users.is_realm() {
        return vec![Namespaces::USER, Namespaces::PID];
    }
    if !users.is_within() {
        return Vec::new();
    }
    let own = namespaces(weakness);
    let there = if users.is_one() { own.and(Namespaces::USER) } else { own };
    let first = [Namespaces::PID, Namespaces::USER];
    let all = first.into_iter().chain([Namespaces::NET, Namespaces::IPC, Namespaces::UTS, Namespaces::MOUNT]);
    all.filter(|kind| there.without(*kind) != there).collect()
}

fn pid_1(control: BorrowedFd<'_>, plan: &Plan) -> io::Result<()> {
    let events = linux::child_events()?;
    rootfs::enter(&plan.rootfs, plan.weakness)?;
    linux::set_host_name(&plan.host_name).map_err(step("name the host"))?;
    linux::leave_session_keyring().map_err(step("leave the session's keyring"))?;
    // Whoever prepares in advance gives way to others; what runs here does not.
    if linux::niceness()? != plan.niceness {
        linux::set_niceness(plan.niceness).map_err(step("have the usual priority"))?;
    }
    let to_hand_on = if plan.users.is_realm() { CAPABILITIES_OF_TEMPLATE } else { 0 };
    let kept = CAPABILITIES_KEPT | to_hand_on;
    if !plan.weakness.has(Weakness::ROOT) {
        let until_attached = if plan.rootfs.shelf.is_some() { CAPABILITY_MOUNT } else { 0 };
        linux::keep_capabilities(kept | until_attached).map_err(step("drop capabilities"))?;
    }
    if !plan.weakness.has(Weakness::NEW_PRIVILEGES) {
        linux::forbid_new_privileges()?;
    }
    let doors = linux::own_namespaces(&doors(plan.users, plan.weakness));
    let doors = doors.map_err(step("open its namespaces"))?;
    let told: Vec<BorrowedFd<'_>> = doors.iter().map(OwnedFd::as_fd).collect();
    linux::send_message(control, &[READY], &told)?;
    drop(doors);
    Init { running: Vec::new(), has_shelf: plan.rootfs.shelf.is_some(), kept }.serve(control, &events)
}

fn step(what: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}

fn loopback(low: u8, high: u8) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, u16::from_le_bytes([low, high])).into()
}

/// Moves what was forked into the container to its control groups. It is the second
/// process here, unless a template died over it; whatever else was put here stays
/// where the template is.
fn join(groups: Vec<OwnedFd>) -> io::Result<()> {
    for group in groups {
        let mut file = File::from(group);
        let mut joined = Err(io::ErrorKind::NotFound.into());
        for pid in 2..2 + JOIN_TRIES {
            joined = file.write_all(pid.to_string().as_bytes());
            if joined.is_ok() {
                break;
            }
        }
        joined.map_err(step("have it join the control groups"))?;
    }
    Ok(())
}

/// Pid 1, once the container is made.
struct Init {
    /// Programs that the runtime waits for, with the sockets on which it does.
    running: Vec<(u32, OwnedFd)>,
    /// Files of functions can still be put in their places.
    has_shelf: bool,
    /// The capabilities that it has from then on.
    kept: u64,
}

impl Init {
    fn serve(&mut self, control: BorrowedFd<'_>, events: &OwnedFd) -> io::Result<()> {
        let mut is_known = false;
        loop {
            let [is_told, has_ended] = linux::wait_either(control, events.as_fd(), HEARTBEAT)?;
            if has_ended {
                linux::drain_events(events.as_fd());
                self.reap();
            }
            if !is_told {
                continue;
            }
            let Some((message, fds)) = linux::receive_message(control)? else { return Ok(()) };
            if !std::mem::replace(&mut is_known, true) {
                // Who gives orders knows of it, and need not find it where its siblings were.
                linux::leave_session();
            }
            if let [LISTEN, low, high] = *message {
                match TcpListener::bind(loopback(low, high)) {
                    Ok(listener) => linux::send_message(control, &[LISTENING], &[listener.as_fd()])?,
                    Err(error) => fail(control, &error),
                }
                continue;
            }
            if let [CONNECT, low, high] = *message {
                match TcpStream::connect_timeout(&loopback(low, high), CONNECT_PATIENCE) {
                    Ok(stream) => linux::send_message(control, &[CONNECTED], &[stream.as_fd()])?,
                    Err(error) => fail(control, &error),
                }
                continue;
            }
            if message.first() == Some(&JOIN) {
                match join(fds) {
                    Ok(()) => linux::send_message(control, &[JOINED], &[])?,
                    Err(error) => fail(control, &error),
                }
                continue;
            }
            if message.first() == Some(&ATTACH) {
                match self.attach(&message) {
                    Ok(()) => linux::send_message(control, &[ATTACHED], &[])?,
                    Err(error) => fail(control, &error),
                }
                continue;
            }
            match self.run(&message, fds) {
                Ok(pidfd) => linux::send_message(control, &[STARTED], &[pidfd.as_fd()])?,
                Err(error) => fail(control, &error),
            }
        }
    }

    /// Once: what made it possible is given up, whether it succeeds or not.
    fn attach(&mut self, message: &[u8]) -> io::Result<()> {
        let Attachments(wanted) = Attachments::decode(message).ok_or(io::ErrorKind::InvalidData)?;
        if !std::mem::take(&mut self.has_shelf) {
            return Err(io::Error::other("what the container sees is settled"));
        }
        let taken = rootfs::take(&wanted);
        linux::keep_capabilities(self.kept).map_err(step("drop capabilities"))?;
        taken
    }

    fn reap(&mut self) {
        while let Some((pid, exit)) = linux::reap_any() {
            let Some(at) = self.running.iter().position(|(running, _)| *running == pid) else { continue };
            let (_, status) = self.running.swap_remove(at);
            let (tag, number) = match exit {
                Exit::Code(code) => (RETURNED, code),
                Exit::Signal(signal) => (SIGNALLED, signal),
            };
            let [a, b, c, d] = number.to_le_bytes();
            // Whoever waited may have gone.
            let _ = linux::send_message(&status, &[tag, a, b, c, d], &[]);
        }
    }

    fn run(&mut self, message: &[u8], fds: Vec<OwnedFd>) -> io::Result<OwnedFd> {
        let order = Order::decode(message).ok_or(io::ErrorKind::InvalidData)?;
        if self.running.len() >= RUNNING_MAX {
            return Err(io::Error::other(format!("{RUNNING_MAX} programs run already")));
        }
        let mut fds = fds.into_iter();
        let (Some(stdin), Some(stdout), Some(stderr), Some(status)) =
            (fds.next(), fds.next(), fds.next(), fds.next())
        else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let joins: Vec<OwnedFd> = fds.collect();
        match linux::fork(false)? {
            Forked::Parent(pid) => {
                let pidfd = linux::open_process(pid)?;
                self.running.push((pid, status));
                Ok(pidfd)
            }
            Forked::Child => {
                let error = match order.program.is_adapter() {
                    true => become_adapter(order, stdin, joins),
                    false => become_program(order, [stdin, stdout, stderr], joins),
                };
                fail(status.as_fd(), &error);
                // Nothing of pid 1's may run here a second time.
                std::process::exit(127)
            }
        }
    }
}

/// Confines this process and serves the node as the adapter of an executable.
/// Nothing is executed, so this process, unlike what it starts, can never be
/// looked into. Returns only why it did not begin.
#[allow(unsafe_code)]
fn become_adapter(order: Order, channel: OwnedFd, joins: Vec<OwnedFd>) -> io::Error {
    let serve = || -> io::Result<()> {
        for join in joins {
            File::from(join).write_all(b"0").map_err(step("join the control groups"))?;
        }
        std::env::set_current_dir(&order.program.directory)?;
        // SAFETY: this process only serves, over its standard input, and then
        // exits without dropping what it inherited from pid 1.
        unsafe { linux::keep_only_as_stdin(channel) }.map_err(step("close what is pid 1's"))?;
        order.confinement.apply()?;
        let channel = io::stdin().as_fd().try_clone_to_owned()?;
        // The channel's end is the end of all; its errors are heard by nobody.
        let served = adapter::run(channel.into());
        std::process::exit(i32::from(served.is_err()))
    };
    match serve() {
        Ok(()) => io::ErrorKind::Other.into(),
        Err(error) => error,
    }
}

/// Confines this process and executes the program; returns only why not.
#[expect(clippy::disallowed_methods, reason = "this is where programs are started in containers")]
#[allow(unsafe_code)]
fn become_program(order: Order, stdio: [OwnedFd; 3], joins: Vec<OwnedFd>) -> io::Error {
    linux::reset_signals();
    for join in joins {
        if let Err(error) = File::from(join).write_all(b"0") {
            return step("join the control groups")(error);
        }
    }
    let Order { program, confinement } = order;
    let [stdin, stdout, stderr] = stdio.map(Stdio::from);
    let mut command = Command::new(&program.path);
    command.args(&program.arguments).env_clear().envs(program.environment);
    command.current_dir(&program.directory).stdin(stdin).stdout(stdout).stderr(stderr);
    // SAFETY: the process has one thread, so whatever the closure does finds
    // every lock free and the heap whole.
    unsafe { command.pre_exec(move || confinement.apply()) };
    command.exec()
}
