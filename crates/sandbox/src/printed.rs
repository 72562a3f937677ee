// SPDX-License-Identifier: Apache-2.0
//! What a call prints, with when each part of it came and by which stream.

use std::time::{Duration, Instant};

/// What comes by the same stream within this counts as one piece: whoever prints byte by byte fills no
/// table with it.
const TOGETHER: Duration = Duration::from_millis(1);
/// Pieces of one call; of one that has more, the rest counts as the last one's.
const PIECES_MAX: usize = 1 << 14;

/// A call that runs and has printed something.
#[derive(Debug, Clone)]
pub struct Printing {
    /// When its instance came to it.
    pub since: Instant,
    /// What it printed so far.
    pub printed: Printed,
}

/// What a call printed, in the order in which it came to the node. Most print nothing, so that it is
/// little to carry about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Printed(Option<Box<Parts>>);

/// Of what was printed, at least one byte.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Parts {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
}

/// A part of what was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Bytes of it.
    pub len: usize,
    /// When its first byte came.
    pub at: Instant,
    /// It was printed to standard error, and not to standard output.
    pub is_error: bool,
}

impl Printed {
    /// What comes next.
    pub fn add(&mut self, is_error: bool, bytes: &[u8], at: Instant) {
        if bytes.is_empty() {
            return;
        }
        let parts = self.0.get_or_insert_default();
        parts.bytes.extend_from_slice(bytes);
        let is_full = parts.pieces.len() >= PIECES_MAX;
        let goes_on = |last: &&mut Piece| {
            is_full || (last.is_error == is_error && at.saturating_duration_since(last.at) < TOGETHER)
        };
        match parts.pieces.last_mut().filter(goes_on) {
            Some(last) => last.len += bytes.len(),
            None => parts.pieces.push(Piece { len: bytes.len(), at, is_error }),
        }
    }

    /// What another one has, behind this.
    pub fn append(&mut self, other: &Self) {
        let mut rest = other.bytes();
        for piece in other.pieces() {
            let (bytes, after) = rest.split_at(piece.len.min(rest.len()));
            self.add(piece.is_error, bytes, piece.at);
            rest = after;
        }
    }

    /// Only the last bytes of it, so many at most.
    #[must_use]
    pub fn end(&self, most: usize) -> Self {
        let mut skipped = self.len().saturating_sub(most);
        let bytes = self.bytes()[skipped..].to_vec();
        let mut pieces = Vec::new();
        for piece in self.pieces() {
            let gone = skipped.min(piece.len);
            skipped -= gone;
            if gone < piece.len {
                pieces.push(Piece { len: piece.len - gone, ..*piece });
            }
        }
        Self((!bytes.is_empty()).then(|| Box::new(Parts { bytes, pieces })))
    }

    /// All of it, by whichever stream.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |parts| &parts.bytes)
    }

    fn pieces(&self) -> &[Piece] {
        self.0.as_ref().map_or(&[], |parts| &parts.pieces)
    }

    /// The same, and what it consists of: the lengths of the pieces are together its own.
    pub fn into_parts(self) -> (Vec<u8>, Vec<Piece>) {
        self.0.map_or_else(Default::default, |parts| (parts.bytes, parts.pieces))
    }

    /// Lines that have an end.
    pub fn lines(&self) -> usize {
        self.bytes().iter().filter(|byte| **byte == b'\n').count()
    }

    /// How many bytes it is.
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Nothing was printed.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(printed: &Printed) -> Vec<(usize, bool)> {
        printed.pieces().iter().map(|piece| (piece.len, piece.is_error)).collect()
    }

    #[test]
    fn what_comes_at_once_by_one_stream_is_one_piece() {
        let (mut printed, begin) = (Printed::default(), Instant::now());
        let after = |us| begin + Duration::from_micros(us);
        for (is_error, us) in [(false, 0), (false, 900), (true, 901), (false, 902), (false, 1902)] {
            printed.add(is_error, b"ab", after(us));
        }
        printed.add(true, b"", after(5000));
        assert_eq!(told(&printed), [(4, false), (2, true), (2, false), (2, false)]);
        assert_eq!(told(&printed.end(5)), [(1, true), (2, false), (2, false)]);
        assert_eq!(printed.end(99), printed);
        assert!(printed.end(0).is_empty());
    }

    #[test]
    fn there_are_never_more_pieces_than_are_allowed() {
        let (mut printed, begin) = (Printed::default(), Instant::now());
        for at in 0..PIECES_MAX + 10 {
            printed.add(at % 2 == 0, b"x", begin);
        }
        assert_eq!(printed.pieces().len(), PIECES_MAX);
        assert_eq!(printed.len(), PIECES_MAX + 10);
    }

    proptest! {
        #[test]
        fn pieces_are_together_all_that_was_printed(
            parts in prop::collection::vec((any::<bool>(), 0..9_usize, 0..3_u64), 0..40),
            most in 0..200_usize,
        ) {
            let (mut printed, mut at) = (Printed::default(), Instant::now());
            for &(is_error, len, ms) in &parts {
                at += Duration::from_millis(ms);
                printed.add(is_error, &vec![u8::from(is_error); len], at);
            }
            let end = printed.end(most);
            prop_assert_eq!(end.len(), printed.len().min(most));
            let mut twice = printed.clone();
            twice.append(&end);
            prop_assert_eq!(twice.len(), printed.len() + end.len());
            for each in [printed, end, twice] {
                let of = |piece: &Piece| vec![u8::from(piece.is_error); piece.len];
                prop_assert_eq!(each.pieces().iter().flat_map(of).collect::<Vec<u8>>(), each.bytes());
                prop_assert_eq!(each.is_empty(), each.bytes().is_empty());
            }
        }
    }
}
