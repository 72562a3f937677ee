// SPDX-License-Identifier: Apache-2.0
//! `workflows`: FINRA, WordCount and prediction in the manner of RMMAP, section 5.1, by a node and by
//! peers that run the same file: worker processes that pass values through Redis, Ray, and one process
//! that passes nothing on.
//!
//! All have run each workflow before; they alternate, and ratios are of the same round. A run of ours is a
//! request over HTTP, with all of its steps in containers; the peers' workers are plain processes.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::coldstart::installed;
use crate::figures::{Report, median};
use crate::python_peer::{Peer, Redis};
use crate::warm::servers::PEERS;
use crate::workflow_node::WorkflowNode;

const PACKAGES: [&str; 4] = ["numpy==2.2.6", "pandas==2.3.3", "redis==7.1.0", "ray==2.60.0"];
const ROUNDS: usize = 15;
const WARMING: usize = 3;

/// One workflow, and with what it is run.
struct Job {
    name: &'static str,
    size: usize,
    width: usize,
    meaning: &'static str,
}

const JOBS: [Job; 3] = [
    Job { name: "finra", size: 50_000, width: 200, meaning: "200 rules over a frame of 50,000 trades" },
    Job { name: "wordcount", size: 13_000_000, width: 8, meaning: "8 mappers over a text of 13 MB" },
    Job { name: "prediction", size: 7_000, width: 16, meaning: "16 predictors over an array (7000, 785)" },
];

/// What the bench can be asked for.
pub(crate) const OPTIONS: &[&str] = &[];

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let check = "import numpy, pandas, redis, ray";
    let python = installed("bench-workflows", &PACKAGES, check)?;
    let folder = tempfile::tempdir()?;
    let node = node(folder.path(), &python)?;
    let mut peers = Vec::new();
    for kind in ["redis", "ray", "local"] {
        if let Some(peer) = report.peer(kind, || Runner::start(kind, &python, folder.path())) {
            peers.push(peer);
        }
    }
    for job in &JOBS {
        eprintln!("  {}", job.name);
        measure(report, job, &node, &mut peers)?;
    }
    report.note(
        "ours: runs that a client waits for, steps in containers of their own, 16 of a function at most; Redis: 16 workers, pickles of \
         protocol 5 over its unix socket; Ray: as many processors as there are; local: one process, no copies",
    );
    Ok(())
}

/// A node that serves the workflows.
fn node(folder: &Path, python: &Path) -> anyhow::Result<WorkflowNode> {
    std::fs::copy(format!("{PEERS}/workflows/main.py"), folder.join("main.py"))?;
    let functions = JOBS.iter().map(|job| {
        format!(
            "[functions.{0}]\nruntime = \"python\"\nhandler = \"main.{0}\"\nworkflow = true\nmemory = \"1GiB\"\n\
             imports = [\"numpy\", \"pandas\"]\nsource = \"main.py\"\n\n",
            job.name
        )
    });
    std::fs::write(folder.join("sinew.toml"), functions.collect::<String>())?;
    WorkflowNode::start(folder, python, &[])
}

/// A program that runs the workflows when it is told to.
struct Runner {
    kind: &'static str,
    peer: Peer,
    /// What it passes values through.
    _database: Option<Redis>,
}

impl Runner {
    #[expect(clippy::disallowed_methods, reason = "the peer is a program of its own")]
    fn start(kind: &'static str, python: &Path, folder: &Path) -> anyhow::Result<Self> {
        let database = (kind == "redis").then(|| Redis::start(folder)).transpose()?;
        let mut command = Command::new(python);
        command.arg(format!("{PEERS}/workflows/peer.py")).arg(kind).arg(folder);
        // As in a node's containers.
        command.env("OPENBLAS_NUM_THREADS", "1").env("OMP_NUM_THREADS", "1");
        let (peer, _) = Peer::start(&mut command)?;
        Ok(Self { kind, peer, _database: database })
    }

    /// How long a run took, and what came of it.
    fn run(&mut self, workflow: &str, event: &Value) -> anyhow::Result<(f64, Value)> {
        let mut told = self.peer.ask(&json!({"workflow": workflow, "event": event}).to_string())?;
        let wall = told["wall_ns"].as_f64().context("a sample lacks its time")?;
        Ok((wall, told["result"].take()))
    }
}

fn measure(report: &mut Report, job: &Job, node: &WorkflowNode, peers: &mut [Runner]) -> anyhow::Result<()> {
    let event = json!({"size": job.size, "width": job.width});
    let mut own = Vec::new();
    let mut of_peers = vec![Vec::new(); peers.len()];
    for round in 0..ROUNDS + WARMING {
        let (wall, result) = node.run(job.name, &event)?;
        let mut walls = Vec::new();
        for peer in peers.iter_mut() {
            let (wall, told) = peer.run(job.name, &event)?;
            ensure!(told == result, "{}: {} says {told}, and the node {result}", job.name, peer.kind);
            walls.push(wall);
        }
        if round >= WARMING {
            own.push(wall);
            of_peers.iter_mut().zip(walls).for_each(|(all, wall)| all.push(wall));
        }
    }
    report.add(&format!("{}_ms", job.name), median(own.clone()) / 1e6, "ms", job.meaning, own.len());
    for (peer, walls) in peers.iter().zip(of_peers) {
        let ratios = walls.iter().zip(&own).map(|(peer, own)| peer / own).collect();
        let ms = median(walls.clone()) / 1e6;
        let meaning = format!("{} takes {ms:.1} ms", peer.kind);
        report.add(&format!("{}_over_{}", job.name, peer.kind), median(ratios), "x", &meaning, walls.len());
    }
    Ok(())
}
