// SPDX-License-Identifier: Apache-2.0
//! `transfer --differences`: values of all kinds, made from numbers, are mapped in other processes and compared with what was
//! sent, by `guests/python/heap_test.py` and the native library that it is given.
//!
//! `--differences=N` transfers, 100,000 if it says nothing, from `--seed=S` on, by `--processes=P` at a time; with
//! `--sanitize`, the library is compiled with the checks of addresses and of undefined behaviour, and takes longer.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::figures::Report;

const TRANSFERS: u64 = 100_000;
const GUESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../guests");
const FLAGS: [&str; 8] =
    ["-std=gnu11", "-g", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"];
const FAST: &[&str] = &["-O2"];
const CHECKED: &[&str] =
    &["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"];

/// What one process printed.
struct Line {
    process: usize,
    text: String,
}

/// What came of all transfers.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    transfers: u64,
    mapped: u64,
    handed_on: u64,
    wrong: u64,
    processes_failed: u64,
}

impl Counts {
    /// Adds what a process tells in its last line.
    fn add(&mut self, told: &Value) -> anyhow::Result<()> {
        let field = |name: &str| told[name].as_u64().with_context(|| format!("{told} lacks {name}"));
        self.transfers += field("transfers")?;
        self.mapped += told["mapped"].as_u64().unwrap_or(0);
        self.handed_on += told["handed on"].as_u64().unwrap_or(0);
        self.wrong += field("wrong")?;
        self.processes_failed += field("processes that failed")?;
        Ok(())
    }
}

pub(super) fn run(report: &mut Report, python: &Path) -> anyhow::Result<()> {
    let transfers = report.options.number("differences", TRANSFERS)?;
    let seed = report.options.number("seed", u64::from(std::process::id()) << 20)?;
    let processes = linux::available_cpus().map_or(1, |cpus| cpus.len() as u64);
    let processes = report.options.number("processes", processes)?.clamp(1, transfers.max(1));
    let is_checked = report.options.has("sanitize");
    let folder = tempfile::tempdir()?;
    let library = compiled(folder.path(), is_checked)?;
    let (sender, lines) = channel();
    let mut children = Vec::new();
    for process in 0..processes {
        let (first, end) = (transfers * process / processes, transfers * (process + 1) / processes);
        let mut command = transferring(python, &library, end - first, seed + first, is_checked)?;
        children.push(started(&mut command, process as usize, sender.clone())?);
    }
    drop(sender);
    let mut counts = Counts::default();
    let mut told = vec![false; children.len()];
    for Line { process, text } in lines {
        // The rest is what is seen of each while it works.
        if text.starts_with('{') {
            counts.add(&serde_json::from_str(&text)?)?;
            told[process] = true;
        } else if text.starts_with("seed ") {
            report.failed("a transfer", &anyhow::anyhow!("{text}"));
        } else {
            eprintln!("  {process}: {text}");
        }
    }
    for (process, mut child) in children.into_iter().enumerate() {
        let status = child.wait()?;
        if !status.success() {
            report.failed(&format!("process {process} of the test"), &anyhow::anyhow!("{status}"));
        }
    }
    ensure!(told.iter().all(|told| *told), "a process of the test ended before its last line");
    tell(report, &counts, seed, is_checked);
    Ok(())
}

fn tell(report: &mut Report, counts: &Counts, seed: u64, is_checked: bool) {
    let library = if is_checked { ", the library with address and undefined-behaviour checks" } else { "" };
    let meaning = format!(
        "of {} randomised transfers from seed {seed} on, {} mapped, {} of them handed on{library}",
        counts.transfers, counts.mapped, counts.handed_on
    );
    let wrong = (counts.wrong + counts.processes_failed) as f64;
    report.add("differences", wrong, "count", &meaning, counts.transfers as usize);
}

/// The native library, as CI's test compiles it.
#[expect(clippy::disallowed_methods, reason = "a compiler is a program of its own")]
fn compiled(folder: &Path, is_checked: bool) -> anyhow::Result<std::path::PathBuf> {
    let library = folder.join("heap.so");
    let sources = std::fs::read_dir(format!("{GUESTS}/heap"))?.map(|entry| Ok(entry?.path()));
    let sources: Vec<_> = sources.collect::<anyhow::Result<_>>()?;
    let sources = sources.iter().filter(|path| path.extension().is_some_and(|extension| extension == "c"));
    let mut compiler = Command::new("cc");
    compiler.args(FLAGS).args(if is_checked { CHECKED } else { FAST }).args(sources).arg("-o").arg(&library);
    ensure!(compiler.status()?.success(), "guests/heap cannot be compiled");
    Ok(library)
}

/// One process of the test.
#[expect(clippy::disallowed_methods, reason = "the test is a program of its own")]
fn transferring(
    python: &Path,
    library: &Path,
    count: u64,
    seed: u64,
    is_checked: bool,
) -> anyhow::Result<Command> {
    let mut command = Command::new(python);
    command.args(["-B", "python/heap_test.py"]).arg(library).current_dir(GUESTS);
    command.args([count.to_string(), seed.to_string()]).env_remove("GLIBC_TUNABLES");
    // pandas warns of what the test does to its frames.
    command.env("PYTHONWARNINGS", "ignore");
    if is_checked {
        // The checks are to be there first; with those of libraries in C++, which throw.
        let preloaded = ["libasan.so", "libstdc++.so.6"].map(|name| {
            let found = Command::new("cc").arg(format!("-print-file-name={name}")).output()?;
            anyhow::Ok(String::from_utf8_lossy(&found.stdout).trim().to_owned())
        });
        let [checks, thrower] = preloaded;
        command.env("LD_PRELOAD", format!("{}:{}", checks?, thrower?));
        // What Python keeps to its end is no leak.
        command.env("ASAN_OPTIONS", "detect_leaks=0");
    }
    Ok(command)
}

/// Starts it; a thread passes its lines on.
fn started(command: &mut Command, process: usize, lines: Sender<Line>) -> anyhow::Result<Child> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = BufReader::new(child.stdout.take().context("it has no output")?);
    // It ends when the process does.
    std::thread::Builder::new().name("transfers".to_owned()).spawn(move || {
        let mut all = output.lines().map_while(Result::ok);
        all.try_for_each(|text| lines.send(Line { process, text }))
    })?;
    Ok(child)
}

#[cfg(test)]
mod tests;
