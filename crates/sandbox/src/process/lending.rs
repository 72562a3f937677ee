// SPDX-License-Identifier: Apache-2.0
//! Whether a call is lent memory to put its result in.
//!
//! To lend it, to make things in it and to take it back takes as long as a small value takes to be sent
//! (decision 0093). So an instance whose results have all been small for a while is lent none, until one is
//! not: that one is sent, however long it is, and those after it find memory again.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use super::instance::Made;

/// After so many small results in a row nothing is lent.
const SMALL_IN_A_ROW: u32 = 16;
/// A result that was sent and is no longer than this is small.
const SMALL_BYTES: usize = 16 << 10;

/// Who is lent memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Lent {
    /// What puts its results nowhere.
    Never,
    /// What sends its results if it has none.
    WhereUsed,
    /// What cannot do without.
    Always,
}

/// Of one instance after the other in a seat.
#[derive(Debug)]
pub(super) struct Lending {
    lent: AtomicU8,
    small_in_a_row: AtomicU32,
}

impl Lending {
    pub(super) fn new() -> Self {
        Self { lent: AtomicU8::new(Lent::Never as u8), small_in_a_row: AtomicU32::new(0) }
    }

    /// What the function is.
    pub(super) fn is_for(&self, lent: Lent) {
        self.lent.store(lent as u8, Ordering::Relaxed);
    }

    /// Whether the next call is lent memory.
    pub(super) fn lends(&self) -> bool {
        match self.lent.load(Ordering::Relaxed) {
            lent if lent == Lent::Always as u8 => true,
            lent if lent == Lent::WhereUsed as u8 => {
                self.small_in_a_row.load(Ordering::Relaxed) < SMALL_IN_A_ROW
            }
            _ => false,
        }
    }

    /// What a call made.
    pub(super) fn made(&self, made: &Made) {
        let is_small = matches!(made, Made::Bytes(bytes) if bytes.len() <= SMALL_BYTES);
        let before = self.small_in_a_row.load(Ordering::Relaxed);
        let small = if is_small { before.saturating_add(1) } else { 0 };
        self.small_in_a_row.store(small, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Made {
        Made::Bytes(vec![0; len])
    }

    #[test]
    fn who_makes_small_things_is_lent_nothing_until_one_is_large() {
        let lending = Lending::new();
        assert!(!lending.lends());
        lending.is_for(Lent::WhereUsed);
        for _ in 0..SMALL_IN_A_ROW {
            assert!(lending.lends());
            lending.made(&bytes(SMALL_BYTES));
        }
        assert!(!lending.lends());
        lending.made(&bytes(SMALL_BYTES + 1));
        assert!(lending.lends());
        lending.made(&bytes(0));
        assert!(lending.lends(), "it has to be so for a while again");
    }

    #[test]
    fn what_cannot_do_without_is_lent_memory_whatever_it_made() {
        let lending = Lending::new();
        lending.is_for(Lent::Always);
        for _ in 0..2 * SMALL_IN_A_ROW {
            lending.made(&bytes(1));
        }
        assert!(lending.lends());
    }
}
