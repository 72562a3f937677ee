// SPDX-License-Identifier: Apache-2.0
//! `workflows`: FINRA, training, prediction and WordCount in the manner of RMMAP, section 5.1, by a node and by
//! peers that run the same file: worker processes that pass values through Redis, Ray, and one process
//! that passes nothing on.
//!
//! All have run each workflow before; they alternate, and ratios are of the same round. A run of ours is a
//! request over HTTP, with all of its steps in containers; the peers' workers are plain processes.
//!
//! After all four, and alone with `--memory`: the most that a hand-over takes. Instead of these: `--sweep` (payload, width and
//! epochs of training), `--factors` (where the time goes) and `--throughput` (with more and more clients, and at a fixed rate).

mod factors;
mod memory;
mod runner;
mod throughput;

use std::path::Path;

use anyhow::ensure;
use serde_json::{Value, json};

use crate::figures::{Report, median};
use crate::workflow_node::WorkflowNode;
use runner::Runner;

/// What the bench can be asked for.
pub(crate) const OPTIONS: &[&str] =
    &["jobs", "rounds", "sweep", "factors", "throughput", "memory", "rate", "seconds", "python"];

const ROUNDS: u64 = 15;
const SWEEP_ROUNDS: u64 = 5;
const WARMING: usize = 3;

/// One workflow, and with what it is run.
struct Job {
    name: &'static str,
    size: usize,
    width: usize,
    meaning: &'static str,
}

const JOBS: [Job; 4] = [
    Job { name: "finra", size: 50_000, width: 200, meaning: "200 rules over a frame of 50,000 trades" },
    Job {
        name: "training",
        size: 10_000,
        width: 8,
        meaning: "64 trees by 8 trainers, of 10,000 images, 31 MB",
    },
    Job { name: "prediction", size: 7_000, width: 16, meaning: "16 predictors over an array (7000, 785)" },
    Job { name: "wordcount", size: 13_000_000, width: 8, meaning: "8 mappers over a text of 13 MB" },
];

/// What training is varied by, one at a time.
const SWEEPS: [(&str, [usize; 4]); 3] =
    [("size", [2_500, 5_000, 10_000, 20_000]), ("width", [2, 4, 8, 16]), ("epochs", [5, 10, 20, 30])];

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let python = crate::transfer::interpreter::python(&report.options)?;
    if report.options.has("memory") {
        return memory::run(report, &python);
    }
    if report.options.has("throughput") {
        return throughput::run(report, &python);
    }
    let options = &report.options;
    let is_whole = !["factors", "sweep", "jobs", "rounds"].iter().any(|part| options.has(part));
    beside_peers(report, &python)?;
    if is_whole { memory::run(report, &python) } else { Ok(()) }
}

/// What has a node and peers that stay for all of it; they have ended afterwards.
fn beside_peers(report: &mut Report, python: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let node = runner::node(folder.path(), python)?;
    if report.options.has("factors") {
        return factors::run(report, &node);
    }
    let mut peers = Vec::new();
    for kind in ["redis", "ray", "local"] {
        // One process and its modules are there in any case.
        let start = || Runner::start(kind, python, folder.path());
        peers.extend(if kind == "local" { Some(start()?) } else { report.peer(kind, start) });
    }
    if report.options.has("sweep") {
        return sweep(report, &node, &mut peers);
    }
    compare(report, &node, &mut peers)
}

/// The four workflows.
fn compare(report: &mut Report, node: &WorkflowNode, peers: &mut [Runner]) -> anyhow::Result<()> {
    let mut over_redis = Vec::new();
    for job in chosen(report)? {
        eprintln!("  {}", job.name);
        let event = json!({"size": job.size, "width": job.width});
        match measure(report, (job.name, job.name, job.meaning), &event, ROUNDS, node, peers) {
            Ok(ratio) => over_redis.extend(ratio.map(|ratio| (ratio, job.name))),
            Err(error) => report.failed(job.name, &error),
        }
    }
    let worst = over_redis.iter().min_by(|one, other| one.0.total_cmp(&other.0));
    if let (Some((ratio, name)), true) = (worst, over_redis.len() == JOBS.len()) {
        report.add("worst_over_redis", *ratio, "x", &format!("of the four: {name}"), over_redis.len());
    }
    report.note(
        "ours: runs that a client waits for, steps in containers of their own, 16 of a function at most; Redis: 16 workers, pickles of \
         protocol 5 over its unix socket; Ray: as many processors as there are; local: one process, no copies",
    );
    Ok(())
}

/// All workflows, or those that `--jobs` names.
fn chosen(report: &Report) -> anyhow::Result<Vec<&'static Job>> {
    let named = report.options.words("jobs");
    let unknown = named.iter().find(|name| !JOBS.iter().any(|job| job.name == **name));
    ensure!(unknown.is_none(), "no workflow is called {}", unknown.unwrap_or(&""));
    Ok(JOBS.iter().filter(|job| named.is_empty() || named.contains(&job.name)).collect())
}

/// Training with other payloads, widths and epochs, as in figure 13.
fn sweep(report: &mut Report, node: &WorkflowNode, peers: &mut [Runner]) -> anyhow::Result<()> {
    let job = &JOBS[1];
    for (varied, values) in SWEEPS {
        for value in values {
            let mut event = json!({"size": job.size, "width": job.width, "epochs": 8});
            event[varied] = value.into();
            let (figure, meaning) = (format!("{}_{varied}_{value}", job.name), format!("{varied} {value}"));
            if let Err(error) =
                measure(report, (job.name, &figure, &meaning), &event, SWEEP_ROUNDS, node, peers)
            {
                report.failed(&figure, &error);
            }
        }
    }
    Ok(())
}

/// A workflow by all, in turns; what Redis takes beside ours, if it is there. Named are the workflow, the figure and its meaning.
fn measure(
    report: &mut Report,
    (workflow, figure, meaning): (&str, &str, &str),
    event: &Value,
    rounds: u64,
    node: &WorkflowNode,
    peers: &mut [Runner],
) -> anyhow::Result<Option<f64>> {
    let rounds = report.options.number("rounds", rounds)? as usize;
    let mut own = Vec::new();
    let mut of_peers = vec![Vec::new(); peers.len()];
    for round in 0..rounds + WARMING.min(rounds) {
        let (wall, result) = node.run(workflow, event)?;
        let mut walls = Vec::new();
        for peer in peers.iter_mut() {
            let told = peer.run(workflow, event)?;
            ensure!(
                told.result == result,
                "{workflow}: {} says {}, and the node {result}",
                peer.kind,
                told.result
            );
            walls.push(told.wall_ns);
        }
        if round >= WARMING.min(rounds) {
            own.push(wall);
            of_peers.iter_mut().zip(walls).for_each(|(all, wall)| all.push(wall));
        }
    }
    report.add(&format!("{figure}_ms"), median(own.clone()) / 1e6, "ms", meaning, own.len());
    let mut over_redis = None;
    for (peer, walls) in peers.iter().zip(of_peers) {
        let ratio = median(walls.iter().zip(&own).map(|(peer, own)| peer / own).collect());
        let meaning = format!("{} takes {:.1} ms", peer.kind, median(walls.clone()) / 1e6);
        report.add(&format!("{figure}_over_{}", peer.kind), ratio, "x", &meaning, walls.len());
        over_redis = over_redis.or((peer.kind == "redis").then_some(ratio));
    }
    Ok(over_redis)
}
