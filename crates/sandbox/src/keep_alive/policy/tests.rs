// SPDX-License-Identifier: Apache-2.0
//! Each rule by itself, and what must hold whatever happens.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::super::decision::{
    Decision, Found, FunctionId, InstanceId, PolicyOptions, RefuseReason, Settings, StopReason, Ticket,
};
use super::Policy;
use crate::Home;

mod provided;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const MIB: u64 = 1 << 20;
const A: FunctionId = FunctionId(1);
const B: FunctionId = FunctionId(2);
const C: FunctionId = FunctionId(3);

fn options() -> PolicyOptions {
    PolicyOptions { memory_bytes: 100 * MIB, instances_max: 100, ..PolicyOptions::default() }
}

fn settings() -> Settings {
    Settings { instances_max: 8, idle_max: None, size_bytes: 40 * MIB }
}

fn used(ticket: u64, instance: u64, found: Found) -> Decision {
    Decision::Use { ticket: Ticket(ticket), instance: InstanceId(instance), found }
}

fn start(function: FunctionId, instance: u64) -> Decision {
    Decision::Start { function, instance: InstanceId(instance) }
}

fn stop(instance: u64, reason: StopReason) -> Decision {
    Decision::Stop { instance: InstanceId(instance), reason }
}

fn refuse(ticket: u64, reason: RefuseReason) -> Decision {
    Decision::Refuse { ticket: Ticket(ticket), reason }
}

impl Policy {
    fn call(&mut self, now: u64, function: FunctionId, ticket: u64) -> Vec<Decision> {
        self.arrive(now, function, settings(), Ticket(ticket), None)
    }

    fn made(&mut self, now: u64, instance: u64) -> Vec<Decision> {
        self.ready(now, InstanceId(instance), 10 * MS, None)
    }

    fn over(&mut self, now: u64, instance: u64) -> Vec<Decision> {
        self.ended(now, InstanceId(instance), true)
    }
}

/// A function with one instance that has served and is idle.
fn idle(policy: &mut Policy, now: u64, function: FunctionId, instance: u64) {
    assert_eq!(policy.call(now, function, 1000 + instance), [start(function, instance)]);
    assert_eq!(policy.made(now, instance), [used(1000 + instance, instance, Found::New)]);
    assert_eq!(policy.over(now, instance), []);
}

#[test]
fn what_is_kept_for_no_instance_is_not_theirs() {
    let mut policy = Policy::new(options());
    idle(&mut policy, 0, A, 1);
    idle(&mut policy, MS, B, 2);
    assert_eq!(policy.tick(2 * MS), []);
    // Both have 80 MiB of 100: one goes.
    policy.keep(30 * MIB);
    assert_eq!(policy.tick(3 * MS), [stop(1, StopReason::Evicted)]);
    policy.stopped(3 * MS, InstanceId(1));
    // The half of the budget is always theirs.
    policy.keep(1000 * MIB);
    assert_eq!(policy.tick(4 * MS), []);
    policy.keep(0);
    assert_eq!(policy.call(5 * MS, C, 9), [start(C, 3)]);
}

#[test]
fn an_instance_is_made_once_and_used_again() {
    let mut policy = Policy::new(options());
    assert_eq!(policy.call(0, A, 1), [start(A, 1)]);
    assert_eq!(policy.made(0, 1), [used(1, 1, Found::New)]);
    assert_eq!(policy.over(50 * MS, 1), []);
    assert_eq!(policy.call(SECOND, A, 2), [used(2, 1, Found::Warm)]);
    // A second call at the same time has one of its own.
    assert_eq!(policy.call(SECOND, A, 3), [start(A, 2)]);
    // Whichever is free first serves it; the new one rests.
    assert_eq!(policy.over(SECOND, 1), [used(3, 1, Found::Warm)]);
    assert_eq!(policy.made(SECOND, 2), []);
    assert_eq!(policy.call(SECOND, A, 4), [used(4, 2, Found::Prewarmed)]);
    let counts = policy.stats().functions[0].counts;
    assert_eq!((counts.arrivals, counts.warm, counts.prewarmed, counts.cold), (4, 2, 1, 1));
}

#[test]
fn short_calls_wait_instead_of_having_instances_made() {
    let mut policy = Policy::new(options());
    idle(&mut policy, 0, A, 1);
    assert_eq!(policy.call(0, A, 1), [used(1, 1, Found::Warm)]);
    // The mean call takes no time at all, a start 10 ms.
    assert_eq!(policy.call(0, A, 2), []);
    // This one takes longer than a start would have.
    assert_eq!(policy.tick(20 * MS), [start(A, 2)]);
    assert_eq!(policy.tick(40 * MS), []);
}

#[test]
fn a_burst_has_as_many_made_at_once_as_there_are_processors() {
    let mut policy = Policy::new(PolicyOptions { processors: 2, memory_bytes: 1000 * MIB, ..options() });
    assert_eq!(policy.call(0, A, 1), [start(A, 1)]);
    assert_eq!(policy.call(0, A, 2), [start(A, 2)]);
    for ticket in 3..=9 {
        assert_eq!(policy.call(0, A, ticket), []);
    }
    // Nothing is known of its calls: the next one is made.
    assert_eq!(policy.made(10 * MS, 1), [used(1, 1, Found::New), start(A, 3)]);
    assert_eq!(policy.made(10 * MS, 2), [used(2, 2, Found::New), start(A, 4)]);
    assert_eq!(policy.tick(20 * MS), []);
    // They compute, and two are enough; but not for ever.
    policy.note_enough(A, true);
    assert_eq!(policy.over(30 * MS, 1), [used(3, 1, Found::Warm)]);
    assert_eq!(policy.made(30 * MS, 3), [used(4, 3, Found::New)]);
    assert_eq!(policy.made(30 * MS, 4), [used(5, 4, Found::New)]);
    assert_eq!(policy.tick(99 * MS), []);
    assert_eq!(policy.tick(100 * MS), [5, 6, 7, 8].map(|instance| start(A, instance)));
}

#[test]
fn what_is_enough_is_not_when_an_instance_ends_or_calls_turn_out_to_wait() {
    let mut policy = Policy::new(PolicyOptions { memory_bytes: 1000 * MIB, ..options() });
    idle(&mut policy, 0, A, 1);
    assert_eq!(policy.call(0, A, 1), [used(1, 1, Found::Warm)]);
    policy.note_enough(A, true);
    assert_eq!(policy.call(0, A, 2), []);
    assert_eq!(policy.tick(20 * MS), [], "without it one more would be made");
    assert_eq!(policy.ended(30 * MS, InstanceId(1), false), [stop(1, StopReason::Died), start(A, 2)]);
    assert_eq!(policy.made(40 * MS, 2), [used(2, 2, Found::New)]);
    assert_eq!(policy.call(40 * MS, A, 3), []);
    policy.note_enough(A, false);
    assert_eq!(policy.tick(70 * MS), [start(A, 3)]);
}

#[test]
fn short_calls_that_keep_coming_have_an_instance_for_each_processor() {
    let starts = |processors, are_full| {
        let mut policy = Policy::new(PolicyOptions { processors, memory_bytes: 1000 * MIB, ..options() });
        policy.note_full(are_full);
        idle(&mut policy, 0, A, 1);
        let mut decisions = policy.call(0, A, 0);
        decisions.extend(policy.call(0, A, 1));
        // One ends each millisecond, another comes, and one always waits.
        for at in 1..40 {
            decisions.extend(policy.call(at * MS, A, at + 1));
            decisions.extend(policy.over(at * MS, 1));
        }
        decisions.iter().filter(|decision| matches!(decision, Decision::Start { .. })).count()
    };
    assert_eq!([starts(1, true), starts(2, true)], [0, 1]);
    // And one more, while none is being made, where processors have time to spare.
    assert_eq!([starts(1, false), starts(2, false)], [1, 1]);
}

#[test]
fn what_is_worth_least_is_evicted_and_memory_is_counted_until_it_is_gone() {
    let mut policy = Policy::new(options());
    idle(&mut policy, 0, A, 1);
    idle(&mut policy, 0, B, 2);
    // A is called more often, B was used last.
    for ticket in 0..5 {
        assert_eq!(policy.call(SECOND, A, ticket), [used(ticket, 1, Found::Warm)]);
        policy.over(SECOND, 1);
    }
    assert_eq!(policy.call(2 * SECOND, B, 10), [used(10, 2, Found::Warm)]);
    policy.over(2 * SECOND, 2);
    assert_eq!(policy.call(3 * SECOND, C, 20), [stop(2, StopReason::Evicted)]);
    assert_eq!(policy.stats().memory_bytes, 80 * MIB);
    assert_eq!(policy.stopped(3 * SECOND, InstanceId(2)), [start(C, 3)]);
    assert_eq!(policy.made(3 * SECOND, 3), [used(20, 3, Found::New)]);
}

#[test]
fn idle_instances_expire_and_dead_ones_go() {
    let mut policy = Policy::new(PolicyOptions { idle_max: Duration::from_secs(60), ..options() });
    idle(&mut policy, 0, A, 1);
    assert_eq!(policy.tick(59 * SECOND), []);
    assert_eq!(policy.tick(60 * SECOND), [stop(1, StopReason::Expired)]);
    policy.stopped(60 * SECOND, InstanceId(1));
    assert!(policy.is_empty());
    idle(&mut policy, 61 * SECOND, A, 2);
    assert_eq!(policy.died(62 * SECOND, InstanceId(2)), [stop(2, StopReason::Died)]);
    assert_eq!(policy.call(63 * SECOND, A, 5), [start(A, 3)]);
    assert_eq!(policy.made(63 * SECOND, 3), [used(5, 3, Found::New)]);
    assert_eq!(policy.ended(64 * SECOND, InstanceId(3), false), [stop(3, StopReason::Died)]);
}

#[test]
fn the_last_instance_is_replaced_when_it_ends_by_itself() {
    let minute = || PolicyOptions { idle_max: Duration::from_secs(60), ..options() };
    let mut policy = Policy::new(minute());
    idle(&mut policy, 0, A, 1);
    assert_eq!(policy.died(40 * SECOND, InstanceId(1)), [stop(1, StopReason::Died)]);
    assert_eq!(policy.stopped(41 * SECOND, InstanceId(1)), [start(A, 2)], "when its memory is free");
    assert_eq!(policy.made(42 * SECOND, 2), []);
    // It is kept as long as the other one would have been.
    assert_eq!(policy.tick(59 * SECOND), []);
    assert_eq!(policy.tick(60 * SECOND), [stop(2, StopReason::Expired)]);
    assert_eq!(policy.stopped(60 * SECOND, InstanceId(2)), [], "nobody has called meanwhile");
    // It is there before the next call, which has not asked for it.
    let mut policy = Policy::new(minute());
    idle(&mut policy, 0, A, 1);
    policy.died(SECOND, InstanceId(1));
    assert_eq!(policy.stopped(SECOND, InstanceId(1)), [start(A, 2)]);
    assert_eq!(policy.made(2 * SECOND, 2), []);
    assert_eq!(policy.call(3 * SECOND, A, 1), [used(1, 2, Found::Prewarmed)]);
    // One that ends with its call is replaced, too; not one that has never served anybody.
    assert_eq!(policy.ended(4 * SECOND, InstanceId(2), false), [stop(2, StopReason::Died)]);
    assert_eq!(policy.stopped(4 * SECOND, InstanceId(2)), [start(A, 3)]);
    assert_eq!(policy.made(5 * SECOND, 3), []);
    assert_eq!(policy.died(6 * SECOND, InstanceId(3)), [stop(3, StopReason::Died)]);
    assert_eq!(policy.stopped(6 * SECOND, InstanceId(3)), [], "it was of no use");
    // A call that has come meanwhile has one made for itself; and so it is where others are there.
    let mut policy = Policy::new(PolicyOptions { processors: 2, ..options() });
    assert_eq!(policy.call(0, A, 1), [start(A, 1)]);
    assert_eq!(policy.call(0, A, 2), [start(A, 2)]);
    assert_eq!(policy.made(MS, 1), [used(1, 1, Found::New)]);
    assert_eq!(policy.made(MS, 2), [used(2, 2, Found::New)]);
    assert_eq!(policy.ended(SECOND, InstanceId(2), false), [stop(2, StopReason::Died)]);
    assert_eq!(policy.stopped(SECOND, InstanceId(2)), []);
}

#[test]
fn what_is_replaced_is_kept_no_longer_because_calls_come_regularly() {
    let mut policy = Policy::new(PolicyOptions { idle_max: Duration::from_secs(60), ..options() });
    let hour = 3600 * SECOND;
    idle(&mut policy, 0, A, 1);
    let mut last = 1;
    for number in 1..8 {
        let now = number * hour;
        // What was made shortly before, or is made now.
        for decision in policy.tick(now - hour / 2).into_iter().chain(policy.call(now, A, number)) {
            match decision {
                Decision::Stop { instance, .. } => drop(policy.stopped(now, instance)),
                Decision::Start { instance, .. } => {
                    last = instance.0;
                    policy.made(now, last);
                }
                _ => {}
            }
        }
        policy.over(now, last);
    }
    let now = 7 * hour + SECOND;
    policy.died(now, InstanceId(last));
    assert_eq!(policy.stopped(now, InstanceId(last)), [start(A, last + 1)]);
    assert_eq!(policy.made(now, last + 1), []);
    assert_eq!(policy.tick(7 * hour + 60 * SECOND), [stop(last + 1, StopReason::Expired)]);
    assert_eq!(policy.stats().functions[0].counts.prewarms_wasted, 0, "and nobody foresaw it");
}

#[test]
fn nothing_is_replaced_that_would_not_be_kept_or_has_no_room() {
    let brief = Settings { idle_max: Some(Duration::ZERO), ..settings() };
    let mut policy = Policy::new(options());
    policy.arrive(0, A, brief, Ticket(1), None);
    policy.made(0, 1);
    assert_eq!(policy.ended(SECOND, InstanceId(1), false), [stop(1, StopReason::Died)]);
    assert_eq!(policy.stopped(SECOND, InstanceId(1)), []);
    // It would be ready when it is to end.
    let mut policy = Policy::new(PolicyOptions { idle_max: Duration::from_secs(60), ..options() });
    idle(&mut policy, 0, A, 1);
    assert_eq!(policy.died(60 * SECOND - 5 * MS, InstanceId(1)), [stop(1, StopReason::Died)]);
    assert_eq!(policy.stopped(60 * SECOND - 5 * MS, InstanceId(1)), []);
    // Its place is taken: nobody gives way for it.
    let mut policy = Policy::new(options());
    idle(&mut policy, 0, A, 1);
    idle(&mut policy, 0, B, 2);
    assert_eq!(policy.died(SECOND, InstanceId(1)), [stop(1, StopReason::Died)]);
    policy.keep(1000 * MIB);
    assert_eq!(policy.stopped(SECOND, InstanceId(1)), []);
}

#[test]
fn a_function_may_say_how_long_its_instances_rest() {
    let mut policy = Policy::new(options());
    let brief = Settings { idle_max: Some(Duration::from_secs(5)), ..settings() };
    assert_eq!(policy.arrive(0, A, brief, Ticket(1), None), [start(A, 1)]);
    policy.made(0, 1);
    assert_eq!(policy.ended(SECOND, InstanceId(1), true), []);
    assert_eq!(policy.tick(5 * SECOND), []);
    assert_eq!(policy.tick(6 * SECOND), [stop(1, StopReason::Expired)]);
    policy.stopped(6 * SECOND, InstanceId(1));
    let none = Settings { idle_max: Some(Duration::ZERO), ..settings() };
    assert_eq!(policy.arrive(7 * SECOND, A, none, Ticket(2), None), [start(A, 2)]);
    policy.made(7 * SECOND, 2);
    assert_eq!(policy.ended(8 * SECOND, InstanceId(2), true), [stop(2, StopReason::Expired)]);
}

#[test]
fn a_periodic_function_is_made_ahead_and_given_up_when_nobody_calls() {
    let mut policy = Policy::new(PolicyOptions { idle_max: Duration::from_secs(10), ..options() });
    let (mut instance, mut now) = (0, 0);
    for round in 0..8 {
        now = round * 60 * SECOND;
        for decision in policy.call(now, A, round) {
            if let Decision::Start { .. } = decision {
                instance += 1;
                policy.made(now, instance);
            }
        }
        policy.over(now, instance);
        // Ticks up to the next call.
        for tick in 0..59 {
            for decision in policy.tick(now + tick * SECOND) {
                match decision {
                    Decision::Start { .. } => {
                        instance += 1;
                        assert_eq!(policy.made(now + tick * SECOND, instance), []);
                    }
                    Decision::Stop { instance, .. } => {
                        policy.stopped(now + tick * SECOND, instance);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    let counts = policy.stats().functions[0].counts;
    assert!(counts.prewarmed >= 3 && counts.prewarms_wasted == 0, "{counts:?}");
    assert_eq!(policy.stats().functions[0].idle, 1, "the next is there already");
    assert_eq!(policy.tick(now + 200 * SECOND), [stop(instance, StopReason::Wasted)]);
    assert_eq!(policy.stats().functions[0].counts.prewarms_wasted, 1);
    policy.stopped(now + 200 * SECOND, InstanceId(instance));
    assert_eq!(policy.tick(now + 201 * SECOND), [], "once for each pause");
}

#[test]
fn waiting_is_bounded_and_the_longest_queue_gives_way() {
    let bounds = PolicyOptions { waiting_max: 4, waiting_all_max: 5, memory_bytes: 40 * MIB, ..options() };
    let mut policy = Policy::new(bounds);
    assert_eq!(policy.call(0, A, 1), [start(A, 1)]);
    for ticket in 2..5 {
        assert_eq!(policy.call(0, A, ticket), []);
    }
    assert_eq!(policy.call(0, A, 5), [refuse(5, RefuseReason::FunctionFull(4))]);
    assert_eq!(policy.call(0, B, 6), []);
    // All places are taken: the newest call of A leaves for another function.
    assert_eq!(policy.call(0, B, 7), [refuse(4, RefuseReason::AllFull(5))]);
    assert_eq!(policy.call(0, C, 8), [refuse(3, RefuseReason::AllFull(5))]);
    assert_eq!(policy.call(0, A, 9), [refuse(9, RefuseReason::AllFull(5))]);
    assert_eq!(policy.stats().waiting, 5);
}

#[test]
fn a_burst_does_not_shut_others_out() {
    let mut policy = Policy::new(PolicyOptions { memory_bytes: 80 * MIB, ..options() });
    for ticket in 1..=20 {
        policy.call(0, A, ticket);
    }
    policy.made(0, 1);
    policy.made(0, 2);
    assert_eq!(policy.call(MS, B, 100), []);
    // A has two and calls that came earlier; B has none.
    assert_eq!(policy.over(2 * MS, 1), [stop(1, StopReason::Yielded)]);
    assert_eq!(policy.over(2 * MS, 2), [used(3, 2, Found::Warm)], "one is enough");
    assert_eq!(policy.stopped(3 * MS, InstanceId(1)), [start(B, 3)]);
    assert_eq!(policy.made(4 * MS, 3), [used(100, 3, Found::New)]);
    // With nobody of B waiting, A gets it back.
    assert_eq!(policy.over(600 * MS, 3), [stop(3, StopReason::Evicted)]);
}

#[test]
fn with_room_for_one_they_take_turns() {
    let mut policy = Policy::new(PolicyOptions { memory_bytes: 40 * MIB, ..options() });
    policy.call(0, A, 1);
    policy.made(0, 1);
    policy.call(1, B, 100);
    let mut served = BTreeMap::new();
    let (mut instance, mut owner, mut ticket, mut now) = (1, A, 1, 0);
    for _ in 0..200 {
        // A never stops calling.
        ticket += 1;
        policy.call(now, A, ticket);
        if owner == B {
            policy.call(now, B, 1000 + ticket);
        }
        now += 100 * MS;
        let mut todo = policy.over(now, instance);
        while let Some(decision) = todo.pop() {
            match decision {
                Decision::Stop { instance, .. } => todo.extend(policy.stopped(now, instance)),
                Decision::Start { function, instance: made } => {
                    (instance, owner) = (made.0, function);
                    todo.extend(policy.made(now, made.0));
                }
                Decision::Use { .. } => *served.entry(owner).or_insert(0) += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(served[&B] >= 20, "{served:?}");
    assert!(served[&A] >= 100, "{served:?}");
}

#[test]
fn a_failed_start_is_heard_by_one_call() {
    let mut policy = Policy::new(PolicyOptions { processors: 2, ..options() });
    assert_eq!(policy.call(0, A, 1), [start(A, 1)]);
    assert_eq!(policy.call(0, A, 2), [start(A, 2)]);
    let why = RefuseReason::StartFailed(InstanceId(1));
    assert_eq!(policy.failed(0, InstanceId(1)), [refuse(1, why)]);
    assert_eq!(policy.made(0, 2), [used(2, 2, Found::New)]);
    assert_eq!(policy.stats().memory_bytes, 40 * MIB);
}

#[test]
fn what_never_fits_is_refused_and_old_functions_are_forgotten() {
    let mut policy = Policy::new(PolicyOptions { functions_max: 2, ..options() });
    let big = Settings { size_bytes: 101 * MIB, ..settings() };
    let too_big = RefuseReason::TooBig { size_bytes: 101 * MIB, memory_bytes: 100 * MIB };
    assert_eq!(policy.arrive(0, A, big, Ticket(1), None), [refuse(1, too_big)]);
    idle(&mut policy, 1, B, 1);
    assert_eq!(policy.call(2, C, 2), [Decision::Forget(A), start(C, 2)]);
    assert_eq!(policy.call(3, A, 3), [refuse(3, RefuseReason::TooManyFunctions(2))]);
}

#[test]
fn an_instance_that_grew_makes_others_go() {
    let mut policy = Policy::new(options());
    idle(&mut policy, 0, A, 1);
    assert_eq!(policy.call(0, B, 5), [start(B, 2)]);
    policy.made(0, 2);
    policy.measured(InstanceId(2), 90 * MIB);
    assert_eq!(policy.stats().memory_bytes, 130 * MIB);
    assert_eq!(policy.tick(MS), [stop(1, StopReason::Evicted)]);
}

/// Something that may happen to a policy.
#[derive(Debug, Clone)]
enum Step {
    Arrive(u64, u64),
    Ready(usize, u64),
    Fail(usize),
    End(usize, bool),
    Stopped(usize),
    Cancel(usize),
    Provide(u64, u32),
    Retire(u64),
    Tick,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..6_u64, 1..60_u64).prop_map(|(function, mib)| Step::Arrive(function, mib)),
        5 => (0..9_usize, 1..60_u64).prop_map(|(which, mib)| Step::Ready(which, mib)),
        1 => (0..9_usize).prop_map(Step::Fail),
        5 => (0..9_usize, any::<bool>()).prop_map(|(which, alive)| Step::End(which, alive)),
        4 => (0..9_usize).prop_map(Step::Stopped),
        1 => (0..9_usize).prop_map(Step::Cancel),
        1 => (1..6_u64, 0..4_u32).prop_map(|(function, least)| Step::Provide(function, least)),
        1 => (1..6_u64).prop_map(Step::Retire),
        1 => Just(Step::Tick),
        3 => (0..3000 * MS).prop_map(Step::Pass),
    ]
}

/// Carries decisions out and holds them against each other.
#[derive(Default)]
struct Witness {
    waiting: BTreeSet<u64>,
    starting: Vec<InstanceId>,
    busy: Vec<InstanceId>,
    stopping: Vec<InstanceId>,
    idle: BTreeSet<InstanceId>,
    of: BTreeMap<InstanceId, FunctionId>,
    called: BTreeMap<u64, FunctionId>,
}

impl Witness {
    fn see(&mut self, decisions: Vec<Decision>) {
        for decision in decisions {
            match decision {
                Decision::Use { ticket, instance, .. } => {
                    assert!(self.waiting.remove(&ticket.0), "{ticket:?} had its answer");
                    let was_starting = self.starting.iter().position(|id| *id == instance);
                    match was_starting {
                        Some(at) => _ = self.starting.remove(at),
                        None => assert!(self.idle.remove(&instance), "{instance:?} is in use"),
                    }
                    assert_eq!(self.of[&instance], self.called[&ticket.0], "of another function");
                    self.busy.push(instance);
                }
                Decision::Start { function, instance } => {
                    assert!(self.of.insert(instance, function).is_none(), "an id is used once");
                    self.starting.push(instance);
                }
                Decision::Stop { instance, .. } => {
                    assert!(self.idle.remove(&instance), "{instance:?} is stopped while in use");
                    self.stopping.push(instance);
                }
                Decision::Refuse { ticket, .. } => assert!(self.waiting.remove(&ticket.0)),
                Decision::Forget(_) => {}
            }
        }
    }

    fn one(list: &mut Vec<InstanceId>, which: usize) -> Option<InstanceId> {
        (!list.is_empty()).then(|| list.remove(which % list.len()))
    }

    fn apply(&mut self, policy: &mut Policy, now: &mut u64, ticket: &mut u64, step: &Step) {
        match *step {
            Step::Arrive(function, mib) => {
                *ticket += 1;
                self.waiting.insert(*ticket);
                self.called.insert(*ticket, FunctionId(function));
                let settings = Settings { instances_max: 3, idle_max: None, size_bytes: mib * MIB };
                self.see(policy.arrive(*now, FunctionId(function), settings, Ticket(*ticket), None));
            }
            Step::Ready(which, mib) => {
                let Some(id) = Self::one(&mut self.starting, which) else { return };
                self.idle.insert(id);
                self.see(policy.ready(*now, id, 20 * MS, Some(mib * MIB)));
            }
            Step::Fail(which) => {
                let Some(id) = Self::one(&mut self.starting, which) else { return };
                self.see(policy.failed(*now, id));
            }
            Step::End(which, is_alive) => {
                let Some(id) = Self::one(&mut self.busy, which) else { return };
                self.idle.insert(id);
                self.see(policy.ended(*now, id, is_alive));
            }
            Step::Stopped(which) => {
                let Some(id) = Self::one(&mut self.stopping, which) else { return };
                self.see(policy.stopped(*now, id));
            }
            Step::Cancel(which) => {
                let Some(&ticket) = self.waiting.iter().nth(which) else { return };
                self.waiting.remove(&ticket);
                self.see(policy.cancel(*now, Ticket(ticket)));
            }
            Step::Provide(function, least) => {
                let settings = Settings { instances_max: 3, idle_max: None, size_bytes: 20 * MIB };
                self.see(policy.provide(*now, FunctionId(function), settings, least));
            }
            Step::Retire(function) => self.see(policy.retire(*now, FunctionId(function))),
            Step::Tick => self.see(policy.tick(*now)),
            Step::Pass(time) => *now += time,
        }
    }

    fn compare(&self, policy: &Policy) {
        let stats = policy.stats();
        assert_eq!(stats.waiting, self.waiting.len());
        let sum = |count: fn(&super::super::decision::FunctionStats) -> u32| -> usize {
            stats.functions.iter().map(|function| count(function) as usize).sum()
        };
        assert_eq!(sum(|it| it.idle), self.idle.len());
        assert_eq!(sum(|it| it.busy), self.busy.len());
        assert_eq!(sum(|it| it.starting), self.starting.len());
        let held: u64 = stats.functions.iter().map(|it| it.held_bytes).sum();
        assert_eq!(held + stats.stopping_bytes, stats.memory_bytes);
        assert!(stats.functions.iter().all(|it| it.idle + it.busy + it.starting <= 3));
        assert!(stats.functions.len() <= 4 && stats.waiting <= 12);
        for function in &stats.functions {
            let counts = &function.counts;
            let answered = counts.warm + counts.prewarmed + counts.cold + counts.refused + counts.cancelled;
            assert_eq!(counts.arrivals, answered + function.waiting as u64, "{counts:?}");
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_the_books_are_right_and_everybody_is_answered(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let options = PolicyOptions {
            functions_max: 4, waiting_max: 6, waiting_all_max: 12,
            idle_max: Duration::from_secs(5), ..options()
        };
        let mut policy = Policy::new(options);
        let (mut witness, mut now, mut ticket) = (Witness::default(), 0, 0);
        for step in &steps {
            let before = policy.stats().memory_bytes;
            let starting = witness.starting.len();
            witness.apply(&mut policy, &mut now, &mut ticket, step);
            witness.compare(&policy);
            let after = policy.stats().memory_bytes;
            if witness.starting.len() > starting {
                prop_assert!(after <= (100 * MIB).max(before), "a start beyond the budget: {after}");
            }
        }
        // From here on all goes well: whoever waits is answered.
        for round in 0..1000 {
            if witness.waiting.is_empty() {
                break;
            }
            for step in [Step::End(0, true), Step::Stopped(0), Step::Ready(0, 30), Step::Pass(100 * MS), Step::Tick] {
                witness.apply(&mut policy, &mut now, &mut ticket, &step);
            }
            prop_assert!(round < 999, "{} still wait", witness.waiting.len());
        }
        witness.see(policy.drain(now));
        while !policy.is_empty() {
            for step in [Step::End(0, true), Step::Ready(0, 30), Step::Stopped(0)] {
                witness.apply(&mut policy, &mut now, &mut ticket, &step);
            }
            witness.compare(&policy);
        }
        prop_assert_eq!(policy.stats().memory_bytes, 0);
    }
}

#[test]
fn an_idle_instance_that_is_near_goes_before_the_one_that_was_used_last() {
    let mut policy = Policy::new(options());
    let (near, small) = (Some(Home(1)), Settings { size_bytes: MIB, ..settings() });
    for instance in [1, 2, 3] {
        policy.arrive(0, A, small, Ticket(instance), None);
        policy.settles(InstanceId(instance), Some(Home(instance as u16)));
        policy.made(0, instance);
    }
    for instance in [1, 2, 3] {
        policy.over(1, instance);
    }
    let mut call = |ticket, here| policy.arrive(2, A, small, Ticket(ticket), here);
    assert_eq!(call(4, near), [used(4, 1, Found::Warm)]);
    assert_eq!(call(5, near), [used(5, 3, Found::Warm)], "none is near any more");
    assert_eq!(call(6, None), [used(6, 2, Found::Warm)]);
}
