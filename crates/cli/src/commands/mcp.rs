// SPDX-License-Identifier: Apache-2.0
//! `sinew mcp`: functions as tools of an agent on this machine. It is the Model Context Protocol
//! over stdin and stdout: each line is a message, which the node's `/v1/mcp` answers.

use std::collections::HashMap;
use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::pin::pin;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use bytes::Bytes;
use clap::Args;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Request, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::client::{Client, whole};
use crate::exit::{Code, Stop};
use crate::node_api::{Node, collect};
use crate::output::Output;

/// Of one line; the node says itself how long a message may be.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Messages that are answered at a time; more are refused, so that what gives one up is always read.
const AT_ONCE: usize = 64;
/// For what runs when its agent has closed stdin: it may have gone.
const PATIENCE: Duration = Duration::from_secs(60);
const PATH: &str = "/v1/mcp";
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const INTERNAL_ERROR: i32 = -32603;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  claude mcp add sinew -- sinew mcp\n  sinew mcp --list    which functions are tools\n\n\
    For others: {\"mcpServers\": {\"sinew\": {\"command\": \"sinew\", \"args\": [\"mcp\"]}}}\n\
    or, without this command, the URL http://NODE/v1/mcp, with a key of the scope invoke as its bearer token.\n\n\
    A function is a tool if its sinew.toml says so: tool = \"What it does, and when to use it\""
)]
pub(crate) struct Arguments {
    /// List the tools, and serve nobody
    #[arg(long)]
    list: bool,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    if arguments.list {
        return list(node, output).await;
    }
    if std::io::stdin().is_terminal() {
        output.say("this speaks the Model Context Protocol with an agent, a message a line; `sinew mcp --help` tells how one begins it");
    }
    let mut lines = lines();
    let mut calls = JoinSet::new();
    let mut under_way: HashMap<String, AbortHandle> = HashMap::new();
    let mut is_over = false;
    let mut leaving = pin!(tokio::time::sleep(PATIENCE));
    while !is_over || !calls.is_empty() {
        tokio::select! {
            () = &mut leaving, if is_over => break,
            line = lines.recv(), if !is_over => match line.transpose()? {
                None => {
                    is_over = true;
                    leaving.as_mut().reset(Instant::now() + PATIENCE);
                }
                Some(line) => {
                    let message: Value = serde_json::from_slice(&line).unwrap_or_default();
                    if message["method"] == "notifications/cancelled" {
                        // Nobody is told how it ends: closing its connection ends it on the node, too.
                        let call = under_way.remove(&message["params"]["requestId"].to_string());
                        call.into_iter().for_each(|call| call.abort());
                        continue;
                    }
                    if calls.len() >= AT_ONCE {
                        let why = format!("{AT_ONCE} calls are under way; wait for some of them");
                        write(refusal(&message["id"], &why).unwrap_or_default())?;
                        continue;
                    }
                    let (client, id) = (node.connection(), message["id"].to_string());
                    let key = id.clone();
                    let call = calls.spawn(async move { (key, answered(client, line, &message).await) });
                    under_way.insert(id, call);
                }
            },
            Some(done) = calls.join_next(), if !calls.is_empty() => {
                let Ok((id, answer)) = done else { continue };
                under_way.remove(&id);
                write(answer.unwrap_or_default())?;
            }
        }
    }
    Ok(())
}

/// Writes a line, if there is one.
fn write(mut answer: Vec<u8>) -> std::io::Result<()> {
    if answer.is_empty() {
        return Ok(());
    }
    answer.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&answer)?;
    stdout.flush()
}

/// Lines of stdin. Nothing else waits while none comes: a thread for what waits reads them.
fn lines() -> mpsc::Receiver<anyhow::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::task::spawn_blocking(move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let line = match (&mut input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(0) => return,
                Ok(_) if line.len() as u64 == LINE_BYTES_MAX => {
                    let what = format!("mcp: a message has over {LINE_BYTES_MAX} bytes");
                    Err(Stop::new(Code::Usage, what).into())
                }
                Ok(_) if line.trim_ascii().is_empty() => continue,
                Ok(_) => Ok(line.trim_ascii().to_vec()),
                Err(error) => Err(error.into()),
            };
            let is_last = line.is_err();
            if sender.blocking_send(line).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}

/// What the node answers to a message: a line, or nothing to what is only told.
async fn answered(mut client: Client, line: Vec<u8>, message: &Value) -> Option<Vec<u8>> {
    let id = &message["id"];
    let error = match passed_on(&mut client, line, message).await {
        Ok((StatusCode::ACCEPTED, _)) => return None,
        Ok((_, answer)) => match serde_json::from_slice::<Value>(&answer) {
            Ok(told) if told["jsonrpc"] == "2.0" => return Some(answer.to_vec()),
            // A problem of the node's, which is no message.
            Ok(problem) => problem["detail"].as_str().unwrap_or("the node's answer is no message").to_owned(),
            Err(error) => format!("the node's answer is no message: {error}"),
        },
        Err(error) => format!("{error:#}"),
    };
    refusal(id, &error)
}

/// An error for a message that wants an answer.
fn refusal(id: &Value, why: &str) -> Option<Vec<u8>> {
    let error = json!({ "code": INTERNAL_ERROR, "message": why });
    let message = json!({ "jsonrpc": "2.0", "id": id, "error": error });
    (!id.is_null()).then(|| message.to_string().into_bytes())
}

async fn passed_on(
    client: &mut Client,
    line: Vec<u8>,
    message: &Value,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let mut request = Request::post(PATH)
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, "application/json, text/event-stream");
    // By HTTP what the message says stands in the head, too.
    let said = [
        ("mcp-protocol-version", &message["params"]["_meta"][VERSION_KEY]),
        ("mcp-method", &message["method"]),
        ("mcp-name", &message["params"]["name"]),
    ];
    for (name, value) in said {
        if let Some(value) = value.as_str() {
            request = request.header(name, in_a_header(value));
        }
    }
    let response = client.send(request.body(whole(line))?).await?;
    let status = response.status();
    Ok((status, collect(response.into_body()).await?))
}

/// As the protocol writes what no header can have.
fn in_a_header(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && text.trim() == text;
    if is_plain && !text.starts_with("=?base64?") {
        return text.to_owned();
    }
    format!("=?base64?{}?=", BASE64.encode(text))
}

async fn list(node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let post = Request::post(PATH).header(CONTENT_TYPE, "application/json");
    let mut answer = node.json(post, whole(request.to_string())).await?;
    let tools = match answer["result"]["tools"].take() {
        Value::Array(tools) => tools,
        _ => anyhow::bail!("the node's answer has no tools"),
    };
    if output.is_json() {
        return tools.iter().try_for_each(|tool| output.json(tool));
    }
    if tools.is_empty() && output.is_watched() {
        output.say("no function is a tool; one is with `tool = \"What it does, and when to use it\"` in its sinew.toml");
        return Ok(());
    }
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let rows: Vec<Vec<String>> =
        tools.iter().map(|tool| vec![text(&tool["name"]), text(&tool["description"])]).collect();
    output.table(&["TOOL", "WHAT IT DOES"], &[], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_header_can_have_is_encoded() {
        for (text, expected) in [
            ("tools/call", "tools/call"),
            ("caf\u{e9}", "=?base64?Y2Fmw6k=?="),
            (" a", "=?base64?IGE=?="),
            ("a\nb", "=?base64?YQpi?="),
            ("=?base64?a?=", "=?base64?PT9iYXNlNjQ/YT89?="),
        ] {
            assert_eq!(in_a_header(text), expected);
        }
    }
}
