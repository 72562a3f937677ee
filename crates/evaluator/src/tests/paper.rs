// SPDX-License-Identifier: Apache-2.0
//! The paper's procedures: what they give, and what they leave alone.

use objects::Handle;

use super::machine::{Machine, evaluate_on_threads};

fn number(value: u64) -> Handle {
    Handle::u64(value)
}

/// A blob that does not fit its handle, so that loading it shows.
fn large(machine: &Machine, text: &str) -> Handle {
    machine.world.blob(format!("{text:>40}").as_bytes())
}

#[test]
fn if_never_touches_the_branch_not_taken() {
    for (predicate, taken) in [(1, "yes"), (0, "no")] {
        let mut machine = Machine::new();
        let world = &machine.world;
        let (yes, no) = (large(&machine, "yes"), large(&machine, "no"));
        let branch = |blob| world.application("return", &[blob]);
        let (a, b) = (branch(yes), branch(no));
        let chosen = world.application("if", &[number(predicate), a, b]);
        let result = machine.evaluate(chosen.strict().unwrap());

        let (blob, thunk, other_blob, other) = if taken == "yes" { (yes, a, no, b) } else { (no, b, yes, a) };
        assert_eq!(result, blob);
        let counts = machine.world.counts();
        assert!(counts.applied.contains_key(&thunk) && !counts.applied.contains_key(&other));
        assert!(counts.loaded.contains(&thunk.definition()) && counts.loaded.contains(&blob));
        assert!(!counts.loaded.contains(&other.definition()) && !counts.loaded.contains(&other_blob));
        assert_eq!(counts.fetched, []);
    }
}

#[test]
fn if_works_while_the_other_branch_is_nowhere() {
    let mut machine = Machine::new();
    let other = machine.world.application("return", &[number(3)]);
    machine.world.lose(other.definition());
    let taken = machine.world.application("add", &[number(1), number(2)]);
    let chosen = machine.world.application("if", &[number(1), taken, other]);
    assert_eq!(machine.evaluate(chosen.strict().unwrap()), number(3));
    assert_eq!(machine.world.counts().fetched, []);
}

#[test]
fn fib_of_ten_takes_nine_additions() {
    let mut machine = Machine::new();
    let add = Handle::blob(b"add");
    let fib = machine.world.application("fib", &[add, number(10)]);
    assert_eq!(machine.evaluate(fib.strict().unwrap()), number(55));
    let counts = machine.world.counts();
    assert_eq!(counts.runs("add"), 9);
    assert_eq!(counts.runs("fib"), 11);

    // Larger ones stand on smaller ones.
    let fib = machine.world.application("fib", &[add, number(12)]);
    assert_eq!(machine.evaluate(fib.strict().unwrap()), number(144));
    assert_eq!(machine.world.counts().runs("add"), 11);
}

#[test]
fn fib_takes_no_more_additions_on_several_workers() {
    for workers in [1, 2, 4] {
        let machine = Machine::new();
        let add = Handle::blob(b"add");
        let goal = machine.world.application("fib", &[add, number(60)]).strict().unwrap();
        let results = evaluate_on_threads(&machine.world, workers, &[goal, goal, goal]);
        assert_eq!(results, [number(1_548_008_755_920); 3]);
        assert_eq!(machine.world.counts().runs("add"), 59);
        assert_eq!(machine.world.counts().runs("fib"), 61);
    }
}

/// `[info, child…]`
fn directory(machine: &Machine, children: &[(&str, Handle)]) -> Handle {
    let info: String = children.iter().map(|(name, _)| format!("{name}\n")).collect();
    let mut entries = vec![machine.world.blob(format!("{info}{:>40}", "").as_bytes())];
    entries.extend(children.iter().map(|(_, child)| *child));
    machine.world.tree(&entries)
}

#[test]
fn get_file_never_loads_siblings() {
    let mut machine = Machine::new();
    let file = large(&machine, "the file");
    let siblings: Vec<Handle> = (0..4).map(|index| large(&machine, &format!("sibling {index}"))).collect();
    let inner = directory(&machine, &[("x", siblings[0]), ("file", file)]);
    let aunt = directory(&machine, &[("file", siblings[1])]);
    let middle = directory(&machine, &[("aunt", aunt), ("inner", inner), ("y", siblings[2])]);
    let root = directory(&machine, &[("z", siblings[3]), ("middle", middle)]);

    let info = machine.world.entries(root)[0];
    let path = Handle::blob(b"middle/inner/file");
    let get = machine.world.application("get-file", &[path, info, root.lowered().unwrap()]);

    // As a ref, the file itself is not touched either.
    assert_eq!(machine.evaluate(get.shallow().unwrap()), file.lowered().unwrap());
    let loaded = machine.world.counts().loaded;
    assert!(!loaded.contains(&file));
    assert!([root, middle, inner].iter().all(|directory| loaded.contains(directory)));

    assert_eq!(machine.evaluate(get.strict().unwrap()), file);
    let counts = machine.world.counts();
    assert!(counts.loaded.contains(&file));
    for untouched in siblings.into_iter().chain([aunt, machine.world.entries(aunt)[0]]) {
        assert!(!counts.loaded.contains(&untouched), "{untouched} was loaded");
    }
    assert_eq!(counts.runs("get-file"), 3);
}

#[test]
fn map_defers_and_strict_forces() {
    let mut machine = Machine::new();
    let items: Vec<Handle> = (0..10).map(number).collect();
    let list = machine.world.tree(&items);
    let map = machine.world.application("map", &[Handle::blob(b"inc"), list]);

    let deferred = machine.evaluate(map.shallow().unwrap());
    assert!(deferred.kind() == objects::Kind::TreeRef && deferred.size() == 10);
    assert_eq!(machine.world.counts().runs("inc"), 0);

    // One element costs one application.
    let third = machine.world.selection(map, 3);
    assert_eq!(machine.evaluate(third.strict().unwrap()), number(4));
    assert_eq!(machine.world.counts().runs("inc"), 1);

    let forced = machine.evaluate(map.strict().unwrap());
    assert_eq!(machine.world.entries(forced), (1..11).map(number).collect::<Vec<_>>());
    assert_eq!(machine.world.counts().runs("inc"), 10);
    assert_eq!(machine.world.counts().runs("map"), 1);
}

#[test]
fn map_over_a_curried_procedure() {
    let mut machine = Machine::new();
    let list = machine.world.tree(&[number(1), number(2)]);
    let add_seven = machine.world.tree(&[Handle::blob(b"add"), number(7)]);
    let map = machine.world.application("map", &[add_seven, list]);
    let forced = machine.evaluate(map.strict().unwrap());
    assert_eq!(machine.world.entries(forced), [number(8), number(9)]);
}

#[test]
fn map_reduce_of_a_thousand_items() {
    for workers in [1, 2, 4] {
        let machine = Machine::new();
        let items: Vec<Handle> = (0..1000).map(number).collect();
        let list = machine.world.tree(&items);
        let (inc, add) = (Handle::blob(b"inc"), Handle::blob(b"add"));
        let goal = machine.world.application("map-reduce", &[inc, add, list]).strict().unwrap();
        let results = evaluate_on_threads(&machine.world, workers, &[goal]);
        assert_eq!(results, [number(500_500)]);
        let counts = machine.world.counts();
        assert_eq!([counts.runs("inc"), counts.runs("map-reduce")], [1000, 1999]);
        // Additions of equal halves, as of 2 + 1 and 1 + 2, are not equal calls.
        assert_eq!(counts.runs("add"), 999);
        assert!(counts.applied.values().all(|&runs| runs == 1));
    }
}
