// SPDX-License-Identifier: Apache-2.0
//! `sinew gc`: has the node take away what nobody needs.

use std::time::Duration;

use clap::Args;
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use serde_json::{Value, json};

use crate::client::whole;
use crate::node_api::Node;
use crate::output::Output;
use crate::progress::Progress;
use crate::quantity::{grouped, human_bytes, human_time, parse_bytes, parse_duration};

/// What to keep.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sinew gc --dry-run      tells what would go\n  sinew gc                takes it away\n  \
    sinew gc --keep 1h      also what was put or made since yesterday\n  \
    sinew gc --drop-derived      also what was computed and takes little to compute again\n  \
    sinew gc --drop-derived=1MiB --dry-run      tells which of 1 MiB or more that would be\n\n\
    Kept is what a label names (every version of a function has one), and what was put, made or asked for\n\
    within --keep, with all that these name. Dropped is only what an application made that is kept, and that nobody put; it\n\
    is made again when somebody reads it, and `sinew explain` tells how. A node does this by itself if its file says how often: [collection], every_s."
)]
pub(crate) struct Arguments {
    /// Keep what is younger, named or not: 1h at least; a day unless the node's file says otherwise
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    keep: Option<Duration>,
    /// Also drop what is needed and can be computed again, if it has so many bytes (64KiB)
    #[arg(long, value_name = "AT-LEAST-BYTES", num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = parse_least)]
    drop_derived: Option<Least>,
    /// Drop what takes at most so long to compute again for each KiB that it has (100us)
    #[arg(long, value_name = "TIME", value_parser = parse_rate, requires = "drop_derived")]
    drop_rate: Option<u64>,
    /// Only tell what would go
    #[arg(long)]
    dry_run: bool,
    /// Tell of the collection that is under way, also if the node began it by itself, and of the last one
    #[arg(long, conflicts_with_all = ["keep", "drop_derived", "dry_run", "stop"])]
    status: bool,
    /// Have the one that is under way end; nothing is taken away then, unless that was decided already
    #[arg(long, conflicts_with_all = ["keep", "drop_derived", "dry_run"])]
    stop: bool,
}

/// From how many bytes on; `None`: as the node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Least(Option<u64>);

fn parse_least(text: &str) -> Result<Least, String> {
    if text.is_empty() { Ok(Least(None)) } else { parse_bytes(text).map(|bytes| Least(Some(bytes))) }
}

/// Nanoseconds; units from `ns` to `s`, since most rates are far below a second.
fn parse_rate(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|it: char| it.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit: Option<u64> = match unit {
        "ns" => Some(1),
        "us" | "µs" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        _ => None,
    };
    let nanos = number.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    nanos.ok_or_else(|| format!("{text:?} is no time for a KiB: write it like 100us or 2ms"))
}

/// What the node says of collections, in words.
fn status(told: &Value) -> String {
    let time = |value: &Value| human_time(Duration::from_millis(value.as_u64().unwrap_or_default()));
    let by = |it: &Value| if it["begun_by"] == "itself" { "by itself" } else { "because somebody asked" };
    let now = match &told["under_way"] {
        Value::Null => "no collection is under way".to_owned(),
        it => format!("a collection has been under way for {}, {}", time(&it["since_ms"]), by(it)),
    };
    let last = match &told["last"] {
        Value::Null => "none has ended since the node started".to_owned(),
        it => {
            let (ago, took) = (time(&it["ago_ms"]), time(&it["took_ms"]));
            let end = match it["error"].as_str() {
                Some(why) => format!("took nothing: {why}"),
                None => {
                    let number = |field: &str| it["collected"][field].as_u64().unwrap_or_default();
                    let (objects, bytes) = (grouped(number("objects")), human_bytes(number("bytes")));
                    format!("{objects} objects went, {bytes}; {} were dropped", grouped(number("dropped")))
                }
            };
            format!("the last one ended {ago} ago, {}, after {took}: {end}", by(it))
        }
    };
    let every = match told["every_s"].as_u64() {
        Some(every) => format!("the node collects every {}", human_time(Duration::from_secs(every))),
        None => "the node collects only when asked".to_owned(),
    };
    [now, last, every].join("\n")
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    if arguments.status || arguments.stop {
        let request =
            if arguments.stop { Request::delete("/v1/collect") } else { Request::get("/v1/collect") };
        let told = node.json(request, whole(String::new())).await?;
        return match (output.is_json(), arguments.stop) {
            (true, _) => output.json(&told),
            (false, false) => output.line(&status(&told)),
            (false, true) if told["stopping"] == true => {
                output.line("it ends, unless it has decided what goes")
            }
            (false, true) => output.line("no collection is under way"),
        };
    }
    let what = if arguments.dry_run { "looking for what nobody needs" } else { "collecting" };
    let mut progress = Progress::time(output, what);
    let body = json!({
        "kept_s": arguments.keep.map(|keep| keep.as_secs()),
        "dry_run": arguments.dry_run,
        // Else as the node's file says.
        "drop_derived": arguments.drop_derived.map(|_| true),
        "drop_bytes_min": arguments.drop_derived.and_then(|Least(bytes)| bytes),
        "drop_nanos_per_kib": arguments.drop_rate,
    })
    .to_string();
    let request = Request::post("/v1/collect").header(CONTENT_TYPE, "application/json");
    let told = node.json(request, whole(body)).await?;
    progress.end();
    if output.is_json() {
        return output.json(&told);
    }
    let number = |field: &str| told[field].as_u64().unwrap_or_default();
    let counted = |objects: &str, bytes: &str| {
        format!("{} objects, {}", grouped(number(objects)), human_bytes(number(bytes)))
    };
    let kept = counted("kept_objects", "kept_bytes");
    let gone = counted("objects", "bytes");
    let time = |field: &str| human_time(Duration::from_nanos(number(field)));
    let mut lines = if arguments.dry_run {
        vec![format!("would go: {gone}"), format!("would stay: {kept}")]
    } else {
        let (less, relations) = (human_bytes(number("freed_bytes")), grouped(number("relations")));
        vec![
            format!("went: {gone} ({less} less on disk), and {relations} remembered results"),
            format!("stay: {kept}"),
        ]
    };
    if arguments.drop_derived.is_some() || number("dropped") > 0 {
        let what = if arguments.dry_run { "would be dropped" } else { "dropped" };
        let dropped = counted("dropped", "dropped_bytes");
        let (all, one) = (time("dropped_nanos"), time("dropped_nanos_max"));
        lines.push(format!("{what}: {dropped}; to make all of them again takes {all}, one at most {one}"));
    }
    if told["tier"].is_object() {
        lines.extend(super::tier::collected(&told["tier"]));
    }
    output.line(&lines.join("\n"))
}

#[cfg(test)]
mod tests;
