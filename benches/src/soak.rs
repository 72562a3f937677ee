// SPDX-License-Identifier: Apache-2.0
//! `soak [--seconds=N]`: a node under mixed load for ten minutes, while it is
//! treated badly: a deployment every 5 s, an instance killed every second, the
//! node killed twice and started again. Each answer is held against what was asked.
//!
//! *Wrong* is an answer of 2xx that is not the function's, or one of a status that
//! nobody may get here. *Lost* is a request that gets no answer while the node is
//! up, and a call or callback that was taken with 202 and does not end as promised.
//! A failure that is told (5xx with a reason) is neither; how many there were is
//! told as well. In the end nothing may be left of the node.

mod clients;
mod mischief;
mod world;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::figures::Report;
use world::World;

pub(crate) const OPTIONS: &[&str] = &["seconds"];

const SECONDS: u64 = 600;
const DEPLOY_EVERY: Duration = Duration::from_secs(5);
const KILL_EVERY: Duration = Duration::from_secs(1);
/// Problems that are told one by one.
const TOLD_MAX: usize = 20;

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let duration = Duration::from_secs(report.options.number("seconds", SECONDS)?);
    let world = Arc::new(World::start()?);
    let receiver = clients::Receiver::start(Arc::clone(&world))?;
    world.deploy()?;
    let begun = Instant::now();
    let mut threads = clients::all(&world);
    threads.push(world.every(DEPLOY_EVERY, |world| world.deploy()));
    threads.push(world.every(KILL_EVERY, mischief::kill_an_instance));
    for part in 1..=2 {
        while begun.elapsed() < duration * part / 3 {
            std::thread::sleep(Duration::from_millis(50));
        }
        world.kill_and_restart()?;
    }
    while begun.elapsed() < duration {
        std::thread::sleep(Duration::from_millis(50));
    }
    world.is_over.store(true, Ordering::Release);
    for thread in threads {
        thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))?;
    }
    receiver.wait_for_the_rest();
    let (memory, descriptors) = world.held()?;
    let left = world.stop()?;
    let counts = world.counts();
    for problem in counts.problems.iter().take(TOLD_MAX) {
        report.note(problem.clone());
    }
    let wrong = counts.wrong + counts.lost + left.len() as u64;
    left.iter().for_each(|what| report.note(format!("left behind: {what}")));
    let n = counts.answered as usize;
    report.add("wrong_or_lost", wrong as f64, "requests", "", n);
    report.add("answered", counts.answered as f64, "requests", "", n);
    report.add("failures_told", counts.failed as f64, "requests", "5xx with a reason", n);
    report.add("deployments", counts.deployed as f64, "", "", n);
    report.add("instances_killed", counts.killed as f64, "", "", n);
    report.add("node_memory_mib", memory as f64 / f64::from(1 << 20), "MiB", "at the end, without load", 1);
    report.add("node_descriptors", descriptors as f64, "", "at the end, without load", 1);
    report.note(format!("{} s of load; the node was killed twice", duration.as_secs()));
    Ok(())
}
