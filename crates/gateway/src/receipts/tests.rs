// SPDX-License-Identifier: Apache-2.0
//! What a receipt says of an evaluation that was noted, and when there is none.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use objects::TreeBuilder;

use super::*;
use crate::tests::fake::Fake;

fn rates() -> Rates {
    Rates {
        currency: "EUR".to_owned(),
        per_gfuel: 1.0,
        patient_discount: 0.5,
        patient_s: 10.0,
        ..Rates::default()
    }
}

/// The application of a procedure of 100 bytes to entries, with this limit of fuel.
fn application(fake: &Fake, fuel: u64, entries: &[Handle]) -> Handle {
    let limits = Limits { memory_bytes: 1 << 20, fuel, ..Limits::default() };
    let procedure = fake.store.put_blob(&[1; 100]).unwrap();
    let all = [&[limits.handle().unwrap(), procedure], entries].concat();
    let tree: TreeBuilder = all.into_iter().collect();
    fake.store.put_tree(tree.view()).unwrap().application().unwrap()
}

fn noted(steps: Vec<NotedStep>) -> Noted {
    let goal = steps[0].application.strict().unwrap();
    Noted { goal, steps: Some(steps), is_fresh: false, is_lasting: true }
}

fn step(application: Handle, fuel: u64, ran_now: bool) -> NotedStep {
    NotedStep { application, result: Handle::u64(3), nanos: 1000, fuel, ran_now }
}

fn issued(fake: &Fake, noted: Noted, term: Term) -> Receipt {
    let handle = issue(fake, noted, Handle::u64(3), &rates(), term).unwrap();
    Receipt::from_bytes(fake.store.get(handle).unwrap().unwrap().bytes()).unwrap()
}

#[test]
fn a_receipt_has_the_cost_of_all_and_the_price_of_what_ran_now() {
    let fake = Fake::new();
    let large = fake.store.put_blob(&[2; 1000]).unwrap();
    let list: TreeBuilder = [large, Handle::u64(1), large.lowered().unwrap()].into_iter().collect();
    let list = fake.store.put_tree(list.view()).unwrap();
    // An object that is in two entries counts for both; a ref and a literal are no inputs.
    let [now, before] = [[list, large].as_slice(), &[large.lowered().unwrap(), Handle::u64(5)]]
        .map(|entries| application(&fake, 500, entries));
    let uncounted = application(&fake, 0, &[Handle::u64(9)]);
    let steps = vec![step(now, 400, true), step(before, 300, false), step(uncounted, 0, true)];
    let receipt = issued(&fake, noted(steps), Term::By(Duration::from_secs(5)));
    let statement = &receipt.statement;
    assert_eq!((statement.applications, statement.ran), (3, 2));
    assert_eq!(statement.whole.inputs_bytes, (100 + 1000 + 96 + 1000) + 100 + 100);
    assert_eq!(statement.now.inputs_bytes, 2196 + 100);
    assert_eq!((statement.whole.reserved_bytes, statement.whole.fuel), (3 << 20, 700));
    assert_eq!((statement.now.fuel, statement.now.uncounted, statement.uncounted_nanos), (400, 1, 1000));
    assert_eq!((statement.by_ms, statement.price.factor_ppm), (5000, 750_000));
    assert_eq!(statement.price.amount, Some(300_000), "three quarters of 400 of 10⁹ units");
    assert!(statement.issued_ms > 1_700_000_000_000 && !statement.is_fresh);
    let signing = fake.signing().unwrap();
    assert_eq!(receipt.signature, signing.sign(statement));
    assert_eq!(statement.node, signing.public_key());
}

#[test]
fn the_same_computation_has_the_same_records_in_whatever_order_it_ran() {
    let fake = Fake::new();
    let steps: Vec<NotedStep> =
        (0..20).map(|item| step(application(&fake, 5, &[Handle::u64(item)]), item, true)).collect();
    let mut other = noted(steps.clone());
    other.steps.as_mut().unwrap().reverse();
    let receipts = [noted(steps), other].map(|noted| issued(&fake, noted, Term::Now));
    assert_eq!(receipts[0].steps, receipts[1].steps);
    assert_eq!(receipts[0].statement.steps_hash, receipts[1].statement.steps_hash);
}

#[test]
fn what_cannot_be_checked_has_no_receipt() {
    let fake = Fake::new();
    let steps = vec![step(application(&fake, 5, &[]), 1, true)];
    let lost = fake.application(b"never stored").strict().unwrap();
    let elsewhere = Handle::tree(&[lost; 3].map(|entry| *entry.as_bytes()).concat()).unwrap();
    let refused = |noted: Noted| match issue(&fake, noted, Handle::u64(3), &rates(), Term::Now) {
        Err(Unissued::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(refused(Noted { is_lasting: false, ..noted(steps.clone()) }).contains("nobody could check"));
    assert!(refused(Noted { steps: None, ..noted(steps.clone()) }).contains("131072 applications"));
    let gone = vec![step(elsewhere.application().unwrap(), 1, true)];
    assert!(refused(noted(gone)).contains("not on this node any more"));
}

/// A tree that names the same tree twice at each of many levels is walked once.
#[test]
fn shared_trees_are_counted_once_and_do_not_explode() {
    let fake = Fake::new();
    let mut tree = fake.store.put_blob(&[3; 50]).unwrap();
    for _ in 0..60 {
        let pair: TreeBuilder = [tree, tree].into_iter().collect();
        tree = fake.store.put_tree(pair.view()).unwrap();
    }
    let up_front = Inputs::new(&fake).up_front(application(&fake, 5, &[tree])).unwrap();
    assert_eq!(up_front.inputs_bytes, 100 + 60 * 64 + 50);
}
