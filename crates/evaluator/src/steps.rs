// SPDX-License-Identifier: Apache-2.0
//! The steps that need nothing but a frame and the world: everything except
//! the application itself, which also needs memory, inputs and a claim.

use objects::{Application, FailureCode, Handle, Kind, Selection, TreeView};

use crate::evaluator::{Turn, Wait};
use crate::host::{Host, Rule};
use crate::job::{Frame, Partial, State, is_counted};
use crate::request::Notes;
use crate::rules::{self, Lacks};
use crate::walk::{WalkBytes, WalkPool};

/// Entries of a tree that one turn looks at.
const ENTRIES_PER_TURN: usize = 4096;

/// Goes on from the result of a step.
#[inline]
pub(crate) fn advance(frame: &mut Frame, next: Handle) -> Turn {
    frame.at = next;
    frame.steps = frame.steps.saturating_add(1);
    // Belongs to the selection that was taken, by this job or by another one.
    frame.selected = None;
    Turn::Continue
}

/// Looks for the goal's own result before the first step, whose result is not
/// known: either may have been forgotten without the other.
pub(crate) fn recall_goal<H: Host>(host: &mut H, frame: &mut Frame) -> Option<Turn> {
    if frame.steps > 0 {
        return None;
    }
    let value = host.recall(frame.goal)?;
    frame.is_recorded = true;
    Some(Turn::Return(value))
}

/// Goes on from the remembered result of a step. If it was the goal's first,
/// the goal's own result may be remembered too.
#[inline]
pub(crate) fn advance_known<H: Host>(host: &mut H, frame: &mut Frame, next: Handle) -> Turn {
    let is_first = frame.steps == 0;
    if is_first
        && !rules::is_final(next)
        && let Some(value) = host.recall(frame.goal)
    {
        frame.is_recorded = true;
        return Turn::Return(value);
    }
    advance(frame, next)
}

/// Records the result of a goal, unless it follows from a single step.
#[inline]
pub(crate) fn remember_goal<H: Host>(host: &mut H, frame: &Frame, value: Handle) {
    let follows = frame.is_recorded || value.is_failure() || (frame.steps <= 1 && rules::is_final(value));
    if !frame.is_lasting {
        return;
    }
    let is_identity = frame.steps == 0 && !(frame.goal.names_tree() && frame.goal.kind() == Kind::Strict);
    if !follows && !is_identity {
        let rule = if frame.goal.kind() == Kind::Strict { Rule::Strict } else { Rule::Shallow };
        host.remember(frame.goal, value, rule);
    }
}

/// An encode that a procedure or selection gave: its result is the frame's
/// value. Where the frame wants as much as the encode asks for, or more, the
/// chain simply goes on.
pub(crate) fn forward(frame: &mut Frame) -> Turn {
    let encode = frame.at;
    if encode.kind() == Kind::Strict && frame.goal.kind() == Kind::Shallow {
        frame.state = State::Forwarding;
        return Turn::Call(encode);
    }
    match encode.thunk() {
        Some(thunk) => advance(frame, thunk),
        None => unreachable!("an encode has a thunk"),
    }
}

/// The chain has arrived at a value: what the goal makes of it.
#[inline]
pub(crate) fn complete<H: Host>(
    host: &mut H,
    frame: &mut Frame,
    notes: &mut Notes,
    walk: &mut WalkBytes,
    pool: &WalkPool,
) -> Turn {
    let value = frame.at;
    if rules::is_final(value) {
        return Turn::Return(value);
    }
    if frame.goal.kind() == Kind::Shallow {
        return Turn::Return(value.lowered().unwrap_or(value));
    }
    let object = value.definition();
    if !object.names_tree() {
        return match host.local(object) {
            Some(_) => Turn::Return(object),
            None => Turn::Wait(Wait::Data(vec![object])),
        };
    }
    let own = object.identification().and_then(Handle::strict);
    if let Some(known) = own.and_then(|goal| host.recall(goal)) {
        frame.is_recorded = own == Some(frame.goal);
        return Turn::Return(known);
    }
    match host.local(object) {
        Some(data) => {
            let tree = TreeView::from_checked(&data);
            if !walk.grow(Partial::bytes_of(tree.len()), pool) {
                return Turn::Exceed;
            }
            frame.at = object;
            frame.state = State::Deepening(Partial::new(tree, notes));
            Turn::Continue
        }
        None => Turn::Wait(Wait::Data(vec![object])),
    }
}

/// Evaluates the entries of a tree, from where the last turn stopped.
pub(crate) fn deepen<H: Host>(host: &mut H, partial: &mut Partial, notes: &mut Notes, tree: Handle) -> Turn {
    let turn_end = partial.index + ENTRIES_PER_TURN;
    while let Some(entry) = partial.entry(partial.index) {
        if partial.index == turn_end {
            return Turn::Continue;
        }
        match rules::lacks(host, entry) {
            Lacks::Nothing(value) if value.is_failure() => return Turn::Return(value),
            Lacks::Nothing(value) => {
                note_known(notes, entry);
                partial.replace(value);
            }
            Lacks::Goal(goal) => return Turn::Call(goal),
            Lacks::Data => return Turn::Wait(Wait::Data(blobs_missing(host, partial))),
        }
    }
    if !partial.is_changed {
        return Turn::Return(tree);
    }
    let complete = host.keep_tree(partial.tree.view());
    if let Some(goal) = complete.identification().and_then(Handle::strict) {
        host.remember(goal, complete, Rule::Strict);
    }
    Turn::Return(complete)
}

/// An entry has its result without a walk.
#[inline]
fn note_known(notes: &mut Notes, entry: Handle) {
    let counted = u32::from(is_counted(entry));
    notes.settled += counted;
    notes.remembered += counted;
}

/// Blobs from the current entry on that are not local, to be asked for at once.
pub(crate) fn blobs_missing<H: Host>(host: &mut H, partial: &Partial) -> Vec<Handle> {
    const AT_ONCE: usize = 256;
    let ahead = partial.tree.view().iter().skip(partial.index).take(ENTRIES_PER_TURN);
    // No further than the next goal: its failure would come before a loss
    // behind it.
    let blobs = ahead.take_while(|entry| entry.is_value() && !entry.names_tree());
    let blobs = blobs.map(|entry| entry.definition()).filter(|blob| blob.literal_bytes().is_none());
    blobs.filter(|&blob| host.local(blob).is_none()).take(AT_ONCE).collect()
}

/// Replaces the encodes of an application, from where the last turn stopped.
pub(crate) fn resolve<H: Host>(
    host: &mut H,
    frame: &mut Frame,
    notes: &mut Notes,
    walk: &mut WalkBytes,
) -> Turn {
    let State::Resolving(partial) = &mut frame.state else {
        unreachable!("the caller saw the state");
    };
    while let Some(entry) = partial.entry(partial.index) {
        if !entry.is_encode() {
            partial.index += 1;
            continue;
        }
        match rules::known(host, entry) {
            Some(value) if value.is_failure() => return Turn::Return(value),
            Some(value) => {
                note_known(notes, entry);
                partial.replace(value);
            }
            None => return Turn::Call(entry),
        }
    }
    let resolved = host.keep_tree(partial.tree.view());
    let next = resolved.application().unwrap_or_else(|| unreachable!("a tree can be applied"));
    if frame.is_lasting {
        host.remember(frame.at, next, Rule::Resolve);
    }
    walk.shrink(frame.state.bytes());
    frame.state = State::Forcing;
    advance(frame, next)
}

/// The last goal of a tree that was neither reached nor offered.
pub(crate) fn next_spark<H: Host>(host: &mut H, partial: &mut Partial, encodes_only: bool) -> Option<Handle> {
    while partial.offered_from > partial.index + 1 {
        partial.offered_from -= 1;
        let entry = partial.entry(partial.offered_from)?;
        if encodes_only && entry.is_encode() && rules::known(host, entry).is_none() {
            return Some(entry);
        }
        if !encodes_only && let Lacks::Goal(goal) = rules::lacks(host, entry) {
            return Some(goal);
        }
    }
    None
}

/// Moves the arguments of a curried procedure into the application.
pub(crate) fn uncurry<H: Host>(host: &mut H, frame: &mut Frame, application: &Application<'_>) -> Turn {
    let thunk = frame.at;
    let Some(procedure) = host.local(application.procedure) else {
        return Turn::Wait(Wait::Data(vec![application.procedure]));
    };
    let next = match application.uncurried(TreeView::from_checked(&procedure)) {
        Ok(tree) => host.keep_tree(tree.view()).application(),
        Err(error) => {
            let failure = rules::fail_lasting(host, FailureCode::BadThunk, thunk, &error.to_string());
            return advance(frame, failure);
        }
    };
    let next = next.unwrap_or_else(|| unreachable!("a tree can be applied"));
    host.remember(thunk, next, Rule::Uncurry);
    advance(frame, next)
}

/// One step of a selection thunk.
pub(crate) fn selection<H: Host>(host: &mut H, frame: &mut Frame) -> Turn {
    let thunk = frame.at;
    if let Some(next) = host.recall(thunk) {
        return advance_known(host, frame, next);
    }
    if let Some(turn) = recall_goal(host, frame) {
        return turn;
    }
    let Some(data) = host.local(thunk.definition()) else {
        return Turn::Wait(Wait::Data(vec![thunk.definition()]));
    };
    let selection = match Selection::from_tree(TreeView::from_checked(&data)) {
        Ok(selection) => selection,
        Err(error) => {
            let failure = rules::fail_lasting(host, FailureCode::BadThunk, thunk, &error.to_string());
            return advance(frame, failure);
        }
    };
    let target = match frame.selected {
        Some(target) => target,
        None if selection.target.is_value() => selection.target,
        None => {
            let goal = if selection.target.is_encode() {
                Some(selection.target)
            } else {
                selection.target.shallow()
            };
            let goal = goal.unwrap_or_else(|| unreachable!("what is no value is a thunk or an encode"));
            match rules::known(host, goal) {
                Some(value) if value.is_failure() => return Turn::Return(value),
                Some(value) => value,
                None => {
                    frame.state = State::Selecting;
                    return Turn::Call(goal);
                }
            }
        }
    };
    let object = target.plain_tree();
    // Its name says how much there is: no data is needed to tell what is not there.
    let range = match rules::within(object, selection.part) {
        Ok(range) => range,
        Err(detail) if frame.is_lasting => {
            let failure = rules::fail_lasting(host, FailureCode::OutOfRange, thunk, &detail);
            return advance(frame, failure);
        }
        Err(detail) => {
            let failure = rules::fail(host, FailureCode::OutOfRange, thunk, &detail);
            return advance(frame, failure);
        }
    };
    let part = selection.part;
    let next = match object.literal_bytes() {
        Some(bytes) => rules::select(host, object, bytes, part, range),
        None => match host.local(object) {
            Some(bytes) => rules::select(host, object, &bytes, part, range),
            None => {
                frame.selected = Some(target);
                return Turn::Wait(Wait::Part(object, part));
            }
        },
    };
    take(host, frame, next)
}

/// A selection has led to this.
pub(crate) fn take<H: Host>(host: &mut H, frame: &mut Frame, next: Handle) -> Turn {
    if frame.is_lasting {
        host.remember(frame.at, next, Rule::Select);
    }
    advance(frame, next)
}
