// SPDX-License-Identifier: Apache-2.0
//! Calls in line that are taken back from an instance which goes on.

use super::*;

#[test]
fn what_is_taken_back_is_served_where_there_is_a_place() {
    let world = in_line(ANY);
    world.begin_many(6);
    world.until("both have a line", |world| world.sandbox.loads() == [3, 3]);
    world.sandbox.recall(world.sandbox.id(0));
    assert_eq!((world.sandbox.loads(), world.fleet.report().waiting), (vec![1, 3], 2));
    for waiting in [1, 0] {
        world.sandbox.end(world.sandbox.id(1), true);
        assert_eq!((world.sandbox.loads(), world.fleet.report().waiting), (vec![1, 3], waiting));
    }
    world.end_all();
    assert!(world.ended.lock().iter().all(|end| end.as_ref().is_ok_and(|end| end.result.is_ok())));
    assert_eq!(world.fleet.report().functions[0].stats.idle, 2, "both live");
}

#[test]
fn a_call_may_be_taken_back_more_often_than_instances_may_end() {
    let world = in_line_of(1, ANY);
    world.begin_many(3);
    world.until("they stand in line", |world| world.sandbox.loads() == [3]);
    // Each time one more is served, and those behind it were there before.
    for round in 0..2 * TRIES_MAX as usize {
        world.sandbox.recall(world.sandbox.id(0));
        assert_eq!((world.sandbox.loads(), world.fleet.report().waiting), (vec![1], 2 + round));
        // Whoever comes joins nobody, and has nobody join, before a call has ended there.
        world.begin_many(2);
        assert_eq!((world.sandbox.loads(), world.fleet.report().waiting), (vec![1], 4 + round));
        world.sandbox.end(world.sandbox.id(0), true);
        assert_eq!((world.sandbox.loads(), world.fleet.report().waiting), (vec![3], 1 + round));
    }
    world.end_all();
    assert!(world.ended.lock().iter().all(|end| end.as_ref().is_ok_and(|end| end.result.is_ok())));
}

#[test]
fn who_was_taken_back_goes_before_all_that_came_later() {
    let world = in_line_of(1, ANY);
    let order = Arc::new(Mutex::new(Vec::new()));
    for name in 0..6 {
        let order = order.clone();
        let told =
            Box::new(move |end: Result<(Outcome, Start), Error>| order.lock().push((name, end.is_ok())));
        let soon = Instant::now() + Duration::from_secs(20);
        world.fleet.begin(&world.function, world.call.clone(), soon, told);
    }
    assert_eq!((world.sandbox.loads(), world.fleet.report().waiting), (vec![3], 3));
    world.sandbox.recall(world.sandbox.id(0));
    assert_eq!((world.sandbox.loads(), world.fleet.report().waiting), (vec![1], 5));
    let stats = world.fleet.report().functions[0].stats;
    assert_eq!(stats.counts.arrivals, 7, "they have not come again");
    world.end_all();
    assert_eq!(*order.lock(), (0..6).map(|name| (name, true)).collect::<Vec<_>>());
}

#[test]
fn who_leaves_the_line_is_told_and_nobody_else_is_disturbed() {
    let world = in_line_of(1, ANY);
    world.begin_many(1);
    let leaving = world.begin(Duration::from_secs(20));
    world.begin_many(1);
    world.until("they stand in line", |world| world.sandbox.loads() == [3]);
    world.fleet.cancel(leaving);
    assert!(matches!(world.ended.lock()[..], [Ok(_), Err(Error::Cancelled)]));
    assert_eq!((world.sandbox.loads(), world.fleet.report().waiting), (vec![1], 1));
    assert!(world.sandbox.killed.lock().is_empty(), "what runs goes on");
    // Who was sent away with it comes next, and nobody joins before the instance is at rest.
    world.begin_many(1);
    assert_eq!(world.sandbox.loads(), [1]);
    world.end_all();
    let ended = world.ended.lock();
    assert_eq!(ended.iter().filter(|end| end.as_ref().is_ok_and(|end| end.result.is_ok())).count(), 4);
}

#[test]
fn who_leaves_while_others_stand_in_line_behind_is_ended_and_they_are_not() {
    let world = in_line_of(1, ANY);
    let leaving = world.begin(Duration::from_secs(20));
    world.begin_many(2);
    world.until("they stand in line", |world| world.sandbox.loads() == [3]);
    world.fleet.cancel(leaving);
    assert_eq!(*world.sandbox.killed.lock(), [world.sandbox.id(0)]);
    assert_eq!((world.sandbox.loads(), world.fleet.report().waiting), (vec![1], 2));
    world.sandbox.end(world.sandbox.id(0), false);
    world.until("another instance serves them", |world| world.sandbox.loads().iter().sum::<usize>() == 2);
    world.end_all();
    let ended = world.ended.lock();
    assert_eq!(ended.iter().filter(|end| end.as_ref().is_ok_and(|end| end.result.is_ok())).count(), 3);
}

#[test]
fn who_leaves_while_another_one_is_on_its_way_there_is_ended_when_that_is_taken_back() {
    let world = in_line_of(1, ANY);
    let leaving = world.begin(Duration::from_secs(20));
    world.begin_many(1);
    world.sandbox.is_deaf.store(true, std::sync::atomic::Ordering::Relaxed);
    world.fleet.cancel(leaving);
    assert_eq!((world.sandbox.loads(), world.sandbox.killed.lock().len()), (vec![2], 0));
    world.sandbox.is_deaf.store(false, std::sync::atomic::Ordering::Relaxed);
    world.sandbox.recall(world.sandbox.id(0));
    assert_eq!(*world.sandbox.killed.lock(), [world.sandbox.id(0)]);
    world.sandbox.end(world.sandbox.id(0), false);
    world.until("another instance serves it", |world| world.sandbox.loads().iter().sum::<usize>() == 1);
    world.end_all();
    assert!(world.ended.lock().last().is_some_and(|end| end.as_ref().is_ok_and(|end| end.result.is_ok())));
}

#[test]
fn who_was_taken_back_is_not_refused_where_no_instance_can_be_made() {
    let (function, settings) =
        (FunctionId(1), Settings { instances_max: 2, idle_max: None, size_bytes: MIB });
    let mut policy = Policy::new(PolicyOptions { processors: 2, ..PolicyOptions::default() });
    let started = |decisions: &[Decision]| {
        decisions.iter().find_map(|decision| match decision {
            Decision::Start { instance, .. } => Some(*instance),
            _ => None,
        })
    };
    let refused = |decisions: &[Decision]| decisions.iter().any(|it| matches!(it, Decision::Refuse { .. }));
    let first = started(&policy.arrive(0, function, settings, Ticket(1), None)).unwrap();
    policy.ready(10, first, 10, Some(MIB));
    // It stood in line there, for long: one more is made, and cannot be.
    let second = started(&policy.again(1_000_000, function, settings, Ticket(2), 0)).unwrap();
    let after = policy.failed(2_000_000, second);
    assert!(!refused(&after), "{after:?}");
    // The one that is there serves it at last.
    let ended = policy.ended(3_000_000, first, true);
    assert!(ended.iter().any(|it| matches!(it, Decision::Use { ticket: Ticket(2), .. })), "{ended:?}");
}

#[test]
fn time_in_line_is_time_in_the_queue() {
    let world = in_line_of(1, ANY);
    world.begin_many(1);
    let (sender, receiver) = std::sync::mpsc::channel();
    let told = Box::new(move |end: Result<(Outcome, Start), Error>| sender.send(end.unwrap().1).unwrap());
    world.fleet.begin(&world.function, world.call.clone(), Instant::now() + Duration::from_secs(20), told);
    world.until("it stands in line", |world| world.sandbox.loads() == [2]);
    world.sandbox.end(world.sandbox.id(0), true);
    let spent = Spent { in_line: Duration::from_secs(7), ..Spent::default() };
    world.sandbox.end_with(world.sandbox.id(0), true, Some(Box::new(spent)));
    let start = receiver.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!((7_000_000_000..10_000_000_000).contains(&start.queued_ns), "{start:?}");
}
