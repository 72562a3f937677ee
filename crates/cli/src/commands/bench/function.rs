// SPDX-License-Identifier: Apache-2.0
//! `sinew bench NAME`: how many requests a deployed function answers, and how fast.

use std::time::Duration;

use clap::Args;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::load::{self, Pace, Seen};
use crate::exit::{Code, Stop};
use crate::function_request::FunctionRequest;
use crate::node_api::Node;
use crate::output::Output;
use crate::progress::Progress;
use crate::quantity::{grouped, human_bytes, human_time, parse_duration};

/// The percentiles that are told.
const PERCENTILES: [(&str, f64); 5] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)];
/// Signs of the longest bar.
const BAR: f64 = 40.0;
/// A generator that is busy for so much of the time says little about the node.
const BUSY_MAX: f64 = 0.9;

/// How a function is loaded.
#[derive(Debug, Args)]
pub(super) struct LoadArguments {
    /// Connections, each with one request at a time
    #[arg(short, long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=4096), requires = "name")]
    connections: u64,
    /// For how long
    #[arg(short = 'z', long, value_name = "TIME", default_value = "10s", value_parser = parse_duration, requires = "name")]
    duration: Duration,
    /// Requests a second, planned ahead: latencies count from the plan [default: each connection asks
    /// again at once]
    #[arg(long, value_name = "N", value_parser = parse_rate, requires = "name")]
    rate: Option<f64>,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| (0.001..=10_000_000.0).contains(rate));
    rate.ok_or_else(|| "a rate is a number of requests a second, such as 2000 or 0.5".to_owned())
}

pub(super) async fn run(
    name: &str,
    arguments: &LoadArguments,
    request: &FunctionRequest,
    node: &mut Node,
    output: &Output,
) -> anyhow::Result<()> {
    let (head, body) = request.again(name)?;
    exists(name, node).await?;
    let &LoadArguments { connections, duration, rate } = arguments;
    let pace = Pace { connections: usize::try_from(connections)?, rate, duration };
    let clients = (0..pace.connections).map(|_| node.connection()).collect();
    let progress = Progress::things(output, "ms");
    let all = duration.as_millis() as u64;
    let watch = |elapsed: Duration, _| progress.reach(all.min(elapsed.as_millis() as u64), all);
    let seen = load::run(clients, (head, body), pace, watch).await?;
    drop(progress);
    if output.is_json() {
        output.json(&document(name, pace, &seen))?;
    } else {
        report(&seen, output)?;
    }
    if seen.busy > BUSY_MAX {
        output.say(
            "the load generator was busy nearly all the time: the node can do more than this; \
             run several at once, or from other machines",
        );
    }
    match seen.is_clean() {
        true => Ok(()),
        false => Err(failed(name, &seen).into()),
    }
}

/// Whether there is such a function for us, before it is asked in vain a thousand times.
async fn exists(name: &str, node: &mut Node) -> anyhow::Result<()> {
    // Who may call functions only is not told which there are.
    match node.find_function(name).await {
        Ok(None) => Err(node.no_function(name).await),
        _ => Ok(()),
    }
}

fn failed(name: &str, seen: &Seen) -> Stop {
    let fine: u64 = seen.statuses.iter().filter(|(status, _)| **status < 400).map(|(_, count)| count).sum();
    let (failed, all) = (grouped(seen.sent - fine.min(seen.sent)), grouped(seen.sent));
    let first = seen.failure.as_deref().unwrap_or("no answer came in time");
    Stop::new(Code::Failure, format!("{failed} of {all} requests to {name} failed; the first: {first}"))
        .suggest(format!("`sinew logs {name}` shows what they printed"))
}

fn report(seen: &Seen, output: &Output) -> anyhow::Result<()> {
    let row = |what: &str, value: String| vec![what.to_owned(), value];
    let mut rows = vec![
        row("requests", format!("{} in {}", grouped(seen.sent), human_time(seen.took))),
        row("answers a second", human_rate(seen.per_second())),
        row("answers", counts(seen.statuses.iter())),
    ];
    if !seen.starts.is_empty() {
        rows.push(row("instances", counts(seen.starts.iter())));
    }
    for (what, count) in [("broken connections", seen.broken), ("unanswered", seen.unanswered())] {
        if count > 0 {
            rows.push(row(what, grouped(count)));
        }
    }
    rows.push(row("bodies of answers", human_bytes(seen.bytes)));
    output.table(&["WHAT", "VALUE"], &[], &rows)?;
    if seen.latencies.is_empty() {
        return Ok(());
    }
    output.line("")?;
    let mut heads = vec!["LATENCY"];
    heads.extend(PERCENTILES.iter().map(|(name, _)| *name));
    let of = |what: &str, histogram: &Histogram<u64>| {
        let mut row = vec![what.to_owned()];
        row.extend(PERCENTILES.map(|(_, at)| time(histogram.value_at_percentile(at))));
        row
    };
    let mut rows = vec![of("request to answer", &seen.latencies)];
    if !seen.in_node.is_empty() {
        rows.push(of("of it in the node", &seen.in_node));
    }
    output.table(&heads, &[1, 2, 3, 4, 5], &rows)?;
    output.line("")?;
    output.bytes(picture(&seen.latencies).as_bytes())
}

fn counts<'a, K: std::fmt::Display>(counts: impl Iterator<Item = (K, &'a u64)>) -> String {
    let each: Vec<String> = counts.map(|(what, count)| format!("{what}: {}", grouped(*count))).collect();
    if each.is_empty() { "none".to_owned() } else { each.join(", ") }
}

fn human_rate(per_second: f64) -> String {
    if per_second < 100.0 { format!("{per_second:.1}") } else { grouped(per_second.round() as u64) }
}

fn time(micros: u64) -> String {
    human_time(Duration::from_micros(micros))
}

/// How many requests took how long: a bar for each step of 1, 2, 5, 10 …
fn picture(latencies: &Histogram<u64>) -> String {
    let steps = (0..10).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
    let mut below = 0;
    let bars = steps.map(|step| {
        let from = std::mem::replace(&mut below, step);
        // Both ends count: a bar begins after the one before.
        let count = latencies.count_between(if from == 0 { 0 } else { from + 1 }, step);
        (step, count)
    });
    let bars: Vec<(u64, u64)> = bars.collect();
    let is_some = |bar: &(u64, u64)| bar.1 > 0;
    let (Some(first), Some(last)) = (bars.iter().position(is_some), bars.iter().rposition(is_some)) else {
        return String::new();
    };
    let most = bars.iter().map(|bar| bar.1).max().unwrap_or(1) as f64;
    let line = |&(step, count): &(u64, u64)| {
        let share = count as f64 / latencies.len() as f64 * 100.0;
        let signs = (count as f64 / most * BAR).ceil() as usize;
        let bar = format!("≤ {:>7}  {:<40} {share:5.1} %", time(step), "█".repeat(signs));
        bar + "\n"
    };
    bars[first..=last].iter().map(line).collect()
}

fn document(name: &str, pace: Pace, seen: &Seen) -> Value {
    let percentiles = |histogram: &Histogram<u64>| {
        let each = PERCENTILES.map(|(name, at)| (name.to_owned(), json!(histogram.value_at_percentile(at))));
        Value::from_iter(each)
    };
    let statuses = seen.statuses.iter().map(|(status, count)| (status.to_string(), json!(count)));
    json!({
        "bench": "function",
        "function": name,
        "connections": pace.connections,
        "rate": pace.rate,
        "took_ms": seen.took.as_millis() as u64,
        "requests": seen.sent,
        "answers": seen.answers(),
        "broken": seen.broken,
        "unanswered": seen.unanswered(),
        "per_second": seen.per_second(),
        "statuses": Value::from_iter(statuses),
        "starts": seen.starts,
        "body_bytes": seen.bytes,
        "latency_us": percentiles(&seen.latencies),
        "node_us": percentiles(&seen.in_node),
        "generator_busy": seen.busy,
        "failure": seen.failure,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_picture_has_a_bar_for_each_step() {
        let mut latencies = Histogram::new_with_max(1_000_000, 3).unwrap();
        for (micros, count) in [(90, 10), (150, 40), (201, 1), (900, 49)] {
            latencies.record_n(micros, count).unwrap();
        }
        let drawn = picture(&latencies);
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines.len(), 4, "{drawn}");
        for (line, (label, signs, share)) in lines.iter().zip([
            ("100 µs", 9, "10.0"),
            ("200 µs", 33, "40.0"),
            ("500 µs", 1, "1.0"),
            ("1.00 ms", 40, "49.0"),
        ]) {
            assert!(line.contains(label) && line.contains(share), "{line}");
            assert_eq!(line.matches('█').count(), signs, "{line}");
        }
        assert_eq!(picture(&Histogram::new_with_max(1000, 3).unwrap()), "");
    }

    #[test]
    fn rates_are_positive_and_finite() {
        assert_eq!(parse_rate("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "inf", "NaN", "x", "1e9"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
    }
}
