// SPDX-License-Identifier: Apache-2.0
//! Random graphs: the evaluator against the naive one, on one worker and on
//! several that share everything.

use std::sync::Arc;

use objects::{FailureCode, Handle};
use proptest::prelude::*;

use super::graph;
use super::host::World;
use super::machine::{Machine, evaluate_on_threads};
use super::reference::Reference;

/// Compares results that may come from different worlds. Which of several
/// absent objects a failure names is not specified.
pub(super) fn same_result(world: &World, result: Handle, expected: Handle) -> bool {
    if result == expected {
        return true;
    }
    let codes = [result, expected].map(|handle| handle.is_failure().then(|| world.explain(handle).0.code));
    codes == [Some(FailureCode::MissingData); 2]
}

/// The reference's result, and how often it ran a procedure.
fn reference(bytes: &[u8]) -> (Handle, Arc<World>, std::collections::HashSet<Handle>) {
    let world = World::new();
    let goal = graph::build(&world, bytes, false);
    let mut reference = Reference::new(&world);
    let result = reference.evaluate(goal);
    let applied = std::mem::take(&mut reference.applied);
    (result, world, applied)
}

/// Failures that may be met again are made again.
fn runs_once(world: &World, application: Handle) -> bool {
    let procedure = world.entries(application.definition())[objects::PROCEDURE_INDEX];
    !super::procedures::name(world, procedure).starts_with("overflow")
}

/// Makes a failure of one world readable in another.
fn absorb(from: &World, into: &World, failure: Handle) {
    if failure.is_failure() {
        let parts = from.entries(failure);
        into.blob(&from.peek(parts[2]).unwrap());
        into.tree(&parts);
    }
}

fn check_alone(bytes: &[u8]) -> Result<(), TestCaseError> {
    let (expected, other, applied) = reference(bytes);
    let mut machine = Machine::new();
    let goal = graph::build(&machine.world, bytes, true);
    let result = machine.evaluate(goal);
    absorb(&other, &machine.world, expected);
    prop_assert!(
        same_result(&machine.world, result, expected),
        "{goal} gave {result} instead of {expected}: {:?}",
        expected.is_failure().then(|| other.explain(expected))
    );
    let counts = machine.world.counts();
    // As lazy as the rules, and no less.
    let ran: std::collections::HashSet<Handle> = counts.applied.keys().copied().collect();
    prop_assert_eq!(ran, applied);
    for (&thunk, &runs) in &counts.applied {
        prop_assert!(runs == 1 || !runs_once(&machine.world, thunk), "{} ran {} times", thunk, runs);
    }
    prop_assert_eq!(machine.world.claims(), 0);
    prop_assert_eq!(machine.scheduler.waiting(), (0, 0));

    // What is remembered gives the same result again, without running anything.
    let again = machine.evaluate(goal);
    prop_assert!(same_result(&machine.world, again, expected));
    if !result.is_failure() {
        prop_assert_eq!(machine.world.counts().total(), counts.total());
    }
    Ok(())
}

fn check_together(bytes: &[u8], workers: usize) -> Result<(), TestCaseError> {
    let (expected, other, applied) = reference(bytes);
    let world = World::new();
    let goal = graph::build(&world, bytes, true);
    // Twice, so that requests meet on the same steps.
    let results = evaluate_on_threads(&world, workers, &[goal, goal]);
    absorb(&other, &world, expected);
    for result in results {
        prop_assert!(same_result(&world, result, expected), "{goal} gave {result} instead of {expected}");
    }
    let counts = world.counts();
    for (&thunk, &runs) in &counts.applied {
        prop_assert!(runs == 1 || !runs_once(&world, thunk), "{} ran {} times", thunk, runs);
    }
    for thunk in applied {
        prop_assert!(counts.applied.contains_key(&thunk), "{} did not run", thunk);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_graphs_evaluate_as_the_rules_say(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        check_alone(&bytes)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_worker_thread_evaluates_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        check_together(&bytes, 1)?;
    }

    #[test]
    fn two_worker_threads_evaluate_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        check_together(&bytes, 2)?;
    }

    #[test]
    fn four_worker_threads_evaluate_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        check_together(&bytes, 4)?;
    }
}
