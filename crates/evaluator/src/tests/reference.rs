// SPDX-License-Identifier: Apache-2.0
//! The rules once more, written to be read beside `docs/spec/evaluation.md`:
//! plain recursion, one function a rule, no jobs, no claims, no events. It
//! shares the world's objects and procedures with the evaluator under test
//! and nothing else; its cache only keeps shared graphs from taking
//! exponential time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use objects::{Application, FailureCode, Handle, Kind, Part, Selection, TreeView};

use super::host::World;

/// A handle, or the failure that stands in its place.
type Evaluated = Result<Handle, Handle>;

/// The naive evaluator.
pub(super) struct Reference<'a> {
    world: &'a World,
    results: HashMap<Handle, Evaluated>,
    steps: HashMap<Handle, Evaluated>,
    /// Applications whose procedure ran.
    pub(super) applied: HashSet<Handle>,
}

impl<'a> Reference<'a> {
    /// An evaluator over a world's objects.
    pub(super) fn new(world: &'a World) -> Self {
        Self { world, results: HashMap::new(), steps: HashMap::new(), applied: HashSet::new() }
    }

    /// The result of an encode: a value, perhaps a failure. A goal that is a
    /// failure itself is its own result.
    pub(super) fn evaluate(&mut self, goal: Handle) -> Handle {
        if goal.is_failure() {
            return goal;
        }
        self.encode(goal).unwrap_or_else(|failure| failure)
    }

    fn encode(&mut self, encode: Handle) -> Evaluated {
        if let Some(&result) = self.results.get(&encode) {
            return result;
        }
        let thunk = encode.thunk().unwrap();
        let result = match encode.kind() {
            Kind::Strict => self.first_value(thunk).and_then(|value| self.complete(value, thunk)),
            _ => self.first_value(thunk).map(|value| value.lowered().unwrap()),
        };
        self.results.insert(encode, result);
        result
    }

    /// Forces thunks until the result is not one any more.
    fn first_value(&mut self, thunk: Handle) -> Evaluated {
        let mut at = thunk;
        while at.is_thunk() {
            at = self.step(at)?;
        }
        let value = if at.is_encode() { self.encode(at)? } else { at };
        if value.is_failure() { Err(value) } else { Ok(value) }
    }

    /// Lifts a value, and everything within.
    fn complete(&mut self, value: Handle, thunk: Handle) -> Evaluated {
        if value.is_failure() {
            return Err(value);
        }
        let object = value.lifted().unwrap();
        let data = self.data(object, thunk)?;
        if !object.names_tree() {
            return Ok(object);
        }
        let mut entries = Vec::new();
        for entry in TreeView::from_checked(&data).iter() {
            let lazy =
                if entry.names_tree() && entry.is_value() { entry.identification() } else { entry.thunk() };
            entries.push(match lazy {
                Some(thunk) => self.encode(thunk.strict().unwrap())?,
                None => self.complete(entry, thunk)?,
            });
        }
        Ok(self.world.tree(&entries))
    }

    fn step(&mut self, thunk: Handle) -> Evaluated {
        if let Some(&next) = self.steps.get(&thunk) {
            return next;
        }
        let next = match thunk.kind() {
            Kind::Identification => Ok(thunk.definition()),
            Kind::Selection => self.selection(thunk),
            _ => self.application(thunk),
        };
        self.steps.insert(thunk, next);
        next
    }

    fn application(&mut self, thunk: Handle) -> Evaluated {
        let data = self.data(thunk.definition(), thunk)?;
        let tree = TreeView::from_checked(&data);
        if tree.iter().any(|entry| entry.is_encode()) {
            let mut entries = Vec::new();
            for entry in tree.iter() {
                entries.push(if entry.is_encode() { self.encode(entry)? } else { entry });
            }
            return Ok(self.world.tree(&entries).application().unwrap());
        }
        let wrong = |error: objects::Error| self.fail(FailureCode::BadThunk, thunk, &error.to_string());
        let application = Application::from_tree(tree).map_err(wrong)?;
        if application.procedure.kind() == Kind::Tree {
            let curried = self.data(application.procedure, thunk)?;
            let flat = application.uncurried(TreeView::from_checked(&curried)).map_err(wrong)?;
            return Ok(self.world.tree(&flat.view().iter().collect::<Vec<_>>()).application().unwrap());
        }
        if let Some(input) = self.world.first_missing_input(tree) {
            return Err(self.missing(input, thunk));
        }
        self.applied.insert(thunk);
        Ok(self.world.run(thunk, &application).result)
    }

    fn selection(&mut self, thunk: Handle) -> Evaluated {
        let data = self.data(thunk.definition(), thunk)?;
        let selection = Selection::from_tree(TreeView::from_checked(&data))
            .map_err(|error| self.fail(FailureCode::BadThunk, thunk, &error.to_string()))?;
        let target = match selection.target {
            encode if encode.is_encode() => self.encode(encode)?,
            deferred if deferred.is_thunk() => self.encode(deferred.shallow().unwrap())?,
            value => value,
        };
        let object = target.plain_tree();
        let size = object.size();
        let (begin, end, detail) = match selection.part {
            Part::Element(index) => {
                (index, index.saturating_add(1), format!("index {index} of {object}, which has {size}"))
            }
            Part::Range { begin, end } => {
                (begin, end, format!("range {begin}..{end} of {object}, which has {size}"))
            }
        };
        if begin > end || end > size || begin == u64::MAX {
            return Err(self.fail(FailureCode::OutOfRange, thunk, &detail));
        }
        let data = self.data(object, thunk)?;
        let range = begin as usize..end as usize;
        if !object.names_tree() {
            return Ok(self.world.blob(&data[range]));
        }
        let entries: Vec<Handle> = TreeView::from_checked(&data).iter().collect();
        match selection.part {
            Part::Element(index) => Ok(entries[index as usize]),
            Part::Range { .. } => Ok(self.world.tree(&entries[range])),
        }
    }

    fn data(&self, object: Handle, thunk: Handle) -> Result<Arc<[u8]>, Handle> {
        self.world.peek(object).ok_or_else(|| self.missing(object, thunk))
    }

    fn missing(&self, object: Handle, thunk: Handle) -> Handle {
        self.fail(FailureCode::MissingData, thunk, &object.to_string())
    }

    fn fail(&self, code: FailureCode, thunk: Handle, detail: &str) -> Handle {
        self.world.failure(code, thunk, detail)
    }
}
