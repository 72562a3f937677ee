// SPDX-License-Identifier: Apache-2.0
//! What is told of a run, as JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::graph::{State, Step};
use super::phases::{self, Sums};
use super::run::{End, Inner, Run, is_given};
use crate::usage::micros;

/// Characters of a failure that a step's line has.
const FAILURE_LEN_MAX: usize = 2000;

/// Steps of one function.
#[derive(Default)]
struct OfFunction {
    all: u64,
    running: u64,
    done: u64,
    failed: u64,
    remembered: u64,
    keeping: u64,
    sums: Sums,
}

impl Run {
    /// All of it, with its first steps.
    pub(super) fn document(&self, steps_max: usize) -> Value {
        let inner = self.inner();
        let mut document = self.summary_of(&inner);
        let steps = inner.graph.steps().iter().take(steps_max).enumerate();
        document["graph"] = steps.map(|(number, step)| told(number, step, &inner)).collect();
        document
    }

    /// What there is to be told in a line or two.
    pub(super) fn summary(&self) -> Value {
        self.summary_of(&self.inner())
    }

    fn summary_of(&self, inner: &Inner) -> Value {
        let (state, took) = match &inner.ended {
            None => ("running", self.elapsed()),
            Some((End::Succeeded, took)) => ("succeeded", *took),
            Some((End::Failed(_), took)) => ("failed", *took),
            Some((End::Cancelled, took)) => ("cancelled", *took),
        };
        let counts = inner.graph.counts();
        let open = if inner.ended.is_none() { inner.keeping.open() } else { 0 };
        let mut document = json!({
            "id": self.id(),
            "workflow": self.workflow().name,
            "version": self.workflow().version,
            "request_id": self.request_id(),
            "state": state,
            "durable": inner.is_durable(),
            "began_ms": self.began_ms(),
            "took_us": micros(took),
            "steps": {
                "all": counts.all, "running": counts.running, "done": counts.done.saturating_sub(open), "failed": counts.failed,
                "remembered": counts.remembered, "keeping": open,
            },
            "functions": functions(inner),
        });
        // The functions that are called have names of their own.
        if let Some(declaration) = &self.workflow().declaration {
            for told in document["functions"].as_array_mut().into_iter().flatten() {
                let call =
                    told["function"].as_str().and_then(|name| declaration.call(name)).map(str::to_owned);
                told["call"] = call.into();
            }
        }
        if let Some((End::Failed(reason), _)) = &inner.ended {
            document["failure"] = reason.as_str().into();
        }
        document
    }
}

fn functions(inner: &Inner) -> Vec<Value> {
    let mut functions: BTreeMap<&str, OfFunction> = BTreeMap::new();
    let mut order = Vec::new();
    for (number, step) in inner.graph.steps().iter().enumerate() {
        let of = functions.entry(&step.function).or_insert_with(|| {
            order.push(&*step.function);
            OfFunction::default()
        });
        of.all += 1;
        match step.state {
            State::Running => of.running += 1,
            State::Done(_) if inner.is_open(number) => of.keeping += 1,
            State::Done(_) => of.done += 1,
            State::Failed(..) => of.failed += 1,
            State::Waiting | State::Ready => {}
        }
        of.remembered += u64::from(step.is_remembered);
        of.sums.add(step);
    }
    let told = order.into_iter().filter_map(|name| Some((name, functions.get(name)?)));
    told.map(|(name, of)| {
        let mut document = json!({
            "function": name, "all": of.all, "running": of.running, "done": of.done, "failed": of.failed,
            "remembered": of.remembered, "keeping": of.keeping,
        });
        of.sums.tell(inner.graph.types(), &mut document);
        document
    })
    .collect()
}

/// One step: times are in microseconds since the run began.
fn told(number: usize, step: &Step, inner: &Inner) -> Value {
    let mut document = json!({
        "step": number,
        "function": &*step.function,
        "needs": step.needs,
        "attempts": step.attempts,
        "made_us": micros(step.made),
    });
    let times = [("ready_us", step.ready), ("begun_us", step.begun), ("ended_us", step.ended)];
    for (name, time) in times.into_iter().filter_map(|(name, time)| Some((name, time?))) {
        document[name] = micros(time).into();
    }
    phases::tell(step, inner.graph.types(), &mut document);
    document["has_followed"] = step.has_followed.into();
    let state = match &step.state {
        State::Waiting => "waiting",
        State::Ready => "ready",
        State::Running => "running",
        State::Done(result) => {
            let mapped_bytes = inner.mapped_bytes(number);
            let is_given = is_given(&step.state);
            // Nobody has counted how long that is.
            if !is_given {
                document["result_bytes"] = mapped_bytes.unwrap_or(result.size()).into();
            }
            document["is_mapped"] = mapped_bytes.is_some().into();
            document["is_given"] = is_given.into();
            match step.is_remembered {
                true => "remembered",
                false if inner.is_open(number) => "keeping",
                false => "done",
            }
        }
        State::Failed(problem, origin) => {
            let detail = problem.failure_detail().unwrap_or(problem.detail());
            let cut = detail.floor_char_boundary(FAILURE_LEN_MAX);
            match *origin as usize == number {
                true => document["failure"] = detail[..cut].into(),
                false => document["failed_with"] = (*origin).into(),
            }
            "failed"
        }
    };
    document["state"] = state.into();
    document
}
