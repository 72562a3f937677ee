// SPDX-License-Identifier: Apache-2.0
//! When a function will probably be called next.
//!
//! A histogram of the pauses between calls, after the hybrid policy of Shahrad
//! and others (*Serverless in the Wild*, USENIX ATC 2020): the 5th and the
//! 95th percentile bound the window in which the next call is expected. Only
//! a narrow window is believed; for the rest there is keep-alive.

/// Shorter pauses say nothing: no instance is stopped within them.
pub(super) const PAUSE_MIN_NS: u64 = 1 << 30;
/// Bins are a quarter of an octave wide: 16 octaves, up to some 19 hours.
const BINS: usize = 64;
const BINS_PER_OCTAVE: u64 = 4;
/// Below so many pauses nothing is predicted.
const COUNT_MIN: u32 = 4;
/// At so many all are halved, so that old habits fade.
const COUNT_MAX: u32 = 64;
/// Of the late end of a window over its early end.
const NARROW: u64 = 2;

/// When the next call is expected, in nanoseconds after the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) early_ns: u64,
    pub(super) late_ns: u64,
}

/// Pauses between the calls of one function.
#[derive(Debug)]
pub(super) struct Pauses {
    bins: [u16; BINS],
    count: u32,
    last: Option<u64>,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { bins: [0; BINS], count: 0, last: None }
    }
}

impl Pauses {
    /// A call came.
    pub(super) fn arrived(&mut self, now: u64) {
        let last = self.last.replace(now);
        let Some(pause) = last.map(|last| now.saturating_sub(last)).filter(|pause| *pause >= PAUSE_MIN_NS)
        else {
            return;
        };
        if self.count >= COUNT_MAX {
            for bin in &mut self.bins {
                *bin /= 2;
            }
            self.count = self.bins.iter().map(|bin| u32::from(*bin)).sum();
        }
        self.bins[bin_of(pause)] += 1;
        self.count += 1;
    }

    /// When the last call came.
    pub(super) fn last(&self) -> Option<u64> {
        self.last
    }

    /// When the next is expected after a pause, if that can be told.
    pub(super) fn window(&self) -> Option<Window> {
        if self.count < COUNT_MIN {
            return None;
        }
        let tail = self.count / 20;
        let early = self.bin_at(tail)?;
        let late = self.bin_at(self.count - 1 - tail)?;
        let window = Window { early_ns: lower_edge(early), late_ns: lower_edge(late + 1) };
        (window.late_ns <= window.early_ns * NARROW).then_some(window)
    }

    /// The bin of the pause that `rank` others are not longer than.
    fn bin_at(&self, rank: u32) -> Option<usize> {
        let mut seen = 0;
        self.bins.iter().position(|count| {
            seen += u32::from(*count);
            seen > rank
        })
    }
}

fn bin_of(pause: u64) -> usize {
    let octave = u64::from(pause.max(1).ilog2());
    let quarter = (pause >> (octave.max(2) - 2)) & (BINS_PER_OCTAVE - 1);
    let first = u64::from(PAUSE_MIN_NS.ilog2());
    let bin = octave.saturating_sub(first) * BINS_PER_OCTAVE + quarter;
    (bin as usize).min(BINS - 1)
}

/// The shortest pause of a bin.
fn lower_edge(bin: usize) -> u64 {
    let (octave, quarter) = (bin as u64 / BINS_PER_OCTAVE, bin as u64 % BINS_PER_OCTAVE);
    (PAUSE_MIN_NS << octave) / BINS_PER_OCTAVE * (BINS_PER_OCTAVE + quarter)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn bins_and_edges_agree() {
        for bin in 0..BINS {
            assert_eq!(bin_of(lower_edge(bin)), bin);
            assert_eq!(bin_of(lower_edge(bin + 1) - 1), bin);
        }
        assert_eq!(bin_of(u64::MAX), BINS - 1);
    }

    #[test]
    fn a_period_is_found_and_chance_is_not() {
        let mut periodic = Pauses::default();
        for call in 0..20 {
            // A burst of three each time.
            for part in 0..3 {
                periodic.arrived(call * 60 * SECOND + part * SECOND / 10);
            }
        }
        let window = periodic.window().unwrap();
        assert!(window.early_ns < 60 * SECOND && window.late_ns > 59 * SECOND, "{window:?}");
        assert!(window.late_ns < 80 * SECOND, "{window:?}");
        let mut chance = Pauses::default();
        let mut now = 0;
        for call in 0..20 {
            now += [2, 90, 7, 300][call % 4] * SECOND;
            chance.arrived(now);
        }
        assert_eq!(chance.window(), None);
    }

    #[test]
    fn old_habits_fade() {
        let mut pauses = Pauses::default();
        let mut now = 0;
        for step in [10, 40] {
            for _ in 0..400 {
                now += step * SECOND;
                pauses.arrived(now);
            }
        }
        let window = pauses.window().unwrap();
        assert!(window.early_ns > 30 * SECOND, "{window:?}");
    }
}
