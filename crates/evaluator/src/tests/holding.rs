// SPDX-License-Identifier: Apache-2.0
//! Inputs are held from when they are found until their application has
//! ended: nothing that is evicted meanwhile is among them, and what is held is
//! bounded. The fake host asserts before every application that all inputs
//! are local.

use std::sync::Arc;

use objects::{FailureCode, Handle, Limits, TreeBuilder};

use super::api::{Request, SchedulerOptions, Stop};
use super::host::{Distance, Scheduler, World};
use super::machine::{ALLOWANCE_BYTES, Machine, POOL_BYTES, options};

/// Enough for some of the large blobs below.
const HELD_MAX_BYTES: u64 = 10_000;

fn large(machine: &Machine, byte: u8) -> Handle {
    machine.world.blob(&[byte; 3000])
}

/// Its name, without storing it.
fn name(byte: u8) -> Handle {
    Handle::blob(&[byte; 3000])
}

fn submit(machine: &Machine, thunk: Handle) -> Arc<Request> {
    machine.submit(thunk.strict().unwrap())
}

fn wanting_memory(machine: &Machine, procedure: &str, arguments: &[Handle]) -> Handle {
    let limits = Limits { memory_bytes: ALLOWANCE_BYTES + POOL_BYTES, ..Limits::default() };
    let head = [limits.handle().unwrap(), machine.world.blob(procedure.as_bytes())];
    let entries: Vec<Handle> = head.into_iter().chain(arguments.iter().copied()).collect();
    machine.world.tree(&entries).application().unwrap()
}

/// A procedure too long for a handle.
fn stored(name: &str) -> String {
    format!("{name}\n{}", "-".repeat(100))
}

fn code(machine: &Machine, result: Handle) -> FailureCode {
    machine.world.explain(result).0.code
}

/// Delivers whatever is due, and works, until nothing is left to do.
fn work_to_the_end(machine: &mut Machine) -> Vec<(Arc<Request>, Handle)> {
    let mut finished = machine.work_off();
    while machine.world.deliver(&machine.scheduler) {
        finished.extend(machine.work_off());
    }
    finished
}

fn check_nothing_left(machine: &Machine) {
    let scheduler = &machine.scheduler;
    assert_eq!((scheduler.held_bytes(), scheduler.waiting(), scheduler.awaiting_room()), (0, (0, 0), 0));
    assert_eq!((scheduler.free_bytes(), machine.world.claims()), (POOL_BYTES, 0));
}

#[test]
fn what_was_found_is_held_while_the_rest_is_fetched() {
    let mut machine = Machine::new();
    let (here, far) = (large(&machine, 1), large(&machine, 2));
    let tree = machine.world.tree(&[far, here]);
    machine.world.send_away(far, Distance::Far);
    let thunk = machine.world.application(&stored("tree"), &[tree]);
    submit(&machine, thunk);
    machine.work_off();
    assert!(machine.scheduler.held_bytes() > 6000, "what is on its way is counted, too");
    for object in [here, tree, thunk.definition(), machine.world.blob(stored("tree").as_bytes())] {
        assert!(!machine.world.evict(object, Distance::Far), "{object}");
    }
    assert!(machine.world.deliver(&machine.scheduler));
    // It came, and left before anybody looked.
    machine.world.send_away(far, Distance::Far);
    assert_eq!(machine.work_off().len(), 0);
    assert_eq!(work_to_the_end(&mut machine).len(), 1);
    assert_eq!(machine.world.counts().fetched, [far, far]);
    check_nothing_left(&machine);
}

#[test]
fn inputs_are_held_in_line_for_memory() {
    let mut machine = Machine::new();
    let input = machine.world.tree(&[large(&machine, 1)]);
    let holder = wanting_memory(&machine, "remote return", &[Handle::u64(1)]);
    let waiting = wanting_memory(&machine, &stored("remote return"), &[input]);
    let [..] = [holder, waiting].map(|thunk| submit(&machine, thunk));
    machine.work_off();
    assert_eq!(machine.scheduler.waiting(), (2, 1));
    machine.world.evict_all(Distance::Far);
    // Its last chance to find that something left.
    assert!(machine.world.deliver(&machine.scheduler));
    machine.work_off();
    assert_eq!(machine.world.counts().runs("remote return"), 2);
    assert_eq!(machine.world.counts().fetched, []);
    machine.world.evict_all(Distance::Far);
    assert!(machine.world.peek(name(1)).is_some(), "it runs elsewhere");
    assert_eq!(work_to_the_end(&mut machine).len(), 1);
    check_nothing_left(&machine);
    machine.idle();
    assert!(machine.world.evict(name(1), Distance::Far));
}

#[test]
fn an_application_that_runs_elsewhere_holds_its_inputs_also_without_room() {
    let mut machine = Machine::holding_up_to(HELD_MAX_BYTES);
    let thunks = [1, 2, 3, 4].map(|byte| {
        let input = machine.world.tree(&[machine.world.blob(&[byte; 2100])]);
        machine.world.application(&stored("remote return"), &[input])
    });
    let _ = thunks.map(|thunk| submit(&machine, thunk));
    machine.work_off();
    assert!(machine.scheduler.held_bytes() <= HELD_MAX_BYTES);
    machine.world.evict_all(Distance::Far);
    assert!([1, 2, 3, 4].iter().all(|&byte| machine.world.peek(Handle::blob(&[byte; 2100])).is_some()));
    assert_eq!(work_to_the_end(&mut machine).len(), 4);
    check_nothing_left(&machine);
}

#[test]
fn a_worker_holds_what_it_vouches_for_until_it_is_idle() {
    let mut machine = Machine::new();
    let procedure = stored("tree");
    let deep = large(&machine, 1);
    let tree = machine.world.tree(&[machine.world.tree(&[deep, Handle::u64(1)])]);
    for item in 0..4 {
        let thunk = machine.world.application(&procedure, &[tree, Handle::u64(item)]);
        machine.evaluate(thunk.shallow().unwrap());
        machine.world.evict_all(Distance::Far);
        assert_eq!(machine.world.counts().fetched, [], "the worker holds it");
        assert_eq!(machine.scheduler.held_bytes(), 0, "by its own share");
    }
    assert_eq!(machine.world.counts().runs("tree"), 4);
    machine.idle();
    machine.world.evict_all(Distance::Far);
    let thunk = machine.world.application(&procedure, &[tree, Handle::u64(9)]);
    machine.evaluate(thunk.shallow().unwrap());
    assert_eq!(machine.world.counts().fetched.len(), 3, "two trees and a blob");
    check_nothing_left(&machine);
}

#[test]
fn a_workers_share_is_bounded() {
    // One worker: half of it is its share.
    let mut machine = Machine::holding_up_to(4 * HELD_MAX_BYTES);
    let trees: Vec<Handle> = (0..20).map(|byte| machine.world.tree(&[large(&machine, byte)])).collect();
    for &tree in &trees {
        let thunk = machine.world.application("return", &[tree]);
        machine.evaluate(thunk.shallow().unwrap());
    }
    machine.world.evict_all(Distance::Far);
    let held = (0..20).filter(|&byte| machine.world.peek(name(byte)).is_some()).count();
    assert!((1..=6).contains(&held), "{held}");
    // Half of these are held, and the others make them leave, in one application.
    let thunk = machine.world.application("tree", &trees[15..]);
    machine.world.evict_always();
    machine.evaluate(thunk.shallow().unwrap());
    check_nothing_left(&machine);
}

#[test]
fn nothing_that_a_procedure_reads_can_leave() {
    // Bounds under which the worker holds all, some, and nothing itself.
    for held_max_bytes in [1 << 20, 20_000, 2_000] {
        let mut machine = Machine::holding_up_to(held_max_bytes);
        machine.world.evict_always();
        let procedure = stored("inc");
        let mut argument = Handle::u64(0);
        for _ in 0..50 {
            argument = machine.world.application(&procedure, &[argument]).strict().unwrap();
        }
        assert_eq!(machine.evaluate(argument), Handle::u64(50));
        let mut tree = machine.world.tree(&[Handle::u64(3)]);
        for level in 0..8 {
            let blob = machine.world.blob(&[level; 50]);
            tree = machine.world.tree(&[tree, blob, tree]);
            let thunk = machine.world.application(&stored("tree"), &[tree, blob]);
            let result = machine.evaluate(thunk.shallow().unwrap());
            let expected = [tree, blob].into_iter().collect::<TreeBuilder>().view().handle();
            let failed = result.is_failure();
            assert!(if held_max_bytes > 2000 { !failed } else { failed || level < 7 }, "{level}");
            assert!(failed || result == expected.lowered().unwrap());
        }
        check_nothing_left(&machine);
    }
}

#[test]
fn inputs_beyond_the_bound_fail_with_resources() {
    for distance in [None, Some(Distance::Near), Some(Distance::Far)] {
        let mut machine = Machine::holding_up_to(HELD_MAX_BYTES);
        let blobs: Vec<Handle> = (0..4).map(|byte| large(&machine, byte)).collect();
        let tree = machine.world.tree(&blobs);
        if let Some(distance) = distance {
            blobs.iter().for_each(|&blob| machine.world.send_away(blob, distance));
        }
        let thunk = machine.world.application("return", &[tree]);
        let outer = machine.world.application("inc", &[thunk.strict().unwrap()]);
        let result = machine.evaluate(outer.strict().unwrap());
        let (failure, detail) = machine.world.explain(result);
        assert_eq!((failure.code, failure.application), (FailureCode::Resources, thunk));
        assert!(detail.contains("12992 bytes") && detail.contains("up to 10000"), "{detail}");
        assert_eq!((machine.world.relation(thunk), machine.world.counts().total()), (None, 0));
        assert_eq!(machine.world.counts().fetched, [], "their sizes are in their handles");
        // Refs are no inputs.
        let refs: Vec<Handle> = blobs.iter().map(|blob| blob.lowered().unwrap()).collect();
        let thunk = machine.world.application("return", &[machine.world.tree(&refs)]);
        assert!(!machine.evaluate(thunk.shallow().unwrap()).is_failure());
        check_nothing_left(&machine);
    }
}

#[test]
fn who_finds_no_room_waits_with_empty_hands() {
    let mut machine = Machine::holding_up_to(HELD_MAX_BYTES);
    let thunks = [0, 10, 20].map(|byte| {
        // Two of these do not fit together, and only their trees tell it.
        let blobs = [large(&machine, byte), large(&machine, byte + 1)];
        blobs.iter().for_each(|&blob| machine.world.send_away(blob, Distance::Far));
        let tree = machine.world.tree(&blobs);
        machine.world.send_away(tree, Distance::Far);
        machine.world.application("remote return", &[tree]).shallow().unwrap()
    });
    let requests = thunks.map(|goal| machine.submit(goal));
    machine.work_off();
    assert!(machine.scheduler.held_bytes() < 2000, "all wait for their trees");
    for _ in 0..3 {
        assert!(machine.world.deliver(&machine.scheduler));
    }
    machine.work_off();
    assert_eq!((machine.scheduler.waiting(), machine.scheduler.awaiting_room()), ((3, 0), 2));
    let held = machine.scheduler.held_bytes();
    assert!((6000..7000).contains(&held), "{held}");
    // The one that has room is not held up by the others, and they follow in order.
    let finished = work_to_the_end(&mut machine);
    let ended: Vec<u64> = finished.iter().map(|(request, _)| request.id()).collect();
    assert_eq!(ended, requests.map(|request| request.id()));
    assert!(finished.iter().all(|(_, result)| !result.is_failure()));
    check_nothing_left(&machine);
}

#[test]
fn a_deep_input_that_lost_its_room_is_not_begun_anew_for_each_level() {
    let mut machine = Machine::holding_up_to(1 << 20);
    let mut deep = [0, 1].map(|side| machine.world.tree(&[Handle::u64(side)]));
    for level in 0..200 {
        deep = [0, 1].map(|side| {
            let blob = machine.world.blob(&[level, side].repeat(1500));
            machine.world.tree(&[deep[usize::from(side)], blob])
        });
    }
    machine.world.evict_all(Distance::Far);
    let goals = deep.map(|tree| machine.world.application("return", &[tree]).shallow().unwrap());
    let _ = goals.map(|goal| machine.submit(goal));
    let finished = work_to_the_end(&mut machine);
    assert!(finished.len() == 2 && finished.iter().all(|(_, result)| !result.is_failure()));
    assert_eq!(machine.world.counts().runs("return"), 2);
    check_nothing_left(&machine);
}

#[test]
fn whatever_ends_a_request_lets_its_inputs_go() {
    let ends: [fn(&Machine, &Request) -> bool; 2] = [
        |machine, request| machine.scheduler.stop(request, Stop::Cancelled),
        |machine, request| machine.scheduler.stop(request, Stop::Deadline),
    ];
    for end in ends {
        // One that waits for data, and one that waits for room.
        let mut machine = Machine::holding_up_to(HELD_MAX_BYTES);
        let requests = [0, 10].map(|byte| {
            let blobs = [large(&machine, byte), large(&machine, byte + 1)];
            machine.world.send_away(blobs[0], Distance::Far);
            submit(&machine, machine.world.application("tree", &blobs))
        });
        machine.work_off();
        assert_eq!(machine.scheduler.awaiting_room(), 1);
        end(&machine, &requests[1]);
        assert_eq!((machine.scheduler.awaiting_room(), machine.work_off().len()), (0, 1));
        assert!(!machine.world.evict(name(1), Distance::Far));
        end(&machine, &requests[0]);
        assert_eq!(machine.work_off().len(), 1);
        assert!(machine.world.evict(name(1), Distance::Far));
        check_nothing_left(&machine);

        // One in line for memory, and one whose application runs elsewhere.
        let input = large(&machine, 5);
        let thunks = ["remote return", "return"].map(|name| wanting_memory(&machine, name, &[input]));
        let requests = thunks.map(|thunk| submit(&machine, thunk));
        machine.work_off();
        assert_eq!(machine.scheduler.waiting(), (2, 1));
        assert!(requests.iter().rev().all(|request| !end(&machine, request)));
        assert_eq!(machine.work_off().len(), 1);
        assert!(machine.scheduler.held_bytes() > 3000, "the claim stays until the application ends");
        assert_eq!(work_to_the_end(&mut machine).len(), 1);
        check_nothing_left(&machine);
    }
}

#[test]
fn a_stop_lets_others_have_the_room() {
    let mut machine = Machine::holding_up_to(HELD_MAX_BYTES);
    let requests = [0, 10].map(|byte| {
        let blobs = [large(&machine, byte), large(&machine, byte + 1)];
        machine.world.send_away(blobs[0], Distance::Far);
        machine.submit(machine.world.application("tree", &blobs).shallow().unwrap())
    });
    machine.work_off();
    assert_eq!(machine.scheduler.awaiting_room(), 1);
    machine.scheduler.stop(&requests[0], Stop::Cancelled);
    assert_eq!(machine.work_off().len(), 1);
    assert_eq!(machine.scheduler.awaiting_room(), 0);
    let finished = work_to_the_end(&mut machine);
    assert_eq!(finished[0].0.id(), requests[1].id());
    check_nothing_left(&machine);
}

#[test]
fn a_loss_lets_the_other_inputs_go() {
    for seed in 0..4 {
        let mut machine = Machine::holding_up_to(HELD_MAX_BYTES);
        let blobs = [large(&machine, seed), large(&machine, seed + 1)];
        machine.world.lose(blobs[1]);
        let thunk = machine.world.application("tree", &blobs);
        let result = machine.evaluate(thunk.shallow().unwrap());
        assert_eq!(code(&machine, result), FailureCode::MissingData);
        check_nothing_left(&machine);
    }
}

#[test]
fn failing_and_unsteady_applications_let_their_inputs_go() {
    let mut machine = Machine::holding_up_to(HELD_MAX_BYTES);
    let input = [large(&machine, 1), large(&machine, 2)];
    for name in ["fail", "unsteady", "overflow", "remote fail", "early unsteady"] {
        let thunk = machine.world.application(name, &input);
        machine.evaluate(thunk.shallow().unwrap());
        check_nothing_left(&machine);
    }
}

#[test]
fn many_workers_with_little_room_and_much_eviction_finish() {
    let world = World::new();
    world.evict_always();
    let goals: Vec<Handle> = (0..40_u8)
        .map(|item| {
            let blobs: Vec<Handle> = (0..6).map(|part| world.blob(&[item, part].repeat(300))).collect();
            let tree = world.tree(&[world.tree(&blobs[..3]), world.tree(&blobs[3..])]);
            let chosen = world.application(&stored("if"), &[blobs[0], Handle::u64(item.into()), tree]);
            let added = world.application(&stored("inc"), &[chosen.strict().unwrap()]);
            added.strict().unwrap()
        })
        .collect();
    world.evict_all(Distance::Far);
    let options = SchedulerOptions { held_max_bytes: HELD_MAX_BYTES, ..options(4) };
    let scheduler = Arc::new(Scheduler::new(options));
    let results = super::machine::evaluate_under(&world, &scheduler, 4, &goals);
    let expected: Vec<Handle> = (0..40).map(|item| Handle::u64(item + 1)).collect();
    assert_eq!(results[1..], expected[1..]);
    assert_eq!((scheduler.held_bytes(), scheduler.awaiting_room(), scheduler.waiting()), (0, 0, (0, 0)));
}
