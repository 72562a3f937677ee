// SPDX-License-Identifier: Apache-2.0
//! Who runs the workflows: a node, and programs that run the same file.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::python_peer::{Peer, Redis};
use crate::warm::servers::PEERS;
use crate::workflow_node::WorkflowNode;

/// What the file has. With this behind its name, a workflow sends its values.
const WORKFLOWS: [&str; 5] = ["finra", "training", "prediction", "wordcount", "alone"];
pub(super) const SENT: &str = "-sent";
/// What the manifest says of such a one.
pub(super) const BY_MESSAGES: &str = "values = \"send\"\n";

/// A node that serves the workflows, with values mapped and with values sent.
pub(super) fn node(folder: &Path, python: &Path) -> anyhow::Result<WorkflowNode> {
    std::fs::copy(format!("{PEERS}/workflows/main.py"), folder.join("main.py"))?;
    let mut manifest = String::new();
    for name in WORKFLOWS {
        for (kind, values) in [("", ""), (SENT, BY_MESSAGES)] {
            manifest.push_str(&format!(
                "[functions.{name}{kind}]\nruntime = \"python\"\nhandler = \"main.{name}\"\nworkflow = true\nmemory = \"1GiB\"\n\
                 imports = [\"numpy\", \"pandas\", \"lightgbm\"]\nsource = \"main.py\"\n{values}\n"
            ));
        }
    }
    std::fs::write(folder.join("sinew.toml"), manifest)?;
    WorkflowNode::start(folder, python, &[])
}

/// A node that serves one workflow of `memory.py`, and nothing else that would take memory.
pub(super) fn bare_node(
    folder: &Path,
    python: &Path,
    workflow: &str,
    further: &str,
) -> anyhow::Result<WorkflowNode> {
    std::fs::copy(format!("{PEERS}/workflows/memory.py"), folder.join("memory.py"))?;
    let manifest = format!(
        "[functions.{workflow}]\nruntime = \"python\"\nhandler = \"memory.{workflow}\"\nworkflow = true\nmemory = \"2GiB\"\n\
         source = \"memory.py\"\n{further}\n"
    );
    std::fs::write(folder.join("sinew.toml"), manifest)?;
    WorkflowNode::start(folder, python, &[])
}

/// A program that runs the workflows when it is told to.
pub(super) struct Runner {
    pub(super) kind: &'static str,
    peer: Peer,
    /// What it passes values through.
    _database: Option<Redis>,
}

/// A run of a peer.
pub(super) struct Told {
    pub(super) wall_ns: f64,
    pub(super) result: Value,
}

impl Runner {
    #[expect(clippy::disallowed_methods, reason = "the peer is a program of its own")]
    pub(super) fn start(kind: &'static str, python: &Path, folder: &Path) -> anyhow::Result<Self> {
        let database = (kind == "redis").then(|| Redis::start(folder)).transpose()?;
        let mut command = Command::new(python);
        command.arg(format!("{PEERS}/workflows/peer.py")).arg(kind).arg(folder);
        // As in a node's containers.
        command.env("OPENBLAS_NUM_THREADS", "1").env("OMP_NUM_THREADS", "1");
        let (peer, _) = Peer::start(&mut command)?;
        Ok(Self { kind, peer, _database: database })
    }

    /// How long a run took, and what came of it.
    pub(super) fn run(&mut self, workflow: &str, event: &Value) -> anyhow::Result<Told> {
        let mut told = self.peer.ask(&json!({"workflow": workflow, "event": event}).to_string())?;
        let wall_ns = told["wall_ns"].as_f64().context("a sample lacks its time")?;
        Ok(Told { wall_ns, result: told["result"].take() })
    }
}
