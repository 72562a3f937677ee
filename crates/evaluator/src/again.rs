// SPDX-License-Identifier: Apache-2.0
//! Making an object again that was dropped: its recipe, the application that made it,
//! is one more goal on the stack of the walk that needs it.
//!
//! So whoever asks pays for it and may stop it; what the recipe needs and was dropped
//! too is made by frames above its own, in the heap; and of many who need the same,
//! one has the claim, as for any application. The bytes are right if the object is
//! there afterwards: it is named by them. If they are not, or the recipe cannot run, the object
//! is asked for in the other way, if there is one; each is tried once.

use std::ops::Deref;

use objects::{Failure, FailureCode, Handle, TreeView};

use crate::evaluator::Evaluator;
use crate::host::Host;
use crate::job::{FRAMES_MAX, Frame, Job};
use crate::rules;

/// Objects that one walk is in the middle of making again, those included that wait for
/// their turn: a chain of so many dropped ones, or fewer with many inputs each.
const REMAKES_MAX: usize = 64 << 10;
/// Objects that one walk could not make, and asks for in another way; one more is a failure.
const UNMADE_MAX: usize = 256;

/// What a job asked for and has to make itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) object: Handle,
    pub(crate) recipe: Handle,
    /// It may come in another way.
    pub(crate) has_other: bool,
}

/// What could not be made again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unmade {
    object: Handle,
    /// Why not.
    pub(crate) failure: Handle,
}

/// A frame that makes something again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remake {
    /// Its index in the job's stack.
    pub(crate) depth: usize,
    what: Dropped,
    /// The index of the first that was asked for together with it. Of those, only the
    /// uppermost has begun.
    first: usize,
}

impl<D: Deref<Target = [u8]> + Clone> Evaluator<D> {
    /// Puts the recipes of what was dropped on the stack, if anything was.
    #[inline]
    pub(crate) fn make_again<H: Host<Data = D>>(&mut self, host: &mut H, job: &mut Job<D>) {
        if !job.dropped.is_empty() && !job.holds_claim() {
            self.begin_again(host, job);
        }
    }

    #[cold]
    fn begin_again<H: Host<Data = D>>(&mut self, host: &mut H, job: &mut Job<D>) {
        // What it holds for its next application is held again when that comes.
        self.release(job);
        let first = job.frames.len();
        for what in std::mem::take(&mut job.dropped) {
            if host.local(what.object).is_some() {
                continue;
            }
            let Some(goal) = what.recipe.shallow().filter(|_| !is_being_made(job, first, what.object)) else {
                match self.fail_to_make(host, job, what, "it is needed to make itself") {
                    true => continue,
                    false => return,
                }
            };
            if job.remakes.len() >= REMAKES_MAX || job.frames.len() >= FRAMES_MAX {
                match self.fail_to_make(host, job, what, "too much else has to be made again for it") {
                    true => continue,
                    false => return,
                }
            }
            if !job.grow(self.scheduler.walks()) {
                return self.fail_for_walk(host, job);
            }
            host.forget(what.recipe, what.object);
            job.remakes.push(Remake { depth: job.frames.len(), what, first });
            job.frames.push(Frame::again(goal));
        }
        self.share(job, first);
    }

    /// Offers idle workers what is not on top.
    fn share(&self, job: &Job<D>, first: usize) {
        // Whoever writes down what a request takes could not tell a spark of these from others.
        if job.request.context().is_some() {
            return;
        }
        let waiting = job.frames.get(first..).and_then(|frames| frames.split_last()).map(|(_, below)| below);
        for frame in waiting.unwrap_or_default() {
            if !self.scheduler.wants_sparks(&job.request) {
                break;
            }
            self.scheduler.offer(&job.request, [frame.goal]);
        }
    }

    /// A recipe, whose frame this was, has led to a value.
    #[cold]
    pub(crate) fn made_again<H: Host<Data = D>>(
        &mut self,
        host: &mut H,
        job: &mut Job<D>,
        frame: &Frame,
        value: Handle,
    ) {
        job.walk.shrink(frame.state.bytes());
        job.offered = job.offered.min(job.frames.len().saturating_sub(1));
        let Some(Remake { what, .. }) = job.remakes.pop() else { return };
        if host.local(what.object).is_some() {
            return;
        }
        if passes(host, value) {
            // What kept it from running, now and here, does so for who needs it.
            job.cannot_make(what, value);
            return;
        }
        if host.is_unmade(what.object, what.recipe, value) {
            self.fail_to_make(host, job, what, &format!("that gives {value} now"));
        }
    }

    /// Whether it may come in another way.
    fn fail_to_make<H: Host<Data = D>>(
        &mut self,
        host: &mut H,
        job: &mut Job<D>,
        what: Dropped,
        why: &str,
    ) -> bool {
        let Dropped { object, recipe, .. } = what;
        let detail = format!(
            "{object} is not on this node and cannot be made again by {recipe}: {why}; store it with `sinew put`"
        );
        let failure = rules::fail(host, FailureCode::MissingData, job.position(), &detail);
        job.cannot_make(what, failure)
    }
}

impl<D> Job<D> {
    /// Notes what could not be made, so that whoever needs it asks for it in the other way; if there is
    /// none, fails, and says so.
    fn cannot_make(&mut self, what: Dropped, failure: Handle) -> bool {
        let has_other = what.has_other && self.unmade.len() < UNMADE_MAX;
        if has_other {
            self.unmade.push(Unmade { object: what.object, failure });
        } else {
            self.fail(failure);
        }
        has_other
    }

    /// An object that it could not make again.
    #[inline]
    pub(crate) fn unmade(&self, object: Handle) -> Option<&Unmade> {
        self.unmade.iter().find(|unmade| unmade.object == object)
    }
}

/// Whether a frame that has begun makes this object, of those below the frame `first`.
fn is_being_made<D>(job: &Job<D>, first: usize, object: Handle) -> bool {
    let mut above = first;
    job.remakes.iter().rev().any(|remake| {
        // Those that were asked for together with the one above have not begun.
        let has_begun = remake.first < above;
        above = remake.first.min(above);
        has_begun && remake.what.object == object
    })
}

/// Whether a value is a failure that need not come again.
fn passes<H: Host>(host: &mut H, value: Handle) -> bool {
    let tree = if value.is_failure() { host.local(value.plain_tree()) } else { None };
    let failure = tree.and_then(|tree| Failure::from_tree(TreeView::from_checked(&tree)).ok());
    failure.is_some_and(|failure| !failure.code.is_deterministic())
}
