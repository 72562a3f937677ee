// SPDX-License-Identifier: Apache-2.0
use super::{Wanted, none_match_names, wanted};

#[test]
fn headers_of_all_shapes() {
    use Wanted::{Part, Unsatisfiable, Whole};
    let cases = [
        ("bytes=0-0", 10, Part(0..1)),
        ("bytes=0-", 10, Part(0..10)),
        ("bytes=3-7", 10, Part(3..8)),
        ("bytes = 3 - 7 ", 10, Part(3..8)),
        ("BYTES=9-99", 10, Part(9..10)),
        ("bytes=-3", 10, Part(7..10)),
        ("bytes=-99", 10, Part(0..10)),
        ("bytes=-99999999999999999999999", 10, Part(0..10)),
        ("bytes=0-99999999999999999999999", 10, Part(0..10)),
        ("bytes=-0", 10, Unsatisfiable),
        ("bytes=10-", 10, Unsatisfiable),
        ("bytes=0-", 0, Unsatisfiable),
        ("bytes=-1", 0, Unsatisfiable),
        ("bytes=18446744073709551615-", u64::MAX, Unsatisfiable),
        ("bytes=7-3", 10, Whole),
        ("bytes=", 10, Whole),
        ("bytes=-", 10, Whole),
        ("bytes=a-b", 10, Whole),
        ("bytes=+1-2", 10, Whole),
        ("bytes=0-1,3-4", 10, Whole),
        ("lines=0-1", 10, Whole),
        ("", 10, Whole),
    ];
    for (header, len, expected) in cases {
        assert_eq!(wanted(header, len), expected, "{header:?} of {len}");
    }
}

#[test]
fn entity_tags_are_found_in_lists() {
    assert!(none_match_names("\"a\", W/\"b\"", "\"b\""));
    assert!(none_match_names("*", "\"b\""));
    assert!(!none_match_names("\"bb\"", "\"b\""));
    assert!(!none_match_names("", "\"b\""));
}
