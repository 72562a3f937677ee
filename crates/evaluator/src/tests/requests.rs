// SPDX-License-Identifier: Apache-2.0
//! Requests: who goes first, who is stopped and when, and what becomes of
//! events that come early, late, twice, or for nobody.

use std::sync::Arc;

use objects::{FailureCode, Handle};

use super::api::{Event, JobId, Priority, Progress, Request, Stop, Tally};
use super::host::Distance;
use super::machine::{Machine, scheduler};

fn strict(thunk: Handle) -> Handle {
    thunk.strict().unwrap()
}

/// A goal that takes `steps` applications.
fn long(machine: &Machine, steps: u64) -> Handle {
    strict(machine.world.application("count-down", &[Handle::u64(steps)]))
}

fn short(machine: &Machine, item: u64) -> Handle {
    strict(machine.world.application("inc", &[Handle::u64(item)]))
}

fn ids(finished: &[(Arc<Request>, Handle)]) -> Vec<u64> {
    finished.iter().map(|(request, _)| request.id()).collect()
}

/// Checks that a request ended by a failure, and how.
fn check_failed(machine: &Machine, result: Handle, code: FailureCode, thunk: Handle) {
    let (failure, _) = machine.world.explain(result);
    assert_eq!((failure.code, failure.application), (code, thunk));
}

#[test]
fn priorities_come_before_arrival() {
    let mut machine = Machine::new();
    let submit = |item, priority| machine.scheduler.submit(short(&machine, item), priority).unwrap().id();
    let submitted = [
        submit(1, Priority::Low),
        submit(2, Priority::Normal),
        submit(3, Priority::High),
        submit(4, Priority::Normal),
        submit(5, Priority::High),
    ];
    let order = [2, 4, 1, 3, 0].map(|index: usize| submitted[index]);
    assert_eq!(ids(&machine.work_off()), order);
}

#[test]
fn a_higher_priority_interrupts_between_two_steps() {
    let mut machine = Machine::new();
    let low = machine.scheduler.submit(long(&machine, 1000), Priority::Low).unwrap();
    let late = machine.scheduler.submit(short(&machine, 2), Priority::Low).unwrap();
    let job = machine.scheduler.next_job().unwrap();
    let high = machine.scheduler.submit(short(&machine, 1), Priority::High).unwrap();
    assert!(matches!(machine.run(job), Progress::SetAside));
    assert!(machine.world.counts().runs("count-down") <= 1);
    // It did not use up its slice, and goes on before those behind it.
    assert_eq!(ids(&machine.work_off()), [high.id(), low.id(), late.id()]);
}

#[test]
fn a_long_request_does_not_starve_a_short_one() {
    let mut machine = Machine::new();
    let long_one = machine.submit(long(&machine, 100_000));
    let job = machine.scheduler.next_job().unwrap();
    let short_one = machine.submit(short(&machine, 1));
    assert!(matches!(machine.run(job), Progress::SetAside));
    let before = machine.world.counts().runs("count-down");
    assert!(before > 1000, "a slice is worth having");
    assert_eq!(ids(&machine.work_off()), [short_one.id(), long_one.id()]);
    let order = machine.world.counts().order;
    let position = order.iter().position(|name| name == "inc").unwrap();
    assert_eq!(position, before, "the next slice was the short one's");
}

#[test]
fn jobs_that_resume_again_and_again_do_not_starve_new_ones() {
    let mut machine = Machine::new();
    for item in 0..40 {
        let mut argument = Handle::u64(1000 * item);
        for _ in 0..20 {
            argument = strict(machine.world.application("remote inc", &[argument]));
        }
        machine.submit(argument);
    }
    for _ in 0..40 {
        machine.work().unwrap();
    }
    let new = machine.submit(short(&machine, 7));
    for _ in 0..100 {
        // Everybody who waits is resumed before anybody runs.
        while machine.world.deliver(&machine.scheduler) {}
        let job = machine.scheduler.next_job().unwrap();
        let id = job.request().id();
        if let Progress::Finished(_) = machine.run(job) {
            assert_eq!(id, new.id());
            return;
        }
    }
    panic!("the new request did not get a turn among a hundred");
}

#[test]
fn more_requests_than_the_limit_are_refused() {
    let machine = Machine::new();
    let requests: Vec<_> = (0..1000).map(|item| machine.submit(short(&machine, item))).collect();
    let goal = short(&machine, 1);
    assert!(machine.scheduler.submit(goal, Priority::High).is_none());
    assert_eq!((machine.scheduler.requests(), machine.scheduler.runnable()), (1000, 1000));
    machine.scheduler.retire(&requests[0]);
    assert!(machine.scheduler.submit(goal, Priority::High).is_some());
    assert!(machine.scheduler.submit(goal, Priority::High).is_none());
}

#[test]
fn a_closed_scheduler_ends_what_it_has_and_takes_no_more() {
    let mut machine = Machine::new();
    let queued = machine.submit(short(&machine, 1));
    machine.scheduler.close();
    assert!(machine.scheduler.submit(short(&machine, 2), Priority::High).is_none());
    let job = machine.scheduler.wait_for_job().unwrap();
    assert_eq!(job.request().id(), queued.id());
    assert!(matches!(machine.run(job), Progress::Finished(_)));
    assert!(machine.scheduler.wait_for_job().is_none());
}

#[test]
fn a_queued_request_is_stopped_before_it_begins() {
    for (stop, code) in [(Stop::Cancelled, FailureCode::Cancelled), (Stop::Deadline, FailureCode::Deadline)] {
        let mut machine = Machine::new();
        let goal = short(&machine, 1);
        let request = machine.submit(goal);
        // In the queue: whoever stops it answers it.
        assert!(machine.scheduler.stop(&request, stop));
        assert_eq!((machine.work_off().len(), machine.scheduler.requests()), (0, 0));
        // Taken up, but not begun. The first reason stands.
        let request = machine.submit(goal);
        let job = machine.scheduler.next_job().unwrap();
        assert!(!machine.scheduler.stop(&request, stop));
        assert!(!machine.scheduler.stop(&request, Stop::Cancelled));
        let Progress::Finished(result) = machine.run(job) else { panic!("it is stopped") };
        check_failed(&machine, result, code, goal.thunk().unwrap());
        assert_eq!(machine.world.counts().total(), 0);
        // Nobody else is told so.
        assert_eq!(machine.evaluate(goal), Handle::u64(2));
    }
}

#[test]
fn a_running_request_is_stopped_at_its_next_step() {
    let mut machine = Machine::new();
    let goal = long(&machine, 1_000_000);
    let request = machine.submit(goal);
    let job = machine.scheduler.next_job().unwrap();
    let other = machine.submit(short(&machine, 1));
    assert!(matches!(machine.run(job), Progress::SetAside));
    let steps = machine.world.counts().runs("count-down");
    machine.scheduler.stop(&request, Stop::Deadline);
    let finished = machine.work_off();
    assert_eq!(ids(&finished), [other.id(), request.id()]);
    // It names the thunk that it stood at, not the one it began with.
    let at = machine.world.application("count-down", &[Handle::u64(1_000_000 - steps as u64)]);
    check_failed(&machine, finished[1].1, FailureCode::Deadline, at);
    assert_eq!(machine.world.counts().runs("count-down"), steps);
    assert_eq!(machine.world.relation(goal), None);
}

#[test]
fn a_request_that_waits_for_data_is_stopped_at_once() {
    let mut machine = Machine::new();
    let blob = machine.world.blob(&[5; 50]);
    machine.world.send_away(blob, Distance::Far);
    let thunk = machine.world.application("return", &[blob]);
    let request = machine.submit(strict(thunk));
    assert_eq!(machine.work_off().len(), 0);
    assert_eq!(machine.scheduler.waiting(), (1, 0));
    machine.scheduler.stop(&request, Stop::Cancelled);
    let finished = machine.work_off();
    check_failed(&machine, finished[0].1, FailureCode::Cancelled, thunk);
    assert_eq!(machine.scheduler.waiting(), (0, 0));
    // What was asked for comes for nobody, and helps the next one.
    assert!(machine.world.deliver(&machine.scheduler));
    assert_eq!(machine.scheduler.runnable(), 0);
    assert_eq!(machine.evaluate(strict(thunk)), blob);
    assert_eq!(machine.world.counts().fetched.len(), 1);
}

#[test]
fn a_request_stopped_while_it_asks_is_not_set_aside() {
    let mut machine = Machine::new();
    let blob = machine.world.blob(&[5; 50]);
    machine.world.send_away(blob, Distance::Far);
    let thunk = machine.world.application("return", &[blob]);
    let request = machine.submit(strict(thunk));
    let (scheduler, stopped) = (Arc::clone(&machine.scheduler), Arc::clone(&request));
    machine.host.meanwhile = Some(Box::new(move || _ = scheduler.stop(&stopped, Stop::Cancelled)));
    let finished = machine.work_off();
    assert_eq!(ids(&finished), [request.id()]);
    check_failed(&machine, finished[0].1, FailureCode::Cancelled, thunk);
    assert_eq!(machine.scheduler.waiting(), (0, 0));
}

#[test]
fn a_stopped_request_leaves_shared_work_to_the_others() {
    let mut machine = Machine::new();
    let shared = machine.world.application("remote inc", &[Handle::u64(1)]);
    let goals =
        [10, 20].map(|item| strict(machine.world.application("add", &[strict(shared), Handle::u64(item)])));
    let [first, second] = goals.map(|goal| machine.submit(goal));
    assert_eq!(machine.work_off().len(), 0);
    assert_eq!(machine.scheduler.waiting(), (2, 0));

    // The first one holds the claim: its application runs elsewhere and ends.
    machine.scheduler.stop(&first, Stop::Cancelled);
    assert_eq!(machine.work_off().len(), 0);
    // Not even a stray event makes it let go.
    machine.scheduler.resume(JobId(0), Event::Look);
    assert!(machine.world.deliver(&machine.scheduler));
    let finished = machine.work_off();
    assert_eq!(ids(&finished), [first.id(), second.id()]);
    check_failed(&machine, finished[0].1, FailureCode::Cancelled, shared);
    assert_eq!(finished[1].1, Handle::u64(22));
    assert_eq!(machine.world.counts().runs("remote inc"), 1);
    assert_eq!(machine.world.claims(), 0);
}

#[test]
fn a_stopped_waiter_leaves_the_claim_alone() {
    let mut machine = Machine::new();
    let goal = strict(machine.world.application("remote inc", &[Handle::u64(1)]));
    let [first, second] = [goal, goal].map(|goal| machine.submit(goal));
    machine.work_off();
    machine.scheduler.stop(&second, Stop::Deadline);
    assert_eq!(ids(&machine.work_off()), [second.id()]);
    assert!(machine.world.deliver(&machine.scheduler));
    let finished = machine.work_off();
    assert_eq!((ids(&finished), finished[0].1), (vec![first.id()], Handle::u64(2)));
}

#[test]
fn an_interrupted_application_gives_its_own_name() {
    // What a host makes of an application that it interrupts for a stop.
    let mut machine = Machine::new();
    let inner = machine.world.application("remote overflow", &[]);
    let chain = machine.world.application("return", &[inner]);
    let outer = machine.world.application("inc", &[strict(chain)]);
    let request = machine.submit(strict(outer));
    machine.work_off();
    machine.scheduler.stop(&request, Stop::Deadline);
    assert!(machine.world.deliver(&machine.scheduler));
    let finished = machine.work_off();
    check_failed(&machine, finished[0].1, FailureCode::Stack, inner);
    assert_eq!(machine.world.claims(), 0);
}

#[test]
fn events_may_come_before_the_job_is_set_aside() {
    let mut machine = Machine::new();
    let blob = machine.world.blob(&[5; 50]);
    machine.world.send_away(blob, Distance::Near);
    let first = machine.world.application("early return", &[Handle::u64(3)]);
    let second = machine.world.application("early tree", &[strict(first), blob]);
    let request = machine.submit(strict(second));
    let finished = machine.work_off();
    assert_eq!(ids(&finished), [request.id()]);
    assert_eq!(machine.world.entries(finished[0].1), [Handle::u64(3), blob]);
    assert_eq!(machine.scheduler.waiting(), (0, 0));
}

#[test]
fn events_for_nobody_and_events_that_come_twice_change_nothing() {
    let mut machine = Machine::new();
    let blobs = [1, 2, 3].map(|byte| machine.world.blob(&[byte; 50]));
    let stray = [Event::Look, Event::Arrived, Event::Missing(blobs[0])];
    for event in stray {
        machine.scheduler.resume(JobId(12_345), event);
    }
    assert_eq!(machine.scheduler.waiting(), (0, 0));

    // A job that waits for three objects is told of one of them many times.
    blobs.iter().for_each(|&blob| machine.world.send_away(blob, Distance::Far));
    let thunk = machine.world.application("remote tree", &blobs);
    machine.submit(strict(thunk));
    let job = machine.scheduler.next_job().unwrap();
    let id = job.id;
    assert!(matches!(machine.run(job), Progress::SetAside));
    for _ in 0..5 {
        machine.scheduler.resume(id, Event::Arrived);
    }
    assert_eq!(machine.work_off().len(), 0);
    while machine.world.counts().runs("remote tree") == 0 {
        assert!(machine.world.deliver(&machine.scheduler));
        machine.work_off();
    }
    // And one whose application runs elsewhere of things that it does not wait for.
    for event in stray {
        machine.scheduler.resume(id, event);
        assert_eq!(machine.work_off().len(), 0);
    }
    let mut finished = Vec::new();
    while machine.world.deliver(&machine.scheduler) {
        finished.extend(machine.work_off());
    }
    assert_eq!(machine.world.entries(finished[0].1), blobs);
    assert_eq!(machine.world.counts().runs("remote tree"), 1);
    assert_eq!((machine.world.claims(), machine.scheduler.waiting()), (0, (0, 0)));
}

#[test]
fn a_stray_event_does_not_make_a_stopped_job_drop_its_claim() {
    let mut machine = Machine::new();
    let request = machine.submit(strict(machine.world.application("remote inc", &[Handle::u64(1)])));
    let job = machine.scheduler.next_job().unwrap();
    let id = job.id;
    assert!(matches!(machine.run(job), Progress::SetAside));
    machine.scheduler.stop(&request, Stop::Cancelled);
    machine.scheduler.resume(id, Event::Look);
    assert_eq!(machine.work_off().len(), 0);
    assert_eq!(machine.world.claims(), 1);
    assert!(machine.world.deliver(&machine.scheduler));
    assert_eq!(machine.work_off().len(), 1);
    assert_eq!((machine.world.claims(), machine.scheduler.waiting()), (0, (0, 0)));
}

#[test]
fn sparks_of_a_request_that_ended_are_dropped() {
    let shared = scheduler(2);
    let mut machine = Machine::over(super::host::World::new(), Arc::clone(&shared));
    let calls: Vec<Handle> = (0..3).map(|item| short(&machine, item)).collect();
    let failing = strict(machine.world.application("remote fail", &[Handle::blob(b"why")]));
    let goal = machine.world.application("tree", &[failing, calls[0], calls[1], calls[2]]);
    let request = machine.submit(strict(goal));
    let job = shared.next_job().unwrap();
    assert!(matches!(machine.run(job), Progress::SetAside));
    assert_eq!(shared.runnable(), 3, "the last goals are offered");
    // An idle worker takes the last one first.
    let spark = shared.next_job().unwrap();
    assert!(matches!(machine.run(spark), Progress::Spent));
    assert_eq!(machine.world.relation(calls[2].thunk().unwrap()).unwrap().0, Handle::u64(3));
    assert!(machine.world.deliver(&shared));
    let job = shared.next_job().unwrap();
    assert!(matches!(machine.run(job), Progress::Finished(..)));
    shared.retire(&request);
    assert!(shared.next_job().is_none());
    assert_eq!((machine.world.counts().runs("inc"), shared.runnable()), (1, 0));
}

#[test]
fn applications_are_counted_by_request() {
    let mut machine = Machine::new();
    let requests = [(7, 10), (3, 100)].map(|(steps, from)| {
        let mut argument = Handle::u64(from);
        for _ in 0..steps {
            argument = strict(machine.world.application("remote inc", &[argument]));
        }
        machine.submit(argument)
    });
    // Both walks take turns.
    machine.work_off();
    while machine.world.deliver(&machine.scheduler) {
        machine.work_off();
    }
    assert_eq!(requests.map(|request| request.applied()), [7, 3]);
    // What is remembered is not applied again.
    let again = machine.submit(short(&machine, 10));
    machine.work_off();
    let twice = machine.submit(short(&machine, 10));
    machine.work_off();
    assert_eq!((again.applied(), twice.applied()), (1, 0));
}

#[test]
fn what_sparks_apply_counts_for_their_request() {
    let shared = scheduler(2);
    let mut machine = Machine::over(super::host::World::new(), Arc::clone(&shared));
    let calls: Vec<Handle> = (0..5).map(|item| short(&machine, item)).collect();
    let first = strict(machine.world.application("remote inc", &[Handle::u64(50)]));
    let goal = strict(machine.world.application("tree", &[&[first], &calls[..]].concat()));
    let request = machine.submit(goal);
    // The walk waits for the first; the sparks are done meanwhile.
    machine.work_off();
    assert!(request.applied() > 1, "{}", request.applied());
    while machine.world.deliver(&shared) {
        machine.work_off();
    }
    assert_eq!(request.applied(), 7);

    let private = shared.private_request(goal, Priority::Normal);
    machine.world.forget(goal);
    let calls: Vec<Handle> = (10..15).map(|item| short(&machine, item)).collect();
    let first = strict(machine.world.application("remote inc", &[Handle::u64(60)]));
    let goal = strict(machine.world.application("tree", &[&[first], &calls[..]].concat()));
    assert!(matches!(machine.begin(&private, goal), Progress::SetAside));
    assert_eq!((shared.runnable(), private.applied()), (0, 1), "it offers nothing");
}

#[test]
fn a_request_tells_what_is_known_and_done() {
    let mut machine = Machine::new();
    let call = |name: &str, number| strict(machine.world.application(name, &[Handle::u64(number)]));
    let calls = [call("inc", 1), call("remote inc", 2), call("inc", 3)];
    let goal = strict(machine.world.application("tree", &calls));
    machine.submit(calls[0]);
    machine.work_off();
    let request = machine.submit(goal);
    machine.work_off();
    let tally = request.tally();
    assert_eq!((tally.found, tally.settled, tally.remembered), (3, 1, 1), "the second runs");
    assert!(machine.world.deliver(&machine.scheduler));
    machine.work_off();
    let tally = request.tally();
    assert_eq!(tally, Tally { applied: 3, found: 3, settled: 3, remembered: 1, ..tally });
}
