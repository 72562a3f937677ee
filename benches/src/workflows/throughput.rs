// SPDX-License-Identifier: Apache-2.0
//! Runs of the prediction workflow: as many a second as more and more clients get, and at a fixed rate, with how long they
//! took and how many instances there were (figure 12). With values mapped, and with values sent.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::runner::SENT;
use crate::figures::{Report, median};
use crate::workflow_node::WorkflowNode;

const WORKFLOW: &str = "prediction";
/// A quarter of what `workflows` takes, so that there are many runs.
const SIZE: usize = 1_750;
const WIDTH: usize = 16;
const CLIENTS: [usize; 4] = [1, 2, 4, 8];
const SECONDS: u64 = 10;
/// With more clients it is saturated once it gets no better by as much.
const BETTER: f64 = 1.05;

/// What some time brought.
struct Window {
    took_ms: Vec<f64>,
    instances: usize,
    seconds: f64,
}

impl Window {
    fn runs_per_s(&self) -> f64 {
        self.took_ms.len() as f64 / self.seconds
    }

    fn percentile(&self, part: f64) -> f64 {
        let mut sorted = self.took_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let index = (part * (sorted.len() as f64 - 1.0)).round() as usize;
        sorted.get(index).copied().unwrap_or(f64::NAN)
    }
}

pub(super) fn run(report: &mut Report, node: &WorkflowNode) -> anyhow::Result<()> {
    let event = json!({"size": SIZE, "width": WIDTH});
    let seconds = Duration::from_secs(report.options.number("seconds", SECONDS)?);
    let mut slowest = f64::INFINITY;
    for way in ["", SENT] {
        let name = format!("{WORKFLOW}{way}");
        node.run(&name, &event)?;
        let mut best: Option<(usize, Window)> = None;
        for clients in CLIENTS {
            let window = side_by_side(node, clients, |_| saturating(node, &name, &event, seconds))?;
            let rate = window.runs_per_s();
            if best.as_ref().is_some_and(|(_, known)| rate < known.runs_per_s() * BETTER) {
                break;
            }
            best = Some((clients, window));
        }
        if let Some((clients, window)) = best {
            slowest = slowest.min(window.runs_per_s());
            tell(
                report,
                &format!("saturated{}", way.replace('-', "_")),
                &window,
                &format!("{clients} clients"),
            );
        }
    }
    // Below what either can do, if nobody says how many a second.
    let otherwise = (slowest * 0.7 * 60.0) as u64;
    let a_minute = report.options.number("rate", otherwise)?.max(1);
    let between = Duration::from_secs(60) / u32::try_from(a_minute)?;
    for way in ["", SENT] {
        let name = format!("{WORKFLOW}{way}");
        let runs = (seconds.as_nanos() / between.as_nanos()).max(1) as usize;
        let begun = Instant::now();
        let at = |number: usize| begun + between * number as u32;
        let window = side_by_side(node, runs, |number| one_at(node, &name, &event, at(number)))?;
        let meaning = format!("{a_minute} runs a minute begin, whatever became of others");
        tell(report, &format!("fixed_rate{}", way.replace('-', "_")), &window, &meaning);
    }
    Ok(())
}

fn tell(report: &mut Report, figure: &str, window: &Window, meaning: &str) {
    let n = window.took_ms.len();
    let times = [0.5, 0.9, 0.99].map(|part| window.percentile(part));
    let meaning =
        format!("{meaning}: {:.0}, {:.0} and {:.0} ms of 50, 90 and 99 %", times[0], times[1], times[2]);
    report.add(&format!("{figure}_runs_per_s"), window.runs_per_s(), "1/s", &meaning, n);
    report.add(&format!("{figure}_p50_ms"), median(window.took_ms.clone()), "ms", &meaning, n);
    report.add(&format!("{figure}_p99_ms"), times[2], "ms", &meaning, n);
    report.add(
        &format!("{figure}_processes"),
        window.instances as f64,
        "",
        "the node's processes at most",
        n,
    );
}

/// Some clients at once, each on a thread of its own; meanwhile the node's processes are counted.
fn side_by_side(
    node: &WorkflowNode,
    clients: usize,
    client: impl Fn(usize) -> anyhow::Result<Vec<f64>> + Sync,
) -> anyhow::Result<Window> {
    let begun = Instant::now();
    #[expect(clippy::disallowed_methods, reason = "clients are threads that end with the scope")]
    let (told, instances) = std::thread::scope(|scope| {
        let client = &client;
        let clients: Vec<_> = (0..clients).map(|number| scope.spawn(move || client(number))).collect();
        let mut instances = 0;
        while clients.iter().any(|client| !client.is_finished()) {
            instances = instances.max(node.family().len());
            std::thread::sleep(Duration::from_millis(50));
        }
        (clients.into_iter().map(|client| client.join()).collect::<Vec<_>>(), instances)
    });
    let mut took_ms = Vec::new();
    for client in told {
        took_ms.extend(client.map_err(|_| anyhow::anyhow!("a client panicked"))??);
    }
    Ok(Window { took_ms, instances, seconds: begun.elapsed().as_secs_f64() })
}

/// One run after the other, for so long.
fn saturating(node: &WorkflowNode, name: &str, event: &Value, seconds: Duration) -> anyhow::Result<Vec<f64>> {
    let begun = Instant::now();
    let mut took = Vec::new();
    while begun.elapsed() < seconds {
        took.push(node.run(name, event)?.0 / 1e6);
    }
    Ok(took)
}

/// One run at that time; its time counts from then on.
fn one_at(node: &WorkflowNode, name: &str, event: &Value, at: Instant) -> anyhow::Result<Vec<f64>> {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
    node.run(name, event)?;
    Ok(vec![at.elapsed().as_secs_f64() * 1e3])
}
