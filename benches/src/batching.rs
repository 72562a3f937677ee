// SPDX-License-Identifier: Apache-2.0
//! `batching`: 192 applications, six of each of 32 inputs of 8 MiB, on a node that can hold
//! five inputs at a time and whose kernel has no room to keep the others.
//!
//! They arrive one input after the other, and then all over again, as from clients that know
//! nothing of each other. The peers are the same node that gives room in the order of arrival, and,
//! as the ideal, applications that arrive sorted by their inputs. Each runs in a process and a
//! memory control group of its own: what the group has no room for is read from the disk again,
//! and `/proc` counts that. Every result is compared with what a loop here says.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use node::{Node, Options};
use objects::{Handle, Limits, TreeBuilder};
use serde_json::{Value, json};

use crate::figures::{Report, median};
use crate::page_cache;

const INPUTS: u64 = 32;
const INPUT_BYTES: usize = 8 << 20;
const EACH: u64 = 6;
const ROUNDS: usize = 3;
/// Of it 5/16 are for objects, and half of that for what jobs hold that wait.
const NODE_BYTES: u64 = 256 << 20;
/// Of the node's process and of the files that it reads: less than the inputs alone.
const GROUP_BYTES: u64 = 192 << 20;
/// Between two arrivals, so that they are in order.
const BETWEEN: Duration = Duration::from_micros(300);
const SUM: &str = include_str!("../wat/sum.wat");

/// How applications arrive, and how the node gives room.
const KINDS: [&str; 3] = ["batched", "first-come", "sorted"];

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let home = folder.path().join("home");
    make(&home)?;
    let mut told = [const { (Vec::new(), Vec::new()) }; 3];
    for round in 0..ROUNDS as u64 {
        for (turn, (kind, (times, read))) in (0..).zip(KINDS.iter().zip(&mut told)) {
            page_cache::forget(&home)?;
            // What a home was asked for once it knows, also for the other kinds.
            let one = measure(&home, kind, round * KINDS.len() as u64 + turn)?;
            times.push(one["seconds"].as_f64().context("no time")?);
            read.push(one["read_bytes"].as_f64().context("no bytes")? / f64::from(1 << 20));
        }
    }
    let [(batched_s, batched), (first_s, first), (sorted_s, sorted)] =
        told.map(|(times, read)| (median(times), median(read)));
    let all = (INPUTS as usize * INPUT_BYTES) >> 20;
    report.add("read_mib", batched, "MiB", &format!("of the disk; the inputs have {all}"), ROUNDS);
    report.add("read_mib_first_come", first, "MiB", "peer: room in the order of arrival", ROUNDS);
    report.add("read_mib_sorted", sorted, "MiB", "peer: they arrive sorted by input", ROUNDS);
    report.add("times_less_read", first / batched, "x", "than in the order of arrival", ROUNDS);
    report.add("seconds", batched_s, "s", "from the first arrival to the last result", ROUNDS);
    report.add("seconds_first_come", first_s, "s", "peer: room in the order of arrival", ROUNDS);
    report.add("seconds_sorted", sorted_s, "s", "peer: they arrive sorted by input", ROUNDS);
    report.add("times_faster", first_s / batched_s, "x", "than in the order of arrival", ROUNDS);
    Ok(())
}

fn content(number: u64) -> Vec<u8> {
    let mut x = number + 1;
    let mut bytes = vec![0; INPUT_BYTES];
    for place in bytes.as_chunks_mut::<8>().0 {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *place = x.to_le_bytes();
    }
    bytes
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.as_chunks::<8>().0.iter().fold(0, |sum, word| u64::wrapping_add(sum, u64::from_le_bytes(*word)))
}

/// A home with all inputs, and what their bytes sum up to.
fn make(home: &Path) -> anyhow::Result<()> {
    let node = Node::start(&Options { home: Some(home.to_owned()), ..Options::default() })?;
    let store = node.store();
    let mut entries = vec![store.put_blob(&wat::parse_str(SUM)?)?];
    for number in 0..INPUTS {
        let bytes = content(number);
        entries.extend([store.put_blob(&bytes)?, Handle::u64(sum(&bytes))]);
    }
    let tree: TreeBuilder = entries.into_iter().collect();
    store.set_label("inputs", store.put_tree(tree.view())?)?;
    node.shut_down();
    Ok(())
}

/// One node in a group of its own, and what it says.
fn measure(home: &Path, kind: &str, round: u64) -> anyhow::Result<Value> {
    let hierarchies = linux::Hierarchies::discover().context("control groups are needed")?;
    ensure!(hierarchies.has(linux::Controller::Memory), "the bench needs memory control groups, and root");
    let limits = linux::CgroupLimits { memory_bytes: Some(GROUP_BYTES), ..linux::CgroupLimits::default() };
    let name = format!("sinew-bench-batching-{}-{kind}-{round}", std::process::id());
    let group = linux::Cgroup::create(&hierarchies, &name, &limits)?;
    #[expect(clippy::disallowed_methods, reason = "a node of its own is what is measured")]
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["batching-child", kind, &round.to_string()]).arg(home);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let pid = child.id().to_string();
    let joined = group.joins().try_for_each(|file| rustix::io::write(file, pid.as_bytes()).map(drop));
    // It waits for this line, so that all that it takes is the group's; without it, it ends.
    let told = joined.map_err(anyhow::Error::from).and_then(|()| {
        writeln!(child.stdin.take().context("no input")?, "go")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        Ok(line)
    });
    if told.is_err() {
        child.kill()?;
    }
    let status = child.wait()?;
    group.remove(Duration::from_secs(5))?;
    let told = told?;
    ensure!(status.success(), "the node of {kind} ended with {status}");
    Ok(serde_json::from_str(&told)?)
}

/// The node that is measured.
pub(crate) fn child() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, _, kind, round, home] = &arguments[..] else { anyhow::bail!("a kind, a round and a home") };
    std::io::stdin().read_line(&mut String::new())?;
    let options = Options {
        home: Some(PathBuf::from(home)),
        memory_bytes: Some(NODE_BYTES),
        workers: Some(2),
        first_come: kind == "first-come",
        ..Options::default()
    };
    let node = Node::start(&options)?;
    let goals = goals(&node, kind == "sorted", round.parse()?)?;
    let before = read_bytes()?;
    let begun = Instant::now();
    let asked: Vec<_> = goals
        .into_iter()
        .map(|(goal, expected)| {
            let node = Arc::clone(&node);
            let asking = std::thread::Builder::new().stack_size(64 << 10);
            let asked = asking.spawn(move || node.evaluate_blocking(goal) == Some(expected));
            std::thread::sleep(BETWEEN);
            asked
        })
        .collect::<Result<_, _>>()?;
    let right = asked.into_iter().map(|asked| asked.join().unwrap_or(false));
    let wrong = right.filter(|right| !right).count();
    let seconds = begun.elapsed().as_secs_f64();
    let read = read_bytes()? - before;
    node.shut_down();
    ensure!(wrong == 0, "{wrong} results are wrong");
    println!("{}", json!({"seconds": seconds, "read_bytes": read}));
    Ok(())
}

/// What is asked for, and what it must give; nothing of it was asked for before.
fn goals(node: &Node, is_sorted: bool, round: u64) -> anyhow::Result<Vec<(Handle, Handle)>> {
    let store = node.store();
    let limits = Limits { memory_bytes: 1 << 20, ..Limits::default() };
    let inputs = store.label("inputs")?.context("no inputs")?;
    let inputs: Vec<Handle> = store.get(inputs)?.context("no inputs")?.as_tree().iter().collect();
    let (module, inputs) = inputs.split_first().context("no module")?;
    node.prepare(*module, &limits).map_err(|fault| anyhow::anyhow!(fault.detail))?;
    let limits = limits.handle().context("no limits")?;
    let mut goals = Vec::new();
    for turn in 0..EACH {
        for (number, pair) in inputs.as_chunks::<2>().0.iter().enumerate() {
            let [input, sum] = *pair;
            let nonce = round * EACH + turn + 1;
            let tree: TreeBuilder = [limits, *module, input, Handle::u64(nonce)].into_iter().collect();
            let thunk = store.keep_tree(tree.view()).application().context("no application")?;
            let sum = sum.literal_bytes().and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
            let expected = Handle::u64(sum.context("no sum")?.wrapping_add(nonce));
            goals.push((number, (thunk.strict().context("no goal")?, expected)));
        }
    }
    if is_sorted {
        goals.sort_by_key(|(number, _)| *number);
    }
    Ok(goals.into_iter().map(|(_, goal)| goal).collect())
}

/// Bytes that this process had read from the disk, mapped files included.
fn read_bytes() -> anyhow::Result<u64> {
    let told = std::fs::read_to_string("/proc/self/io")?;
    let bytes = told.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    Ok(bytes.context("the kernel does not count what is read")?.parse()?)
}
