// SPDX-License-Identifier: Apache-2.0
//! `sinew logs`: the last requests to functions, and what they printed.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::node_api::Node;
use crate::output::Output;

/// How often a follower asks for more.
const POLL: Duration = Duration::from_millis(300);
/// Records of one answer of the node.
const PAGE: usize = 1000;

/// Which requests.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sinew logs                    the last requests to all functions\n  \
    sinew logs hello -f           those to one, and what comes\n  \
    sinew logs --request-id ID    one request; ID is in X-Request-Id and in problems\n  \
    sinew logs hello -o json      a JSON document a line")]
pub(crate) struct Arguments {
    /// The function, of a workflow with its steps; `workflow.function` for one of those [default: all]
    name: Option<String>,
    /// Only the request with this id
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    /// Go on as requests come, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// The newest so many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
    lines: u64,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let (name, id) = (arguments.name.as_deref(), arguments.request_id.as_deref());
    if let Some(name) = name {
        // A name that is none is an error, and not silence. A workflow's functions have no deployment.
        node.function(name.split('.').next().unwrap_or(name)).await?;
    }
    let limit = usize::try_from(arguments.lines).unwrap_or(PAGE);
    let (mut records, mut last) = node.calls(name, id, 0, limit).await?;
    if records.is_empty() && !arguments.follow && output.is_watched() {
        output.say("no requests are remembered; a node remembers the last 10,000 since it was started");
    }
    loop {
        for record in &records {
            if output.is_json() {
                output.json(record)?;
            } else {
                output.line(&told(record))?;
            }
        }
        if !arguments.follow {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
        let (more, now) = node.calls(name, id, last, PAGE).await?;
        // A node that was started again counts from the beginning.
        (records, last) = (more, if now < last { 0 } else { now });
    }
}

/// A line for the request, and what it printed and why it failed below.
pub(super) fn told(record: &Value) -> String {
    let text = |name: &str| record[name].as_str().unwrap_or("-");
    let number = |name: &str| record[name].as_u64().unwrap_or(0);
    let cpu = record["usage"]["cpu_us"].as_u64();
    let cpu = cpu.map_or_else(String::new, |us| format!(", cpu {:.1} ms", us as f64 / 1000.0));
    let mut lines = format!(
        "{}  {}@{}  {}  {}  {:.1} ms{cpu}  {}",
        clock(number("time_ms")),
        text("function"),
        number("version"),
        number("status"),
        text("start"),
        number("total_us") as f64 / 1000.0,
        text("request_id"),
    );
    let failure = record["failure"].as_str().unwrap_or("");
    for line in text("log").lines().filter(|_| record["log"].is_string()).chain(failure.lines()) {
        lines.push_str("\n    ");
        lines.push_str(&plain(line));
    }
    lines
}

/// A function's output cannot move the cursor or paint the screen.
pub(super) fn plain(line: &str) -> String {
    line.chars().map(|each| if each.is_control() && each != '\t' { '\u{fffd}' } else { each }).collect()
}

/// The time of day, in UTC.
fn clock(time_ms: u64) -> String {
    let (seconds, millis) = (time_ms / 1000 % 86_400, time_ms % 1000);
    format!("{:02}:{:02}:{:02}.{millis:03}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_is_a_line_with_its_output_below() {
        let record = json!({
            "time_ms": 1_763_737_200_123_u64, "function": "hello", "version": 7, "status": 500, "start": "warm",
            "total_us": 12_345, "usage": {"cpu_us": 9_870}, "request_id": "r1", "log": "one\ntwo \u{1b}[2J\n", "failure": "ValueError: no",
        });
        let told = told(&record);
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines[0], "15:00:00.123Z  hello@7  500  warm  12.3 ms, cpu 9.9 ms  r1");
        assert_eq!(lines[1..], ["    one", "    two \u{fffd}[2J", "    ValueError: no"]);
    }
}
