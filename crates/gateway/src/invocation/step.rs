// SPDX-License-Identifier: Apache-2.0
//! A step of a workflow: an invocation whose arguments are what the workflow's
//! runtime wrote and the results of other steps, and of which only the name of
//! its result comes here (`docs/spec/workflows.md`, section 4).

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use objects::{Handle, TreeBuilder};

use super::recording::{Recording, Running};
use super::trace::Traced;
use super::{Invocation, Passed, apply, failure_of, not_an_answer};
use crate::admission::Permit;
use crate::backend::{EvaluateRequest, Priority};
use crate::body::blocking;
use crate::functions::{Follower, Following, Phases, Served};
use crate::problem::Problem;
use crate::router::Shared;

/// What has begun, and cannot be asked for, is asked for again after this long.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(20);
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
    /// What was begun behind it, maybe.
    pub(crate) following: Option<Arc<dyn Following>>,
}

/// What a step is known by, before it is begun: its place in its trace, and what it is told of its request.
pub(crate) struct Prepared {
    permit: Permit,
    traced: Traced,
    head: Vec<u8>,
}

impl Prepared {
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }
}

/// What a step is given, and what it has to do with those before it and behind it.
#[derive(Default)]
pub(crate) struct StepCall {
    /// As the workflow's runtime wrote them.
    pub(crate) arguments: Vec<u8>,
    pub(crate) results: Vec<Handle>,
    /// It was sent with the step that it needs, at this place, and may have begun.
    pub(crate) claim: Option<(Arc<dyn Following>, usize)>,
    /// What is sent with it.
    pub(crate) followers: Vec<Follower>,
    /// What of its code the result can depend on, if it is pure and that is not all.
    pub(crate) code: Option<Handle>,
}

/// Where the time of an attempt went.
#[derive(Debug, Clone)]
pub(crate) struct StepTimes {
    /// Until an instance came to it: others were before it, or one had to be made.
    pub(crate) queued: Duration,
    /// In the instance.
    pub(crate) running: Duration,
    /// The most memory that the instance had until its end, if that is known.
    pub(crate) memory_peak_bytes: Option<u64>,
    /// What that says of it.
    pub(crate) phases: Option<Box<Phases>>,
    /// It followed another step in its instance, and began before it was asked for.
    pub(crate) has_followed: bool,
}

impl StepEnd {
    /// Of what was not begun.
    pub(crate) fn refused(problem: Problem) -> Self {
        Self::of(Err(problem))
    }

    /// Of what only this is known.
    pub(crate) fn of(result: Result<Handle, Problem>) -> Self {
        let (is_remembered, has_run, is_final) = (false, false, false);
        Self { result, is_remembered, has_run, is_final, times: None, following: None }
    }
}

impl Invocation<'_> {
    /// What its step is known by.
    pub(crate) fn prepare(&self, shared: &Shared, permit: Permit) -> Prepared {
        let tracer = shared.tracer.as_ref();
        let traced = Traced::begin(self.headers, |trace| tracer.is_some_and(|tracer| tracer.samples(trace)));
        let head = if self.served.is_pure { Vec::new() } else { self.head(traced.own, false, None) };
        Prepared { permit, traced, head }
    }

    /// Makes one attempt, and waits for its end. Dropped before that, it is stopped.
    pub(crate) async fn step(self, shared: &Arc<Shared>, prepared: Prepared, call: StepCall) -> StepEnd {
        let holding = match self.hold() {
            Ok(holding) => holding,
            Err(problem) => return StepEnd::refused(problem),
        };
        let place = self.place(Some(&prepared.traced), shared.tracer.is_some());
        let mut recording = Recording::begin(shared, &self.served, self.id, place, call.arguments.len());
        if let Some(holding) = holding {
            recording.holds(holding);
        }
        let mut following = None;
        let result = self.evaluated(shared, prepared, call, &mut recording, &mut following).await;
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
        StepEnd { result, is_remembered, has_run, is_final: false, times, following }
    }

    async fn evaluated(
        &self,
        shared: &Arc<Shared>,
        Prepared { permit, head, .. }: Prepared,
        call: StepCall,
        recording: &mut Recording,
        following: &mut Option<Arc<dyn Following>>,
    ) -> Result<(Handle, bool), Problem> {
        let served = &self.served;
        let StepCall { arguments, results, claim, followers, code } = call;
        let applied = {
            let (shared, served) = (shared.clone(), served.clone());
            let is_brief = arguments.len() <= INLINE_BYTES_MAX && code.is_none();
            let apply = move || Applied::of(&shared, &served, code, &head, &arguments, &results);
            if is_brief { apply() } else { blocking(apply).await? }
        };
        let Applied { goal, passed, alike } = applied?;
        if let (Some((before, place)), Some(application)) = (&claim, goal.thunk()) {
            before.claim(*place, application);
        }
        if let (false, Some(application), Some(functions)) =
            (followers.is_empty(), goal.thunk(), shared.backend.functions())
        {
            *following = functions.follow(application, followers);
        }
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
        let until = self.latest();
        let evaluation = loop {
            match shared.backend.evaluate(request.clone()) {
                Ok(evaluation) => break evaluation,
                // What has begun is not begun again because there is no room to hear of it.
                Err(_) if claim.is_some() && Instant::now() < until => {
                    tokio::time::sleep(NO_ROOM_PAUSE).await;
                }
                Err(reason) => return Err(Problem::busy("evaluator", reason)),
            }
        };
        let running = Running { evaluation, goal, permit, passing: None, _passed: passed };
        let end = recording.runs(running).evaluation.finished().await;
        recording.ended(&end);
        if let Some(problem) = failure_of(shared, served, &end).await? {
            return Err(problem);
        }
        if end.result.names_tree() {
            return Err(not_an_answer(served, "is a tree"));
        }
        if let (Some(alike), Some(application)) = (alike, goal.thunk()) {
            shared.backend.note_alike(alike, application);
        }
        // What others ran meanwhile counts in the evaluation, and not in what this one reports.
        Ok((end.result, served.is_pure && !recording.has_report()))
    }
}

/// What is evaluated for a step.
struct Applied {
    goal: Handle,
    passed: Option<Passed>,
    /// What the application is to be known by, if it is not yet.
    alike: Option<Handle>,
}

impl Applied {
    /// The step's own application, or one whose result is known and must be the same, by what the code of both can depend on.
    fn of(
        shared: &Arc<Shared>,
        served: &Served,
        code: Option<Handle>,
        head: &[u8],
        arguments: &[u8],
        results: &[Handle],
    ) -> Result<Self, Problem> {
        let alike = code.and_then(|code| alike(served, code, head, arguments, results));
        if let Some(goal) = alike.and_then(|alike| shared.backend.known_alike(alike)) {
            return Ok(Self { goal, passed: None, alike: None });
        }
        let (goal, passed) = apply(shared, served, head, arguments, results)?;
        Ok(Self { goal, passed, alike })
    }
}

/// What stands for all applications that differ only in code which their result cannot depend on: the same application, with what it
/// can depend on in the place of its code. It is never evaluated.
fn alike(served: &Served, code: Handle, head: &[u8], arguments: &[u8], results: &[Handle]) -> Option<Handle> {
    let [limits, runtime, _, layers, settings] = *served.prefix.as_slice() else { return None };
    let mut tree: TreeBuilder = [limits, runtime, code, layers, settings].into_iter().collect();
    tree.push(Handle::blob(head));
    tree.push(Handle::blob(arguments));
    for result in results {
        tree.push(*result);
    }
    tree.view().handle().application()
}
