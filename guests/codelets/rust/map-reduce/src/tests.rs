// SPDX-License-Identifier: Apache-2.0
//! How lists are split.

use super::*;

#[test]
fn at_most_16_parts_cover_the_list() {
    for size in 1..=100_000 {
        let part = part_size(size);
        assert!(size.div_ceil(part) <= PARTS_MAX as u64, "{size} in parts of {part}");
        assert!(
            part == 1 || size.div_ceil(part / 16) > PARTS_MAX as u64,
            "{size} could do with fewer levels"
        );
    }
}

#[test]
fn parts_stay_the_same_when_items_are_appended() {
    assert_eq!((part_size(16), part_size(17), part_size(256), part_size(257)), (1, 16, 16, 256));
}
