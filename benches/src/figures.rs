// SPDX-License-Identifier: Apache-2.0
//! What a bench reports, and how short operations are timed.

use std::io::Write as _;
use std::time::Instant;

use crate::options::Options;

/// The figures of one bench.
pub(crate) struct Report {
    bench: &'static str,
    json: bool,
    rows: Vec<Row>,
    notes: Vec<String>,
    with_peers: bool,
    missing: Vec<String>,
    failed: Vec<String>,
    pub(crate) options: Options,
}

struct Row {
    figure: String,
    value: f64,
    unit: &'static str,
    peer: String,
    n: usize,
}

impl Report {
    /// Without peers, those that must be installed are not asked for.
    pub(crate) fn new(bench: &'static str, json: bool, with_peers: bool, options: Options) -> Self {
        let (rows, notes, missing, failed) = Default::default();
        Self { bench, json, rows, notes, with_peers, missing, failed, options }
    }

    /// Runs a peer that must be installed; `None` if it did not run.
    pub(crate) fn peer<T>(&mut self, name: &str, run: impl FnOnce() -> anyhow::Result<T>) -> Option<T> {
        if !self.with_peers {
            self.note(format!("{name} was left out"));
            return None;
        }
        let measured = run();
        if let Err(error) = &measured {
            self.note(format!("{name} did not run: {error:#}"));
            self.missing.push(format!("{name} ({error:#})"));
        }
        measured.ok()
    }

    /// Runs a peer of which nothing is promised: without it the bench is complete.
    pub(crate) fn spare_peer<T>(&mut self, name: &str, run: impl FnOnce() -> anyhow::Result<T>) -> Option<T> {
        let measured = self.peer(name, run);
        if measured.is_none() {
            self.missing.retain(|missing| !missing.starts_with(name));
        }
        measured
    }

    /// Notes that a part of the bench failed. The others go on, and the bench fails when all was printed.
    pub(crate) fn failed(&mut self, what: &str, error: &anyhow::Error) {
        eprintln!("  {what} failed: {error:#}");
        self.failed.push(format!("{what} ({error:#})"));
    }

    /// Fails if a part failed, or a peer did not run: its figures are promised.
    pub(crate) fn complete(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.failed.is_empty(), "it failed: {}", self.failed.join(", "));
        let missing = self.missing.join(", ");
        anyhow::ensure!(
            missing.is_empty(),
            "a peer did not run: {missing}; with --without-peers the bench does without"
        );
        Ok(())
    }

    /// Adds a figure: `n` is how many measurements its median is of.
    pub(crate) fn add(&mut self, figure: &str, value: f64, unit: &'static str, peer: &str, n: usize) {
        eprintln!("  {figure:<38} {} {unit}: {peer}, n = {n}", shown(value));
        if self.json {
            let object = serde_json::json!({
                "bench": self.bench, "figure": figure, "value": value, "unit": unit, "peer": peer, "n": n,
            });
            // Whoever reads it has it, whatever becomes of the rest.
            let mut output = std::io::stdout().lock();
            _ = writeln!(output, "{object}").and_then(|()| output.flush());
        }
        self.rows.push(Row { figure: figure.to_owned(), value, unit, peer: peer.to_owned(), n });
    }

    /// How many figures there are.
    #[cfg(test)]
    pub(crate) fn figures(&self) -> usize {
        self.rows.len()
    }

    /// Adds a condition.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// The table, unless all was told as it came.
    pub(crate) fn print(&self) {
        if self.json {
            return;
        }
        println!("\n{}\n", machine());
        println!("| {:<38} | {:>10} | {:<6} | {:>5} | peer or meaning", "figure", "value", "unit", "n");
        println!("|{:-<40}|{:->12}|{:-<8}|{:->7}|{:-<20}", "", "", "", "", "");
        for row in &self.rows {
            let value = shown(row.value);
            println!("| {:<38} | {value:>10} | {:<6} | {:>5} | {}", row.figure, row.unit, row.n, row.peer);
        }
        for note in &self.notes {
            println!("\n{note}");
        }
    }
}

fn shown(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        small if small < 10.0 => format!("{value:.3}"),
        medium if medium < 1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?").to_owned();
    let (model, kernel) = (model.unwrap_or("unknown"), kernel.trim());
    format!(
        "{model}, {} cores, kernel {kernel}, load {load}; sinew {} of {}",
        linux::available_cpus().map_or(0, |cpus| cpus.len()),
        env!("CARGO_PKG_VERSION"),
        commit().unwrap_or_else(|| "an unknown commit".to_owned())
    )
}

/// What is checked out, from where the bench was built; it may have changed since.
#[expect(clippy::disallowed_methods, reason = "git knows the commit")]
fn commit() -> Option<String> {
    let mut git = std::process::Command::new("git");
    git.args([
        "-C",
        env!("CARGO_MANIFEST_DIR"),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ]);
    let told = git.output().ok().filter(|told| told.status.success())?;
    Some(String::from_utf8(told.stdout).ok()?.trim().to_owned())
}

/// The middle of some measurements.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Nanoseconds that one batch took, divided by its operations.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    /// Of this thread's processor time.
    pub(crate) cpu: f64,
    /// By the clock on the wall.
    pub(crate) wall: f64,
}

/// Times a batch of `operations` on this thread. Reading the processor clock
/// costs about 200 ns, so batches have thousands of short operations.
pub(crate) fn batch(operations: usize, body: impl FnOnce()) -> Sample {
    let (wall, cpu) = (Instant::now(), linux::thread_cpu_ns());
    body();
    let cpu = (linux::thread_cpu_ns() - cpu) as f64 / operations as f64;
    Sample { cpu, wall: wall.elapsed().as_nanos() as f64 / operations as f64 }
}

pub(crate) fn median_cpu(samples: &[Sample]) -> f64 {
    median(samples.iter().map(|sample| sample.cpu).collect())
}

pub(crate) fn median_wall(samples: &[Sample]) -> f64 {
    median(samples.iter().map(|sample| sample.wall).collect())
}

#[cfg(test)]
mod tests;
