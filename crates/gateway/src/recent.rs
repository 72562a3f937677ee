// SPDX-License-Identifier: Apache-2.0
//! What became of a function's requests in the last minutes.
//!
//! Time is cut into slots of [`SLOT`]; each counts its requests and sorts how
//! long they took into buckets, four to a doubling. So the memory is
//! fixed, and a percentile is at most a fifth too high. No clock is read here.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;

/// What one point of a chart stands for.
pub(crate) const SLOT: Duration = Duration::from_secs(5);
/// Slots that are kept: five minutes.
pub(crate) const SLOTS: u64 = 60;
/// Bucket 0 is below eight microseconds, the last one from two minutes on.
const BUCKETS: usize = 100;

/// Requests that ended within one stretch of time.
#[derive(Debug, Clone)]
struct Tally {
    requests: u64,
    failures: u64,
    slowest_us: u64,
    buckets: [u32; BUCKETS],
}

impl Default for Tally {
    fn default() -> Self {
        Self { requests: 0, failures: 0, slowest_us: 0, buckets: [0; BUCKETS] }
    }
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.failures += other.failures;
        self.slowest_us = self.slowest_us.max(other.slowest_us);
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// As many in a thousand took at most so long.
    fn quantile_us(&self, in_thousand: u64) -> u64 {
        let rank = (self.requests * in_thousand).div_ceil(1000);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                return bucket_end_us(index).min(self.slowest_us);
            }
        }
        self.slowest_us
    }

    fn summary(&self) -> Summary {
        Summary {
            requests: self.requests,
            failures: self.failures,
            p50_us: self.quantile_us(500),
            p99_us: self.quantile_us(990),
            slowest_us: self.slowest_us,
        }
    }
}

/// A tally in words of its readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    pub(crate) requests: u64,
    pub(crate) failures: u64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) slowest_us: u64,
}

/// The last slots in which anything ended, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    slots: VecDeque<(u64, Tally)>,
}

impl Recent {
    /// A request ended, `now` after some beginning that is the same for all calls.
    pub(crate) fn ended(&mut self, now: Duration, took_us: u64, has_failed: bool) {
        // Several threads may come a little out of order: time never goes back.
        let slot = slot_of(now).max(self.slots.back().map_or(0, |(slot, _)| *slot));
        if self.slots.back().is_none_or(|(last, _)| *last < slot) {
            while self.slots.front().is_some_and(|(oldest, _)| oldest + SLOTS <= slot) {
                self.slots.pop_front();
            }
            self.slots.push_back((slot, Tally::default()));
        }
        if let Some((_, tally)) = self.slots.back_mut() {
            tally.requests += 1;
            tally.failures += u64::from(has_failed);
            tally.slowest_us = tally.slowest_us.max(took_us);
            let count = &mut tally.buckets[bucket_of(took_us)];
            *count = count.saturating_add(1);
        }
    }

    /// All that ended in the slots that are over, at most so many, and in the one that is not.
    pub(crate) fn over(&self, now: Duration, slots: u64) -> Summary {
        let first = slot_of(now).saturating_sub(slots);
        let mut sum = Tally::default();
        self.slots.iter().filter(|(slot, _)| *slot >= first).for_each(|(_, tally)| sum.add(tally));
        sum.summary()
    }

    /// Each of the last [`SLOTS`] that are over, the oldest first, the empty ones too.
    pub(crate) fn series(&self, now: Duration) -> Vec<Summary> {
        let end = slot_of(now);
        let of_slot = |number: u64| self.slots.iter().find(|(slot, _)| *slot == number);
        let empty = Tally::default();
        (end.saturating_sub(SLOTS)..end)
            .map(|slot| of_slot(slot).map_or(&empty, |(_, tally)| tally).summary())
            .collect()
    }
}

fn slot_of(now: Duration) -> u64 {
    now.as_secs() / SLOT.as_secs()
}

fn bucket_of(us: u64) -> usize {
    if us < 8 {
        return 0;
    }
    let doublings = us.ilog2();
    let quarter = (us >> (doublings - 2)) & 3;
    ((doublings as usize - 3) * 4 + quarter as usize + 1).min(BUCKETS - 1)
}

/// The longest time of a bucket.
fn bucket_end_us(index: usize) -> u64 {
    match index.checked_sub(1) {
        None => 7,
        Some(_) if index == BUCKETS - 1 => u64::MAX,
        Some(index) => ((index as u64 % 4 + 5) << (index / 4 + 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn every_time_falls_into_the_bucket_that_ends_with_it_or_later() {
        let mut before = 0;
        for us in (0..5000).chain((0..60).map(|shift| 1 << shift)).chain([u64::MAX]) {
            let bucket = bucket_of(us);
            assert!(us <= bucket_end_us(bucket), "{us}");
            if bucket > 0 {
                assert!(us > bucket_end_us(bucket - 1), "{us}");
                if bucket < BUCKETS - 1 {
                    assert!(bucket_end_us(bucket) as f64 <= us as f64 * 1.25, "{us}");
                }
            }
            before = before.max(bucket);
        }
        assert_eq!(before, BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_near() {
        let mut recent = Recent::default();
        for us in 1..=10_000 {
            recent.ended(at(1), us, us > 9_900);
        }
        let summary = recent.over(at(1), 12);
        assert_eq!((summary.requests, summary.failures, summary.slowest_us), (10_000, 100, 10_000));
        assert!((5_000..=6_250).contains(&summary.p50_us), "{summary:?}");
        assert!((9_900..=10_000).contains(&summary.p99_us), "{summary:?}");
        let one = {
            let mut recent = Recent::default();
            recent.ended(at(0), 700, false);
            recent.over(at(0), 1)
        };
        assert_eq!((one.p50_us, one.p99_us), (700, 700), "no more than the slowest");
    }

    #[test]
    fn what_is_long_over_is_forgotten() {
        let mut recent = Recent::default();
        for second in 0..1000 {
            recent.ended(at(second), 10, second % 2 == 0);
        }
        assert_eq!(recent.slots.len() as u64, SLOTS);
        assert_eq!(recent.over(at(999), 12).requests, 13 * 5);
        assert_eq!(recent.over(at(2000), 12).requests, 0);
        let series = recent.series(at(1000));
        assert_eq!((series.len() as u64, series[0].requests, series[59].requests), (SLOTS, 5, 5));
        let later = recent.series(at(1100));
        assert_eq!((later[0].requests, later[39].requests, later[40].requests), (5, 5, 0));
        assert_eq!(recent.series(at(12)).len(), 2, "a node that has just begun has no more");
    }

    #[test]
    fn time_that_goes_back_counts_as_now() {
        let mut recent = Recent::default();
        recent.ended(at(50), 1, false);
        recent.ended(at(40), 1, false);
        assert_eq!((recent.slots.len(), recent.over(at(50), 0).requests), (1, 2));
    }
}
