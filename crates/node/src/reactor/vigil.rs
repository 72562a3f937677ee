// SPDX-License-Identifier: Apache-2.0
//! When the event loop looks for what comes next before it sleeps.
//!
//! Functions that call each other take turns: whoever asks sleeps until the
//! answer is there, and so does the node between them. To wake a thread on a
//! processor that is idle takes longer than most of what the node does for a
//! call. So where one request is under way whose functions call each other
//! ([`Traffic::is_one_chain`]), and events follow each other quickly, the loop
//! stays awake for [`PATIENCE_NS`] after each.
//!
//! The same goes for calls on lines, of which it only sees that messages are written and taken.
//! It is on no such call's way; but on the processor on which it stays awake no instance is woken
//! then, which takes five times as long as to switch to it on that of who wakes it
//! (decision 0051).
//!
//! It is to cost nobody anything: other requests find the loop as it is
//! without, and where somebody else wants the processor it is left to them for
//! [`RESPITE_NS`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use sandbox::Line;

/// It looks for so long after an event. Handlers that compute for as long as this between two
/// messages do not feel what waking takes.
const PATIENCE_NS: u64 = 1_000_000;
/// An event that comes so soon after another one lets expect the next one soon: it
/// came without looking, which takes longer.
const QUICK_NS: u64 = 400_000;
/// Between two looks without an event the thread runs all the time, unless the
/// processor is taken away from it for as long as this. Instances of the chain
/// itself are put there for a moment now and then, and are gone sooner.
const TAKEN_NS: u64 = 300_000;
/// How long it does not look then.
const RESPITE_NS: u64 = 10_000_000;
/// Where there are more lines than this they are not looked at.
const LINES_MAX: usize = 16;

/// Whom an application waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Function,
    /// The run that it is.
    Run,
}

/// What is under way.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// In instances, or waiting for one.
    applications: AtomicUsize,
    /// Calls of functions by functions; most are among the applications.
    nested: AtomicUsize,
    /// Workflows among the applications that wait for what their runs have.
    of_runs: AtomicUsize,
    /// How many lines there are, and which.
    lines_count: AtomicUsize,
    lines: Mutex<Vec<Arc<Line>>>,
}

impl Traffic {
    pub(crate) fn comes(&self) {
        self.applications.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn goes(&self) {
        self.applications.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn asks(&self, asked: Asked) {
        self.of(asked).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_told(&self, asked: Asked) {
        self.of(asked).fetch_sub(1, Ordering::Relaxed);
    }

    fn of(&self, asked: Asked) -> &AtomicUsize {
        match asked {
            Asked::Function => &self.nested,
            Asked::Run => &self.of_runs,
        }
    }

    /// There is a line more.
    pub(crate) fn opens(&self, line: Arc<Line>) {
        let mut lines = self.lines.lock();
        lines.push(line);
        self.lines_count.store(lines.len(), Ordering::Relaxed);
    }

    /// A line is over.
    pub(crate) fn is_over(&self, id: u32) {
        let mut lines = self.lines.lock();
        lines.retain(|line| line.id() != id);
        self.lines_count.store(lines.len(), Ordering::Relaxed);
    }

    /// Changes with each message on a line.
    fn pulse(&self) -> u64 {
        if !(1..=LINES_MAX).contains(&self.lines_count.load(Ordering::Relaxed)) {
            return 0;
        }
        self.lines.lock().iter().fold(0, |sum, line| sum.wrapping_add(line.pulse()))
    }

    /// Whether all that is under way are calls that one request has led to, and
    /// there are any. Steps of a run are no calls: who has made a value tidies up when it has answered, on a processor
    /// that the next one then has to wait for if the loop has the other.
    pub(super) fn is_one_chain(&self) -> bool {
        let (nested, of_runs) = (self.nested.load(Ordering::Relaxed), self.of_runs.load(Ordering::Relaxed));
        let (applications, lines) =
            (self.applications.load(Ordering::Relaxed), self.lines_count.load(Ordering::Relaxed));
        let is_asked = nested > 0 || (lines > 0 && of_runs == 0);
        is_asked && applications > 0 && applications <= nested + of_runs + 1
    }
}

/// A moment: on the clock, and in the time of its processor that the thread had.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moment {
    pub(super) ns: u64,
    pub(super) cpu_ns: u64,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self { ns: linux::monotonic_ns(), cpu_ns: linux::thread_cpu_ns() }
    }
}

/// Whether the loop looks now.
#[derive(Debug, Default)]
pub(super) struct Vigil {
    is_awake: bool,
    /// When an instance last said something.
    event_ns: u64,
    /// What lines had carried then.
    pulse: u64,
    looked: Moment,
    not_before_ns: u64,
}

impl Vigil {
    /// An instance has said something, or was given something to do. Whether the loop is to begin to look.
    pub(super) fn event(&mut self, now: Moment, traffic: &Traffic) -> bool {
        let pulse = traffic.pulse();
        // Another thread may have been here since this one looked at the clock.
        let is_quick = now.ns.saturating_sub(self.event_ns) < QUICK_NS || pulse != self.pulse;
        (self.event_ns, self.pulse) = (now.ns, pulse);
        if self.is_awake || !is_quick || now.ns < self.not_before_ns || !traffic.is_one_chain() {
            return false;
        }
        self.looked = now;
        self.is_awake = true;
        true
    }

    /// The loop's own thread begins to look: whoever said that it is to may be another one, whose
    /// time of its processor is another.
    pub(super) fn begins(&mut self, now: Moment) {
        self.looked = now;
    }

    /// The loop has looked. Whether it is to look again.
    pub(super) fn goes_on(&mut self, now: Moment, traffic: &Traffic) -> bool {
        let ran_ns = now.cpu_ns.saturating_sub(self.looked.cpu_ns);
        let is_taken = now.ns.saturating_sub(self.looked.ns) > ran_ns + TAKEN_NS;
        if is_taken {
            self.not_before_ns = now.ns + RESPITE_NS;
        }
        self.looked = now;
        let pulse = traffic.pulse();
        if pulse != self.pulse {
            (self.event_ns, self.pulse) = (now.ns, pulse);
        }
        self.is_awake =
            !is_taken && now.ns.saturating_sub(self.event_ns) < PATIENCE_NS && traffic.is_one_chain();
        self.is_awake
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Moment {
        Moment { ns: 1_000_000_000 + us * 1000, cpu_ns: us * 1000 }
    }

    /// One request whose function has called another one.
    fn chain() -> Traffic {
        let traffic = Traffic::default();
        traffic.comes();
        traffic.asks(Asked::Function);
        traffic.comes();
        traffic
    }

    #[test]
    fn it_stays_awake_while_events_follow_each_other_quickly() {
        let (mut vigil, traffic) = (Vigil::default(), chain());
        assert!(!vigil.event(at(0), &traffic), "nothing is known of the next one");
        assert!(vigil.event(at(80), &traffic));
        assert!(!vigil.event(at(150), &traffic), "it is awake already");
        assert!(vigil.goes_on(at(1140), &traffic));
        assert!(!vigil.goes_on(at(1160), &traffic), "1 ms after the last event it sleeps");
        assert!(!vigil.event(at(1170), &traffic), "that had to be woken, and took too long");
        assert!(vigil.event(at(1500), &traffic), "that had to be woken too, and came soon all the same");
        assert!(!vigil.goes_on(at(2501), &traffic));
    }

    #[test]
    fn it_sleeps_where_others_are_under_way() {
        let (mut vigil, traffic) = (Vigil::default(), chain());
        vigil.event(at(0), &traffic);
        assert!(vigil.event(at(80), &traffic));
        traffic.comes();
        assert!(!vigil.goes_on(at(90), &traffic), "a request of another client");
        assert!(!vigil.event(at(100), &traffic));
        traffic.goes();
        assert!(vigil.event(at(110), &traffic));
        traffic.is_told(Asked::Function);
        traffic.goes();
        assert!(!vigil.goes_on(at(120), &traffic), "nobody waits for another function any more");
    }

    #[test]
    fn it_sleeps_between_the_steps_of_a_run_and_not_where_a_step_calls_functions() {
        let (mut vigil, traffic) = (Vigil::default(), Traffic::default());
        traffic.comes();
        traffic.asks(Asked::Run);
        traffic.comes();
        vigil.event(at(0), &traffic);
        assert!(!vigil.event(at(80), &traffic), "a workflow waits for its step");
        traffic.lines_count.store(1, Ordering::Relaxed);
        assert!(!vigil.event(at(90), &traffic), "and others have a line that they do not use");
        traffic.lines_count.store(0, Ordering::Relaxed);
        traffic.asks(Asked::Function);
        traffic.comes();
        assert!(vigil.event(at(100), &traffic), "which waits for a function");
        traffic.is_told(Asked::Run);
        assert!(!vigil.goes_on(at(110), &traffic), "the workflow does something else beside it");
    }

    #[test]
    fn it_leaves_the_processor_to_whoever_takes_it() {
        let (mut vigil, traffic) = (Vigil::default(), chain());
        vigil.event(at(0), &traffic);
        assert!(vigil.event(at(80), &traffic));
        let without = |us| Moment { ns: at(us).ns, cpu_ns: at(81).cpu_ns };
        assert!(vigil.goes_on(without(180), &traffic), "for a moment, by an instance of the chain");
        vigil.event(at(300), &traffic);
        assert!(!vigil.goes_on(Moment { ns: at(482).ns, ..without(81) }, &traffic), "for 301 µs");
        assert!(!vigil.event(at(500), &traffic) && !vigil.event(at(550), &traffic));
        vigil.event(at(10_500), &traffic);
        assert!(vigil.event(at(10_600), &traffic), "10 ms later it tries again");
    }
}
