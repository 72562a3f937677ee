// SPDX-License-Identifier: Apache-2.0
//! The demonstration's parts that need no node.

#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn independent_counts_take_bytes_as_they_are() {
    let path = std::env::temp_dir().join(format!("sinew-independent-{}", std::process::id()));
    // A word without ASCII, overlapping candidates, several needles in a line, no last line feed.
    std::fs::write(&path, b" \xe2\x80\x93 then\tthethe\x0b\xff tthe \n\nthe").unwrap();
    let counts = independent::count(&path, "the");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(counts.unwrap(), Counts { occurrences: 5, words: 6, lines: 2, bytes: 29 });
}

#[test]
fn counts_have_four_numbers() {
    let bytes = [1u64, 2, 3, 4].map(u64::to_le_bytes);
    let counts = Counts { occurrences: 1, words: 2, lines: 3, bytes: 4 };
    assert_eq!(Counts::decode(bytes.as_flattened()), Some(counts));
    assert_eq!(Counts::decode(&bytes.as_flattened()[1..]), None);
}
