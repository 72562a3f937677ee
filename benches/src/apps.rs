// SPDX-License-Identifier: Apache-2.0
//! Applications in warm instances against the same code in a plain process.
//!
//! Ours is timed by the node, from the request to the result; the peer by
//! itself, around the function alone, so that all of what a container, its
//! filter and its channel cost is on our side. Both run the same interpreter
//! with the same packages, and numeric libraries with one thread; they
//! alternate call by call.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use objects::{Handle, Limits, TreeBuilder};
use sandbox::process::{Functions, FunctionsOptions, Language, Runtime, RuntimeOptions};
use sandbox::{Call, Invoked, Sandbox as _, SandboxId, Spec};
use store::Store;

use crate::coldstart::installed;
use crate::figures::{Report, median};

use functions::{APPLY, APPS, App, IMPORTS};

mod functions;

const PACKAGES: [&str; 4] = ["numpy==2.2.6", "pillow==11.3.0", "jinja2==3.1.6", "scikit-learn==1.7.2"];
/// Calls of each side, of which the first are not counted.
const ROUNDS: usize = 101;
const WARMING: usize = 5;
/// New instances of each function.
const COLD_ROUNDS: usize = 9;
const MEMORY_BYTES: u64 = 512 << 20;

/// What the peer runs after the function's source.
const LOOP: &str = "
import sys
for _ in sys.stdin:
    print(apply().decode(), flush=True)
";

/// One call, in nanoseconds.
#[derive(Clone, Copy)]
struct Took {
    /// Ours: from the request to the result. The peer's: as inside.
    wall: f64,
    /// As the function says: the clock on the wall, and processor time of its
    /// process.
    inside: f64,
    cpu: f64,
    /// Page faults without reading a file.
    faults: f64,
}

/// What a function said that it took, and the check of its result.
fn said(text: &str) -> anyhow::Result<(Took, u64)> {
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    let mut next = || numbers.next().context("too few numbers")?.context("no number");
    let (inside, cpu, faults) = (next()? as f64, next()? as f64, next()? as f64);
    Ok((Took { wall: inside, inside, cpu, faults }, next()?))
}

/// A plain interpreter with the function loaded.
struct Plain {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Plain {
    #[expect(clippy::disallowed_methods, reason = "a plain process is the peer")]
    fn start(python: &Path, app: &App) -> anyhow::Result<Self> {
        let imports: String = IMPORTS.iter().map(|name| format!("import {name}\n")).collect();
        let source = format!("{imports}{}{APPLY}{LOOP}", app.source);
        let mut command = Command::new(python);
        command.args(["-c", &source]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Nothing of what this bench itself was started with, as a heap in huge pages.
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C.UTF-8");
        for threads in ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"] {
            command.env(threads, "1");
        }
        let mut child = command.spawn()?;
        let input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { child, input, output })
    }

    fn call(&mut self) -> anyhow::Result<(Took, u64)> {
        self.input.write_all(b"\n")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        said(&line).context("the plain interpreter failed")
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // It has ended already, or does so now.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Our side.
struct Node {
    store: Arc<Store>,
    python: Functions,
}

impl Node {
    fn new(python: &Path) -> anyhow::Result<Self> {
        let options = store::Options { home: None, memory_bytes: 1 << 28, relations_bytes: 1 << 20 };
        let store = Arc::new(Store::open(options)?);
        let runtime =
            RuntimeOptions { cgroup_name: "sinew-bench-apps".to_owned(), ..RuntimeOptions::default() };
        let options = FunctionsOptions {
            interpreter: python.to_owned(),
            imports: IMPORTS.map(str::to_owned).into(),
            ready: 0,
            ..FunctionsOptions::new(Language::Python)
        };
        Ok(Self { python: Functions::new(options, Runtime::new(runtime)?, store.clone())?, store })
    }

    fn call_of(&self, app: &App) -> anyhow::Result<(Spec, Call)> {
        let procedure = self.store.keep_blob(format!("{}{APPLY}", app.source).as_bytes());
        let limits = Limits { memory_bytes: MEMORY_BYTES, ..Limits::default() };
        let limits_handle: Handle = limits.handle().context("limits out of range")?;
        let tree: TreeBuilder = [limits_handle, procedure].into_iter().collect();
        let handle = self.store.keep_tree(tree.view());
        let application = self.store.local(handle).context("a tree was not kept")?;
        Ok((Spec { procedure, limits }, Call::new(application, handle, limits, procedure)))
    }

    fn create(&self, spec: Spec) -> anyhow::Result<SandboxId> {
        let id = self.python.create(&[spec]).pop().context("no answer")??;
        self.python.start(&[id]).pop().context("no answer")??;
        Ok(id)
    }

    fn invoke(&self, id: SandboxId, call: &Call) -> anyhow::Result<(Took, u64)> {
        let begun = Instant::now();
        let Invoked::Done(outcome) = self.python.invoke(id, call.clone())?;
        let wall = begun.elapsed().as_nanos() as f64;
        let result = outcome.result.map_err(|fault| anyhow::anyhow!("the function failed: {fault}"))?;
        let bytes = match result.literal_bytes() {
            Some(bytes) => bytes.to_vec(),
            None => self.store.local(result).context("no result")?.bytes().to_vec(),
        };
        let (took, check) = said(std::str::from_utf8(&bytes)?)?;
        Ok((Took { wall, ..took }, check))
    }

    fn end(&self, id: SandboxId) {
        self.python.kill(&[id]);
        self.python.delete(&[id]);
    }
}

fn median_of(took: &[Took], part: fn(&Took) -> f64) -> f64 {
    median(took.iter().map(part).collect())
}

/// The first call of new instances, beside their second.
fn measure_cold(report: &mut Report, node: &Node, app: &App) -> anyhow::Result<()> {
    let (spec, call) = node.call_of(app)?;
    let (mut cold, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..COLD_ROUNDS {
        let begun = Instant::now();
        let id = node.create(spec)?;
        let (first, _) = node.invoke(id, &call)?;
        cold.push(begun.elapsed().as_nanos() as f64);
        let (second, _) = node.invoke(id, &call)?;
        ratios.push(first.inside / second.inside);
        node.end(id);
    }
    let name = app.name;
    let meaning = "new container, fork, load, first call; from the request to the result";
    report.add(&format!("{name}_cold_ms"), median(cold) / 1e6, "ms", meaning, COLD_ROUNDS);
    let meaning = "first over second call in a new instance: copied pages, cold caches";
    report.add(&format!("{name}_first_over_second"), median(ratios), "x", meaning, COLD_ROUNDS);
    Ok(())
}

/// Ours over the peer's, of one function.
struct Ratios {
    wall: f64,
    cpu: f64,
}

/// Warm calls, alternating; the ratio to the peer.
fn measure_warm(report: &mut Report, node: &Node, python: &Path, app: &App) -> anyhow::Result<Ratios> {
    let mut plain = Plain::start(python, app)?;
    let (spec, call) = node.call_of(app)?;
    let id = node.create(spec)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..WARMING + ROUNDS {
        let (our, our_check) = node.invoke(id, &call)?;
        let (their, their_check) = plain.call()?;
        ensure!(our_check == their_check, "{}: {our_check} here and {their_check} there", app.name);
        if round >= WARMING {
            ours.push(our);
            theirs.push(their);
        }
    }
    node.end(id);
    let name = app.name;
    let wall = |took: &Took| took.wall;
    let (our_ms, their_ms) = (median_of(&ours, wall) / 1e6, median_of(&theirs, wall) / 1e6);
    report.add(&format!("{name}_warm_ms"), our_ms, "ms", "from the request to the result", ROUNDS);
    report.add(&format!("{name}_plain_ms"), their_ms, "ms", "a plain process, the function alone", ROUNDS);
    report.add(&format!("{name}_warm_over_plain"), our_ms / their_ms, "x", "of these two", ROUNDS);
    let cpu = |took: &Took| took.cpu;
    let cpu = median_of(&ours, cpu) / median_of(&theirs, cpu);
    report.add(&format!("{name}_cpu_over_plain"), cpu, "x", "processor time of the function", ROUNDS);
    let inside = median_of(&ours, |took| took.inside) / median_of(&theirs, |took| took.inside);
    report.add(&format!("{name}_inside_over_plain"), inside, "x", "the function alone, both", ROUNDS);
    let faults = |took: &Took| took.faults;
    report.add(&format!("{name}_faults"), median_of(&ours, faults), "", "page faults of a warm call", ROUNDS);
    let theirs = median_of(&theirs, faults);
    report.add(&format!("{name}_plain_faults"), theirs, "", "the same in the plain process", ROUNDS);
    Ok(Ratios { wall: our_ms / their_ms, cpu })
}

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let python = match std::env::var_os("SINEW_BENCH_APPS_PYTHON") {
        Some(python) => python.into(),
        None => installed("bench-apps", &PACKAGES, "import numpy, PIL, jinja2, sklearn")?,
    };
    let node = Node::new(&python)?;
    let mut worst = Ratios { wall: 0.0, cpu: 0.0 };
    for app in &APPS {
        let ratios = measure_warm(report, &node, &python, app)?;
        worst = Ratios { wall: worst.wall.max(ratios.wall), cpu: worst.cpu.max(ratios.cpu) };
        measure_cold(report, &node, app)?;
    }
    report.add("worst_warm_over_plain", worst.wall, "x", "the worst of the eight; aim 1.1", ROUNDS);
    report.add("worst_cpu_over_plain", worst.cpu, "x", "the same of processor time", ROUNDS);
    report.note("numeric libraries use one thread on both sides");
    report.note(
        "an instance has a control group of its own: on a loaded machine it gets more than its peer, so \
         that the ratios of times on the wall are too good there, and those of processor time count",
    );
    Ok(())
}
