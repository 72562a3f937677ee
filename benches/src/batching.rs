// SPDX-License-Identifier: Apache-2.0
//! `batching`: applications that share large inputs, which together do not fit the
//! memory of the node.
//!
//! Blobs of 8 MiB lie on the disk; each is the input of several applications, which are
//! asked for in turns, so that two which share an input are as far apart as they can be.
//! A node that serves them in order of arrival reads an input again for each of them; one
//! that serves those together which share one, once for several. The peer is the same
//! node told to do the former. What counts is what was read from the disk; with the
//! kernel's cache warm, the clock tells mostly of copying and verifying.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use node::{Node, Options};
use objects::{Handle, Limits, TreeBuilder};

use crate::figures::{Report, median};

const INPUT_BYTES: usize = 8 << 20;
const INPUTS: usize = 24;
const APPLICATIONS_PER_INPUT: usize = 8;
const ROUNDS: usize = 3;
/// The least that a node takes: 80 MiB of it are for objects, half of which jobs hold.
const MEMORY_BYTES: u64 = node::MEMORY_BYTES_MIN;
const ADD: &str = include_str!("../../guests/codelets/wat/add.wat");

/// What one round read, and how long it took.
struct Round {
    read_bytes: f64,
    wall_s: f64,
}

fn options(home: &Path, batch_max: Option<u32>) -> Options {
    Options {
        home: Some(home.to_owned()),
        workers: Some(1),
        memory_bytes: Some(MEMORY_BYTES),
        batch_max,
        ..Options::default()
    }
}

/// Stores the inputs, which are all different.
fn fill(home: &Path) -> anyhow::Result<Vec<Handle>> {
    let node = Node::start(&options(home, None))?;
    let mut inputs = Vec::new();
    for number in 0..INPUTS as u64 {
        let mut bytes = vec![0; INPUT_BYTES];
        for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&(number << 32 | at as u64).to_le_bytes());
        }
        inputs.push(node.store().put_blob(&bytes)?);
    }
    node.shut_down();
    Ok(inputs)
}

/// All applications, those that share an input as far apart as may be.
fn goals(node: &Node, inputs: &[Handle], round: u64) -> anyhow::Result<Vec<Handle>> {
    let procedure = node.store().keep_blob(&wat::parse_str(ADD)?);
    let limits = Limits { memory_bytes: 1 << 20, output_size_hint: round, ..Limits::default() };
    node.prepare(procedure, &limits).map_err(|fault| anyhow::anyhow!("{}", fault.detail))?;
    let limits = limits.handle().context("limits")?;
    let mut goals = Vec::new();
    for number in 0..APPLICATIONS_PER_INPUT as u64 {
        for &input in inputs {
            let mut tree = TreeBuilder::with_capacity(4);
            tree.push(limits).push(procedure).push(input).push(Handle::u64(number));
            let thunk = node.store().keep_tree(tree.view()).application().context("an application")?;
            goals.push(thunk.strict().context("a goal")?);
        }
    }
    Ok(goals)
}

fn round(home: &Path, inputs: &[Handle], batch_max: Option<u32>, number: u64) -> anyhow::Result<Round> {
    // A node of its own for each: nothing of the last round is in its memory.
    let node: Arc<Node> = Node::start(&options(home, batch_max))?;
    let goals = goals(&node, inputs, number)?;
    let before = node.store().stats().disk_read_bytes;
    let begun = Instant::now();
    let results: Vec<Option<Handle>> = std::thread::scope(|scope| {
        let ask = |&goal: &Handle| {
            let node = &node;
            scope.spawn(move || node.evaluate_blocking(goal))
        };
        let asked: Vec<_> = goals.iter().map(ask).collect();
        asked.into_iter().map(|thread| thread.join().ok().flatten()).collect()
    });
    let wall_s = begun.elapsed().as_secs_f64();
    ensure!(results.iter().all(|result| result.is_some_and(|result| !result.is_failure())), "a failure");
    let read_bytes = (node.store().stats().disk_read_bytes - before) as f64;
    node.shut_down();
    Ok(Round { read_bytes, wall_s })
}

/// Runs the bench.
pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let home = tempfile::tempdir()?;
    let inputs = fill(home.path())?;
    let (mut batched, mut by_arrival) = (Vec::new(), Vec::new());
    for number in 0..ROUNDS as u64 {
        batched.push(round(home.path(), &inputs, None, 2 * number)?);
        by_arrival.push(round(home.path(), &inputs, Some(0), 2 * number + 1)?);
    }
    let mib =
        |rounds: &[Round]| median(rounds.iter().map(|round| round.read_bytes / f64::from(1 << 20)).collect());
    let seconds = |rounds: &[Round]| median(rounds.iter().map(|round| round.wall_s).collect());
    let inputs_mib = (INPUTS * INPUT_BYTES / (1 << 20)) as f64;
    let told = "all inputs once, 192 MiB";
    report.add("batched_read_mib", mib(&batched), "MiB", told, ROUNDS);
    report.add("by_arrival_read_mib", mib(&by_arrival), "MiB", told, ROUNDS);
    report.add(
        "times_less_read",
        mib(&by_arrival) / mib(&batched),
        "×",
        "the same node, in order of arrival",
        ROUNDS,
    );
    report.add("batched_read_over_inputs", mib(&batched) / inputs_mib, "×", told, ROUNDS);
    report.add(
        "times_faster",
        seconds(&by_arrival) / seconds(&batched),
        "×",
        "the same node, in order of arrival",
        ROUNDS,
    );
    Ok(())
}
