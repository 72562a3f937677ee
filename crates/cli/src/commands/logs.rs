// SPDX-License-Identifier: Apache-2.0
//! `sinew logs`: the last requests to functions, and what they print.

mod shown;

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::calendar::{self, clock};
use crate::exit::{Code, Stop};
use crate::function_api::LogsWanted;
use crate::node_api::Node;
use crate::output::Output;
use crate::quantity::parse_duration;
pub(super) use shown::{Entry, Shown};

/// How often a follower asks for more.
const POLL: Duration = Duration::from_millis(200);
/// And of a node that does not answer.
const PAUSE: Duration = Duration::from_secs(1);
/// Records that are told unless it is said how many, and of a stretch of time.
const LINES_DEFAULT: usize = 20;
const LINES_MAX: u64 = 1000;

/// Which requests.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sinew logs                    the last requests to all functions\n  \
    sinew logs hello -f           those to one, and what it prints, as it prints it\n  \
    sinew logs --failed --since 2h  what went wrong in the last two hours, also before a restart\n  \
    sinew logs hello --grep 'order 17'  those that printed that, or failed with it\n  \
    sinew logs --request-id ID    one request; ID is in X-Request-Id and in problems\n  \
    sinew logs hello -o json      a JSON document a line, with the time and stream of each line printed")]
pub(crate) struct Arguments {
    /// The function, of a workflow with its steps; `workflow.function` for one of those [default: all]
    name: Option<String>,
    /// Only the request with this id
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    /// Go on as requests come, with what those print that run, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Only requests that failed
    #[arg(long)]
    failed: bool,
    /// Only requests that ended within so long, like 90s, 10m, 2h or 7d
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    since: Option<Duration>,
    /// Only requests that printed this, or failed with it
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// Before each line that was printed, when that was, and whether to standard error
    #[arg(short, long)]
    timestamps: bool,
    /// The newest so many [default: 20; 1000 with --since]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=LINES_MAX))]
    lines: Option<u64>,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let name = arguments.name.as_deref();
    let limit = match (arguments.lines, arguments.since) {
        (Some(lines), _) => usize::try_from(lines).unwrap_or(LINES_DEFAULT),
        (None, Some(_)) => LINES_MAX as usize,
        (None, None) => LINES_DEFAULT,
    };
    let wanted = LogsWanted {
        function: name,
        request_id: arguments.request_id.as_deref(),
        since_ms: arguments.since.map_or(0, since_ms),
        failed: arguments.failed,
        text: arguments.grep.as_deref(),
        limit,
        ..LogsWanted::default()
    };
    // What runs has not failed, and may print yet what is looked for. Programs read records.
    let is_for_reading = arguments.follow || !output.is_json();
    let mut shown = Shown::new(is_for_reading && !arguments.failed && arguments.grep.is_none());
    let entries = shown.first(node, &wanted).await?;
    if let Some(name) = name.filter(|_| entries.is_empty()) {
        // A name that is none is an error, and not silence; of a function that was removed there may be something. A
        // workflow's functions have no deployment.
        node.function(name.split('.').next().unwrap_or(name)).await?;
    }
    let told = entries.len();
    show(&entries, arguments, output)?;
    if !arguments.follow {
        note(told, limit, &shown, arguments, output);
        return Ok(());
    }
    let mut is_lost = false;
    loop {
        tokio::time::sleep(if is_lost { PAUSE } else { POLL }).await;
        let entries = match shown.more(node, &wanted).await {
            Ok(entries) => entries,
            // It is started again, maybe: then this goes on where it was.
            Err(error) if is_away(&error) => {
                if !std::mem::replace(&mut is_lost, true) {
                    output.say("the node does not answer; this goes on when it does");
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        if std::mem::take(&mut is_lost) {
            output.say("the node answers again");
        }
        show(&entries, arguments, output)?;
        if shown.is_cut() {
            output.say("more was printed than is shown here: say less, as by a function's name");
        }
    }
}

/// Whether there is nobody to ask, for now.
fn is_away(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Stop>().is_some_and(|stop| stop.code == Code::NotRunning)
}

/// What people may wonder about.
fn note(told: usize, limit: usize, shown: &Shown, arguments: &Arguments, output: &Output) {
    if told == 0 && output.is_watched() {
        output.say(
            "no requests are remembered; a node keeps those that printed something or failed, \
             and the last 10,000 others since it was started",
        );
    } else if shown.is_cut() || (told == limit && arguments.since.is_some() && arguments.lines.is_none()) {
        output.say(&format!(
            "these are the newest {told}; for others, have --since, --failed or --grep say less"
        ));
    }
}

fn show(entries: &[Entry], arguments: &Arguments, output: &Output) -> anyhow::Result<()> {
    for entry in entries {
        match entry {
            Entry::Ended { record, .. } if output.is_json() => output.json(record)?,
            Entry::Running { running, .. } if output.is_json() => {
                output.json(&json!({ "running": running }))?
            }
            entry => output.line(&told(entry, arguments.timestamps))?,
        }
    }
    Ok(())
}

/// The time of day so long ago, in milliseconds since 1970.
fn since_ms(ago: Duration) -> u64 {
    u64::try_from(calendar::now().saturating_sub(ago).as_millis()).unwrap_or(u64::MAX)
}

/// A line for the request, and what it printed and why it failed below.
pub(super) fn told(entry: &Entry, with_times: bool) -> String {
    match entry {
        Entry::Running { running, is_continued } => {
            let lines = below(running, 0, with_times);
            let text = |name: &str| running[name].as_str().unwrap_or("-");
            let us = running["lines"][0]["time_us"].as_u64().unwrap_or(0);
            let (function, version) = (text("function"), running["version"].as_u64().unwrap_or(0));
            let head = format!("{}  {function}@{version}  runs  {}", clock(us), text("request_id"));
            let head = (!is_continued).then_some(head);
            head.into_iter().chain(lines).collect::<Vec<_>>().join("\n")
        }
        Entry::Ended { record, known_lines } => {
            let failure = record["failure"].as_str().unwrap_or("").lines();
            let failure = failure.map(|line| format!("    {}", plain(line)));
            // Of much only the end is kept, and lines have the numbers that they had.
            let left_out =
                record["lines_left_out"].as_u64().and_then(|lines| usize::try_from(lines).ok()).unwrap_or(0);
            let cut = left_out.checked_sub(*known_lines).filter(|cut| *cut > 0);
            let cut = cut.map(|cut| format!("    [{cut} lines before these were not kept]"));
            let lines = below(record, known_lines.saturating_sub(left_out), with_times);
            let lines = cut.into_iter().chain(lines).chain(failure);
            std::iter::once(of(record)).chain(lines).collect::<Vec<_>>().join("\n")
        }
    }
}

/// How a request went.
fn of(record: &Value) -> String {
    let text = |name: &str| record[name].as_str().unwrap_or("-");
    let number = |name: &str| record[name].as_u64().unwrap_or(0);
    let cpu = record["usage"]["cpu_us"].as_u64();
    let cpu = cpu.map_or_else(String::new, |us| format!(", cpu {:.1} ms", us as f64 / 1000.0));
    format!(
        "{}  {}@{}  {}  {}  {:.1} ms{cpu}  {}",
        clock(number("time_ms").saturating_mul(1000)),
        text("function"),
        number("version"),
        number("status"),
        text("start"),
        number("total_us") as f64 / 1000.0,
        text("request_id"),
    )
}

/// What was printed, but for the first lines, each as it stands below its request.
fn below(request: &Value, known: usize, with_times: bool) -> Vec<String> {
    let lines = request["lines"].as_array().map(Vec::as_slice).unwrap_or_default();
    let line = |line: &Value| {
        let text = plain(line["text"].as_str().unwrap_or_default());
        if !with_times {
            return format!("    {text}");
        }
        let mark = if line["stream"] == "err" { "!" } else { "|" };
        format!("    {} {mark} {text}", clock(line["time_us"].as_u64().unwrap_or(0)))
    };
    lines.iter().skip(known).map(line).collect()
}

/// A function's output cannot move the cursor or paint the screen.
pub(super) fn plain(line: &str) -> String {
    line.chars().map(|each| if each.is_control() && each != '\t' { '\u{fffd}' } else { each }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_763_737_200_123_000;

    fn lines(told: &str) -> Vec<&str> {
        told.lines().collect()
    }

    #[test]
    fn a_request_is_a_line_with_its_output_below() {
        let record = json!({
            "time_ms": US / 1000, "function": "hello", "version": 7, "status": 500, "start": "warm",
            "total_us": 12_345, "usage": {"cpu_us": 9_870}, "request_id": "r1", "failure": "ValueError: no",
            "lines": [
                {"time_us": US - 2000, "stream": "out", "text": "one"},
                {"time_us": US - 1000, "stream": "err", "text": "two \u{1b}[2J"},
            ],
        });
        let entry = Entry::Ended { record, known_lines: 0 };
        let whole = told(&entry, false);
        assert_eq!(lines(&whole)[0], "2025-11-21 15:00:00.123Z  hello@7  500  warm  12.3 ms, cpu 9.9 ms  r1");
        assert_eq!(lines(&whole)[1..], ["    one", "    two \u{fffd}[2J", "    ValueError: no"]);
        let timed = told(&entry, true);
        assert_eq!(
            lines(&timed)[1..],
            [
                "    2025-11-21 15:00:00.121Z | one",
                "    2025-11-21 15:00:00.122Z ! two \u{fffd}[2J",
                "    ValueError: no"
            ]
        );
        let Entry::Ended { record, .. } = entry else { return };
        let rest = told(&Entry::Ended { record, known_lines: 1 }, false);
        assert_eq!(
            lines(&rest)[1..],
            ["    two \u{fffd}[2J", "    ValueError: no"],
            "what was not told before"
        );
    }

    #[test]
    fn of_what_was_too_much_the_rest_is_shown_behind_what_was_seen() {
        let lines: Vec<Value> =
            (4..7).map(|at| json!({"time_us": US, "stream": "out", "text": at.to_string()})).collect();
        let told = |known_lines| {
            let record = json!({"time_ms": US / 1000, "lines": lines.clone(), "lines_left_out": 4});
            let told = told(&Entry::Ended { record, known_lines }, false);
            told.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(told(0), ["    [4 lines before these were not kept]", "    4", "    5", "    6"]);
        assert_eq!(told(3), ["    [1 lines before these were not kept]", "    4", "    5", "    6"]);
        assert_eq!(told(5), ["    5", "    6"]);
        assert_eq!(told(7), [""; 0]);
    }

    #[test]
    fn what_runs_is_told_below_one_line_for_as_long_as_nothing_else_comes() {
        let running = json!({
            "request_id": "r1", "function": "hello", "version": 7,
            "lines": [{"time_us": US, "stream": "out", "text": "one"}],
        });
        let first = Entry::Running { running: running.clone(), is_continued: false };
        assert_eq!(told(&first, false), "2025-11-21 15:00:00.123Z  hello@7  runs  r1\n    one");
        let next = Entry::Running { running, is_continued: true };
        assert_eq!(told(&next, false), "    one");
    }
}
