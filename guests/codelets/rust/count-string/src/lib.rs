// SPDX-License-Identifier: Apache-2.0
//! `count-string(needle, text)`: a blob of four little-endian 64-bit numbers:
//! how often the needle occurs, words, lines, bytes.
//!
//! Occurrences do not overlap and are taken from the left, as `grep -o` does.
//! A word is a longest run of bytes other than white space (space, `\t`, `\n`,
//! `\v`, `\f`, `\r`). A line is a line feed, as for `wc -l`. An empty needle
//! never occurs; one of over 1,024 bytes fails the call.
//!
//! The needle comes first so that it can be curried. Counts of parts of a text
//! add up exactly if the text was cut behind line feeds and the needle holds none.
#![cfg_attr(target_arch = "wasm32", no_std)]

use sinew_guest::{Call, Handle, Reader, blob, codelet, fail, with_piece};

use counter::{Counter, Counts, NEEDLE_LEN_MAX};

mod counter;
mod vector;

fn count_string(call: Call) -> Handle {
    let [needle, text] = call.arguments();
    if needle.size() > NEEDLE_LEN_MAX as u64 {
        fail("a needle of over 1024 bytes");
    }
    let mut buffer = [0; NEEDLE_LEN_MAX];
    let len = needle.read(0, &mut buffer);
    let counter = Counter::new(buffer.get(..len).unwrap_or_default());
    let counts = with_piece(|window| count(counter, Reader::new(text), window));
    blob(counts.encoded().as_flattened())
}

fn count(mut counter: Counter<'_>, mut text: Reader, window: &mut [u8]) -> Counts {
    let mut kept = 0;
    loop {
        // The counter keeps less than the window holds, so there is room.
        let filled = kept + text.read(window.get_mut(kept..).unwrap_or_default());
        let is_last = text.remaining() == 0;
        kept = counter.feed(window.get_mut(..filled).unwrap_or_default(), is_last);
        if is_last {
            return counter.counts();
        }
    }
}

codelet!(count_string);
