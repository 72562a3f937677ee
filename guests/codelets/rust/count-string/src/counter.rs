// SPDX-License-Identifier: Apache-2.0
//! Counting in a text that comes in windows.
//!
//! A position is *done* when it was counted as a byte, a line feed, the start
//! of a word, and the start of an occurrence. The last needs all bytes of a
//! possible occurrence, so the end of a window is kept and comes again at the
//! front of the next; whole vectors are done but for the last window's rest.
//!
//! ```text
//!  window:  |<- kept before ->|<------- new ------->|
//!           |<------ done, whole vectors ----->|kept|
//! ```

use crate::vector::{Bytes, LANES};

/// The longest needle in bytes. What is kept of a window is little longer,
/// and must leave room for new bytes.
pub(crate) const NEEDLE_LEN_MAX: usize = 1024;
/// Vectors after which a lane that counted each of them is full.
const LANE_MAX: usize = 255;

/// What was counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) occurrences: u64,
    pub(crate) words: u64,
    pub(crate) lines: u64,
    pub(crate) bytes: u64,
}

impl Counts {
    /// In the order of the result.
    pub(crate) fn encoded(&self) -> [[u8; 8]; 4] {
        [self.occurrences, self.words, self.lines, self.bytes].map(u64::to_le_bytes)
    }
}

/// Counts so far, and what must be known of the text before a window.
pub(crate) struct Counter<'n> {
    needle: &'n [u8],
    /// Two occurrences of it cannot overlap.
    is_borderless: bool,
    counts: Counts,
    /// The byte before the window was white space, or there was none.
    is_after_space: bool,
    /// Where, in the window, the next occurrence may start.
    free_from: usize,
}

impl<'n> Counter<'n> {
    pub(crate) fn new(needle: &'n [u8]) -> Self {
        let is_border = |len| needle.get(..len) == needle.get(needle.len() - len..);
        let is_borderless = !(1..needle.len()).any(is_border);
        Self { needle, is_borderless, counts: Counts::default(), is_after_space: true, free_from: 0 }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Counts in the next window, moves what is not done to its front, and
    /// returns how many bytes that is: below needle length + 16.
    pub(crate) fn feed(&mut self, window: &mut [u8], is_last: bool) -> usize {
        // Starts at which an occurrence fits, and at least the last byte for
        // an empty needle, which has none.
        let tail = self.needle.len().saturating_sub(1);
        let starts = window.len().saturating_sub(tail);
        let vectors = starts / LANES * LANES;
        self.count_vectors(window, vectors);
        let done = if is_last {
            self.count_rest(window, vectors);
            window.len()
        } else {
            vectors
        };
        self.counts.bytes += done as u64;
        self.free_from = self.free_from.saturating_sub(done);
        move_to_front(window, done)
    }

    fn count_vectors(&mut self, window: &[u8], end: usize) {
        match *self.needle {
            [a] => self.count_short::<1, 16>(window, end, [a]),
            [a, b] if self.is_borderless => self.count_short::<2, 17>(window, end, [a, b]),
            [a, b, c] if self.is_borderless => self.count_short::<3, 18>(window, end, [a, b, c]),
            [a, b, c, d] if self.is_borderless => self.count_short::<4, 19>(window, end, [a, b, c, d]),
            _ => self.count_candidates(window, end),
        }
    }

    /// Short needles that cannot overlap themselves: all of their `N` bytes
    /// are compared at all positions, and nothing branches on the text. A
    /// vector of positions needs `SPAN` bytes of text.
    fn count_short<const N: usize, const SPAN: usize>(&mut self, window: &[u8], end: usize, needle: [u8; N]) {
        const { assert!(SPAN == LANES + N - 1) };
        let needle = needle.map(Bytes::splat);
        let mut tally = Tally::new(self.is_after_space);
        let mut rest = window;
        for begin in (0..end).step_by(LANE_MAX * LANES) {
            let mut occurrences = Bytes::splat(0);
            for _ in 0..LANE_MAX.min((end - begin) / LANES) {
                let Some(span) = rest.first_chunk::<SPAN>() else { break };
                let texts = offsets::<N, SPAN>(span);
                let mut is_match = Bytes::splat(0xff);
                for (text, wanted) in texts.iter().zip(needle) {
                    is_match = is_match.and(text.equals(wanted));
                }
                occurrences = occurrences.minus(is_match);
                tally.add(texts[0]);
                rest = rest.get(LANES..).unwrap_or_default();
            }
            self.counts.occurrences += occurrences.sum();
            tally.flush(&mut self.counts);
        }
        self.is_after_space = tally.ends_in_space();
    }

    /// Other needles: where the first and the last byte fit, the rest is compared.
    fn count_candidates(&mut self, window: &[u8], end: usize) {
        let (first, last) = match *self.needle {
            [first, .., last] => (Bytes::splat(first), Bytes::splat(last)),
            _ => (Bytes::splat(0), Bytes::splat(0)),
        };
        let mut tally = Tally::new(self.is_after_space);
        let lasts = blocks_at(window, self.needle.len().saturating_sub(1), end);
        for (index, (block, block_of_last)) in blocks_at(window, 0, end).iter().zip(lasts).enumerate() {
            if index % LANE_MAX == 0 {
                tally.flush(&mut self.counts);
            }
            let bytes = Bytes::load(block);
            tally.add(bytes);
            let candidates = bytes.equals(first).and(Bytes::load(block_of_last).equals(last));
            if candidates.any() {
                self.confirm(window, index * LANES, candidates.bits());
            }
        }
        tally.flush(&mut self.counts);
        self.is_after_space = tally.ends_in_space();
    }

    /// Compares at the candidates: bit `i` stands for position `start + i`.
    fn confirm(&mut self, window: &[u8], start: usize, mut candidates: u32) {
        while candidates != 0 {
            let position = start + candidates.trailing_zeros() as usize;
            candidates &= candidates - 1;
            self.try_at(window, position);
        }
    }

    fn try_at(&mut self, window: &[u8], position: usize) {
        let is_match = window.get(position..).is_some_and(|text| text.starts_with(self.needle));
        if position >= self.free_from && is_match && !self.needle.is_empty() {
            self.counts.occurrences += 1;
            self.free_from = position + self.needle.len();
        }
    }

    /// The positions from `start` to the text's end, one by one.
    fn count_rest(&mut self, window: &[u8], start: usize) {
        for (position, &byte) in window.iter().enumerate().skip(start) {
            let is_space = matches!(byte, b' ' | b'\t'..=b'\r');
            self.counts.words += u64::from(self.is_after_space && !is_space);
            self.counts.lines += u64::from(byte == b'\n');
            self.is_after_space = is_space;
            self.try_at(window, position);
        }
    }
}

/// Words and lines of up to [`LANE_MAX`] vectors, lane by lane.
struct Tally {
    words: Bytes,
    lines: Bytes,
    /// Which bytes of the vector before are white space.
    spaces: Bytes,
}

impl Tally {
    fn new(is_after_space: bool) -> Self {
        let spaces = Bytes::splat(if is_after_space { 0xff } else { 0 });
        Self { words: Bytes::splat(0), lines: Bytes::splat(0), spaces }
    }

    #[inline(always)]
    fn add(&mut self, bytes: Bytes) {
        let controls = bytes.minus(Bytes::splat(b'\t')).is_below(Bytes::splat(5));
        let spaces = controls.or(bytes.equals(Bytes::splat(b' ')));
        let starts = spaces.shifted_in(self.spaces).and_not(spaces);
        // A lane where it holds is 0xff, that is, minus one.
        self.words = self.words.minus(starts);
        self.lines = self.lines.minus(bytes.equals(Bytes::splat(b'\n')));
        self.spaces = spaces;
    }

    fn flush(&mut self, counts: &mut Counts) {
        counts.words += self.words.sum();
        counts.lines += self.lines.sum();
        self.words = Bytes::splat(0);
        self.lines = Bytes::splat(0);
    }

    fn ends_in_space(&self) -> bool {
        self.spaces.bits() >> (LANES - 1) != 0
    }
}

/// Moves `window[done..]` to the front and returns its length. It is short.
fn move_to_front(window: &mut [u8], done: usize) -> usize {
    let kept = window.len().saturating_sub(done);
    for position in 0..kept {
        if let Some(&byte) = window.get(done + position)
            && let Some(target) = window.get_mut(position)
        {
            *target = byte;
        }
    }
    kept
}

/// The vectors that begin at each of the first `N` bytes.
#[inline(always)]
fn offsets<const N: usize, const SPAN: usize>(span: &[u8; SPAN]) -> [Bytes; N] {
    let mut rest = &span[..];
    core::array::from_fn(|_| {
        let bytes = rest.first_chunk().map_or(Bytes::splat(0), Bytes::load);
        rest = rest.get(1..).unwrap_or_default();
        bytes
    })
}

/// The vectors that begin at `offset`, `offset + 16`, …, below `offset + end`.
fn blocks_at(window: &[u8], offset: usize, end: usize) -> &[[u8; LANES]] {
    window.get(offset..offset + end).unwrap_or_default().as_chunks().0
}

#[cfg(test)]
mod tests;
