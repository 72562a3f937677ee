// SPDX-License-Identifier: Apache-2.0
//! Depth is bounded by memory: a million levels on a stack of 256 KiB.

use objects::{FailureCode, Handle, TreeBuilder};

use super::api::Stop;
use super::machine::Machine;

const STACK_BYTES: usize = 256 << 10;

fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(test).unwrap();
    thread.join().expect("it neither fails nor overflows its stack");
}

#[test]
fn a_chain_of_a_million_thunks() {
    on_a_small_stack(|| {
        let mut machine = Machine::new();
        let goal = machine.world.application("count-down", &[Handle::u64(1_000_000)]).strict().unwrap();
        assert_eq!(machine.evaluate(goal), Handle::u64(0));
        assert_eq!(machine.world.counts().runs("count-down"), 1_000_001);
        // Remembered as a whole, not only link by link.
        assert_eq!(machine.world.relation(goal).unwrap().0, Handle::u64(0));
    });
}

#[test]
fn a_million_nested_arguments() {
    on_a_small_stack(|| {
        let mut machine = Machine::new();
        let mut argument = Handle::u64(0);
        for _ in 0..1_000_000 {
            argument = machine.world.application("inc", &[argument]).strict().unwrap();
        }
        assert_eq!(machine.evaluate(argument), Handle::u64(1_000_000));
        assert_eq!(machine.world.counts().runs("inc"), 1_000_000);
    });
}

#[test]
fn a_tree_nested_a_hundred_thousand_deep() {
    on_a_small_stack(|| {
        let mut machine = Machine::new();
        let leaf = machine.world.application("add", &[Handle::u64(1), Handle::u64(2)]);
        let (mut lazy, mut expected) = (leaf, Handle::u64(3));
        for level in 0..100_000 {
            lazy = machine.world.tree(&[Handle::u64(level), lazy]);
            expected = [Handle::u64(level), expected].into_iter().collect::<TreeBuilder>().view().handle();
        }
        let goal = lazy.identification().unwrap().strict().unwrap();
        assert_eq!(machine.evaluate(goal), expected);

        // Reading it as an input has no depth either.
        let reader = machine.world.application("return", &[expected]).strict().unwrap();
        assert_eq!(machine.evaluate(reader), expected);
    });
}

#[test]
fn a_shared_tree_is_walked_once() {
    // 2^100 paths lead to the leaf.
    let mut machine = Machine::new();
    let leaf = machine.world.application("add", &[Handle::u64(1), Handle::u64(2)]);
    let (mut lazy, mut expected) = (leaf, Handle::u64(3));
    for _ in 0..100 {
        lazy = machine.world.tree(&[lazy, lazy]);
        expected = [expected, expected].into_iter().collect::<TreeBuilder>().view().handle();
    }
    assert_eq!(machine.evaluate(lazy.identification().unwrap().strict().unwrap()), expected);
    let reader = machine.world.application("return", &[expected]).strict().unwrap();
    assert_eq!(machine.evaluate(reader), expected);
    assert_eq!(machine.world.counts().runs("add"), 1);
}

#[test]
fn a_selection_through_a_hundred_thousand_selections() {
    on_a_small_stack(|| {
        let mut machine = Machine::new();
        let mut tree = Handle::u64(9);
        for _ in 0..100_000 {
            tree = machine.world.tree(&[tree]);
        }
        let mut selection = tree;
        for _ in 0..100_000 {
            selection = machine.world.selection(selection, 0);
        }
        assert_eq!(machine.evaluate(selection.shallow().unwrap()), Handle::u64(9));
    });
}

/// A goal that nests `depth` times, down to `leaf`.
fn nested(machine: &Machine, leaf: Handle, depth: u64) -> Handle {
    let mut argument = leaf;
    for _ in 0..depth {
        argument = machine.world.application("inc", &[argument]).strict().unwrap();
    }
    argument
}

/// A leaf that is awaited at the bottom of everything.
fn awaited(machine: &Machine, item: u64) -> Handle {
    machine.world.application("remote inc", &[Handle::u64(item)]).strict().unwrap()
}

#[test]
fn walks_that_nest_deep_are_bounded_together() {
    let mut machine = Machine::nesting_up_to(16 << 20);
    // Each fits, and some of them together.
    let goals: Vec<Handle> =
        (0..10).map(|item| nested(&machine, awaited(&machine, 100_000 * item), 10_000)).collect();
    goals.iter().for_each(|&goal| _ = machine.submit(goal));
    let mut finished = machine.work_off();
    assert!((1..10).contains(&finished.len()), "{}", finished.len());
    for (_, result) in &finished {
        assert_eq!(machine.world.explain(*result).0.code, FailureCode::Resources);
    }
    let used = machine.scheduler.walk_bytes();
    assert!((1 << 20..=16 << 20).contains(&used), "{used}");
    while machine.world.deliver(&machine.scheduler) {
        finished.extend(machine.work_off());
    }
    assert_eq!((finished.len(), machine.scheduler.walk_bytes()), (10, 0));
    assert!(finished.iter().any(|(_, result)| !result.is_failure()));
    // It was nobody's fault, and is not remembered.
    for (item, &goal) in goals.iter().enumerate() {
        let mut evaluated = machine.evaluate(goal);
        while evaluated.is_failure() {
            evaluated = machine.evaluate(goal);
        }
        assert_eq!(evaluated, Handle::u64(100_000 * item as u64 + 10_001));
        assert_eq!(machine.scheduler.walk_bytes(), 0);
    }
}

#[test]
fn the_entries_of_trees_in_progress_count_too() {
    let mut machine = Machine::nesting_up_to(1 << 20);
    let wide = |machine: &Machine, kind: &str, entries: u64| {
        let rest: Vec<Handle> = (1..entries).map(Handle::u64).collect();
        let first = awaited(machine, entries);
        match kind {
            "arguments" => {
                machine.world.application("tree", &[&[first], &rest[..]].concat()).strict().unwrap()
            }
            _ => machine
                .world
                .tree(&[&[first], &rest[..]].concat())
                .identification()
                .unwrap()
                .strict()
                .unwrap(),
        }
    };
    for kind in ["arguments", "entries"] {
        let fits = wide(&machine, kind, 20_000);
        assert!(!machine.evaluate(fits).is_failure());
        assert_eq!(machine.scheduler.walk_bytes(), 0);
        let exceeds = wide(&machine, kind, 40_000);
        let result = machine.evaluate(exceeds);
        assert_eq!(machine.world.explain(result).0.code, FailureCode::Resources);
        assert_eq!((machine.scheduler.walk_bytes(), machine.world.relation(exceeds)), (0, None));
    }
}

#[test]
fn stopped_walks_and_failing_ones_give_back_what_they_took() {
    let mut machine = Machine::nesting_up_to(16 << 20);
    let failing = machine.world.application("fail", &[Handle::blob(b"why")]).strict().unwrap();
    let goal = nested(&machine, failing, 10_000);
    assert!(machine.evaluate(goal).is_failure());
    assert_eq!(machine.scheduler.walk_bytes(), 0);
    for stop in [Stop::Cancelled, Stop::Deadline] {
        let blob = machine.world.blob(&[7; 100]);
        machine.world.send_away(blob, super::host::Distance::Far);
        let leaf = machine.world.application("return", &[blob]).strict().unwrap();
        let request = machine.submit(nested(&machine, leaf, 10_000));
        machine.work_off();
        assert!(machine.scheduler.walk_bytes() > 1 << 20);
        assert!(!machine.scheduler.stop(&request, stop));
        assert_eq!((machine.work_off().len(), machine.scheduler.walk_bytes()), (1, 0));
        while machine.world.deliver(&machine.scheduler) {}
    }
}
