// SPDX-License-Identifier: Apache-2.0
//! One request, and the tree of the calls between functions that it led to.

use std::collections::HashSet;

use serde_json::Value;

use crate::commands::logs::plain;
use crate::usage;

/// Records of one request that are looked at.
pub(super) const RECORDS_MAX: usize = 1000;

/// The request and its calls: each with its function, how it ended, what it ran
/// in, when it began after the first one, and how long it took.
pub(super) fn described(id: &str, records: &[Value]) -> String {
    let sums = usage::sums(records);
    let mut records: Vec<&Value> = records.iter().collect();
    records.sort_by_key(|record| record["begun_us"].as_u64());
    let known: HashSet<&str> = records.iter().filter_map(|record| record["span"].as_str()).collect();
    // Whose caller was forgotten stands at the top.
    let is_root = |record: &&Value| record["parent"].as_str().is_none_or(|parent| !known.contains(parent));
    let begun_us = records.first().map_or(0, |record| number(record, "begun_us"));
    let mut lines = Vec::new();
    for root in records.iter().copied().filter(is_root) {
        draw(root, "", "", &records, &mut lines);
    }
    let width = lines.iter().map(|(drawn, _)| drawn.chars().count()).max().unwrap_or(0);
    let mut text = format!("request {id}\n");
    for (drawn, record) in lines {
        let after_ms = number(record, "begun_us").saturating_sub(begun_us) as f64 / 1000.0;
        let took_ms = number(record, "total_us") as f64 / 1000.0;
        text.push_str(&format!(
            "{drawn:<width$}  {}  {:<9}  +{after_ms:.1} ms  {took_ms:.1} ms",
            number(record, "status"),
            record["start"].as_str().unwrap_or("-"),
        ));
        if let Some(cpu_us) = record["usage"]["cpu_us"].as_u64() {
            text.push_str(&format!("  cpu {:.1} ms", cpu_us as f64 / 1000.0));
        }
        if let Some(why) = record["failure"].as_str().and_then(|why| why.lines().next()) {
            text.push_str("  ");
            text.push_str(&plain(why));
        }
        text.push('\n');
    }
    sums.iter().for_each(|(name, value)| text.push_str(&format!("{name:<9}  {value}\n")));
    text
}

fn number(record: &Value, name: &str) -> u64 {
    record[name].as_u64().unwrap_or(0)
}

/// The lines of a call and of those that it made. The node lets them nest to a
/// depth of its own.
fn draw<'a>(
    record: &'a Value,
    first: &str,
    rest: &str,
    records: &[&'a Value],
    lines: &mut Vec<(String, &'a Value)>,
) {
    let name = format!("{}@{}", record["function"].as_str().unwrap_or("-"), number(record, "version"));
    lines.push((format!("{first}{name}"), record));
    let Some(span) = record["span"].as_str() else { return };
    let made: Vec<&Value> =
        records.iter().copied().filter(|other| other["parent"] == span && other["span"] != span).collect();
    for (at, call) in made.iter().enumerate() {
        let (branch, below) = if at + 1 == made.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        if lines.len() < RECORDS_MAX {
            draw(call, &format!("{rest}{branch}"), &format!("{rest}{below}"), records, lines);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(function: &str, span: &str, parent: Option<&str>, begun_us: u64) -> Value {
        json!({
            "function": function, "version": 2, "status": 200, "start": "warm", "span": span, "parent": parent,
            "begun_us": begun_us, "total_us": 1500,
        })
    }

    #[test]
    fn calls_stand_below_their_callers_in_the_order_in_which_they_began() {
        let mut failed = record("c", "3", Some("1"), 3_000);
        failed["failure"] = json!("ValueError: \u{1b}[2J\nmore");
        let records = [
            record("d", "4", Some("2"), 2_500),
            failed,
            record("b", "2", Some("1"), 2_000),
            record("a", "1", None, 1_000),
        ];
        let expected = "request r1\n\
            a@2        200  warm       +0.0 ms  1.5 ms\n\
            ├─ b@2     200  warm       +1.0 ms  1.5 ms\n\
            │  └─ d@2  200  warm       +1.5 ms  1.5 ms\n\
            └─ c@2     200  warm       +2.0 ms  1.5 ms  ValueError: \u{fffd}[2J\n";
        assert_eq!(described("r1", &records), expected);
    }

    #[test]
    fn what_each_call_used_and_all_of_them_is_told() {
        let mut called = record("b", "2", Some("1"), 2_000);
        called["usage"] = json!({"cpu_us": 1_250, "held_us": 10_000});
        let text = described("r1", &[record("a", "1", None, 1_000), called]);
        assert!(
            text.contains("1.5 ms  cpu 1.2 ms\n") && text.contains("processor  1.25 ms in 2 calls\n"),
            "{text}"
        );
    }

    #[test]
    fn what_lost_its_caller_stands_at_the_top_and_a_lie_ends() {
        let text = described("r1", &[record("a", "1", Some("9"), 0), record("b", "2", None, 1)]);
        assert_eq!(text.lines().count(), 3, "{text}");
        let text = described("r1", &[record("a", "1", Some("1"), 0), record("x", "2", None, 1)]);
        assert_eq!(text.lines().count(), 2, "{text}");
    }
}
