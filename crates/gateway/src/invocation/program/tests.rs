// SPDX-License-Identifier: Apache-2.0
//! What an answer is by its looks.

use super::*;

#[test]
fn kinds_are_told_from_bodies() {
    for (body, kind) in [
        (&b"{\"a\": [1]}\n"[..], "application/json"),
        (b" [1, 2]", "application/json"),
        (b"{no json}", "text/plain; charset=utf-8"),
        (b"7", "text/plain; charset=utf-8"),
        (b"", "text/plain; charset=utf-8"),
        ("Grüße".as_bytes(), "text/plain; charset=utf-8"),
        (&[b'[', 0xff], "application/octet-stream"),
        (&[b'a'; LOOKED_AT_BYTES_MAX + 1], "application/octet-stream"),
    ] {
        assert_eq!(kind_of(body), kind, "{}", String::from_utf8_lossy(&body[..body.len().min(40)]));
    }
    assert_eq!((end_of(b"abc", 2), end_of(b"abc", 9)), (&b"bc"[..], &b"abc"[..]));
}
