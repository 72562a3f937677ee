// SPDX-License-Identifier: Apache-2.0
//! What faults say.
use super::*;

#[test]
fn texts_hold_no_addresses() {
    let text = "<object at 0x7ffff7a0b2c0> and 0x10 and 0xdeadbeef, 0x";
    assert_eq!(without_addresses(text), "<object at 0x…> and 0x10 and 0x…, 0x");
}
