// SPDX-License-Identifier: Apache-2.0
//! A peer that is a Python program: it does its job whenever it is sent a line, and tells of it in one that is a JSON object.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

/// One that waits for its turn. It ends, with all its processes, when its input does.
pub(crate) struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    errors: File,
}

impl Peer {
    /// Starts it; it is ready when it has told of itself, and that comes too.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<(Self, Value)> {
        let errors = tempfile::tempfile()?;
        // The bench has its own heap in huge pages, by a setting that would go on.
        command.env_remove("GLIBC_TUNABLES");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors.try_clone()?);
        let mut child = command.spawn()?;
        let output = BufReader::new(child.stdout.take().context("it has no output")?);
        let input = child.stdin.take();
        let mut peer = Self { child, input, output, errors };
        let told = peer.line()?;
        Ok((peer, told))
    }

    /// Sends a line; what it tells then.
    pub(crate) fn ask(&mut self, line: &str) -> anyhow::Result<Value> {
        let input = self.input.as_mut().context("it has no input")?;
        input.write_all(format!("{line}\n").as_bytes())?;
        self.line()
    }

    /// Its next line that is JSON; Ray itself prints others.
    fn line(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        while self.output.read_line(&mut line)? > 0 {
            if line.starts_with('{') {
                return Ok(serde_json::from_str(&line)?);
            }
            line.clear();
        }
        let mut said = String::new();
        self.errors.rewind()?;
        self.errors.read_to_string(&mut said)?;
        bail!("{}", said.lines().last().unwrap_or("it ended and said nothing"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.input = None;
        _ = self.child.wait();
    }
}

/// Redis, on the unix socket `redis.sock` of a folder, that keeps nothing.
pub(crate) struct Redis(Child);

impl Redis {
    #[expect(clippy::disallowed_methods, reason = "the peer's database is a program of its own")]
    pub(crate) fn start(folder: &Path) -> anyhow::Result<Self> {
        let socket = folder.join("redis.sock");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(&socket);
        command
            .arg("--dir")
            .arg(folder)
            .env_remove("GLIBC_TUNABLES")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = command.spawn().context("redis-server is missing: apt-get install redis-server")?;
        let database = Self(child);
        let begun = Instant::now();
        while !socket.exists() {
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
