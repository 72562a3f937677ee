// SPDX-License-Identifier: Apache-2.0
//! Runs of the prediction workflow: as many a second as more and more clients get, and at a fixed rate, with how long they
//! took and how many instances there were (figure 12). With values mapped, and with values sent.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::runner::{SENT, node};
use crate::figures::{Report, median};
use crate::workflow_node::WorkflowNode;

const WORKFLOW: &str = "prediction";
/// A quarter of what `workflows` takes, so that there are many runs.
const SIZE: usize = 1_750;
const WIDTH: usize = 16;
/// More than one.
const CLIENTS: [usize; 3] = [2, 4, 8];
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

/// Each way has a node of its own each time: instances that another one left would be counted.
pub(super) fn run(report: &mut Report, python: &Path) -> anyhow::Result<()> {
    let event = json!({"size": SIZE, "width": WIDTH});
    let seconds = Duration::from_secs(report.options.number("seconds", SECONDS)?);
    let mut slowest = f64::INFINITY;
    for way in ["", SENT] {
        let (clients, window) = with_node(python, way, &event, |node, name| {
            saturated(node, &|| saturating(node, name, &event, seconds))
        })?;
        slowest = slowest.min(window.runs_per_s());
        tell(report, &format!("saturated{}", way.replace('-', "_")), &window, &format!("{clients} clients"));
    }
    // Below what either can do, if nobody says how many a second.
    let a_minute = report.options.number("rate", (slowest * 0.7 * 60.0) as u64)?.max(1);
    let between = Duration::from_secs(60) / u32::try_from(a_minute)?;
    let runs = (seconds.as_nanos() / between.as_nanos()).max(1) as usize;
    for way in ["", SENT] {
        let window = with_node(python, way, &event, |node, name| {
            let begun = Instant::now();
            let client = |number: usize| one_at(node, name, &event, begun + between * number as u32);
            side_by_side(node, runs, client)
        })?;
        let meaning = format!("{a_minute} runs a minute begin, whatever became of others");
        tell(report, &format!("fixed_rate{}", way.replace('-', "_")), &window, &meaning);
    }
    Ok(())
}

/// Does something with a node that has made one run, and the workflow's name.
fn with_node<T>(
    python: &Path,
    way: &str,
    event: &Value,
    work: impl FnOnce(&WorkflowNode, &str) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let folder = tempfile::tempdir()?;
    let node = node(folder.path(), python)?;
    let name = format!("{WORKFLOW}{way}");
    node.run(&name, event)?;
    work(&node, &name)
}

/// The number of clients with which it did best, and what they got.
fn saturated(
    node: &WorkflowNode,
    client: &(dyn Fn() -> anyhow::Result<Vec<f64>> + Sync),
) -> anyhow::Result<(usize, Window)> {
    let mut best = (1, side_by_side(node, 1, |_| client())?);
    for clients in CLIENTS {
        let window = side_by_side(node, clients, |_| client())?;
        if window.runs_per_s() < best.1.runs_per_s() * BETTER {
            break;
        }
        best = (clients, window);
    }
    Ok(best)
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
