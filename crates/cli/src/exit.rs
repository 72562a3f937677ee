// SPDX-License-Identifier: Apache-2.0
//! How the program ends: exit codes, and errors that say what to do next.
//!
//! Codes are part of the command line's contract (`docs/reference/cli.md`).
//! A [`Stop`] travels inside `anyhow::Error`; every other error ends with 1.

use std::io;

use serde_json::{Value, json};

/// Why the program ends without success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// Something failed at run time.
    Failed = 1,
    /// The command line, or an expression in it, is wrong.
    Usage = 2,
    /// The computation ended, and its result is a failure; or a function failed.
    Failure = 3,
    /// No such object, label, function or file.
    NotFound = 4,
    /// The deadline passed.
    Deadline = 5,
    /// The node refuses this client.
    Unauthorised = 6,
    /// No node answers.
    NotRunning = 7,
    /// What is stored is damaged.
    Damaged = 8,
    /// Ctrl-C.
    Interrupted = 130,
    /// A program that was run did something that ends it, as a signal would.
    Aborted = 134,
}

/// A program that was run ended with this code, which is no success. It has said why
/// itself.
#[derive(Debug, thiserror::Error)]
#[error("the program ended with exit code {0}")]
pub(crate) struct Exited(pub(crate) u8);

/// An error with an exit code and advice.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Stop {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) suggestion: Option<String>,
    /// The node's own words, if it answered with a problem.
    pub(crate) problem: Option<Value>,
}

impl Stop {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), suggestion: None, problem: None }
    }

    pub(crate) fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }

    /// From a node's RFC 9457 problem and its status.
    pub(crate) fn from_problem(status: u16, problem: Value) -> Self {
        let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
        let kind = text("type");
        let failure = problem["failure"]["code"].as_str();
        let code = match (failure, status) {
            (Some("deadline"), _) => Code::Deadline,
            (Some("cancelled"), _) => Code::Interrupted,
            (Some(_), _) => Code::Failure,
            (None, 401 | 403) => Code::Unauthorised,
            (None, 404) if !kind.ends_with(":no-such-route") => Code::NotFound,
            (None, 504) => Code::Deadline,
            (None, _) if kind.contains(":failure-") => Code::Failure,
            _ => Code::Failed,
        };
        let message = match failure {
            Some(failure) => failure_message(failure, &problem),
            None if kind.is_empty() => format!("the node answered with status {status}"),
            None => format!("{}: {}", text("title").to_lowercase(), text("detail")),
        };
        let suggestion = match failure {
            Some(_) => explain_command(&problem).or_else(|| Some(text("suggestion"))),
            None => Some(advice(&kind).map_or_else(|| text("suggestion"), str::to_owned)),
        };
        let suggestion = suggestion.filter(|suggestion| !suggestion.is_empty());
        Self { code, message, suggestion, problem: Some(problem) }
    }
}

/// What to do on the command line where the node's advice is for HTTP clients.
fn advice(kind: &str) -> Option<&'static str> {
    match kind.rsplit(':').next()? {
        "label-not-found" => Some("`sinew label` lists all"),
        "object-not-found" => Some("store it with `sinew put`, or evaluate what makes it"),
        "body-too-large" => Some("cut it: `sinew put --shards 64MiB FILE`"),
        "busy" | "answer-timeout" => Some("repeat the command in a moment"),
        "not-ready" => Some("wait a moment; `sinew doctor` tells more"),
        "too-many-labels" => Some("remove some: `sinew label NAME --delete`"),
        "no-such-route" => Some("the node may be older than this command: compare `sinew version`"),
        _ => None,
    }
}

fn failure_message(code: &str, problem: &Value) -> String {
    let detail = problem["failure"]["detail"].as_str().unwrap_or_default();
    let application = problem["failure"]["application"].as_str().unwrap_or("an application");
    let title = problem["title"].as_str().unwrap_or("the computation failed").to_lowercase();
    format!("{title} ({code}): {detail}\n  in {application}")
}

fn explain_command(problem: &Value) -> Option<String> {
    let application = problem["failure"]["application"].as_str()?;
    let advice = match problem["failure"]["code"].as_str()? {
        "deadline" => "give it longer: --deadline 1m",
        "fuel" => "grant more: {fuel: 1000000000} before the procedure, or none to leave it uncounted",
        "trap" => "its arguments are below",
        "memory" => "grant more: {mem: 1GiB} before the procedure, or split the input",
        _ => problem["suggestion"].as_str().unwrap_or_default(),
    };
    Some(format!("{advice}\n       sinew explain {application}"))
}

/// The exit code for an error.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    if is_broken_pipe(error) {
        // Whoever read our output has enough of it.
        return 0;
    }
    if let Some(Exited(code)) = error.downcast_ref() {
        return *code;
    }
    if error.downcast_ref::<node::StoreError>().is_some_and(node::StoreError::is_absence) {
        return Code::NotFound as u8;
    }
    error.downcast_ref::<Stop>().map_or(Code::Failed, |stop| stop.code) as u8
}

/// Whether there is nothing to say about it.
pub(crate) fn is_silent(error: &anyhow::Error) -> bool {
    is_broken_pipe(error) || error.is::<Exited>()
}

/// The error for people: what, why, what next.
pub(crate) fn human(error: &anyhow::Error, colour: bool) -> String {
    let (red, plain) = if colour { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    let mut text = format!("{red}error:{plain} {error}");
    for cause in error.chain().skip(1) {
        text.push_str(&format!("\n  because: {cause}"));
    }
    if let Some(stop) = error.downcast_ref::<Stop>() {
        if let Some(suggestion) = &stop.suggestion {
            text.push_str(&format!("\n  try: {suggestion}"));
        }
        let request = stop.problem.as_ref().and_then(|problem| problem["request_id"].as_str());
        if let Some(request) = request {
            text.push_str(&format!("\n  request: {request}"));
        }
    }
    text
}

/// The error for programs: one JSON line.
pub(crate) fn json(error: &anyhow::Error) -> String {
    let stop = error.downcast_ref::<Stop>();
    let causes: Vec<String> = error.chain().skip(1).map(ToString::to_string).collect();
    let line = json!({"error": {
        "exit_code": code(error),
        "message": error.to_string(),
        "because": causes,
        "suggestion": stop.and_then(|stop| stop.suggestion.clone()),
        "problem": stop.and_then(|stop| stop.problem.clone()),
    }});
    line.to_string()
}

pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    kinds.into_iter().any(|kind| kind == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests;
