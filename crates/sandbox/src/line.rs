// SPDX-License-Identifier: Apache-2.0
//! Lines: calls of one instance by another one, without the node on their way.
//!
//! A line is made when an instance has called a function a few times, and leads
//! to one instance of that function, which it has for itself as long as it is
//! open: for whoever keeps instances it is one call that takes long
//! ([`Call::line`](crate::Call)). What is sent over it is in
//! `docs/spec/lines.md`, and why it is so in decision 0039.
//!
//! A line ends when it is shut and nothing is served any more, or with the first
//! call that gives no answer which fits on it. That call's end is the line's
//! ([`LineEnd`]); the caller asks for it by its channel.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use objects::Handle;
use parking_lot::Mutex;
use xpu::line::Ends;

use crate::{Fault, Printed, Spent};

/// Bytes of all requests, or answers, that lie on a line: one at a time does.
const CAPACITY: usize = 64 << 10;
/// A line on which nothing was asked for so long is shut.
const IDLE_MAX: Duration = Duration::from_secs(1);
/// An older line is shut, used or not: what is served on one has the time of its own that
/// it has by the node, and who holds on to a line does so for this long at most besides.
const AGE_MAX: Duration = Duration::from_secs(10);
/// How long an instance may take to give a line back that was shut.
const PARTING_MAX: Duration = Duration::from_secs(1);
/// Requests that may be reported for each millisecond of a line, and besides. One takes a
/// microsecond at least.
const REPORTED_PER_MS: u128 = 1000;
const REPORTED_BESIDES: u128 = 1000;

/// What both sides of a line are told.
#[derive(Debug, Clone)]
pub struct LineTerms {
    /// The function that calls.
    pub caller: String,
    /// The function that is called.
    pub function: String,
    /// Its version.
    pub version: u64,
    /// What one call of it may take.
    pub timeout: Duration,
}

/// A request that was served over a line, as its instance tells it. The node
/// knows only that the instance has the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineReport {
    /// From its coming to its answer.
    pub running: Duration,
    /// Of that, waiting for other functions.
    pub waiting: Duration,
    /// How long ago it ended when this was told.
    pub ended_ago: Duration,
    /// Of its answer.
    pub status: u16,
    /// Bytes of the request's body.
    pub received_bytes: u32,
    /// Bytes of the answer's body.
    pub sent_bytes: u32,
    /// The span of the call that asked.
    pub parent: u64,
    /// Its own.
    pub span: u64,
    /// The trace of both.
    pub trace: [u8; 16],
    /// The trace's flags.
    pub flags: u8,
    /// What says that the request's id and its trace belong together.
    pub seal: [u8; 16],
    /// Of the request that led to it.
    pub request_id: String,
}

/// Where the requests of a line are written down.
pub trait LineRecords: Send + Sync {
    /// These were served, and took so much; the last of them printed this.
    fn served(&self, calls: Vec<(LineReport, Spent)>, log: Printed);

    /// The same of calls that are only counted, since there are very many of them.
    fn counted(&self, calls: Vec<(LineReport, Spent)>);

    /// What was under way was left by who called, and ended so. The caller had been told
    /// this, if that is known.
    fn left(&self, head: Option<Vec<u8>>, end: LineEnd);
}

/// How the last call on a line ended, if it gave no answer there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineEnd {
    /// What it gave.
    pub result: Result<Handle, Fault>,
    /// What it printed.
    pub log: Printed,
    /// What it took.
    pub spent: Option<Box<Spent>>,
}

/// Hears that a line is there.
pub type LineTold = Box<dyn FnOnce(Arc<Line>) + Send>;

/// What comes with the answer to a call: there may be a line to its function.
pub trait LineOffer: Send {
    /// Opens a line, if an instance of the function has nothing to do now; who is
    /// told of it has to let the caller know. To be called on the event loop.
    fn open(self: Box<Self>, told: LineTold);
}

/// An ask that has to do with lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LineAsk {
    /// Who asks serves a request on a line, and was told this there.
    pub head: Option<Vec<u8>>,
    /// It was begun on this line, and has no answer there.
    pub again: Option<Arc<Line>>,
    /// Who asks was called within its instance: this function, which was told the head.
    pub function: Option<String>,
    /// Another instance is to be asked, though it could be called within this one.
    pub is_for_others: bool,
    /// It ran within the instance of who asks, and ended so.
    pub ended: Option<LineEnd>,
}

/// One line.
pub struct Line {
    id: u32,
    terms: LineTerms,
    memory: xpu::line::Line,
    /// Until both sides have them.
    ends: Mutex<Option<Ends>>,
    records: Arc<dyn LineRecords>,
    /// Ends the instance that serves.
    cancel: OnceLock<Box<dyn Fn() + Send + Sync>>,
    opened: Instant,
    is_bound: AtomicBool,
    is_shut: AtomicBool,
    seen: Mutex<Seen>,
    state: Mutex<State>,
    /// Requests that were reported.
    reported: AtomicU64,
    /// What is under way was left; who calls had been told this.
    left: Mutex<Option<Option<Vec<u8>>>>,
}

/// What was seen of a line when it was last looked at.
struct Seen {
    /// The word of who serves, and since when it is that.
    serving: (u32, Instant),
    /// The word of who calls, which has a say in nothing but how long a line stays open.
    asked: (u64, Instant),
    /// When it was seen to be shut, and since when nothing has been served after that.
    shut: Option<Instant>,
    parting: Option<Instant>,
}

enum State {
    Open,
    /// Somebody waits for its end.
    Awaited(Box<dyn FnOnce(Option<LineEnd>) + Send>),
    /// The end, once.
    Over(Option<LineEnd>),
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("id", &self.id).field("terms", &self.terms).finish_non_exhaustive()
    }
}

impl PartialEq for Line {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Line {}

impl Line {
    /// A line that nobody has yet, under a number that no other one has.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn new(
        id: u32,
        terms: LineTerms,
        records: Arc<dyn LineRecords>,
    ) -> Result<Arc<Self>, xpu::fifo::Error> {
        let (memory, ends) = xpu::line::Line::create(CAPACITY)?;
        let now = Instant::now();
        Ok(Arc::new(Self {
            id,
            terms,
            memory,
            ends: Mutex::new(Some(ends)),
            records,
            cancel: OnceLock::new(),
            opened: now,
            is_bound: AtomicBool::new(false),
            is_shut: AtomicBool::new(false),
            seen: Mutex::new(Seen { serving: (0, now), asked: (0, now), shut: None, parting: None }),
            state: Mutex::new(State::Open),
            reported: AtomicU64::new(0),
            left: Mutex::default(),
        }))
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// What both sides are told.
    pub fn terms(&self) -> &LineTerms {
        &self.terms
    }

    /// Where its requests are written down.
    pub fn records(&self) -> &Arc<dyn LineRecords> {
        &self.records
    }

    /// By this the instance that serves is ended.
    pub fn cancelled_by(&self, cancel: Box<dyn Fn() + Send + Sync>) {
        // Once, by whoever made it.
        _ = self.cancel.set(cancel);
    }

    /// Changes with each message on it, by the word of both sides.
    pub fn pulse(&self) -> u64 {
        self.memory.pulse()
    }

    /// Grows with each request on it, by the word of who asks.
    pub(crate) fn asked(&self) -> u64 {
        self.memory.asked()
    }

    /// An instance serves it.
    pub(crate) fn bind(&self) {
        self.is_bound.store(true, Ordering::Release);
    }

    /// Whether an instance serves it, and it takes requests.
    pub fn is_open(&self) -> bool {
        self.is_bound.load(Ordering::Acquire) && !self.is_shut.load(Ordering::Acquire)
    }

    /// Takes no more requests: its instance gives it back as soon as it serves none.
    pub fn shut(&self) {
        if !self.is_shut.swap(true, Ordering::AcqRel) {
            self.memory.shut();
        }
    }

    /// Whether something is asked or served on it, by the words of both sides.
    pub fn is_in_use(&self) -> bool {
        self.memory.serving() != 0 || self.memory.has_more()
    }

    /// The caller has gone, or does not want what is under way; it had been told this, if that
    /// is known.
    pub(crate) fn abandon(&self, head: Option<Vec<u8>>) {
        let is_in_use = self.is_in_use();
        self.shut();
        if is_in_use
            && !self.is_over()
            && let Some(cancel) = self.cancel.get()
        {
            self.left.lock().get_or_insert(head);
            cancel();
        }
    }

    /// Whether so many requests more can have been served on it: each takes time, and to have
    /// one written down takes the node's.
    pub(crate) fn may_report(&self, count: usize, now: Instant) -> bool {
        let all = self.reported.fetch_add(count as u64, Ordering::Relaxed) + count as u64;
        let most = now.saturating_duration_since(self.opened).as_millis() * REPORTED_PER_MS;
        u128::from(all) <= most + REPORTED_BESIDES
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.state.lock(), State::Over(_))
    }

    /// How long an instance may have it: until it is shut, and for one call more.
    pub(crate) fn held_max(&self) -> Duration {
        AGE_MAX + self.terms.timeout + 2 * PARTING_MAX
    }

    /// Looks at what is served. Whether that takes too long, or an instance does
    /// not give the line back.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        if now.saturating_duration_since(self.opened) >= AGE_MAX {
            self.shut();
        }
        let (serving, asked) = (self.memory.serving(), self.memory.asked());
        let since = |moment: Instant| now.saturating_duration_since(moment);
        let mut seen = self.seen.lock();
        if seen.serving.0 != serving {
            seen.serving = (serving, now);
        }
        if seen.asked.0 != asked {
            seen.asked = (asked, now);
        }
        let took = since(seen.serving.1);
        if serving == 0 && took.min(since(seen.asked.1)) >= IDLE_MAX {
            self.shut();
        }
        if !self.is_shut.load(Ordering::Acquire) {
            return serving != 0 && took >= self.terms.timeout;
        }
        // One request may have been there when it was shut. Whatever else the words say,
        // that is not for ever.
        let shut = *seen.shut.get_or_insert(now);
        if since(shut) >= self.terms.timeout + 2 * PARTING_MAX {
            return true;
        }
        if serving != 0 {
            seen.parting = None;
            return took >= self.terms.timeout;
        }
        since(*seen.parting.get_or_insert(now)) >= PARTING_MAX
    }

    /// How long the request has been served that is served now.
    pub(crate) fn serving_for(&self, now: Instant) -> Duration {
        let (serving, since) = self.seen.lock().serving;
        if serving == 0 { Duration::ZERO } else { now.saturating_duration_since(since) }
    }

    /// What a line is whose other end is not an instance's.
    #[doc(hidden)]
    pub fn open_for_tests(&self) {
        self.bind();
    }

    /// Its descriptors, as one side reads and writes, and its bell.
    #[doc(hidden)]
    pub fn descriptors(&self, serves: bool) -> std::io::Result<Vec<OwnedFd>> {
        let ends = self.ends.lock();
        let ends = ends.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
        let (requests, answers) = (ends.requests.try_clone()?, ends.answers.try_clone()?);
        Ok(match serves {
            true => vec![requests, answers, ends.callee.try_clone()?],
            false => vec![answers, requests, ends.caller.try_clone()?],
        })
    }

    /// Both sides have their descriptors.
    pub(crate) fn is_handed_out(&self) {
        drop(self.ends.lock().take());
    }

    /// It is over, and its last call ended so; `None` if that had its answer.
    pub fn ended(&self, end: Option<LineEnd>) {
        self.is_shut.store(true, Ordering::Release);
        self.memory.end();
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Over(None)) {
            State::Awaited(then) => {
                drop(state);
                then(end);
            }
            State::Open => {
                let left = self.left.lock().take();
                match (left, end) {
                    // Nobody will ask.
                    (Some(head), Some(end)) => {
                        drop(state);
                        self.records.left(head, end);
                    }
                    (_, end) => *state = State::Over(end),
                }
            }
            State::Over(before) => *state = State::Over(before),
        }
    }

    /// Hears how the last call on it ended, as soon as it is over; once.
    pub fn when_over(&self, then: impl FnOnce(Option<LineEnd>) + Send + 'static) {
        self.shut();
        let mut state = self.state.lock();
        match &mut *state {
            State::Over(end) => {
                let end = end.take();
                drop(state);
                then(end);
            }
            State::Open => *state = State::Awaited(Box::new(then)),
            State::Awaited(_) => {
                drop(state);
                then(None);
            }
        }
    }
}

/// Writes nothing down.
#[cfg(test)]
pub(crate) struct Nowhere;

#[cfg(test)]
impl LineRecords for Nowhere {
    fn served(&self, _: Vec<(LineReport, Spent)>, _: Printed) {}
    fn counted(&self, _: Vec<(LineReport, Spent)>) {}
    fn left(&self, _: Option<Vec<u8>>, _: LineEnd) {}
}

#[cfg(test)]
mod tests;
