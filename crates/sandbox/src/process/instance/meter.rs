// SPDX-License-Identifier: Apache-2.0
//! Who used the processor: the time of an instance, divided among its calls.
//!
//! The kernel counts the processor time of all that is in the instance's control
//! group; to read it takes a system call of about a microsecond. So it is read
//! where that is nothing: at both ends of a call that comes after a pause, and
//! otherwise once in a millisecond of serving. Between two readings each call is
//! charged by the rate that was last measured, and what the next reading says
//! beyond that, or below, is charged to those that are served then. All that is
//! charged is all that was used.
//!
//! Calls that are served at the same time share alike: `cpu_each` and `time_each`
//! are what one call would have been charged that had been there from the
//! beginning, and a call's part is how far they grew while it was served.

use std::time::{Duration, Instant};

use crate::Spent;

/// After a pause as long as this a call is read at both ends.
const PAUSE: Duration = Duration::from_millis(1);
/// Time of serving after which the end of a call is read.
const READ_EVERY: Duration = Duration::from_millis(1);

/// What the kernel counts of an instance.
pub(crate) trait Counted {
    /// Processor time so far, in nanoseconds.
    fn cpu_ns(&self) -> Option<u64> {
        None
    }
    /// The most memory so far, in bytes.
    fn memory_peak_bytes(&self) -> Option<u64> {
        None
    }
}

/// An instance's time so far. Times are in nanoseconds, and have fractions where
/// they are shared.
pub(super) struct Meter {
    looked: Instant,
    serving: u32,
    /// Processor time at the last reading.
    read_ns: Option<u64>,
    /// Charged since then.
    charged_ns: f64,
    /// Time of serving since then.
    unread: Duration,
    /// Processor time for a time of serving.
    rate: Option<f64>,
    cpu_each: f64,
    time_each: f64,
    /// Used between calls, and told with none yet.
    between_ns: f64,
    memory_peak_bytes: Option<u64>,
    /// Grows when calls begin to share.
    sharings: u64,
}

/// The beginning of a call that is served.
#[derive(Debug, Clone, Copy)]
pub(super) struct Served {
    begun: Instant,
    cpu_each: f64,
    time_each: f64,
    /// To be read at its end too.
    is_read: bool,
    /// It begins with a reading.
    is_exact: bool,
    sharings: u64,
    waiting: Waiting,
}

/// The time in which a call waits for other functions.
#[derive(Debug, Clone, Copy, Default)]
struct Waiting {
    since: Option<(Instant, f64)>,
    time: Duration,
    time_each: f64,
    /// A part of it is what the instance says.
    is_told: bool,
}

impl Meter {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            looked: now,
            serving: 0,
            read_ns: None,
            charged_ns: 0.0,
            unread: Duration::ZERO,
            rate: None,
            cpu_each: 0.0,
            time_each: 0.0,
            between_ns: 0.0,
            memory_peak_bytes: None,
            sharings: 0,
        }
    }

    /// The instance comes to a call.
    pub(super) fn begin(&mut self, now: Instant, counted: &(impl Counted + ?Sized)) -> Served {
        let was_idle = self.serving == 0;
        let pause = now.saturating_duration_since(self.looked);
        let is_read = was_idle && (pause >= PAUSE || self.read_ns.is_none());
        // The call before ended with a reading: what is used in a brief pause is put to this one.
        let was_read_now = was_idle && self.unread.is_zero();
        self.pass(now);
        if is_read {
            self.read(counted);
        }
        self.sharings += u64::from(!was_idle);
        self.serving += 1;
        let (cpu_each, time_each, sharings) = (self.cpu_each, self.time_each, self.sharings);
        let (is_exact, waiting) = (is_read || was_read_now, Waiting::default());
        Served { begun: now, cpu_each, time_each, is_read, is_exact, sharings, waiting }
    }

    /// It has ended: what it took.
    pub(super) fn end(&mut self, served: Served, now: Instant, counted: &(impl Counted + ?Sized)) -> Spent {
        let mut served = served;
        self.pass(now);
        let is_read = served.is_read || self.unread >= READ_EVERY || self.rate.is_none();
        if is_read {
            self.read(counted);
            self.memory_peak_bytes = counted.memory_peak_bytes().or(self.memory_peak_bytes);
        }
        self.goes_on(&mut served, now);
        self.serving -= 1;
        let cpu = self.cpu_each - served.cpu_each;
        if cpu < 0.0 {
            // The calls before were charged too much: those after it get it back.
            self.charged_ns -= cpu;
        }
        let is_own = served.is_exact && is_read && served.sharings == self.sharings;
        let held = self.time_each - served.time_each - served.waiting.time_each;
        let running = now.saturating_duration_since(served.begun);
        Spent {
            in_line: Duration::ZERO,
            running,
            waiting: served.waiting.time.min(running),
            held: nanos(if served.waiting.is_told { held.max(cpu) } else { held }),
            cpu: self.read_ns.map(|_| nanos(cpu)),
            is_cpu_own: is_own && self.read_ns.is_some(),
            cpu_between: nanos(std::mem::take(&mut self.between_ns)),
            memory_peak_bytes: self.memory_peak_bytes,
        }
    }

    /// A call begins to wait for other functions.
    pub(super) fn waits(&mut self, served: &mut Served, now: Instant) {
        self.pass(now);
        served.waiting.since.get_or_insert((now, self.time_each));
    }

    /// It waits for none any more.
    pub(super) fn goes_on(&mut self, served: &mut Served, now: Instant) {
        let Some((since, time_each)) = served.waiting.since.take() else { return };
        self.pass(now);
        served.waiting.time += now.saturating_duration_since(since);
        served.waiting.time_each += self.time_each - time_each;
    }

    /// It says that it has waited for so long on lines, of which the node sees nothing:
    /// then it is held for as long as it used a processor, at least.
    pub(super) fn waited(&mut self, served: &mut Served, now: Instant, time: Duration) {
        self.pass(now);
        let known = served.waiting.time;
        let time = time.min(now.saturating_duration_since(served.begun).saturating_sub(known));
        served.waiting.time += time;
        served.waiting.time_each += time.as_nanos() as f64 / f64::from(self.serving.max(1));
        served.waiting.is_told = true;
    }

    /// Calls that came over a line have ended, which ran and waited for so long as they
    /// say. What the instance used since the last reading is theirs, by how long they
    /// ran; beside other calls they are charged by the rate.
    pub(super) fn told(
        &mut self,
        now: Instant,
        calls: &[(Duration, Duration)],
        counted: &(impl Counted + ?Sized),
    ) -> Vec<Spent> {
        if calls.is_empty() {
            self.pass(now);
            self.read(counted);
            return Vec::new();
        }
        let held = |(running, waiting): (Duration, Duration)| running.saturating_sub(waiting);
        let all: Duration = calls.iter().copied().map(held).sum();
        self.pass(now);
        let used_ns = if self.serving == 0 {
            let before = std::mem::take(&mut self.between_ns);
            self.read(counted);
            self.memory_peak_bytes = counted.memory_peak_bytes().or(self.memory_peak_bytes);
            std::mem::replace(&mut self.between_ns, before)
        } else {
            let charged = self.rate.unwrap_or(0.0) * all.as_nanos() as f64;
            self.charged_ns += charged;
            charged
        };
        let part = |time: Duration| match all.is_zero() {
            true => used_ns / calls.len().max(1) as f64,
            false => used_ns * (time.as_nanos() as f64 / all.as_nanos() as f64),
        };
        let spent = |&(running, waiting): &(Duration, Duration)| {
            let time = held((running, waiting));
            let cpu = self.read_ns.map(|_| nanos(part(time)));
            Spent {
                in_line: Duration::ZERO,
                running,
                waiting: waiting.min(running),
                held: time.max(cpu.unwrap_or_default()),
                cpu,
                is_cpu_own: self.serving == 0 && calls.len() == 1,
                cpu_between: Duration::ZERO,
                memory_peak_bytes: self.memory_peak_bytes,
            }
        };
        let mut spent: Vec<Spent> = calls.iter().map(spent).collect();
        if let Some(first) = spent.first_mut() {
            first.cpu_between = nanos(std::mem::take(&mut self.between_ns));
        }
        spent
    }

    /// Charges the time since the last look.
    fn pass(&mut self, now: Instant) {
        let time = now.saturating_duration_since(self.looked);
        self.looked = self.looked.max(now);
        if self.serving == 0 {
            return;
        }
        let (nanos, serving) = (time.as_nanos() as f64, f64::from(self.serving));
        self.unread += time;
        self.time_each += nanos / serving;
        let cpu = self.rate.unwrap_or(0.0) * nanos;
        self.cpu_each += cpu / serving;
        self.charged_ns += cpu;
    }

    /// Sets what was charged right.
    fn read(&mut self, counted: &(impl Counted + ?Sized)) {
        let Some(now_ns) = counted.cpu_ns() else { return };
        let Some(before_ns) = self.read_ns.replace(now_ns) else {
            // What it took to make the instance is no call's.
            (self.charged_ns, self.unread) = (0.0, Duration::ZERO);
            return;
        };
        let used = now_ns.saturating_sub(before_ns) as f64;
        let rest = used - self.charged_ns;
        self.charged_ns = 0.0;
        if self.serving > 0 {
            self.cpu_each += rest / f64::from(self.serving);
            let unread = std::mem::take(&mut self.unread).as_nanos() as f64;
            if unread > 0.0 {
                self.rate = Some(used / unread);
            }
        } else if rest >= 0.0 {
            self.between_ns += rest;
            self.unread = Duration::ZERO;
        } else {
            self.charged_ns = -rest;
            self.unread = Duration::ZERO;
        }
    }
}

fn nanos(time: f64) -> Duration {
    // Below zero is nothing, and no call lasts for centuries.
    Duration::from_nanos(time.max(0.0) as u64)
}

#[cfg(test)]
mod tests;
