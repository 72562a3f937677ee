// SPDX-License-Identifier: Apache-2.0
//! Receipts: what is written comes back, and nothing else is one.

#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::tests::vectors::{bytes, list};

/// A receipt of so many applications, every second of which ran now.
fn receipt(count: u64) -> Receipt {
    let application = |number: u64| {
        let entries = [Handle::literal(b"").unwrap(), Handle::blob(&[7; 40]), Handle::u64(number)];
        let tree = Handle::tree(&entries.map(|entry| *entry.as_bytes()).concat()).unwrap();
        tree.application().unwrap()
    };
    let step = |number: u64| ReceiptStep {
        application: application(number),
        result: Handle::u64(number * number),
        inputs_bytes: 40 + number,
        reserved_bytes: 64 << 20,
        fuel: if number.is_multiple_of(3) { 0 } else { 1000 + number },
        ran_now: number.is_multiple_of(2),
        is_counted: !number.is_multiple_of(3),
    };
    let mut steps: Vec<ReceiptStep> = (0..count).map(step).collect();
    steps.sort_by_key(|step| *step.application.as_bytes());
    let Sums { applications, ran, whole, now } = Sums::of(&steps);
    let statement = Statement {
        goal: application(0).strict().unwrap(),
        result: Handle::blob(b"the result of all of it, which is long"),
        node: [9; 32],
        steps_hash: steps_hash(&steps),
        issued_ms: 1_795_000_000_000,
        is_fresh: true,
        applications,
        ran,
        whole,
        now,
        uncounted_nanos: 12_345,
        by_ms: 60_000,
        price: Price { amount: Some(42_000_000), factor_ppm: 950_000, currency: "EUR".to_owned() },
    };
    Receipt { statement, signature: [5; SIGNATURE_LEN], steps }
}

#[test]
fn what_is_written_comes_back_and_sums_are_what_they_should_be() {
    for count in [0, 1, 7] {
        let receipt = receipt(count);
        let bytes = receipt.to_bytes();
        assert_eq!(bytes.len(), STATEMENT_LEN + SIGNATURE_LEN + count as usize * STEP_LEN);
        assert_eq!(Receipt::from_bytes(&bytes), Ok(receipt));
    }
    let statement = receipt(7).statement;
    assert_eq!((statement.applications, statement.ran), (7, 4));
    assert_eq!(statement.whole.inputs_bytes, 7 * 40 + 21);
    assert_eq!(statement.whole.fuel, 4000 + 1 + 2 + 4 + 5);
    assert_eq!((statement.whole.uncounted, statement.now.uncounted), (3, 2));
    assert_eq!(statement.now.reserved_bytes, 4 * (64 << 20));
}

/// The bytes of the statement are fixed: these are those of the specification.
#[test]
fn the_statement_has_its_bytes() {
    let bytes = receipt(2).statement.to_bytes();
    assert_eq!(bytes[..16], RECEIPT_MAGIC);
    assert_eq!(bytes[80..112], [9; 32], "the node");
    assert_eq!(bytes[144..152], 1_795_000_000_000_u64.to_le_bytes(), "when");
    assert_eq!(bytes[152..160], 1_u64.to_le_bytes(), "flags");
    assert_eq!(bytes[160..168], 2_u64.to_le_bytes(), "applications");
    assert_eq!(bytes[168..176], 1_u64.to_le_bytes(), "that ran");
    assert_eq!(bytes[176..184], 81_u64.to_le_bytes(), "inputs of all");
    assert_eq!(bytes[240..248], 12_345_u64.to_le_bytes(), "time");
    assert_eq!(bytes[256..264], 42_000_000_u64.to_le_bytes(), "the price");
    assert_eq!(&bytes[272..], b"EUR\0\0\0\0\0\0\0\0\0\0\0\0\0");
}

/// The vectors were made by another implementation of the specification.
#[test]
fn receipts_agree_with_the_vectors() {
    let text = include_str!("../../../../docs/spec/vectors/receipts.json");
    let vectors: serde_json::Value = serde_json::from_str(text).unwrap();
    for vector in list(&vectors["valid"]) {
        let name = &vector["name"];
        let receipt =
            Receipt::from_bytes(&bytes(&vector["receipt"])).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(receipt.to_bytes(), bytes(&vector["receipt"]), "{name}");
        assert_eq!(receipt.statement.to_bytes()[..], bytes(&vector["statement"]), "{name}");
        assert_eq!(receipt.statement.node[..], bytes(&vectors["public_key"]), "{name}");
    }
    for vector in list(&vectors["invalid"]) {
        let read = Receipt::from_bytes(&bytes(&vector["receipt"]));
        assert!(matches!(read, Err(Error::BadReceipt(_))), "{}: {read:?}", vector["name"]);
    }
}

/// Whoever changes a record has to change the sums or the hash, and with them what is signed.
#[test]
fn records_and_statement_belong_together() {
    let whole = receipt(4);
    let refused = |change: &dyn Fn(&mut Receipt)| {
        let mut changed = whole.clone();
        change(&mut changed);
        Receipt::from_bytes(&changed.to_bytes()).unwrap_err().to_string()
    };
    assert!(refused(&|it| it.steps[0].fuel += u64::from(it.steps[0].is_counted)).contains("not"));
    assert!(refused(&|it| it.steps[1].result = Handle::u64(77)).contains("not those that"));
    assert!(refused(&|it| _ = it.steps.pop()).contains("sums"));
    assert!(refused(&|it| it.steps.swap(0, 1)).contains("order"));
    assert!(refused(&|it| it.steps[1] = it.steps[0]).contains("twice"));
    assert!(refused(&|it| it.statement.whole.fuel += 1).contains("sums"));
    assert!(refused(&|it| it.statement.now.inputs_bytes -= 1).contains("sums"));
    assert!(refused(&|it| it.statement.steps_hash[3] ^= 1).contains("not those that"));
    assert!(refused(&|it| it.statement.result = it.statement.goal).contains("no value"));
    let mut later = whole.to_bytes();
    later[14] = b'2';
    assert!(Receipt::from_bytes(&later).unwrap_err().to_string().contains("later version"));
}

/// A change outside the statement and the signature cannot hide: the statement that is
/// signed is another one, or there is no receipt at all.
#[test]
fn each_changed_byte_changes_what_is_signed_or_is_refused() {
    let whole = receipt(3);
    let bytes = whole.to_bytes();
    for at in 0..bytes.len() {
        for bit in [0x01, 0x80] {
            let mut changed = bytes.clone();
            changed[at] ^= bit;
            let Ok(read) = Receipt::from_bytes(&changed) else { continue };
            assert!(at < STATEMENT_LEN + SIGNATURE_LEN, "byte {at} is bound by nothing");
            assert_ne!(
                (read.statement.to_bytes(), read.signature),
                (whole.statement.to_bytes(), whole.signature)
            );
        }
    }
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let nearly = (0..5_u64, vec((any::<prop::sample::Index>(), any::<u8>()), 0..3), any::<bool>());
    let nearly = nearly.prop_map(|(count, changes, is_cut)| {
        let mut bytes = receipt(count).to_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len() - usize::from(is_cut));
        bytes
    });
    prop_oneof![3 => nearly, 1 => vec(any::<u8>(), 0..600)]
}

proptest! {
    /// Reading never panics, and a receipt has one form only.
    #[test]
    fn what_is_read_is_written_the_same(bytes in any_bytes()) {
        if let Ok(receipt) = Receipt::from_bytes(&bytes) {
            prop_assert_eq!(receipt.to_bytes(), bytes);
        }
    }
}
