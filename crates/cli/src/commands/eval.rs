// SPDX-License-Identifier: Apache-2.0
//! `sinew eval`: evaluates an expression and prints the result.
//!
//! Files over 1 MiB go up first; everything else is one bundle in one
//! request, so that a client far away pays one round trip.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use objects::{Handle, Kind};
use serde_json::Value;

use super::get::copy;
use super::ls::list;
use super::receipt;
use crate::exit::{Code, Stop};
use crate::expression::{self, External, ExternalKind, Externals, build, externals, parse};
use crate::node_api::{Node, Wishes, collect};
use crate::output::{Output, from_hex, hex, printable};
use crate::progress::{Progress, Told};
use crate::quantity::{grouped, human_bytes, human_time, parse_duration};
use crate::upload::Uplink;

/// The longest blob that is printed as hexadecimal digits without being asked for.
const HEX_BYTES_MAX: u64 = 4096;
/// The longest text that is printed without being asked for.
const TEXT_BYTES_MAX: u64 = 1 << 20;
/// The longest line that a node may send about an evaluation.
const LINE_BYTES_MAX: usize = 1 << 20;

/// What to evaluate, and how.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sinew eval '@add.wasm(3u8, 4u8)' --as u64\n  \
    sinew eval '@count.wasm(#corpus, \"the\")' --deadline 10s\n  \
    sinew eval 'let add = @add.wasm; add(!add(1u8, 2u8), 3u8)'\n  \
    sinew eval '{mem: 1GiB, fuel: 1000000} @big.wasm(@input)'\n  \
    sinew eval '{fuel: 1000000} @big.wasm(@input)' --receipt big.receipt --by 10m\n\
    The language: docs/reference/expressions.md. A computation is evaluated strictly, data is printed.")]
pub(crate) struct Arguments {
    /// The expression; - reads it from stdin
    #[arg(value_name = "EXPR")]
    expression: String,
    /// Give up after this long, like 500ms or 10s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    deadline: Option<Duration>,
    /// The result is wanted within this time, like 10m: others go first meanwhile, and it
    /// costs less where the node has prices
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    by: Option<Duration>,
    /// Write a signed receipt to this file: what was computed, the result, and what it
    /// cost; `sinew verify` and `sinew audit` check it
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
    /// Against other requests
    #[arg(long, value_enum, default_value_t = Priority::Normal)]
    priority: Priority,
    /// Stop at the first value and give a ref to it
    #[arg(long)]
    shallow: bool,
    /// How to print a blob
    #[arg(long = "as", value_enum, value_name = "FORM", default_value_t = Form::Auto)]
    form: Form,
    /// Tell the progress, also where stderr is no terminal
    #[arg(long)]
    progress: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Priority {
    High,
    Normal,
    Low,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Text if it is text, else hexadecimal
    Auto,
    /// UTF-8 text; an error if it is none
    Utf8,
    /// 0x and hexadecimal digits
    Hex,
    /// A little-endian number of up to 8 bytes
    U64,
    /// The bytes as they are
    Raw,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    if let (Some(by), Some(deadline)) = (arguments.by, arguments.deadline)
        && by > deadline
    {
        let (by, deadline) = (human_time(by), human_time(deadline));
        let message =
            format!("--by: the result is wanted within {by}, and given up before, after {deadline}");
        let advice = "leave --deadline away, or make it longer than --by";
        return Err(Stop::new(Code::Usage, message).suggest(advice).into());
    }
    let source = match arguments.expression.as_str() {
        // Ctrl-C shall not wait for stdin.
        "-" => tokio::task::spawn_blocking(read_stdin).await??,
        text => text.to_owned(),
    };
    let (value, bundle) = prepare(&source, arguments.shallow, node, output, arguments.progress).await?;
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
    let wishes = Wishes {
        deadline_ms: arguments.deadline.map(millis),
        by_ms: arguments.by.map(millis),
        receipt: arguments.receipt.is_some(),
        fresh: false,
        priority: match arguments.priority {
            Priority::High => Some("high"),
            Priority::Normal => None,
            Priority::Low => Some("low"),
        },
    };
    tracing::debug!(goal = %value, bytes = bundle.len(), "evaluate");
    let asked = ask(bundle, &wishes, node, output, arguments.progress).await;
    if let (Err(error), Some(path)) = (&asked, &arguments.receipt) {
        receipt_of_failure(error, path, node, output).await?;
    }
    let answer = asked?;
    match output.is_json() {
        true => output.json(&answer)?,
        false => {
            if output.is_watched() || arguments.progress {
                output.say(&cost(&answer));
            }
            if output.is_verbose() {
                output.say(&crate::usage::evaluation(&answer));
            }
            print(&answer, arguments.form, node, output).await?;
        }
    }
    match &arguments.receipt {
        Some(path) => receipt::save(&answer, path, node, output).await,
        None => Ok(()),
    }
}

/// A computation that fails the same way every time has a receipt of that.
async fn receipt_of_failure(
    error: &anyhow::Error,
    path: &Path,
    node: &mut Node,
    output: &Output,
) -> anyhow::Result<()> {
    let problem = error.downcast_ref::<Stop>().and_then(|stop| stop.problem.clone());
    match problem.filter(|problem| problem["receipt"].is_string()) {
        Some(problem) => receipt::save(&problem, path, node, output).await,
        None => Ok(()),
    }
}

fn read_stdin() -> anyhow::Result<String> {
    const SOURCE_BYTES_MAX: u64 = (1 << 20) + 1;
    let mut text = String::new();
    match std::io::stdin().take(SOURCE_BYTES_MAX).read_to_string(&mut text) {
        Ok(_) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            Err(Stop::new(Code::Usage, "what came on stdin is no text, so it is no expression")
                .suggest("sinew put stores bytes from stdin; sinew eval '@FILE' reads a file")
                .into())
        }
        Err(error) => Err(error).context("stdin"),
    }
}

/// Parses, uploads what is large, and packs the rest into a bundle with the goal.
async fn prepare(
    source: &str,
    shallow: bool,
    node: &mut Node,
    output: &Output,
    wanted: bool,
) -> anyhow::Result<(Handle, Vec<u8>)> {
    let progress = Progress::bytes(output, "uploading", None, wanted);
    let mut uplink = Uplink::new(node, output, progress);
    let value = compile(source, &mut uplink).await?;
    let goal = if shallow { value.shallow().unwrap_or(value) } else { value };
    Ok((goal, uplink.objects.with_goal(goal)))
}

/// The handle that an expression means. Its objects wait in the uplink.
pub(crate) async fn compile(source: &str, uplink: &mut Uplink<'_>) -> anyhow::Result<Handle> {
    let wrong = |error: expression::Error| Stop::new(Code::Usage, error.render(source));
    let expression = parse(source).map_err(wrong)?;
    let mut known = Externals::new();
    for external in externals(&expression) {
        let handle = look_up(&external, uplink).await.map_err(|error| placed(error, &external, source))?;
        known.insert((external.kind, external.name), handle);
    }
    let handle = build(&expression, &known, &mut uplink.objects).map_err(wrong)?;
    Ok(handle)
}

async fn look_up(external: &External, uplink: &mut Uplink<'_>) -> anyhow::Result<Handle> {
    match external.kind {
        ExternalKind::File => uplink.file(external.name.as_ref()).await,
        ExternalKind::Directory => uplink.directory(external.name.as_ref()).await,
        ExternalKind::Label => uplink.node.label(&external.name).await,
    }
}

/// The same error, with the place in the expression if it is about that.
fn placed(error: anyhow::Error, external: &External, source: &str) -> anyhow::Error {
    match error.downcast::<Stop>() {
        Ok(stop) if matches!(stop.code, Code::NotFound | Code::Usage) => {
            let near = (external.kind != ExternalKind::Label).then(|| near_file(&external.name)).flatten();
            let hint = near.map(|near| format!("did you mean @{near}?")).or(stop.suggestion);
            Stop::new(stop.code, external.error(stop.message, hint).render(source)).into()
        }
        Ok(stop) => stop.into(),
        Err(error) => error,
    }
}

/// A file beside the missing one with nearly its name.
fn near_file(name: &str) -> Option<String> {
    const NAMES_MAX: usize = 10_000;
    let path = std::path::Path::new(name);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let names = std::fs::read_dir(folder.unwrap_or(std::path::Path::new("."))).ok()?.take(NAMES_MAX);
    let names: Vec<String> = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    let near = expression::closest(path.file_name()?.to_str()?, names.iter().map(String::as_str))?;
    Some(folder.map_or_else(|| near.to_owned(), |folder| folder.join(near).display().to_string()))
}

/// Sends the bundle, shows progress if anybody looks, and waits for the end.
pub(super) async fn ask(
    bundle: Vec<u8>,
    wishes: &Wishes,
    node: &mut Node,
    output: &Output,
    wanted: bool,
) -> anyhow::Result<Value> {
    let mut progress = Progress::evaluation(output, wanted);
    if !progress.is_shown() {
        let answer = collect(node.evaluate(bundle, wishes, "application/json").await?).await?;
        return serde_json::from_slice(&answer).context("the node's answer is not JSON");
    }
    let mut lines = Lines::of(node.evaluate(bundle, wishes, "application/x-ndjson").await?);
    while let Some(line) = lines.next().await? {
        let line: Value = serde_json::from_slice(&line).context("a line of the node's answer is not JSON")?;
        match line["event"].as_str() {
            Some("progress") => {
                let number = |name: &str| line[name].as_u64().unwrap_or(0);
                let told = Told {
                    applied: number("applied"),
                    waiting: number("waiting"),
                    known: number("known"),
                    done: number("done"),
                    memo_hits: number("memo_hits"),
                };
                progress.tell(told, output);
            }
            Some("result") => return Ok(line),
            Some("failure") => {
                let status = line["status"].as_u64().and_then(|status| u16::try_from(status).ok());
                return Err(Stop::from_problem(status.unwrap_or(0), line).into());
            }
            _ => tracing::debug!(%line, "an event of an unknown kind"),
        }
    }
    Err(Stop::new(Code::Failed, "the node closed the connection before the evaluation's end")
        .suggest("repeat the command: finished steps are remembered")
        .into())
}

/// The lines of a body that arrives piece by piece.
pub(crate) struct Lines {
    body: Incoming,
    rest: Vec<u8>,
}

impl Lines {
    pub(crate) fn of(body: Incoming) -> Self {
        Self { body, rest: Vec::new() }
    }

    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let after = self.rest.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.rest, after)));
            }
            anyhow::ensure!(self.rest.len() <= LINE_BYTES_MAX, "the node sent a line without an end");
            match self.body.frame().await {
                Some(frame) => self.rest.extend_from_slice(&frame?.into_data().unwrap_or_default()),
                None => return Ok(None),
            }
        }
    }
}

fn cost(answer: &Value) -> String {
    let number = |name: &str| answer[name].as_u64().unwrap_or(0);
    let time = human_time(Duration::from_nanos(number("wall_ns")));
    match answer["memo_hit"].as_bool() {
        Some(true) => format!("nothing had to be run, {time}"),
        _ => format!("{} applied, {time}", grouped(number("applied"))),
    }
}

async fn print(answer: &Value, form: Form, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let result = answer["result"].as_str().context("the node's answer has no result")?;
    let result: Handle = result.parse().context("the node's answer has a bad result")?;
    match result.kind() {
        Kind::Blob => {}
        Kind::Tree => return list(result, node, output).await,
        _ => return output.line(&result.to_string()),
    }
    if form == Form::Raw {
        return copy(result, None, node, &mut std::io::stdout().lock(), None).await;
    }
    let most = if form == Form::Auto { TEXT_BYTES_MAX } else { u64::from(u32::MAX) };
    if result.size() > most {
        output.line(&result.to_string())?;
        let size = human_bytes(result.size());
        output.say(&format!("the result is a blob of {size}; `sinew get {result} --to FILE` saves it"));
        return Ok(());
    }
    let repeated = answer["value_hex"].as_str().and_then(from_hex);
    let bytes = match repeated {
        Some(bytes) => bytes,
        None => node.read_whole(result, usize::try_from(result.size())?).await?.to_vec(),
    };
    match rendered(&bytes, form)? {
        Some(text) => output.bytes(text.as_bytes()),
        None => {
            output.line(&result.to_string())?;
            let size = human_bytes(result.size());
            output.say(&format!("the result is {size} that are no text; --as hex or --as raw prints them"));
            Ok(())
        }
    }
}

/// A blob as text with its last line ended; `None` for long bytes that are no text.
fn rendered(bytes: &[u8], form: Form) -> Result<Option<String>, Stop> {
    let ended = |text: &str| {
        let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        format!("{text}{newline}")
    };
    match form {
        Form::Auto => Ok(match printable(bytes) {
            Some(text) => Some(ended(text)),
            None if bytes.len() as u64 <= HEX_BYTES_MAX => Some(ended(&hex(bytes))),
            None => None,
        }),
        Form::Utf8 => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some(ended(text))),
            Err(error) => {
                let message = format!("the result is not UTF-8: {error}");
                Err(Stop::new(Code::Failed, message).suggest("--as hex or --as raw prints it"))
            }
        },
        Form::Hex => Ok(Some(ended(&hex(bytes)))),
        Form::U64 => {
            let mut wide = [0; 8];
            let Some(target) = wide.get_mut(..bytes.len()) else {
                let message = format!("the result has {} bytes; a u64 has at most 8", bytes.len());
                return Err(Stop::new(Code::Failed, message).suggest("--as hex prints it"));
            };
            target.copy_from_slice(bytes);
            Ok(Some(ended(&u64::from_le_bytes(wide).to_string())))
        }
        // Copied without being looked at, before this.
        Form::Raw => Ok(None),
    }
}

#[cfg(test)]
mod tests;
