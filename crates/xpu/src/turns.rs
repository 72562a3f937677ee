// SPDX-License-Identifier: Apache-2.0
//! Which of the turns that a process was given have begun: a word that it shares with whoever gives
//! them, who can take back those that have not.
//!
//! ```text
//!  63                                 32 31                           0
//!  ├ the last turn that was taken back  ┼ the last one that has begun ┤
//! ```
//!
//! Each side changes the word in one step, or sees that the other one has. So a turn is begun or taken
//! back, and never both, and who takes back knows at once which ones; the other side finds out when it
//! comes to them. Turns grow by one, and begin again after 2^32: one comes before another one that is
//! less than half of them ahead. The other side is in C (`guests/template/turns.c`).
//!
//! A process that lies in it says of its own turns that they have not begun. They are begun again then,
//! elsewhere, and nobody else's are.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use linux::SharedMemory;

use crate::fifo::Error;

/// One page: the kernel gives no less.
const BYTES: usize = 4096;

/// The word, as whoever gives turns has it.
#[derive(Debug)]
pub struct Turns(SharedMemory);

/// What was taken back: the turns between the last that has begun, and the last that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recalled {
    begun: u32,
    last: u32,
}

impl Recalled {
    /// Whether a turn was taken back, of those that were given so far.
    pub fn has(self, turn: u32) -> bool {
        is_after(turn, self.begun) && !is_after(turn, self.last)
    }
}

impl Turns {
    /// A new word, in which all turns up to this one have begun (or else wait where they are not taken
    /// back from), and the descriptor by which the other
    /// side finds it.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn create(begun: u32) -> Result<(Self, OwnedFd), Error> {
        let (memory, fd) = SharedMemory::create("sinew-turns", BYTES)?;
        let turns = Self(memory);
        turns.word().store(packed(begun, begun), Ordering::SeqCst);
        Ok((turns, fd))
    }

    /// Takes back all turns up to this one that have not begun.
    pub fn recall(&self, last: u32) -> Recalled {
        let take_back = |seen| Some(packed(last, halves(seen).1));
        let seen = self.word().fetch_update(Ordering::SeqCst, Ordering::SeqCst, take_back);
        Recalled { begun: halves(seen.unwrap_or_else(|seen| seen)).1, last }
    }

    fn word(&self) -> &AtomicU64 {
        self.0.word64(0)
    }
}

fn packed(recalled: u32, begun: u32) -> u64 {
    u64::from(recalled) << 32 | u64::from(begun)
}

/// What was taken back, and what has begun.
fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

fn is_after(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) > 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// What the other side does before it begins a turn.
    fn begins(turns: &Turns, turn: u32) -> bool {
        let begin = |seen| is_after(turn, halves(seen).0).then_some(packed(turn, turn));
        let has_begun = !is_after(turn, halves(turns.word().load(Ordering::SeqCst)).1);
        has_begun || turns.word().fetch_update(Ordering::SeqCst, Ordering::SeqCst, begin).is_ok()
    }

    #[test]
    fn what_has_begun_is_not_taken_back_and_what_was_taken_back_does_not_begin() {
        for first in [7, u32::MAX - 3, u32::MAX / 2, u32::MAX] {
            let turn = |ahead: u32| first.wrapping_add(ahead);
            let (turns, _fd) = Turns::create(first).unwrap();
            assert!(begins(&turns, first), "what was given before has begun, though it may still wait");
            assert!(begins(&turns, turn(1)));
            let recalled = turns.recall(turn(4));
            let has: Vec<bool> = (0..6).map(|ahead| recalled.has(turn(ahead))).collect();
            assert_eq!(has, [false, false, true, true, true, false], "{first}");
            assert!(!begins(&turns, turn(2)) && !begins(&turns, turn(4)));
            assert!(begins(&turns, turn(5)), "what was given afterwards is begun");
            assert_eq!(turns.recall(turn(5)), Recalled { begun: turn(5), last: turn(5) });
        }
    }

    #[test]
    fn turns_begin_for_ever() {
        let (turns, _fd) = Turns::create(1).unwrap();
        // In steps of a quarter of all there are, around and around.
        let all = (1..=64_u32).map(|step| step.wrapping_mul(1 << 30).wrapping_add(1));
        assert!(all.into_iter().all(|turn| begins(&turns, turn)));
    }

    #[test]
    fn each_turn_is_begun_or_taken_back_when_both_come_at_once() {
        const ROUNDS: u32 = 3000;
        let (turns, _fd) = Turns::create(0).unwrap();
        let turns = &turns;
        let barrier = std::sync::Barrier::new(2);
        let (mut begun, mut taken_back) = (Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    barrier.wait();
                    begun.extend((1..=4).map(|turn| begins(turns, round * 4 + turn)));
                    barrier.wait();
                }
            });
            for round in 0..ROUNDS {
                barrier.wait();
                let recalled = turns.recall(round * 4 + 4);
                taken_back.extend((1..=4).map(|turn| recalled.has(round * 4 + turn)));
                barrier.wait();
            }
        });
        assert!(begun.iter().zip(&taken_back).all(|(begun, taken_back)| begun != taken_back));
    }
}
