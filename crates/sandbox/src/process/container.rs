// SPDX-License-Identifier: Apache-2.0
//! A container, from the outside.

use std::ffi::OsString;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use linux::{Cgroup, Exit, Gauges, Restrictions};
use parking_lot::Mutex;

use super::bounds::Usage;
use super::confinement::Confinement;
use super::error::Error;
use super::init::{
    ATTACHED, CONNECT, CONNECTED, FAILED, JOIN, JOINED, LISTEN, LISTENING, RETURNED, SIGNALLED, STARTED,
};
use super::plan::{Attachments, Order, STRINGS_MAX};
use super::realm::Ground;
use super::rootfs::Bind;

/// How long the init may take to answer.
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// How long the kernel may take to end what was killed.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// The same in a realm, whose template can keep it from that. Then the realm ends.
const REALM_PATIENCE: Duration = Duration::from_secs(3);

/// A native program to be run in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its file, as the container sees it; absolute.
    pub path: PathBuf,
    /// Its arguments, without its name.
    pub arguments: Vec<OsString>,
    /// All of its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Its working directory.
    pub directory: PathBuf,
}

impl Program {
    /// What stands between the node and an executable (`adapter`): no file, but
    /// the init's own code, in a process of its own, with its channel as
    /// standard input.
    pub fn adapter() -> Self {
        Self { path: PathBuf::new(), ..Self::new("") }
    }

    pub(super) fn is_adapter(&self) -> bool {
        self.path.as_os_str().is_empty()
    }

    /// A program without arguments, in `/tmp`, with a path to look for others.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            arguments: Vec::new(),
            environment: vec![
                ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
                ("HOME".into(), "/tmp".into()),
                ("LANG".into(), "C.UTF-8".into()),
            ],
            directory: "/tmp".into(),
        }
    }
}

/// A container that is ready: its pid 1 reaps and waits, and nobody's code
/// has run in it. Dropping it destroys it.
#[derive(Debug)]
pub struct Container {
    pidfd: OwnedFd,
    /// The realm that it is in, if it is in one.
    within: Option<Within>,
    /// Its namespaces, where they are entered by descriptors, until it is done.
    doors: Mutex<Arc<[OwnedFd]>>,
    control: Mutex<OwnedFd>,
    group: Option<Cgroup>,
    confinement: Confinement,
    /// Where what can be attached lies, if its own init has to do it.
    shelf: Option<PathBuf>,
    is_destroyed: bool,
}

/// What a container's init leaves with whoever had it made.
pub(super) struct Made {
    /// Its pid 1.
    pub(super) pidfd: OwnedFd,
    /// Its namespaces, where they are entered by descriptors.
    pub(super) doors: Vec<OwnedFd>,
    pub(super) within: Option<Within>,
}

/// What a container has of the realm that it is in.
#[derive(Debug)]
pub(super) struct Within {
    /// Pid 1 of the realm.
    pub(super) realm: OwnedFd,
    /// What stays until the last container of it has gone.
    pub(super) ground: Arc<Ground>,
}

impl Container {
    pub(super) fn new(
        made: Made,
        control: OwnedFd,
        group: Option<Cgroup>,
        confinement: Confinement,
        shelf: Option<PathBuf>,
    ) -> Self {
        let Made { pidfd, doors, within } = made;
        let (doors, control) = (Mutex::new(doors.into()), Mutex::new(control));
        Self { pidfd, within, doors, control, group, confinement, shelf, is_destroyed: false }
    }

    /// The container's pid 1. To be in the container, a process enters the
    /// namespace of process numbers and forks; its child joins the control
    /// groups and enters the others.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Files of its namespaces, for who has no rights over its pid 1, and enters by
    /// these. Of a container in a realm, for the template there: that of process
    /// numbers is the first. Of a realm, for the inits of its containers: those of
    /// users and of process numbers.
    pub(super) fn doors(&self) -> Arc<[OwnedFd]> {
        self.doors.lock().clone()
    }

    /// Nobody enters any more.
    pub(super) fn close_doors(&self) {
        *self.doors.lock() = Arc::default();
    }

    /// Whether it is in a realm.
    pub(super) fn is_in_realm(&self) -> bool {
        self.within.is_some()
    }

    /// Has what was forked into it join its control groups. A template in a realm
    /// gets no descriptor of these: it could put there what is not in the container.
    ///
    /// # Errors
    /// [`Error::Program`] with what the init says, [`Error::Ended`] after a kill.
    pub fn admit(&self) -> Result<(), Error> {
        let control = self.control.lock();
        linux::send_message(&*control, &[JOIN], &self.joins()).map_err(|_| Error::Ended)?;
        match receive(&control, "the init")? {
            Some((answer, _)) if answer.first() == Some(&JOINED) => Ok(()),
            Some((answer, _)) => Err(Error::Program(reason(&answer))),
            None => Err(Error::Ended),
        }
    }

    /// Whether its pid 1 has gone, for whatever reason.
    pub(super) fn has_ended(&self) -> bool {
        // It says nothing that it was not asked; who asks now will hear.
        let Some(control) = self.control.try_lock() else { return false };
        linux::wait_readable(&*control, Duration::ZERO).unwrap_or(true)
    }

    /// Files of the control groups: who writes `0` into each has joined them.
    pub fn joins(&self) -> Vec<BorrowedFd<'_>> {
        self.group.iter().flat_map(Cgroup::joins).collect()
    }

    /// The process in it that has this number there; `None` without control groups, and if there is none.
    pub fn process(&self, number: u32) -> Option<OwnedFd> {
        let is_it = |pid: u32| linux::own_number(pid).is_ok_and(|own| own == number);
        let pid = self.group.as_ref()?.processes().ok()?.into_iter().find(|pid| is_it(*pid))?;
        let process = linux::open_process(pid).ok()?;
        // Another one may have had that number by then, but none that is in this container.
        (linux::process_number(process.as_fd()).is_ok_and(|found| found == pid) && is_it(pid))
            .then_some(process)
    }

    /// What a process gives up before code runs in it.
    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// What the container uses and used; zeros without control groups.
    ///
    /// # Errors
    /// What reading the control groups says.
    pub fn usage(&self) -> io::Result<Usage> {
        self.group.as_ref().map_or(Ok(Usage::default()), |group| group.usage().map(Usage::from))
    }

    /// What can be read of it at little cost; `None` without control groups.
    pub(super) fn gauges(&self) -> Option<&Gauges> {
        self.group.as_ref().map(Cgroup::gauges)
    }

    /// Lets what is in it have all processor time, before its end.
    pub fn lift_cpu_limit(&self) {
        self.group.iter().for_each(Cgroup::lift_cpu_limit);
    }

    /// Ends all that is in the container, at once; it can only be destroyed
    /// then. Returns before the end. Killing again changes nothing.
    pub fn kill(&self) {
        // What may not run cannot end either.
        self.lift_cpu_limit();
        // It is our child, so that the only failure is that it has ended.
        let _ = linux::kill_process(self.pidfd.as_fd());
    }

    /// Has the container see folders of the host, read-only, without devices
    /// and set-user-id programs, each in one of the places that its
    /// [`Rootfs`](super::Rootfs) left for that. Only before anybody's code
    /// runs in it. A container with a shelf can do it once, with folders from
    /// there, and must, be it with none: until then code would see the shelf.
    /// Any other one takes the rights of root.
    ///
    /// # Errors
    /// [`Error::Kernel`] if a folder or place is not there; some may be
    /// attached then. [`Error::Program`] with what the init says.
    pub fn attach(&self, binds: &[Bind]) -> Result<(), Error> {
        if let Some(shelf) = &self.shelf {
            return self.take(shelf, binds);
        }
        if binds.is_empty() {
            return Ok(());
        }
        let hard = Restrictions::READ_ONLY.and(Restrictions::NO_SETUID).and(Restrictions::NO_DEVICES);
        let mut mounts = Vec::with_capacity(binds.len());
        for bind in binds {
            let tree = linux::copy_tree(&bind.host, hard).map_err(Error::kernel("open a layer"))?;
            mounts.push((tree, bind.guest.as_path()));
        }
        linux::attach_in(self.pidfd(), &mounts).map_err(Error::kernel("put a layer into a container"))
    }

    /// Has the init put these in their places.
    fn take(&self, shelf: &Path, binds: &[Bind]) -> Result<(), Error> {
        let from_there = |bind: &Bind| {
            let taken = bind.host.strip_prefix(shelf).ok()?.to_owned();
            Some((taken, bind.guest.clone()))
        };
        let wanted: Option<Vec<_>> = binds.iter().map(from_there).collect();
        let wanted = wanted.ok_or_else(|| Error::Invalid("a layer is not on the shelf".to_owned()))?;
        let control = self.control.lock();
        linux::send_message(&*control, &Attachments(wanted).encode(), &[]).map_err(|_| Error::Ended)?;
        match receive(&control, "the init")? {
            Some((answer, _)) if answer.first() == Some(&ATTACHED) => Ok(()),
            Some((answer, _)) => Err(Error::Program(reason(&answer))),
            None => Err(Error::Ended),
        }
    }

    /// Listens on the container's own loopback, for what runs in it to connect
    /// to this process. Before anybody's code runs in it, who else might have
    /// taken the port?
    ///
    /// # Errors
    /// [`Error::Program`] if the port is taken, [`Error::Ended`] after a kill.
    pub fn listen(&self, port: u16) -> Result<TcpListener, Error> {
        self.of_port(LISTEN, LISTENING, port).map(TcpListener::from)
    }

    /// Connects to what listens on the container's own loopback. It is the
    /// function's, and so is whatever it says.
    ///
    /// # Errors
    /// [`Error::Program`] if nothing listens there, [`Error::Ended`] after a kill.
    pub fn connect(&self, port: u16) -> Result<TcpStream, Error> {
        self.of_port(CONNECT, CONNECTED, port).map(TcpStream::from)
    }

    /// Has the init do this with a port of its loopback: the descriptor that comes of it.
    fn of_port(&self, order: u8, done: u8, port: u16) -> Result<OwnedFd, Error> {
        let [low, high] = port.to_le_bytes();
        let control = self.control.lock();
        linux::send_message(&*control, &[order, low, high], &[]).map_err(|_| Error::Ended)?;
        match receive(&control, "the init")? {
            Some((answer, mut fds)) if answer.first() == Some(&done) => fds.pop().ok_or(Error::Ended),
            Some((answer, _)) => Err(Error::Program(reason(&answer))),
            None => Err(Error::Ended),
        }
    }

    /// Starts a native program in the container, confined like any other code,
    /// with these as its standard input, output and error.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a relative path or too many strings,
    /// [`Error::Ended`] after a kill. That the program does not exist, its
    /// [`Process`] tells.
    pub fn run(&self, program: &Program, stdio: [OwnedFd; 3]) -> Result<Process, Error> {
        let is_long = program.arguments.len().max(program.environment.len()) > STRINGS_MAX;
        let is_file = program.path.is_absolute() || program.is_adapter();
        if !is_file || !program.directory.is_absolute() || is_long {
            return Err(Error::Invalid("a program needs absolute paths and few arguments".to_owned()));
        }
        let (status, theirs) = linux::message_pair().map_err(Error::kernel("make a socket"))?;
        let order = Order { program: program.clone(), confinement: self.confinement.clone() }.encode();
        if order.len() > linux::MESSAGE_LEN_MAX {
            return Err(Error::Invalid(format!("a program's arguments take {} bytes", order.len())));
        }
        let mut fds: Vec<BorrowedFd<'_>> = stdio.iter().map(OwnedFd::as_fd).collect();
        fds.push(theirs.as_fd());
        fds.extend(self.joins());
        let control = self.control.lock();
        linux::send_message(&*control, &order, &fds).map_err(|_| Error::Ended)?;
        match receive(&control, "the init")? {
            Some((answer, mut fds)) if answer.first() == Some(&STARTED) => {
                let pidfd = fds.pop().ok_or(Error::Ended)?;
                Ok(Process { pidfd, status, ended: None })
            }
            Some((answer, _)) => Err(Error::Program(reason(&answer))),
            None => Err(Error::Ended),
        }
    }

    /// Ends all that is in the container and takes it away: nothing is left.
    ///
    /// # Errors
    /// [`Error::Timeout`] or [`Error::Kernel`] if something could not be taken
    /// away in time, as a process that the kernel cannot end.
    pub fn destroy(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.is_destroyed, true) {
            return Ok(());
        }
        self.kill();
        // Pid 1 is the last to go: the kernel reaps all others first.
        let mut ended = linux::wait_process(self.pidfd.as_fd(), self.patience());
        if let (Ok(None), Some(within)) = (&ended, &self.within) {
            // What the template has put into it, and does not let go.
            let _ = linux::kill_process(within.realm.as_fd());
            ended = linux::wait_process(self.pidfd.as_fd(), END_PATIENCE);
        }
        if ended.map_err(Error::kernel("wait for a container's end"))?.is_none() {
            return Err(Error::Timeout("a killed container", END_PATIENCE.as_secs()));
        }
        match &self.group {
            Some(group) => group.remove(END_PATIENCE).map_err(Error::kernel("remove a control group")),
            None => Ok(()),
        }
    }
}

impl Container {
    fn patience(&self) -> Duration {
        let may_be_held = self.within.as_ref().is_some_and(|within| !within.ground.is_trusted());
        if may_be_held { REALM_PATIENCE } else { END_PATIENCE }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// A program that was started in a container. Dropping it leaves it running,
/// until its container ends.
#[derive(Debug)]
pub struct Process {
    pidfd: OwnedFd,
    status: OwnedFd,
    ended: Option<Exit>,
}

impl Process {
    /// The process.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Waits for its end; `None` when the time is over before. The end of the
    /// container is one by SIGKILL.
    ///
    /// # Errors
    /// [`Error::Program`] if it could not be executed.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Exit>, Error> {
        if self.ended.is_some() {
            return Ok(self.ended);
        }
        if !linux::wait_readable(&self.status, timeout).map_err(Error::kernel("wait for a program"))? {
            return Ok(None);
        }
        let message = linux::receive_message(&self.status).map_err(Error::kernel("hear of a program"))?;
        let exit = match message.as_ref().map(|(bytes, _)| bytes.as_slice()) {
            Some([RETURNED, number @ ..]) => Exit::Code(status_number(number)),
            Some([SIGNALLED, number @ ..]) => Exit::Signal(status_number(number)),
            Some(other) => return Err(Error::Program(reason(other))),
            None => Exit::Signal(9),
        };
        self.ended = Some(exit);
        Ok(self.ended)
    }

    /// Ends the process, not what it has started.
    pub fn kill(&self) {
        let _ = linux::kill_process(self.pidfd.as_fd());
    }
}

fn status_number(bytes: &[u8]) -> i32 {
    bytes.try_into().map_or(0, i32::from_le_bytes)
}

/// A message and the descriptors that came with it.
pub(super) type Answer = (Vec<u8>, Vec<OwnedFd>);

/// One answer within the time for it; `None` if the other side has ended.
pub(super) fn receive(socket: &OwnedFd, who: &'static str) -> Result<Option<Answer>, Error> {
    if !linux::wait_readable(socket, ANSWER_PATIENCE).map_err(Error::kernel("wait for an answer"))? {
        return Err(Error::Timeout(who, ANSWER_PATIENCE.as_secs()));
    }
    linux::receive_message(socket).map_err(Error::kernel("take an answer"))
}

/// The text of a [`FAILED`] answer.
pub(super) fn reason(answer: &[u8]) -> String {
    match answer {
        [FAILED, text @ ..] => String::from_utf8_lossy(text).into_owned(),
        _ => "it gave an answer that means nothing".to_owned(),
    }
}
