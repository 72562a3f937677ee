// SPDX-License-Identifier: Apache-2.0
//! `sinew describe`: one function, its settings, its versions, its numbers; or
//! one request, with the calls between functions that it led to.

mod request;

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::calendar::date;
use crate::exit::{Code, Stop};
use crate::node_api::Node;
use crate::output::Output;
use crate::quantity::{grouped, human_bytes, human_time};
use crate::usage::{currency, money};

/// Versions that are shown to people; `-o json` has all.
const VERSIONS_SHOWN_MAX: usize = 10;

/// Which function, or which request.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sinew describe hello            what it is, its versions, its numbers\n  \
    sinew describe --request-id ID  one request, and the calls between functions that it led to"
)]
pub(crate) struct Arguments {
    /// The function
    #[arg(required_unless_present = "request_id")]
    name: Option<String>,
    /// A request instead; ID is in X-Request-Id and in problems
    #[arg(long, value_name = "ID", conflicts_with = "name")]
    request_id: Option<String>,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    if let Some(id) = &arguments.request_id {
        return describe_request(id, node, output).await;
    }
    let function = node.function(arguments.name.as_deref().unwrap_or_default()).await?;
    if output.is_json() {
        return output.json(&function);
    }
    output.bytes(described(&function).as_bytes())
}

async fn describe_request(id: &str, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let records = node.calls(Some(id), request::RECORDS_MAX).await?;
    if records.is_empty() {
        let stop = Stop::new(Code::NotFound, format!("no request {id:?} is remembered"));
        let why = "a node keeps those that printed something or failed, and the last 10,000 others since it was started; `sinew logs` lists them";
        return Err(stop.suggest(why).into());
    }
    if output.is_json() {
        return output.json(&json!({ "request_id": id, "calls": records }));
    }
    output.bytes(request::described(id, &records).as_bytes())
}

/// One fact a line, with the names in one column.
fn described(function: &Value) -> String {
    let mut lines: Vec<(String, String)> = Vec::new();
    for name in ["name", "version", "runtime", "url", "deployment"] {
        push(&mut lines, name, &function[name]);
    }
    if let Some(bytes) = function["limits"]["memory_bytes"].as_u64() {
        lines.push(("memory".to_owned(), human_bytes(bytes)));
    }
    for group in ["settings", "serving"] {
        for (name, value) in function[group].as_object().into_iter().flatten() {
            // The runtime is said above, routes below.
            if name != "runtime" && !name.starts_with("route.") {
                push(&mut lines, name, value);
            }
        }
    }
    for route in function["routes"].as_array().into_iter().flatten() {
        push(&mut lines, "route", route);
    }
    for (name, member) in [("requests", "requests"), ("failures", "failures"), ("cold starts", "cold_starts")]
    {
        push(&mut lines, name, &function[member]);
    }
    usage_lines(&mut lines, &function["usage"]);
    let instances = &function["instances"];
    if let (Some(idle), Some(busy)) = (instances["idle"].as_u64(), instances["busy"].as_u64()) {
        let starting = match instances["starting"].as_u64() {
            Some(starting) if starting > 0 => format!(", {starting} starting"),
            _ => String::new(),
        };
        lines.push(("instances".to_owned(), format!("{idle} idle, {busy} busy{starting}")));
    }
    for (alias, versions) in function["aliases"].as_object().into_iter().flatten() {
        lines.push((format!("alias {alias}"), super::alias::told(versions)));
    }
    let versions: Vec<&Value> = function["versions"].as_array().into_iter().flatten().collect();
    for version in versions.iter().take(VERSIONS_SHOWN_MAX) {
        let handle = version["deployment"].as_str().unwrap_or("-");
        let number = version["version"].as_u64().map_or("-".to_owned(), |number| number.to_string());
        let mut told = handle.to_owned();
        let live = function["aliases"]["live"].as_array().into_iter().flatten();
        let mut shares = live.filter(|share| share["version"] == version["version"]);
        match shares.next().and_then(|share| share["percent"].as_u64()) {
            Some(100) => told += "  serves",
            Some(percent) => told += &format!("  serves {percent} %"),
            // Older nodes have no aliases.
            None if function["aliases"].is_null() && version["version"] == function["version"] => {
                told += "  serves";
            }
            None => {}
        }
        if let (Some(requests), Some(failures)) = (version["requests"].as_u64(), version["failures"].as_u64())
            && requests > 0
        {
            told += &format!("  {} requests, {} failures", grouped(requests), grouped(failures));
        }
        if let Some(at_ms) = version["deployed_ms"].as_u64() {
            told += &format!("  {}", date(at_ms / 1000));
        }
        if let Some(note) = version["note"].as_str() {
            told += &format!("  {}", super::logs::plain(note));
        }
        lines.push((format!("version {number}"), told));
    }
    if let Some(more) = versions.len().checked_sub(VERSIONS_SHOWN_MAX).filter(|&more| more > 0) {
        lines.push((String::new(), format!("and {more} older ones")));
    }
    let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    lines.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect()
}

/// What its requests used since the node started.
fn usage_lines(lines: &mut Vec<(String, String)>, usage: &Value) {
    let seconds =
        |member: &str| usage[member].as_f64().and_then(|time| Duration::try_from_secs_f64(time).ok());
    let mut push = |name: &str, text: String| lines.push((name.to_owned(), text));
    if let Some(cpu) = seconds("cpu_s").filter(|cpu| !cpu.is_zero()) {
        push("processor", human_time(cpu));
    }
    if let Some(between) = seconds("cpu_between_s").filter(|between| !between.is_zero()) {
        push("between calls", format!("{} of the processor", human_time(between)));
    }
    if let Some(held) = seconds("held_s").filter(|held| !held.is_zero()) {
        push("held", human_time(held));
    }
    if let Some(peak) = usage["memory_peak_bytes"].as_u64().filter(|peak| *peak > 0) {
        push("memory peak", human_bytes(peak));
    }
    if let (Some(received), Some(sent)) = (usage["received_bytes"].as_u64(), usage["sent_bytes"].as_u64()) {
        push("bodies", format!("{} received, {} sent", human_bytes(received), human_bytes(sent)));
    }
    if let Some(price) = usage["price"].as_f64() {
        push("price", money(price, currency(usage)));
    }
}

fn push(lines: &mut Vec<(String, String)>, name: &str, value: &Value) {
    let text = match value {
        Value::Null => return,
        Value::String(text) => text.escape_debug().to_string().replace("\\'", "'").replace("\\\"", "\""),
        Value::Number(number) => number.as_u64().map_or(number.to_string(), grouped),
        other => other.to_string(),
    };
    lines.push((name.to_owned(), text));
}

#[cfg(test)]
mod tests;
