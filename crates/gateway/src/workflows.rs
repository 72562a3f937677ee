// SPDX-License-Identifier: Apache-2.0
//! Workflows: functions whose calls of other functions are steps, of which the
//! gateway knows what each needs (`docs/spec/workflows.md`).
//!
//! A request to a workflow is a *run*. Its instance asks for steps, and for what
//! became of them, over the channel by which functions call functions; the run
//! has their graph, begins what may begin, and ends all of it when the request
//! has ended. One that the queue has goes on where it was when the node ended.

mod declared;
mod document;
mod following;
mod graph;
mod history;
mod journal;
mod keeping;
mod order;
mod phases;
mod run;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use axum::http::{HeaderValue, StatusCode};
use objects::Handle;
use tokio::sync::Semaphore;

pub use declared::Declaration;
pub(crate) use history::{CANCELLED, Listed, Wanted, cancel, find, list};
pub(crate) use journal::{Durable, resume};
pub(crate) use keeping::stands_for_memory;

use crate::functions::Served;
use crate::invocation::Span;
use crate::nested::Caller;
use crate::problem::Problem;
use crate::request_id::RequestId;
use crate::router::Shared;
use crate::tenants::Tenancy;
use following::Habits;
use history::History;
pub(crate) use run::Run;

/// Runs at one time, of all workflows.
const RUNS_MAX: usize = 1000;
/// Of these, those in which there may be runs that other runs wait for.
const NESTED_RUNS_MAX: usize = 500;

/// What a request to a workflow brings to its run.
pub(crate) struct Beginning {
    pub(crate) workflow: Arc<Served>,
    pub(crate) request_id: RequestId,
    /// By which its orders are known.
    pub(crate) span: Option<Span>,
    /// Its own place in its trace.
    pub(crate) traceparent: Option<HeaderValue>,
    pub(crate) deadline: Instant,
    pub(crate) depth: u32,
    pub(crate) tenancy: Option<Arc<Tenancy>>,
    pub(crate) durable: Option<Durable>,
}

/// What became of an order.
pub(crate) struct Told {
    pub(crate) content_type: Cow<'static, str>,
    pub(crate) body: axum::body::Bytes,
}

/// The runs of a node.
#[derive(Default)]
pub(crate) struct Workflows {
    running: Mutex<HashMap<Span, Arc<Run>>>,
    history: Mutex<History>,
    /// Of the steps of one procedure, in whatever runs: how many more may run.
    places: Mutex<HashMap<Handle, Weak<Semaphore>>>,
    habits: Habits,
}

impl Workflows {
    /// Has a run while a request to a workflow is answered, and ends the one with the other.
    pub(crate) async fn run<T, Answered: Future<Output = Result<T, Problem>>>(
        &self,
        shared: &Arc<Shared>,
        beginning: Beginning,
        answered: impl FnOnce(Arc<Run>) -> Answered,
    ) -> Result<T, Problem> {
        let Some(span) = beginning.span else {
            return Err(Problem::internal("gateway", "a run has no name"));
        };
        let is_nested = beginning.depth > 0;
        let run = Arc::new(Run::new(beginning));
        {
            let mut running = self.running();
            if running.len() >= RUNS_MAX {
                return Err(Problem::busy("gateway", format!("{RUNS_MAX} workflows run already")));
            }
            // It must not wait: those that it waited for may wait for it.
            if is_nested && running.len() >= NESTED_RUNS_MAX {
                return Err(too_many_nested());
            }
            running.insert(span, run.clone());
        }
        let under_way = UnderWay { shared, span, run: &run };
        // Whoever cancelled it since its message was looked at found no run.
        if run.was_cancelled(shared).await? {
            run.cancel();
        }
        let result = tokio::select! {
            biased;
            () = run.cancelled() => Err(cancelled(&run)),
            result = answered(run.clone()) => result,
        };
        run.end(shared, result.as_ref().err()).await;
        drop(under_way);
        result
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<Span, Arc<Run>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to be one of so many steps of a procedure that run at one time.
    fn places(&self, served: &Served) -> Arc<Semaphore> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = places.get(&served.procedure).and_then(Weak::upgrade) {
            return known;
        }
        places.retain(|_, known| known.strong_count() > 0);
        let new = Arc::new(Semaphore::new(served.concurrency as usize));
        places.insert(served.procedure, Arc::downgrade(&new));
        new
    }
}

/// A run, for as long as its request is answered.
struct UnderWay<'a> {
    shared: &'a Shared,
    span: Span,
    run: &'a Arc<Run>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let workflows = &self.shared.workflows;
        workflows.running().remove(&self.span);
        self.run.stop(self.shared);
        let mut history = workflows.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.add(self.run);
    }
}

/// What an instance asks of its run: `word` says what.
///
/// # Errors
/// Why it does not get it: also that a step has failed.
pub(crate) async fn order(
    shared: &Arc<Shared>,
    caller: &Caller,
    word: &str,
    body: &[u8],
) -> Result<Told, Problem> {
    let run = caller.span().and_then(|span| shared.workflows.running().get(&span).cloned());
    let run = run.ok_or_else(no_run)?;
    run.order(shared, word, body).await
}

fn no_run() -> Problem {
    let why = "steps are made by a workflow while it runs, and this function is none";
    refused(StatusCode::FORBIDDEN, "no-workflow", why).suggest("add workflow = true to it in sinew.toml")
}

fn too_many_nested() -> Problem {
    let why = format!(
        "{NESTED_RUNS_MAX} workflows run already, and one that another one waits for does not wait for its turn"
    );
    let problem = refused(StatusCode::LOOP_DETECTED, "too-many-nested-runs", &why);
    problem.suggest(
        "have the workflow do what the other one does; or have fewer runs at a time: does it call itself?",
    )
}

fn cancelled(run: &Run) -> Problem {
    let why = format!("the run {} of {} {CANCELLED}", run.id(), run.workflow().name);
    refused(StatusCode::CONFLICT, "run-cancelled", &why)
}

fn refused(status: StatusCode, kind: &str, why: &str) -> Problem {
    Problem::new(status, kind, "The workflow cannot go on so", "workflow", why)
}
