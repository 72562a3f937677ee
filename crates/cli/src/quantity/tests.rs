// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn sizes() {
    for (text, expected) in [
        ("0", 0),
        ("4096", 4096),
        ("64KiB", 65536),
        ("64kib", 65536),
        ("2G", 2 << 30),
        ("1 MiB", 1 << 20),
        ("7B", 7),
    ] {
        assert_eq!(parse_bytes(text).unwrap(), expected, "{text}");
    }
    for text in ["", "x", "1MB", "-1", "1.5GiB", "99999999999GiB", "1KiBs", "i"] {
        assert!(parse_bytes(text).is_err(), "{text}");
    }
}

#[test]
fn exact_sizes_read_back() {
    for size in [0, 1, 1023, 1024, 1536, 64 << 20, (1 << 40) + (1 << 30), u64::MAX, 1 << 63] {
        assert_eq!(parse_bytes(&exact(size)).unwrap(), size);
    }
    assert_eq!(exact(64 << 20), "64MiB");
}

#[test]
fn times() {
    for (text, ms) in
        [("500ms", 500), ("10s", 10_000), ("2", 2000), ("1.5s", 1500), ("2m", 120_000), ("1h", 3_600_000)]
    {
        assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(ms), "{text}");
    }
    for text in ["", "s", "-1s", "1d", "nan", "1e99h"] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
    assert_eq!(human_time(Duration::from_nanos(999)), "999 ns");
    assert_eq!(human_time(Duration::from_nanos(1_234)), "1.23 µs");
    assert_eq!(human_time(Duration::from_micros(12_345)), "12.3 ms");
    assert_eq!(human_time(Duration::from_secs(123)), "123 s");
}

#[test]
fn for_people() {
    assert_eq!(human_bytes(17), "17 B");
    assert_eq!(human_bytes(1536), "1.5 KiB");
    assert_eq!(
        (grouped(0), grouped(999), grouped(1_234_567)),
        ("0".into(), "999".into(), "1,234,567".into())
    );
}
