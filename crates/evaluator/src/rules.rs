// SPDX-License-Identifier: Apache-2.0
//! The rules that need no stack: what is known already, what a selection
//! takes, and how a failure is made.

use std::ops::Range;

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

/// Where a part of a target lies. The error is the detail of an `out-of-range` failure.
pub(crate) fn within(target: Handle, part: Part) -> Result<Range<u64>, String> {
    let size = target.size();
    part.within(size).ok_or_else(|| match part {
        Part::Element(index) => format!("index {index} of {target}, which has {size}"),
        Part::Range { begin, end } => format!("range {begin}..{end} of {target}, which has {size}"),
    })
}

/// Takes a part of local data, which lies within it.
pub(crate) fn select<H: Host>(
    host: &mut H,
    target: Handle,
    data: &[u8],
    part: Part,
    range: Range<u64>,
) -> Handle {
    // Local data fits the address space, and so do indices within it.
    let (begin, end) = (range.start as usize, range.end as usize);
    if !target.names_tree() {
        return host.keep_blob(&data[begin..end]);
    }
    let tree = TreeView::from_checked(data);
    let taken = match part {
        Part::Element(_) => tree.get(begin),
        Part::Range { .. } => tree.range(begin, end).map(|tree| host.keep_tree(tree)),
    };
    taken.unwrap_or_else(|| unreachable!("the part lies within the tree"))
}

/// Makes a failure value.
pub(crate) fn fail<H: Host>(host: &mut H, code: FailureCode, thunk: Handle, detail: &str) -> Handle {
    let detail = host.keep_blob(detail.as_bytes());
    fail_by(host, code, thunk, detail)
}

/// Makes a failure value whose detail is kept.
pub(crate) fn fail_by<H: Host>(host: &mut H, code: FailureCode, thunk: Handle, detail: Handle) -> Handle {
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
