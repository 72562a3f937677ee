// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn tables_are_aligned_and_have_no_trailing_blanks() {
    let rows = [vec!["1".to_owned(), "a".to_owned()], vec!["22".to_owned(), "käse".to_owned()]];
    let text = table(&["N", "NAME"], &[0], &rows);
    assert_eq!(text, " N  NAME\n 1  a\n22  käse\n");
}

#[test]
fn what_a_terminal_shows_as_it_is() {
    assert_eq!(printable("grün\n\tx\r\n".as_bytes()), Some("grün\n\tx\r\n"));
    assert_eq!(printable(b""), Some(""));
    for bytes in [&b"\x1b[31m"[..], b"\0", b"\n", b" \t", b"\x07", b"\xff", "\u{85}".as_bytes()] {
        assert_eq!(printable(bytes), None, "{bytes:?}");
    }
}

#[test]
fn hexadecimal_both_ways() {
    assert_eq!(hex(&[0, 0xff]), "0x00ff");
    assert_eq!(from_hex("00fF"), Some(vec![0, 255]));
    assert_eq!(from_hex(""), Some(Vec::new()));
    assert_eq!(from_hex("0"), None);
    assert_eq!(from_hex("0g"), None);
}

#[test]
fn rows_of_a_listing() {
    let entry = Handle::u64(7);
    assert_eq!(entry_row(3, entry), ["3", "blob", "8", &entry.to_string()]);
}
