// SPDX-License-Identifier: Apache-2.0
//! The same where the function brings numpy and pandas itself, by its
//! `requirements.txt`, on a node as its users run it: from the request, over
//! HTTP, to the handler's first line.
//!
//! Loaded before the fork (`imports`), by a template that is confined itself; and
//! after it, by each instance.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::{PACKAGES, add_ms, percentile};
use crate::figures::Report;
use crate::warm::servers::{Server, free_address, sinew};

const SOURCE: &str = "import time\nimport numpy\nimport pandas\n\
    def handler(event, context):\n    return time.monotonic_ns()\n";
/// With and without `imports`.
const NAMES: [&str; 2] = ["before", "after"];
/// Within which the node replaces what the last request took.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Brought {
    node: Server,
    folder: tempfile::TempDir,
    /// Of each function, until the first line.
    times: [Vec<f64>; 2],
}

impl Brought {
    #[expect(clippy::disallowed_methods, reason = "the node runs as its users run it")]
    pub(super) fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let root = folder.path();
        std::fs::write(root.join("main.py"), SOURCE)?;
        std::fs::write(root.join("requirements.txt"), PACKAGES.join("\n"))?;
        let function = |name: &str, more: &str| {
            format!("[functions.{name}]\nruntime = \"python\"\nkeep-alive = \"0\"\n{more}\n")
        };
        let imports = "imports = [\"numpy\", \"pandas\"]\n";
        std::fs::write(root.join("sinew.toml"), function(NAMES[0], imports) + &function(NAMES[1], ""))?;
        let (home, address) = (root.join("home"), free_address()?);
        let mut up = Command::new(sinew()?);
        up.arg("up").arg("--home").arg(&home).args(["--listen", &address.to_string()]);
        let node = Server::start(&mut up, address, &root.join("node.log"))?;
        eprintln!("  installing {PACKAGES:?} for a function that brings them");
        let deployed = Command::new(sinew()?).arg("deploy").arg(root).env("SINEW_HOME", &home).output()?;
        ensure!(deployed.status.success(), "deploy failed: {}", String::from_utf8_lossy(&deployed.stderr));
        let mut brought = Self { node, folder, times: Default::default() };
        brought.round()?;
        brought.times = Default::default();
        Ok(brought)
    }

    /// One new instance of each.
    pub(super) fn round(&mut self) -> anyhow::Result<()> {
        for (name, times) in NAMES.iter().zip(&mut self.times) {
            std::thread::sleep(PAUSE);
            let mut stream = TcpStream::connect(self.node.address)?;
            let begun = linux::monotonic_ns();
            let head = format!("POST /function/{name} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
            stream.write_all(
                (head + "content-type: application/json\r\ncontent-length: 2\r\n\r\n{}").as_bytes(),
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
            ensure!(head.starts_with("HTTP/1.1 200"), "{answer}");
            let first_line: u64 = body.trim().parse()?;
            times.push(first_line.saturating_sub(begun) as f64);
        }
        Ok(())
    }

    /// The requests that nobody had foreseen: what was made ahead is no start.
    #[expect(clippy::disallowed_methods, reason = "the node is asked as its users ask it")]
    fn forked(&self, name: &str, times: &[f64]) -> anyhow::Result<Vec<f64>> {
        let mut logs = Command::new(sinew()?);
        logs.args(["logs", name, "-o", "json", "-n", &times.len().to_string()]);
        let told = logs.env("SINEW_HOME", self.folder.path().join("home")).output()?;
        ensure!(told.status.success(), "logs failed: {}", String::from_utf8_lossy(&told.stderr));
        let lines = String::from_utf8(told.stdout)?;
        let starts: Vec<String> = lines
            .lines()
            .map(|line| {
                let record: serde_json::Value = serde_json::from_str(line)?;
                Ok(record["start"].as_str().context("a record without its start")?.to_owned())
            })
            .collect::<anyhow::Result<_>>()?;
        ensure!(starts.len() == times.len(), "{} records of {} requests", starts.len(), times.len());
        let all = times.iter().zip(starts).filter(|(_, start)| start == "forked");
        Ok(all.map(|(time, _)| *time).collect())
    }

    /// `cold` is a new container with a cold interpreter that has the same packages.
    pub(super) fn report(&self, report: &mut Report, cold: &[f64]) -> anyhow::Result<()> {
        let [before, after] = [0, 1].map(|at| self.forked(NAMES[at], &self.times[at]));
        let (before, after) = (before?, after?);
        add_ms(
            report,
            "brought_first_line_p50_ms",
            &before,
            0.5,
            "over HTTP; packages of its requirements.txt",
        );
        add_ms(report, "brought_first_line_p99_ms", &before, 0.99, "the same");
        add_ms(report, "brought_loaded_after_p50_ms", &after, 0.5, "the same without `imports`");
        let median = percentile(&before, 0.5);
        let ratio = percentile(&after, 0.5) / median;
        report.add(
            "brought_times_faster_than_after",
            ratio,
            "x",
            "loaded by each instance, p50",
            before.len(),
        );
        if !cold.is_empty() {
            let ratio = percentile(cold, 0.5) / median;
            report.add(
                "brought_times_faster_than_cold",
                ratio,
                "x",
                "runc + cold interpreter, p50",
                before.len(),
            );
        }
        Ok(())
    }
}
