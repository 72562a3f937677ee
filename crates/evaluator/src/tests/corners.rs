// SPDX-License-Identifier: Apache-2.0
//! Corners of the rules that a result alone does not show: what is remembered,
//! what is looked at again, and what other jobs may do in between.

use objects::{FailureCode, Handle, Kind};

use super::api::Rule;
use super::machine::{Machine, evaluate_on_threads};

fn strict(thunk: Handle) -> Handle {
    thunk.strict().unwrap()
}

fn shallow(thunk: Handle) -> Handle {
    thunk.shallow().unwrap()
}

#[test]
fn an_encode_as_result_asks_for_itself_first() {
    let mut machine = Machine::new();
    let world = &machine.world;
    let lazy = world.tree(&[world.application("add", &[Handle::u64(1), Handle::u64(2)])]);
    let complete = world.tree(&[Handle::u64(3)]);
    // Handed over inside a selection: as an argument it would be replaced.
    let inner = world.application("return", &[lazy]);
    let giving = |encode| world.selection(world.tree(&[encode]), 0);
    let (gives_strict, gives_shallow) = (giving(strict(inner)), giving(shallow(inner)));

    assert_eq!(machine.evaluate(shallow(gives_shallow)), lazy.lowered().unwrap());
    assert_eq!(machine.world.counts().runs("add"), 0);
    assert_eq!(machine.evaluate(shallow(gives_strict)), complete.lowered().unwrap());
    assert_eq!(machine.world.counts().runs("add"), 1);
    assert_eq!(machine.evaluate(strict(gives_strict)), complete);
    assert_eq!(machine.evaluate(strict(gives_shallow)), complete);
}

#[test]
fn a_selection_that_another_job_took_first_leaves_no_target_behind() {
    let mut machine = Machine::new();
    let world = &machine.world;
    let second = world.selection(world.tree(&[Handle::u64(2), Handle::u64(22)]), 1);
    let target = world.application("remote return", &[world.tree(&[second, Handle::u64(1)])]);
    let first = world.selection(target, 0);

    let (one, other) = (machine.submit(strict(first)), machine.submit(shallow(first)));
    assert_eq!(machine.work_off().len(), 0);
    assert!(machine.world.deliver(&machine.scheduler));
    let results = machine.work_off();
    let result_of = |id| results.iter().find(|(request, _)| request.id() == id).unwrap().1;
    assert_eq!(result_of(one.id()), Handle::u64(22));
    assert_eq!(result_of(other.id()), Handle::u64(22));
    assert_eq!(machine.world.counts().total(), 1);
}

#[test]
fn a_bare_thunk_as_goal_leaves_its_own_step_alone() {
    let mut machine = Machine::new();
    let world = &machine.world;
    let lazy = world.tree(&[world.application("inc", &[Handle::u64(1)])]);
    let thunk = world.application("return", &[lazy]);
    let complete = world.tree(&[Handle::u64(2)]);
    assert_eq!(machine.evaluate(thunk), complete);
    assert_eq!(machine.world.relation(thunk).unwrap(), (lazy, Rule::Apply));
    assert_eq!(machine.evaluate(shallow(thunk)), lazy.lowered().unwrap());

    // A value is wanted completely, too; a failure stays what it is.
    assert_eq!(machine.evaluate(lazy), complete);
    let failure = machine.world.failure(FailureCode::Guest, thunk, "");
    assert_eq!(machine.evaluate(failure), failure);
}

#[test]
fn lasting_failures_are_remembered_and_others_are_not() {
    let mut machine = Machine::new();
    for (procedure, code, runs) in [
        ("fail", FailureCode::Guest, 1),
        ("overflow", FailureCode::Stack, 2),
        ("nonsense", FailureCode::BadProcedure, 1),
    ] {
        let thunk = machine.world.application(procedure, &[Handle::blob(b"why")]);
        let outer = machine.world.application("inc", &[strict(thunk)]);
        for goal in [strict(outer), shallow(outer)] {
            let result = machine.evaluate(goal);
            let (failure, _) = machine.world.explain(result);
            assert_eq!((failure.code, failure.application), (code, thunk));
            assert_eq!(machine.world.relation(goal), None);
        }
        assert_eq!(machine.world.counts().runs(procedure), runs);
        assert_eq!(machine.world.relation(thunk).is_some(), code.is_deterministic());
        assert_eq!(machine.world.relation(outer), None);
    }
    assert_eq!(machine.world.counts().runs("inc"), 0);
    assert_eq!(machine.world.claims(), 0);
}

#[test]
fn nothing_that_stands_on_a_passing_result_is_remembered() {
    let mut machine = Machine::new();
    let world = &machine.world;
    let list = world.tree(&[Handle::u64(4), Handle::u64(5)]);
    let unsteady = world.application("unsteady", &[list]);
    let chosen = world.selection(unsteady, 1);
    let outer = world.application("inc", &[strict(chosen)]);
    let beyond = world.selection(unsteady, 7);
    let outermost = world.tree(&[outer, unsteady]);
    for round in 1..=2 {
        assert_eq!(machine.evaluate(strict(outer)), Handle::u64(6));
        assert_eq!(machine.world.counts().runs("unsteady"), 2 * round - 1);
        assert!(machine.evaluate(strict(beyond)).is_failure());
        assert_eq!(machine.world.counts().runs("unsteady"), 2 * round);
    }
    machine.evaluate(strict(outermost.identification().unwrap()));
    for key in [unsteady, shallow(unsteady), chosen, strict(chosen), outer, strict(outer), beyond] {
        assert_eq!(machine.world.relation(key), None, "{key}");
    }
    assert_eq!(machine.world.relation(strict(outermost.identification().unwrap())), None);
    // What was applied to the result stands on its own.
    assert_eq!(machine.world.counts().runs("inc"), 1);
}

#[test]
fn a_goal_behind_one_step_is_remembered_unless_it_follows() {
    let mut machine = Machine::new();
    let world = &machine.world;
    let literal = Handle::u64(5);
    let direct = world.application("return", &[literal]);
    let identity = world.application("return", &[literal.identification().unwrap()]);
    let given = world.selection(world.tree(&[strict(literal.identification().unwrap())]), 0);
    for thunk in [direct, identity, given] {
        for goal in [strict(thunk), shallow(thunk)] {
            assert_eq!(machine.evaluate(goal), literal);
            let follows = thunk == direct;
            assert_eq!(machine.world.relation(goal).is_none(), follows, "{goal}");
        }
    }
}

#[test]
fn a_remembered_goal_needs_neither_its_definition_nor_its_first_step() {
    let mut machine = Machine::new();
    let list = machine.world.tree(&[machine.world.application("inc", &[Handle::u64(1)])]);
    let thunk = machine.world.application("return", &[list]);
    let selection = machine.world.selection(thunk, 0);
    let resolved = machine.world.application("tree", &[strict(selection), strict(thunk)]);
    for thunk in [thunk, selection, resolved] {
        // A literal's goal follows from the step, and has no record of its own.
        let goal = if thunk == selection { shallow(thunk) } else { strict(thunk) };
        let result = machine.evaluate(goal);
        let runs = machine.world.counts().total();
        let definition = machine.world.peek(thunk.definition()).unwrap();
        machine.world.forget(thunk);
        assert_eq!(machine.evaluate(goal), result);
        machine.world.lose(thunk.definition());
        assert_eq!(machine.evaluate(goal), result);
        let needing = machine.world.application("return", &[goal]);
        assert_eq!(machine.evaluate(shallow(needing)), result.lowered().unwrap());
        assert_eq!(machine.world.counts().total(), runs + 1);
        let entries: Vec<Handle> = objects::TreeView::from_checked(&definition).iter().collect();
        machine.world.tree(&entries);
    }
}

#[test]
fn a_failure_as_direct_argument_is_data() {
    let mut machine = Machine::new();
    let failure =
        machine.world.failure(FailureCode::Guest, Handle::u64(0), "a detail that does not fit a handle");
    let pair = machine.world.application("tree", &[failure, Handle::u64(1)]);
    let lazy = machine.evaluate(shallow(pair));
    assert_eq!(lazy.kind(), Kind::TreeRef);
    // It can be read: its tree and its detail are inputs.
    let loaded = machine.world.counts().loaded;
    assert!(
        machine
            .world
            .entries(failure)
            .iter()
            .all(|part| part.literal_bytes().is_some() || loaded.contains(part))
    );
    assert!(loaded.contains(&failure.plain_tree()));
    // But a complete value has no failure in it.
    assert_eq!(machine.evaluate(strict(pair)), failure);
    // And a part of it that is asked for by its name is a part.
    let code = machine.world.selection(failure, 0);
    assert_eq!(machine.evaluate(strict(code)), Handle::blob(b"guest"));
}

#[test]
fn the_first_failure_in_entry_order_wins_over_later_losses() {
    let mut machine = Machine::new();
    let far = machine.world.blob(&[1; 40]);
    let lost = machine.world.blob(&[2; 40]);
    let failing = machine.world.application("fail", &[Handle::blob(b"first")]);
    let tree = machine.world.tree(&[far.lowered().unwrap(), failing, lost.lowered().unwrap()]);
    machine.world.send_away(far, super::host::Distance::Far);
    machine.world.lose(lost);
    let result = machine.evaluate(strict(tree.identification().unwrap()));
    assert_eq!(machine.world.explain(result).0.application, failing);
    assert_eq!(machine.world.counts().fetched, [far]);
}

#[test]
fn two_workers_run_the_same_application_once() {
    // The procedure returns when another worker waits for its claim.
    let machine = Machine::new();
    let thunk = machine.world.application("gate", &[Handle::u64(6)]);
    let goal = machine.world.application("inc", &[strict(thunk)]).strict().unwrap();
    assert_eq!(evaluate_on_threads(&machine.world, 2, &[goal, goal]), [Handle::u64(7); 2]);
    let counts = machine.world.counts();
    assert_eq!([counts.runs("gate"), counts.runs("inc")], [1, 1]);
    assert!(counts.busy > 0);
}

#[test]
fn sparks_bring_other_workers_to_independent_goals() {
    // Each procedure returns when both are running.
    let machine = Machine::new();
    let calls = [1, 2].map(|item| machine.world.application("meet", &[Handle::u64(item)]));
    let arguments = machine.world.application("add", &calls.map(strict));
    assert_eq!(evaluate_on_threads(&machine.world, 2, &[strict(arguments)]), [Handle::u64(3)]);
    assert_eq!(machine.world.counts().runs("meet"), 2);

    let machine = Machine::new();
    let again = [3, 4].map(|item| machine.world.application("meet", &[Handle::u64(item)]));
    let goal = strict(machine.world.tree(&again).identification().unwrap());
    let results = evaluate_on_threads(&machine.world, 2, &[goal]);
    assert_eq!(machine.world.entries(results[0]), [Handle::u64(3), Handle::u64(4)]);
}
