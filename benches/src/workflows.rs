// SPDX-License-Identifier: Apache-2.0
//! `workflows`: FINRA, WordCount and prediction in the manner of RMMAP, section 5.1, by a node and by
//! peers that run the same file: worker processes that pass values through Redis, Ray, and one process
//! that passes nothing on.
//!
//! All have run each workflow before; they alternate, and ratios are of the same round. A run of ours is a
//! request over HTTP, with all of its steps in containers; the peers' workers are plain processes.

mod peer;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::coldstart::installed;
use crate::figures::{Report, median};
use crate::warm::servers::{PEERS, Server, free_address, sinew};
use peer::Peer;

const PACKAGES: [&str; 4] = ["numpy==2.2.6", "pandas==2.3.3", "redis==7.1.0", "ray==2.60.0"];
const ROUNDS: usize = 15;
const WARMING: usize = 3;
const PATIENCE: Duration = Duration::from_secs(120);

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

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let check = "import numpy, pandas, redis, ray";
    let python = installed("bench-workflows", &PACKAGES, check)?;
    let folder = tempfile::tempdir()?;
    let node = node(folder.path(), &python)?;
    let mut peers = Vec::new();
    for kind in ["redis", "ray", "local"] {
        if let Some(peer) = report.peer(kind, || Peer::start(kind, &python, folder.path())) {
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
#[expect(clippy::disallowed_methods, reason = "the node runs as its users run it")]
fn node(folder: &Path, python: &Path) -> anyhow::Result<Server> {
    std::fs::copy(format!("{PEERS}/workflows/main.py"), folder.join("main.py"))?;
    let functions = JOBS.iter().map(|job| {
        format!(
            "[functions.{0}]\nruntime = \"python\"\nhandler = \"main.{0}\"\nworkflow = true\nmemory = \"1GiB\"\n\
             imports = [\"numpy\", \"pandas\"]\nsource = \"main.py\"\n\n",
            job.name
        )
    });
    std::fs::write(folder.join("sinew.toml"), functions.collect::<String>())?;
    let (home, address) = (folder.join("home"), free_address()?);
    let mut up = Command::new(sinew()?);
    up.arg("up").arg("--home").arg(&home).args(["--listen", &address.to_string(), "--python"]).arg(python);
    let node = Server::start(&mut up, address, &folder.join("node.log"))?;
    let deployed = Command::new(sinew()?).arg("deploy").arg(folder).env("SINEW_HOME", &home).output()?;
    let said = String::from_utf8_lossy(&deployed.stderr).into_owned();
    ensure!(deployed.status.success(), "deploy failed: {said}");
    Ok(node)
}

/// A request to the node, by the clock of the client.
fn ours(node: &Server, job: &Job, event: &Value) -> anyhow::Result<(f64, Value)> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(node.address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let body = event.to_string();
    let request = format!(
        "POST /function/{} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        job.name,
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let wall = begun.elapsed().as_secs_f64() * 1e9;
    let (head, body) = answer.split_once("\r\n\r\n").context("the node's answer has no body")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{}: {answer}", job.name);
    Ok((wall, serde_json::from_str(body)?))
}

fn measure(report: &mut Report, job: &Job, node: &Server, peers: &mut [Peer]) -> anyhow::Result<()> {
    let event = json!({"size": job.size, "width": job.width});
    let mut own = Vec::new();
    let mut of_peers = vec![Vec::new(); peers.len()];
    for round in 0..ROUNDS + WARMING {
        let (wall, result) = ours(node, job, &event)?;
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
