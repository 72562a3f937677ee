// SPDX-License-Identifier: Apache-2.0
//! The most memory that a node and its instances have during a hand-over, beside a producer that hands nothing over (figure 16).
//!
//! A producer makes a list of numbers, and a consumer is given it; for *none*, the producer makes the same list, and the
//! consumer is given its length. Counted is the proportional share of all processes of the node (what several have mapped is
//! shared among them), looked at again and again during the run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use super::runner::SENT;
use crate::figures::{Report, median};
use crate::workflow_node::WorkflowNode;

const ROUNDS: u64 = 5;
const LOOK_EACH: Duration = Duration::from_millis(3);
/// Of a number in a list: its pointer, and itself.
const BYTES_OF_AN_INT: usize = 40;
const PAYLOADS_MIB: [usize; 3] = [64, 128, 256];

pub(super) fn run(report: &mut Report, node: &WorkflowNode) -> anyhow::Result<()> {
    let rounds = report.options.number("rounds", ROUNDS)?;
    let mut worst: Option<(f64, String)> = None;
    for payload in PAYLOADS_MIB {
        for is_read in [false, true] {
            let event = json!({"size": (payload << 20) / BYTES_OF_AN_INT, "read": is_read});
            let mut peaks = [Vec::new(), Vec::new(), Vec::new()];
            for round in 0..=rounds {
                for (workflow, all) in ["kept", "handed", &format!("handed{SENT}")].iter().zip(&mut peaks) {
                    let peak = peak_of(node, || node.run(workflow, &event))?;
                    if round > 0 {
                        all.push(peak);
                    }
                }
            }
            let [none, mapped, sent] = peaks.map(median);
            let read = if is_read { "_read" } else { "" };
            let mib = |bytes: f64| bytes / f64::from(1 << 20);
            let meaning = format!(
                "a list of {payload} MiB: {:.0} MiB mapped, {:.0} sent, {:.0} with nothing handed over",
                mib(mapped),
                mib(sent),
                mib(none)
            );
            let mut add =
                |figure: String, value: f64| report.add(&figure, value, "x", &meaning, rounds as usize);
            add(format!("peak_memory{read}_over_none_{payload}m"), mapped / none);
            add(format!("peak_memory{read}_sent_over_none_{payload}m"), sent / none);
            if !is_read && worst.as_ref().is_none_or(|(known, _)| mapped / none > *known) {
                worst = Some((mapped / none, meaning.clone()));
            }
        }
    }
    if let Some((ratio, meaning)) = worst {
        report.add("peak_memory_over_none", ratio, "x", &format!("the worst: {meaning}"), rounds as usize);
    }
    report.note("without `read` the consumer asks for the list's length only; with it, it adds all up");
    Ok(())
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
