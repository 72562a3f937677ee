// SPDX-License-Identifier: Apache-2.0
//! When to try again, and when not to.

/// How often and for how long a message is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Attempts, the first one included.
    pub max_attempts: u32,
    /// From the push to the beginning of the last attempt, in milliseconds.
    pub max_age_ms: u64,
    /// Before the second attempt, in milliseconds; each further wait is twice as long.
    pub min_backoff_ms: u64,
    /// The longest wait, in milliseconds.
    pub max_backoff_ms: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            max_age_ms: 6 * 60 * 60 * 1000,
            min_backoff_ms: 1000,
            max_backoff_ms: 300_000,
        }
    }
}

impl Policy {
    /// When the attempt after `attempts` may begin. `random` spreads those that
    /// failed together over the second half of the wait.
    ///
    /// # Errors
    /// Why there is none, for people.
    pub fn next(&self, created_ms: u64, attempts: u32, now_ms: u64, random: u64) -> Result<u64, String> {
        if attempts >= self.max_attempts {
            return Err(format!("{attempts} of {} attempts failed", self.max_attempts));
        }
        self.later(created_ms, attempts, now_ms, random)
    }

    /// As [`Policy::next`], for what was no attempt: there was no room for one.
    ///
    /// # Errors
    /// Why there is none, for people.
    pub fn later(&self, created_ms: u64, tries: u32, now_ms: u64, random: u64) -> Result<u64, String> {
        let doublings = tries.saturating_sub(1).min(40);
        let wait = self.min_backoff_ms.saturating_mul(1 << doublings).min(self.max_backoff_ms.max(1)).max(1);
        let due = now_ms.saturating_add(wait - wait / 2).saturating_add(random % (wait / 2 + 1));
        if due > created_ms.saturating_add(self.max_age_ms) {
            return Err(format!("it would be older than {} s at its next attempt", self.max_age_ms / 1000));
        }
        Ok(due)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_are_spread() {
        let policy = Policy { max_attempts: 100, max_age_ms: u64::MAX, ..Policy::default() };
        let least: Vec<u64> = (1..12).map(|n| policy.next(0, n, 0, 0).unwrap()).collect();
        assert_eq!(least, [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000, 150_000, 150_000]);
        let spread = (0..5000).map(|random| policy.next(0, 1, 0, random).unwrap());
        assert_eq!((spread.clone().min(), spread.max()), (Some(500), Some(1000)));
        assert!(policy.next(0, u32::MAX - 1, 0, u64::MAX).is_err(), "past the attempts");
        let endless =
            Policy { max_attempts: u32::MAX, min_backoff_ms: u64::MAX, max_backoff_ms: u64::MAX, ..policy };
        assert!(endless.next(0, 99, u64::MAX, u64::MAX).is_ok(), "no overflow");
    }

    #[test]
    fn attempts_and_age_are_bounds() {
        let policy = Policy { max_attempts: 2, max_age_ms: 1500, ..Policy::default() };
        assert!(policy.next(0, 1, 0, 0).is_ok());
        assert!(policy.next(0, 2, 0, 0).unwrap_err().contains("2 of 2 attempts"));
        assert!(policy.next(0, 1, 1001, 0).unwrap_err().contains("older"));
        assert!(policy.later(0, 5, 0, 0).is_err_and(|why| why.contains("older")), "a wait of 8 s");
        assert!(policy.later(0, 1, 0, 0).is_ok(), "what is no attempt is not counted");
    }
}
