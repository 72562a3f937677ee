// SPDX-License-Identifier: Apache-2.0
//! Windows of all sizes against counting naively in the whole text.

use super::*;

fn naive(text: &[u8], needle: &[u8]) -> Counts {
    let words = text.split(|byte| b" \t\n\x0b\x0c\r".contains(byte)).filter(|word| !word.is_empty()).count();
    let lines = text.iter().filter(|&&byte| byte == b'\n').count();
    let mut occurrences = 0;
    let mut rest = text;
    while !needle.is_empty() && rest.len() >= needle.len() {
        let is_match = rest.starts_with(needle);
        occurrences += u64::from(is_match);
        rest = &rest[if is_match { needle.len() } else { 1 }..];
    }
    Counts { occurrences, words: words as u64, lines: lines as u64, bytes: text.len() as u64 }
}

/// Feeds the text through a window of `room` bytes, as the codelet does.
fn windowed(text: &[u8], needle: &[u8], room: usize) -> Counts {
    let mut counter = Counter::new(needle);
    let mut window = vec![0; room];
    let (mut kept, mut read) = (0, 0);
    loop {
        let count = (room - kept).min(text.len() - read);
        window[kept..kept + count].copy_from_slice(&text[read..read + count]);
        read += count;
        let is_last = read == text.len();
        kept = counter.feed(&mut window[..kept + count], is_last);
        assert!(kept < needle.len() + LANES || is_last);
        if is_last {
            return counter.counts();
        }
    }
}

/// A fixed sequence (xorshift), so that a failure can be repeated.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

#[test]
fn any_window_gives_the_naive_counts() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for _ in 0..3000 {
        // A tiny alphabet makes overlaps and borders frequent.
        let alphabet: &[u8] = [&b"ab \n"[..], b"a", b"the \xc3\r\x0b\0\x08\x0e"][numbers.below(3)];
        let mut draw = |len: usize| -> Vec<u8> {
            (0..numbers.below(len)).map(|_| alphabet[numbers.below(alphabet.len())]).collect()
        };
        let text = draw(700);
        let needle = draw(9);
        let room = needle.len() + LANES + numbers.below(300);
        let expected = naive(&text, &needle);
        assert_eq!(windowed(&text, &needle, room), expected, "{needle:?} in {text:?} by {room}");
    }
}

#[test]
fn lanes_do_not_overflow() {
    let text = b"a\n".repeat(40_000);
    for needle in [&b"a"[..], b"a\n", b"\na\na", b"a\na\na\na\n"] {
        assert_eq!(windowed(&text, needle, 32 << 10), naive(&text, needle));
        assert_eq!(windowed(&text, needle, text.len()), naive(&text, needle));
    }
}

#[test]
fn nothing_occurs_in_nothing() {
    assert_eq!(windowed(b"", b"the", 64), Counts::default());
    assert_eq!(windowed(b"a b", b"", 64), Counts { occurrences: 0, words: 2, lines: 0, bytes: 3 });
    assert_eq!(windowed(b"ab", b"abc", 64).occurrences, 0);
}

#[test]
fn the_longest_needle_leaves_room() {
    let needle = vec![b'x'; NEEDLE_LEN_MAX];
    let text = vec![b'x'; 100 * NEEDLE_LEN_MAX + 5];
    assert_eq!(windowed(&text, &needle, NEEDLE_LEN_MAX + LANES).occurrences, 100);
}
