// SPDX-License-Identifier: Apache-2.0
//! Where the time of a run goes, beside one that has all of it in one step, and hands nothing over (figure 15).
//!
//! Workflows have the width 1, so that hardly any steps run side by side and none waits for a processor: what is left of
//! the time in which a step runs, without what the same functions take in that one step, is handing values over; and what is
//! left of the run's time, without that in which a step runs, is what the node and its hops take.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::runner::SENT;
use crate::figures::{Report, median};
use crate::workflow_node::WorkflowNode;

const ROUNDS: u64 = 9;
const WARMING: u64 = 2;

/// Of one run, in nanoseconds.
struct Factors {
    wall: f64,
    /// In which at least one step ran.
    ran: f64,
    /// What the same took in one step.
    computed: f64,
}

pub(super) fn run(report: &mut Report, node: &WorkflowNode) -> anyhow::Result<()> {
    let rounds = report.options.number("rounds", ROUNDS)?;
    for job in super::chosen(report)? {
        let event = json!({"size": job.size, "width": 1, "workflow": job.name});
        let mut of_ways = [Vec::new(), Vec::new()];
        for round in 0..rounds + WARMING {
            // Nothing of it is made where it could be handed over, which takes longer.
            let alone = node.run_known(&format!("alone{SENT}"), &event)?;
            let computed = busy_us(&node.document(&alone.id)?)? * 1e3;
            for (way, all) in ["", SENT].iter().zip(&mut of_ways) {
                let run = node.run_known(&format!("{}{way}", job.name), &event)?;
                ensure!(run.result == alone.result, "{}: the node says {}", job.name, run.result);
                let ran = busy_us(&node.document(&run.id)?)? * 1e3;
                let factors = Factors { wall: run.wall_ns, ran, computed };
                if round >= WARMING {
                    all.push(factors);
                }
            }
        }
        for (way, all) in ["", "_sent"].iter().zip(&of_ways) {
            tell(report, &format!("factors_{}{way}", job.name), all);
        }
    }
    report.note(
        "width 1. over_local: the run / all of it in one step; compute: that step; transfer: the time in which a step ran, \
         less compute, which includes the first touch of what was handed over; hops: the rest of the run",
    );
    Ok(())
}

fn tell(report: &mut Report, figure: &str, all: &[Factors]) {
    let of = |factor: fn(&Factors) -> f64| median(all.iter().map(factor).collect());
    let [compute, transfer, hops] =
        [of(|one| one.computed), of(|one| one.ran - one.computed), of(|one| one.wall - one.ran)];
    let ms = |ns: f64| ns / 1e6;
    let meaning = format!(
        "{:.1} ms: compute {:.1}, transfer {:.1}, hops {:.1}",
        ms(of(|one| one.wall)),
        ms(compute),
        ms(transfer),
        ms(hops)
    );
    report.add(&format!("{figure}_over_local"), of(|one| one.wall / one.computed), "x", &meaning, all.len());
    report.add(
        &format!("{figure}_transfer_ms"),
        ms(transfer),
        "ms",
        "handing over and first touch",
        all.len(),
    );
    report.add(&format!("{figure}_hops_ms"), ms(hops), "ms", "no step runs", all.len());
}

/// For how long a step of the run was under way, in microseconds.
fn busy_us(document: &Value) -> anyhow::Result<f64> {
    let mut intervals = Vec::new();
    for step in document["graph"].as_array().context("the run has no steps")? {
        let time = |name: &str| step[name].as_f64().with_context(|| format!("{step} lacks {name}"));
        intervals.push((time("begun_us")?, time("ended_us")?));
    }
    intervals.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut busy, mut until) = (0.0, 0.0_f64);
    for (begun, ended) in intervals {
        busy += (ended - begun.max(until)).max(0.0);
        until = until.max(ended);
    }
    Ok(busy)
}

#[cfg(test)]
mod tests;
