// SPDX-License-Identifier: Apache-2.0
//! Runs that have ended, and the list of all.
//!
//! Those that the queue has are on its disk, for as long as it keeps outcomes;
//! the last ones of all are in memory.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, PoisonError};

use queue::{Id, State, Status};
use serde_json::{Value, json};

use super::run::Run;
use super::{journal, refused};
use crate::functions::{Functions, Served};
use crate::problem::Problem;
use crate::router::Shared;
use crate::text::shortened;
use axum::http::StatusCode;

/// Steps that the record of a run has.
pub(super) const STEPS_KEPT: usize = 10_000;
/// Runs that have ended, in memory.
const KEPT_MAX: usize = 500;
/// How the reason ends with which a run that was cancelled is a dead letter.
pub(crate) const CANCELLED: &str = "was cancelled";
/// Bytes of what is told of them.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// The last runs that have ended, the oldest first.
#[derive(Default)]
pub(super) struct History {
    kept: VecDeque<(String, Value, String)>,
    bytes: usize,
}

impl History {
    pub(super) fn add(&mut self, run: &Run) {
        let text = run.document(STEPS_KEPT).to_string();
        self.bytes += text.len();
        self.kept.push_back((run.id().to_owned(), run.summary(), text));
        while self.kept.len() > 1 && (self.kept.len() > KEPT_MAX || self.bytes > KEPT_BYTES_MAX) {
            self.bytes -= self.kept.pop_front().map_or(0, |(.., text)| text.len());
        }
    }
}

/// Which runs are listed.
pub(crate) struct Wanted<'a> {
    pub(crate) workflow: Option<&'a str>,
    pub(crate) limit: usize,
}

/// Workflows, and runs.
pub(crate) struct Listed {
    pub(crate) workflows: Vec<Arc<Served>>,
    pub(crate) runs: Vec<Value>,
}

/// The last runs, the newest first.
pub(crate) fn list(shared: &Shared, wanted: &Wanted<'_>) -> Listed {
    let mut runs: Vec<Value> = running(shared).iter().map(|run| run.summary()).collect();
    {
        let history = shared.workflows.history.lock().unwrap_or_else(PoisonError::into_inner);
        runs.extend(history.kept.iter().rev().map(|(_, summary, _)| summary.clone()));
    }
    let mut workflows = shared.backend.functions().map(Functions::all).unwrap_or_default();
    workflows.retain(|served| served.is_workflow);
    if let Some(name) = wanted.workflow {
        runs.retain(|run| run["workflow"] == name);
        workflows.retain(|served| served.name == name);
    }
    if let Some(queue) = shared.backend.queue() {
        let known: HashSet<String> = runs.iter().map(|run| text(&run["id"])).collect();
        let queued = workflows.iter().flat_map(|workflow| queue.recent(&workflow.name, wanted.limit));
        let unknown = queued.filter(|status| !known.contains(&status.id.to_string()));
        runs.extend(unknown.map(|status| of_status(&status)));
    }
    runs.sort_by_key(|run| std::cmp::Reverse(run["began_ms"].as_u64()));
    let mut seen = HashSet::new();
    // One that was redriven has run twice under one name.
    runs.retain(|run| seen.insert(text(&run["id"])));
    runs.truncate(wanted.limit);
    Listed { workflows, runs }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn running(shared: &Shared) -> Vec<Arc<Run>> {
    shared.workflows.running().values().cloned().collect()
}

fn live(shared: &Shared, id: &str) -> Option<Arc<Run>> {
    running(shared).into_iter().find(|run| run.id() == id)
}

/// What the queue knows of a run.
fn of_status(status: &Status) -> Value {
    let state = match status.state {
        State::Waiting if status.attempts == 0 => "queued",
        State::Waiting | State::Running => "interrupted",
        State::Succeeded => "succeeded",
        State::Dead if status.reason.ends_with(CANCELLED) => "cancelled",
        State::Dead => "failed",
    };
    let mut told = json!({
        "id": status.id.to_string(), "workflow": status.lane, "state": state, "durable": true,
        "began_ms": status.created_ms,
    });
    if status.ended_ms > 0 {
        told["took_us"] = (status.ended_ms.saturating_sub(status.created_ms) * 1000).into();
    }
    if state == "failed" {
        told["failure"] = status.reason.clone().into();
    }
    told
}

/// What is known of one run. Blocks.
///
/// # Errors
/// If there is none of this id, or the disk fails.
pub(crate) fn find(shared: &Shared, id: &str, with_steps: bool) -> Result<Value, Problem> {
    if let Some(run) = live(shared, id) {
        return Ok(if with_steps { run.document(STEPS_KEPT) } else { run.summary() });
    }
    let kept = {
        let history = shared.workflows.history.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = history.kept.iter().rev().find(|(known, ..)| known == id);
        kept.map(|(_, summary, text)| (summary.clone(), text.clone()))
    };
    let (status, message) = queued(shared, id).unzip();
    // A message that waits is one whose run is not over, whatever came of its last attempt, unless it was
    // cancelled; that of one that has just ended says so a moment later.
    let is_waiting = status.as_ref().is_some_and(|status| status.state == State::Waiting);
    let is_cancelled = kept.as_ref().is_some_and(|(summary, _)| summary["state"] == "cancelled");
    let is_open = is_waiting && !is_cancelled;
    if let Some((summary, text)) = kept.filter(|_| !is_open) {
        return Ok(if with_steps { serde_json::from_str(&text).unwrap_or(summary) } else { summary });
    }
    let (Some(status), Some(message)) = (status, message) else { return Err(unknown(id)) };
    let record = if is_open { None } else { journal::record(shared, message)? };
    let record: Option<Value> = record.and_then(|record| serde_json::from_slice(&record).ok());
    Ok(record.unwrap_or_else(|| of_status(&status)))
}

/// A run that the queue has.
fn queued(shared: &Shared, id: &str) -> Option<(Status, Id)> {
    let message: Id = id.parse().ok()?;
    let status = shared.backend.queue()?.status(message)?;
    let functions = shared.backend.functions()?;
    functions.served(&status.lane, None, 0).filter(|served| served.is_workflow)?;
    Some((status, message))
}

/// Has a run end. Blocks.
///
/// # Errors
/// If there is none of this id, or it has ended.
pub(crate) fn cancel(shared: &Shared, id: &str) -> Result<(), Problem> {
    if let Some((Status { state: State::Waiting | State::Running, .. }, message)) = queued(shared, id) {
        // Also of one that runs: should the node end now, it is not begun again.
        journal::cancel(shared, message)?;
        if let Some(run) = live(shared, id) {
            run.cancel();
        }
        shared.wake.wake();
        return Ok(());
    }
    match live(shared, id) {
        Some(run) => run.cancel(),
        None => {
            find(shared, id, false)?;
            return Err(refused(StatusCode::CONFLICT, "run-ended", &format!("the run {id} has ended")));
        }
    }
    Ok(())
}

fn unknown(id: &str) -> Problem {
    let why = format!("nothing is known of the run {:?}", shortened(id));
    Problem::new(StatusCode::NOT_FOUND, "run-not-found", "No such run", "workflow", why).suggest(
        "`sinew workflow list` lists the last runs; those that nobody made durable are forgotten with the node",
    )
}
