// SPDX-License-Identifier: Apache-2.0
//! The program: starting it, and how it ends.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::Settings;
use crate::connection::Connections;
use crate::logs::Logs;
use crate::wire::Channel;

/// Where a server listens, in the container's own network.
pub(crate) const PORT: u16 = 8080;
/// Or on a socket of this name.
const SOCKET: &str = "http.sock";
/// A server that does not listen by then will not.
const START_MAX: Duration = Duration::from_secs(20);
/// How often it is tried whether the server listens: soon at first.
const START_STEPS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];
/// The end of a program is seen a moment later than that of its connections: in so many ms at most.
const END_MS: u32 = 20;

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

impl Failed {
    pub(crate) fn program(what: impl Into<String>) -> Self {
        Self::Program { what: what.into(), trace: String::new() }
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
    server: Option<Child>,
}

impl Program {
    pub(crate) fn new(settings: Settings, port: u16, callers: String) -> Self {
        let connections = Connections::new(settings.folder.join(SOCKET), port);
        Self { settings, connections, callers, server: None }
    }

    /// Starts the server, if it does not run, and waits until it listens.
    pub(crate) fn serves(&mut self, logs: &mut Logs, channel: &mut Channel) -> Result<(), Failed> {
        if let Some(server) = &mut self.server
            && server.try_wait()?.is_none()
        {
            return Ok(());
        }
        self.start(logs)?;
        let begun = Instant::now();
        loop {
            if self.connections.is_listened_to() {
                return Ok(());
            }
            if let Some(status) = self.ended()? {
                return Err(Failed::program(format!("the program {} before it listened", ending(status))));
            }
            if begun.elapsed() > START_MAX {
                self.end();
                let (seconds, port) = (START_MAX.as_secs(), self.connections.port());
                return Err(Failed::program(format!(
                    "the program did not listen within {seconds} s, neither on port {port} of 127.0.0.1 (PORT) nor on the \
                     socket of SINEW_SOCKET; a program that is run for each request needs mode = \"stdin\""
                )));
            }
            logs.pass(channel)?;
            std::thread::sleep(START_STEPS[usize::from(begun.elapsed() > 50 * START_STEPS[0])]);
        }
    }

    fn start(&mut self, logs: &Logs) -> Result<(), Failed> {
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
        command.stdin(Stdio::null()).stdout(logs.writer()?);
        self.server = Some(command.spawn().map_err(|error| self.unstartable(&error))?);
        Ok(())
    }

    /// How the server ended, if it has.
    fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
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

    /// Why it gave no answer.
    pub(crate) fn lost(&mut self, error: &io::Error) -> Failed {
        for _ in 0..END_MS {
            match self.ended() {
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Ok(Some(status)) => {
                    return Failed::program(format!("the program {} during the call", ending(status)));
                }
                Err(error) => return Failed::Channel(error),
            }
        }
        Failed::program(match error.kind() {
            io::ErrorKind::UnexpectedEof => "the program closed the connection without an answer".to_owned(),
            _ => format!("the program broke the connection: {error}"),
        })
    }

    /// The program, with its environment and what it prints on standard error passed on.
    pub(crate) fn command(&self, logs: &Logs) -> io::Result<Command> {
        let mut command = command(&self.settings);
        command.process_group(0);
        command.env("SINEW_URL", &self.callers);
        command.stderr(logs.writer()?);
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
