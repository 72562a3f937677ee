// SPDX-License-Identifier: Apache-2.0
//! What a walk will have to wait for, asked for ahead.
//!
//! A walk needs one thing after another. What has to be brought from outside takes
//! long and occupies nobody, so that once one such thing is waited for, all others
//! that the walk is sure to come to are asked for as well. Each is a spark of its own:
//! claimed once, remembered, and found by the walk when it gets there.

use std::collections::HashSet;
use std::ops::Deref;

use objects::{Application, Handle, Kind, TreeView};

use crate::evaluator::Evaluator;
use crate::host::Host;
use crate::job::{Job, State};

/// Goals that are offered at once.
const OFFERED_MAX: usize = 1024;
/// Entries that are looked at for them.
const LOOKED_MAX: usize = 16 << 10;
/// How deep arguments of arguments are looked at.
const DEPTH_MAX: u32 = 3;

/// What was found on the way.
#[derive(Default)]
struct Ahead {
    goals: Vec<Handle>,
    seen: HashSet<Handle>,
    looked: usize,
}

impl<D: Deref<Target = [u8]> + Clone> Evaluator<D> {
    /// Offers what the walk will have to have brought.
    #[cold]
    pub(crate) fn ask_ahead<H: Host<Data = D>>(&mut self, host: &mut H, job: &Job<D>) {
        if !self.scheduler.takes_ahead(&job.request) {
            return;
        }
        let mut ahead = Ahead::default();
        for frame in &job.frames {
            let (State::Resolving(partial) | State::Deepening(partial)) = &frame.state else { continue };
            let entries = (partial.index + 1..).map_while(|index| partial.entry(index));
            for entry in entries.filter(|entry| !entry.is_value()) {
                if ahead.is_full() {
                    break;
                }
                // A bare thunk among arguments is not evaluated.
                if entry.is_encode() || matches!(frame.state, State::Deepening(_)) {
                    ahead.look(host, entry, DEPTH_MAX);
                }
            }
        }
        if !ahead.goals.is_empty() {
            self.scheduler.offer(&job.request, ahead.goals);
        }
    }
}

impl Ahead {
    fn is_full(&self) -> bool {
        self.goals.len() >= OFFERED_MAX || self.looked >= LOOKED_MAX
    }

    fn look<H: Host>(&mut self, host: &mut H, entry: Handle, depth: u32) {
        self.looked += 1;
        let Some(thunk) = entry.thunk().filter(|thunk| thunk.kind() == Kind::Application) else { return };
        if self.is_full() || !self.seen.insert(thunk) || host.recall(thunk).is_some() {
            return;
        }
        let Some(data) = host.local(thunk.definition()) else { return };
        let tree = TreeView::from_checked(&data);
        let is_brought = |application: Application<'_>| host.is_brought(&application);
        if Application::from_tree(tree).is_ok_and(is_brought) {
            self.goals.extend(thunk.strict());
        } else if depth > 0 {
            for argument in tree.iter().filter(Handle::is_encode) {
                if self.is_full() {
                    return;
                }
                self.look(host, argument, depth - 1);
            }
        }
    }
}
