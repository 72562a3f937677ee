// SPDX-License-Identifier: Apache-2.0
//! `count-string`: words and a three-letter string over at least 2 GiB.
//!
//! The corpus of `make demo`, cut into shards of 4 MiB; it is passed over
//! several times, each time cut at other places, so that no two shards are
//! equal. Peers: the same codelet in a bare wasmtime loop on all cores, which
//! hashes, remembers and isolates nothing; the same with one worker; a native
//! `memmem` over the same bytes, which counts the string only.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use node::{Node, Options};
use objects::{Handle, Limits, TreeBuilder};

use crate::bare::Bare;
use crate::figures::{Report, median};

const SHARD_BYTES: usize = 4 << 20;
const BYTES_MIN: usize = 2 << 30;
const NEEDLE: &[u8] = b"the";
const ROUNDS: usize = 3;

/// One run over all shards.
struct Run {
    wall_s: f64,
    cpu_s: f64,
    found: u64,
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn read_inputs() -> anyhow::Result<(Vec<u8>, Vec<u8>, Vec<u8>)> {
    let read = |path: &str, make: &str| {
        std::fs::read(root().join(path)).with_context(|| format!("{path} is not there; run `{make}`"))
    };
    Ok((
        read(".demo/corpus.txt", "cargo xtask corpus")?,
        read("target/guests/count-string.wasm", "cargo xtask guests")?,
        read("target/guests/merge-counts.wasm", "cargo xtask guests")?,
    ))
}

/// Shards that are all different: pass after pass, each begun elsewhere.
fn shards(corpus: &'static [u8]) -> Vec<&'static [u8]> {
    let mut shards = Vec::new();
    let mut total = 0;
    for pass in 0.. {
        for shard in corpus.get(pass * 4099..).unwrap_or_default().chunks_exact(SHARD_BYTES) {
            if total >= BYTES_MIN {
                return shards;
            }
            total += shard.len();
            shards.push(shard);
        }
    }
    shards
}

/// A binary reduction over the strict results of all counts.
struct Job {
    goal: Handle,
}

fn job(node: &Node, map: Handle, merge: Handle, shards: &[Handle], round: u64) -> anyhow::Result<Job> {
    // Another hint makes another application: nothing is remembered of the last round.
    let limits = Limits { memory_bytes: 16 << 20, output_size_hint: 32 + round, ..Limits::default() };
    let limits = limits.handle().context("limits")?;
    let needle = Handle::literal(NEEDLE).context("the needle")?;
    let apply = |procedure: Handle, a: Handle, b: Handle| {
        let mut tree = TreeBuilder::with_capacity(4);
        tree.push(limits).push(procedure).push(a).push(b);
        let thunk = node.store().keep_tree(tree.view()).application();
        thunk.and_then(Handle::strict).context("a tree can be applied")
    };
    let mut level =
        shards.iter().map(|&shard| apply(map, needle, shard)).collect::<anyhow::Result<Vec<_>>>()?;
    while level.len() > 1 {
        let pairs = level.chunks(2).map(|pair| match *pair {
            [a, b] => apply(merge, a, b),
            _ => Ok(pair[0]),
        });
        level = pairs.collect::<anyhow::Result<_>>()?;
    }
    Ok(Job { goal: level[0] })
}

fn run_on_node(node: &Node, job: &Job) -> anyhow::Result<Run> {
    let (wall, cpu) = (Instant::now(), linux::process_cpu_ns()?);
    let result = node.evaluate_blocking(job.goal).context("the node is full")?;
    let (wall_s, cpu) = (wall.elapsed().as_secs_f64(), linux::process_cpu_ns()? - cpu);
    let counts = node.store().get(result)?.context("the counts are not there")?;
    ensure!(!result.is_failure(), "the count failed: `sinew cat {result}`");
    let found = counts.bytes().first_chunk::<8>().context("the counts are short")?;
    Ok(Run { wall_s, cpu_s: cpu as f64 / 1e9, found: u64::from_le_bytes(*found) })
}

#[expect(clippy::disallowed_methods, reason = "the peer uses all cores, as the node does")]
fn native(shards: &[&[u8]], cores: usize) -> Run {
    let (wall, next, found) = (Instant::now(), AtomicUsize::new(0), AtomicUsize::new(0));
    let cpu = linux::process_cpu_ns().unwrap_or_default();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let finder = memchr::memmem::Finder::new(NEEDLE);
                while let Some(shard) = shards.get(next.fetch_add(1, Ordering::Relaxed)) {
                    found.fetch_add(finder.find_iter(shard).count(), Ordering::Relaxed);
                }
            });
        }
    });
    let cpu = linux::process_cpu_ns().unwrap_or_default() - cpu;
    Run { wall_s: wall.elapsed().as_secs_f64(), cpu_s: cpu as f64 / 1e9, found: found.into_inner() as u64 }
}

#[expect(clippy::disallowed_methods, reason = "the peer uses all cores, as the node does")]
fn bare(bare: &Bare, shards: &[&'static [u8]], cores: usize) -> anyhow::Result<Run> {
    let (wall, next, found) = (Instant::now(), AtomicUsize::new(0), AtomicUsize::new(0));
    let cpu = linux::process_cpu_ns()?;
    std::thread::scope(|scope| {
        let work = || {
            let mut instance = bare.instance().map_err(plain)?;
            while let Some(shard) = shards.get(next.fetch_add(1, Ordering::Relaxed)) {
                let counts = instance.call(shard, NEEDLE).map_err(plain)?;
                let first = counts.first_chunk::<8>().context("the counts are short")?;
                found.fetch_add(u64::from_le_bytes(*first) as usize, Ordering::Relaxed);
            }
            anyhow::Ok(())
        };
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        anyhow::Ok(())
    })?;
    let cpu_s = (linux::process_cpu_ns()? - cpu) as f64 / 1e9;
    Ok(Run { wall_s: wall.elapsed().as_secs_f64(), cpu_s, found: found.into_inner() as u64 })
}

/// Wasmtime's errors as ours.
fn plain(error: wasmtime::Error) -> anyhow::Error {
    anyhow::anyhow!("{error:#}")
}

fn start(workers: Option<usize>) -> anyhow::Result<std::sync::Arc<Node>> {
    // In memory: what is measured is evaluation. The shards alone are 2 GiB.
    Ok(Node::start(&Options { workers, memory_bytes: Some(12 << 30), ..Options::default() })?)
}

fn put(node: &Node, shards: &[&[u8]]) -> Vec<Handle> {
    shards.iter().map(|shard| node.store().keep_blob(shard)).collect()
}

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let (corpus, count_wasm, merge_wasm) = read_inputs()?;
    // The bare loop's instances borrow it for as long as they like.
    let shards = shards(corpus.leak());
    let bytes: usize = shards.iter().map(|shard| shard.len()).sum();
    let gib = bytes as f64 / f64::from(1 << 30);
    let cores = linux::available_cpus()?.len();
    report.note(format!("{} shards of 4 MiB, {gib:.2} GiB, needle \"the\", {cores} cores", shards.len()));

    let node = start(None)?;
    let count = node.store().put_blob(&count_wasm)?;
    let merge = node.store().put_blob(&merge_wasm)?;
    let handles = put(&node, &shards);
    let bare_peer = Bare::new(&count_wasm).map_err(plain)?;
    // Compiled before anything is timed, on both sides.
    run_on_node(&node, &job(&node, count, merge, &handles[..2], 1_000)?)?;

    let (mut ours, mut bares, mut natives, mut ratios) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut hits = Vec::new();
    for round in 0..ROUNDS {
        let natively = native(&shards, cores);
        let barely = bare(&bare_peer, &shards, cores)?;
        let job = job(&node, count, merge, &handles, round as u64)?;
        let own = run_on_node(&node, &job)?;
        hits.push(run_on_node(&node, &job)?.wall_s);
        ensure!(own.found == barely.found, "{} found, the bare loop found {}", own.found, barely.found);
        ensure!(own.found == natively.found, "{} found, memmem found {}", own.found, natively.found);
        ratios.push(barely.wall_s / own.wall_s);
        ours.push(own);
        bares.push(barely);
        natives.push(natively);
    }
    let rate = |runs: &[Run]| gib / median(runs.iter().map(|run| run.wall_s).collect());
    let cpu = |runs: &[Run]| median(runs.iter().map(|run| run.cpu_s / gib).collect());
    let uncached = median(ours.iter().map(|run| run.wall_s).collect());
    let shares = ours.iter().map(|run| run.cpu_s / (run.wall_s * cores as f64)).collect();
    report.add("gib_per_s", rate(&ours), "GiB/s", "through the node, all cores", ROUNDS);
    report.add("bare_wasmtime_gib_per_s", rate(&bares), "GiB/s", "the same codelet, bare loop", ROUNDS);
    report.add("native_memmem_gib_per_s", rate(&natives), "GiB/s", "native, the string only", ROUNDS);
    report.add("cpu_s_per_gib", cpu(&ours), "s/GiB", "through the node", ROUNDS);
    report.add("bare_wasmtime_cpu_s_per_gib", cpu(&bares), "s/GiB", "the same codelet, bare loop", ROUNDS);
    report.add("native_memmem_cpu_s_per_gib", cpu(&natives), "s/GiB", "native, the string only", ROUNDS);
    report.add("share_of_bare_wasmtime", median(ratios), "x", "throughput / bare wasmtime", ROUNDS);
    report.add("own_cpu_share", median(shares), "x", "own CPU / (wall x cores)", ROUNDS);
    report.add("memo_hit_ms", median(hits) * 1e3, "ms", "the whole job again", ROUNDS);
    report.add("without_memo_ms", uncached * 1e3, "ms", "ablation: nothing of it is remembered", ROUNDS);
    drop(node);

    let single = start(Some(1))?;
    let count = single.store().put_blob(&count_wasm)?;
    let merge = single.store().put_blob(&merge_wasm)?;
    let handles = put(&single, &shards);
    run_on_node(&single, &job(&single, count, merge, &handles[..2], 1_000)?)?;
    let run = run_on_node(&single, &job(&single, count, merge, &handles, 0)?)?;
    report.add("one_worker_gib_per_s", gib / run.wall_s, "GiB/s", "ablation: one worker", 1);
    Ok(())
}
