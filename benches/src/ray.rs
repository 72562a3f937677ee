// SPDX-License-Identifier: Apache-2.0
//! Ray as a peer, installed from PyPI into a virtual environment of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::figures::median;

/// The version that the figures were published against.
const RAY: &str = "ray==2.60.0";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/ray_peer.py");

/// Medians of the fastest of Ray's styles, per operation.
pub(crate) struct Ray {
    pub(crate) cpu_ns: f64,
    pub(crate) wall_ns: f64,
    pub(crate) n: usize,
}

pub(crate) fn invoke() -> anyhow::Result<Ray> {
    run("invoke")
}

pub(crate) fn chain() -> anyhow::Result<Ray> {
    run("chain")
}

#[expect(clippy::disallowed_methods, reason = "the peer is a program of its own")]
fn run(job: &str) -> anyhow::Result<Ray> {
    let python = environment()?;
    eprintln!("  Ray: {job}");
    let output = Command::new(python).arg(SCRIPT).arg(job).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", errors.lines().last().unwrap_or("it said nothing"));
    let mut styles: BTreeMap<String, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for line in String::from_utf8(output.stdout)?.lines().filter(|line| line.starts_with('{')) {
        let sample: serde_json::Value = serde_json::from_str(line)?;
        let field = |name: &str| sample[name].as_f64().context("a sample lacks a field");
        let style = styles.entry(sample["style"].to_string()).or_default();
        style.0.push(field("cpu_ns")?);
        style.1.push(field("wall_ns")?);
    }
    let medians = styles.into_values().map(|(cpu, wall)| {
        let n = wall.len();
        Ray { cpu_ns: median(cpu), wall_ns: median(wall), n }
    });
    let fastest = medians.min_by(|a, b| a.wall_ns.total_cmp(&b.wall_ns));
    fastest.context("it measured nothing")
}

#[expect(clippy::disallowed_methods, reason = "the peer is installed by its own installer")]
fn environment() -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench-ray");
    let python = root.join("bin/python");
    if python.exists() {
        let works = Command::new(&python).args(["-c", "import ray"]).output()?;
        if works.status.success() {
            return Ok(python);
        }
    }
    eprintln!("  installing {RAY} from PyPI");
    let made = Command::new("python3").args(["-m", "venv", "--clear"]).arg(&root).output()?;
    ensure!(made.status.success(), "python3 cannot make a virtual environment; apt-get install python3-venv");
    let installed = Command::new(&python).args(["-m", "pip", "install", "--quiet", RAY]).output()?;
    if !installed.status.success() {
        bail!("pip cannot install {RAY}: {}", String::from_utf8_lossy(&installed.stderr));
    }
    Ok(python)
}
