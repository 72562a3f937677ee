// SPDX-License-Identifier: Apache-2.0
//! `sinew workflow`: runs of workflows: begun, followed, listed, looked at, ended.

mod picture;

use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use clap::{Args, Subcommand};
use hyper::Request;
use serde_json::{Value, json};

use crate::client::whole;
use crate::exit::{Code, Stop};
use crate::function_api::checked;
use crate::function_request::FunctionRequest;
use crate::node_api::{Node, collect};
use crate::output::Output;
use crate::progress::{Progress, Stage};
use crate::quantity::human_time;

/// The node is asked so often how far a run is: first, and when it takes long.
const LOOK_FIRST: Duration = Duration::from_millis(20);
const LOOK_LATER: Duration = Duration::from_millis(500);

/// What about workflows.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sinew workflow run finra -d '{\"portfolio\": 7}'\n  \
    sinew workflow run finra --detach        prints the run's id\n  sinew workflow list\n  \
    sinew workflow describe ID               what each function took\n  \
    sinew workflow describe ID --steps       each step, with when it ran\n  sinew workflow cancel ID\n\n\
    A workflow is a Python function with workflow = true in sinew.toml, whose calls of @function are steps.\n\
    A run that was begun so goes on where it was if the node ends; `sinew invoke` runs one for as long as somebody waits.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Begin a run, follow it, and print its result
    Run {
        /// The workflow
        name: String,
        #[command(flatten)]
        request: FunctionRequest,
        /// Print the run's id, and do not wait for its end
        #[arg(long)]
        detach: bool,
    },
    /// List the last runs, the newest first
    List {
        /// Only those of this workflow
        name: Option<String>,
        /// At most so many
        #[arg(short = 'n', long, default_value_t = 20)]
        limit: usize,
    },
    /// Show a run: what its functions took, and why it failed
    Describe {
        /// Which
        id: String,
        /// Each step, too
        #[arg(long)]
        steps: bool,
    },
    /// Have a run end
    Cancel {
        /// Which
        id: String,
    },
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    match &arguments.action {
        Action::Run { name, request, detach } => begin(node, output, name, request, *detach).await,
        Action::List { name, limit } => list(node, output, name.as_deref(), *limit).await,
        Action::Describe { id, steps } => describe(node, output, id, *steps).await,
        Action::Cancel { id } => cancel(node, output, id).await,
    }
}

async fn begin(
    node: &mut Node,
    output: &Output,
    name: &str,
    request: &FunctionRequest,
    detach: bool,
) -> anyhow::Result<()> {
    let known = node.function(name.split(':').next().unwrap_or(name)).await?;
    if known["workflow"] != true {
        let stop = Stop::new(Code::Failed, format!("the function {name} is no workflow"));
        return Err(stop
            .suggest(format!("add workflow = true to it in sinew.toml, or `sinew invoke {name}`"))
            .into());
    }
    // All attempts at a run are of one version: its steps are known by what they are.
    let target = match (name.contains(':'), known["version"].as_u64()) {
        (false, Some(version)) => format!("{name}:{version}"),
        _ => name.to_owned(),
    };
    let response = node.exchange(request.once("async-function", &target)?).await?;
    let status = response.status();
    let body = collect(response.into_body()).await?;
    let taken: Value = serde_json::from_slice(&body).context("the node's answer is no JSON")?;
    if !status.is_success() {
        return Err(Stop::from_problem(status.as_u16(), taken).into());
    }
    let id = taken["id"].as_str().context("the node's answer has no id")?;
    if detach {
        return if output.is_json() { output.json(&json!({"id": id})) } else { output.line(id) };
    }
    let run = follow(node, output, id).await?;
    match run["state"].as_str() {
        Some("succeeded") => {
            let request = Request::get(format!("/v1/async/{id}/result"));
            let body = node.send(request, whole(Bytes::new())).await?;
            let body = collect(body.into_body()).await?;
            if output.is_json() {
                let value: Value = serde_json::from_slice(&body)
                    .unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned().into());
                return output.json(&json!({"run": run, "result": value}));
            }
            output.bytes(&body)
        }
        state => {
            if output.is_json() {
                output.json(&json!({"run": run}))?;
            }
            let why = run["failure"].as_str().unwrap_or("it was cancelled");
            let stop =
                Stop::new(Code::Failure, format!("the run {id} {}: {why}", state.unwrap_or("has failed")));
            let next = format!(
                "`sinew workflow describe {id}` shows its steps; `sinew dlq redrive {id}` goes on with what has no result"
            );
            Err(stop.suggest(next).into())
        }
    }
}

/// Waits for the end of a run, and shows how far it is.
async fn follow(node: &mut Node, output: &Output, id: &str) -> anyhow::Result<Value> {
    let mut progress = Progress::stages(output, "waiting for its turn", output.is_verbose());
    let begun = Instant::now();
    let mut is_told = false;
    loop {
        let request = Request::get(format!("/v1/runs/{id}?steps=false"));
        let run = node.json(request, whole(Bytes::new())).await?;
        if !matches!(run["state"].as_str(), Some("queued" | "interrupted" | "running")) {
            progress.end();
            // What the queue knows is the end: the outcome is there when it says so.
            let status = node.json(Request::get(format!("/v1/async/{id}")), whole(Bytes::new())).await?;
            if matches!(status["state"].as_str(), Some("succeeded" | "dead")) {
                return Ok(run);
            }
        }
        if !is_told && begun.elapsed() > Duration::from_secs(1) && output.is_terminal() {
            is_told = true;
            progress.aside();
            output.say(&format!(
                "run {id}; it goes on without this command, `sinew workflow describe {id}` shows it"
            ));
        }
        progress.stage(stage(&run), output);
        tokio::time::sleep((begun.elapsed() / 10).clamp(LOOK_FIRST, LOOK_LATER)).await;
    }
}

/// How far a run is, in numbers and words.
fn stage(run: &Value) -> Stage {
    let number = |name: &str| run["steps"][name].as_u64().unwrap_or(0);
    let functions = run["functions"].as_array();
    let busy = functions.into_iter().flatten().filter(|function| function["running"].as_u64() > Some(0));
    let texts = busy.map(|function| {
        let count = |name: &str| function[name].as_u64().unwrap_or(0);
        let name = function["function"].as_str().unwrap_or("?");
        format!("{name} {} of {}, {} running", count("done"), count("all"), count("running"))
    });
    let texts: Vec<String> = texts.collect();
    let text =
        if texts.is_empty() { run["state"].as_str().unwrap_or("").to_owned() } else { texts.join("; ") };
    Stage { done: number("done") + number("failed"), all: number("all"), text }
}

async fn list(node: &mut Node, output: &Output, name: Option<&str>, limit: usize) -> anyhow::Result<()> {
    let of = name.map(checked).transpose()?.map(|name| format!("&workflow={name}")).unwrap_or_default();
    let mut answer =
        node.json(Request::get(format!("/v1/runs?limit={limit}{of}")), whole(Bytes::new())).await?;
    let Value::Array(runs) = answer["runs"].take() else { anyhow::bail!("the node's answer has no runs") };
    if output.is_json() {
        return runs.iter().try_for_each(|run| output.json(run));
    }
    if runs.is_empty() && output.is_watched() {
        let names = answer["workflows"].as_array().into_iter().flatten();
        let names: Vec<&str> = names.filter_map(|workflow| workflow["name"].as_str()).collect();
        output.say(&match names.first() {
            Some(first) => format!("there are no runs yet; `sinew workflow run {first}` begins one"),
            None => {
                "there are no workflows; a Python function is one by workflow = true in sinew.toml".to_owned()
            }
        });
        return Ok(());
    }
    let row = |run: &Value| {
        let text = |name: &str| run[name].as_str().unwrap_or("-").to_owned();
        let steps = &run["steps"];
        let steps = match (steps["done"].as_u64(), steps["all"].as_u64()) {
            (Some(done), Some(all)) => format!("{done}/{all}"),
            _ => "-".to_owned(),
        };
        let took = run["took_us"].as_u64().map(Duration::from_micros).map_or("-".to_owned(), human_time);
        vec![text("id"), text("workflow"), text("state"), steps, took]
    };
    let rows: Vec<_> = runs.iter().map(row).collect();
    output.table(&["ID", "WORKFLOW", "STATE", "STEPS", "TOOK"], &[3, 4], &rows)
}

async fn describe(node: &mut Node, output: &Output, id: &str, steps: bool) -> anyhow::Result<()> {
    let path = format!("/v1/runs/{}", checked_id(id)?);
    let run = node.json(Request::get(path), whole(Bytes::new())).await?;
    if output.is_json() {
        return output.json(&run);
    }
    picture::heading(&run, output)?;
    picture::functions(&run, output)?;
    if steps { picture::steps(&run, output) } else { Ok(()) }
}

async fn cancel(node: &mut Node, output: &Output, id: &str) -> anyhow::Result<()> {
    node.send(Request::delete(format!("/v1/runs/{}", checked_id(id)?)), whole(Bytes::new())).await?;
    if output.is_json() {
        return output.json(&json!({"id": id, "cancelled": true}));
    }
    output.line(&format!("{id}  cancelled"))
}

/// An id that may stand in a URL as it is: a message's, or a request's.
fn checked_id(id: &str) -> Result<&str, Stop> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if (1..=128).contains(&id.len()) && id.bytes().all(is_plain) {
        return Ok(id);
    }
    Err(Stop::new(Code::Usage, format!("{id:?} is no run's id")).suggest("`sinew workflow list` has them"))
}
