// SPDX-License-Identifier: Apache-2.0
//! What stays of instances when they have ended: memory that their template, which is
//! not trusted, has shared with them, and files of theirs that it has open.
//!
//! Such memory is charged to none of the containers that are there, so it is what all of
//! a realm have less what each of them has. It counts for the template, and where it is more than the
//! instances that live could have themselves, the realm ends. What others have been
//! given to map of an instance that has ended is among it, and is no fault.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Between two looks, each of which reads a file of every container.
const PAUSE: Duration = Duration::from_secs(1);
/// What ends or begins during a look may be seen by half; not in so many, one after the other.
const LOOKS: u32 = 3;

/// More than may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMuchKept {
    /// Bytes that are kept.
    pub bytes: u64,
    /// Bytes that may be.
    pub most: u64,
}

#[derive(Debug, Default)]
pub(super) struct Kept(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    looked: Option<Instant>,
    bytes: u64,
    /// Looks, one after the other, that have found too much.
    excesses: u32,
}

impl Kept {
    /// Bytes, as they were seen last.
    pub(super) fn bytes(&self) -> u64 {
        self.0.lock().bytes
    }

    /// Looks again, if it is time: `None` of `look` if it could not be seen well. What is too
    /// much, if it was so for long enough.
    pub(super) fn look(
        &self,
        now: Instant,
        look: impl FnOnce() -> Option<u64>,
        most: impl FnOnce() -> u64,
    ) -> Option<TooMuchKept> {
        let mut state = self.0.lock();
        if state.looked.is_some_and(|looked| now.saturating_duration_since(looked) < PAUSE) {
            return None;
        }
        state.looked = Some(now);
        let bytes = look()?;
        let most = most();
        state.bytes = bytes;
        state.excesses = if bytes > most { state.excesses + 1 } else { 0 };
        (state.excesses >= LOOKS).then_some(TooMuchKept { bytes, most })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn too_much_is_what_was_too_much_for_long() {
        let (kept, began) = (Kept::default(), Instant::now());
        let at = |look: u32, bytes, most| kept.look(began + PAUSE * look, || bytes, || most);
        assert_eq!(kept.bytes(), 0);
        // As much as may be is not too much, and twice is not long.
        let seen = [(Some(11), 10), (Some(12), 10), (Some(10), 10), (Some(11), 10), (Some(12), 10)];
        for (look, (bytes, most)) in (0..).zip(seen) {
            assert_eq!(at(look, bytes, most), None);
            assert_eq!(kept.bytes(), bytes.unwrap());
        }
        // Nobody looks before it is time, and what is not seen changes nothing.
        let early = began + PAUSE * 4 + PAUSE / 2;
        assert_eq!(kept.look(early, || panic!("it looks"), || 0), None);
        assert_eq!((at(5, None, 10), kept.bytes()), (None, 12));
        assert_eq!(at(6, Some(13), 10), Some(TooMuchKept { bytes: 13, most: 10 }));
        // Who has more room then has it.
        assert_eq!(at(7, Some(14), 20), None);
    }
}
