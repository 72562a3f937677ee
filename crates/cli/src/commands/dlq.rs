// SPDX-License-Identifier: Apache-2.0
//! `sinew dlq`: dead letters, calls that were to be made later and that nobody
//! tries any more.

use std::io::{self, BufRead as _, IsTerminal as _};

use bytes::Bytes;
use clap::{Args, Subcommand};
use hyper::Request;
use serde_json::{Value, json};

use crate::client::whole;
use crate::exit::{Code, Stop};
use crate::function_api::checked;
use crate::node_api::Node;
use crate::output::Output;

/// What about dead letters.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sinew dlq list --function report\n  sinew dlq show ID\n  \
    sinew dlq redrive ID                 tries it again\n  sinew dlq redrive --function report  all of one function\n  \
    sinew dlq purge ID\n\nA call becomes a dead letter when its attempts are used up, or when no attempt can help; see\n\
    async in sinew.toml. Dead letters are kept for two weeks.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List them, the oldest first
    List {
        /// Only those of this function
        #[arg(long, value_name = "NAME")]
        function: Option<String>,
        /// At most so many
        #[arg(short = 'n', long, default_value_t = 100)]
        limit: usize,
    },
    /// Show one: its request, its body, and why it died
    Show {
        /// Which
        id: String,
    },
    /// Have one tried again, or all, or all of a function
    Redrive(Which),
    /// Remove one, or all, or all of a function
    Purge {
        #[command(flatten)]
        which: Which,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// This one
    id: Option<String>,
    /// All of this function
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// All of all functions
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    match &arguments.action {
        Action::List { function, limit } => list(node, output, function.as_deref(), *limit).await,
        Action::Show { id } => show(node, output, id).await,
        Action::Redrive(which) => change(node, output, which, "redriven").await,
        Action::Purge { which, yes } => {
            if which.id.is_none() && !yes && !is_sure()? {
                return Ok(());
            }
            change(node, output, which, "purged").await
        }
    }
}

/// Asks, where somebody can answer.
fn is_sure() -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() {
        let stop = Stop::new(Code::Usage, "dead letters cannot be had back once they are purged");
        return Err(stop.suggest("add --yes").into());
    }
    eprint!("purge them? They cannot be had back. [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

async fn list(node: &mut Node, output: &Output, function: Option<&str>, limit: usize) -> anyhow::Result<()> {
    let function = function.map(checked).transpose()?.map(|name| format!("&function={name}"));
    let path = format!("/v1/dlq?limit={limit}{}", function.unwrap_or_default());
    let mut answer = node.json(Request::get(path), whole(Bytes::new())).await?;
    let Value::Array(letters) = answer["letters"].take() else {
        anyhow::bail!("the node's answer has no letters")
    };
    if output.is_json() {
        return letters.iter().try_for_each(|letter| output.json(letter));
    }
    if letters.is_empty() && output.is_watched() {
        output.say("there are no dead letters");
        return Ok(());
    }
    let row = |letter: &Value| {
        let text = |name: &str| letter[name].as_str().unwrap_or("-").to_owned();
        let reason = text("reason");
        let reason = reason.lines().next().unwrap_or_default().to_owned();
        vec![text("id"), text("function"), letter["attempts"].to_string(), reason]
    };
    let rows: Vec<_> = letters.iter().map(row).collect();
    output.table(&["ID", "FUNCTION", "ATTEMPTS", "REASON"], &[2], &rows)
}

async fn show(node: &mut Node, output: &Output, id: &str) -> anyhow::Result<()> {
    let path = format!("/v1/dlq/{}", checked_id(id)?);
    let letter = node.json(Request::get(path), whole(Bytes::new())).await?;
    if output.is_json() {
        return output.json(&letter);
    }
    let request = &letter["request"];
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    output.line(&format!("{}  {}", text(&letter["id"]), text(&request["target"])))?;
    output.line(&format!("request   {}", text(&request["request_id"])))?;
    output.line(&format!("attempts  {}", letter["attempts"]))?;
    output.line(&format!("reason    {}", text(&letter["reason"]).replace('\n', "\n          ")))?;
    let query = text(&request["query"]);
    let query = if query.is_empty() { query } else { format!("?{query}") };
    output.line(&format!("\n{} {}{query}", text(&request["method"]), text(&request["path"])))?;
    for header in request["headers"].as_array().into_iter().flatten() {
        output.line(&format!("{}: {}", text(&header[0]), text(&header[1])))?;
    }
    match (letter["body"].as_str(), letter["body_base64"].as_str()) {
        (Some(body), _) => output.line(&format!("\n{body}")),
        (None, Some(_)) => {
            output.line(&format!("\n({} bytes that are no text; -o json has them)", letter["body_bytes"]))
        }
        (None, None) => Ok(()),
    }
}

/// Redrives or purges, and says how many.
async fn change(node: &mut Node, output: &Output, which: &Which, done: &str) -> anyhow::Result<()> {
    let is_redrive = done == "redriven";
    if let Some(id) = &which.id {
        let id = checked_id(id)?;
        let request = match is_redrive {
            true => Request::post(format!("/v1/dlq/{id}/redrive")),
            false => Request::delete(format!("/v1/dlq/{id}")),
        };
        node.send(request, whole(Bytes::new())).await?;
        if output.is_json() {
            return output.json(&json!({ "id": id, done: 1 }));
        }
        return output.line(&format!("{id}  {done}"));
    }
    let function = which.function.as_deref().map(checked).transpose()?;
    let query = function.map(|name| format!("?function={name}")).unwrap_or_default();
    let mut total = 0;
    loop {
        let request = match is_redrive {
            true => Request::post(format!("/v1/dlq/redrive{query}")),
            false => Request::delete(format!("/v1/dlq{query}")),
        };
        let answer = node.json(request, whole(Bytes::new())).await?;
        let changed = answer[done].as_u64().unwrap_or(0);
        total += changed;
        if changed == 0 || answer["more"] != true {
            break;
        }
    }
    if output.is_json() {
        return output.json(&json!({ done: total }));
    }
    output.line(&format!("{total} {done}"))
}

/// An id that may stand in a URL as it is.
fn checked_id(id: &str) -> Result<&str, Stop> {
    if id.len() == 36 && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
        return Ok(id);
    }
    Err(Stop::new(Code::Usage, format!("{id:?} is no call's id")).suggest("`sinew dlq list` has them"))
}
