// SPDX-License-Identifier: Apache-2.0
//! A peer that is a Python program: it does its job whenever it is sent a line, and tells of it in one that is a JSON object.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;

/// A peer that says nothing for so long will say nothing any more.
const PATIENCE: Duration = Duration::from_secs(300);
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// One that waits for its turn. It ends, with all its processes, when its input does.
pub(crate) struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    /// What it prints; a thread reads it, so that it can be waited for with a limit.
    lines: Receiver<String>,
    errors: File,
    patience: Duration,
}

impl Peer {
    /// Starts it; it is ready when it has told of itself, and that comes too.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<(Self, Value)> {
        Self::start_with(command, PATIENCE)
    }

    fn start_with(command: &mut Command, patience: Duration) -> anyhow::Result<(Self, Value)> {
        let errors = tempfile::tempfile()?;
        // The bench has its own heap in huge pages, by a setting that would go on.
        command.env_remove("GLIBC_TUNABLES");
        // A group of its own, so that those that it forks can be ended with it.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors.try_clone()?);
        let mut child = command.spawn()?;
        let output = BufReader::new(child.stdout.take().context("it has no output")?);
        let (sender, lines) = channel();
        // It ends when the peer does.
        std::thread::Builder::new().name("peer".to_owned()).spawn(move || {
            let mut all = output.lines().map_while(Result::ok);
            all.try_for_each(|line| sender.send(line))
        })?;
        let input = child.stdin.take();
        let mut peer = Self { child, input, lines, errors, patience };
        let told = peer.line()?;
        Ok((peer, told))
    }

    /// Sends a line; what it tells then.
    pub(crate) fn ask(&mut self, line: &str) -> anyhow::Result<Value> {
        self.send(line)?;
        self.line()
    }

    /// Sends a line.
    pub(crate) fn send(&mut self, line: &str) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("it has no input")?;
        Ok(input.write_all(format!("{line}\n").as_bytes())?)
    }

    /// What it tells next, if it does so within this time; if not, it is ended.
    pub(crate) fn told_within(&mut self, limit: Duration) -> anyhow::Result<Option<Value>> {
        let begun = Instant::now();
        let told = self.line_within(limit);
        if told.is_err() && begun.elapsed() >= limit {
            return Ok(None);
        }
        told.map(Some)
    }

    /// Its next line that is JSON; Ray itself prints others.
    fn line(&mut self) -> anyhow::Result<Value> {
        self.line_within(self.patience)
    }

    fn line_within(&mut self, patience: Duration) -> anyhow::Result<Value> {
        let until = Instant::now() + patience;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) if line.starts_with('{') => return Ok(serde_json::from_str(&line)?),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.kill();
                    bail!("it said nothing for {} s", patience.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let mut said = String::new();
        self.errors.rewind()?;
        self.errors.read_to_string(&mut said)?;
        bail!("{}", said.lines().last().unwrap_or("it ended and said nothing"))
    }

    /// Ends it and those that it forked.
    fn kill(&mut self) {
        _ = rustix::process::kill_process_group(rustix::process::Pid::from_child(&self.child), Signal::KILL);
        _ = self.child.wait();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.input = None;
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > ENDS_WITHIN {
                return self.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The program, and where Debian's `redis-tools` have it, which begin no service: there it is another tool by its name.
const SERVER: &str = "redis-server";
const SERVER_OF_TOOLS: &str = "/usr/bin/redis-check-rdb";

/// Redis, on the unix socket `redis.sock` of a folder, that keeps nothing.
pub(crate) struct Redis(Child);

impl Redis {
    #[expect(clippy::disallowed_methods, reason = "the peer's database is a program of its own")]
    pub(crate) fn start(folder: &Path) -> anyhow::Result<Self> {
        let socket = folder.join("redis.sock");
        let spawn = |program: &str| {
            let mut command = Command::new(program);
            command.arg0(SERVER).args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
            command.arg(&socket).arg("--dir").arg(folder).env_remove("GLIBC_TUNABLES");
            command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()
        };
        let child = spawn(SERVER).or_else(|error| match error.kind() {
            ErrorKind::NotFound => spawn(SERVER_OF_TOOLS),
            _ => Err(error),
        });
        let child =
            child.context("redis-server cannot be started; if it is missing: apt-get install redis-tools")?;
        let mut database = Self(child);
        let begun = Instant::now();
        while !socket.exists() {
            ensure!(database.0.try_wait()?.is_none(), "redis-server has ended at once");
            ensure!(begun.elapsed() < Duration::from_secs(20), "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(database)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests;
