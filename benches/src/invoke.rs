// SPDX-License-Identifier: Apache-2.0
//! `invoke`: what one trivial application costs, end to end.
//!
//! *Cold*: the application tree is built, hashed and stored, its goal looked
//! up, memory reserved, the codelet run in a fresh sandbox with fuel counted,
//! and the result remembered: through the node's own evaluator and executor,
//! as its workers do it, on this thread. Every input is unseen. Batches of
//! 4,096; before each one a batch of BLAKE3 of 64 bytes calibrates.

use std::hint::black_box;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use evaluator::{Priority, Progress, Request};
use node::{Evaluator, Executor, Node, Options};
use objects::{Handle, Limits, TreeBuilder};

use crate::figures::{Report, Sample, batch, median, median_cpu, median_wall};
use crate::ray;

const BATCH: usize = 4096;
const BATCHES: usize = 15;
const PREFILL: usize = 1_000_000;
const FUEL: u64 = 10_000;
/// Batches of ours and of a peer, in turns.
const PAIRS: usize = 5;

const ADD: &str = include_str!("../../guests/codelets/wat/add.wat");
const WRITE_4K: &str = include_str!("../wat/write_4k.wat");
const WRITE_16_PAGES: &str = include_str!("../wat/write_16_pages.wat");

/// A node and a worker of its own on this thread.
pub(crate) struct Bench {
    pub(crate) node: Arc<Node>,
    evaluator: Evaluator,
    executor: Executor,
    request: Arc<Request>,
    tree: TreeBuilder,
    _home: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let home = tempfile::tempdir()?;
        let options = Options { home: Some(home.path().to_owned()), ..Options::default() };
        let node = Node::start(&options)?;
        Ok(Self::on(node, home))
    }

    fn on(node: Arc<Node>, home: tempfile::TempDir) -> Self {
        let (evaluator, mut executor) = node.private_worker();
        let request = node.scheduler().private_request(Handle::u64(0), Priority::Normal);
        executor.begin(&request);
        Self { node, evaluator, executor, request, tree: TreeBuilder::new(), _home: home }
    }

    /// Stores and compiles a codelet given as text.
    pub(crate) fn codelet(&self, text: &str) -> anyhow::Result<Handle> {
        let codelet = self.node.store().put_blob(&wat::parse_str(text)?)?;
        for fuel in [0, FUEL] {
            let limits = Limits { fuel, ..Limits::default() };
            self.node.prepare(codelet, &limits).map_err(|fault| anyhow::anyhow!("{fault}"))?;
        }
        Ok(codelet)
    }

    /// Builds `[limits, procedure, arguments…]`.
    #[inline]
    fn build(&mut self, limits: Handle, procedure: Handle, arguments: &[Handle]) {
        self.tree.clear();
        self.tree.push(limits).push(procedure);
        for &argument in arguments {
            self.tree.push(argument);
        }
    }

    /// Builds, hashes and stores an application.
    #[inline]
    pub(crate) fn application(&mut self, limits: Handle, procedure: Handle, arguments: &[Handle]) -> Handle {
        self.build(limits, procedure, arguments);
        let tree = self.node.store().keep_tree(self.tree.view());
        tree.application().unwrap()
    }

    /// The thunk's strict result.
    #[inline]
    pub(crate) fn evaluate(&mut self, thunk: Handle) -> Handle {
        let goal = thunk.strict().unwrap();
        let mut progress = self.evaluator.evaluate(&mut self.executor, &self.request, goal);
        loop {
            match progress {
                Progress::Finished(result) => return result,
                _ => {
                    let job = self.node.scheduler().next_job();
                    let Some(job) = job else { continue };
                    progress = self.evaluator.run(&mut self.executor, job);
                }
            }
        }
    }
}

fn limits(fuel: u64) -> Handle {
    Limits { memory_bytes: 1 << 20, fuel, ..Limits::default() }.handle().unwrap()
}

fn byte(value: usize) -> Handle {
    Handle::literal(&[value as u8]).unwrap()
}

/// The pair that additions number `i`; 65,536 are distinct.
fn pair(i: usize) -> [Handle; 2] {
    [byte(i), byte(i >> 8)]
}

fn blake3_64() -> Sample {
    let mut block = [7_u8; 64];
    batch(BATCH, || {
        for i in 0..BATCH as u64 {
            block[..8].copy_from_slice(&i.to_le_bytes());
            black_box(blake3::hash(&block));
        }
    })
}

/// Medians of a cold series, and of the calibration between its batches.
struct Series {
    cold: Vec<Sample>,
    reference: Vec<Sample>,
}

impl Series {
    fn over_reference(&self) -> f64 {
        median_cpu(&self.cold) / median_cpu(&self.reference)
    }
}

fn cold(bench: &mut Bench, codelet: Handle, limits: Handle) -> anyhow::Result<Series> {
    // Compiling is not part of it: one application of other limits first.
    let other = self::limits(FUEL + 1);
    let first = bench.application(other, codelet, &pair(0));
    ensure!(bench.evaluate(first) == byte(0), "the codelet does not add");
    let mut series = Series { cold: Vec::new(), reference: Vec::new() };
    for number in 0..BATCHES {
        series.reference.push(blake3_64());
        let mut wrong = 0;
        series.cold.push(batch(BATCH, || {
            for i in number * BATCH..(number + 1) * BATCH {
                let thunk = bench.application(limits, codelet, &pair(i));
                wrong += usize::from(bench.evaluate(thunk) != byte(i + (i >> 8)));
            }
        }));
        ensure!(wrong == 0, "{wrong} sums of a batch are wrong");
    }
    Ok(series)
}

/// Cold additions and hits among a million entries, again and again.
pub(crate) fn profile_full() -> anyhow::Result<()> {
    let mut bench = Bench::new()?;
    let add = bench.codelet(ADD)?;
    prefill(&mut bench, add);
    for number in 0..8 {
        let full = cold(&mut bench, add, limits(FUEL + 2 * number))?;
        let hits = memo_hits(&mut bench, add, limits(FUEL + 2 * number))?;
        println!(
            "cold {:.2}, hit {:.2} x BLAKE3 of 64 bytes ({:.0}, {:.0})",
            full.over_reference(),
            hits.over_reference(),
            median_cpu(&full.cold),
            median_cpu(&hits.cold)
        );
    }
    Ok(())
}

/// Cold additions for some seconds, for a profiler to look at.
pub(crate) fn profile() -> anyhow::Result<()> {
    for _ in 0..40 {
        let mut bench = Bench::new()?;
        let add = bench.codelet(ADD)?;
        let series = cold(&mut bench, add, limits(FUEL))?;
        let other = limits(FUEL + 7);
        let build = batch(BATCHES * BATCH, || {
            for i in 0..BATCHES * BATCH {
                black_box(bench.application(other, add, &pair(i)));
            }
        });
        let begun = batch(BATCHES * BATCH, || {
            for i in 0..BATCHES * BATCH {
                black_box(bench.evaluate(Handle::u64(i as u64).identification().unwrap()));
            }
        });
        let hit = batch(BATCHES * BATCH, || {
            for i in 0..BATCHES * BATCH {
                black_box(bench.application(other, add, &pair(i)));
            }
        });
        let hot = batch(BATCHES * BATCH, || {
            for _ in 0..BATCHES * BATCH {
                black_box(bench.application(other, add, &pair(7)));
            }
        });
        let goal = bench.application(limits(FUEL), add, &pair(7));
        let hot_hit = batch(BATCHES * BATCH, || {
            for _ in 0..BATCHES * BATCH {
                black_box(bench.evaluate(goal));
            }
        });
        println!(
            "{:.2} x BLAKE3 of 64 bytes ({:.0} / {:.0}); build {:.0}, again {:.0}, always the same {:.0}; \
             evaluate an identity {:.0}, a known goal {:.0}",
            series.over_reference(),
            median_cpu(&series.cold),
            median_cpu(&series.reference),
            build.cpu,
            hit.cpu,
            hot.cpu,
            begun.cpu,
            hot_hit.cpu
        );
    }
    Ok(())
}

fn prefill(bench: &mut Bench, codelet: Handle) {
    // Other fuel limits make other applications of the same additions.
    for round in 0..PREFILL / 65_536 + 1 {
        let limits = limits(2 * FUEL + round as u64);
        for i in 0..65_536.min(PREFILL - round * 65_536) {
            let thunk = bench.application(limits, codelet, &pair(i));
            bench.evaluate(thunk);
        }
    }
}

/// Known applications: each tree is built and hashed, and its result found. The
/// tree is not stored again: what is known is found without it.
fn memo_hits(bench: &mut Bench, codelet: Handle, limits: Handle) -> anyhow::Result<Series> {
    let mut series = Series { cold: Vec::new(), reference: Vec::new() };
    for number in 0..BATCHES {
        series.reference.push(blake3_64());
        let mut wrong = 0;
        series.cold.push(batch(BATCH, || {
            for i in number * BATCH..(number + 1) * BATCH {
                bench.build(limits, codelet, &pair(i));
                let thunk = bench.tree.view().handle().application().unwrap();
                wrong += usize::from(bench.evaluate(thunk) != byte(i + (i >> 8)));
            }
        }));
        ensure!(wrong == 0, "{wrong} sums of a batch are wrong");
    }
    Ok(series)
}

/// The sandbox alone: trees built beforehand, no lookups, nothing remembered.
fn runner_only(bench: &mut Bench, codelet: Handle) -> anyhow::Result<Vec<Sample>> {
    let mut invoker = bench.node.invoker();
    let limits_handle = limits(FUEL);
    let mut samples = Vec::new();
    for number in 0..BATCHES {
        let calls: Vec<sandbox::Call> = (number * BATCH..(number + 1) * BATCH)
            .map(|i| {
                let handle = bench.application(limits_handle, codelet, &pair(i)).definition();
                let application = bench.node.store().local(handle).context("a tree was not kept")?;
                let limits = Limits::from_handle(limits_handle)?;
                Ok(sandbox::Call::new(application, handle, limits, codelet))
            })
            .collect::<anyhow::Result<_>>()?;
        samples.push(batch(BATCH, || {
            for call in calls {
                black_box(invoker.invoke(call).result.is_ok());
            }
        }));
    }
    Ok(samples)
}

trait Adder {
    fn add(&self, a: u8, b: u8) -> u8;
}

struct Wrapping;

impl Adder for Wrapping {
    #[inline(never)]
    fn add(&self, a: u8, b: u8) -> u8 {
        a.wrapping_add(b)
    }
}

#[inline(never)]
fn static_add(a: u8, b: u8) -> u8 {
    a.wrapping_add(b)
}

fn calls() -> (f64, f64) {
    const CALLS: usize = 1 << 20;
    let adder: Box<dyn Adder> = black_box(Box::new(Wrapping));
    let time = |body: &dyn Fn(u8, u8) -> u8| {
        let run = || (0..CALLS).for_each(|i| _ = black_box(body(black_box(i as u8), 3)));
        median_cpu(&(0..BATCHES).map(|_| batch(CALLS, run)).collect::<Vec<_>>())
    };
    (time(&|a, b| static_add(a, b)), time(&|a, b| adder.add(a, b)))
}

/// A static program that exits at once, spawned as `posix_spawn` does: vfork, exec.
#[expect(clippy::disallowed_methods, reason = "starting processes is what is measured")]
/// Before each batch of it runs one of cold additions: pairs of both.
fn vfork_exec() -> anyhow::Result<(Vec<Sample>, Vec<f64>)> {
    const SPAWNS: usize = 200;
    let directory = tempfile::tempdir()?;
    let (source, program) = (directory.path().join("add.c"), directory.path().join("add"));
    std::fs::write(
        &source,
        "#include <stdlib.h>\nint main(int c, char **v) { return (atoi(v[1]) + atoi(v[2])) & 255; }\n",
    )?;
    let built = Command::new("cc").args(["-static", "-O2", "-o"]).arg(&program).arg(&source).status()?;
    ensure!(built.success(), "cc cannot build the static program; apt-get install gcc libc6-dev");
    let mut bench = Bench::new()?;
    let codelet = bench.codelet(ADD)?;
    let (mut samples, mut ratios) = (Vec::new(), Vec::new());
    for round in 0..PAIRS as u64 {
        let own = cold_batch(&mut bench, codelet, limits(FUEL + 2 + round));
        let (wall, cpu) = (Instant::now(), linux::process_cpu_ns()?);
        for i in 0..SPAWNS {
            let sum = Command::new(&program).arg((i & 63).to_string()).arg("5").status()?.code();
            ensure!(sum == Some((i as i32 & 63) + 5), "the program does not add");
        }
        let cpu = (linux::process_cpu_ns()? - cpu) as f64 / SPAWNS as f64;
        samples.push(Sample { cpu, wall: wall.elapsed().as_nanos() as f64 / SPAWNS as f64 });
        ratios.push(cpu / own.cpu);
    }
    Ok((samples, ratios))
}

/// One batch of cold additions.
fn cold_batch(bench: &mut Bench, codelet: Handle, limits: Handle) -> Sample {
    // Compiling is not part of it.
    let first = bench.application(self::limits(FUEL + 1), codelet, &pair(0));
    bench.evaluate(first);
    batch(BATCH, || {
        for i in 0..BATCH {
            let thunk = bench.application(limits, codelet, &pair(i));
            black_box(bench.evaluate(thunk));
        }
    })
}

/// Cold additions per second of wall time on this thread, from `start` on.
fn throughput(bench: &mut Bench, codelet: Handle, seed: u64, start: impl FnOnce()) -> f64 {
    const ROUNDS: u64 = 6;
    start();
    let begun = Instant::now();
    for round in 0..ROUNDS {
        let limits = limits(1_000_000 + seed * ROUNDS + round);
        for i in 0..65_536 {
            let thunk = bench.application(limits, codelet, &pair(i));
            black_box(bench.evaluate(thunk));
        }
    }
    (ROUNDS * 65_536) as f64 / begun.elapsed().as_secs_f64()
}

/// The other process of the scaling figure: begins when told, prints its throughput.
pub(crate) fn child() -> anyhow::Result<()> {
    let mut bench = Bench::new()?;
    let codelet = bench.codelet(ADD)?;
    let warm = bench.application(limits(FUEL + 1), codelet, &pair(0));
    bench.evaluate(warm);
    println!("ready");
    let mut go = String::new();
    std::io::stdin().read_line(&mut go)?;
    println!("{}", throughput(&mut bench, codelet, 1, || {}));
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "two processes are the peer here")]
fn two_processes() -> anyhow::Result<f64> {
    let program = std::env::current_exe()?;
    let mut children = Vec::new();
    for _ in 0..2 {
        let mut child = Command::new(&program)
            .arg("invoke-child")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut output = BufReader::new(child.stdout.take().context("no output")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        ensure!(line.trim() == "ready", "the other process does not start");
        children.push((child, output));
    }
    for (child, _) in &mut children {
        child.stdin.as_mut().context("no input")?.write_all(b"go\n")?;
    }
    let mut sum = 0.0;
    for (mut child, mut output) in children {
        let mut line = String::new();
        output.read_line(&mut line)?;
        sum += line.trim().parse::<f64>()?;
        child.wait()?;
    }
    Ok(sum)
}

#[expect(clippy::disallowed_methods, reason = "two workers in one process are what is measured")]
fn two_workers(number: u64) -> anyhow::Result<f64> {
    let first = Bench::new()?;
    let codelet = first.codelet(ADD)?;
    let barrier = Barrier::new(2);
    let second = Bench::on(Arc::clone(&first.node), tempfile::tempdir()?);
    let run = |mut bench: Bench, seed: u64| {
        // Each its own: whoever waits for the other's claim is resumed by any
        // worker of the node.
        let warm = bench.application(limits(FUEL + 1 + seed), codelet, &pair(0));
        bench.evaluate(warm);
        throughput(&mut bench, codelet, seed, || _ = barrier.wait())
    };
    let rates = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(second, 2 * number));
        let own = run(first, 2 * number + 1);
        other.join().map(|other| own + other)
    });
    match rates {
        Ok(rates) => Ok(rates),
        Err(_) => bail!("a worker panicked"),
    }
}

fn scaling(report: &mut Report) -> anyhow::Result<()> {
    const ROUNDS: usize = 5;
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for number in 0..ROUNDS {
        let processes = two_processes()?;
        let workers = two_workers(number as u64)?;
        rates.push(workers);
        ratios.push(workers / processes);
    }
    report.add("two_workers_per_s", median(rates), "1/s", "cold additions, two workers of one node", ROUNDS);
    report.add("scaling_over_two_processes", median(ratios), "x", "two independent processes", ROUNDS);
    Ok(())
}

fn beside_ray(report: &mut Report) -> anyhow::Result<()> {
    let mut bench = Bench::new()?;
    let add = bench.codelet(ADD)?;
    let mut round = 0;
    let own = || {
        round += 1;
        Ok(cold_batch(&mut bench, add, limits(FUEL + 1 + round)))
    };
    if let Some(ray) = report.peer("Ray", || ray::alternate("invoke", own)) {
        report.add("ray_call_cpu_ns", ray.cpu_ns, "ns", "Ray, all its processes, fastest style", ray.n);
        report.add("ray_call_wall_ns", ray.wall_ns, "ns", "Ray, fastest style", ray.n);
        report.add("times_lighter_than_ray", ray.over_our_cpu, "x", "CPU / CPU, in turns", ray.n);
        report.add("times_faster_than_ray", ray.over_our_wall, "x", "wall / wall, in turns", ray.n);
    }
    Ok(())
}

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    eprintln!("invoke: empty tables");
    let mut bench = Bench::new()?;
    let add = bench.codelet(ADD)?;
    let empty = cold(&mut bench, add, limits(FUEL))?;
    let cold_cpu = median_cpu(&empty.cold);
    report.add("blake3_64_cpu_ns", median_cpu(&empty.reference), "ns", "the calibration", BATCHES);
    report.add("cold_cpu_ns", cold_cpu, "ns", "one cold evaluation, empty tables", BATCHES);
    report.add("cold_wall_ns", median_wall(&empty.cold), "ns", "the same by the clock", BATCHES);
    report.add("cold_over_blake3_64", empty.over_reference(), "x", "BLAKE3 of 64 bytes", BATCHES);

    let mut bench = Bench::new()?;
    let add = bench.codelet(ADD)?;
    let uncounted = cold(&mut bench, add, limits(0))?;
    report.add("cold_unmetered_over_blake3_64", uncounted.over_reference(), "x", "no fuel limit", BATCHES);

    for (figure, text, meaning) in [
        ("cold_memory_4k_over_blake3_64", WRITE_4K, "4 KiB written"),
        ("cold_memory_16p_over_blake3_64", WRITE_16_PAGES, "16 pages dirtied"),
    ] {
        let mut bench = Bench::new()?;
        let codelet = bench.codelet(text)?;
        let series = cold(&mut bench, codelet, limits(FUEL))?;
        report.add(figure, series.over_reference(), "x", meaning, BATCHES);
    }

    let mut bench = Bench::new()?;
    let add = bench.codelet(ADD)?;
    let runner = runner_only(&mut bench, add)?;
    report.add("runner_cpu_ns", median_cpu(&runner), "ns", "sandbox alone, trees prepared", BATCHES);
    report.add("runner_wall_ns", median_wall(&runner), "ns", "the same by the clock", BATCHES);

    eprintln!("invoke: one million entries");
    let mut bench = Bench::new()?;
    let add = bench.codelet(ADD)?;
    prefill(&mut bench, add);
    let full = cold(&mut bench, add, limits(FUEL))?;
    report.add("cold_1m_cpu_ns", median_cpu(&full.cold), "ns", "one cold evaluation, 1 M entries", BATCHES);
    report.add("cold_1m_wall_ns", median_wall(&full.cold), "ns", "the same by the clock", BATCHES);
    report.add("cold_over_blake3_64_1m", full.over_reference(), "x", "1 M entries in the tables", BATCHES);
    let hits = memo_hits(&mut bench, add, limits(FUEL))?;
    report.add("memo_hit_1m_cpu_ns", median_cpu(&hits.cold), "ns", "built, hashed, found", BATCHES);
    report.add("memo_hit_1m_wall_ns", median_wall(&hits.cold), "ns", "the same by the clock", BATCHES);
    report.add(
        "memo_hit_over_blake3_64_1m",
        hits.over_reference(),
        "x",
        "1 M entries in the tables",
        BATCHES,
    );
    drop(bench);

    eprintln!("invoke: peers");
    let (static_call, virtual_call) = calls();
    report.add("static_call_ns", static_call, "ns", "no isolation", BATCHES);
    report.add("virtual_call_ns", virtual_call, "ns", "no isolation", BATCHES);
    let (spawned, ratios) = vfork_exec()?;
    report.add("vfork_exec_cpu_ns", median_cpu(&spawned), "ns", "both sides, children included", PAIRS);
    report.add("vfork_exec_wall_ns", median_wall(&spawned), "ns", "the same by the clock", PAIRS);
    report.add("times_lighter_than_vfork_exec", median(ratios), "x", "CPU / CPU, in turns", PAIRS);
    scaling(report)?;
    beside_ray(report)
}
