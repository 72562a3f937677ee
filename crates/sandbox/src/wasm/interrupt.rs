// SPDX-License-Identifier: Apache-2.0
//! Ending an application from another thread.
//!
//! Each application that an invoker runs has a *ticket*, never used twice by
//! that invoker. A demand to stop names a ticket, so that one that comes late
//! cannot hit the application that began in the meantime, and one that comes
//! early is found by the application when it begins.
//!
//! A guest notices a demand when the engine's epoch passes its deadline; it
//! then looks at the demand and sets a new deadline. A demand that arrives
//! between these two would be lost, as would one that arrives while a module
//! is compiled. So the [`Pacemaker`] advances the epoch again and again until
//! the application has ended.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Weak};
use std::time::Duration;

use objects::FailureCode;
use parking_lot::{Condvar, Mutex};
use wasmtime::Engine;

use crate::{Error, Fault};

const DEADLINE: u64 = 1;
const CANCELLED: u64 = 2;
const REASON_BITS: u32 = 2;
const REASON: u64 = (1 << REASON_BITS) - 1;

/// How soon the epoch advances again, at first and at last.
const BEAT_MIN: Duration = Duration::from_millis(1);
const BEAT_MAX: Duration = Duration::from_millis(256);

/// Names one application that an invoker runs, or will run next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u64);

/// What an invoker and those who may stop it share.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    /// The last ticket that began.
    begun: AtomicU64,
    /// The last ticket that ended.
    ended: AtomicU64,
    /// The highest ticket that shall stop, with the reason in the low bits.
    raised: AtomicU64,
}

impl Flags {
    /// Announces that `ticket` runs from now on.
    #[inline]
    pub(crate) fn begin(&self, ticket: Ticket) {
        self.begun.store(ticket.0, Ordering::Release);
    }

    /// Announces that `ticket` runs no more.
    #[inline]
    pub(crate) fn end(&self, ticket: Ticket) {
        self.ended.store(ticket.0, Ordering::Release);
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

    /// Whether an application that shall stop has not ended.
    fn is_pending(&self) -> bool {
        self.raised.load(Ordering::Acquire) >> REASON_BITS > self.ended.load(Ordering::Acquire)
    }
}

/// Stops what an [`Invoker`](super::Invoker) runs. Cheap to clone.
#[derive(Clone)]
pub struct Interrupt {
    flags: Arc<Flags>,
    pacemaker: Arc<Pacemaker>,
}

impl Interrupt {
    pub(crate) fn new(flags: Arc<Flags>, pacemaker: Arc<Pacemaker>) -> Self {
        Self { flags, pacemaker }
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
        self.pacemaker.pulse.advance();
        self.pacemaker.watch(&self.flags);
    }

    /// The application that runs now.
    pub fn running(&self) -> Option<Ticket> {
        let begun = self.flags.begun.load(Ordering::Acquire);
        (begun > self.flags.ended.load(Ordering::Acquire)).then_some(Ticket(begun))
    }

    /// Whether both stop the same invoker.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.flags, &other.flags)
    }
}

/// The epochs, and who waits for an application to notice.
struct Pulse {
    engines: Vec<Engine>,
    watched: Mutex<Watched>,
    changed: Condvar,
}

#[derive(Default)]
struct Watched {
    /// Each invoker at most once.
    flags: Vec<Weak<Flags>>,
    closing: bool,
}

impl Pulse {
    fn advance(&self) {
        for engine in &self.engines {
            engine.increment_epoch();
        }
    }

    /// The thread's life: asleep until something is watched, then a beat at
    /// growing intervals until nothing is pending any more.
    fn run(&self) {
        let mut beat = BEAT_MIN;
        let mut watched = self.watched.lock();
        while !watched.closing {
            watched.flags.retain(|flags| flags.upgrade().is_some_and(|flags| flags.is_pending()));
            if watched.flags.is_empty() {
                self.changed.wait(&mut watched);
                beat = BEAT_MIN;
                continue;
            }
            let added = !self.changed.wait_for(&mut watched, beat).timed_out();
            self.advance();
            beat = if added { BEAT_MIN } else { (beat * 2).min(BEAT_MAX) };
        }
    }
}

/// Advances the epochs while somebody is to be stopped; see the module's text.
pub(crate) struct Pacemaker {
    pulse: Arc<Pulse>,
}

impl Pacemaker {
    /// Starts the thread. It ends when the pacemaker is dropped.
    pub(crate) fn start(engines: Vec<Engine>) -> Result<Self, Error> {
        let pulse = Arc::new(Pulse { engines, watched: Mutex::default(), changed: Condvar::new() });
        let thread = std::thread::Builder::new().name("sandbox-epoch".to_owned());
        let theirs = pulse.clone();
        thread.spawn(move || theirs.run()).map_err(|error| Error::Engine(error.to_string()))?;
        Ok(Self { pulse })
    }

    fn watch(&self, flags: &Arc<Flags>) {
        let mut watched = self.pulse.watched.lock();
        let flags = Arc::downgrade(flags);
        if !watched.flags.iter().any(|other| other.ptr_eq(&flags)) {
            watched.flags.push(flags);
        }
        self.pulse.changed.notify_one();
    }
}

impl Drop for Pacemaker {
    fn drop(&mut self) {
        self.pulse.watched.lock().closing = true;
        self.pulse.changed.notify_one();
    }
}
