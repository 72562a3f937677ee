// SPDX-License-Identifier: Apache-2.0
//! A receipt, as somebody may send it. Nothing may panic; what is one has these bytes
//! and no others, and its sums are those of its records.

use objects::{Receipt, STATEMENT_LEN, STEP_LEN, Sums};

/// One input.
pub fn run(bytes: &[u8]) {
    let Ok(receipt) = Receipt::from_bytes(bytes) else { return };
    assert_eq!(receipt.to_bytes(), bytes, "a receipt has one form");
    let sums = Sums::of(&receipt.steps);
    assert_eq!((sums.whole, sums.now), (receipt.statement.whole, receipt.statement.now));
    assert!(sums.ran <= sums.applications && sums.now.fuel <= sums.whole.fuel);
    assert!(Receipt::from_bytes(&bytes[..bytes.len() - 1]).is_err(), "part of one is none");
    assert!(Receipt::from_bytes(&[bytes, &[0; STEP_LEN]].concat()).is_err(), "one and something is none");
    // Who changes a record changes what is signed.
    if let Some(byte) = bytes.get(STATEMENT_LEN + 64 + 100) {
        let mut changed = bytes.to_vec();
        changed[STATEMENT_LEN + 64 + 100] = !byte;
        assert!(Receipt::from_bytes(&changed).is_err());
    }
}
