// SPDX-License-Identifier: Apache-2.0
//! Names at the edges of lines and pieces.

use super::*;

const INFO: &[u8] = b"f a\nd etc\nf etc2\nd \nf b c\n";

fn find(name: &str, piece_len: usize) -> Option<(u64, bool)> {
    let mut lookup = Lookup::new(name.as_bytes());
    let found = INFO.chunks(piece_len).find_map(|piece| lookup.feed(piece));
    found.map(|found| (found.line, found.is_directory))
}

#[test]
fn names_are_found_whole_and_across_pieces() {
    for piece_len in 1..=INFO.len() {
        assert_eq!(find("a", piece_len), Some((0, false)));
        assert_eq!(find("etc", piece_len), Some((1, true)));
        assert_eq!(find("etc2", piece_len), Some((2, false)));
        assert_eq!(find("b c", piece_len), Some((4, false)));
        for absent in ["et", "tc", "f a", "x", "b"] {
            assert_eq!(find(absent, piece_len), None, "{absent}");
        }
    }
}

#[test]
fn slashes_separate_and_nothing_else() {
    let parts = |path: &'static str| {
        let (name, rest) = first_component(path.as_bytes());
        (std::str::from_utf8(name).unwrap(), std::str::from_utf8(rest).unwrap())
    };
    assert_eq!(parts("a"), ("a", ""));
    assert_eq!(parts("/a//b/c"), ("a", "b/c"));
    assert_eq!(parts("a/"), ("a", ""));
    assert_eq!(parts("//"), ("", ""));
}
