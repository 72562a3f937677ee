// SPDX-License-Identifier: Apache-2.0
//! What two receipts of one computation are found to differ in.

use objects::{Cost, Price, SIGNATURE_LEN, Statement, Sums, steps_hash};

use super::*;

fn application(number: u64) -> Handle {
    let entries = [Handle::u64(number); 2].map(|entry| *entry.as_bytes()).concat();
    Handle::tree(&entries).and_then(|tree| tree.application().ok_or(objects::Error::BadTree("none"))).unwrap()
}

fn step(number: u64) -> ReceiptStep {
    ReceiptStep {
        application: application(number),
        result: Handle::u64(number),
        inputs_bytes: 10,
        reserved_bytes: 20,
        fuel: 30,
        ran_now: true,
        is_counted: true,
    }
}

fn receipt(result: Handle, steps: Vec<ReceiptStep>) -> Receipt {
    let Sums { applications, ran, whole, now } = Sums::of(&steps);
    let statement = Statement {
        goal: application(0).strict().unwrap(),
        result,
        node: [1; 32],
        steps_hash: steps_hash(&steps),
        issued_ms: 0,
        is_fresh: false,
        applications,
        ran,
        whole,
        now,
        uncounted_nanos: 5,
        by_ms: 0,
        price: Price::default(),
    };
    Receipt { statement, signature: [0; SIGNATURE_LEN], steps }
}

#[test]
fn when_and_whether_it_ran_is_no_difference() {
    let one = receipt(Handle::u64(1), vec![step(1), step(2)]);
    let mut other = receipt(Handle::u64(1), vec![ReceiptStep { ran_now: false, ..step(2) }, step(1)]);
    other.statement.now = Cost::default();
    other.statement.uncounted_nanos = 9;
    assert_eq!(differences(&one, &other), []);
}

#[test]
fn each_difference_is_named_with_its_application() {
    let signed = receipt(Handle::u64(1), vec![step(1), step(2), step(3)]);
    let changed = [
        ReceiptStep { fuel: 31, ..step(1) },
        ReceiptStep { is_counted: false, fuel: 0, inputs_bytes: 11, ..step(2) },
        step(4),
    ];
    let found = differences(&signed, &receipt(Handle::u64(7), changed.to_vec()));
    let told: Vec<(Option<Handle>, &str)> = found.iter().map(|it| (it.application, it.what)).collect();
    let of = |number| Some(application(number));
    assert_eq!(
        told,
        [
            (None, "result"),
            (of(1), "fuel"),
            (of(2), "bytes of inputs"),
            (of(2), "fuel"),
            (of(3), "application"),
            (of(4), "application"),
        ]
    );
    assert!(found[0].to_string().starts_with("the whole: result signed as lit-01"), "{}", found[0]);
    assert!(found[1].to_string().ends_with("fuel signed as 30, found as 31"), "{}", found[1]);
}

/// Which arguments were begun when another one failed is nobody's fault.
#[test]
fn of_a_failure_only_what_both_ran_is_compared() {
    let tree = Handle::tree(&Handle::u64(1).as_bytes().repeat(3)).unwrap();
    let failure = objects::Failure {
        code: objects::FailureCode::Trap,
        application: application(1),
        detail: Handle::u64(1),
    };
    let (failure, _) = failure.to_tree();
    let (one, other) = (receipt(failure, vec![step(1)]), receipt(failure, vec![step(1), step(2)]));
    assert_eq!(differences(&one, &other), []);
    let wrong = receipt(failure, vec![ReceiptStep { fuel: 1, ..step(1) }]);
    assert_eq!(differences(&one, &wrong).len(), 1);
    assert!(differences(&one, &receipt(tree, vec![step(1)])).len() == 1, "one failed, one did not");
}
