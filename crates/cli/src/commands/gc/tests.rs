// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn rates_and_least_sizes() {
    assert_eq!(parse_rate("100us"), Ok(100_000));
    assert_eq!(parse_rate("7ns"), Ok(7));
    assert_eq!((parse_rate("2ms"), parse_rate("1s")), (Ok(2_000_000), Ok(1_000_000_000)));
    for wrong in ["", "us", "5", "5m", "-1us", "99999999999999999999s", "20000000000s", "1 us"] {
        assert!(parse_rate(wrong).is_err(), "{wrong}");
    }
    assert_eq!(parse_least(""), Ok(Least(None)));
    assert_eq!(parse_least("1MiB"), Ok(Least(Some(1 << 20))));
    assert!(parse_least("many").is_err());
}
