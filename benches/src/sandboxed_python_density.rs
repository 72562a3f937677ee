// SPDX-License-Identifier: Apache-2.0
//! `sandboxed-python-density`: what a hundred snapshots of CPython take while nobody calls them, of which
//! each has imported and loaded something else besides pandas, and each of which was called before
//! and is called again. Against processes of native CPython that wait in the same state.
//!
//! The snapshots are made by one node and used by another one, in processes of their own. What counts of that is its
//! anonymous memory and its files in memory (images), and how much both grew from before the
//! first call. What it has mapped of its store's files is the kernel's cache, and told for itself.
//! Of the peers it is the proportional set size.

mod customers;

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use objects::Handle;
use serde_json::{Value, json};

use crate::figures::{Report, median};
use crate::python::{Programs, folder, interpreter};
use customers::CUSTOMERS;

/// Of those that take much each.
const FEW: usize = 8;
/// How often each is called when all have been.
const ROUNDS: usize = 3;
/// Always the same: making a snapshot is not what is measured, and the next run finds it.
const SEED: &str = "sandboxed-python-density";
const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/idle_python_peer.py");
const KIB: f64 = 1024.0;
/// Until nothing is under way.
const SETTLING: Duration = Duration::from_secs(1);

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let data = customers::data(&folder()?)?;
    eprintln!("  making snapshots, which takes minutes where it was not done before");
    let made = asked(&json!({ "make": CUSTOMERS }))?;
    let common = asked(&json!({ "use": made["common"] }))?;
    tell(report, "", &common, "that went on from one snapshot with pandas", CUSTOMERS)?;
    let alone = asked(&json!({ "use": made["alone"] }))?;
    tell(report, "from_scratch_", &alone, "each of which imported pandas itself", FEW)?;
    for (way, figure, count) in [("forked", "forked_native", CUSTOMERS), ("alone", "native", FEW)] {
        let Some(bytes) = report.peer(&format!("native CPython, {way}"), || peer(way, count, &data)) else {
            continue;
        };
        let what = match way {
            "forked" => "PSS of processes forked from one with pandas, that one included",
            _ => "PSS of processes that were started each for itself",
        };
        report.add(&format!("idle_kib_{figure}"), bytes / KIB, "KiB", what, count);
        let ours = number(&common, "idle_bytes")?;
        report.add(&format!("share_of_{figure}"), ours / bytes, "x", what, count);
    }
    report.note("each was called before and is called again, with the right answer each time");
    Ok(())
}

fn tell(report: &mut Report, name: &str, told: &Value, what: &str, count: usize) -> anyhow::Result<()> {
    let kib = |key: &str| anyhow::Ok(number(told, key)? / KIB);
    report.add(
        &format!("{name}idle_kib"),
        kib("idle_bytes")?,
        "KiB",
        &format!("each of {count} {what}"),
        count,
    );
    report.add(
        &format!("{name}anonymous_kib"),
        kib("anonymous_bytes")?,
        "KiB",
        "of it: copies and the node's own",
        count,
    );
    report.add(&format!("{name}images_kib"), kib("image_bytes")?, "KiB", "of it: images", count);
    report.add(
        &format!("{name}cache_kib"),
        kib("cache_bytes")?,
        "KiB",
        "not in it: the kernel's cache of the store",
        count,
    );
    let calls = count * ROUNDS;
    report.add(
        &format!("{name}call_ms"),
        number(told, "call_ms")?,
        "ms",
        "one after the other: a groupby and a print",
        calls,
    );
    report.add(&format!("{name}slowest_call_ms"), number(told, "slowest_ms")?, "ms", "of these", calls);
    Ok(())
}

fn number(told: &Value, key: &str) -> anyhow::Result<f64> {
    told[key].as_f64().with_context(|| format!("no {key} in {told}"))
}

/// What a process of its own says to a line.
#[expect(
    clippy::disallowed_methods,
    reason = "the memory of a node that did nothing else is what is measured"
)]
fn asked(question: &Value) -> anyhow::Result<Value> {
    let mut command = Command::new(std::env::current_exe()?);
    // What is freed is gone at once, so that it is not used again instead of growing.
    command.env("MIMALLOC_PURGE_DELAY", "0").env(linux::SMALL_HEAP.0, linux::SMALL_HEAP.1);
    command.arg("snapshots-child").env_remove("GLIBC_TUNABLES").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut input = child.stdin.take().context("it has no input")?;
    writeln!(input, "{question}")?;
    drop(input);
    let told = child.wait_with_output()?;
    ensure!(told.status.success(), "a node with snapshots ended badly; what it said is above");
    Ok(serde_json::from_slice(&told.stdout)?)
}

/// One of these processes.
pub(crate) fn child() -> anyhow::Result<()> {
    let mut question = String::new();
    std::io::stdin().lock().read_line(&mut question)?;
    let question: Value = serde_json::from_str(&question)?;
    let folder = folder()?;
    let data = customers::data(&folder)?;
    let programs = Programs::start(&folder, &data, SEED)?;
    let answer = match question["use"].as_array() {
        Some(snapshots) => used(&programs, snapshots)?,
        None => made(&programs, &data)?,
    };
    drop(programs);
    println!("{answer}");
    Ok(())
}

/// Handles of the snapshots: from one in common, and a few without.
fn made(programs: &Programs, data: &Path) -> anyhow::Result<Value> {
    let pandas = programs.snapshot(customers::COMMON)?;
    let (mut common, mut alone) = (Vec::new(), Vec::new());
    for customer in 0..CUSTOMERS {
        let own = customers::own(customer, data);
        let snapshot = programs.snapshot_from(pandas, &own)?;
        programs.persist(snapshot)?;
        common.push(snapshot.to_string());
        if customer < FEW {
            let snapshot = programs.snapshot(&format!("{}{own}", customers::COMMON))?;
            programs.persist(snapshot)?;
            alone.push(snapshot.to_string());
        }
    }
    Ok(json!({ "common": common, "alone": alone }))
}

/// Calls them all, and then again.
fn used(programs: &Programs, snapshots: &[Value]) -> anyhow::Result<Value> {
    let snapshots: Result<Vec<Handle>, _> =
        snapshots.iter().map(|text| text.as_str().unwrap_or_default().parse()).collect();
    let snapshots = snapshots.map_err(|error| anyhow::anyhow!("no handle of a snapshot: {error}"))?;
    // The compiled code and a first instance are there whoever is called.
    programs.snapshot(&format!("begun = {}", linux::monotonic_ns()))?;
    std::thread::sleep(SETTLING);
    let before = Memory::now()?;
    let mut times = Vec::new();
    let mut after = before;
    for round in 0..=ROUNDS {
        for (customer, snapshot) in snapshots.iter().enumerate() {
            // Nothing is remembered of a number.
            let (question, expected) = customers::question(customer, linux::monotonic_ns());
            let (ms, printed) = programs.call(*snapshot, &question)?;
            ensure!(printed == expected, "customer {customer} printed {printed:?}, not {expected:?}");
            if round > 0 {
                times.push(ms);
            }
        }
        std::thread::sleep(SETTLING);
        after = Memory::now()?;
    }
    let each = |bytes: fn(&Memory) -> f64| (bytes(&after) - bytes(&before)) / snapshots.len() as f64;
    let slowest = times.iter().copied().fold(0.0, f64::max);
    Ok(json!({
        "idle_bytes": each(|memory| memory.anonymous + memory.images),
        "anonymous_bytes": each(|memory| memory.anonymous),
        "image_bytes": each(|memory| memory.images),
        "cache_bytes": each(|memory| memory.cache),
        "call_ms": median(times),
        "slowest_ms": slowest,
    }))
}

/// Bytes of this process.
#[derive(Clone, Copy)]
struct Memory {
    anonymous: f64,
    /// Files in memory, mapped or not.
    images: f64,
    /// Pages of files on disk that are mapped.
    cache: f64,
}

impl Memory {
    fn now() -> anyhow::Result<Self> {
        let rollup = std::fs::read_to_string("/proc/self/smaps_rollup")?;
        let of = |name: &str| -> anyhow::Result<f64> {
            let line = rollup.lines().find_map(|line| line.strip_prefix(name));
            let kib: f64 =
                line.context("the kernel does not tell it")?.trim().trim_end_matches(" kB").trim().parse()?;
            Ok(kib * KIB)
        };
        let (mut images, mut seen) = (0, HashSet::new());
        for entry in std::fs::read_dir("/proc/self/fd")?.flatten() {
            let to = std::fs::read_link(entry.path()).unwrap_or_default();
            let is_image = to.to_string_lossy().starts_with("/memfd:sinew-image");
            let Some(file) = std::fs::metadata(entry.path()).ok().filter(|_| is_image) else { continue };
            if seen.insert(file.ino()) {
                images += file.blocks() * 512;
            }
        }
        Ok(Self { anonymous: of("Pss_Anon:")?, images: images as f64, cache: of("Pss_File:")? })
    }
}

/// Bytes of each of the native processes.
#[expect(clippy::disallowed_methods, reason = "the peer is a program of its own")]
fn peer(way: &str, count: usize, data: &Path) -> anyhow::Result<f64> {
    let mut command = Command::new(interpreter()?);
    command.args([PEER, way]).env_remove("GLIBC_TUNABLES").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut input = child.stdin.take().context("it has no input")?;
    let mut output = BufReader::new(child.stdout.take().context("it has no output")?);
    let own: Vec<String> = (0..count).map(|customer| customers::own(customer, data)).collect();
    writeln!(input, "{}", json!({ "common": customers::COMMON, "own": own }))?;
    let mut line = String::new();
    output.read_line(&mut line)?;
    ensure!(!line.is_empty(), "it ended; what it said is above");
    let bytes = number(&serde_json::from_str(&line)?, "pss_bytes")?;
    for customer in 0..count {
        let (question, expected) = customers::question(customer, linux::monotonic_ns());
        writeln!(input, "{}", json!({ "customer": customer, "run": question }))?;
        line.clear();
        output.read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line)?;
        ensure!(answer["printed"] == expected, "customer {customer} printed {answer}, not {expected:?}");
    }
    drop(input);
    child.wait()?;
    Ok(bytes / count as f64)
}
