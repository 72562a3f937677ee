// SPDX-License-Identifier: Apache-2.0
//! Depth is bounded by memory: a million levels on a stack of 256 KiB.

use objects::{Handle, TreeBuilder};

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
