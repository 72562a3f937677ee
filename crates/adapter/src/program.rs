// SPDX-License-Identifier: Apache-2.0
//! The program: starting it, and what it prints.

use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::callees::Callees;
use crate::head::Request;
use crate::wire::Channel;
use crate::{Mode, Settings, http, standard};

/// Where a server listens, in the container's own network.
pub(crate) const PORT: u16 = 8080;
/// Or on a socket of this name.
const SOCKET: &str = "http.sock";
/// A server that does not listen by then will not.
const START_MAX: Duration = Duration::from_secs(20);
/// How often it is tried whether the server listens: soon at first.
const START_STEPS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];
/// The last bytes of what was printed are told with a failure.
const TOLD: usize = 2048;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The node is gone.
    Channel(io::Error),
    /// The program did not do what it is to.
    Program { what: String, trace: String },
    /// It says itself that it failed.
    Raised { kind: String, message: String, trace: String },
    /// Its answer is none.
    Result(String),
}

impl Failed {
    /// A failure as its program tells it: a line that says what, and then where.
    pub(crate) fn raised(kind: &str, text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let (first, trace) = text.split_once('\n').unwrap_or((&text, ""));
        let message = first.strip_prefix(kind).map_or(first, |rest| rest.trim_start_matches([':', ' ']));
        Self::Raised { kind: kind.to_owned(), message: message.to_owned(), trace: trace.to_owned() }
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Channel(error)
    }
}

/// A program, running or not.
pub(crate) struct Program {
    pub(crate) settings: Settings,
    pub(crate) logs: Logs,
    callees: Callees,
    port: u16,
    server: Option<Child>,
}

impl Program {
    pub(crate) fn new(settings: Settings) -> io::Result<Self> {
        Ok(Self { settings, logs: Logs::new()?, callees: Callees::listen()?, port: PORT, server: None })
    }

    /// Another port than a container's, where no container is.
    #[cfg(test)]
    pub(crate) fn with_port(settings: Settings, port: u16) -> io::Result<Self> {
        let mut program = Self::new(settings)?;
        program.port = port;
        Ok(program)
    }

    /// Looks whether it can be run, and has a server run.
    pub(crate) fn load(&mut self, channel: &mut Channel) -> Result<(), Failed> {
        look_at(&self.settings)?;
        match self.settings.mode {
            Mode::Http => self.serving(channel),
            Mode::Standard | Mode::Native => Ok(()),
        }
    }

    /// Asks it.
    pub(crate) fn call(
        &mut self,
        head: &[u8],
        body: &[u8],
        channel: &mut Channel,
    ) -> Result<Vec<u8>, Failed> {
        let request = Request::read(head);
        self.callees.begin();
        let answer = match self.settings.mode {
            Mode::Standard => standard::run(self, &request, body, channel),
            // Of a native one there is no adapter.
            Mode::Http | Mode::Native => {
                self.serving(channel)?;
                http::exchange(self, &request, body, channel)
            }
        };
        // What was printed for this call is told with it.
        self.logs.pass(channel)?;
        answer
    }

    /// Starts the server, if it does not run, and waits until it listens.
    fn serving(&mut self, channel: &mut Channel) -> Result<(), Failed> {
        if let Some(server) = &mut self.server
            && server.try_wait()?.is_none()
        {
            return Ok(());
        }
        let socket = self.socket();
        // One of a server that has ended would not let the next one listen.
        _ = fs::remove_file(&socket);
        if self.port == PORT && TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).is_err() {
            let what = format!("port {PORT} is taken by a process that the program left behind");
            return Err(Failed::Program { what, trace: String::new() });
        }
        let mut command = self.command()?;
        command.env("PORT", self.port.to_string()).env("HOST", "127.0.0.1").env("SINEW_SOCKET", &socket);
        command.stdin(Stdio::null()).stdout(self.logs.writer()?);
        self.server = Some(command.spawn().map_err(|error| self.unstartable(&error))?);
        let begun = Instant::now();
        loop {
            if http::connect(&socket, self.port).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.ended()? {
                let what = format!("the program {} before it listened", ending(status));
                return Err(self.failed(what, channel));
            }
            if begun.elapsed() > START_MAX {
                self.end();
                let seconds = START_MAX.as_secs();
                let what = format!(
                    "the program did not listen within {seconds} s, neither on port {} of 127.0.0.1 (PORT) nor on the \
                     socket of SINEW_SOCKET; a program that is run for each request needs mode = \"stdin\"",
                    self.port
                );
                return Err(self.failed(what, channel));
            }
            self.logs.pass(channel)?;
            std::thread::sleep(START_STEPS[usize::from(begun.elapsed() > 50 * START_STEPS[0])]);
        }
    }

    /// Where a server may listen instead of on the port.
    pub(crate) fn socket(&self) -> PathBuf {
        self.settings.folder.join(SOCKET)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How the server ended, if it has.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        match &mut self.server {
            Some(server) => server.try_wait(),
            None => Ok(None),
        }
    }

    fn end(&mut self) {
        if let Some(mut server) = self.server.take() {
            // Both fail only if it has ended.
            _ = server.kill();
            _ = server.wait();
        }
    }

    /// The program, with its environment and what it prints on standard error passed on.
    pub(crate) fn command(&self) -> io::Result<Command> {
        let mut command = command(&self.settings);
        command.process_group(0);
        command.env("SINEW_URL", self.callees.url()?);
        command.stderr(self.logs.writer()?);
        Ok(command)
    }

    /// Waits, while the program is asked, until one of these is ready, or there is
    /// more room for a result in pieces; passes on what is printed, and calls of other
    /// functions, meanwhile. Tells which are ready.
    pub(crate) fn wait(
        &mut self,
        channel: &mut Channel,
        others: &[(BorrowedFd<'_>, PollFlags)],
    ) -> io::Result<Vec<bool>> {
        self.wait_for(channel, others, None)
    }

    /// The same, for a time.
    pub(crate) fn wait_for(
        &mut self,
        channel: &mut Channel,
        others: &[(BorrowedFd<'_>, PollFlags)],
        patience: Option<Duration>,
    ) -> io::Result<Vec<bool>> {
        let timespec = |time: Duration| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        let patience = patience.map(timespec);
        loop {
            let is_asking = self.callees.is_asking();
            let waited_for = self.callees.waited_for();
            let own = waited_for.len();
            // Unless it is to answer something, to give room, or to send more of the body, the node says
            // nothing; its end is heard.
            let is_heard = is_asking || channel.is_in_pieces() || channel.has_body_to_come();
            let wanted = if is_heard { PollFlags::IN } else { PollFlags::empty() };
            let mut fds = vec![PollFd::new(&self.logs.reader, PollFlags::IN)];
            fds.push(PollFd::from_borrowed_fd(channel.as_fd(), wanted));
            let all = waited_for.iter().chain(others);
            fds.extend(all.map(|&(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
            let is_late = match poll(&mut fds, patience.as_ref()) {
                Err(Errno::INTR) => continue,
                done => done? == 0,
            };
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop((fds, waited_for));
            if ready[0] {
                self.logs.read(channel)?;
            }
            let has_heard = match ready[1] {
                true if is_heard => {
                    let has_body_to_come = channel.has_body_to_come();
                    channel.hear()?.into_iter().for_each(|told| self.callees.told(told));
                    channel.is_in_pieces() || has_body_to_come
                }
                true => return Err(io::ErrorKind::BrokenPipe.into()),
                false => false,
            };
            let (callees, others) = ready[2..].split_at(own);
            if callees.contains(&true) {
                self.callees.act(channel)?;
            }
            if others.contains(&true) || has_heard || is_late {
                return Ok(others.to_vec());
            }
        }
    }

    pub(crate) fn unstartable(&self, error: &io::Error) -> Failed {
        unstartable(&self.settings.program, error)
    }

    /// A failure, with the end of what was printed.
    pub(crate) fn failed(&mut self, what: String, channel: &mut Channel) -> Failed {
        match self.logs.pass(channel) {
            Ok(()) => Failed::Program { what, trace: self.logs.last() },
            Err(error) => Failed::Channel(error),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether there is a program that can be run.
pub(crate) fn look_at(settings: &Settings) -> Result<(), Failed> {
    let path = &settings.program;
    let shown = path.strip_prefix(&settings.directory).unwrap_or(path).display();
    let refused = |what: String| Failed::Program { what, trace: String::new() };
    let metadata = fs::metadata(path)
        .map_err(|_| refused(format!("the function has no file {shown}, which is its handler")))?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        return Err(refused(format!("{shown} is no executable file: chmod +x {shown}")));
    }
    Ok(())
}

/// The program, with its environment.
#[expect(clippy::disallowed_methods, reason = "this is where an executable is started, in its container")]
pub(crate) fn command(settings: &Settings) -> Command {
    let mut command = Command::new(&settings.program);
    command.env_clear().current_dir(&settings.directory);
    for (name, value) in
        [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/tmp"), ("TMPDIR", "/tmp"), ("LANG", "C.UTF-8")]
    {
        command.env(name, value);
    }
    command.envs(settings.environment.iter().map(|(name, value)| (name, value)));
    command
}

/// Why a program that is there cannot be started.
pub(crate) fn unstartable(program: &Path, error: &io::Error) -> Failed {
    let path = program.display();
    let what = match error.raw_os_error() {
        Some(8) => {
            format!("{path} is no program for this machine, and no script with #! in its first line")
        }
        // The file is there: what is not is what would run it.
        Some(2) => format!("{path} cannot be started: its interpreter or loader is not in the container"),
        _ => format!("{path} cannot be started: {error}"),
    };
    Failed::Program { what, trace: String::new() }
}

/// How a program has ended, for people.
pub(crate) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// What the program prints: a pipe into which it writes, and the last of it.
pub(crate) struct Logs {
    reader: PipeReader,
    writer: PipeWriter,
    last: Vec<u8>,
}

impl Logs {
    fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(Self { reader, writer, last: Vec::new() })
    }

    fn writer(&self) -> io::Result<PipeWriter> {
        self.writer.try_clone()
    }

    /// The end of what was printed for the last call.
    fn last(&self) -> String {
        String::from_utf8_lossy(&self.last).into_owned()
    }

    /// Forgets what was printed before.
    pub(crate) fn begin(&mut self) {
        self.last.clear();
    }

    /// Passes on what is there, without waiting.
    pub(crate) fn pass(&mut self, channel: &mut Channel) -> io::Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let mut fds = [PollFd::new(&self.reader, PollFlags::IN)];
            match poll(&mut fds, Some(&now)) {
                Ok(0) => return Ok(()),
                Ok(_) => self.read(channel)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn read(&mut self, channel: &mut Channel) -> io::Result<()> {
        let mut piece = [0; 32 << 10];
        let len = self.reader.read(&mut piece)?;
        self.last.extend(&piece[..len]);
        let over = self.last.len().saturating_sub(TOLD);
        self.last.drain(..over);
        channel.log(&piece[..len])
    }

    /// Waits until the node says something; passes on what is printed meanwhile.
    pub(crate) fn wait(&mut self, channel: &mut Channel) -> io::Result<()> {
        loop {
            let node = channel.as_fd();
            let mut fds =
                [PollFd::new(&self.reader, PollFlags::IN), PollFd::from_borrowed_fd(node, PollFlags::IN)];
            match poll(&mut fds, None) {
                Err(Errno::INTR) => continue,
                done => done?,
            };
            let [printed, node] = fds.map(|fd| !fd.revents().is_empty());
            if printed {
                self.read(channel)?;
            }
            if node {
                return Ok(());
            }
        }
    }
}
