// SPDX-License-Identifier: Apache-2.0
//! `sinew explain`: what a handle is, where it comes from, what it took.

use std::time::Duration;

use clap::Args;
use objects::Handle;
use serde_json::Value;

use super::eval::compile;
use crate::exit::{Code, Stop};
use crate::node_api::{Node, is_label};
use crate::output::Output;
use crate::progress::Progress;
use crate::quantity::{exact, grouped, human_bytes, human_time};
use crate::upload::Uplink;

/// Steps and makers that the story tells; the JSON has all that the node sends.
const STEPS_TOLD_MAX: usize = 40;

/// What to explain.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A handle, the name of a label, or an expression
    #[arg(value_name = "HANDLE|LABEL|EXPR")]
    object: String,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let handle = find(&arguments.object, node, output).await?;
    let story = node.explain(handle).await?;
    if output.is_json() {
        return output.json(&story);
    }
    output.bytes(tell(&story).as_bytes())
}

async fn find(text: &str, node: &mut Node, output: &Output) -> anyhow::Result<Handle> {
    if text.parse::<Handle>().is_ok() {
        return node.resolve(text).await;
    }
    if is_label(text) {
        return match node.label(text).await {
            Err(error) if error.downcast_ref::<Stop>().is_some_and(|stop| stop.code == Code::NotFound) => {
                Err(error.context(format!("{text:?} is no handle, and no label")))
            }
            found => found,
        };
    }
    // The expression's objects are stored, so that the node can look at them.
    let mut uplink = Uplink::new(node, output, Progress::bytes(output, "uploading", None, false));
    let handle = compile(text, &mut uplink).await?;
    uplink.flush().await?;
    Ok(handle)
}

/// The story in lines.
fn tell(story: &Value) -> String {
    let mut lines = vec![headline(story)];
    if let Some(failure) = story["failure"].as_object() {
        let text = |name: &str| failure.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        lines.push(format!("  code       {}", text("code")));
        lines.push(format!("  in         {}", text("application")));
        lines.push(format!("  because    {}", text("detail")));
        let same = failure.get("deterministic").and_then(Value::as_bool).unwrap_or(false);
        lines.push(format!(
            "  remembered {}",
            if same { "yes: it fails the same way every time" } else { "no: asking again may succeed" }
        ));
    }
    lines.extend(definition(&story["definition"], "  "));
    lines.push(format!("  data       {}", place(text(story, "place"))));
    if let Some(compilation) = story["compilation"].as_object() {
        let line =
            |(what, value): (&String, &Value)| format!("  {what:<10} {}", value.as_str().unwrap_or(""));
        lines.extend(compilation.iter().map(line));
    }
    let steps = story["steps"].as_array().map_or(&[][..], Vec::as_slice);
    if !steps.is_empty() {
        let total: u64 = steps.iter().map(|step| step["nanos"].as_u64().unwrap_or(0)).max().unwrap_or(0);
        let time = human_time(Duration::from_nanos(total));
        let steps_told = counted(steps.len(), "remembered step");
        lines.push(format!("Evaluated in {steps_told}; the longest took {time}:"));
        lines.extend(told(steps, &story["definition"]));
    } else if story["definition"].is_object() {
        lines.push("Not evaluated here yet, or no longer remembered: `sinew eval` it.".to_owned());
    }
    lines.extend(transfer(&story["transfer"]));
    lines.extend(recipe(&story["recipe"]));
    let makers = story["made_by"].as_array().map_or(&[][..], Vec::as_slice);
    if !makers.is_empty() {
        lines.push(format!("Made by {}:", counted(makers.len(), "computation")));
        lines.extend(told(makers, &story["definition"]));
    } else if !story["definition"].is_object() {
        lines.push("Nobody computed it here: it was put, or its maker is no longer remembered.".to_owned());
    }
    lines.push(String::new());
    lines.join("\n")
}

/// What bringing it from the durable tier takes, and whether that is how it comes.
fn transfer(transfer: &Value) -> Option<String> {
    let time = human_time(Duration::from_nanos(transfer["nanos"].as_u64()?));
    let made = Duration::from_nanos(transfer["recipe_nanos"].as_u64().unwrap_or(0));
    let how = match transfer["comes_by"].as_str() {
        Some("recipe") => {
            format!("; it is made again when somebody reads it, which takes {}", human_time(made))
        }
        Some("tier") => "; that is what who reads it waits for".to_owned(),
        _ => String::new(),
    };
    Some(format!("  tier       has it; to bring it takes {time}, as far as is known{how}"))
}

/// How an object could be made again.
fn recipe(recipe: &Value) -> Vec<String> {
    let Some(application) = recipe["application"].as_str() else { return Vec::new() };
    let time = human_time(Duration::from_nanos(recipe["nanos"].as_u64().unwrap_or(0)));
    let depth = recipe["depth"].as_u64().unwrap_or(1) as usize;
    let steps =
        if depth > 1 { format!(", by {depth} applications one after the other") } else { String::new() };
    let mut lines = vec![format!("  recipe     {application} makes it in {time}{steps}")];
    if recipe["dropped"].as_bool() != Some(true) {
        lines.push(match recipe["stays_because"].as_str() {
            Some(why) => format!("  droppable  no: {why}"),
            None => {
                "  droppable  yes: `sinew gc --drop-derived` may, if it is old and not too dear".to_owned()
            }
        });
    }
    lines
}

fn headline(story: &Value) -> String {
    let size = story["size"].as_u64().unwrap_or(0);
    let what = match text(story, "kind") {
        "blob" => format!("a blob of {}", human_bytes(size)),
        "blobref" => format!("a ref to a blob of {}", human_bytes(size)),
        "tree" => format!("a tree of {}", counted(size as usize, "entry")),
        "treeref" => format!("a ref to a tree of {}", counted(size as usize, "entry")),
        "failure" => "a failure".to_owned(),
        "application" => "an application: a call".to_owned(),
        "selection" => "a selection: a part of something".to_owned(),
        "identification" => "an identification: data that may lie elsewhere".to_owned(),
        "strict" => "a request to evaluate completely".to_owned(),
        "shallow" => "a request to evaluate to the first value".to_owned(),
        other => other.to_owned(),
    };
    format!("{} is {what}", text(story, "handle"))
}

fn definition(definition: &Value, indent: &str) -> Vec<String> {
    let entry = |what: &str, value: &str| format!("{indent}{what:<10} {value}");
    match text(definition, "type") {
        "application" => {
            let mut lines = vec![
                entry("procedure", text(definition, "procedure")),
                entry("limits", &limits(&definition["limits"])),
            ];
            let arguments = definition["arguments"].as_array().map_or(&[][..], Vec::as_slice);
            for (at, argument) in arguments.iter().enumerate() {
                lines.push(entry(&format!("argument {at}"), argument.as_str().unwrap_or("")));
            }
            let total = definition["arguments_total"].as_u64().unwrap_or(0) as usize;
            if total > arguments.len() {
                lines.push(entry("", &format!("and {} more arguments", total - arguments.len())));
            }
            lines
        }
        "selection" => {
            let number = |name: &str| definition[name].as_u64().unwrap_or(0);
            let part = match definition["index"].as_u64() {
                Some(index) => format!("[{index}]"),
                None => format!("[{}..{}]", number("begin"), number("end")),
            };
            vec![entry("of", text(definition, "target")), entry("part", &part)]
        }
        "identification" => vec![entry("of", text(definition, "of"))],
        _ => Vec::new(),
    }
}

fn limits(limits: &Value) -> String {
    let number = |name: &str| limits[name].as_u64();
    let Some(memory) = number("memory_bytes") else {
        return format!("malformed: {}", limits.as_str().unwrap_or("missing"));
    };
    let fuel = match number("fuel") {
        None | Some(0) => "fuel uncounted".to_owned(),
        Some(fuel) => format!("{} fuel", grouped(fuel)),
    };
    format!("{} memory, {fuel}", exact(memory))
}

/// Steps in lines. What `before` or the step before it told is not repeated.
fn told<'a>(steps: &'a [Value], mut before: &'a Value) -> Vec<String> {
    let mut lines = Vec::new();
    for step in steps.iter().take(STEPS_TOLD_MAX) {
        let time = human_time(Duration::from_nanos(step["nanos"].as_u64().unwrap_or(0)));
        let fuel = match step["fuel"].as_u64() {
            None | Some(0) => String::new(),
            Some(fuel) => format!(", {} fuel", grouped(fuel)),
        };
        // What its receipt says that it cost before it ran.
        let up_front = match (step["inputs_bytes"].as_u64(), step["reserved_bytes"].as_u64()) {
            (Some(inputs), Some(reserved)) => {
                format!(", {} of inputs, {} reserved", human_bytes(inputs), exact(reserved))
            }
            _ => String::new(),
        };
        lines.push(format!("  {:<8} {}", text(step, "rule"), text(step, "handle")));
        if step["definition"] != *before {
            lines.extend(definition(&step["definition"], "             "));
            before = &step["definition"];
        }
        let again = if step["memo_hit"].as_bool() == Some(true) { ", a memo hit since" } else { "" };
        lines.push(format!("           → {} ({time}{fuel}{up_front}{again})", text(step, "result")));
    }
    if steps.len() > STEPS_TOLD_MAX {
        lines.push(format!("  and {} more; -o json has them", steps.len() - STEPS_TOLD_MAX));
    }
    lines
}

fn place(word: &str) -> &str {
    match word {
        "literal" => "in the handle itself",
        "memory" => "in this node's memory",
        "disk" => "on this node's disk",
        "tier" => "in the durable tier, and not on this node",
        "dropped" => "dropped: nowhere on this node, and made again when somebody reads it",
        "absent" => "not on this node",
        other => other,
    }
}

fn counted(number: usize, what: &str) -> String {
    let many = what.strip_suffix('y').map_or_else(|| format!("{what}s"), |stem| format!("{stem}ies"));
    format!("{} {}", grouped(number as u64), if number == 1 { what } else { &many })
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or("")
}

#[cfg(test)]
mod tests;
