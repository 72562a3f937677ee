// SPDX-License-Identifier: Apache-2.0
//! Steps that follow one another in one instance (decision 0108): which may, and what has to be had for that beforehand.
//!
//! A step that waits for nothing but another one, is run as that is, and is known to be brief, need not wait until the node
//! has heard of the other one's end: its arguments are sent along, and it begins where that result is. It is a step like any
//! other all the same. When the result is here it becomes an application, and is recorded, counted and retried as one;
//! only that no other instance is looked for.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use objects::Handle;
use tokio::sync::OwnedSemaphorePermit;

use super::graph::Number;
use super::run::Run;
use crate::admission::Permit;
use crate::functions::{Follower, Following, Served};
use crate::invocation::Prepared;
use crate::router::Shared;

/// Steps that follow one, at most.
const FOLLOWERS_MAX: usize = 15;
/// Bytes of their arguments.
const ARGUMENTS_MAX: usize = 64 << 10;
/// Steps that run longer are better begun where the node wants them: the instance is kept from what it was made for.
const BRIEF: Duration = Duration::from_millis(20);
/// Procedures of which it is known how long they run.
const HABITS_MAX: usize = 4096;
/// Of how long one runs usually, the part that the last time counts for.
const LAST_COUNTS: u32 = 4;

/// What steps are like, by their procedures. Of what is not known nothing is expected.
#[derive(Default)]
pub(super) struct Habits(Mutex<HashMap<Handle, Habit>>);

/// What a step is like.
struct Habit {
    /// How long it runs.
    usual: Duration,
    /// The most memory that an instance of its own had lately; `None`: that is not known.
    memory_bytes: Option<u64>,
}

impl Habits {
    pub(super) fn note(&self, procedure: Handle, ran: Duration, memory_bytes: Option<u64>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= HABITS_MAX && !known.contains_key(&procedure) {
            known.clear();
        }
        let habit = known.entry(procedure).or_insert(Habit { usual: ran, memory_bytes });
        let usual = (habit.usual * (LAST_COUNTS - 1) + ran) / LAST_COUNTS;
        // Once is enough to be careful.
        habit.usual = if ran >= BRIEF { ran.max(usual) } else { usual };
        habit.memory_bytes = memory_bytes.or(habit.memory_bytes);
    }

    fn are_brief(&self, procedure: Handle) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&procedure).is_some_and(|habit| habit.usual < BRIEF)
    }

    /// What an instance needs of memory for one.
    fn need_bytes(&self, procedure: Handle) -> Option<NonZeroU64> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&procedure).and_then(|habit| habit.memory_bytes).and_then(NonZeroU64::new)
    }

    /// One has failed where it has followed: it is begun by itself the next time.
    pub(super) fn forget(&self, procedure: Handle) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&procedure);
    }
}

/// The right to be one of so many steps of a function that run at one time, for those that follow one another: by procedure.
pub(super) type Places = HashMap<Handle, OwnedSemaphorePermit>;

/// A step that was sent with the one that it needs.
pub(super) struct Ahead {
    following: Arc<dyn Following>,
    place: usize,
    prepared: Prepared,
    places: Arc<Places>,
}

impl Ahead {
    /// What it is part of, and its place there.
    pub(super) fn claim(&self) -> (Arc<dyn Following>, usize) {
        (self.following.clone(), self.place)
    }

    /// What it is known by, and what is to be held until it has ended.
    pub(super) fn into_parts(self) -> (Prepared, Arc<Places>) {
        (self.prepared, self.places)
    }
}

/// Steps that are sent with one, in their order.
#[derive(Default)]
pub(super) struct Chain {
    steps: Vec<(Number, Prepared)>,
    places: Places,
    pub(super) followers: Vec<Follower>,
}

/// A step that may follow another one, as a `Follower` has it.
struct Next {
    served: Arc<Served>,
    is_brief: bool,
    given_within: Option<NonZeroU64>,
}

impl Run {
    /// What may follow a step that is about to be begun; all of it has the permit of that one, for they run one after the
    /// other.
    pub(super) fn chain(
        &self,
        shared: &Arc<Shared>,
        first: (Number, &Served),
        permit: &Permit,
        place: &mut Option<OwnedSemaphorePermit>,
    ) -> Chain {
        let mut chain = Chain::default();
        let (mut last, served) = first;
        // What a run that goes on after an end of the node was given must be kept before anybody has it; and a tenant's
        // steps are counted as they begin.
        if self.is_declared()
            || self.beginning.tenancy.is_some()
            || self.inner().is_durable()
            || served.is_pure
        {
            return chain;
        }
        let mut bytes = 0;
        while chain.steps.len() < FOLLOWERS_MAX {
            let Some((number, arguments)) = self.waits_for(last) else { break };
            bytes += arguments.len();
            let next = self.next(shared, (last, number)).filter(|_| bytes <= ARGUMENTS_MAX);
            let Some(Next { served: next, is_brief, given_within }) = next else { break };
            if !is_brief && !may_be_kept_from_others(shared, served, &next) {
                break;
            }
            let is_held = next.procedure == served.procedure || chain.places.contains_key(&next.procedure);
            if !is_held {
                let Some(held) = reserved(shared, &next) else { break };
                chain.places.insert(next.procedure, held);
            }
            let prepared = self.prepared(shared, &next, permit.clone());
            let (handler, head) = (self.options(number).0.to_string(), prepared.head().to_vec());
            chain.followers.push(Follower { handler, head, arguments, is_brief, given_within });
            chain.steps.push((number, prepared));
            last = number;
        }
        if !chain.steps.is_empty()
            && let Some(place) = place.take()
        {
            chain.places.insert(served.procedure, place);
        }
        chain
    }

    /// A step that waits for nothing but this one and is run as it is, and its arguments.
    fn waits_for(&self, number: Number) -> Option<(Number, Vec<u8>)> {
        let inner = self.inner();
        let graph = &inner.graph;
        let options = |number| {
            let function = graph.step(number).map(|step| &step.function);
            function.and_then(|function| inner.options.get(function))
        };
        let own = options(number)?;
        let mut waiting = graph.waiting_for(number);
        waiting.find_map(|(number, arguments)| {
            let is_alike = options(number).is_some_and(|other| own.runs_like(other));
            is_alike.then(|| (number, arguments.to_vec()))
        })
    }

    /// What a step is that may follow another one: it is known to be brief, or may be given the other one's result, for nobody
    /// else ever asks for that, not even its own next attempt.
    fn next(&self, shared: &Shared, (last, number): (Number, Number)) -> Option<Next> {
        let (function, options) = self.options(number);
        let functions = shared.backend.functions()?;
        let served = functions.step(&self.beginning.workflow, &options.settings(&function, true)).ok()?;
        let habits = &shared.workflows.habits;
        let is_only = options.retries == 0 && self.inner().graph.is_for(last, number);
        let is_brief = habits.are_brief(served.procedure);
        let given_within = habits.need_bytes(served.procedure).filter(|_| is_only);
        (is_brief || given_within.is_some()).then_some(Next { served, is_brief, given_within })
    }

    /// A step has ended well: those that were sent with it may have begun.
    pub(super) fn goes_ahead(&self, chain: Chain, following: Option<Arc<dyn Following>>) {
        let Some(following) = following else { return };
        let places = Arc::new(chain.places);
        let mut inner = self.inner();
        if inner.is_stopped {
            return;
        }
        if !following.may_have_begun(1) {
            return;
        }
        for ((number, prepared), place) in chain.steps.into_iter().zip(1..) {
            let ahead = Ahead { following: following.clone(), place, prepared, places: places.clone() };
            inner.ahead.insert(number, ahead);
        }
    }
}

/// Whether an instance of one step may be kept by another one for long: no more of that may run at a time, and half of the
/// places of the first one are left to those that begin now.
fn may_be_kept_from_others(shared: &Shared, first: &Served, next: &Served) -> bool {
    let left = shared.workflows.places(first).available_permits();
    next.concurrency <= first.concurrency && left * 2 >= first.concurrency as usize
}

/// A place for a step that is to begin later. Half of a function's places are kept for those that begin now: the step that is to
/// be followed may run for long, or wait for memory that others have for as long as they wait for a place.
fn reserved(shared: &Shared, served: &Served) -> Option<OwnedSemaphorePermit> {
    let places = shared.workflows.places(served);
    let held = places.clone().try_acquire_owned().ok()?;
    (places.available_permits() * 2 >= served.concurrency as usize).then_some(held)
}

impl Run {
    /// What was sent for a step that begins now, if it may have begun. If not, nothing of the rest has, and none of it keeps
    /// others from their places.
    pub(super) fn ahead_of(&self, number: Number) -> Option<Ahead> {
        let ahead = self.inner().ahead.remove(&number)?;
        if ahead.following.may_have_begun(ahead.place) {
            return Some(ahead);
        }
        self.ends_ahead(&ahead.places);
        None
    }

    /// A step that was sent ahead has no result: nothing of what was sent behind it has begun.
    pub(super) fn ends_ahead(&self, places: &Arc<Places>) {
        let over: Vec<_> =
            self.inner().ahead.extract_if(|_, other| Arc::ptr_eq(&other.places, places)).collect();
        drop(over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_brief_that_is_known_to_be_and_one_long_time_is_remembered_for_a_while() {
        let (habits, procedure) = (Habits::default(), Handle::u64(1));
        assert!(!habits.are_brief(procedure), "nothing is known of it");
        habits.note(procedure, Duration::from_millis(1), None);
        assert!(habits.are_brief(procedure));
        habits.note(procedure, Duration::from_millis(50), None);
        let brief_again = (1..20).find(|_| {
            habits.note(procedure, Duration::from_millis(1), None);
            habits.are_brief(procedure)
        });
        assert_eq!(brief_again, Some(4));
        habits.note(procedure, Duration::from_secs(3600), None);
        assert!(!habits.are_brief(procedure));
    }

    #[test]
    fn what_a_step_needs_of_memory_is_known_once_it_has_run_by_itself() {
        let (habits, procedure) = (Habits::default(), Handle::u64(1));
        assert_eq!(habits.need_bytes(procedure), None, "nothing is known of it");
        habits.note(procedure, Duration::from_millis(1), None);
        assert_eq!(habits.need_bytes(procedure), None);
        habits.note(procedure, Duration::from_secs(1), Some(1000));
        // Where it has followed another one, nothing is learned.
        habits.note(procedure, Duration::from_secs(1), None);
        assert_eq!(habits.need_bytes(procedure), NonZeroU64::new(1000));
        habits.forget(procedure);
        assert_eq!((habits.need_bytes(procedure), habits.are_brief(procedure)), (None, false));
    }

    #[test]
    fn very_many_procedures_are_forgotten() {
        let habits = Habits::default();
        (0..HABITS_MAX as u64 + 1).for_each(|number| habits.note(Handle::u64(number), Duration::ZERO, None));
        assert!(habits.are_brief(Handle::u64(HABITS_MAX as u64)) && !habits.are_brief(Handle::u64(0)));
    }
}
