// SPDX-License-Identifier: Apache-2.0
//! What must hold for every graph: the evaluator gives what the naive one
//! gives, alone and with other workers, is as lazy, and runs nothing twice.

use std::collections::HashSet;
use std::sync::Arc;

use objects::{FailureCode, Handle, PROCEDURE_INDEX};

use super::graph;
use super::host::World;
use super::machine::{Machine, evaluate_on_threads};
use super::procedures;
use super::reference::Reference;

/// What the naive evaluator makes of the same bytes, in a world of its own.
struct Expected {
    result: Handle,
    applied: HashSet<Handle>,
    world: Arc<World>,
}

impl Expected {
    fn of(bytes: &[u8]) -> Self {
        let world = World::new();
        let goal = graph::build(&world, bytes, false);
        let mut reference = Reference::new(&world);
        let result = reference.evaluate(goal);
        let applied = std::mem::take(&mut reference.applied);
        Self { result, applied, world }
    }

    /// Compares with a result from another world. Which of several absent
    /// objects a failure names is not specified.
    fn check(&self, world: &World, goal: Handle, result: Handle) {
        if result == self.result {
            return;
        }
        let code = |world: &World, handle: Handle| handle.is_failure().then(|| world.explain(handle).0.code);
        let codes = [code(world, result), code(&self.world, self.result)];
        let is_same = codes == [Some(FailureCode::MissingData); 2];
        assert!(is_same, "{goal} gave {result} instead of {}: {codes:?}", self.result);
    }
}

/// Passing failures are not remembered, and may be met again.
fn lasts(world: &World, application: Handle) -> bool {
    let procedure = world.entries(application.definition())[PROCEDURE_INDEX];
    !procedures::name(world, procedure).starts_with("overflow")
}

fn check_runs(world: &World) {
    for (&thunk, &runs) in &world.counts().applied {
        assert!(runs == 1 || !lasts(world, thunk), "{thunk} ran {runs} times");
    }
    assert_eq!(world.claims(), 0);
}

/// One worker, objects at all distances, twice.
pub(super) fn check_alone(bytes: &[u8]) {
    let expected = Expected::of(bytes);
    let mut machine = Machine::new();
    let goal = graph::build(&machine.world, bytes, true);
    let result = machine.evaluate(goal);
    expected.check(&machine.world, goal, result);
    check_runs(&machine.world);
    assert_eq!(machine.scheduler.waiting(), (0, 0));
    // As lazy as the rules, and no less.
    let counts = machine.world.counts();
    assert_eq!(counts.applied.keys().copied().collect::<HashSet<_>>(), expected.applied);

    let again = machine.evaluate(goal);
    expected.check(&machine.world, goal, again);
    if !result.is_failure() {
        assert_eq!(machine.world.counts().total(), counts.total(), "what is remembered was run again");
    }
}

/// Several workers; the goal twice, so that requests meet on the same steps.
pub(super) fn check_together(bytes: &[u8], workers: usize) {
    let expected = Expected::of(bytes);
    let world = World::new();
    let goal = graph::build(&world, bytes, true);
    for result in evaluate_on_threads(&world, workers, &[goal, goal]) {
        expected.check(&world, goal, result);
    }
    check_runs(&world);
    for thunk in expected.applied {
        assert!(world.counts().applied.contains_key(&thunk), "{thunk} did not run");
    }
}
