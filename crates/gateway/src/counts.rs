// SPDX-License-Identifier: Apache-2.0
//! What became of a function's requests since the node started.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::journal::Record;
use crate::recent::{Recent, SLOTS, Summary};

/// The upper ends of the histograms that `/metrics` shows, in seconds: from a
/// memo hit to a long call. What takes longer is beyond the last.
pub(crate) const DURATION_BUCKETS_S: [f64; 12] =
    [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0, 100.0, 1000.0];
/// Types that have names among those of which a function's objects were pickled; all others are one
/// more. Functions choose the names, and each is a label.
pub(crate) const TYPES_MAX: usize = 64;
/// What all others are called.
pub(crate) const OTHER_TYPES: &str = "other";
const MICROS_PER_SECOND: f64 = 1e6;

/// Counters of one function, for all its versions.
#[derive(Debug, Default)]
pub struct Counts(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    total: Total,
    recent: Recent,
}

/// All requests of a function.
#[derive(Debug, Clone, Default)]
pub(crate) struct Total {
    pub(crate) requests: u64,
    pub(crate) failures: u64,
    /// How they came to run, by the words of the journal: a handful.
    pub(crate) starts: Vec<(&'static str, u64)>,
    /// From arrival to answer.
    pub(crate) durations: Times,
    /// Of those that an instance came to: how long they waited for their turn.
    pub(crate) queued: Times,
    /// Of those that waited for an instance to be made: how long.
    pub(crate) starting: Times,
    /// Of those whose processor time is known.
    pub(crate) cpu: Times,
    /// Processor time of instances between calls.
    pub(crate) cpu_between_s: f64,
    /// Time in which memory was held.
    pub(crate) held_s: f64,
    /// Memory that was held, for how long.
    pub(crate) memory_byte_s: f64,
    /// The most that an instance had.
    pub(crate) memory_peak_bytes: u64,
    pub(crate) fuel: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) price: f64,
    /// Objects of steps' results that could not be mapped, by their types.
    pub(crate) pickled: BTreeMap<String, u64>,
}

/// Times, sorted into [`DURATION_BUCKETS_S`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Times {
    pub(crate) count: u64,
    pub(crate) seconds: f64,
    /// Not cumulative, and those beyond.
    pub(crate) buckets: [u64; DURATION_BUCKETS_S.len() + 1],
}

impl Times {
    fn add(&mut self, us: u64) {
        let seconds = us as f64 / MICROS_PER_SECOND;
        self.count += 1;
        self.seconds += seconds;
        self.buckets[DURATION_BUCKETS_S.partition_point(|end| *end < seconds)] += 1;
    }
}

impl Total {
    fn add(&mut self, record: &Record, cpu_between: Duration) {
        self.requests += 1;
        self.failures += u64::from(record.failure.is_some());
        match self.starts.iter_mut().find(|(word, _)| *word == record.start) {
            Some((_, count)) => *count += 1,
            None => self.starts.push((record.start, 1)),
        }
        self.durations.add(record.total_us);
        if !matches!(record.start, "memo" | "none" | "codelet") {
            self.queued.add(record.queued_us);
        }
        if record.starting_us > 0 {
            self.starting.add(record.starting_us);
        }
        let usage = &record.usage;
        if let Some(cpu_us) = usage.cpu_us {
            self.cpu.add(cpu_us);
        }
        let held_s = usage.held_us as f64 / MICROS_PER_SECOND;
        self.cpu_between_s += cpu_between.as_secs_f64();
        self.held_s += held_s;
        self.memory_byte_s += held_s * usage.memory_bytes as f64;
        self.memory_peak_bytes = self.memory_peak_bytes.max(usage.memory_peak_bytes.unwrap_or(0));
        self.fuel += usage.fuel.unwrap_or(0);
        self.received_bytes += usage.received_bytes;
        self.sent_bytes += usage.sent_bytes;
        self.price += usage.price.unwrap_or(0.0);
    }
}

impl Counts {
    /// Counts a request that ended, `now` after the node's start, and processor
    /// time of its instance that belongs to no request.
    pub(crate) fn ended(&self, now: Duration, record: &Record, cpu_between: Duration) {
        let mut inner = self.lock();
        inner.recent.ended(now, record.total_us, record.failure.is_some());
        inner.total.add(record, cpu_between);
    }

    /// Counts objects of the result of a step that could not be mapped, by their types.
    pub(crate) fn pickled(&self, types: &[(String, u32)]) {
        if types.is_empty() {
            return;
        }
        let pickled = &mut self.lock().total.pickled;
        for (name, count) in types {
            let has_place = pickled.contains_key(name) || pickled.len() < TYPES_MAX;
            let name = if has_place { name } else { OTHER_TYPES };
            *pickled.entry(name.to_owned()).or_default() += u64::from(*count);
        }
    }

    /// Since the node started.
    pub(crate) fn total(&self) -> Total {
        self.lock().total.clone()
    }

    /// Of the last slots.
    pub(crate) fn recently(&self, now: Duration, slots: u64) -> Summary {
        self.lock().recent.over(now, slots.min(SLOTS))
    }

    /// The last minutes, slot by slot.
    pub(crate) fn series(&self, now: Duration) -> Vec<Summary> {
        self.lock().recent.series(now)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::Usage;

    #[test]
    fn requests_are_counted_by_start_and_time_and_their_usage_is_summed_up() {
        let counts = Counts::default();
        for (total_us, start, starting_us, failure) in [
            (50, "warm", 0, None),
            (100, "warm", 0, None),
            (101, "forked", 90, Some("no".to_owned())),
            (2_000_000_000, "cold", 900, None),
        ] {
            let usage = Usage {
                held_us: 1_000_000,
                cpu_us: (start != "cold").then_some(200),
                memory_bytes: 10,
                memory_peak_bytes: Some(total_us),
                sent_bytes: 3,
                price: Some(0.5),
                ..Usage::default()
            };
            let record = Record { total_us, start, starting_us, failure, usage, ..Record::default() };
            counts.ended(Duration::from_secs(1), &record, Duration::from_millis(250));
        }
        let total = counts.total();
        assert_eq!((total.requests, total.failures), (4, 1));
        assert_eq!(total.starts, [("warm", 2), ("forked", 1), ("cold", 1)]);
        let durations = &total.durations.buckets;
        assert_eq!((durations[0], durations[1], durations[12]), (2, 1, 1));
        assert_eq!((total.queued.count, total.starting.count, total.cpu.count), (4, 2, 3));
        assert!((total.cpu.seconds - 0.0006).abs() < 1e-9 && total.cpu.buckets[1] == 3);
        assert_eq!((total.cpu_between_s, total.held_s, total.memory_byte_s), (1.0, 4.0, 40.0));
        assert_eq!((total.memory_peak_bytes, total.sent_bytes, total.price), (2_000_000_000, 12, 2.0));
        assert_eq!(counts.recently(Duration::from_secs(2), 12).requests, 4);
    }

    #[test]
    fn types_that_were_pickled_are_few_however_many_there_are() {
        let counts = Counts::default();
        let many: Vec<(String, u32)> = (0..100).map(|number| (format!("type{number:02}"), 1)).collect();
        counts.pickled(&many);
        counts.pickled(&many);
        let pickled = counts.total().pickled;
        assert_eq!((pickled.len(), pickled["type00"], pickled[OTHER_TYPES]), (TYPES_MAX + 1, 2, 72));
    }
}
