// SPDX-License-Identifier: Apache-2.0
//! A node with workflows, each run of which is a request over HTTP.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::warm::servers::{Server, free_address, sinew};

const PATIENCE: Duration = Duration::from_secs(300);

/// It ends with this.
pub(crate) struct WorkflowNode(Server);

impl WorkflowNode {
    /// Deploys what the folder's `sinew.toml` says, to a node that has its home there.
    #[expect(clippy::disallowed_methods, reason = "the node runs as its users run it")]
    pub(crate) fn start(folder: &Path, python: &Path, flags: &[&str]) -> anyhow::Result<Self> {
        let (home, address) = (folder.join("home"), free_address()?);
        let mut up = Command::new(sinew()?);
        up.arg("up")
            .arg("--home")
            .arg(&home)
            .args(["--listen", &address.to_string(), "--python"])
            .arg(python);
        let node = Server::start(up.args(flags), address, &folder.join("node.log"))?;
        let deployed = Command::new(sinew()?).arg("deploy").arg(folder).env("SINEW_HOME", &home).output()?;
        let said = String::from_utf8_lossy(&deployed.stderr).into_owned();
        ensure!(deployed.status.success(), "deploy failed: {said}");
        Ok(Self(node))
    }

    /// How long a run took by the clock of its client, in nanoseconds, and what came of it.
    pub(crate) fn run(&self, workflow: &str, event: &Value) -> anyhow::Result<(f64, Value)> {
        let run = self.run_known(workflow, event)?;
        Ok((run.wall_ns, run.result))
    }

    /// A run, and by what it can be asked for.
    pub(crate) fn run_known(&self, workflow: &str, event: &Value) -> anyhow::Result<Run> {
        let body = event.to_string();
        let begun = Instant::now();
        let (head, body) = self.exchange(&format!(
            "POST /function/{workflow} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))?;
        let wall_ns = begun.elapsed().as_secs_f64() * 1e9;
        ensure!(head.starts_with("HTTP/1.1 200"), "{workflow}: {head} {body}");
        let header = |line: &str| Some(line.split_once(": ")?.1.to_owned());
        let of_id = |line: &&str| line.to_ascii_lowercase().starts_with("x-request-id:");
        let id = head.lines().find(of_id).and_then(header).context("the run has no id")?;
        Ok(Run { wall_ns, id, result: serde_json::from_str(&body)? })
    }

    /// What the node knows of a run, with its steps.
    pub(crate) fn document(&self, id: &str) -> anyhow::Result<Value> {
        let request = format!("GET /v1/runs/{id} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let (head, body) = self.exchange(&request)?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{id}: {head} {body}");
        Ok(serde_json::from_str(&body)?)
    }

    /// The head and the body of an answer.
    fn exchange(&self, request: &str) -> anyhow::Result<(String, String)> {
        let mut stream = TcpStream::connect(self.0.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("the node's answer has no body")?;
        Ok((head.to_owned(), body.to_owned()))
    }

    /// The node's processes: its own, its templates and its instances.
    pub(crate) fn family(&self) -> Vec<u32> {
        let mut family = vec![self.0.id()];
        let mut at = 0;
        while let Some(process) = family.get(at).copied() {
            let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
            for task in tasks {
                let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
                family.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
            }
            at += 1;
        }
        family
    }
}

/// A run that has ended.
pub(crate) struct Run {
    pub(crate) wall_ns: f64,
    pub(crate) id: String,
    pub(crate) result: Value,
}
