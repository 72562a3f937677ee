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
        let begun = Instant::now();
        let mut stream = TcpStream::connect(self.0.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let body = event.to_string();
        let request = format!(
            "POST /function/{workflow} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let wall = begun.elapsed().as_secs_f64() * 1e9;
        let (head, body) = answer.split_once("\r\n\r\n").context("the node's answer has no body")?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{workflow}: {answer}");
        Ok((wall, serde_json::from_str(body)?))
    }
}
