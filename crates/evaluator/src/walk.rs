// SPDX-License-Identifier: Apache-2.0
//! What walks take of the node's memory: their frames, and the trees that
//! these are in the middle of.
//!
//! A job counts for itself, without asking anybody. Only where it exceeds
//! what every job may have is more counted for the whole node, a chunk at a
//! time, and only that is bounded: most jobs never touch the common count.

use std::sync::atomic::{AtomicU64, Ordering};

/// What every job may use without being counted.
const UNCOUNTED_BYTES: u64 = 8 << 10;
/// What is counted at once beyond.
const CHUNK_BYTES: u64 = 64 << 10;
/// Chunks that a job that is set aside keeps without using them.
const SPARE_CHUNKS: u64 = 4;

/// The count for the whole node.
#[derive(Debug)]
pub(crate) struct WalkPool {
    used_bytes: AtomicU64,
    max_bytes: u64,
}

impl WalkPool {
    pub(crate) fn new(max_bytes: u64) -> Self {
        Self { used_bytes: AtomicU64::new(0), max_bytes }
    }

    pub(crate) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        let take = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.max_bytes);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        if bytes != 0 {
            self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// The count of one job.
#[derive(Debug, Default)]
pub(crate) struct WalkBytes {
    used: u64,
    /// Bytes of the pool that are this job's.
    counted: u64,
}

impl WalkBytes {
    /// Before the job allocates `bytes`. `false`: the node's bound is reached,
    /// and nothing has changed.
    #[inline]
    #[must_use]
    pub(crate) fn grow(&mut self, bytes: u64, pool: &WalkPool) -> bool {
        let used = self.used.saturating_add(bytes);
        if used > self.counted + UNCOUNTED_BYTES && !self.count(used, pool) {
            return false;
        }
        self.used = used;
        true
    }

    #[cold]
    fn count(&mut self, used: u64, pool: &WalkPool) -> bool {
        let lacking = used - UNCOUNTED_BYTES - self.counted;
        let chunks = lacking.checked_next_multiple_of(CHUNK_BYTES).unwrap_or(lacking);
        let is_counted = pool.take(chunks);
        self.counted += if is_counted { chunks } else { 0 };
        is_counted
    }

    /// The job has freed `bytes`. They stay counted until [`WalkBytes::trim`].
    #[inline]
    pub(crate) fn shrink(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.used);
        self.used = self.used.saturating_sub(bytes);
    }

    /// Gives back what is counted and not used, but for a few chunks.
    pub(crate) fn trim(&mut self, pool: &WalkPool) {
        let needed = self.used.saturating_sub(UNCOUNTED_BYTES).next_multiple_of(CHUNK_BYTES);
        if self.counted > needed + SPARE_CHUNKS * CHUNK_BYTES {
            pool.give_back(self.counted - needed);
            self.counted = needed;
        }
    }

    /// The job has ended, and keeps `bytes` allocated for the next one.
    pub(crate) fn end(&mut self, bytes: u64, pool: &WalkPool) {
        pool.give_back(std::mem::take(&mut self.counted));
        self.used = bytes;
    }
}

#[cfg(test)]
mod tests;
