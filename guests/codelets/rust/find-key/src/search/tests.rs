// SPDX-License-Identifier: Apache-2.0
//! Every place in lists of every short length.

use super::*;

#[test]
fn each_key_and_each_gap_is_found() {
    for count in 0..70_u32 {
        // The keys are 1, 3, 5, …
        for wanted in 0..2 * count + 2 {
            let mut looks = 0;
            let found = last_up_to(count, |index| {
                looks += 1;
                (2 * index + 1).cmp(&wanted)
            });
            let below = wanted.div_ceil(2).min(count);
            let is_equal = wanted % 2 == 1 && wanted < 2 * count;
            let expected = if is_equal { Some((wanted - 1) / 2) } else { below.checked_sub(1) };
            assert_eq!(found, expected.map(|index| Place { index, is_equal }), "{wanted} of {count}");
            assert!(looks <= 32 - count.leading_zeros(), "{looks} looks among {count}");
        }
    }
}
