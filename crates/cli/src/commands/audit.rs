// SPDX-License-Identifier: Apache-2.0
//! `sinew audit`: runs again what a receipt is about, and compares.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use objects::{BundleWriter, Handle, Receipt, ReceiptStep};
use serde_json::{Value, json};

use super::eval::ask;
use super::receipt::{key_text, of_answer, read};
use crate::exit::{Code, Stop};
use crate::node_api::{Node, Wishes};
use crate::output::Output;
use crate::quantity::{grouped, parse_duration};

/// Differences that are told; the JSON has all.
const TOLD_MAX: usize = 20;

/// Which receipt, and for how long.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sinew audit big.receipt\n  sinew --node http://other:8080 audit big.receipt\n\n\
    The node runs every application of the computation anew, whatever it remembers, and remembers nothing of it.\n\
    Results, inputs, reservations and fuel have to be the same, of each application. The computation and its data\n\
    have to be on that node: `sinew eval` of the same expression brings them there. Exit code 1: they differ."
)]
pub(crate) struct Arguments {
    /// What `sinew eval --receipt` wrote
    #[arg(value_name = "FILE")]
    receipt: PathBuf,
    /// Give up after this long, like 10m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    deadline: Option<Duration>,
    /// Tell the progress, also where stderr is no terminal
    #[arg(long)]
    progress: bool,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let theirs = read(&arguments.receipt)?;
    let ours = run_again(&theirs, arguments, node, output).await?;
    let found = differences(&theirs, &ours);
    let shown = arguments.receipt.display();
    if output.is_json() {
        output.json(&json!({
            "agrees": found.is_empty(), "goal": theirs.statement.goal.to_string(),
            "result": theirs.statement.result.to_string(), "applications": ours.statement.applications,
            "signed_by": key_text(&theirs.statement.node), "run_by": key_text(&ours.statement.node),
            "differences": found.iter().map(Difference::json).collect::<Vec<_>>(),
        }))?;
    }
    if found.is_empty() {
        let applications = grouped(ours.statement.applications);
        let by = if ours.statement.node == theirs.statement.node { "the same node" } else { "another node" };
        return match output.is_json() {
            true => Ok(()),
            false => output.line(&format!(
                "{shown}: {applications} applications run anew by {by}: the same result, the same cost"
            )),
        };
    }
    if !output.is_json() {
        for difference in found.iter().take(TOLD_MAX) {
            output.line(&difference.to_string())?;
        }
        if found.len() > TOLD_MAX {
            output
                .line(&format!("and {} more; -o json has them", grouped((found.len() - TOLD_MAX) as u64)))?;
        }
    }
    let message =
        format!("{shown}: what was run anew differs from what {} signed", key_text(&theirs.statement.node));
    Err(Stop::new(Code::Failed, message)
        .suggest("a third node tells who is wrong: `sinew --node URL audit`; `sinew explain` tells of an application")
        .into())
}

/// The same computation from the beginning, with a receipt of its own.
async fn run_again(
    theirs: &Receipt,
    arguments: &Arguments,
    node: &mut Node,
    output: &Output,
) -> anyhow::Result<Receipt> {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
    let wishes = Wishes {
        deadline_ms: arguments.deadline.map(millis),
        receipt: true,
        fresh: true,
        ..Wishes::default()
    };
    let bundle = BundleWriter::new().goal(theirs.statement.goal);
    let answer = match ask(bundle, &wishes, node, output, arguments.progress).await {
        Ok(answer) => answer,
        Err(error) => answer_of(error)?,
    };
    of_answer(&answer, node).await
}

/// A failure that comes again is a result too.
fn answer_of(error: anyhow::Error) -> anyhow::Result<Value> {
    let stop = error.downcast::<Stop>()?;
    match &stop.problem {
        Some(problem) if problem["receipt"].is_string() => Ok(problem.clone()),
        Some(problem) if problem["failure"]["code"] == "missing-data" => {
            Err(Stop { message: format!("it cannot be run on this node: {}", stop.message), ..stop }
                .suggest("evaluate the same expression there, or `sinew put` its data, and audit again")
                .into())
        }
        _ => Err(stop.into()),
    }
}

/// One thing that is not the same.
#[derive(Debug, PartialEq, Eq)]
struct Difference {
    /// The application that it is about; `None`: the whole.
    application: Option<Handle>,
    what: &'static str,
    signed: String,
    found: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { application, what, signed, found } = self;
        match application {
            Some(application) => write!(f, "{application}: ")?,
            None => f.write_str("the whole: ")?,
        }
        write!(f, "{what} signed as {signed}, found as {found}")
    }
}

impl Difference {
    fn json(&self) -> Value {
        json!({
            "application": self.application.map(|application| application.to_string()), "what": self.what,
            "signed": self.signed, "found": self.found,
        })
    }
}

fn differences(theirs: &Receipt, ours: &Receipt) -> Vec<Difference> {
    let mut found = Vec::new();
    if theirs.statement.result != ours.statement.result {
        found.push(Difference {
            application: None,
            what: "result",
            signed: theirs.statement.result.to_string(),
            found: ours.statement.result.to_string(),
        });
    }
    let mut ran: BTreeMap<Handle, &ReceiptStep> =
        ours.steps.iter().map(|step| (step.application, step)).collect();
    // Of a computation that fails, what else was begun depends on what came first.
    let has_failed = theirs.statement.result.is_failure() && ours.statement.result.is_failure();
    for signed in &theirs.steps {
        match ran.remove(&signed.application) {
            Some(step) => compare(signed, step, &mut found),
            None if has_failed => {}
            None => found.push(presence(signed, "an application", "none")),
        }
    }
    if !has_failed {
        found.extend(ran.into_values().map(|step| presence(step, "none", "an application")));
    }
    found
}

fn presence(step: &ReceiptStep, signed: &str, found: &str) -> Difference {
    let application = Some(step.application);
    Difference { application, what: "application", signed: signed.to_owned(), found: found.to_owned() }
}

fn compare(signed: &ReceiptStep, step: &ReceiptStep, found: &mut Vec<Difference>) {
    let fuel = |step: &ReceiptStep| match step.is_counted {
        true => step.fuel.to_string(),
        false => "uncounted".to_owned(),
    };
    for (what, theirs, ours) in [
        ("result", signed.result.to_string(), step.result.to_string()),
        ("bytes of inputs", signed.inputs_bytes.to_string(), step.inputs_bytes.to_string()),
        ("bytes reserved", signed.reserved_bytes.to_string(), step.reserved_bytes.to_string()),
        ("fuel", fuel(signed), fuel(step)),
    ] {
        if theirs != ours {
            let application = Some(signed.application);
            found.push(Difference { application, what, signed: theirs, found: ours });
        }
    }
}

#[cfg(test)]
mod tests;
