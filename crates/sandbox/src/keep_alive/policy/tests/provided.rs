// SPDX-License-Identifier: Apache-2.0
//! Instances that a function is to have also when nobody calls it.

use super::*;

const TEN: Settings = Settings { instances_max: 8, idle_max: None, size_bytes: 10 * MIB };

fn two_processors() -> PolicyOptions {
    PolicyOptions { processors: 2, ..options() }
}

/// A function that is to have so many, which are there.
fn provided(policy: &mut Policy, function: FunctionId, settings: Settings, instances: &[u64]) {
    let started: Vec<_> = instances.iter().map(|instance| start(function, *instance)).collect();
    assert_eq!(policy.provide(0, function, settings, instances.len() as u32), started);
    for instance in instances {
        assert_eq!(policy.made(0, *instance), []);
    }
}

/// One of A's stands ready, and B has many calls that wait for the one that it has. Both have 80 MiB of 100.
fn b_waits_beside_a() -> Policy {
    let mut policy = Policy::new(options());
    provided(&mut policy, A, settings(), &[1]);
    idle(&mut policy, 0, B, 2);
    assert_eq!(policy.call(MS, B, 1), [used(1, 2, Found::Warm)]);
    for ticket in 2..20 {
        assert_eq!(policy.call(MS, B, ticket), []);
    }
    policy
}

#[test]
fn they_are_there_before_a_call_and_do_not_expire() {
    let mut policy = Policy::new(two_processors());
    provided(&mut policy, A, TEN, &[1, 2]);
    let now = 100_000 * SECOND;
    assert_eq!(policy.tick(now), []);
    assert_eq!(policy.arrive(now, A, TEN, Ticket(1), None), [used(1, 2, Found::Prewarmed)]);
    assert_eq!(policy.arrive(now, A, TEN, Ticket(2), None), [used(2, 1, Found::Prewarmed)]);
    // One more than it is to have is as those of others.
    assert_eq!(policy.arrive(now, A, TEN, Ticket(3), None), [start(A, 3)]);
    assert_eq!(policy.made(now, 3), [used(3, 3, Found::New)]);
    for instance in [1, 2, 3] {
        assert_eq!(policy.over(now, instance), []);
    }
    let expired = policy.tick(now + 601 * SECOND);
    assert!(
        matches!(expired.as_slice(), [Decision::Stop { reason: StopReason::Expired, .. }]),
        "{expired:?}"
    );
    assert_eq!(policy.stats().functions[0].idle, 2);
}

#[test]
fn no_more_are_made_at_once_than_there_are_processors_and_none_beyond_half_of_the_memory() {
    let mut policy = Policy::new(two_processors());
    assert_eq!(policy.provide(0, A, TEN, 8), [start(A, 1), start(A, 2)]);
    assert_eq!(policy.made(0, 1), []);
    assert_eq!(policy.tick(0), [start(A, 3)]);
    policy.made(0, 2);
    policy.made(0, 3);
    assert_eq!(policy.tick(0), [start(A, 4), start(A, 5)]);
    policy.made(0, 4);
    policy.made(0, 5);
    assert_eq!(policy.tick(SECOND), [], "five have half of 100 MiB");
    // They turn out to be smaller than was thought.
    for instance in 1..=5 {
        policy.measured(InstanceId(instance), 5 * MIB);
    }
    assert_eq!(policy.tick(2 * SECOND), [start(A, 6), start(A, 7)]);
}

#[test]
fn there_are_never_more_than_it_may_have() {
    let mut policy = Policy::new(two_processors());
    let few = Settings { instances_max: 1, ..TEN };
    assert_eq!(policy.provide(0, A, few, 4), [start(A, 1)]);
    policy.made(0, 1);
    assert_eq!(policy.tick(SECOND), []);
}

#[test]
fn others_make_room_for_them_and_they_only_for_who_has_waited_for_long() {
    let mut policy = Policy::new(options());
    idle(&mut policy, 0, B, 1);
    idle(&mut policy, 0, C, 2);
    // Both have 80 MiB of 100.
    assert_eq!(policy.provide(MS, A, settings(), 1), [stop(1, StopReason::Evicted)]);
    assert_eq!(policy.stopped(2 * MS, InstanceId(1)), []);
    assert_eq!(policy.tick(3 * MS), [start(A, 3)]);
    policy.made(4 * MS, 3);
    assert_eq!(policy.call(5 * MS, B, 7), [stop(2, StopReason::Evicted)]);
    assert_eq!(policy.stopped(6 * MS, InstanceId(2)), [start(B, 4)]);
    assert_eq!(policy.made(7 * MS, 4), [used(7, 4, Found::New)]);
    assert_eq!(policy.call(8 * MS, C, 8), [], "there is no room, and what stands ready is not taken");
    assert_eq!(policy.tick(500 * MS), []);
    assert_eq!(policy.tick(600 * MS), [stop(3, StopReason::Evicted)], "beyond patience");
    assert_eq!(policy.stopped(601 * MS, InstanceId(3)), [start(C, 5)]);
    assert_eq!(policy.made(602 * MS, 5), [used(8, 5, Found::New)]);
    assert_eq!(policy.tick(700 * MS), [], "who serves is not driven out");
    assert_eq!(policy.over(800 * MS, 5), []);
    assert_eq!(policy.tick(900 * MS), [stop(5, StopReason::Evicted)]);
    policy.stopped(901 * MS, InstanceId(5));
    assert_eq!(policy.tick(1000 * MS), [start(A, 6)]);
}

#[test]
fn one_that_ends_is_replaced_and_one_that_cannot_be_made_is_tried_less_and_less() {
    let mut policy = Policy::new(two_processors());
    provided(&mut policy, A, TEN, &[1]);
    // Before it had served anybody.
    assert_eq!(policy.died(SECOND, InstanceId(1)), [stop(1, StopReason::Died)]);
    policy.stopped(SECOND, InstanceId(1));
    assert_eq!(policy.tick(2 * SECOND - MS), []);
    let (mut now, mut pause) = (2 * SECOND, SECOND);
    for instance in 2..12 {
        assert_eq!(policy.tick(now), [start(A, instance)], "instance {instance}");
        assert_eq!(policy.failed(now, InstanceId(instance)), []);
        pause = (2 * pause).min(64 * SECOND);
        assert_eq!(policy.tick(now + pause - MS), []);
        now += pause;
    }
    assert_eq!(policy.tick(now), [start(A, 12)]);
    assert_eq!(policy.made(now, 12), []);
    assert_eq!(policy.arrive(now, A, TEN, Ticket(1), None), [used(1, 12, Found::Prewarmed)]);
    assert_eq!(policy.ended(now, InstanceId(12), false), [stop(12, StopReason::Died)]);
    assert_eq!(policy.stopped(now, InstanceId(12)), [start(A, 13)], "it had served");
    assert_eq!(policy.failed(now, InstanceId(13)), []);
    assert_eq!(policy.tick(now + SECOND), [start(A, 14)], "the pauses begin anew");
}

#[test]
fn where_nothing_is_kept_a_new_one_stands_ready() {
    let mut policy = Policy::new(two_processors());
    let fresh = Settings { idle_max: Some(Duration::ZERO), ..TEN };
    provided(&mut policy, A, fresh, &[1]);
    assert_eq!(policy.tick(SECOND), []);
    assert_eq!(policy.arrive(SECOND, A, fresh, Ticket(1), None), [used(1, 1, Found::Prewarmed)]);
    assert_eq!(policy.over(SECOND, 1), [stop(1, StopReason::Expired)]);
    assert_eq!(policy.tick(SECOND), [start(A, 2)]);
    assert_eq!(policy.made(SECOND, 2), []);
    assert_eq!(policy.tick(2 * SECOND), []);
}

#[test]
fn none_is_left_once_it_serves_no_more() {
    for is_retired in [true, false] {
        let mut policy = Policy::new(two_processors());
        provided(&mut policy, A, TEN, &[1]);
        if is_retired {
            assert_eq!(policy.retire(SECOND, A), [stop(1, StopReason::Expired)]);
        } else {
            assert_eq!(policy.provide(SECOND, A, TEN, 0), []);
            assert_eq!(policy.tick(601 * SECOND), [stop(1, StopReason::Expired)]);
        }
        policy.stopped(601 * SECOND, InstanceId(1));
        assert_eq!(policy.tick(602 * SECOND), []);
    }
    let mut policy = Policy::new(two_processors());
    provided(&mut policy, A, TEN, &[1]);
    assert_eq!(policy.drain(SECOND), [stop(1, StopReason::Drained)]);
    policy.stopped(SECOND, InstanceId(1));
    assert_eq!(policy.provide(SECOND, A, TEN, 1), []);
    assert_eq!(policy.tick(2 * SECOND), []);
    assert!(policy.is_empty());
}

#[test]
fn what_they_were_made_with_has_changed_and_they_are_made_anew() {
    let mut policy = Policy::new(two_processors());
    provided(&mut policy, A, TEN, &[1]);
    assert_eq!(policy.renew(SECOND, A), [stop(1, StopReason::Expired)]);
    policy.stopped(SECOND, InstanceId(1));
    assert_eq!(policy.tick(SECOND), [start(A, 2)]);
}

#[test]
fn it_is_not_forgotten_and_half_of_the_places_are_for_others() {
    let mut policy = Policy::new(PolicyOptions { functions_max: 2, ..options() });
    provided(&mut policy, A, TEN, &[1]);
    assert_eq!(policy.provide(0, B, TEN, 1), [], "one more would be more than half");
    policy.died(0, InstanceId(1));
    policy.stopped(0, InstanceId(1));
    idle(&mut policy, 1, C, 2);
    assert_eq!(policy.call(2, B, 3), [refuse(3, RefuseReason::TooManyFunctions(2))], "both are needed");
    assert_eq!(policy.tick(SECOND), [start(A, 3)]);
}

#[test]
fn memory_that_a_call_waits_for_is_not_theirs() {
    let mut policy = Policy::new(options());
    provided(&mut policy, A, Settings { size_bytes: 30 * MIB, ..TEN }, &[1]);
    idle(&mut policy, 0, B, 2);
    assert_eq!(policy.call(MS, B, 1), [used(1, 2, Found::Warm)]);
    // 70 MiB of 100 are held, of which 30 stand ready.
    let large = Settings { size_bytes: 55 * MIB, ..TEN };
    assert_eq!(policy.arrive(2 * MS, C, large, Ticket(2), None), []);
    assert_eq!(policy.tick(600 * MS), [stop(1, StopReason::Evicted)]);
    // 30 are free, and 30 about to be: A lacks one, and is to wait.
    for round in 1..10 {
        assert_eq!(policy.tick(600 * MS + round), []);
    }
    assert_eq!(policy.stopped(700 * MS, InstanceId(1)), [start(C, 3)]);
    assert_eq!(policy.made(701 * MS, 3), [used(2, 3, Found::New)]);
    assert_eq!(policy.tick(702 * MS), [], "there is no room");
    assert_eq!(policy.over(703 * MS, 3), []);
    assert_eq!(policy.tick(704 * MS), [stop(3, StopReason::Evicted)]);
    policy.stopped(705 * MS, InstanceId(3));
    assert_eq!(policy.tick(706 * MS), [start(A, 4)]);
}

#[test]
fn whoever_has_instances_does_not_take_them_and_nobody_makes_room_in_vain() {
    let mut policy = b_waits_beside_a();
    assert_eq!(policy.tick(10 * SECOND), [], "B waits for its own");
    // Of C one that rests, with 10 MiB; B is busy with 40, and A's has grown.
    let mut policy = Policy::new(options());
    idle(&mut policy, 0, B, 1);
    assert_eq!(policy.call(MS, B, 1), [used(1, 1, Found::Warm)]);
    policy.measured(InstanceId(1), 70 * MIB);
    policy.arrive(MS, C, TEN, Ticket(2), None);
    policy.made(MS, 2);
    policy.over(MS, 2);
    assert_eq!(policy.provide(2 * MS, A, settings(), 1), [], "20 MiB are free, and 10 could be");
    assert_eq!(policy.stats().functions.iter().map(|it| it.idle).sum::<u32>(), 1);
}

#[test]
fn what_has_grown_beyond_half_of_the_memory_is_not_kept_from_others() {
    let mut policy = Policy::new(options());
    provided(&mut policy, A, TEN, &[1]);
    policy.measured(InstanceId(1), 70 * MIB);
    assert_eq!(policy.tick(MS), []);
    assert_eq!(policy.call(2 * MS, B, 1), [stop(1, StopReason::Evicted)]);
    assert_eq!(policy.stopped(3 * MS, InstanceId(1)), [start(B, 2)]);
    policy.made(4 * MS, 2);
    assert_eq!(policy.tick(5 * MS), [], "another one would be as large");
}

#[test]
fn one_that_is_not_measured_is_made_where_less_than_half_is_held() {
    let mut policy = Policy::new(two_processors());
    let large = Settings { size_bytes: 40 * MIB, ..TEN };
    assert_eq!(policy.provide(0, A, large, 1), [start(A, 1)]);
    assert_eq!(policy.provide(0, B, large, 1), [start(B, 2)]);
    for instance in [1, 2] {
        assert_eq!(policy.ready(MS, InstanceId(instance), MS, Some(5 * MIB)), []);
    }
    assert_eq!(policy.provide(2 * MS, C, large, 2), [start(C, 3)]);
    assert_eq!(policy.tick(3 * MS), [], "of C one is looked at first");
    assert_eq!(policy.ready(4 * MS, InstanceId(3), MS, Some(5 * MIB)), []);
    assert_eq!(policy.tick(5 * MS), [start(C, 4)]);
}

#[test]
fn a_call_is_not_refused_for_one_that_nobody_asked_for() {
    let mut policy = Policy::new(two_processors());
    idle(&mut policy, 0, A, 1);
    assert_eq!(policy.call(MS, A, 1), [used(1, 1, Found::Warm)]);
    assert_eq!(policy.provide(MS, A, settings(), 2), [start(A, 2)]);
    assert_eq!(policy.call(MS, A, 2), []);
    assert_eq!(policy.failed(2 * MS, InstanceId(2)), [], "the busy one comes to it");
    assert_eq!(policy.over(3 * MS, 1), [used(2, 1, Found::Warm)]);
}

#[test]
fn who_has_none_is_not_behind_who_has_and_waits_for_more() {
    let mut policy = b_waits_beside_a();
    assert_eq!(policy.call(2 * MS, C, 20), []);
    assert_eq!(policy.tick(SECOND), [stop(1, StopReason::Evicted)]);
    assert_eq!(policy.stopped(SECOND, InstanceId(1)), [start(C, 3)]);
}
