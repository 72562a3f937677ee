// SPDX-License-Identifier: Apache-2.0
//! A peer: a program that runs the workflows when it is told to.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use crate::warm::servers::PEERS;

/// One that waits for its turn. It ends when its input does.
pub(super) struct Peer {
    pub(super) kind: &'static str,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    errors: File,
    /// What it passes values through.
    _database: Option<Database>,
}

impl Peer {
    #[expect(clippy::disallowed_methods, reason = "the peer is a program of its own")]
    pub(super) fn start(kind: &'static str, python: &Path, folder: &Path) -> anyhow::Result<Self> {
        let database = (kind == "redis").then(|| Database::start(folder)).transpose()?;
        let errors = tempfile::tempfile()?;
        let mut command = Command::new(python);
        command.arg(format!("{PEERS}/workflows/peer.py")).arg(kind).arg(folder);
        // As in a node's containers.
        command.env("OPENBLAS_NUM_THREADS", "1").env("OMP_NUM_THREADS", "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors.try_clone()?);
        let mut child = command.spawn()?;
        let output = BufReader::new(child.stdout.take().context("it has no output")?);
        let input = child.stdin.take();
        let mut peer = Self { kind, child, input, output, errors, _database: database };
        peer.line()?;
        Ok(peer)
    }

    /// How long a run took, and what came of it.
    pub(super) fn run(&mut self, workflow: &str, event: &Value) -> anyhow::Result<(f64, Value)> {
        let input = self.input.as_mut().context("it has no input")?;
        writeln!(input, "{}", json!({"workflow": workflow, "event": event}))?;
        let mut line = self.line()?;
        let wall = line["wall_ns"].as_f64().context("a sample lacks its time")?;
        Ok((wall, line["result"].take()))
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

/// Redis, on a unix socket, that keeps nothing.
struct Database(Child);

impl Database {
    #[expect(clippy::disallowed_methods, reason = "the peer's database is a program of its own")]
    fn start(folder: &Path) -> anyhow::Result<Self> {
        let socket = folder.join("redis.sock");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(&socket);
        command.arg("--dir").arg(folder).stdin(Stdio::null()).stdout(Stdio::null());
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

impl Drop for Database {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
