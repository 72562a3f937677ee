// SPDX-License-Identifier: Apache-2.0
//! What became of a function's requests since the node started.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::recent::{Recent, SLOTS, Summary};

/// The upper ends of the histogram that `/metrics` shows, in seconds: from a
/// memo hit to a long call. What takes longer is beyond the last.
pub(crate) const DURATION_BUCKETS_S: [f64; 12] =
    [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0, 100.0, 1000.0];

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
    pub(crate) seconds: f64,
    /// By [`DURATION_BUCKETS_S`], not cumulative, and those beyond.
    pub(crate) durations: [u64; DURATION_BUCKETS_S.len() + 1],
}

impl Counts {
    /// Counts a request that ended, `now` after the node's start.
    pub(crate) fn ended(&self, now: Duration, took_us: u64, start: &'static str, has_failed: bool) {
        let mut inner = self.lock();
        inner.recent.ended(now, took_us, has_failed);
        let total = &mut inner.total;
        total.requests += 1;
        total.failures += u64::from(has_failed);
        match total.starts.iter_mut().find(|(word, _)| *word == start) {
            Some((_, count)) => *count += 1,
            None => total.starts.push((start, 1)),
        }
        let seconds = took_us as f64 / 1e6;
        total.seconds += seconds;
        total.durations[DURATION_BUCKETS_S.partition_point(|end| *end < seconds)] += 1;
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

    #[test]
    fn requests_are_counted_by_start_and_time() {
        let counts = Counts::default();
        for (took_us, start, has_failed) in
            [(50, "warm", false), (100, "warm", false), (101, "forked", true), (2_000_000_000, "cold", false)]
        {
            counts.ended(Duration::from_secs(1), took_us, start, has_failed);
        }
        let total = counts.total();
        assert_eq!((total.requests, total.failures), (4, 1));
        assert_eq!(total.starts, [("warm", 2), ("forked", 1), ("cold", 1)]);
        assert_eq!((total.durations[0], total.durations[1], total.durations[12]), (2, 1, 1));
        assert_eq!(counts.recently(Duration::from_secs(2), 12).requests, 4);
    }
}
