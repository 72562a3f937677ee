// SPDX-License-Identifier: Apache-2.0
//! Bounds of a queue.

/// How much is kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Messages that wait, run or are dead.
    pub messages_max: usize,
    /// Their bytes.
    pub bytes_max: u64,
    /// The part of both that one lane may fill, in percent.
    pub lane_percent: u8,
    /// Outcomes.
    pub outcomes_max: usize,
    /// Their bytes.
    pub outcomes_bytes_max: u64,
    /// How long an outcome is kept, in milliseconds.
    pub outcome_ms: u64,
    /// How long a dead letter is kept, in milliseconds.
    pub dead_ms: u64,
    /// Keys against duplicates.
    pub keys_max: usize,
}

const HOUR_MS: u64 = 60 * 60 * 1000;

impl Default for Options {
    fn default() -> Self {
        Self {
            messages_max: 100_000,
            bytes_max: 1 << 30,
            lane_percent: 50,
            outcomes_max: 20_000,
            outcomes_bytes_max: 256 << 20,
            outcome_ms: 24 * HOUR_MS,
            dead_ms: 14 * 24 * HOUR_MS,
            keys_max: 100_000,
        }
    }
}

impl Options {
    /// For a queue that is in memory only.
    #[must_use]
    pub fn in_memory() -> Self {
        Self { bytes_max: 64 << 20, outcomes_bytes_max: 16 << 20, ..Self::default() }
    }

    pub(crate) fn lane_messages_max(&self) -> usize {
        self.messages_max / 100 * usize::from(self.lane_percent)
            + self.messages_max % 100 * usize::from(self.lane_percent) / 100
    }

    pub(crate) fn lane_bytes_max(&self) -> u64 {
        self.bytes_max / 100 * u64::from(self.lane_percent)
    }
}
