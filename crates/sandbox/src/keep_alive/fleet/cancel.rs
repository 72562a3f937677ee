// SPDX-License-Identifier: Apache-2.0
//! Ending a call from another thread, wherever it is.

use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use super::super::decision::{InstanceId, Ticket};
use super::super::error::Error;
use super::{Said, Shared, State, Turn};
use crate::SandboxId;

/// Ends a call that waits or runs. For one call at a time; once cancelled, it
/// cancels every further call at once.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Mutex<Target>>);

#[derive(Default)]
struct Target {
    is_cancelled: bool,
    call: Option<(Weak<Shared>, Ticket)>,
}

/// Takes the call out of the cancel when it is over.
pub(super) struct Bound<'a>(&'a Cancel);

impl Cancel {
    /// Ends the call. A running one ends with the failure `cancelled`, and its
    /// instance with it.
    pub fn cancel(&self) {
        let call = {
            let mut target = self.0.lock();
            target.is_cancelled = true;
            target.call.take()
        };
        if let Some((shared, ticket)) = call
            && let Some(shared) = shared.upgrade()
        {
            shared.cancel(ticket);
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.0.lock().is_cancelled
    }

    pub(super) fn bind(&self, shared: &Arc<Shared>, ticket: Ticket) -> Bound<'_> {
        let is_cancelled = {
            let mut target = self.0.lock();
            target.call = Some((Arc::downgrade(shared), ticket));
            target.is_cancelled
        };
        if is_cancelled {
            shared.cancel(ticket);
        }
        Bound(self)
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        self.0.0.lock().call = None;
    }
}

impl Shared {
    /// Takes a call out of the waiting ones; false if it does not wait.
    pub(super) fn give_up(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, State>,
        ticket: Ticket,
        why: Error,
    ) -> bool {
        if !state.turns.get(&ticket).is_some_and(|turn| matches!(turn.said, Said::Nothing)) {
            return false;
        }
        state.refuse(ticket, why);
        let decisions = state.policy.cancel(self.now(), ticket);
        self.act(state, decisions);
        true
    }

    /// Ends a call, whether it waits or runs.
    pub(super) fn cancel(self: &Arc<Self>, ticket: Ticket) {
        let mut state = self.state.lock();
        if self.give_up(&mut state, ticket, Error::Cancelled) {
            return;
        }
        let Some(turn) = state.turns.get_mut(&ticket) else { return };
        let Said::Run { live, instance, .. } = &turn.said else { return };
        let (sandbox, instance) = (live.sandbox, *instance);
        turn.is_left = true;
        if state.sharing.has_line(instance) {
            // Those that it does not yet serve go elsewhere, and nobody else comes.
            state.sharing.close(instance);
            MutexGuard::unlocked(&mut state, || self.sandbox.recall(sandbox));
        }
        if state.sharing.has_others(instance) {
            // One that comes just now is taken back when it is held up.
            return state.sharing.leaves(instance, ticket);
        }
        if state.stops(ticket, instance) {
            self.kill(sandbox);
        }
    }
}

impl State {
    /// The call runs in this instance, and ends with it.
    fn stops(&mut self, ticket: Ticket, instance: InstanceId) -> bool {
        let Some(Turn { said: Said::Run { instance: its, is_killed, .. }, .. }) = self.turns.get_mut(&ticket)
        else {
            return false;
        };
        if *its != instance {
            return false;
        }
        *is_killed = true;
        // Nobody joins it from now on.
        self.sharing.killed(instance);
        true
    }

    /// The sandbox of an instance in which nothing is left but a call whose client has left.
    pub(super) fn abandoned(&mut self, instance: InstanceId) -> Option<SandboxId> {
        let ticket = self.sharing.left_alone(instance)?;
        let sandbox = self.live.get(&instance)?.sandbox;
        self.stops(ticket, instance).then_some(sandbox)
    }
}
