// SPDX-License-Identifier: Apache-2.0
//! A run, as people look at it: when each function and each step ran, as bars
//! over the time of the run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::output::Output;
use crate::quantity::{human_bytes, human_time};

/// Characters of a bar.
const WIDTH: u64 = 40;
/// Lines of a step's failure.
const FAILURE_LINES: usize = 12;

/// What it is, and how it ended.
pub(super) fn heading(run: &Value, output: &Output) -> anyhow::Result<()> {
    let text = |name: &str| run[name].as_str().unwrap_or("-").to_owned();
    output.line(&format!("{}  {}", text("id"), text("workflow")))?;
    output.line(&format!("state     {}", text("state")))?;
    if let Some(version) = run["version"].as_u64() {
        output.line(&format!("version   {version}"))?;
    }
    if let Some(took) = time(run, "took_us") {
        output.line(&format!("took      {}", human_time(took)))?;
    }
    if let Some(steps) = run["steps"].as_object() {
        let number = |name: &str| steps.get(name).and_then(Value::as_u64).unwrap_or(0);
        let mut parts = vec![format!("{} of {} done", number("done"), number("all"))];
        for name in ["running", "keeping", "failed", "remembered"] {
            if number(name) > 0 {
                parts.push(format!("{} {name}", number(name)));
            }
        }
        output.line(&format!("steps     {}", parts.join(", ")))?;
    }
    match run["failure"].as_str() {
        Some(failure) => {
            output.line(&format!("failure   {}", failure.trim_end().replace('\n', "\n          ")))
        }
        None => Ok(()),
    }
}

fn time(value: &Value, name: &str) -> Option<Duration> {
    value[name].as_u64().map(Duration::from_micros)
}

/// Since when something is under way, or when it was, as a part of the whole.
fn bar(from: u64, to: u64, whole: u64) -> String {
    let whole = whole.max(1);
    let at = |us: u64| us.min(whole) * WIDTH / whole;
    let (from, to) = (at(from).min(WIDTH - 1), at(to));
    let len = (to.saturating_sub(from)).max(1);
    let blank = |count: u64| "·".repeat(count as usize);
    format!("{}{}{}", blank(from), "█".repeat(len as usize), blank(WIDTH.saturating_sub(from + len)))
}

fn whole(run: &Value) -> u64 {
    run["took_us"].as_u64().unwrap_or(0)
}

/// From the beginning of the first step of each function to the end of its last one.
fn spans(run: &Value) -> BTreeMap<&str, (u64, u64)> {
    let mut spans: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for step in run["graph"].as_array().into_iter().flatten() {
        let (Some(name), Some(begun)) = (step["function"].as_str(), step["begun_us"].as_u64()) else {
            continue;
        };
        let ended = step["ended_us"].as_u64().unwrap_or_else(|| whole(run));
        let span = spans.entry(name).or_insert((begun, ended));
        *span = (span.0.min(begun), span.1.max(ended));
    }
    spans
}

/// What the functions took.
pub(super) fn functions(run: &Value, output: &Output) -> anyhow::Result<()> {
    let Some(functions) = run["functions"].as_array().filter(|functions| !functions.is_empty()) else {
        return Ok(());
    };
    let spans = spans(run);
    let row = |function: &Value| {
        let name = function["function"].as_str().unwrap_or("-");
        let number = |name: &str| function[name].as_u64().unwrap_or(0);
        let ran = time(function, "ran_us").unwrap_or_default();
        let ended = number("done") + number("keeping");
        let times = ended + number("failed") - number("remembered").min(ended);
        let each = ran.checked_div(u32::try_from(times).unwrap_or(u32::MAX)).unwrap_or_default();
        let picture = spans.get(name).map(|(from, to)| bar(*from, *to, whole(run))).unwrap_or_default();
        vec![
            name.to_owned(),
            format!("{}/{}", number("done"), number("all")),
            number("failed").to_string(),
            shown(function, "transfer_in_us"),
            human_time(ran),
            shown(function, "transfer_out_us"),
            human_time(each),
            picture,
        ]
    };
    let rows: Vec<_> = functions.iter().map(row).collect();
    output.line("")?;
    let heads = ["FUNCTION", "DONE", "FAILED", "IN", "RAN", "OUT", "EACH", "WHEN"];
    output.table(&heads, &[1, 2, 3, 4, 5, 6], &rows)?;
    pickled(functions, output)
}

/// Of which types objects of results could not be mapped.
fn pickled(functions: &[Value], output: &Output) -> anyhow::Result<()> {
    let one = |function: &Value, told: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        vec![text(&function["function"]), text(&told["type"]), told["count"].to_string()]
    };
    let types = |function| types_of(function).iter().map(move |told| one(function, told));
    let rows: Vec<_> = functions.iter().flat_map(types).collect();
    if rows.is_empty() {
        return Ok(());
    }
    output.line("\npickled, for objects of these types cannot be mapped:")?;
    output.table(&["FUNCTION", "TYPE", "OBJECTS"], &[2], &rows)
}

fn types_of(told: &Value) -> &[Value] {
    told["pickled"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A time, if it is known.
fn shown(told: &Value, name: &str) -> String {
    time(told, name).map_or_else(|| "-".to_owned(), human_time)
}

/// How long a result is, and whether others have it in memory where it was made.
fn result(step: &Value) -> String {
    if step["is_given"] == true {
        return "given away".to_owned();
    }
    match (step["result_bytes"].as_u64(), step["is_mapped"] == true) {
        (None, _) => "-".to_owned(),
        (Some(bytes), false) => human_bytes(bytes),
        (Some(bytes), true) => format!("{} mapped", human_bytes(bytes)),
    }
}

/// Each step.
pub(super) fn steps(run: &Value, output: &Output) -> anyhow::Result<()> {
    let Some(steps) = run["graph"].as_array() else { return Ok(()) };
    let row = |step: &Value| {
        let number = |name: &str| step[name].as_u64();
        let needs = step["needs"].as_array().map_or(0, Vec::len);
        let ended = number("ended_us").unwrap_or_else(|| whole(run));
        let picture = number("begun_us").map(|begun| bar(begun, ended, whole(run))).unwrap_or_default();
        vec![
            step["step"].to_string(),
            step["function"].as_str().unwrap_or("-").to_owned(),
            step["state"].as_str().unwrap_or("-").to_owned(),
            needs.to_string(),
            number("attempts").unwrap_or(0).to_string(),
            shown(step, "waited_us"),
            shown(step, "queued_us"),
            shown(step, "transfer_in_us"),
            shown(step, "ran_us"),
            shown(step, "transfer_out_us"),
            result(step),
            picture,
        ]
    };
    let rows: Vec<_> = steps.iter().map(row).collect();
    output.line("")?;
    let heads = [
        "STEP", "FUNCTION", "STATE", "NEEDS", "TRIES", "WAITED", "QUEUED", "IN", "RAN", "OUT", "RESULT",
        "WHEN",
    ];
    output.table(&heads, &[0, 3, 4, 5, 6, 7, 8, 9, 10], &rows)?;
    for step in steps {
        let Some(failure) = step["failure"].as_str() else { continue };
        output.line(&format!("\nstep {}, {}:", step["step"], step["function"].as_str().unwrap_or("-")))?;
        for line in failure.lines().take(FAILURE_LINES) {
            output.line(&format!("  {line}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_lie_where_the_time_was() {
        assert_eq!(bar(0, 100, 100), "█".repeat(40));
        assert_eq!(bar(50, 100, 100), format!("{}{}", "·".repeat(20), "█".repeat(20)));
        // However short, and however late.
        assert_eq!(bar(0, 0, 100), format!("█{}", "·".repeat(39)));
        assert_eq!(bar(100, 100, 100), format!("{}█", "·".repeat(39)));
        assert_eq!(bar(7, 3, 0).chars().count(), 40);
        for (from, to) in [(0, 1), (99, 100), (30, 31), (100, 200), (5, 2)] {
            assert_eq!(bar(from, to, 100).chars().count(), 40, "{from} {to}");
        }
    }

    #[test]
    fn a_function_spans_all_of_its_steps() {
        let run = serde_json::json!({"took_us": 900, "graph": [
            {"function": "main.a", "begun_us": 10, "ended_us": 20},
            {"function": "main.a", "begun_us": 5, "ended_us": 15},
            {"function": "main.b", "begun_us": 30},
            {"function": "main.c"},
        ]});
        let spans = spans(&run);
        assert_eq!((spans["main.a"], spans["main.b"], spans.len()), ((5, 20), (30, 900), 2));
    }
}
