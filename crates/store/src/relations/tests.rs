// SPDX-License-Identifier: Apache-2.0
//! The table of relations and claims.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use objects::Handle;

use super::{Claim, PENDING_MAX, PERSIST_NANOS_MIN, Record, Relations, Remembered, Rule};
use crate::background::Signal;

fn key(number: u64) -> Handle {
    let mut bytes = [7; 40];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Handle::blob(&bytes).identification().unwrap_or_else(|| unreachable!("of a blob"))
}

fn record(number: u64) -> Record {
    Record { result: Handle::u64(number), rule: Rule::Apply, nanos: number, fuel: number * 3 }
}

fn table() -> Relations {
    Relations::new(16 << 20, None)
}

#[test]
fn a_claim_is_busy_until_it_is_fulfilled() {
    let relations = table();
    assert_eq!(relations.claim(key(1)), Claim::Claimed);
    assert_eq!(relations.claim(key(1)), Claim::Busy);
    assert_eq!((relations.get(key(1)), relations.len()), (None, 0), "a claim is no result");
    assert_eq!(relations.fulfil(key(1), record(5)), []);
    assert_eq!(relations.claim(key(1)), Claim::Known(record(5)));
    assert_eq!((relations.get(key(1)), relations.len()), (Some(record(5)), 1));
    assert_eq!(relations.claim(key(2)), Claim::Claimed, "another key is free");
}

#[test]
fn waiters_come_back_once_from_whoever_ends_the_claim() {
    let relations = table();
    assert!(!relations.wait(key(1), 9), "nobody computes it");
    relations.claim(key(1));
    relations.claim(key(2));
    assert!(relations.wait(key(1), 10) && relations.wait(key(2), 20) && relations.wait(key(1), 11));
    assert_eq!(relations.fulfil(key(1), record(1)), [10, 11]);
    assert!(!relations.wait(key(1), 12), "it is known: look again");
    assert_eq!(relations.abandon(key(2)), [20]);
    assert_eq!(relations.claim(key(2)), Claim::Claimed, "abandoned: free again");
    assert_eq!(relations.fulfil(key(2), record(2)), [], "the old waiters are gone");
    assert_eq!(relations.abandon(key(1)), [], "a result is not abandoned");
    assert_eq!(relations.get(key(1)), Some(record(1)));
}

#[test]
fn inserting_replaces_a_result_but_no_claim() {
    let relations = table();
    relations.insert(key(1), record(1));
    relations.insert(key(1), record(2));
    assert_eq!(relations.get(key(1)), Some(record(2)));
    relations.claim(key(2));
    assert!(relations.wait(key(2), 5));
    relations.insert(key(2), record(3));
    assert_eq!(relations.claim(key(2)), Claim::Busy);
    assert_eq!(relations.fulfil(key(2), record(4)), [5]);
    assert_eq!(relations.get(key(2)), Some(record(4)));
    assert_eq!(relations.fulfil(key(3), record(6)), [], "a result without a claim is kept, too");
    assert_eq!(relations.get(key(3)), Some(record(6)));
}

#[test]
fn thunk_strict_and_shallow_of_one_tree_are_three_keys() {
    let relations = table();
    let thunk = key(1);
    let keys = [Some(thunk), thunk.strict(), thunk.shallow()];
    for (number, key) in keys.into_iter().flatten().enumerate() {
        assert_eq!(relations.claim(key), Claim::Claimed);
        relations.fulfil(key, record(number as u64));
    }
    let found: Vec<_> = keys.into_iter().flatten().filter_map(|key| relations.get(key)).collect();
    assert_eq!(found, [record(0), record(1), record(2)]);
}

#[test]
fn every_field_survives_the_packing() {
    let relations = table();
    for (number, rule) in Rule::ALL.into_iter().enumerate() {
        assert_eq!(Rule::from_u8(rule as u8), Some(rule));
        let nanos = (1 << 48) - 1 - number as u64;
        let packed = Record { result: key(99), rule, nanos, fuel: u64::MAX - number as u64 };
        relations.insert(key(number as u64), packed);
        assert_eq!(relations.get(key(number as u64)), Some(packed));
    }
    assert_eq!(Rule::from_u8(7), None);
    let slow = Record { nanos: u64::MAX, ..record(1) };
    relations.insert(key(50), slow);
    assert_eq!(relations.get(key(50)), Some(Record { nanos: (1 << 48) - 1, ..slow }));
}

#[test]
fn each_key_is_claimed_by_exactly_one_thread() {
    const KEYS: u64 = 20_000;
    let relations = Arc::new(table());
    let claimed: Arc<Vec<AtomicU64>> = Arc::new((0..KEYS).map(|_| AtomicU64::new(0)).collect());
    let returned = Arc::new(AtomicU64::new(0));
    let run = |id: u64| {
        let (relations, claimed, returned) =
            (Arc::clone(&relations), Arc::clone(&claimed), Arc::clone(&returned));
        let work = move || {
            let mut waited = 0;
            for step in 0..KEYS {
                let number = if id.is_multiple_of(2) { step } else { KEYS - 1 - step };
                loop {
                    match relations.claim(key(number)) {
                        Claim::Claimed => {
                            claimed[number as usize].fetch_add(1, Ordering::Relaxed);
                            let waiters = relations.fulfil(key(number), record(number));
                            returned.fetch_add(waiters.len() as u64, Ordering::Relaxed);
                        }
                        Claim::Known(found) => {
                            assert_eq!(found, record(number));
                            break;
                        }
                        Claim::Busy => waited += u64::from(relations.wait(key(number), id)),
                    }
                }
            }
            waited
        };
        thread::Builder::new().spawn(work).unwrap_or_else(|error| unreachable!("{error}"))
    };
    let threads: Vec<_> = (0..4).map(run).collect();
    let waited: u64 = threads.into_iter().map(|thread| thread.join().unwrap_or(u64::MAX)).sum();
    assert!(claimed.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    assert_eq!(waited, returned.load(Ordering::Relaxed), "every accepted waiter was returned");
    assert_eq!((relations.len() as u64, relations.stats().claims), (KEYS, 0));
}

#[test]
fn the_table_stays_within_its_budget_and_forgets_only_results() {
    const BUDGET: u64 = 1 << 20;
    let relations = Relations::new(BUDGET, None);
    let claims: Vec<_> = (1 << 40..(1 << 40) + 500).map(key).collect();
    claims.iter().for_each(|key| assert_eq!(relations.claim(*key), Claim::Claimed));
    for number in 0..200_000 {
        match number % 2 {
            0 => relations.insert(key(number), record(number)),
            _ => {
                relations.claim(key(number));
                relations.fulfil(key(number), record(number));
            }
        }
    }
    let stats = relations.stats();
    assert!(stats.bytes <= BUDGET, "{}", stats.bytes);
    assert!(stats.known as usize > relations.capacity() / 2, "{} of {}", stats.known, relations.capacity());
    assert!(stats.known + stats.claims <= relations.capacity() as u64);
    assert_eq!((stats.claims, stats.known + stats.evictions), (500, 200_000));
    let wrong =
        (0..200_000).filter(|number| relations.get(key(*number)).is_some_and(|r| r != record(*number)));
    assert_eq!(wrong.count(), 0);
    claims.iter().for_each(|key| assert_eq!(relations.claim(*key), Claim::Busy));
}

#[test]
fn looking_up_a_known_key_in_a_full_table_evicts_nothing() {
    let relations = Relations::new(1 << 20, None);
    (0..50_000).for_each(|number| relations.insert(key(number), record(number)));
    let before = relations.stats();
    let known: Vec<_> = (0..50_000).map(key).filter(|key| relations.get(*key).is_some()).collect();
    for key in &known {
        assert!(matches!(relations.claim(*key), Claim::Known(_)));
    }
    assert_eq!(relations.stats().evictions, before.evictions);
}

#[test]
fn results_in_use_outlive_others() {
    let relations = Relations::new(1 << 20, None);
    (0..100).for_each(|number| relations.insert(key(number), record(number)));
    for number in 100..100_000 {
        relations.insert(key(number), record(number));
        if number % 200 == 0 {
            (0..100).for_each(|number| _ = relations.get(key(number)));
        }
    }
    let kept = (0..100).filter(|number| relations.get(key(*number)).is_some()).count();
    assert!(kept >= 90, "{kept} of 100");
}

#[test]
fn a_shard_full_of_claims_grows() {
    let relations = Relations::new(1 << 10, None);
    let keys: Vec<_> = (0..20_000).map(key).collect();
    keys.iter().for_each(|key| assert_eq!(relations.claim(*key), Claim::Claimed));
    keys.iter().for_each(|key| assert_eq!(relations.claim(*key), Claim::Busy));
    keys.iter().for_each(|key| assert_eq!(relations.abandon(*key), []));
    assert_eq!(relations.stats().claims, 0);
}

#[test]
fn provenance_is_found_for_objects_refs_and_thunks() {
    let relations = table();
    let blob = Handle::blob(&[3; 50]);
    let lowered = blob.lowered().unwrap_or_else(|| unreachable!("a blob has a ref"));
    let results =
        HashMap::from([(key(1), blob), (key(2), lowered), (key(3), key(9)), (key(4), Handle::u64(4))]);
    for (key, result) in &results {
        relations.insert(*key, Record { result: *result, ..record(1) });
    }
    relations.claim(key(5));
    for wanted in [blob, lowered] {
        let mut makers: Vec<_> = relations.made_by(wanted, 10).into_iter().map(|maker| maker.key).collect();
        makers.sort();
        let mut expected = [key(1), key(2)];
        expected.sort();
        assert_eq!(makers, expected);
    }
    let record = Record { result: key(9), ..record(1) };
    assert_eq!(relations.made_by(key(9), 10), [Remembered { key: key(3), record, was_hit: false }]);
    assert_eq!(relations.made_by(blob, 1).len(), 1);
    assert_eq!((relations.made_by(blob, 0).len(), relations.made_by(key(1), 10).len()), (0, 0));
}

#[test]
fn only_costly_results_wait_to_be_written_and_only_so_many() {
    let relations = Relations::new(16 << 20, Some(Arc::new(Signal::default())));
    let costly = Record { nanos: PERSIST_NANOS_MIN, ..record(1) };
    relations.insert(key(1), Record { nanos: PERSIST_NANOS_MIN - 1, ..record(1) });
    relations.insert(key(2), costly);
    relations.claim(key(3));
    relations.fulfil(key(3), costly);
    assert!(relations.insert_quietly(key(4), costly));
    assert_eq!(relations.take_pending(), [(key(2), costly), (key(3), costly)]);
    (0..PENDING_MAX as u64 + 5).for_each(|number| relations.insert(key(number), costly));
    assert_eq!((relations.take_pending().len(), relations.stats().unwritten), (PENDING_MAX, 5));
    let memory_only = table();
    memory_only.insert(key(1), costly);
    assert_eq!(memory_only.take_pending(), []);
}

#[test]
fn a_result_that_was_needed_again_says_so_and_looking_does_not_count() {
    let relations = Relations::new(1 << 20, None);
    assert_eq!(relations.claim(key(1)), Claim::Claimed);
    assert!(relations.look(key(1)).is_none(), "nobody knows it yet");
    relations.fulfil(key(1), record(1));
    relations.insert(key(2), record(2));
    let was_hit = |number| relations.look(key(number)).unwrap().was_hit;
    assert!(!was_hit(1) && !was_hit(1) && !was_hit(2));
    relations.get(key(1)).unwrap();
    relations.claim(key(2));
    assert!(was_hit(1) && was_hit(2));
    assert!(relations.look(key(3)).is_none());
}
