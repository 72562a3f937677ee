// SPDX-License-Identifier: Apache-2.0
//! `sinew invoke`: one request to a function; its answer's body to stdout.
//!
//! An answer with a status of 400 or more ends with exit code 3, whether the
//! function gave it or failed; the node's own problems have the codes of `exit.rs`.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use serde_json::{Value, json};

use crate::exit::{Code, Stop};
use crate::function_request::FunctionRequest;
use crate::node_api::{Node, collect};
use crate::output::Output;
use crate::quantity::human_time;
use crate::usage;

const PROBLEM: &str = "application/problem+json";
const REQUEST_ID: &str = "x-request-id";
/// Calls of one request that are summed up.
const RECORDS_MAX: usize = 1000;

/// The request.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sinew invoke hello -d '{\"name\": \"Ada\"}'\n  \
    sinew invoke resize --file photo.jpg > small.jpg\n  echo text | sinew invoke upper\n  \
    sinew invoke site --method GET --path '/users/7?full=1' -v\n  \
    sinew invoke report --async -d '{\"month\": 7}'")]
pub(crate) struct Arguments {
    /// The function
    name: String,
    #[command(flatten)]
    request: FunctionRequest,
    /// Have the call made later; print its id
    #[arg(long = "async")]
    is_deferred: bool,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let door = if arguments.is_deferred { "async-function" } else { "function" };
    let request = arguments.request.once(door, &arguments.name)?;
    let begun = Instant::now();
    let response = node.exchange(request).await?;
    let first_byte = begun.elapsed();
    if output.is_verbose() {
        tell_head(&response, output);
    }
    let status = response.status();
    if is_problem(&response) {
        let body = collect(response.into_body()).await?;
        let problem = serde_json::from_slice(&body).unwrap_or(Value::Null);
        return Err(failed(&arguments.name, status.as_u16(), problem, node).await);
    }
    if arguments.is_deferred {
        let body = collect(response.into_body()).await?;
        let taken: Value = serde_json::from_slice(&body).context("the node's answer is no JSON")?;
        if output.is_json() {
            return output.json(&taken);
        }
        return output.line(taken["id"].as_str().context("the node's answer has no id")?);
    }
    let id = text_of(&response, REQUEST_ID);
    let kind = text_of(&response, CONTENT_TYPE.as_str());
    let bytes = match output.is_json() {
        true => document(status.as_u16(), kind, id.clone(), response.into_body(), output).await?,
        false => copy(response.into_body()).await?,
    };
    if output.is_verbose() {
        let [first, whole] = [first_byte, begun.elapsed()].map(human_time);
        output.say(&format!("* {bytes} bytes, first after {first}, all after {whole}"));
        tell_usage(id.as_deref(), node, output).await;
    }
    if status.is_client_error() || status.is_server_error() {
        let message = format!("{} answered with status {status}", arguments.name);
        return Err(Stop::new(Code::Failure, message).suggest("-v shows the whole answer").into());
    }
    Ok(())
}

fn tell_head(response: &Response<Incoming>, output: &Output) {
    output.say(&format!("< {:?} {}", response.version(), response.status()));
    for (name, value) in response.headers() {
        output.say(&format!("< {name}: {}", String::from_utf8_lossy(value.as_bytes())));
    }
}

/// What the request took, as the node has it. Whoever may call functions only is
/// not told.
async fn tell_usage(id: Option<&str>, node: &mut Node, output: &Output) {
    let Ok(records) = node.calls(id, RECORDS_MAX).await else { return };
    let Some(own) = records.iter().find(|record| record["parent"].is_null()) else { return };
    usage::breakdown(own).iter().for_each(|line| output.say(&format!("* {line}")));
    if records.len() > 1 {
        let sums = usage::sums(&records);
        let told: Vec<String> = sums.iter().map(|(name, value)| format!("{name} {value}")).collect();
        output.say(&format!("* with the functions that it called: {}", told.join("; ")));
    }
}

fn text_of(response: &Response<Incoming>, name: &str) -> Option<String> {
    Some(String::from_utf8_lossy(response.headers().get(name)?.as_bytes()).into_owned())
}

/// Whether the node itself speaks, not the function.
fn is_problem(response: &Response<Incoming>) -> bool {
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    is_error && text_of(response, CONTENT_TYPE.as_str()).is_some_and(|kind| kind.starts_with(PROBLEM))
}

async fn failed(name: &str, status: u16, problem: Value, node: &mut Node) -> anyhow::Error {
    let stop = Stop::from_problem(status, problem);
    // A function may have problems of its own, which are not the node's.
    let is_own = stop.problem.as_ref().is_some_and(|problem| {
        problem["type"].as_str().is_some_and(|kind| kind.starts_with("urn:sinew:problem:"))
    });
    if is_own && stop.code == Code::NotFound && matches!(node.find_function(name).await, Ok(None)) {
        return node.no_function(name).await;
    }
    if is_own {
        return stop.into();
    }
    Stop { code: Code::Failure, ..stop }.into()
}

/// The body as it arrives. On a terminal what is said next begins on a line of its own; a file has the body and no more.
async fn copy(mut body: Incoming) -> anyhow::Result<u64> {
    let mut target = io::stdout().lock();
    let mut bytes = 0;
    let mut last = b'\n';
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the connection broke within the answer")?;
        let Ok(data) = frame.into_data() else { continue };
        target.write_all(&data)?;
        target.flush()?;
        bytes += data.len() as u64;
        last = data.last().copied().unwrap_or(last);
    }
    if last != b'\n' && target.is_terminal() {
        target.write_all(b"\n")?;
        target.flush()?;
    }
    Ok(bytes)
}

/// The answer as one JSON document, for programs.
async fn document(
    status: u16,
    kind: Option<String>,
    id: Option<String>,
    body: Incoming,
    output: &Output,
) -> anyhow::Result<u64> {
    let bytes = collect(body).await?;
    let is_json = kind.as_deref().is_some_and(|kind| kind.starts_with("application/json"));
    let parsed = if is_json { serde_json::from_slice(&bytes).ok() } else { None };
    let body = match (parsed, std::str::from_utf8(&bytes)) {
        (Some(value), _) => value,
        (None, Ok(text)) => json!(text),
        (None, Err(_)) => json!({"hex": crate::output::hex(&bytes)}),
    };
    output.json(&json!({"status": status, "content_type": kind, "request_id": id, "body": body}))?;
    Ok(bytes.len() as u64)
}

#[cfg(test)]
mod tests;
