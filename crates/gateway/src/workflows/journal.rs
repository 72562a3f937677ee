// SPDX-License-Identifier: Apache-2.0
//! What a run that the queue has leaves on the disk: the result of each step that
//! has ended well, and at last a record of the run.
//!
//! If the node ends during a run, the workflow is run again, and makes the same
//! steps again. A step is known by what it is: its function, its arguments, the
//! steps that it needs, and how many like it were made before; not by its
//! number, for threads and coroutines may make them in another order. A step whose
//! result is on the disk is done. Results that no step asks for again mean that the
//! workflow does not do the same again, which is an error.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::StatusCode;
use objects::{Handle, TreeBuilder};
use queue::Id;

use super::graph::{Made, Number};
use super::refused;
use crate::deferred::queue;
use crate::problem::Problem;
use crate::router::Shared;

/// What a note's key begins with: the result of a step, followed by what the step is known by.
const STEP: u8 = b's';
/// The note that is the run's record.
const RECORD: &[u8] = b"r";
/// The note that says that the run is to end.
const CANCELLED: &[u8] = b"c";

/// Names of functions that a divergence tells.
const TOLD_MAX: usize = 3;

/// What is known of a run before it begins.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(crate) message: Id,
    /// By what a step is known by: its result, and its function.
    done: HashMap<Handle, (Handle, String)>,
}

/// What a message of the queue says about the run that it is. `None`: it was cancelled.
///
/// # Errors
/// If the disk fails.
pub(crate) fn resume(shared: &Shared, message: Id) -> Result<Option<Durable>, Problem> {
    let notes = queue(shared)?.notes(message).map_err(|error| crate::deferred::refused(&error))?;
    if notes.iter().any(|(key, _)| key == CANCELLED) {
        return Ok(None);
    }
    let done = notes.into_iter().filter_map(|(key, value)| {
        let (kind, step) = key.split_first()?;
        let (result, function) = value.split_first_chunk()?;
        let step = Handle::from_bytes(step.try_into().ok().filter(|_| *kind == STEP)?).ok()?;
        let result = Handle::from_bytes(*result).ok()?;
        Some((step, (result, String::from_utf8_lossy(function).into_owned())))
    });
    Ok(Some(Durable { message, done: done.collect() }))
}

/// The record of a run that has ended, if there is one.
pub(super) fn record(shared: &Shared, message: Id) -> Result<Option<Vec<u8>>, Problem> {
    let notes = queue(shared)?.notes(message).map_err(|error| crate::deferred::refused(&error))?;
    Ok(notes.into_iter().find_map(|(key, value)| (key == RECORD).then_some(value)))
}

/// Has a run that waits end when its turn comes.
pub(super) fn cancel(shared: &Shared, message: Id) -> Result<bool, Problem> {
    let noted = queue(shared)?.note(message, CANCELLED, b"");
    noted.map_err(|error| crate::deferred::refused(&error))
}

/// Whether somebody has cancelled a run.
pub(super) fn is_cancelled(shared: &Shared, message: Id) -> Result<bool, Problem> {
    let notes = queue(shared)?.notes(message).map_err(|error| crate::deferred::refused(&error))?;
    Ok(notes.iter().any(|(key, _)| key == CANCELLED))
}

/// The steps of a run, as they are known from one attempt at it to the next.
pub(super) struct Ledger {
    message: Id,
    /// What is done and was not asked for yet.
    done: HashMap<Handle, (Handle, String)>,
    /// Of each step, by its number.
    keys: Vec<(Handle, Arc<str>)>,
    /// How many steps there are that look like this.
    alike: HashMap<Handle, u64>,
}

impl Ledger {
    pub(super) fn new(durable: Durable) -> Self {
        let Durable { message, done } = durable;
        Self { message, done, keys: Vec::new(), alike: HashMap::new() }
    }

    pub(super) fn message(&self) -> Id {
        self.message
    }

    /// The results of new steps, as far as they are done.
    pub(super) fn known(&mut self, made: &[Made]) -> Vec<Option<Handle>> {
        made.iter().map(|made| self.known_one(made)).collect()
    }

    fn known_one(&mut self, made: &Made) -> Option<Handle> {
        let mut tree = TreeBuilder::new();
        tree.push(Handle::blob(made.function.as_bytes()));
        tree.push(Handle::blob(&made.arguments));
        for need in &made.needs {
            // What is none makes the graph refuse it.
            tree.push(self.keys.get(*need as usize).map(|(key, _)| *key)?);
        }
        let look = tree.view().handle();
        let alike = self.alike.entry(look).or_default();
        tree.push(Handle::blob(&alike.to_le_bytes()));
        *alike += 1;
        let key = tree.view().handle();
        self.keys.push((key, made.function.clone()));
        self.done.remove(&key).map(|(result, _)| result)
    }

    /// Where the result of a step is to be written.
    pub(super) fn note(&self, number: Number) -> Option<Note> {
        let (key, function) = self.keys.get(number as usize)?;
        let key = [&[STEP], key.as_bytes().as_slice()].concat();
        Some(Note { message: self.message, key, function: function.clone() })
    }

    /// Where the run's record is to be written.
    pub(super) fn record(&self) -> Note {
        Note { message: self.message, key: RECORD.to_vec(), function: "".into() }
    }

    /// Whether nothing is left that had been done.
    pub(super) fn is_clear(&self) -> bool {
        self.done.is_empty()
    }

    /// Whether all was asked for again that had been done.
    ///
    /// # Errors
    /// What was not.
    pub(super) fn check(&self) -> Result<(), Problem> {
        let mut functions: Vec<&str> = self.done.values().map(|(_, function)| function.as_str()).collect();
        if functions.is_empty() {
            return Ok(());
        }
        functions.sort_unstable();
        functions.dedup();
        functions.truncate(TOLD_MAX);
        let why = format!(
            "the node ended during the run, and the workflow made other steps than before: {} that were done were not \
             made again, of {}",
            self.done.len(),
            functions.join(", ")
        );
        Err(refused(StatusCode::CONFLICT, "workflow-diverged", &why).suggest(
            "a workflow must do the same each time it is run: take times, random numbers and what is outside from steps",
        ))
    }
}

/// A place on the disk.
#[derive(Clone)]
pub(super) struct Note {
    message: Id,
    key: Vec<u8>,
    function: Arc<str>,
}

impl Note {
    /// Writes the result of a step. It is synced when this returns.
    pub(super) fn write_result(&self, shared: &Shared, result: Handle) -> Result<(), Problem> {
        self.write(shared, &[result.as_bytes().as_slice(), self.function.as_bytes()].concat())
    }

    /// Writes something. It is synced when this returns.
    pub(super) fn write(&self, shared: &Shared, value: &[u8]) -> Result<(), Problem> {
        let noted = queue(shared)?.note(self.message, &self.key, value);
        noted.map(drop).map_err(|error| crate::deferred::refused(&error))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn made(function: &str, needs: &[Number], arguments: &[u8]) -> Made {
        Made {
            function: function.into(),
            needs: needs.to_vec(),
            isolated: Vec::new(),
            is_left: false,
            arguments: arguments.to_vec(),
        }
    }

    fn result(number: u8) -> Handle {
        Handle::blob(&[number; 40])
    }

    /// A run that did these steps and was interrupted, begun again.
    fn again(steps: &[Made]) -> Ledger {
        let mut first = Ledger::new(Durable { message: Id(7), done: HashMap::new() });
        assert!(first.known(steps).iter().all(Option::is_none));
        let done = first.keys.iter().zip(0..);
        let done = done.map(|((key, function), at)| (*key, (result(at), function.to_string())));
        Ledger::new(Durable { message: Id(7), done: done.collect() })
    }

    #[test]
    fn the_same_steps_are_known_again_in_whatever_order() {
        let steps = [made("main.a", &[], b"1"), made("main.a", &[], b"2"), made("main.b", &[0, 1], b"")];
        let mut same = again(&steps);
        assert_eq!(same.known(&steps), [Some(result(0)), Some(result(1)), Some(result(2))]);
        assert!(same.check().is_ok());
        let mut other = again(&steps);
        let turned = [made("main.a", &[], b"2"), made("main.a", &[], b"1"), made("main.b", &[1, 0], b"")];
        assert_eq!(other.known(&turned), [Some(result(1)), Some(result(0)), Some(result(2))]);
        assert!(other.check().is_ok());
    }

    #[test]
    fn steps_that_look_alike_are_told_apart_by_how_many_there_were() {
        let steps = [made("main.roll", &[], b""), made("main.roll", &[], b"")];
        let mut ledger = again(&steps[..]);
        assert_eq!(ledger.known(&steps[..1]), [Some(result(0))]);
        assert_eq!(ledger.known(&steps[1..]), [Some(result(1))]);
        assert_eq!(ledger.known(&steps[..1]), [None], "a third one is new");
    }

    #[test]
    fn what_was_done_and_is_not_made_again_is_told() {
        let steps = [made("main.a", &[], b"1"), made("main.pay", &[], b"at 12:00")];
        let mut ledger = again(&steps);
        let changed = [made("main.a", &[], b"1"), made("main.pay", &[], b"at 12:01")];
        assert_eq!(ledger.known(&changed), [Some(result(0)), None]);
        let problem = ledger.check().unwrap_err();
        assert!(problem.detail().contains("main.pay") && problem.detail().contains("1 that were done"));
    }

    #[test]
    fn another_input_is_another_step() {
        let steps = [made("main.a", &[], b"1"), made("main.b", &[0], b"")];
        let mut ledger = again(&steps);
        let changed = [made("main.a", &[], b"2"), made("main.b", &[0], b"")];
        assert_eq!(ledger.known(&changed), [None, None]);
    }
}
