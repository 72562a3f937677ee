// SPDX-License-Identifier: Apache-2.0
//! The rules that need no stack: what is known already, what a selection
//! takes, which inputs are not local yet, and how a failure is made.

use std::collections::HashSet;

use objects::{Failure, FailureCode, Handle, Kind, Part, TreeView};

use crate::host::{Host, Rule};

/// What a value that is wanted completely still lacks.
pub(crate) enum Lacks {
    /// Nothing: this is the complete value.
    Nothing(Handle),
    /// The bytes of a blob.
    Data,
    /// The evaluation of this goal.
    Goal(Handle),
}

/// The result of `goal`, if it can be told without evaluating anything.
pub(crate) fn known<H: Host>(host: &mut H, goal: Handle) -> Option<Handle> {
    let thunk = goal.thunk()?;
    if thunk.kind() == Kind::Identification {
        let value = thunk.definition();
        if goal.kind() == Kind::Shallow {
            return value.lowered();
        }
        let is_here = !value.names_tree() && (value.literal_bytes().is_some() || host.local(value).is_some());
        return if is_here { Some(value) } else { host.recall(goal) };
    }
    // The step of a thunk that gives a literal or fails is the whole result,
    // and the goal is not recorded a second time.
    let next = host.recall(thunk)?;
    if is_final(next) { Some(next) } else { host.recall(goal) }
}

/// Whether a handle is its own strict and shallow result.
#[inline]
pub(crate) fn is_final(handle: Handle) -> bool {
    handle.is_value() && (handle.is_failure() || handle.literal_bytes().is_some())
}

/// What an entry of a tree that is wanted completely still lacks.
pub(crate) fn lacks<H: Host>(host: &mut H, entry: Handle) -> Lacks {
    let goal = match entry.kind() {
        Kind::Blob | Kind::BlobRef => {
            let blob = entry.definition();
            let is_here = blob.literal_bytes().is_some() || host.local(blob).is_some();
            return if is_here { Lacks::Nothing(blob) } else { Lacks::Data };
        }
        Kind::Failure => return Lacks::Nothing(entry),
        Kind::Tree | Kind::TreeRef => entry.identification().and_then(Handle::strict),
        _ => entry.thunk().and_then(Handle::strict),
    };
    let goal = goal.unwrap_or_else(|| unreachable!("trees can be identified and thunks encoded"));
    match known(host, goal) {
        Some(value) => Lacks::Nothing(value),
        None => Lacks::Goal(goal),
    }
}

/// Takes a part of local data. The error is the detail of an `out-of-range` failure.
pub(crate) fn select<H: Host>(
    host: &mut H,
    target: Handle,
    data: &[u8],
    part: Part,
) -> Result<Handle, String> {
    let size = target.size();
    let outside = || match part {
        Part::Element(index) => format!("index {index} of {target}, which has {size}"),
        Part::Range { begin, end } => format!("range {begin}..{end} of {target}, which has {size}"),
    };
    let (begin, end) = match part {
        Part::Element(index) => (index, index.checked_add(1).ok_or_else(outside)?),
        Part::Range { begin, end } => (begin, end),
    };
    if begin > end || end > size {
        return Err(outside());
    }
    // Local data fits the address space, and so do indices within it.
    let (begin, end) = (begin as usize, end as usize);
    if !target.names_tree() {
        return Ok(host.keep_blob(&data[begin..end]));
    }
    let tree = TreeView::from_checked(data);
    match part {
        Part::Element(_) => tree.get(begin).ok_or_else(outside),
        Part::Range { .. } => Ok(host.keep_tree(tree.range(begin, end).ok_or_else(outside)?)),
    }
}

/// Makes a failure value.
pub(crate) fn fail<H: Host>(host: &mut H, code: FailureCode, thunk: Handle, detail: &str) -> Handle {
    let detail = host.keep_blob(detail.as_bytes());
    let (failure, tree) = Failure { code, application: thunk, detail }.to_tree();
    host.keep_tree(tree.view());
    failure
}

/// Makes a failure of the thunk's own shape, which it will always have, and
/// remembers it.
pub(crate) fn fail_lasting<H: Host>(host: &mut H, code: FailureCode, thunk: Handle, detail: &str) -> Handle {
    let failure = fail(host, code, thunk, detail);
    let rule = if thunk.kind() == Kind::Selection { Rule::Select } else { Rule::Apply };
    host.remember(thunk, failure, rule);
    failure
}

/// Trees remembered as complete, per worker.
const COMPLETE_MAX: usize = 4096;
/// Inputs asked for at once, per application.
const FETCHES_MAX: usize = 256;

/// Finds the inputs of an application that are not local: everything that a
/// procedure could read, through trees, but not behind refs or thunks.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// Trees that were found to be local with everything below them.
    complete: HashSet<Handle>,
    /// The blob that was found last: mostly the procedure.
    last: Option<Handle>,
}

impl Inputs {
    /// Whether nothing needs to be looked up to know that all is local.
    #[inline]
    pub(crate) fn are_obviously_local(&self, tree: TreeView<'_>) -> bool {
        tree.iter()
            .all(|entry| !entry.is_object() || entry.literal_bytes().is_some() || self.last == Some(entry))
    }

    /// Up to [`FETCHES_MAX`] inputs that are not local.
    pub(crate) fn missing<H: Host>(&mut self, host: &mut H, tree: TreeView<'_>) -> Vec<Handle> {
        let mut missing = Vec::new();
        let mut seen = HashSet::new();
        let mut pending: Vec<Handle> = Vec::new();
        self.visit(host, tree, &mut missing, &mut pending);
        while let Some(tree) = pending.pop() {
            if missing.len() >= FETCHES_MAX {
                break;
            }
            if self.complete.contains(&tree) || !seen.insert(tree) {
                continue;
            }
            match host.local(tree) {
                Some(data) => self.visit(host, TreeView::from_checked(&data), &mut missing, &mut pending),
                None => missing.push(tree),
            }
        }
        if missing.is_empty() {
            if self.complete.len() + seen.len() > COMPLETE_MAX {
                self.complete.clear();
            }
            self.complete.extend(seen.into_iter().take(COMPLETE_MAX));
        }
        missing
    }

    fn visit<H: Host>(
        &mut self,
        host: &mut H,
        tree: TreeView<'_>,
        missing: &mut Vec<Handle>,
        pending: &mut Vec<Handle>,
    ) {
        for entry in tree.iter() {
            if !entry.is_object() || entry.literal_bytes().is_some() || self.last == Some(entry) {
                continue;
            }
            if entry.names_tree() {
                pending.push(entry.plain_tree());
            } else if host.local(entry).is_some() {
                self.last.get_or_insert(entry);
            } else if missing.len() < FETCHES_MAX {
                missing.push(entry);
            }
        }
    }

    /// The procedure that the worker ran last, known to be local.
    #[inline]
    pub(crate) fn note_procedure(&mut self, procedure: Handle) {
        self.last = Some(procedure);
    }
}
