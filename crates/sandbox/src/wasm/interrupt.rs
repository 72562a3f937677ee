// SPDX-License-Identifier: Apache-2.0
//! Ending an application from another thread.
//!
//! Each application that an invoker runs has a *ticket*, never used twice by
//! that invoker. A demand to stop names a ticket, so that one that comes late
//! cannot hit the application that began in the meantime, and one that comes
//! early is found by the application when it begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use objects::FailureCode;
use wasmtime::Engine;

use crate::Fault;

const DEADLINE: u64 = 1;
const CANCELLED: u64 = 2;
const REASON_BITS: u32 = 2;
const REASON: u64 = (1 << REASON_BITS) - 1;

/// Names one application that an invoker runs, or will run next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u64);

/// What an invoker and those who may stop it share.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    /// The ticket that runs now; 0: none.
    running: AtomicU64,
    /// The highest ticket that shall stop, with the reason in the low bits.
    raised: AtomicU64,
}

impl Flags {
    /// Announces that `ticket` runs from now on.
    #[inline]
    pub(crate) fn begin(&self, ticket: Ticket) {
        self.running.store(ticket.0, Ordering::Release);
    }

    /// Announces that nothing runs.
    #[inline]
    pub(crate) fn end(&self) {
        self.running.store(0, Ordering::Release);
    }

    /// The demand to stop `ticket`, if there is one.
    #[inline]
    pub(crate) fn demand(&self, ticket: Ticket) -> Option<Fault> {
        let raised = self.raised.load(Ordering::Acquire);
        if raised >> REASON_BITS != ticket.0 {
            return None;
        }
        Some(match raised & REASON {
            DEADLINE => Fault::new(FailureCode::Deadline, "the request's deadline passed"),
            _ => Fault::new(FailureCode::Cancelled, "the request was cancelled"),
        })
    }

    fn raise(&self, ticket: Ticket, code: FailureCode) {
        let reason = if code == FailureCode::Deadline { DEADLINE } else { CANCELLED };
        // An older ticket has ended; it must not replace a demand for a newer one.
        self.raised.fetch_max((ticket.0 << REASON_BITS) | reason, Ordering::AcqRel);
    }
}

/// Stops what an [`Invoker`](super::Invoker) runs. Cheap to clone.
#[derive(Clone)]
pub struct Interrupt {
    flags: Arc<Flags>,
    engines: [Engine; 2],
}

impl Interrupt {
    pub(crate) fn new(flags: Arc<Flags>, engines: [Engine; 2]) -> Self {
        Self { flags, engines }
    }

    /// Stops the application that runs now, within about a millisecond, with
    /// the failure `code`: deadline, or else cancelled. Without effect if
    /// nothing runs; never stops an application that begins later.
    pub fn raise(&self, code: FailureCode) {
        if let Some(ticket) = self.running() {
            self.raise_for(ticket, code);
        }
    }

    /// Stops one application, also if it has not begun yet; without effect if
    /// it has ended. See [`Invoker::next_ticket`](super::Invoker::next_ticket).
    pub fn raise_for(&self, ticket: Ticket, code: FailureCode) {
        self.flags.raise(ticket, code);
        // A guest that sees the new epoch must also see the demand.
        fence(Ordering::SeqCst);
        for engine in &self.engines {
            engine.increment_epoch();
        }
    }

    /// The application that runs now.
    pub fn running(&self) -> Option<Ticket> {
        let ticket = self.flags.running.load(Ordering::Acquire);
        (ticket != 0).then_some(Ticket(ticket))
    }

    /// Whether both stop the same invoker.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.flags, &other.flags)
    }
}
