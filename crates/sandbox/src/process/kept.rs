// SPDX-License-Identifier: Apache-2.0
//! What stays of instances when they have ended: memory that their template, which is
//! not trusted, has shared with them, files of theirs that it has open, and what it was sent.
//!
//! Such memory is charged to none of the containers that are there, so it is what all of
//! a realm have less what each of them has. What the node and others have been given by instances that
//! have ended is among it, and is no fault. Where it is more than all that may rightly be, the realm ends.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Between two looks, each of which reads two files of every container.
const PAUSE: Duration = Duration::from_secs(1);
/// What ends or begins during a look may be seen by half. So many more have to find too much than not.
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
    /// Looks that have found too much, less those that have not.
    excesses: u32,
    /// It was told, and all has ended.
    is_over: bool,
}

impl Kept {
    /// Looks again, if it is time: `None` of `look` where nothing can be seen. What is too
    /// much, once, if it was so for long enough.
    pub(super) fn look(
        &self,
        now: Instant,
        look: impl FnOnce() -> Option<u64>,
        most: impl FnOnce() -> u64,
    ) -> Option<TooMuchKept> {
        let mut state = self.0.lock();
        let is_early = state.looked.is_some_and(|looked| now.saturating_duration_since(looked) < PAUSE);
        if is_early || state.is_over {
            return None;
        }
        state.looked = Some(now);
        let found = TooMuchKept { bytes: look()?, most: most() };
        state.excesses = match found.bytes > found.most {
            true => state.excesses + 1,
            false => state.excesses.saturating_sub(1),
        };
        state.is_over = state.excesses >= LOOKS;
        state.is_over.then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_is_what_was_too_much_for_long_and_is_told_once() {
        let (kept, began) = (Kept::default(), Instant::now());
        let at = |look: u32, bytes, most| kept.look(began + PAUSE * look, || bytes, || most);
        // As much as may be is not too much, and who has less for a moment is looked at no less.
        for (look, bytes) in (0..).zip([11, 10, 10, 11, 11, 10, 11]) {
            assert_eq!(at(look, Some(bytes), 10), None, "{look}");
        }
        // Nobody looks before it is time, and where nothing is seen nothing is known.
        let early = began + PAUSE * 6 + PAUSE / 2;
        assert_eq!(kept.look(early, || panic!("it looks"), || 0), None);
        assert_eq!(at(7, None, 10), None);
        // Who has more room then has it.
        assert_eq!(at(8, Some(20), 20), None);
        assert_eq!(at(9, Some(21), 20), None);
        assert_eq!(at(10, Some(13), 10), Some(TooMuchKept { bytes: 13, most: 10 }));
        let late = began + PAUSE * 11;
        assert_eq!(kept.look(late, || panic!("it looks"), || 0), None);
    }
}
