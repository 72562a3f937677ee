// SPDX-License-Identifier: Apache-2.0
//! A run of a workflow that is declared: each step begins when those that it needs have
//! answered, and is given what its declaration says of their answers.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use objects::{Handle, Named};
use tokio::task::JoinSet;

use super::super::graph::{ARGUMENTS_MAX, Made, Number, STEPS_MAX};
use super::super::keeping::MAPPED_KIND;
use super::super::order::Steps;
use super::super::refused;
use super::super::run::{RESULT_HEAD, Run, VALUE_BYTES_MAX, too_large};
use super::given::{Given, arguments, framed, given_with_memory};
use super::template::{Making, Root, kind};
use super::{Declaration, Scope, Step};
use crate::admission::permit;
use crate::body::{blocking, held};
use crate::functions::Served;
use crate::invocation::{Answer, StepEnd, StepTimes};
use crate::nested::DEPTH_MAX;
use crate::problem::Problem;
use crate::router::Shared;
use crate::routes::call::served;

/// What steps are given is made on the event loop if it is so little.
const INLINE_BYTES_MAX: usize = 64 << 10;
/// Answers of one run, together; and those of them that can be looked into.
const ANSWERS_BYTES_MAX: usize = 256 << 20;
const READABLE_BYTES_MAX: usize = 32 << 20;
/// What the steps of one declaration need of those of another one, one by one, and all of a run; beyond it only the last one is named.
const NEEDS_MAX: usize = 1000;
const EDGES_MAX: usize = 1_000_000;
/// Bytes of an answer that a failure shows.
const SHOWN_MAX: usize = 500;

/// What a declared step comes to when all that it needs is there.
enum Prepared {
    /// `when` says no.
    Skipped,
    /// The arguments of each step.
    Steps(Vec<Vec<u8>>),
}

/// How far a run is.
struct Conducting<'a> {
    run: &'a Arc<Run>,
    shared: &'a Arc<Shared>,
    declaration: &'a Arc<Declaration>,
    event: Given,
    /// Of each declared step: what it returned, and the numbers of its steps.
    values: Vec<Option<Given>>,
    numbers: Vec<Vec<Number>>,
    is_begun: Vec<bool>,
    answers: JoinSet<(usize, Result<Given, Problem>)>,
    answers_bytes: usize,
    readable_bytes: usize,
    /// Needs that were told, step by step.
    edges: usize,
}

impl Run {
    /// Goes from step to step, to the result. What does not need a step that has failed goes on.
    pub(crate) async fn conduct(
        self: Arc<Self>,
        shared: &Arc<Shared>,
        declaration: &Arc<Declaration>,
        event: (&str, Bytes),
    ) -> Result<Answer, Problem> {
        let deadline = tokio::time::Instant::from_std(self.beginning.deadline);
        match tokio::time::timeout_at(deadline, self.clone().conducted(shared, declaration, event)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.is_over()),
        }
    }

    async fn conducted(
        self: Arc<Self>,
        shared: &Arc<Shared>,
        declaration: &Arc<Declaration>,
        event: (&str, Bytes),
    ) -> Result<Answer, Problem> {
        let count = declaration.steps.len();
        let mut conducting = Conducting {
            run: &self,
            shared,
            declaration,
            answers_bytes: event.1.len(),
            readable_bytes: 0,
            edges: 0,
            event: Given::of_body(event.0, event.1),
            values: vec![None; count],
            numbers: vec![Vec::new(); count],
            is_begun: vec![false; count],
            answers: JoinSet::new(),
        };
        let failure = conducting.follow().await;
        let settled = self.settle().await;
        failure.map_or(Ok(()), Err)?;
        settled?;
        conducting.result().await
    }

    /// Makes a call of a function of the node.
    pub(in super::super) async fn call(
        &self,
        shared: &Arc<Shared>,
        number: Number,
        served: &Arc<Served>,
        arguments: Vec<u8>,
    ) -> StepEnd {
        match self.called(shared, number, served, arguments).await {
            Ok(end) => end,
            Err(problem) => StepEnd::refused(problem),
        }
    }

    async fn called(
        &self,
        shared: &Arc<Shared>,
        number: Number,
        served: &Arc<Served>,
        arguments: Vec<u8>,
    ) -> Result<StepEnd, Problem> {
        if self.beginning.depth >= DEPTH_MAX {
            let why = format!("{DEPTH_MAX} functions wait for each other already");
            let problem = refused(StatusCode::LOOP_DETECTED, "calls-too-deep", &why);
            return Err(problem.suggest("does the workflow call itself, by way of others, without an end?"));
        }
        if served.declaration.is_none() && !self.may_wait_for(shared, served) && !has_place(shared, served) {
            let why = format!(
                "{} cannot call {} now, which calls it: all of its {} places are taken, maybe by those that would wait \
                 for this call",
                self.beginning.workflow.name, served.name, served.concurrency
            );
            return Err(refused(StatusCode::LOOP_DETECTED, "call-waits-for-itself", &why).suggest(
                "raise concurrency in sinew.toml, or have them call each other in one direction only",
            ));
        }
        let (given, memory) = given_with_memory(arguments.into())
            .ok_or_else(|| Problem::internal("workflow", "a step has no arguments"))?;
        if !memory.is_empty() && !served.maps_values {
            let result = Err(takes_no_memory(served));
            return Ok(StepEnd { is_final: true, ..StepEnd::of(result) });
        }
        let body = given.body().map_err(|why| Problem::internal("workflow", &why))?;
        let mut headers = self.step_headers();
        if let Ok(kind) = HeaderValue::from_str(&body.content_type) {
            headers.insert(CONTENT_TYPE, kind);
        }
        let timeout = self.options(number).1.timeout();
        let own = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let deadline = own.map_or(self.beginning.deadline, |own| own.min(self.beginning.deadline));
        let mut invocation = self.invocation(served, &headers, deadline);
        invocation.memory = Some(self.results_of(&memory)?);
        let ended = invocation.run(shared, permit(shared)?, held(shared, body.bytes.into())?).await;
        // A module and a workflow have no instance, and tell no times.
        let has_run = ended.times.is_some() || served.is_codelet || served.declaration.is_some();
        // What it says of parts that only steps of its own have, is nobody's.
        let times = ended.times.map(|times| StepTimes { phases: None, ..times });
        let (result, is_final) = match ended.answer {
            Ok(Answer { memory: Some(memory), .. }) => (Ok(memory), false),
            Ok(answer) if answer.status.as_u16() >= 300 || is_encoded(&answer) => {
                (Err(not_taken(served, &answer)), !is_passing(answer.status))
            }
            Ok(answer) => (kept(shared, answer).await, false),
            Err(problem) => (Err(problem), false),
        };
        Ok(StepEnd { has_run, is_final, times, ..StepEnd::of(result) })
    }

    /// What stands for the memory that steps made.
    fn results_of(&self, steps: &[Number]) -> Result<Vec<Handle>, Problem> {
        let mut inner = self.inner();
        let result = |step: &Number| inner.graph.outcome(*step).and_then(Result::ok);
        let results = steps.iter().map(result).collect::<Option<Vec<_>>>();
        results
            .ok_or_else(|| Problem::internal("workflow", "a step is given memory of one that has not ended"))
    }

    /// That it has taken longer than it may.
    fn is_over(&self) -> Problem {
        let workflow = &self.beginning.workflow;
        let why = format!(
            "{}, version {}, has not ended after {:?}",
            workflow.name, workflow.version, workflow.timeout
        );
        let title = "The workflow took too long";
        let problem = Problem::new(StatusCode::GATEWAY_TIMEOUT, "deadline", title, "workflow", why);
        problem.suggest(
            "raise timeout in sinew.toml; `sinew workflow describe --steps` shows where the time went",
        )
    }

    /// Whether a step may wait for a place of its function's: a workflow that is declared has no places, and
    /// what calls this one again may have them all while it waits for it.
    pub(in super::super) fn may_wait_for(&self, shared: &Shared, served: &Served) -> bool {
        let workflow = &self.beginning.workflow;
        workflow.declaration.is_none()
            || (served.declaration.is_none()
                && !shared.calls.could_wait_for_itself(&workflow.name, &served.name))
    }

    /// The function that a step of this name calls.
    pub(in super::super) fn callee(
        &self,
        shared: &Shared,
        declaration: &Declaration,
        name: &str,
    ) -> Result<Arc<Served>, Problem> {
        let step = declaration.step(name);
        let step = step.ok_or_else(|| Problem::internal("workflow", "a step is of no declaration"))?;
        served(shared, &step.call, &HeaderMap::new())
    }

    /// What a declared step returned: one answer, or those of all.
    async fn answer_of(
        &self,
        shared: &Arc<Shared>,
        numbers: &[Number],
        (is_each, may_fail): (bool, bool),
    ) -> Result<Given, Problem> {
        let mut answers = Vec::with_capacity(numbers.len());
        let mut bytes = 0;
        for number in numbers {
            let result = match self.outcome(*number).await {
                Err(_) if may_fail => {
                    answers.push(Given::json(serde_json::Value::Null));
                    continue;
                }
                result => result?,
            };
            bytes += result.size();
            if bytes > ANSWERS_BYTES_MAX as u64 {
                return Err(too_much(ANSWERS_BYTES_MAX));
            }
            if result.size() > VALUE_BYTES_MAX {
                return Err(too_large(*number, result.size()));
            }
            let frame = self.read(shared, result).await?;
            if frame.first() == Some(&MAPPED_KIND) {
                answers.push(Given::Memory(*number));
                continue;
            }
            let given = Given::read(frame);
            answers.push(given.ok_or_else(|| Problem::internal("workflow", "a step's result is no answer"))?);
        }
        match is_each {
            true => Ok(Given::List(answers.into())),
            false => answers.pop().ok_or_else(|| Problem::internal("workflow", "a step has no answer")),
        }
    }
}

impl Conducting<'_> {
    /// Begins what may begin, until all has ended that can. The first failure, if there is one.
    async fn follow(&mut self) -> Option<Problem> {
        let mut failure = None;
        loop {
            while let Some(at) = self.next() {
                self.is_begun[at] = true;
                if let Err(problem) = self.begin(at).await {
                    failure.get_or_insert(problem);
                }
            }
            let (at, answer) = match self.answers.join_next().await {
                None => return failure,
                Some(Ok(ended)) => ended,
                Some(Err(error)) => return Some(Problem::internal("workflow", error.to_string())),
            };
            match answer.and_then(|answer| self.counted(answer)) {
                Ok(answer) => self.values[at] = Some(answer),
                Err(problem) => drop(failure.get_or_insert(problem)),
            }
        }
    }

    fn next(&self) -> Option<usize> {
        let is_there = |need: &usize| self.values[*need].is_some();
        let steps = self.declaration.steps.iter().enumerate();
        let mut steps = steps.filter(|(at, step)| !self.is_begun[*at] && step.needs.iter().all(is_there));
        steps.next().map(|(at, _)| at)
    }

    fn counted(&mut self, answer: Given) -> Result<Given, Problem> {
        let (bytes, readable) = answer.bytes();
        self.answers_bytes += bytes;
        self.readable_bytes += readable;
        match (self.answers_bytes > ANSWERS_BYTES_MAX, self.readable_bytes > READABLE_BYTES_MAX) {
            (true, _) => Err(too_much(ANSWERS_BYTES_MAX)),
            (_, true) => Err(too_much(READABLE_BYTES_MAX)),
            _ => Ok(answer),
        }
    }

    async fn begin(&mut self, at: usize) -> Result<(), Problem> {
        let (declaration, event, values) =
            (self.declaration.clone(), self.event.clone(), self.values.clone());
        let step = &self.declaration.steps[at];
        let given = step.needs.iter().filter_map(|need| values[*need].as_ref());
        let bytes: usize = given.chain([&event]).map(|given| given.bytes().0).sum();
        // Each item may have all of it.
        let items = if step.each.is_some() { bytes.max(1) } else { 1 };
        let most = bytes.saturating_mul(step.with.references().max(1)).saturating_mul(items);
        let room = STEPS_MAX - self.run.inner().graph.counts().all;
        let prepared = if most <= INLINE_BYTES_MAX {
            step.prepared(&event, &values, room)
        } else {
            blocking(move || declaration.steps[at].prepared(&event, &values, room)).await?
        };
        let prepared = prepared.map_err(|why| {
            let why = format!("step {}: {why}", step.name);
            refused(StatusCode::BAD_GATEWAY, "step-not-given", &why)
                .suggest("`sinew workflow describe --steps` shows what has ended; the declaration names what is not there")
        })?;
        let arguments = match prepared {
            Prepared::Skipped => {
                self.values[at] = Some(Given::json(serde_json::Value::Null));
                return Ok(());
            }
            Prepared::Steps(arguments) => arguments,
        };
        self.make(at, arguments).await
    }

    /// Makes the steps of a declared one, and waits for them aside.
    async fn make(&mut self, at: usize, arguments: Vec<Vec<u8>>) -> Result<(), Problem> {
        let step = &self.declaration.steps[at];
        let function: Arc<str> = step.name.as_str().into();
        let kind = (step.each.is_some(), step.may_fail);
        // Nobody else makes steps of this run.
        let first = self.run.inner().graph.counts().all;
        let count = arguments.len();
        let mut made = Vec::with_capacity(count);
        for (index, arguments) in arguments.into_iter().enumerate() {
            let needs = self.needs(step, index, count);
            self.edges += needs.len();
            let function = function.clone();
            made.push(Made { function, isolated: Vec::new(), is_left: false, needs, arguments });
        }
        let given = step.needs.iter().flat_map(|need| &self.numbers[*need]);
        self.run.unkeep(given, first..first + count);
        let steps = Steps { options: [(function.clone(), step.options.clone())].into(), made };
        self.run.make(self.shared, steps).await?;
        let numbers = first..first + count;
        let numbers: Vec<Number> = numbers.filter_map(|number| Number::try_from(number).ok()).collect();
        self.numbers[at].clone_from(&numbers);
        let (run, shared) = (self.run.clone(), self.shared.clone());
        self.answers.spawn(async move { (at, run.answer_of(&shared, &numbers, kind).await) });
        Ok(())
    }

    /// The steps that one of so many needs: of one that was made for each of the same, only the one of its own place.
    fn needs(&self, step: &Step, index: usize, count: usize) -> Vec<Number> {
        let mut own = None;
        if let Some(each) = &step.each {
            each.visit(&mut |reference| {
                if let Root::Step(at) = reference.root
                    && reference.is_whole()
                    && self.numbers[at].len() == count
                {
                    own = Some(at);
                }
            });
        }
        // One that may fail does not take others with it: what it returned is among their arguments.
        let needs =
            step.needs.iter().filter(|need| !self.declaration.steps[**need].may_fail).flat_map(|need| {
                let numbers = &self.numbers[*need];
                match own {
                    Some(own) if own == *need => numbers.get(index..=index),
                    _ if numbers.len() > NEEDS_MAX || self.edges + numbers.len() > EDGES_MAX => {
                        numbers.get(numbers.len().saturating_sub(1)..)
                    }
                    _ => Some(numbers.as_slice()),
                }
            });
        needs.flatten().copied().collect()
    }

    async fn result(&self) -> Result<Answer, Problem> {
        let (declaration, event, values) =
            (self.declaration.clone(), self.event.clone(), self.values.clone());
        let given = move || {
            let scope = Scope { event: &event, steps: &values, item: None };
            declaration.result.given(&scope)?.body()
        };
        let most = self.answers_bytes.saturating_mul(self.declaration.result.references().max(1));
        let body = if most <= INLINE_BYTES_MAX { given() } else { blocking(given).await? };
        let body = body.map_err(|why| {
            refused(StatusCode::BAD_GATEWAY, "step-not-given", &format!("result: {why}"))
                .suggest("`result` in sinew.toml names what is not there")
        })?;
        if let Some(step) = body.memory.first() {
            let name = self.run.options(*step).0;
            let why = format!("result: what {name} returned is memory, which only steps can map");
            let problem = refused(StatusCode::BAD_GATEWAY, "memory-is-no-answer", &why);
            return Err(problem.suggest("hand it to one more step, which answers with what it finds there"));
        }
        let kind = HeaderValue::from_str(&body.content_type).ok();
        let headers = kind.map(|kind| (CONTENT_TYPE, kind)).into_iter().collect();
        Ok(Answer { status: StatusCode::OK, headers, body: body.bytes, memory: None })
    }
}

impl Step {
    /// What it comes to; there may be `room` steps.
    fn prepared(&self, event: &Given, steps: &[Option<Given>], room: usize) -> Result<Prepared, String> {
        let scope = |item| Scope { event, steps, item };
        if let Some(when) = &self.when {
            let told = when.given(&scope(None)).map_err(|why| format!("when: {why}"))?;
            if !is_so(&told).map_err(|why| format!("when: {why}"))? {
                return Ok(Prepared::Skipped);
            }
        }
        let arguments = |item| {
            let body = self.with.given(&scope(item)).and_then(|given| given.body());
            body.map(|body| arguments(&body)).map_err(|why| format!("with: {why}"))
        };
        let Some(each) = &self.each else { return Ok(Prepared::Steps(vec![arguments(None)?])) };
        let each = each.given(&scope(None)).map_err(|why| format!("each: {why}"))?;
        let items = items(&each, room).map_err(|why| format!("each: {why}"))?;
        let (mut all, mut bytes) = (Vec::with_capacity(items.len()), 0);
        for (index, item) in items.iter().enumerate() {
            let one = arguments(Some((item, index)))?;
            bytes += one.len();
            if bytes > ARGUMENTS_MAX {
                return Err(format!(
                    "with: what its {} steps are given has more than {ARGUMENTS_MAX} bytes",
                    items.len()
                ));
            }
            all.push(one);
        }
        Ok(Prepared::Steps(all))
    }
}

/// What there is one step for, each.
fn items(each: &Given, room: usize) -> Result<Vec<Given>, String> {
    let too_many =
        |count| format!("it has {count} items, and a run has at most {STEPS_MAX} steps, {room} more");
    if let Some(items) = each.items() {
        return if items.len() <= room { Ok(items.to_vec()) } else { Err(too_many(items.len())) };
    }
    let value = each.value(&mut Making::new())?;
    // What was skipped has none.
    match &*value {
        serde_json::Value::Array(items) if items.len() > room => Err(too_many(items.len())),
        serde_json::Value::Array(items) => Ok(items.iter().cloned().map(Given::json).collect()),
        serde_json::Value::Null => Ok(Vec::new()),
        other => Err(format!("it is {}, and no list", kind(other))),
    }
}

/// Whether `when` says yes: with all but `false`, `null`, 0, and what is empty.
fn is_so(told: &Given) -> Result<bool, String> {
    use serde_json::Value;
    Ok(match &*told.value(&mut Making::new())? {
        Value::Null => false,
        Value::Bool(is_so) => *is_so,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    })
}

/// Has an answer be the result of a step.
async fn kept(shared: &Arc<Shared>, answer: Answer) -> Result<Handle, Problem> {
    let (is_short, shared) = (answer.body.len() <= INLINE_BYTES_MAX, shared.clone());
    let keep = move || {
        let content_type = answer.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let frame = [RESULT_HEAD, &framed(content_type.unwrap_or_default(), &answer.body)].concat();
        let result = Named::blob(&frame);
        shared.backend.pass_many(&[result]).map_err(|error| Problem::store(&error))?;
        Ok(result.handle())
    };
    if is_short { keep() } else { blocking(keep).await? }
}

/// Whether its body is not what its content type says, but that compressed.
fn is_encoded(answer: &Answer) -> bool {
    answer.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity")
}

/// Whether the same request may be taken another time.
fn is_passing(status: StatusCode) -> bool {
    status.is_server_error() || [408, 425, 429].contains(&status.as_u16())
}

fn too_much(most: usize) -> Problem {
    let why = format!("the answers of its steps have more than {most} bytes together");
    let problem = refused(StatusCode::PAYLOAD_TOO_LARGE, "values-too-large", &why);
    problem
        .suggest("have steps put what is large somewhere and return where; or write the workflow in Python")
}

fn has_place(shared: &Shared, served: &Served) -> bool {
    shared.backend.functions().is_some_and(|functions| functions.has_place(served))
}

/// That what a function would be given is memory, and it maps none.
fn takes_no_memory(served: &Served) -> Problem {
    let why = format!(
        "{}, version {}, is given memory of another step, and maps none",
        served.name, served.version
    );
    let problem = refused(StatusCode::BAD_GATEWAY, "maps-no-memory", &why);
    problem.suggest(
        "only native functions with values = \"map\" do; or have the other one answer with sinew_answer",
    )
}

/// That a function did not take its request.
fn not_taken(served: &Served, answer: &Answer) -> Problem {
    let cut = answer.body.len().min(SHOWN_MAX);
    let body = String::from_utf8_lossy(&answer.body[..cut]);
    let how = if is_encoded(answer) { " with an encoded body, which no step can be given" } else { "" };
    let why = format!("{}, version {}, answered {}{how}: {body}", served.name, served.version, answer.status);
    let title = "A function did not take what it was given";
    let problem = Problem::new(StatusCode::BAD_GATEWAY, "step-refused", title, "function", why);
    problem.suggest(format!("`sinew logs {}` shows what it printed", served.name))
}
