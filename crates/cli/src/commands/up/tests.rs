// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn addresses() {
    assert_eq!(parse_listen("off"), Ok(Listen::Off));
    assert_eq!(parse_listen("127.0.0.1:0"), Ok(Listen::At("127.0.0.1:0".parse().unwrap())));
    assert_eq!(parse_listen("localhost:81"), Ok(Listen::At("127.0.0.1:81".parse().unwrap())));
    assert_eq!(parse_listen("[::1]:81"), Ok(Listen::At("[::1]:81".parse().unwrap())));
    for text in ["", "8080", "127.0.0.1", "example.org:80"] {
        assert!(parse_listen(text).is_err(), "{text}");
    }
}
