// SPDX-License-Identifier: Apache-2.0
//! Late binding: memory only when every input is local, and back as soon as
//! it is not needed. Data that is far, or nowhere.

use std::sync::Arc;

use objects::{FailureCode, Handle, Limits};

use super::api::{Priority, Request, Stop};
use super::host::Distance;
use super::machine::{ALLOWANCE_BYTES, Machine, POOL_BYTES};

const MIB: u64 = 1 << 20;

/// An application that wants `pool_bytes` beyond the allowance.
fn wanting(machine: &Machine, procedure: &str, pool_bytes: u64, argument: Handle) -> Handle {
    let limits = Limits { memory_bytes: ALLOWANCE_BYTES + pool_bytes, ..Limits::default() };
    let procedure = machine.world.blob(procedure.as_bytes());
    machine.world.tree(&[limits.handle().unwrap(), procedure, argument]).application().unwrap()
}

fn submit(machine: &Machine, thunk: Handle) -> Arc<Request> {
    machine.submit(thunk.strict().unwrap())
}

fn free(machine: &Machine) -> u64 {
    machine.scheduler.free_bytes()
}

fn check_failed(machine: &Machine, result: Handle, code: FailureCode, thunk: Handle) -> String {
    let (failure, detail) = machine.world.explain(result);
    assert_eq!((failure.code, failure.application), (code, thunk));
    detail
}

#[test]
fn memory_is_reserved_only_when_all_inputs_are_local() {
    let mut machine = Machine::new();
    let deep = machine.world.blob(&[1; 60]);
    let middle = machine.world.tree(&[deep, machine.world.blob(&[2; 60]).lowered().unwrap()]);
    let input = machine.world.tree(&[middle]);
    for object in [deep, middle, input] {
        machine.world.send_away(object, Distance::Far);
    }
    machine.world.lose(Handle::blob(&[2; 60]));
    let thunk = wanting(&machine, "remote return", POOL_BYTES, input);
    submit(&machine, thunk);
    for arrived in 0..3 {
        assert_eq!(machine.work_off().len(), 0);
        assert_eq!(machine.world.counts().fetched.len(), arrived + 1);
        assert_eq!((free(&machine), machine.world.claims()), (POOL_BYTES, 0), "after {arrived} arrivals");
        assert!(machine.world.deliver(&machine.scheduler));
    }
    machine.work_off();
    assert_eq!((free(&machine), machine.world.claims()), (0, 1), "now it runs");
    assert!(machine.world.deliver(&machine.scheduler));
    machine.work_off();
    // The ref is not an input; the complete value needs it and fails.
    assert_eq!((free(&machine), machine.world.claims()), (POOL_BYTES, 0));
    assert_eq!(machine.world.counts().fetched, [input, middle, deep, Handle::blob(&[2; 60])]);
}

#[test]
fn nobody_stands_in_line_for_memory_while_an_input_is_missing() {
    let mut machine = Machine::new();
    let input = machine.world.blob(&[1; 60]);
    machine.world.send_away(input, Distance::Far);
    let holder = wanting(&machine, "remote return", POOL_BYTES, Handle::u64(1));
    let waiting = wanting(&machine, "return", 100 * MIB, input);
    let _ = [holder, waiting].map(|thunk| submit(&machine, thunk));
    machine.work_off();
    assert_eq!(machine.world.counts().fetched, [input]);
    assert_eq!(machine.scheduler.waiting(), (2, 0));
}

#[test]
fn all_inputs_at_hand_are_asked_for_at_once() {
    let mut machine = Machine::new();
    let blobs: Vec<Handle> = (0..100).map(|byte| machine.world.blob(&[byte; 60])).collect();
    blobs.iter().for_each(|&blob| machine.world.send_away(blob, Distance::Far));
    let thunk = machine.world.application("tree", &blobs);
    submit(&machine, thunk);
    machine.work_off();
    assert_eq!(machine.world.counts().fetched.len(), 100);
    for _ in 0..99 {
        assert!(machine.world.deliver(&machine.scheduler));
        assert_eq!(machine.scheduler.runnable(), 0);
    }
    assert!(machine.world.deliver(&machine.scheduler));
    assert_eq!(machine.work_off().len(), 1);
    assert_eq!(machine.world.counts().fetched.len(), 100);
}

#[test]
fn what_does_not_fit_waits_and_what_fits_overtakes() {
    let mut machine = Machine::new();
    let holder = wanting(&machine, "remote return", 200 * MIB, Handle::u64(1));
    let large = wanting(&machine, "remote return", 100 * MIB, Handle::u64(2));
    let small = wanting(&machine, "remote return", 50 * MIB, Handle::u64(3));
    let requests = [holder, large, small].map(|thunk| submit(&machine, thunk));
    machine.work_off();
    assert_eq!(machine.scheduler.waiting(), (3, 1));
    assert_eq!(free(&machine), POOL_BYTES - 250 * MIB);
    assert!(machine.world.deliver(&machine.scheduler));
    // The first one's end admits the second, which then runs elsewhere.
    assert_eq!(machine.work_off()[0].0.id(), requests[0].id());
    assert_eq!(machine.scheduler.waiting(), (2, 0));
    assert_eq!(free(&machine), POOL_BYTES - 150 * MIB);
    while machine.world.deliver(&machine.scheduler) {}
    assert_eq!(machine.work_off().len(), 2);
    assert_eq!(free(&machine), POOL_BYTES);
}

#[test]
fn a_request_stopped_in_line_for_memory_leaves_nothing_reserved() {
    let mut machine = Machine::new();
    let holder = wanting(&machine, "remote return", 200 * MIB, Handle::u64(1));
    let waiting = wanting(&machine, "remote return", 200 * MIB, Handle::u64(2));
    let [_, stopped] = [holder, waiting].map(|thunk| submit(&machine, thunk));
    machine.work_off();
    assert_eq!(machine.scheduler.waiting(), (2, 1));
    machine.scheduler.stop(&stopped, Stop::Cancelled);
    let finished = machine.work_off();
    check_failed(&machine, finished[0].1, FailureCode::Cancelled, waiting);
    assert_eq!(machine.scheduler.waiting(), (1, 0));
    assert_eq!(free(&machine), POOL_BYTES - 200 * MIB);
    assert!(machine.world.deliver(&machine.scheduler));
    machine.work_off();
    assert_eq!(free(&machine), POOL_BYTES);
}

#[test]
fn a_request_stopped_after_its_admission_gives_the_memory_back() {
    let mut machine = Machine::new();
    let holder = wanting(&machine, "remote return", 200 * MIB, Handle::u64(1));
    let waiting = wanting(&machine, "remote return", 200 * MIB, Handle::u64(2));
    let [_, stopped] = [holder, waiting].map(|thunk| submit(&machine, thunk));
    machine.work_off();
    assert!(machine.world.deliver(&machine.scheduler));
    // The holder ends, the other one is admitted but does not run yet.
    machine.work();
    assert_eq!(free(&machine), POOL_BYTES - 200 * MIB);
    machine.scheduler.stop(&stopped, Stop::Deadline);
    let finished = machine.work_off();
    check_failed(&machine, finished[0].1, FailureCode::Deadline, waiting);
    assert_eq!((free(&machine), machine.world.claims()), (POOL_BYTES, 0));
}

#[test]
fn a_pending_application_holds_its_memory_until_it_ends_though_its_request_is_stopped() {
    let mut machine = Machine::new();
    let thunk = wanting(&machine, "remote return", 200 * MIB, Handle::u64(1));
    let request = submit(&machine, thunk);
    machine.work_off();
    machine.scheduler.stop(&request, Stop::Cancelled);
    assert_eq!(machine.work_off().len(), 0);
    assert_eq!((free(&machine), machine.world.claims()), (POOL_BYTES - 200 * MIB, 1));
    assert!(machine.world.deliver(&machine.scheduler));
    let finished = machine.work_off();
    check_failed(&machine, finished[0].1, FailureCode::Cancelled, thunk);
    assert_eq!((free(&machine), machine.world.claims()), (POOL_BYTES, 0));
    // Its result is there for the next one.
    assert_eq!(machine.evaluate(thunk.strict().unwrap()), Handle::u64(1));
    assert_eq!(machine.world.counts().total(), 1);
}

#[test]
fn the_work_of_another_saves_the_reservation() {
    // Shared work that is admitted one after the other, and both at once.
    for (wanted, waiting) in [(200 * MIB, 1), (100 * MIB, 0)] {
        let mut machine = Machine::new();
        let holder = wanting(&machine, "remote return", 200 * MIB, Handle::u64(1));
        let shared = wanting(&machine, "remote return", wanted, Handle::u64(2));
        for thunk in [holder, shared, shared] {
            submit(&machine, thunk);
        }
        machine.work_off();
        assert_eq!(machine.scheduler.waiting(), (3, 2));
        assert!(machine.world.deliver(&machine.scheduler));
        assert_eq!(machine.work_off().len(), 1);
        assert_eq!(machine.scheduler.waiting(), (2, waiting));
        assert_eq!(free(&machine), POOL_BYTES - wanted, "only what runs holds memory");
        assert!(machine.world.deliver(&machine.scheduler));
        assert_eq!(machine.work_off().len(), 2);
        assert_eq!(machine.world.counts().total(), 2);
        assert_eq!(free(&machine), POOL_BYTES);
    }
}

#[test]
fn more_than_the_node_has_fails_with_resources() {
    let mut machine = Machine::new();
    let thunk = wanting(&machine, "return", POOL_BYTES + 1, Handle::u64(1));
    let outer = machine.world.application("inc", &[thunk.strict().unwrap()]);
    let result = machine.evaluate(outer.strict().unwrap());
    check_failed(&machine, result, FailureCode::Resources, thunk);
    assert_eq!(machine.world.relation(thunk), None);
    assert_eq!((machine.scheduler.waiting(), machine.world.claims()), ((0, 0), 0));
    let largest = wanting(&machine, "return", POOL_BYTES, Handle::u64(1));
    assert_eq!(machine.evaluate(largest.strict().unwrap()), Handle::u64(1));
}

#[test]
fn priority_decides_who_gets_memory_first() {
    let mut machine = Machine::new();
    let holder = wanting(&machine, "remote return", POOL_BYTES, Handle::u64(0));
    submit(&machine, holder);
    let mut in_line = |item, priority| {
        let goal = wanting(&machine, "remote return", POOL_BYTES, Handle::u64(item)).strict().unwrap();
        let request = machine.scheduler.submit(goal, priority).unwrap();
        machine.work_off();
        request.id()
    };
    let order = [(1, Priority::Low), (2, Priority::Normal), (3, Priority::High), (4, Priority::Normal)];
    let submitted = order.map(|(item, priority)| in_line(item, priority));
    let mut finished = Vec::new();
    while machine.world.deliver(&machine.scheduler) {
        finished.extend(machine.work_off().into_iter().map(|(request, _)| request.id()));
    }
    assert_eq!(finished[1..], [2, 1, 3, 0].map(|index: usize| submitted[index]));
}

#[test]
fn what_cannot_be_read_is_missing_and_says_why() {
    let mut machine = Machine::new();
    let blob = machine.world.blob(&[1; 60]);
    machine.world.damage(blob);
    let thunk = machine.world.application("return", &[blob]);
    let result = machine.evaluate(thunk.strict().unwrap());
    let (failure, detail) = machine.world.explain(result);
    assert_eq!((failure.code, failure.application), (FailureCode::MissingData, thunk));
    assert_eq!(detail, "it has other bytes than it should have");
    assert_eq!(machine.world.relation(thunk), None, "it may be healed");
}

#[test]
fn missing_data_is_named_and_asked_for_again() {
    for seed in 0..8 {
        let mut machine = Machine::new();
        let world = &machine.world;
        let blob = world.blob(&[seed; 70]);
        let tree = world.tree(&[blob]);
        let reference = blob.lowered().unwrap();
        let argument = world.application("return", &[tree]);
        let target = world.selection(reference, 69);
        let value = world.tree(&[reference]).identification().unwrap();
        let curried = world.tree(&[Handle::blob(b"return"), blob]);
        let uncurried = world.tree(&[Handle::blob(b""), curried]).application().unwrap();
        let result = Handle::blob(&[seed]);
        let cases = [
            (argument, argument, blob, tree),
            (target, target, blob, result),
            (value, value, blob, world.tree(&[blob])),
            (uncurried, uncurried, curried, blob),
            (argument, argument, argument.definition(), tree),
            (target, target, target.definition(), result),
        ];
        for (thunk, named, lost, expected) in cases {
            let goal = thunk.strict().unwrap();
            let bytes = machine.world.peek(lost).unwrap();
            machine.world.lose(lost);
            for key in [goal, thunk] {
                machine.world.forget(key);
            }
            let outer = machine.world.application("tree", &[goal]).strict().unwrap();
            let failure = machine.evaluate(outer);
            let detail = check_failed(&machine, failure, FailureCode::MissingData, named);
            assert!(detail.contains(&lost.to_string()), "{detail}");
            assert_eq!(machine.world.relation(outer), None);
            // Somebody stores it, and asks again.
            if lost.names_tree() {
                machine.world.tree(&objects::TreeView::from_checked(&bytes).iter().collect::<Vec<_>>());
            } else {
                machine.world.blob(&bytes);
            }
            let complete = machine.evaluate(outer);
            assert_eq!(machine.world.entries(complete), [expected]);
            machine.world.forget(outer);
            machine.world.forget(outer.thunk().unwrap());
        }
    }
}

#[test]
fn memory_is_reserved_and_the_step_claimed_only_when_the_code_is_there() {
    let mut machine = Machine::new();
    let input = machine.world.blob(&[1; 60]);
    machine.world.send_away(input, Distance::Far);
    let thunk = wanting(&machine, "compiled remote return", POOL_BYTES, input);
    submit(&machine, thunk);
    for waiting_for in ["the input", "the code"] {
        assert_eq!(machine.work_off().len(), 0);
        assert_eq!((free(&machine), machine.world.claims()), (POOL_BYTES, 0), "waiting for {waiting_for}");
        assert!(machine.world.deliver(&machine.scheduler));
    }
    machine.work_off();
    assert_eq!((free(&machine), machine.world.claims()), (0, 1), "now it runs");
    assert!(machine.world.deliver(&machine.scheduler));
    assert_eq!(machine.work_off().len(), 1);
    assert_eq!((free(&machine), machine.world.claims()), (POOL_BYTES, 0));
}

#[test]
fn who_waits_for_code_is_stopped_at_once_and_the_code_is_there_for_the_next() {
    let mut machine = Machine::new();
    let thunk = machine.world.application("compiled return", &[Handle::u64(7)]);
    let request = submit(&machine, thunk);
    assert_eq!(machine.work_off().len(), 0);
    machine.scheduler.stop(&request, Stop::Deadline);
    let ended = machine.work_off();
    check_failed(&machine, ended[0].1, FailureCode::Deadline, thunk);
    assert!(machine.world.deliver(&machine.scheduler), "the code comes nevertheless");
    assert_eq!(machine.work_off().len(), 0);
    submit(&machine, thunk);
    assert_eq!(machine.work_off()[0].1, Handle::u64(7), "without waiting");
    assert!(!machine.world.deliver(&machine.scheduler));
}

#[test]
fn of_a_target_that_is_far_only_the_part_comes() {
    let mut machine = Machine::new();
    let blob = machine.world.blob(&[7; 5000]);
    let tree = machine.world.tree(&(0..100).map(|byte| machine.world.blob(&[byte; 40])).collect::<Vec<_>>());
    let goals = [
        (machine.world.range(blob, 1000, 1040), Handle::blob(&[7; 40])),
        (machine.world.selection(blob.lowered().unwrap(), 4999), Handle::blob(&[7])),
        (machine.world.selection(tree.lowered().unwrap(), 33), Handle::blob(&[33; 40])),
    ];
    let _ = [blob, tree].map(|object| machine.world.send_away(object, Distance::Far));
    for (thunk, expected) in goals {
        submit(&machine, thunk);
        assert!(machine.work_off().is_empty());
        assert!(machine.world.deliver(&machine.scheduler));
        let results: Vec<Handle> = machine.work_off().into_iter().map(|(_, result)| result).collect();
        assert_eq!(results, [expected]);
        assert_eq!(
            machine.world.relation(thunk).map(|(result, _)| result),
            Some(expected),
            "it is remembered"
        );
    }
    let counts = machine.world.counts();
    assert_eq!((counts.taken, counts.fetched), (vec![blob, blob, tree], vec![]));
    assert!(machine.world.peek(blob).is_none() && machine.world.peek(tree).is_none());
}

#[test]
fn what_lies_past_the_end_is_told_without_the_data() {
    let mut machine = Machine::new();
    let blob = Handle::blob(&[7; 5000]);
    let thunk = machine.world.range(blob, 4999, 5001);
    let result = machine.evaluate(thunk.strict().unwrap());
    check_failed(&machine, result, FailureCode::OutOfRange, thunk);
    assert!(machine.world.relation(thunk).is_some(), "it lasts");
    let within = machine.world.range(blob, 4999, 5000);
    let result = machine.evaluate(within.strict().unwrap());
    check_failed(&machine, result, FailureCode::MissingData, within);
    assert!(machine.world.relation(within).is_none());
    assert_eq!(machine.world.blob(&[7; 5000]), blob);
    assert_eq!(machine.evaluate(within.strict().unwrap()), Handle::blob(&[7]));
}

#[test]
fn what_has_to_be_brought_is_asked_for_at_once_and_once() {
    let mut machine = Machine::new();
    let count = 300;
    let sum = |number: u64| {
        let world = &machine.world;
        let brought = |half| world.application("brought return", &[Handle::u64(half)]).strict().unwrap();
        world.application("add", &[brought(number), brought(number / 2)]).strict().unwrap()
    };
    let sums = machine.world.tree(&(1..=count).map(sum).collect::<Vec<_>>());
    machine.submit(sums.identification().unwrap().strict().unwrap());
    assert!(machine.work_off().is_empty());
    assert_eq!(machine.world.due(), count as usize + 1, "each of 0 to 300, by one worker");
    assert_eq!((machine.world.counts().runs("add"), free(&machine)), (0, POOL_BYTES));
    let mut results = Vec::new();
    while machine.world.deliver(&machine.scheduler) {
        results.extend(machine.work_off().into_iter().map(|(_, result)| result));
    }
    let expected = (1..=count).map(|number| Handle::u64(number + number / 2)).collect::<Vec<_>>();
    assert_eq!(results.len(), 1);
    assert_eq!(machine.world.entries(results[0]), expected);
    assert_eq!(machine.world.counts().runs("brought return"), count as usize + 1, "none twice");
}

#[test]
fn what_another_run_need_not_bring_is_not_asked_for_ahead() {
    let mut machine = Machine::new();
    let world = &machine.world;
    let brought = |number| world.application("brought unsteady", &[Handle::u64(number)]).strict().unwrap();
    let tree = world.tree(&(0..9).map(brought).collect::<Vec<_>>());
    let request = machine.submit(tree.identification().unwrap().strict().unwrap());
    assert!(machine.work_off().is_empty());
    assert_eq!(machine.world.due(), 1);
    assert!(request.is_lasting(), "so far");
    while machine.world.deliver(&machine.scheduler) {
        machine.work_off();
    }
    assert!(!request.is_lasting(), "its result need not come again");
}
