// SPDX-License-Identifier: Apache-2.0
//! The steps of one run, and what each needs: which may begin, and what became
//! of them. No I/O and no clock: callers say what time it is, since the run began.
//!
//! The graph grows while the run goes on. A step names earlier steps only, by
//! their numbers, so that there is no cycle. One that fails takes with it all
//! that need it, which name it as the reason.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use objects::Handle;

use super::phases::{Took, TypeNames};
use crate::invocation::StepTimes;
use crate::problem::Problem;

/// Steps of one run.
pub(super) const STEPS_MAX: usize = 100_000;
/// Earlier steps that one needs.
pub(super) const NEEDS_MAX: usize = 10_000;
/// What all of the steps of a run need together.
const EDGES_MAX: usize = 2_000_000;
/// Bytes of the arguments of all of the steps of a run that have not ended.
pub(super) const ARGUMENTS_MAX: usize = 256 << 20;

/// The number of a step in its run, from 0 on in the order in which they were made.
pub(super) type Number = u32;

/// A step, as a workflow makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Made {
    /// `module.name`.
    pub(super) function: Arc<str>,
    /// Those whose results are among its arguments.
    pub(super) needs: Vec<Number>,
    /// Those of them of which it is sent the values, and maps nothing; in their order.
    pub(super) isolated: Vec<Number>,
    /// The workflow has let go of it: only steps that are made by now are given its result.
    pub(super) is_left: bool,
    /// The others, as the runtime writes them.
    pub(super) arguments: Vec<u8>,
}

/// Where a step is.
#[derive(Debug, Clone)]
pub(super) enum State {
    /// What it needs is not there.
    Waiting,
    /// It may begin.
    Ready,
    Running,
    /// With its result.
    Done(Handle),
    /// With the reason, and the step that failed, which may be an earlier one.
    Failed(Arc<Problem>, Number),
}

/// What is known of a step.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) function: Arc<str>,
    pub(super) needs: Vec<Number>,
    /// Those of them of which it is sent the values, and maps nothing.
    pub(super) isolated: Vec<Number>,
    is_left: bool,
    pub(super) state: State,
    /// Attempts that were begun.
    pub(super) attempts: u32,
    /// Its result was there before: from an attempt at the run that the node did not
    /// survive, or remembered.
    pub(super) is_remembered: bool,
    pub(super) made: Duration,
    /// When all that it needs was there.
    pub(super) ready: Option<Duration>,
    /// When its last attempt began.
    pub(super) begun: Option<Duration>,
    pub(super) ended: Option<Duration>,
    /// Where the time of its last attempt went, if an instance came to it.
    pub(super) took: Option<Box<Took>>,
    /// In that it followed the step that it needs, in the same instance.
    pub(super) has_followed: bool,
    arguments: Vec<u8>,
    /// What it needs that is not there.
    missing: usize,
    /// Those that need it and have not ended.
    wanted_by: Vec<Number>,
    /// Somebody was told of its end, or of that of one that failed with it.
    is_seen: bool,
}

/// How many steps are where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    pub(super) all: usize,
    pub(super) running: usize,
    pub(super) done: usize,
    pub(super) failed: usize,
    pub(super) remembered: usize,
}

/// Why a step cannot be made, for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("a run has at most {STEPS_MAX} steps")]
    TooMany,
    #[error("a step needs at most {NEEDS_MAX} others, and those of a run {EDGES_MAX} together")]
    TooManyNeeds,
    #[error(
        "the arguments of steps that have not ended have {0} bytes together; {ARGUMENTS_MAX} is the most: have a step \
         make what is large, and pass that step on"
    )]
    TooLong(usize),
    #[error("a step needs step {0}, which is none before it")]
    NoSuchStep(Number),
}

/// The steps of a run.
#[derive(Debug, Default)]
pub(super) struct Graph {
    steps: Vec<Step>,
    ready: VecDeque<Number>,
    counts: Counts,
    edges: usize,
    arguments_bytes: usize,
    types: TypeNames,
}

impl Graph {
    /// Adds a step, and gives its number. It is ready at once if all that it
    /// needs is there.
    ///
    /// # Errors
    /// At a bound, or if it needs what is no earlier step; then nothing is added.
    pub(super) fn add(&mut self, made: Made, now: Duration) -> Result<Number, Refused> {
        let Made { function, mut needs, isolated, is_left, arguments } = made;
        let number = Number::try_from(self.steps.len()).map_err(|_| Refused::TooMany)?;
        if self.steps.len() >= STEPS_MAX {
            return Err(Refused::TooMany);
        }
        if needs.len() > NEEDS_MAX || self.edges + needs.len() > EDGES_MAX {
            return Err(Refused::TooManyNeeds);
        }
        let bytes = self.arguments_bytes + arguments.len();
        if bytes > ARGUMENTS_MAX {
            return Err(Refused::TooLong(bytes));
        }
        if let Some(wrong) = needs.iter().find(|need| **need >= number) {
            return Err(Refused::NoSuchStep(*wrong));
        }
        needs.shrink_to_fit();
        self.edges += needs.len();
        self.arguments_bytes = bytes;
        self.counts.all += 1;
        let mut missing = 0;
        let mut failed = None;
        for need in &needs {
            match &mut self.steps[*need as usize] {
                Step { state: State::Done(_), .. } => {}
                Step { state: State::Failed(problem, origin), .. } => {
                    failed.get_or_insert_with(|| (problem.clone(), *origin));
                }
                unfinished => {
                    unfinished.wanted_by.push(number);
                    missing += 1;
                }
            }
        }
        let (state, ready) = match missing {
            0 => (State::Ready, Some(now)),
            _ => (State::Waiting, None),
        };
        self.steps.push(Step {
            function,
            needs,
            isolated,
            is_left,
            state,
            attempts: 0,
            is_remembered: false,
            made: now,
            ready,
            begun: None,
            ended: None,
            took: None,
            has_followed: false,
            arguments,
            missing,
            wanted_by: Vec::new(),
            is_seen: false,
        });
        match failed {
            Some((problem, origin)) => self.fail(number, &problem, origin, now),
            None if missing == 0 => self.ready.push_back(number),
            None => {}
        }
        Ok(number)
    }

    /// The next step that may begin; it runs from now on, though no attempt has begun.
    pub(super) fn next(&mut self) -> Option<Number> {
        while let Some(number) = self.ready.pop_front() {
            let step = &mut self.steps[number as usize];
            if matches!(step.state, State::Ready) {
                step.state = State::Running;
                self.counts.running += 1;
                return Some(number);
            }
        }
        None
    }

    /// An attempt at a step begins: its arguments, and the results that it needs.
    pub(super) fn begin(&mut self, number: Number, now: Duration) -> Option<(Vec<u8>, Vec<Handle>)> {
        let results = self.steps.get(number as usize)?.needs.iter().map(|need| self.result(*need));
        let results = results.collect::<Option<Vec<Handle>>>()?;
        let step = self.steps.get_mut(number as usize)?;
        step.attempts += 1;
        step.begun = Some(now);
        (step.took, step.has_followed) = (None, false);
        Some((step.arguments.clone(), results))
    }

    /// Steps that wait for nothing but this one, and are not sent what others map; with their arguments.
    pub(super) fn waiting_for(&self, number: Number) -> impl Iterator<Item = (Number, &[u8])> {
        let wanted_by = self.step(number).map(|step| step.wanted_by.as_slice()).unwrap_or_default();
        wanted_by.iter().filter_map(move |wanting| {
            let step = self.step(*wanting)?;
            let waits_only = matches!(step.state, State::Waiting) && step.needs == [number];
            (waits_only && step.isolated.is_empty()).then_some((*wanting, step.arguments.as_slice()))
        })
    }

    /// Whether nobody but this other step ever asks for the result of one.
    pub(super) fn is_for(&self, number: Number, other: Number) -> bool {
        self.step(number).is_some_and(|step| step.is_left && step.wanted_by == [other])
    }

    fn result(&self, number: Number) -> Option<Handle> {
        match self.steps.get(number as usize)?.state {
            State::Done(result) => Some(result),
            _ => None,
        }
    }

    /// The last attempt was none: it found no room.
    pub(super) fn uncount(&mut self, number: Number) {
        if let Some(step) = self.steps.get_mut(number as usize) {
            step.attempts = step.attempts.saturating_sub(1);
        }
    }

    /// Where the time of an attempt went that has ended.
    pub(super) fn note(&mut self, number: Number, times: &StepTimes, now: Duration) {
        if let Some(step) = self.steps.get_mut(number as usize) {
            step.took = Some(Box::new(Took::of(times, &mut self.types)));
            step.has_followed = times.has_followed;
            if times.has_followed {
                // What it needs was there then, though not here.
                let begun = now.saturating_sub(times.running).max(step.made);
                step.begun = step.begun.map(|known| known.min(begun));
                step.ready = step.ready.map(|known| known.min(begun));
            }
        }
    }

    /// A step has a result: those that waited for it last may begin.
    pub(super) fn succeed(&mut self, number: Number, result: Handle, is_remembered: bool, now: Duration) {
        let wanted_by = self.end(number, State::Done(result), now);
        let Some(wanted_by) = wanted_by else { return };
        self.counts.done += 1;
        self.counts.remembered += usize::from(is_remembered);
        self.steps[number as usize].is_remembered = is_remembered;
        for wanting in wanted_by {
            let step = &mut self.steps[wanting as usize];
            if !matches!(step.state, State::Waiting) {
                continue;
            }
            step.missing -= 1;
            if step.missing == 0 {
                (step.state, step.ready) = (State::Ready, Some(now));
                self.ready.push_back(wanting);
            }
        }
    }

    /// A step has failed for good, because of itself or of an earlier one, and so
    /// have all that need it.
    pub(super) fn fail(&mut self, number: Number, problem: &Arc<Problem>, origin: Number, now: Duration) {
        let mut failing = vec![number];
        while let Some(number) = failing.pop() {
            if let Some(wanted_by) = self.end(number, State::Failed(problem.clone(), origin), now) {
                self.counts.failed += 1;
                failing.extend(wanted_by);
            }
        }
    }

    /// Ends a step that has not ended, and gives those that need it.
    fn end(&mut self, number: Number, state: State, now: Duration) -> Option<Vec<Number>> {
        let step = self.steps.get_mut(number as usize)?;
        match step.state {
            State::Done(_) | State::Failed(..) => return None,
            State::Running => self.counts.running -= 1,
            State::Waiting | State::Ready => {}
        }
        step.state = state;
        step.ended = Some(now);
        self.arguments_bytes -= step.arguments.len();
        step.arguments = Vec::new();
        Some(std::mem::take(&mut step.wanted_by))
    }

    /// What became of a step, for whoever made it; `None` while that is open.
    pub(super) fn outcome(&mut self, number: Number) -> Option<Result<Handle, (Arc<Problem>, Number)>> {
        let step = self.steps.get_mut(number as usize)?;
        match &step.state {
            State::Done(result) => Some(Ok(*result)),
            State::Failed(problem, origin) => {
                let (problem, origin) = (problem.clone(), *origin);
                step.is_seen = true;
                self.steps[origin as usize].is_seen = true;
                Some(Err((problem, origin)))
            }
            State::Waiting | State::Ready | State::Running => None,
        }
    }

    /// The first step that failed by itself, and of which nobody was told.
    pub(super) fn unseen_failure(&self) -> Option<(Arc<Problem>, Number)> {
        let numbered = self.steps.iter().zip(0..);
        numbered.filter(|(step, _)| !step.is_seen).find_map(|(step, number)| match &step.state {
            State::Failed(problem, origin) if *origin == number => Some((problem.clone(), number)),
            _ => None,
        })
    }

    /// Whether every step has ended.
    pub(super) fn is_settled(&self) -> bool {
        self.counts.done + self.counts.failed == self.counts.all
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn step(&self, number: Number) -> Option<&Step> {
        self.steps.get(number as usize)
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Names of the types of which objects were pickled.
    pub(super) fn types(&self) -> &TypeNames {
        &self.types
    }
}

#[cfg(test)]
mod tests;
