// SPDX-License-Identifier: Apache-2.0
//! What was dropped is made again, by whoever needs it, and only then.

use objects::{FailureCode, Handle};

use super::api::{Priority, Stop};
use super::host::{Distance, World};
use super::machine::{Machine, evaluate_on_threads};

fn goal(object: Handle) -> Handle {
    object.identification().unwrap().strict().unwrap()
}

/// Blobs of which each is made of the one before it, and how; the first was put.
fn chain(machine: &mut Machine, links: usize) -> Vec<(Handle, Handle)> {
    let mut last = machine.world.blob(&[0; 40]);
    let link = |_| {
        let recipe = machine.world.application("step", &[last]);
        last = machine.evaluate(recipe.strict().unwrap());
        (last, recipe)
    };
    (0..links).map(link).collect()
}

fn drop_all(world: &World, derived: &[(Handle, Handle)]) {
    derived.iter().for_each(|(object, recipe)| world.drop_derived(*object, *recipe));
}

#[test]
fn a_chain_of_a_thousand_is_made_again_on_a_small_stack() {
    let test = || {
        let mut machine = Machine::new();
        // Blobs repeat after 256 steps; what is made of them does not.
        let mut links = chain(&mut machine, 200);
        let mut last = links[199].0;
        for number in 0..800u64 {
            let argument = machine.world.tree(&[last, Handle::u64(number)]);
            let recipe = machine.world.application("tree", &[argument, last]);
            last = machine.evaluate(recipe.strict().unwrap());
            links.push((last, recipe));
        }
        drop_all(&machine.world, &links);
        // One that holds nothing.
        let mut machine = Machine::over(machine.world, machine.scheduler);
        let before = machine.world.counts().total();
        machine.world.forget(goal(last));
        assert_eq!(machine.evaluate(goal(last)), last);
        assert_eq!(machine.world.counts().total() - before, 1000, "each once");
        assert_eq!((machine.world.claims(), machine.world.due()), (0, 0));
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(test).unwrap().join().unwrap();
}

#[test]
fn inputs_that_were_dropped_together_and_need_each_other() {
    let mut machine = Machine::new();
    let links = chain(&mut machine, 3);
    let all: Vec<Handle> = links.iter().map(|(object, _)| *object).collect();
    drop_all(&machine.world, &links);
    let user = machine.world.application("tree", &all);
    let result = machine.evaluate(user.strict().unwrap());
    assert_eq!(machine.world.entries(result), all);
    assert_eq!(machine.world.counts().runs("step"), 6);
    // And in the order in which what needs comes first.
    drop_all(&machine.world, &links);
    let backwards: Vec<Handle> = all.iter().rev().copied().collect();
    let user = machine.world.application("tree", &backwards);
    let result = machine.evaluate(user.strict().unwrap());
    assert_eq!(machine.world.entries(result), backwards);
    assert_eq!(machine.world.counts().runs("step"), 9);
}

#[test]
fn a_selection_and_a_tree_of_what_was_dropped() {
    let mut machine = Machine::new();
    let links = chain(&mut machine, 2);
    let object = links[1].0;
    drop_all(&machine.world, &links);
    let byte = machine.world.selection(object, 3).strict().unwrap();
    assert_eq!(machine.evaluate(byte), Handle::blob(&[2]));
    drop_all(&machine.world, &links);
    let tree = machine.world.tree(&[Handle::u64(1), object]);
    assert_eq!(machine.evaluate(goal(tree)), tree);
    assert!(machine.world.peek(object).is_some());
}

#[test]
fn recipes_that_need_each_other_fail_and_name_the_object() {
    let mut machine = Machine::new();
    let (a, b) = (machine.world.blob(&[1; 40]), machine.world.blob(&[2; 40]));
    machine.world.drop_derived(a, machine.world.application("step", &[b]));
    machine.world.drop_derived(b, machine.world.application("step", &[a]));
    let (failure, detail) = {
        let result = machine.evaluate(goal(a));
        machine.world.explain(result)
    };
    assert_eq!(failure.code, FailureCode::MissingData);
    assert!(detail.contains(&a.to_string()) && detail.contains("needed to make itself"), "{detail}");
    // Whoever puts one of them has both.
    machine.world.blob(&[1; 40]);
    assert_eq!(machine.evaluate(goal(b)), b);
}

#[test]
fn a_recipe_that_gives_something_else_never_passes_for_the_object() {
    let mut machine = Machine::new();
    let recipe = machine.world.application("differs", &[]);
    let object = machine.evaluate(recipe.strict().unwrap());
    machine.world.drop_derived(object, recipe);
    let user = machine.world.application("step", &[object]).strict().unwrap();
    let result = machine.evaluate(user);
    let (failure, detail) = machine.world.explain(result);
    assert_eq!(failure.code, FailureCode::MissingData);
    assert!(detail.contains(&object.to_string()) && detail.contains(&recipe.to_string()), "{detail}");
    assert_eq!(machine.world.relation(user), None);
    // It passes: whoever puts the object has the result.
    assert_eq!(machine.world.blob(&[1; 40]), object);
    assert_eq!(machine.evaluate(user), Handle::blob(&[2; 40]));
}

#[test]
fn what_keeps_a_recipe_from_running_now_is_the_failure() {
    let mut machine = Machine::new();
    let recipe = machine.world.application("sometimes", &[]);
    let object = machine.evaluate(recipe.strict().unwrap());
    machine.world.drop_derived(object, recipe);
    let user = machine.world.application("step", &[object]).strict().unwrap();
    let result = machine.evaluate(user);
    let (failure, detail) = machine.world.explain(result);
    assert_eq!((failure.code, failure.application, &*detail), (FailureCode::Memory, recipe, "not now"));
    assert_eq!(machine.world.claims(), 0);
}

#[test]
fn what_cannot_be_made_now_comes_in_the_other_way() {
    // One whose recipe does not run, and one whose recipe gives something else.
    for name in ["sometimes", "differs"] {
        let mut machine = Machine::new();
        let recipe = machine.world.application(name, &[]);
        let object = machine.evaluate(recipe.strict().unwrap());
        let bytes = machine.world.peek(object).unwrap();
        machine.world.drop_with_other(object, recipe, true);
        let user = machine.world.application("step", &[object]).strict().unwrap();
        let expected: Vec<u8> = bytes.iter().map(|byte| byte + 1).collect();
        assert_eq!(machine.evaluate(user), Handle::blob(&expected), "{name}");
        let counts = machine.world.counts();
        assert_eq!((counts.runs(name), counts.unmade), (2, vec![object]), "each way once");
        assert_eq!((machine.world.claims(), machine.world.due()), (0, 0));
        assert!(machine.world.relation(user).is_some(), "as if it had been there");
    }
}

#[test]
fn what_comes_in_neither_way_fails_as_its_recipe_does() {
    let mut machine = Machine::new();
    let recipe = machine.world.application("sometimes", &[]);
    let object = machine.evaluate(recipe.strict().unwrap());
    machine.world.drop_with_other(object, recipe, false);
    let user = machine.world.application("step", &[object]).strict().unwrap();
    let result = machine.evaluate(user);
    let (failure, detail) = machine.world.explain(result);
    assert_eq!((failure.code, failure.application, &*detail), (FailureCode::Memory, recipe, "not now"));
    let counts = machine.world.counts();
    assert_eq!((counts.runs("sometimes"), counts.unmade), (2, vec![object]), "each way once");
    // Whoever asks next has both tried again: nothing of it is remembered.
    assert_eq!(machine.world.relation(user), None);
}

#[test]
fn recipes_that_need_each_other_are_left_for_the_other_way() {
    let mut machine = Machine::new();
    let (a, b) = (machine.world.blob(&[1; 40]), machine.world.blob(&[2; 40]));
    machine.world.drop_with_other(a, machine.world.application("step", &[b]), true);
    machine.world.drop_derived(b, machine.world.application("step", &[a]));
    assert_eq!(machine.evaluate(goal(a)), a);
    assert_eq!(machine.world.counts().unmade, [a]);
}

#[test]
fn of_what_cannot_be_made_a_selection_asks_for_its_part() {
    let mut machine = Machine::new();
    let recipe = machine.world.application("sometimes", &[]);
    let object = machine.evaluate(recipe.strict().unwrap());
    machine.world.drop_with_other(object, recipe, true);
    let part = machine.world.range(object, 3, 5).strict().unwrap();
    assert_eq!(machine.evaluate(part), Handle::blob(&[7, 7]));
    assert_eq!(machine.world.counts().taken, [object]);
    assert!(machine.world.peek(object).is_none(), "the rest of it did not come");
}

#[test]
fn many_who_need_the_same_have_it_made_once() {
    for workers in [1, 4] {
        let mut machine = Machine::new();
        let links = chain(&mut machine, 20);
        drop_all(&machine.world, &links);
        let object = links[19].0;
        let readers = (0..60u64).map(|reader| machine.world.tree(&[object, Handle::u64(reader)]));
        let goals: Vec<Handle> = readers.map(goal).collect();
        let results = evaluate_on_threads(&machine.world, workers, &goals);
        assert!(results.iter().zip(&goals).all(|(result, wanted)| goal(*result) == *wanted));
        assert_eq!(machine.world.counts().runs("step"), 40, "{workers} workers");
        assert_eq!(machine.world.claims(), 0);
    }
}

#[test]
fn a_request_that_is_stopped_makes_nothing_more() {
    let mut machine = Machine::new();
    let links = chain(&mut machine, 50);
    drop_all(&machine.world, &links);
    let before = machine.world.counts().total();
    let request = machine.scheduler.submit(goal(links[49].0), Priority::Normal).unwrap();
    machine.work();
    for _ in 0..10 {
        machine.world.deliver(&machine.scheduler);
        machine.work();
    }
    machine.scheduler.stop(&request, Stop::Cancelled);
    let ended = machine.work_off();
    assert_eq!(machine.world.explain(ended[0].1).0.code, FailureCode::Cancelled);
    while machine.world.deliver(&machine.scheduler) {
        machine.work_off();
    }
    assert_eq!((machine.world.counts().total(), machine.world.claims()), (before, 0));
    // The next one makes all of it.
    machine.scheduler.retire(&request);
    assert_eq!(machine.evaluate(goal(links[49].0)), links[49].0);
}

#[test]
fn one_that_is_only_far_is_not_made_again() {
    let mut machine = Machine::new();
    let links = chain(&mut machine, 1);
    let (object, recipe) = links[0];
    machine.world.drop_derived(object, recipe);
    machine.evaluate(goal(object));
    machine.world.send_away(object, Distance::Far);
    machine.evaluate(machine.world.application("step", &[object]).strict().unwrap());
    assert_eq!(machine.world.counts().applied[&recipe], 2);
}
