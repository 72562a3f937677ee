// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn ranges() {
    let within = |text: &str, size| parse_range(text).unwrap().within(size).ok();
    assert_eq!(within("2..5", 10), Some(2..5));
    assert_eq!(within("2..", 10), Some(2..10));
    assert_eq!(within("..5", 10), Some(0..5));
    assert_eq!(within("..", 10), Some(0..10));
    assert_eq!(within("2..50", 10), Some(2..10));
    assert_eq!(within("10..", 10), Some(10..10));
    assert_eq!(within("11..", 10), None);
    for text in ["", "5", "5..2", "a..b", "-1..2", "1...2"] {
        assert!(parse_range(text).is_err(), "{text}");
    }
}
