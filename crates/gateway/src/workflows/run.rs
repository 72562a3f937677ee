// SPDX-License-Identifier: Apache-2.0
//! One run of a workflow.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use objects::Handle;
use store::Object;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::JoinSet;

use super::following::Ahead;
use super::graph::{Graph, Made, Number, Refused, STEPS_MAX, State};
use super::journal::{Ledger, is_cancelled};
use super::keeping::{Keeping, MAPPED_KIND};
use super::order::{StepOptions, Steps, Value};
use super::{Beginning, Told, refused};
use crate::admission::{Permit, permit};
use crate::body::blocking;
use crate::client::Client;
use crate::functions::Served;
use crate::invocation::{Invocation, Nesting, Prepared, StepCall, StepEnd, TRACEPARENT, millis, since_1970};
use crate::problem::Problem;
use crate::router::Shared;
use crate::routes::functions::no_functions;
use crate::routes::objects::load;
use crate::unique;

/// Functions of one workflow.
const FUNCTIONS_MAX: usize = 256;
/// Steps of one run that have begun and not ended.
const RUNNING_MAX: usize = 256;
/// The longest result that a workflow's own instance gets.
pub(super) const VALUE_BYTES_MAX: u64 = 64 << 20;
/// What found no room is tried again after this long.
pub(super) const NO_ROOM_PAUSE: Duration = Duration::from_millis(100);
/// What a step's result begins with: the head of a result that says nothing.
pub(super) const RESULT_HEAD: &[u8] = b"\x02\0\0\0{}";
/// A result that was given to the step that follows, and is nowhere else (decision 0110).
const GIVEN: &[u8] = b"\x02\0\0\0{}\x03";
/// How many such one step is given: each is a descriptor.
pub(super) const MAPPED_MAX: usize = 100;
/// Serialized by the runtime of the workflow.
const VALUE_TYPE: &str = "application/vnd.sinew.value";

/// How a run has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    Succeeded,
    Failed(String),
    Cancelled,
}

/// A run.
pub(crate) struct Run {
    id: String,
    pub(super) beginning: Beginning,
    began: Instant,
    began_ms: u64,
    inner: Mutex<Inner>,
    pub(super) tasks: Mutex<JoinSet<()>>,
    /// Held by the order that makes steps.
    making: tokio::sync::Mutex<()>,
    /// A step has ended, or more.
    pub(super) changed: Notify,
    cancelled: tokio::sync::watch::Sender<bool>,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) graph: Graph,
    pub(super) ended: Option<(End, Duration)>,
    pub(super) options: HashMap<Arc<str>, StepOptions>,
    pub(super) ledger: Option<Ledger>,
    pub(super) keeping: Keeping,
    pub(super) held: Vec<Object>,
    pub(super) held_bytes: u64,
    /// Steps that were sent with those that they need, until they are begun here.
    pub(super) ahead: HashMap<Number, Ahead>,
    /// Results that are to be let go.
    pub(super) passed: Vec<Handle>,
    pub(super) is_stopped: bool,
    /// Steps were refused: what would follow has other numbers than its runtime thinks.
    is_broken: bool,
}

impl Inner {
    /// Bytes of memory of a result that is mapped.
    pub(super) fn mapped_bytes(&self, number: usize) -> Option<u64> {
        self.keeping.mapped_bytes(Number::try_from(number).ok()?)
    }

    /// Whether a step of a run that goes on has ended, and is not on the disk.
    pub(super) fn is_open(&self, number: usize) -> bool {
        self.ended.is_none() && Number::try_from(number).is_ok_and(|number| self.keeping.is_open(number))
    }

    /// Whether it goes on after an end of the node.
    pub(super) fn is_durable(&self) -> bool {
        self.ledger.is_some()
    }
}

impl Run {
    pub(super) fn new(mut beginning: Beginning) -> Self {
        let durable = beginning.durable.take();
        let id = match &durable {
            Some(durable) => durable.message.to_string(),
            // What a run calls has the same request id.
            None if beginning.depth > 0 => unique::uuid().to_string(),
            None => beginning.request_id.0.to_string(),
        };
        let inner = Inner { ledger: durable.map(Ledger::new), ..Inner::default() };
        Self {
            id,
            beginning,
            began: Instant::now(),
            began_ms: millis(since_1970()),
            inner: Mutex::new(inner),
            tasks: Mutex::default(),
            making: tokio::sync::Mutex::default(),
            changed: Notify::new(),
            cancelled: tokio::sync::watch::Sender::new(false),
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn workflow(&self) -> &Served {
        &self.beginning.workflow
    }

    pub(super) fn request_id(&self) -> &str {
        &self.beginning.request_id.0
    }

    pub(super) fn began_ms(&self) -> u64 {
        self.began_ms
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when somebody wants it to end.
    pub(super) async fn cancelled(&self) {
        let mut told = self.cancelled.subscribe();
        // The sender is here for as long as this is.
        let _ = told.wait_for(|is_cancelled| *is_cancelled).await;
    }

    /// Whether it is durable, and was cancelled before it began.
    pub(super) async fn was_cancelled(&self, shared: &Arc<Shared>) -> Result<bool, Problem> {
        let message = self.inner().ledger.as_ref().map(Ledger::message);
        let Some(message) = message else { return Ok(false) };
        let shared = shared.clone();
        blocking(move || is_cancelled(&shared, message)).await?
    }

    /// Has it end.
    pub(super) fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    pub(super) async fn order(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        word: &str,
        body: &[u8],
    ) -> Result<Told, Problem> {
        let nothing = Told { content_type: Cow::Borrowed(""), body: Bytes::new() };
        match word {
            "steps" => {
                let steps = Steps::read(body).map_err(|why| bad(&why))?;
                self.make(shared, steps).await.map(|()| nothing)
            }
            "value" => {
                let value: Value = serde_json::from_slice(body).map_err(|error| bad(&error.to_string()))?;
                let body = self.value(shared, &value).await?;
                let settled = self.settled_well().map(|steps| format!("{VALUE_TYPE}; settled={steps}"));
                let content_type = settled.map_or(Cow::Borrowed(VALUE_TYPE), Cow::Owned);
                Ok(Told { content_type, body })
            }
            "settle" => self.settle().await.map(|()| nothing),
            _ => Err(bad("it is none that this node knows")),
        }
    }

    /// Adds steps, and begins those that may.
    pub(super) async fn make(self: &Arc<Self>, shared: &Arc<Shared>, steps: Steps) -> Result<(), Problem> {
        // One order after the other: those that come later have later numbers.
        let _turn = self.making.lock().await;
        let known = {
            let mut inner = self.inner();
            let new = steps.options.keys().filter(|name| !inner.options.contains_key(*name)).count();
            if inner.options.len() + new > FUNCTIONS_MAX || inner.is_broken {
                inner.is_broken = true;
                let why = format!(
                    "a workflow has at most {FUNCTIONS_MAX} functions, and makes no steps after some were refused"
                );
                return Err(refused(StatusCode::UNPROCESSABLE_ENTITY, "bad-steps", &why));
            }
            if inner.graph.counts().all + steps.made.len() > STEPS_MAX {
                inner.is_broken = true;
                let why = Refused::TooMany.to_string();
                return Err(refused(StatusCode::UNPROCESSABLE_ENTITY, "bad-steps", &why));
            }
            inner.options.extend(steps.options);
            inner.ledger.as_mut().map(|ledger| ledger.known(&steps.made))
        };
        // What a run before this one has done is done, if its result is still here.
        let known = match known {
            Some(known) if known.iter().any(Option::is_some) => {
                let shared = shared.clone();
                blocking(move || present(&shared, known)).await?
            }
            _ => Vec::new(),
        };
        let added = self.add(steps.made, &known);
        // Also if not all were: who settles waits for those that were.
        self.go_on(shared);
        self.changed.notify_waiters();
        added
    }

    fn add(&self, made: Vec<Made>, known: &[Option<Handle>]) -> Result<(), Problem> {
        let now = self.elapsed();
        let mut inner = self.inner();
        for (at, made) in made.into_iter().enumerate() {
            let number = match inner.graph.add(made, now) {
                Ok(number) => number,
                Err(error) => {
                    inner.is_broken = true;
                    return Err(refused(StatusCode::UNPROCESSABLE_ENTITY, "bad-steps", &error.to_string()));
                }
            };
            if let Some(Some(result)) = known.get(at) {
                inner.graph.succeed(number, *result, true, now);
            }
        }
        Ok(())
    }

    /// Begins all steps that may begin.
    fn go_on(self: &Arc<Self>, shared: &Arc<Shared>) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        let mut inner = self.inner();
        while inner.ended.is_none() && inner.graph.counts().running < RUNNING_MAX {
            let Some(number) = inner.graph.next() else { break };
            let (run, shared) = (self.clone(), shared.clone());
            tasks.spawn(async move { run.perform(&shared, number).await });
        }
    }

    /// Runs a step to its end.
    async fn perform(self: Arc<Self>, shared: &Arc<Shared>, number: Number) {
        let result = match self.attempts(shared, number).await {
            Ok(end) => self.keep(shared, number, end).await,
            Err(problem) => Err(problem),
        };
        let now = self.elapsed();
        {
            let mut inner = self.inner();
            match result {
                Ok((result, is_remembered)) => inner.graph.succeed(number, result, is_remembered, now),
                Err(problem) => inner.graph.fail(number, &Arc::new(problem), number, now),
            }
        }
        self.go_on(shared);
        self.changed.notify_waiters();
    }

    /// Attempts at a step, until one succeeds or there are no more.
    async fn attempts(&self, shared: &Arc<Shared>, number: Number) -> Result<(Handle, bool, bool), Problem> {
        let (function, options) = self.options(number);
        let served = match &self.beginning.workflow.declaration {
            Some(declaration) => self.callee(shared, declaration, &function)?,
            None => {
                let functions = shared.backend.functions().ok_or_else(no_functions)?;
                let served = functions.step(&self.beginning.workflow, &options.settings(&function, true));
                served.map_err(|error| bad(&error.to_string()))?
            }
        };
        let places = self.may_wait_for(shared, &served).then(|| shared.workflows.places(&served));
        let mut ahead = self.ahead_of(number);
        let mut has_followed = ahead.is_some();
        loop {
            let mut place = match &places {
                // Never closed.
                Some(places) if ahead.is_none() => places.clone().acquire_owned().await.ok(),
                _ => None,
            };
            let end = self.attempt(shared, (number, &served, options.code()), ahead.take(), &mut place).await;
            drop(place);
            if let Some(times) = &end.times {
                self.note(number, times);
                // What the one before has left in the instance is no habit of this one's.
                let memory = times.memory_peak_bytes.filter(|_| !times.has_followed);
                shared.workflows.habits.note(served.procedure, times.running, memory);
            }
            let problem = match end.result {
                Ok(result) => return Ok((result, end.is_remembered, served.is_pure && !self.is_declared())),
                Err(problem) => problem,
            };
            if std::mem::take(&mut has_followed) {
                shared.workflows.habits.forget(served.procedure);
                // What it was given is gone with its instance.
                if self.was_given(number) {
                    return Err(problem);
                }
            }
            // Its time is over before it began: it waited for an instance for all of it.
            let is_late = problem.status() == StatusCode::GATEWAY_TIMEOUT && !end.has_run;
            if is_late || is_no_room(&problem) {
                self.inner().graph.uncount(number);
                tokio::time::sleep(NO_ROOM_PAUSE).await;
                continue;
            }
            let attempts = self.inner().graph.step(number).map_or(0, |step| step.attempts);
            if attempts > options.retries || end.is_final {
                return Err(problem);
            }
            tokio::time::sleep(options.pause(attempts)).await;
        }
    }

    /// Whether a step needs what was given to it where it was made.
    fn was_given(&self, number: Number) -> bool {
        let inner = self.inner();
        let needs = inner.graph.step(number).map(|step| step.needs.as_slice()).unwrap_or_default();
        let is_given = |need: &Number| inner.graph.step(*need).is_some_and(|need| is_given(&need.state));
        needs.iter().any(is_given)
    }

    /// The function of a step, and how it is run.
    pub(super) fn options(&self, number: Number) -> (Arc<str>, StepOptions) {
        let inner = self.inner();
        let function = inner.graph.step(number).map(|step| step.function.clone()).unwrap_or_default();
        let options = inner.options.get(&function).cloned().unwrap_or_default();
        (function, options)
    }

    async fn attempt(
        &self,
        shared: &Arc<Shared>,
        (number, served, code): (Number, &Arc<Served>, Option<Handle>),
        ahead: Option<Ahead>,
        place: &mut Option<OwnedSemaphorePermit>,
    ) -> StepEnd {
        let brought = self.inner().graph.begin(number, self.elapsed());
        let Some((arguments, results)) = brought else {
            let why = "a step began before what it needs was there";
            return StepEnd::refused(Problem::internal("workflow", why));
        };
        if self.is_declared() {
            return self.call(shared, number, served, arguments).await;
        }
        let results = match self.few_mapped(shared, number, results, served.is_pure).await {
            Ok(results) => results,
            Err(problem) => return StepEnd::refused(problem),
        };
        if ahead.is_none() && self.was_given(number) {
            let why = "what it needs was given to it in the instance that had made it, and that has ended";
            return StepEnd::refused(refused(StatusCode::BAD_GATEWAY, "step-lost", why));
        }
        let call = StepCall { arguments, results, code, ..StepCall::default() };
        if let Some(ahead) = ahead {
            let claim = Some(ahead.claim());
            let (prepared, places) = ahead.into_parts();
            let end = self.invoke(shared, served, prepared, StepCall { claim, ..call }).await;
            if end.result.is_err() {
                // What it has of others' places is not kept from them, nor from its own next attempt.
                self.ends_ahead(&places);
            }
            return end;
        }
        let permit = match permit(shared) {
            Ok(permit) => permit,
            Err(problem) => return StepEnd::refused(problem),
        };
        let mut chain = self.chain(shared, (number, served), &permit, place);
        let followers = std::mem::take(&mut chain.followers);
        let prepared = self.prepared(shared, served, permit);
        let mut end = self.invoke(shared, served, prepared, StepCall { followers, ..call }).await;
        if end.result.is_ok() {
            self.goes_ahead(chain, end.following.take());
        }
        end
    }

    /// Results for one step: of those that are mapped more than it can be handed are sent, those that are to be, and all if it is
    /// isolated or pure: what that is remembered by are values, and tickets are different each time.
    async fn few_mapped(
        &self,
        shared: &Arc<Shared>,
        number: Number,
        mut results: Vec<Handle>,
        is_pure: bool,
    ) -> Result<Vec<Handle>, Problem> {
        let is_isolated = self.options(number).1.isolated;
        let sent: Vec<_> = {
            let inner = self.inner();
            let step = inner.graph.step(number);
            let (needs, isolated) =
                step.map(|step| (step.needs.as_slice(), step.isolated.as_slice())).unwrap_or_default();
            let is_mapped = |need: &Number| inner.keeping.mapped_bytes(*need).is_some();
            let mut left = if is_pure || is_isolated { 0 } else { MAPPED_MAX };
            let mut is_sent = |need: &Number| {
                let is_kept = left > 0 && isolated.binary_search(need).is_err();
                left -= usize::from(is_kept);
                !is_kept
            };
            let mapped = needs.iter().copied().enumerate().filter(|(_, need)| is_mapped(need));
            mapped.filter(|(_, need)| is_sent(need)).collect()
        };
        for (place, need) in sent {
            if let Some(result) = results.get_mut(place) {
                *result = self.sent(shared, need, *result).await?;
            }
        }
        Ok(results)
    }

    /// Applies a function of the workflow.
    async fn invoke(
        &self,
        shared: &Arc<Shared>,
        served: &Arc<Served>,
        prepared: Prepared,
        call: StepCall,
    ) -> StepEnd {
        let headers = self.step_headers();
        let invocation = self.invocation(served, &headers, self.beginning.deadline);
        invocation.step(shared, prepared, call).await
    }

    /// The same to results alone.
    pub(super) async fn invoke_alone(
        &self,
        shared: &Arc<Shared>,
        served: &Arc<Served>,
        results: Vec<Handle>,
    ) -> StepEnd {
        let permit = match permit(shared) {
            Ok(permit) => permit,
            Err(problem) => return StepEnd::refused(problem),
        };
        let prepared = self.prepared(shared, served, permit);
        self.invoke(shared, served, prepared, StepCall { results, ..StepCall::default() }).await
    }

    /// What a step of this function is known by from now on.
    pub(super) fn prepared(&self, shared: &Shared, served: &Arc<Served>, permit: Permit) -> Prepared {
        let headers = self.step_headers();
        self.invocation(served, &headers, self.beginning.deadline).prepare(shared, permit)
    }

    pub(super) fn step_headers(&self) -> HeaderMap {
        self.beginning.traceparent.iter().map(|value| (TRACEPARENT, value.clone())).collect()
    }

    /// A request to a function, as this run makes it.
    pub(super) fn invocation<'a>(
        &'a self,
        served: &Arc<Served>,
        headers: &'a HeaderMap,
        deadline: Instant,
    ) -> Invocation<'a> {
        let Beginning { workflow, request_id, depth, tenancy, .. } = &self.beginning;
        let nesting = Nesting { caller: workflow.name.clone(), depth: depth + 1, deadline };
        Invocation {
            served: served.clone(),
            id: request_id,
            method: "POST",
            path: "/",
            query: "",
            headers,
            routed: None,
            client: Client::default(),
            source: "step",
            nesting: Some(nesting),
            tenancy: tenancy.clone(),
            durable: None,
            memory: None,
        }
    }

    /// Whether its steps are calls of the node's functions.
    pub(super) fn is_declared(&self) -> bool {
        self.beginning.workflow.declaration.is_some()
    }

    /// The result of a step, when it is there.
    async fn value(&self, shared: &Arc<Shared>, value: &Value) -> Result<Bytes, Problem> {
        let outcome = self.outcome(value.step);
        let outcome = match value.wait_ms {
            None => outcome.await,
            Some(ms) => match tokio::time::timeout(Duration::from_millis(ms), outcome).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    let why = format!("step {} has no result after {ms} ms", value.step);
                    return Err(refused(StatusCode::REQUEST_TIMEOUT, "step-under-way", &why));
                }
            },
        }?;
        if outcome.size() > VALUE_BYTES_MAX {
            return Err(too_large(value.step, outcome.size()));
        }
        let bytes = self.read(shared, outcome).await?;
        if bytes.first() != Some(&MAPPED_KIND) {
            return Ok(bytes);
        }
        let bytes = self.read(shared, self.sent(shared, value.step, outcome).await?).await?;
        if bytes.len() as u64 > VALUE_BYTES_MAX {
            return Err(too_large(value.step, bytes.len() as u64));
        }
        Ok(bytes)
    }

    /// What became of a step, when it has ended.
    pub(super) async fn outcome(&self, number: Number) -> Result<Handle, Problem> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no end is missed.
            changed.as_mut().enable();
            let outcome = {
                let mut inner = self.inner();
                inner.graph.step(number).ok_or_else(|| bad("there is no such step"))?;
                // What the workflow does may depend on it, and then it must be the same in another life.
                if inner.keeping.is_lost(number) {
                    return Err(unkept(number));
                }
                let is_awaited = inner.keeping.is_awaited(number);
                if is_awaited { None } else { inner.graph.outcome(number) }
            };
            match outcome {
                Some(outcome) => return outcome.map_err(|failure| self.failed(number, failure)),
                None => changed.await,
            }
        }
    }

    /// The value that a step's result is.
    pub(super) async fn read(&self, shared: &Arc<Shared>, result: Handle) -> Result<Bytes, Problem> {
        let bytes = load(shared, result).await?.ok_or_else(|| Problem::object_not_found(result))?;
        if !bytes.starts_with(RESULT_HEAD) {
            return Err(Problem::internal("workflow", "the result of a step is none"));
        }
        Ok(bytes.slice(RESULT_HEAD.len()..))
    }

    /// Waits until all steps have ended.
    pub(super) async fn settle(&self) -> Result<(), Problem> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let inner = self.inner();
                if inner.graph.is_settled() {
                    if let Some(failure) = inner.graph.unseen_failure() {
                        drop(inner);
                        return Err(self.failed(failure.1, failure));
                    }
                    return inner.ledger.as_ref().map_or(Ok(()), Ledger::check);
                }
            }
            changed.await;
        }
    }

    /// How many steps there are, if all of them have ended and none has failed: who has made no more of them need not settle.
    fn settled_well(&self) -> Option<usize> {
        let inner = self.inner();
        let is_well = inner.graph.is_settled() && inner.graph.counts().failed == 0;
        let is_clear = inner.ledger.as_ref().is_none_or(Ledger::is_clear);
        (is_well && is_clear).then(|| inner.graph.counts().all)
    }

    /// The problem of a step, as whoever made it is told.
    fn failed(&self, number: Number, (problem, origin): (Arc<Problem>, Number)) -> Problem {
        let inner = self.inner();
        let step = inner.graph.step(origin);
        let attempts = step.map_or(0, |step| step.attempts);
        let function = step.map_or("", |step| &step.function);
        let of = if origin == number { String::new() } else { format!("step {number} needs it: ") };
        let times = if attempts > 1 { format!(" after {attempts} attempts") } else { String::new() };
        let detail = problem.failure_detail().unwrap_or(problem.detail());
        let why = format!("{of}step {origin}, {function}, failed{times}: {detail}");
        refused(StatusCode::BAD_GATEWAY, "step-failed", &why)
    }

    /// Writes down how it ended.
    pub(super) async fn end(&self, shared: &Arc<Shared>, problem: Option<&Problem>) {
        let is_cancelled = *self.cancelled.borrow();
        let end = match problem {
            _ if is_cancelled => End::Cancelled,
            None => End::Succeeded,
            Some(problem) => End::Failed(problem.detail().to_owned()),
        };
        self.inner().ended = Some((end, self.elapsed()));
        let note = self.inner().ledger.as_ref().map(Ledger::record);
        if let Some(note) = note {
            let document = self.document(super::history::STEPS_KEPT);
            let shared = shared.clone();
            let written = blocking(move || note.write(&shared, document.to_string().as_bytes())).await;
            if let Err(problem) | Ok(Err(problem)) = written {
                tracing::error!(run = self.id, reason = problem.detail(), "a run's end could not be kept");
            }
        }
    }

    /// Stops what still runs, and lets go of all that it held.
    pub(super) fn stop(&self, shared: &Shared) {
        // First: who sees this begins nothing more, and keeps nothing.
        let ahead;
        let passed = {
            let mut inner = self.inner();
            inner.held = Vec::new();
            ahead = std::mem::take(&mut inner.ahead);
            inner.ended.get_or_insert_with(|| (End::Cancelled, self.began.elapsed()));
            inner.is_stopped = true;
            std::mem::take(&mut inner.passed)
        };
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        drop((tasks, ahead));
        passed.into_iter().for_each(|handle| shared.backend.drop_passed(handle));
    }
}

pub(super) fn bad(why: &str) -> Problem {
    refused(
        StatusCode::BAD_REQUEST,
        "bad-order",
        &format!("what the workflow asked for is not understood: {why}"),
    )
}

/// Those results that are here.
fn present(shared: &Shared, mut known: Vec<Option<Handle>>) -> Vec<Option<Handle>> {
    for result in &mut known {
        *result = result.filter(|result| shared.backend.renew(*result).unwrap_or(false));
    }
    known
}

/// Whether a step's result was given to the one that follows it.
pub(super) fn is_given(state: &State) -> bool {
    matches!(state, State::Done(result) if *result == Handle::blob(GIVEN))
}

/// Whether there was only no room for it, so that it can be tried again.
pub(super) fn is_no_room(problem: &Problem) -> bool {
    [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(&problem.status())
}

fn unkept(step: Number) -> Problem {
    let why = format!(
        "the result of step {step} cannot be put on the disk, and what the workflow does may depend on it, also after an end of \
         the node"
    );
    let problem = refused(StatusCode::BAD_GATEWAY, "step-not-kept", &why);
    problem.suggest("the node's log says why; give the step's function more memory, or say values = \"send\"")
}

pub(super) fn too_large(step: Number, bytes: u64) -> Problem {
    let why = format!(
        "the result of step {step} has {bytes} bytes; a workflow itself gets at most {VALUE_BYTES_MAX}"
    );
    let problem = refused(StatusCode::PAYLOAD_TOO_LARGE, "value-too-large", &why);
    problem.suggest("pass the step on to another one, which looks at its result")
}
