// SPDX-License-Identifier: Apache-2.0
//! What becomes of the pieces of a result.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use parking_lot::Mutex;

use super::*;

const HEAD: &[u8] = b"\x02\0\0\x80{}";

/// Writes down what it hears.
struct Ear(Arc<Mutex<Vec<u8>>>);

impl Listener for Ear {
    fn hears(&mut self, piece: &[u8]) {
        self.0.lock().extend_from_slice(piece);
    }

    fn has_all(&mut self) {
        self.0.lock().extend_from_slice(b", and that is all");
    }
}

fn whole(most: u64) -> Kept {
    Kept::Whole { bytes: Vec::new(), most }
}

fn end(kept: Kept) -> Result<Result<Vec<u8>, Fault>, Broken> {
    Streamed { window: 0, is_whole: false, kept }.end(b"")
}

#[test]
fn a_head_ends_where_it_says_and_in_the_first_piece() {
    assert_eq!(head_end(b"\x02\0\0\x80{}body"), Some(6));
    assert_eq!(head_end(b"\x02\0\0\xc0{}"), Some(6), "both bits are no part of the length");
    assert_eq!(head_end(b"\0\0\0\0"), Some(4));
    for half in [&b"\x02\0\0"[..], b"\x03\0\0\0{}", b"\xff\xff\xff\xff{}", b""] {
        assert_eq!(head_end(half), None, "{half:?}");
    }
}

#[test]
fn what_nobody_hears_is_put_together() {
    let mut kept = whole(9);
    for piece in [HEAD, b"a", b"bc"] {
        kept.add(piece).unwrap();
    }
    assert_eq!(end(kept).unwrap().unwrap(), [HEAD, b"abc"].concat());
}

#[test]
fn an_empty_piece_is_the_last_one() {
    let ear = Arc::default();
    let heard = Kept::Heard(Box::new(Heard::new(Box::new(Ear(Arc::clone(&ear))), HEAD)));
    for kept in [whole(9), Kept::TooLong { len: 5, most: 3 }, heard] {
        let mut streamed = Streamed { window: 9, is_whole: false, kept };
        streamed.add(b"abc").unwrap();
        streamed.add(b"").unwrap();
        for more in [&b"d"[..], b""] {
            assert!(matches!(streamed.add(more), Err(Broken::Lie(_))), "{more:?}");
        }
        assert!(streamed.end(b"").is_ok());
    }
    assert_eq!(*ear.lock(), b"abc, and that is all");
}

#[test]
fn what_is_too_long_to_be_kept_is_not_and_says_so() {
    let mut kept = whole(3);
    kept.add(b"abcd").unwrap();
    kept.add(b"e").unwrap();
    assert!(matches!(kept, Kept::TooLong { len: 5, .. }));
    let fault = end(kept).unwrap().unwrap_err();
    assert_eq!(fault.code, FailureCode::BadResult);
    assert!(fault.detail.contains("more than 3 bytes"), "{}", fault.detail);
}

#[test]
fn of_what_is_heard_head_and_name_are_left() {
    // A short blob is in its handle, a longer one is named by its digest.
    for len in [0, 1, 29, 30, 31, 60, 100, 5000] {
        let ear = Arc::default();
        let mut heard = Heard::new(Box::new(Ear(Arc::clone(&ear))), HEAD);
        let body: Vec<u8> = (0..len).map(|at| at as u8).collect();
        body.chunks(29).for_each(|piece| heard.add(piece).unwrap());
        let result = end(Kept::Heard(Box::new(heard))).unwrap().unwrap();
        assert_eq!(*ear.lock(), body);
        assert_eq!(&result[..HEAD.len()], b"\x02\0\0\xc0{}");
        assert_eq!(&result[HEAD.len()..], Handle::blob(&body).as_bytes(), "{len} bytes");
    }
}

#[test]
fn more_than_anybody_may_send_is_a_lie() {
    let over = STREAM_MAX + PIECE_MAX as u64;
    let mut heard = Heard::new(Box::new(Ear(Arc::default())), HEAD);
    heard.len = over;
    for mut kept in [Kept::TooLong { len: over, most: 1 }, Kept::Heard(Box::new(heard))] {
        assert!(matches!(kept.add(b"x"), Err(Broken::Lie(_))));
    }
    assert!(matches!(Streamed { window: 0, is_whole: false, kept: whole(9) }.end(b"x"), Err(Broken::Lie(_))));
}
