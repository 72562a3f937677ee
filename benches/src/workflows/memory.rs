// SPDX-License-Identifier: Apache-2.0
//! The most memory that a node and its instances have during a hand-over, beside a producer that hands nothing over (figure 16).
//!
//! A producer makes a list of numbers, and a consumer is given it; for *none*, the producer makes the same list, and the
//! consumer is given its length. Counted is the proportional share of all processes of the node (what several have mapped is
//! shared among them), looked at again and again during the run.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};

use super::runner::{BY_MESSAGES, bare_node};
use crate::figures::{Report, median};
use crate::workflow_node::WorkflowNode;

const ROUNDS: u64 = 5;
const LOOK_EACH: Duration = Duration::from_millis(3);
/// Of a number in a list: its pointer, and itself.
const BYTES_OF_AN_INT: usize = 40;
const PAYLOADS_MIB: [usize; 3] = [64, 128, 256];

/// Who hands the list over, and how: the workflow, and what the manifest says of it.
const WAYS: [(&str, &str); 3] = [("kept", ""), ("handed", ""), ("handed", BY_MESSAGES)];

pub(super) fn run(report: &mut Report, python: &Path) -> anyhow::Result<()> {
    let rounds = report.options.number("rounds", ROUNDS)?;
    let mut worst: Option<(f64, String)> = None;
    for payload in PAYLOADS_MIB {
        for is_read in [false, true] {
            let event = json!({"size": (payload << 20) / BYTES_OF_AN_INT, "read": is_read});
            let peaks = WAYS.map(|way| median_peak(python, way, &event, rounds));
            let [none, mapped, sent] = peaks.map(|peak| {
                peak.unwrap_or_else(|error| {
                    report.failed(&format!("{payload} MiB"), &error);
                    f64::NAN
                })
            });
            let mib = |bytes: f64| bytes / f64::from(1 << 20);
            let meaning = format!(
                "a list of {payload} MiB: {:.0} MiB mapped, {:.0} sent, {:.0} with nothing handed over",
                mib(mapped),
                mib(sent),
                mib(none)
            );
            let read = if is_read { "_read" } else { "" };
            for (figure, value) in [("", mapped), ("_sent", sent)] {
                let figure = format!("peak_memory{read}{figure}_over_none_{payload}m");
                report.add(&figure, value / none, "x", &meaning, rounds as usize);
            }
            if !is_read && worst.as_ref().is_none_or(|(known, _)| mapped / none > *known) {
                worst = Some((mapped / none, meaning));
            }
        }
    }
    if let Some((ratio, meaning)) = worst {
        report.add("peak_memory_over_none", ratio, "x", &format!("the worst: {meaning}"), rounds as usize);
    }
    report.note("without `read` the consumer asks for the list's length only; with it, both add all up");
    Ok(())
}

/// By a node of its own: instances keep memory from run to run, and those of another way would be in it.
fn median_peak(
    python: &Path,
    (workflow, further): (&str, &str),
    event: &Value,
    rounds: u64,
) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let node = bare_node(folder.path(), python, workflow, further)?;
    node.run(workflow, event)?;
    let peaks = (0..rounds).map(|_| peak_of(&node, || node.run(workflow, event)));
    Ok(median(peaks.collect::<anyhow::Result<_>>()?))
}

/// The most memory of the node's processes while it does something.
fn peak_of<T>(node: &WorkflowNode, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<f64> {
    let is_over = AtomicBool::new(false);
    #[expect(
        clippy::disallowed_methods,
        reason = "it looks on while this thread waits, and ends with the scope"
    )]
    let (done, peak) = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut peak = 0;
            while !is_over.load(Ordering::Relaxed) {
                peak = peak.max(node.family().into_iter().map(shared_fairly).sum());
                std::thread::sleep(LOOK_EACH);
            }
            peak
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        (done, looking.join().unwrap_or(0))
    });
    done?;
    ensure!(peak > 0, "nothing is known of the node's memory");
    Ok(peak as f64)
}

/// What a process has, each page divided by how many have it; nothing if it has ended.
fn shared_fairly(process: u32) -> u64 {
    let told = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
    let line = told.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
