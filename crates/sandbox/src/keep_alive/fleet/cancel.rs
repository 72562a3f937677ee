// SPDX-License-Identifier: Apache-2.0
//! Ending a call from another thread.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::super::decision::Ticket;
use super::Shared;

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
