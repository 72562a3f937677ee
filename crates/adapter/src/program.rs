// SPDX-License-Identifier: Apache-2.0
//! The program: starting it, and how it ends.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::Settings;
use crate::connection::Connections;
use crate::logs::Logs;
use crate::poller::{Poller, Source, Wanted};
use crate::wire::Channel;

/// Where a server listens, in the container's own network.
pub(crate) const PORT: u16 = 8080;
/// Or on a socket of this name.
const SOCKET: &str = "http.sock";
/// A server that does not listen by then will not.
pub(crate) const START_MAX: Duration = Duration::from_secs(20);
/// How often it is tried whether the server listens: soon at first.
const START_STEPS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];
/// Where programs for Lambda ask for their events.
const RUNTIME_API: &str = "AWS_LAMBDA_RUNTIME_API";
/// The end of a program is seen a moment later than that of its connections.
pub(crate) const ENDS_WITHIN: Duration = Duration::from_millis(20);

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The node is gone.
    Channel(io::Error),
    /// The program did not do what it is to. Without a trace, it is the end of what was printed.
    Program { what: String, trace: String },
    /// It says itself that it failed.
    Raised { kind: String, message: String, trace: String },
    /// Its answer is none.
    Result(String),
    /// It broke the connection without an answer; it may have ended.
    Lost(io::Error),
}

/// Whether the server listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    Stopped,
    /// Not yet; since when it is waited for.
    Starting(Instant),
    Listening,
}

impl Failed {
    pub(crate) fn program(what: impl Into<String>) -> Self {
        Self::Program { what: what.into(), trace: String::new() }
    }

    /// What is needed to start it is not to be had.
    pub(crate) fn unstarted(error: io::Error) -> Self {
        Self::program(format!("the program cannot be started: {error}"))
    }

    /// The program gave no answer.
    pub(crate) fn unanswered(error: &io::Error) -> Self {
        Self::program(match error.kind() {
            io::ErrorKind::UnexpectedEof => "the program closed the connection without an answer".to_owned(),
            _ => format!("the program broke the connection: {error}"),
        })
    }

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
    pub(crate) connections: Connections,
    /// Where it calls other functions.
    callers: String,
    /// Where it asks for its events, if it does.
    pub(crate) runtime_api: Option<String>,
    server: Option<Running>,
    pub(crate) state: Server,
}

/// A server that runs, and what its end is heard by.
struct Running {
    child: Child,
    end: OwnedFd,
    wanted: Wanted,
}

impl Program {
    pub(crate) fn new(settings: Settings, port: u16, callers: String) -> Self {
        let connections = Connections::new(settings.folder.join(SOCKET), port);
        Self { settings, connections, callers, runtime_api: None, server: None, state: Server::Stopped }
    }

    /// Starts the server, and waits until it listens.
    pub(crate) fn load(
        &mut self,
        logs: &mut Logs,
        channel: &mut Channel,
        poller: &Poller,
    ) -> Result<(), Failed> {
        self.start(logs, poller)?;
        while !self.listens()? {
            if let Some(status) = self.ended(poller)? {
                return Err(Failed::program(format!("the program {} before it listened", ending(status))));
            }
            logs.pass(channel)?;
            channel.flush()?;
            std::thread::sleep(self.patience());
        }
        Ok(())
    }

    /// Starts the server.
    pub(crate) fn start(&mut self, logs: &Logs, poller: &Poller) -> Result<(), Failed> {
        self.connections.close();
        let (socket, port) = (self.connections.socket(), self.connections.port());
        // One of a server that has ended would not let the next one listen.
        _ = fs::remove_file(socket);
        if port == PORT && TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).is_err() {
            let what = format!("port {PORT} is taken by a process that the program left behind");
            return Err(Failed::program(what));
        }
        let mut command = self.command(logs)?;
        command.env("PORT", port.to_string()).env("HOST", "127.0.0.1").env("SINEW_SOCKET", socket);
        self.spawn(command, logs, poller)
    }

    /// Starts a program that asks for its events.
    pub(crate) fn start_asking(&mut self, logs: &Logs, poller: &Poller) -> Result<(), Failed> {
        let mut command = self.command(logs)?;
        for (name, value) in self.of_lambda() {
            // What the function says goes before what is said to all, but for where it asks.
            let is_said = self.settings.environment.iter().any(|(said, _)| said == name);
            if !is_said || name == RUNTIME_API {
                command.env(name, value);
            }
        }
        self.spawn(command, logs, poller)
    }

    /// What programs for Lambda are told when they are started.
    fn of_lambda(&self) -> [(&'static str, &str); 13] {
        let Settings { program, directory, function, memory_mib, .. } = &self.settings;
        let handler = program.strip_prefix(directory).unwrap_or(program).to_str().unwrap_or_default();
        let directory = directory.to_str().unwrap_or_default();
        [
            (RUNTIME_API, self.runtime_api.as_deref().unwrap_or_default()),
            ("_HANDLER", handler),
            ("LAMBDA_TASK_ROOT", directory),
            ("LAMBDA_RUNTIME_DIR", directory),
            ("AWS_LAMBDA_FUNCTION_NAME", function),
            ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", memory_mib),
            ("AWS_LAMBDA_LOG_GROUP_NAME", function),
            ("AWS_LAMBDA_LOG_STREAM_NAME", "sinew"),
            ("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand"),
            ("AWS_EXECUTION_ENV", "AWS_Lambda_provided.al2023"),
            ("AWS_REGION", "local"),
            ("AWS_DEFAULT_REGION", "local"),
        ]
    }

    fn spawn(&mut self, mut command: Command, logs: &Logs, poller: &Poller) -> Result<(), Failed> {
        command.stdin(Stdio::null()).stdout(logs.writer().map_err(Failed::unstarted)?);
        let mut child = command.spawn().map_err(|error| self.unstartable(&error))?;
        let end = match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(end) => end,
            Err(error) => {
                // It would have the port of the next one. Both fail only if it has ended.
                _ = child.kill();
                _ = child.wait();
                return Err(Failed::unstarted(error.into()));
            }
        };
        let server = self.server.insert(Running { child, end, wanted: Wanted::default() });
        poller.want(&server.end, Source::Server, &mut server.wanted, PollFlags::IN)?;
        self.state = Server::Starting(Instant::now());
        Ok(())
    }

    /// Whether the server listens by now, that was started.
    pub(crate) fn listens(&mut self) -> Result<bool, Failed> {
        let Server::Starting(since) = self.state else { return Ok(self.state == Server::Listening) };
        if self.connections.is_listened_to() {
            self.state = Server::Listening;
            return Ok(true);
        }
        if since.elapsed() <= START_MAX {
            return Ok(false);
        }
        self.end();
        let (seconds, port) = (START_MAX.as_secs(), self.connections.port());
        Err(Failed::program(format!(
            "the program did not listen within {seconds} s, neither on port {port} of 127.0.0.1 (PORT) nor on the \
             socket of SINEW_SOCKET; a program that is run for each request needs mode = \"stdin\""
        )))
    }

    /// How soon it is to be looked again whether it listens.
    pub(crate) fn patience(&self) -> Duration {
        let is_new = |since: Instant| since.elapsed() < 50 * START_STEPS[0];
        let is_soon = matches!(self.state, Server::Starting(since) if is_new(since));
        START_STEPS[usize::from(!is_soon)]
    }

    /// How the server has ended, if it has.
    pub(crate) fn ended(&mut self, poller: &Poller) -> io::Result<Option<ExitStatus>> {
        let Some(server) = &mut self.server else { return Ok(None) };
        let Some(status) = server.child.try_wait()? else { return Ok(None) };
        poller.want(&server.end, Source::Server, &mut server.wanted, PollFlags::empty())?;
        (self.server, self.state) = (None, Server::Stopped);
        Ok(Some(status))
    }

    fn end(&mut self) {
        if let Some(mut server) = self.server.take() {
            // Both fail only if it has ended.
            _ = server.child.kill();
            _ = server.child.wait();
        }
        self.state = Server::Stopped;
    }

    /// The program, with its environment and what it prints on standard error passed on.
    pub(crate) fn command(&self, logs: &Logs) -> Result<Command, Failed> {
        let mut command = command(&self.settings);
        command.process_group(0);
        command.env("SINEW_URL", &self.callers);
        command.stderr(logs.writer().map_err(Failed::unstarted)?);
        Ok(command)
    }

    pub(crate) fn unstartable(&self, error: &io::Error) -> Failed {
        unstartable(&self.settings.program, error)
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
    let metadata = fs::metadata(path)
        .map_err(|_| Failed::program(format!("the function has no file {shown}, which is its handler")))?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        return Err(Failed::program(format!("{shown} is no executable file: chmod +x {shown}")));
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
    Failed::program(what)
}

/// How a program has ended, for people.
pub(crate) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
