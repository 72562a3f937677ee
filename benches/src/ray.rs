// SPDX-License-Identifier: Apache-2.0
//! Ray as a peer, installed from PyPI into a virtual environment of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, bail, ensure};

use crate::figures::{Sample, median};

/// The version that the figures were published against.
const RAY: &str = "ray==2.60.0";
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

/// A local Ray that waits for its turn. It ends when its input does.
struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    errors: File,
    styles: Vec<String>,
}

impl Running {
    #[expect(clippy::disallowed_methods, reason = "the peer is a program of its own")]
    fn start(job: &str) -> anyhow::Result<Self> {
        let python = environment()?;
        eprintln!("  Ray: {job}");
        let errors = tempfile::tempfile()?;
        let mut command = Command::new(python);
        command.arg(SCRIPT).arg(job).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors.try_clone()?);
        let mut child = command.spawn()?;
        let output = child.stdout.take().context("it has no output")?;
        let input = child.stdin.take();
        let mut ray = Self { child, input, output: BufReader::new(output), errors, styles: Vec::new() };
        let styles = ray.line()?;
        let names = styles["styles"].as_array().context("it names no styles")?;
        ray.styles = names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
        Ok(ray)
    }

    fn run(&mut self, style: &str) -> anyhow::Result<Sample> {
        let input = self.input.as_mut().context("it has no input")?;
        input.write_all(format!("{style}\n").as_bytes())?;
        let line = self.line()?;
        let field = |name: &str| line[name].as_f64().context("a sample lacks a field");
        Ok(Sample { cpu: field("cpu_ns")?, wall: field("wall_ns")? })
    }

    /// Its next line that is JSON; Ray itself prints others.
    fn line(&mut self) -> anyhow::Result<serde_json::Value> {
        let mut line = String::new();
        while self.output.read_line(&mut line)? > 0 {
            if line.starts_with('{') {
                return Ok(serde_json::from_str(&line)?);
            }
            line.clear();
        }
        let mut said = String::new();
        self.errors.rewind()?;
        self.errors.read_to_string(&mut said)?;
        bail!("{}", said.lines().last().unwrap_or("it ended and said nothing"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The end of its input is what ends it, with all its processes.
        self.input = None;
        _ = self.child.wait();
    }
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
