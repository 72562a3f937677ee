// SPDX-License-Identifier: Apache-2.0
//! Ray as a peer, installed from PyPI into a virtual environment of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::figures::{Sample, median};
use crate::python_peer::Peer;

/// The version that the figures were published against.
const RAY: &str = "ray==2.60.0";
/// With it Ray hands arrays over without copying them.
const NUMPY: &str = "numpy==2.2.6";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/ray_peer.py");

/// How often each of Ray's styles runs.
const ROUNDS: usize = 5;

/// Medians of the fastest of Ray's styles, per operation.
pub(crate) struct Ray {
    pub(crate) cpu_ns: f64,
    pub(crate) wall_ns: f64,
    /// Ray's processor time over ours, each run against the one of ours just before it.
    pub(crate) over_our_cpu: f64,
    /// The same by the clock.
    pub(crate) over_our_wall: f64,
    pub(crate) n: usize,
}

/// A run of ours and the run of Ray that followed.
type Pair = (Sample, Sample);

/// Ray's job, in turns with `own`.
pub(crate) fn alternate(job: &str, mut own: impl FnMut() -> anyhow::Result<Sample>) -> anyhow::Result<Ray> {
    let mut ray = Running::start(job)?;
    let mut styles: BTreeMap<String, Vec<Pair>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for style in ray.styles.clone() {
            let pair = (own()?, ray.run(&style)?);
            styles.entry(style).or_default().push(pair);
        }
    }
    let fastest = styles.into_values().map(Ray::of).min_by(|a, b| a.wall_ns.total_cmp(&b.wall_ns));
    fastest.context("it measured nothing")
}

impl Ray {
    fn of(pairs: Vec<Pair>) -> Self {
        let over = |figure: fn(&Pair) -> f64| median(pairs.iter().map(figure).collect());
        Self {
            cpu_ns: over(|(_, ray)| ray.cpu),
            wall_ns: over(|(_, ray)| ray.wall),
            over_our_cpu: over(|(own, ray)| ray.cpu / own.cpu),
            over_our_wall: over(|(own, ray)| ray.wall / own.wall),
            n: pairs.len(),
        }
    }
}

/// A local Ray that waits for its turn.
struct Running {
    peer: Peer,
    styles: Vec<String>,
}

impl Running {
    #[expect(clippy::disallowed_methods, reason = "the peer is a program of its own")]
    fn start(job: &str) -> anyhow::Result<Self> {
        let python = environment()?;
        eprintln!("  Ray: {job}");
        let (peer, styles) = Peer::start(Command::new(python).arg(SCRIPT).arg(job))?;
        let names = styles["styles"].as_array().context("it names no styles")?;
        let styles = names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
        Ok(Self { peer, styles })
    }

    fn run(&mut self, style: &str) -> anyhow::Result<Sample> {
        let told = self.peer.ask(style)?;
        let field = |name: &str| told[name].as_f64().context("a sample lacks a field");
        Ok(Sample { cpu: field("cpu_ns")?, wall: field("wall_ns")? })
    }
}

/// Its Python, installed if it is not.
#[expect(clippy::disallowed_methods, reason = "the peer is installed by its own installer")]
pub(crate) fn environment() -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench-ray");
    let python = root.join("bin/python");
    if python.exists() {
        let works = Command::new(&python).args(["-c", "import ray, numpy"]).output()?;
        if works.status.success() {
            return Ok(python);
        }
    }
    eprintln!("  installing {RAY} from PyPI");
    let made = Command::new("python3").args(["-m", "venv", "--clear"]).arg(&root).output()?;
    ensure!(made.status.success(), "python3 cannot make a virtual environment; apt-get install python3-venv");
    let installed = Command::new(&python).args(["-m", "pip", "install", "--quiet", RAY, NUMPY]).output()?;
    if !installed.status.success() {
        bail!("pip cannot install {RAY}: {}", String::from_utf8_lossy(&installed.stderr));
    }
    Ok(python)
}
