// SPDX-License-Identifier: Apache-2.0
//! A step of a workflow: an invocation whose arguments are what the workflow's
//! runtime wrote and the results of other steps, and of which only the name of
//! its result comes here (`docs/spec/workflows.md`, section 4).

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use objects::Handle;

use super::recording::{Recording, Running};
use super::trace::Traced;
use super::{Invocation, Passed, apply, failure_of, not_an_answer};
use crate::admission::Permit;
use crate::backend::{EvaluateRequest, Priority};
use crate::body::blocking;
use crate::functions::Phases;
use crate::problem::Problem;
use crate::router::Shared;

/// Arguments up to this are stored without leaving the event loop.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// What an attempt at a step led to.
pub(crate) struct StepEnd {
    /// The blob that its result is. It is held until it is dropped (`Backend::drop_passed`), unless
    /// the step is pure.
    pub(crate) result: Result<Handle, Problem>,
    /// Nothing ran: the result was remembered.
    pub(crate) is_remembered: bool,
    /// An instance came to it.
    pub(crate) has_run: bool,
    /// Another attempt would end in the same way.
    pub(crate) is_final: bool,
    /// Where its time went, if one did.
    pub(crate) times: Option<StepTimes>,
}

/// Where the time of an attempt went.
#[derive(Debug, Clone)]
pub(crate) struct StepTimes {
    /// Until an instance came to it: others were before it, or one had to be made.
    pub(crate) queued: Duration,
    /// In the instance.
    pub(crate) running: Duration,
    /// What that says of it.
    pub(crate) phases: Option<Box<Phases>>,
}

impl StepEnd {
    /// Of what was not begun.
    pub(crate) fn refused(problem: Problem) -> Self {
        Self { result: Err(problem), is_remembered: false, has_run: false, is_final: false, times: None }
    }
}

impl Invocation<'_> {
    /// Makes one attempt, and waits for its end. Dropped before that, it is stopped.
    pub(crate) async fn step(
        self,
        shared: &Arc<Shared>,
        permit: Permit,
        arguments: Vec<u8>,
        results: Vec<Handle>,
    ) -> StepEnd {
        let holding = match self.hold() {
            Ok(holding) => holding,
            Err(problem) => return StepEnd::refused(problem),
        };
        let tracer = shared.tracer.as_ref();
        let samples = |trace| tracer.is_some_and(|tracer| tracer.samples(trace));
        let traced = Traced::begin(self.headers, samples);
        let place = self.place(Some(&traced), tracer.is_some());
        let mut recording = Recording::begin(shared, &self.served, self.id, place, arguments.len());
        if let Some(holding) = holding {
            recording.holds(holding);
        }
        let head = if self.served.is_pure { Vec::new() } else { self.head(traced.own, false, None) };
        let result = self.evaluated(shared, permit, (head, arguments, results), &mut recording).await;
        let (status, failure) = match &result {
            Ok((result, _)) => {
                recording.sends(usize::try_from(result.size()).unwrap_or(usize::MAX));
                (StatusCode::OK, None)
            }
            Err(problem) => (problem.status(), Some(problem.detail().to_owned())),
        };
        let (has_run, times) = (recording.has_report(), recording.step_times());
        recording.end(status, failure);
        let is_remembered = result.as_ref().is_ok_and(|(_, is_remembered)| *is_remembered);
        let result = result.map(|(result, _)| result);
        StepEnd { result, is_remembered, has_run, is_final: false, times }
    }

    async fn evaluated(
        &self,
        shared: &Arc<Shared>,
        permit: Permit,
        brought: (Vec<u8>, Vec<u8>, Vec<Handle>),
        recording: &mut Recording,
    ) -> Result<(Handle, bool), Problem> {
        let served = &self.served;
        let (goal, passed): (Handle, Option<Passed>) = if brought.1.len() <= INLINE_BYTES_MAX {
            apply(shared, served, &brought.0, &brought.1, &brought.2)?
        } else {
            let (shared, served) = (shared.clone(), served.clone());
            blocking(move || apply(&shared, &served, &brought.0, &brought.1, &brought.2)).await??
        };
        let deadline = Some(self.latest().saturating_duration_since(Instant::now()));
        let (priority, is_repeatable) = (Priority::Normal, served.is_pure);
        let request = EvaluateRequest {
            goal,
            deadline,
            priority,
            is_repeatable,
            streams: false,
            by: None,
            recording: None,
            tenant: None,
        };
        let evaluation =
            shared.backend.evaluate(request).map_err(|reason| Problem::busy("evaluator", reason))?;
        let running = Running { evaluation, goal, permit, passing: None, _passed: passed };
        let end = recording.runs(running).evaluation.finished().await;
        recording.ended(&end);
        if let Some(problem) = failure_of(shared, served, &end).await? {
            return Err(problem);
        }
        if end.result.names_tree() {
            return Err(not_an_answer(served, "is a tree"));
        }
        // What others ran meanwhile counts in the evaluation, and not in what this one reports.
        Ok((end.result, served.is_pure && !recording.has_report()))
    }
}
