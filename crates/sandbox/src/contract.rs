// SPDX-License-Identifier: Apache-2.0
//! What every implementation of [`Sandbox`] must do, as tests.
//!
//! An implementation describes itself by a [`Fixture`] and calls
//! [`check_all`] in a test of its own. Each check makes its own sandboxes, so
//! they may run in any order.

// A test's threads end with it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use objects::{FailureCode, Handle};

use crate::{Call, Error, Invoked, Outcome, Phase, Sandbox, SandboxId, Spec, State};

/// How long a check waits for another thread.
const PATIENCE: Duration = Duration::from_secs(30);

/// An implementation under test, with things to run in it.
pub trait Fixture: Sync {
    /// The implementation.
    fn sandbox(&self) -> &dyn Sandbox;
    /// A spec that can be created; its procedure returns its first argument.
    fn good(&self) -> Spec;
    /// A spec whose procedure cannot be run.
    fn bad(&self) -> Spec;
    /// A call of the good procedure, and what it returns.
    fn echo(&self, argument: Handle) -> (Call, Handle);
    /// A procedure that fails, a call of it, and the failure's code.
    fn failing(&self) -> (Spec, Call, FailureCode);
    /// A procedure that never ends by itself, and a call of it.
    fn endless(&self) -> (Spec, Call);
}

/// Runs every check.
///
/// # Panics
/// At the first promise that the implementation breaks.
pub fn check_all(fixture: &dyn Fixture) {
    answers_stand_in_the_order_of_questions(fixture);
    phases_follow_each_other(fixture);
    calls_must_fit(fixture);
    outcomes_are_counted(fixture);
    kill_ends_what_runs(fixture);
    memory_and_life_are_told(fixture);
}

fn answers_stand_in_the_order_of_questions(fixture: &dyn Fixture) {
    let sandbox = fixture.sandbox();
    let mut created = sandbox.create(&[fixture.good(), fixture.bad(), fixture.good()]).into_iter();
    let first = created.next().unwrap().unwrap();
    let refused = created.next().unwrap();
    assert!(matches!(refused, Err(Error::Procedure { .. })), "{refused:?}");
    let second = created.next().unwrap().unwrap();
    assert_ne!(first, second, "ids are unique");
    let unknown = SandboxId(u64::MAX);
    let started = sandbox.start(&[unknown, second]);
    assert!(matches!(started[..], [Err(Error::Unknown(id)), Ok(())] if id == unknown));
    let states: Vec<_> = sandbox.state(&[second, unknown, first]);
    assert_eq!(states[0].as_ref().unwrap().phase, Phase::Running);
    assert!(matches!(states[1], Err(Error::Unknown(_))));
    assert_eq!(states[2].as_ref().unwrap().phase, Phase::Created);
    assert!(matches!(sandbox.kill(&[unknown, second])[..], [Err(Error::Unknown(_)), Ok(())]));
    let deleted = sandbox.delete(&[second, unknown, first]);
    assert!(matches!(deleted[..], [Ok(()), Err(Error::Unknown(_)), Ok(())]));
    assert!(sandbox.create(&[]).is_empty() && sandbox.state(&[]).is_empty());
}

fn phases_follow_each_other(fixture: &dyn Fixture) {
    let sandbox = fixture.sandbox();
    let id = create(fixture, fixture.good());
    let (call, _) = fixture.echo(Handle::u64(1));
    let early = sandbox.invoke(id, call.clone());
    assert!(matches!(early, Err(Error::WrongPhase { phase: Phase::Created, .. })), "{early:?}");
    start(fixture, id);
    assert!(matches!(sandbox.start(&[id])[..], [Err(Error::WrongPhase { .. })]), "started twice");
    assert!(matches!(sandbox.delete(&[id])[..], [Err(Error::WrongPhase { .. })]), "deleted while running");
    assert!(matches!(sandbox.kill(&[id])[..], [Ok(())]));
    assert!(matches!(sandbox.kill(&[id])[..], [Ok(())]), "killing again changes nothing");
    assert_eq!(state(fixture, id).phase, Phase::Stopped);
    assert!(matches!(sandbox.start(&[id])[..], [Err(Error::WrongPhase { .. })]), "started after a kill");
    let late = sandbox.invoke(id, call.clone());
    assert!(matches!(late, Err(Error::WrongPhase { phase: Phase::Stopped, .. })), "{late:?}");
    assert!(matches!(sandbox.delete(&[id])[..], [Ok(())]));
    assert!(matches!(sandbox.invoke(id, call), Err(Error::Unknown(_))));
    assert_ne!(create(fixture, fixture.good()), id, "an id is never used again");
}

fn calls_must_fit(fixture: &dyn Fixture) {
    let (spec, call, _) = fixture.failing();
    let id = create(fixture, fixture.good());
    start(fixture, id);
    let answer = fixture.sandbox().invoke(id, call);
    assert!(matches!(answer, Err(Error::WrongProcedure { found, .. }) if found == spec.procedure));
    assert_eq!(state(fixture, id).failed, 0, "what was not run has not failed");
}

fn outcomes_are_counted(fixture: &dyn Fixture) {
    let good = create(fixture, fixture.good());
    start(fixture, good);
    for n in 0..3 {
        let (call, expected) = fixture.echo(Handle::u64(n));
        assert_eq!(invoke(fixture, good, call).result, Ok(expected));
    }
    let (spec, call, code) = fixture.failing();
    let failing = create(fixture, spec);
    start(fixture, failing);
    assert_eq!(invoke(fixture, failing, call).result.unwrap_err().code, code);
    let counts = |id| {
        let state = state(fixture, id);
        (state.running, state.succeeded, state.failed)
    };
    assert_eq!((counts(good), counts(failing)), ((0, 3, 0), (0, 0, 1)));
}

fn kill_ends_what_runs(fixture: &dyn Fixture) {
    let (spec, call) = fixture.endless();
    let id = create(fixture, spec);
    start(fixture, id);
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(|| invoke(fixture, id, call));
        let began = Instant::now();
        while state(fixture, id).running == 0 {
            assert!(began.elapsed() < PATIENCE, "it never ran");
            std::thread::yield_now();
        }
        assert!(matches!(fixture.sandbox().kill(&[id])[..], [Ok(())]));
        thread.join().unwrap()
    });
    assert_eq!(outcome.result.unwrap_err().code, FailureCode::Cancelled);
    let state = state(fixture, id);
    assert_eq!((state.phase, state.running, state.failed), (Phase::Stopped, 0, 1));
    // Its neighbours live on.
    let other = create(fixture, fixture.good());
    start(fixture, other);
    let (call, expected) = fixture.echo(Handle::u64(9));
    assert_eq!(invoke(fixture, other, call).result, Ok(expected));
}

fn memory_and_life_are_told(fixture: &dyn Fixture) {
    let sandbox = fixture.sandbox();
    let id = create(fixture, fixture.good());
    start(fixture, id);
    let (call, expected) = fixture.echo(Handle::u64(5));
    assert_eq!(invoke(fixture, id, call).result, Ok(expected));
    assert!(state(fixture, id).is_alive, "a call that went well leaves something to run in");
    let unknown = SandboxId(u64::MAX);
    let told = sandbox.memory_bytes(&[unknown, id]);
    assert!(matches!(told[..], [Err(Error::Unknown(_)), Ok(_)]), "{told:?}");
    if let Ok(Some(bytes)) = told[1] {
        assert!(bytes < 1 << 40, "{bytes} bytes for a function that returns its argument");
    }
    assert!(matches!(sandbox.kill(&[id])[..], [Ok(())]));
    assert!(!state(fixture, id).is_alive, "what was killed lives on");
    assert!(matches!(sandbox.delete(&[id])[..], [Ok(())]));
    assert!(matches!(sandbox.memory_bytes(&[id])[..], [Err(Error::Unknown(_))]));
    assert!(sandbox.memory_bytes(&[]).is_empty());
}

fn create(fixture: &dyn Fixture, spec: Spec) -> SandboxId {
    fixture.sandbox().create(&[spec]).pop().unwrap().unwrap()
}

fn start(fixture: &dyn Fixture, id: SandboxId) {
    fixture.sandbox().start(&[id]).pop().unwrap().unwrap();
}

fn state(fixture: &dyn Fixture, id: SandboxId) -> State {
    fixture.sandbox().state(&[id]).pop().unwrap().unwrap()
}

fn invoke(fixture: &dyn Fixture, id: SandboxId, call: Call) -> Outcome {
    let Invoked::Done(outcome) = fixture.sandbox().invoke(id, call).unwrap();
    outcome
}
