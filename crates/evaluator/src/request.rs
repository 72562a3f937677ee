// SPDX-License-Identifier: Apache-2.0
//! A request: whose wish it is that something is evaluated, and how urgent.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};

use objects::{FailureCode, Handle};

use crate::host::Charge;

/// How urgently a request wants cores and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Priority {
    /// Before everything that is not.
    High,
    /// In order of arrival.
    #[default]
    Normal,
    /// Only what nobody else wants.
    Low,
    /// Of a request that can wait ([`Terms::patient_until`]), as long as it can: after all
    /// others, the nearest first.
    Patient,
}

impl Priority {
    /// Number of priorities.
    pub const LEVELS: usize = 4;

    pub(crate) fn level(self) -> usize {
        match self {
            Self::High => 0,
            Self::Normal => 1,
            Self::Low => 2,
            Self::Patient => 3,
        }
    }
}

/// What the host wants to know of a request, and the evaluator does not.
pub type Context = Arc<dyn Any + Send + Sync>;

/// What comes with a goal and is no part of the computation.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    /// Against other requests.
    pub priority: Priority,
    /// Until then it lets all others go first, and among its kind who can wait less. A
    /// number on some clock that only grows and that all requests share; the evaluator
    /// compares these and is told when the moment has come ([`crate::Scheduler::urge`]).
    pub patient_until: Option<u64>,
    /// Given to [`Request::context`].
    pub context: Option<Context>,
}

impl From<Priority> for Terms {
    fn from(priority: Priority) -> Self {
        Self { priority, ..Self::default() }
    }
}

/// Why a request is stopped before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Nobody wants the answer any more.
    Cancelled,
    /// Its time is over.
    Deadline,
}

const RUNNING: u8 = 0;
const CANCELLED: u8 = 1;
const OVERDUE: u8 = 2;
const FINISHED: u8 = 3;

/// A wish to see a goal evaluated, from arrival to end.
#[derive(Debug)]
pub struct Request {
    id: u64,
    goal: Handle,
    terms: Terms,
    /// It lets others go first.
    is_patient: AtomicBool,
    /// Its caller walks it alone, and is the only one who knows its deadline.
    is_private: bool,
    state: AtomicU8,
    /// It takes one of the places for requests.
    has_place: AtomicBool,
    applied: AtomicU64,
    found: AtomicU64,
    settled: AtomicU64,
    /// Below zero for a moment where sparks end before their results are met.
    remembered: AtomicI64,
    nanos: AtomicU64,
    fuel: AtomicU64,
    charge: Charged,
    /// Its result need not be the same another time.
    passes: AtomicBool,
}

/// How far a request is, short of what walks that run now have not reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Applications that were begun for it, those of its sparks included. One
    /// that another request's walk ran is not among them.
    pub applied: u64,
    /// Thunks and encodes that its walks came upon: what they needed for
    /// applications to begin, and what stood in results.
    pub found: u64,
    /// Those of them that have their results.
    pub settled: u64,
    /// Results that were known before.
    pub remembered: u64,
    /// Wall time in which its applications ran, those of its sparks included, in
    /// nanoseconds.
    pub nanos: u64,
    /// Fuel that they used, where it is counted.
    pub fuel: u64,
    /// What is paid for of them.
    pub charge: Charge,
}

/// [`Charge`], for several threads.
#[derive(Debug, Default)]
struct Charged {
    inputs_bytes: AtomicU64,
    reserved_bytes: AtomicU64,
    fuel: AtomicU64,
    uncounted_nanos: AtomicU64,
}

impl Charged {
    fn add(&self, charge: Charge) {
        let Charge { inputs_bytes, reserved_bytes, fuel, uncounted_nanos } = charge;
        add(&self.inputs_bytes, inputs_bytes);
        add(&self.reserved_bytes, reserved_bytes);
        add(&self.fuel, fuel);
        add(&self.uncounted_nanos, uncounted_nanos);
    }

    fn sum(&self) -> Charge {
        let sum = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Charge {
            inputs_bytes: sum(&self.inputs_bytes),
            reserved_bytes: sum(&self.reserved_bytes),
            fuel: sum(&self.fuel),
            uncounted_nanos: sum(&self.uncounted_nanos),
        }
    }
}

fn add(sum: &AtomicU64, more: u64) {
    if more > 0 {
        sum.fetch_add(more, Ordering::Relaxed);
    }
}

/// The same of one walk, since it last told its request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Notes {
    pub(crate) applied: u32,
    pub(crate) found: u32,
    pub(crate) settled: u32,
    pub(crate) remembered: u32,
    pub(crate) nanos: u64,
    pub(crate) fuel: u64,
    pub(crate) charge: Charge,
}

impl Request {
    pub(crate) fn new(id: u64, goal: Handle, terms: Terms, is_private: bool) -> Self {
        Self {
            id,
            goal,
            is_patient: AtomicBool::new(terms.patient_until.is_some()),
            terms,
            is_private,
            state: AtomicU8::new(RUNNING),
            has_place: AtomicBool::new(!is_private),
            applied: AtomicU64::new(0),
            found: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            remembered: AtomicI64::new(0),
            nanos: AtomicU64::new(0),
            fuel: AtomicU64::new(0),
            charge: Charged::default(),
            passes: AtomicBool::new(false),
        }
    }

    /// It takes a place, though its caller walks it.
    pub(crate) fn with_place(mut self) -> Self {
        self.has_place = AtomicBool::new(true);
        self
    }

    #[inline]
    pub(crate) fn is_private(&self) -> bool {
        self.is_private
    }

    /// [`Tally::applied`].
    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Relaxed)
    }

    /// How far it is.
    pub fn tally(&self) -> Tally {
        let settled = self.settled.load(Ordering::Relaxed);
        Tally {
            applied: self.applied(),
            // The numbers are told one after the other.
            found: self.found.load(Ordering::Relaxed).max(settled),
            settled,
            remembered: self.remembered.load(Ordering::Relaxed).max(0).unsigned_abs(),
            nanos: self.nanos.load(Ordering::Relaxed),
            fuel: self.fuel.load(Ordering::Relaxed),
            charge: self.charge.sum(),
        }
    }

    pub(crate) fn add(&self, notes: Notes) {
        add(&self.applied, notes.applied.into());
        add(&self.found, notes.found.into());
        add(&self.settled, notes.settled.into());
        add(&self.nanos, notes.nanos);
        add(&self.fuel, notes.fuel);
        self.charge.add(notes.charge);
        if notes.remembered > 0 {
            self.remembered.fetch_add(i64::from(notes.remembered), Ordering::Relaxed);
        }
    }

    /// A spark has left its result where a walk will find it: that one was not
    /// known before.
    pub(crate) fn discount_spark(&self) {
        self.remembered.fetch_sub(1, Ordering::Relaxed);
    }

    /// What its walk led to depends on something that need not come again.
    pub(crate) fn note_passing(&self) {
        self.passes.store(true, Ordering::Relaxed);
    }

    /// Whether its result, once it has one, would be the same another time.
    pub fn is_lasting(&self) -> bool {
        !self.passes.load(Ordering::Relaxed)
    }

    /// Takes the request's place away. Whether it had one.
    pub(crate) fn give_place_back(&self) -> bool {
        self.has_place.swap(false, Ordering::AcqRel)
    }

    /// Identifies the request among all of this process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What is to be evaluated: an encode; or a thunk or value, which is
    /// evaluated strictly.
    pub fn goal(&self) -> Handle {
        self.goal
    }

    /// Against other requests, as it is now.
    pub fn priority(&self) -> Priority {
        if self.is_patient.load(Ordering::Relaxed) { Priority::Patient } else { self.terms.priority }
    }

    /// Against others, once it waits for nobody.
    pub(crate) fn own_priority(&self) -> Priority {
        self.terms.priority
    }

    /// How long it can wait for those that let nobody go first; 0 where it does not.
    pub(crate) fn patience(&self) -> u64 {
        let until = self.terms.patient_until.filter(|_| self.is_patient.load(Ordering::Relaxed));
        until.unwrap_or(0)
    }

    /// It waits for nobody any more. Whether it did.
    pub(crate) fn urge(&self) -> bool {
        self.is_patient.swap(false, Ordering::Relaxed)
    }

    /// What came with it for the host.
    #[inline]
    pub fn context(&self) -> Option<&Context> {
        self.terms.context.as_ref()
    }

    /// Why the request should not be worked on any more, as a failure's code.
    #[inline]
    pub fn stopped(&self) -> Option<FailureCode> {
        match self.state.load(Ordering::Relaxed) {
            RUNNING => None,
            OVERDUE => Some(FailureCode::Deadline),
            _ => Some(FailureCode::Cancelled),
        }
    }

    pub(crate) fn stop(&self, stop: Stop) {
        let state = if stop == Stop::Deadline { OVERDUE } else { CANCELLED };
        let _ = self.state.compare_exchange(RUNNING, state, Ordering::AcqRel, Ordering::Acquire);
    }

    pub(crate) fn finish(&self) {
        self.state.store(FINISHED, Ordering::Relaxed);
    }
}
