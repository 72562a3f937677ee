// SPDX-License-Identifier: Apache-2.0
//! The memory tier without a disk behind it.

use objects::Handle;

use super::{CLOSURE_DURABLE, DURABLE, ENTRY_COST_BYTES, Memory, PASSING, REFERENCED, Sweep, TOUCHED};
use crate::Object;

/// The flags, but for [`TOUCHED`], which all have.
fn state(memory: &Memory, key: Handle) -> Option<u8> {
    memory.state(key).map(|state| state & !TOUCHED)
}

fn blob(number: u32, len: usize) -> (Handle, Object) {
    let mut bytes = vec![0x5a; len.max(31)];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    (Handle::blob(&bytes), Object::from_vec(bytes))
}

fn insert(memory: &Memory, number: u32, len: usize, state: u8) -> Handle {
    let (key, object) = blob(number, len);
    memory.insert_with(key, state, || object);
    key
}

fn sweep_all(memory: &Memory) -> Sweep {
    let mut sweep = Sweep::default();
    for shard in 0..memory.shards() {
        memory.sweep(shard, usize::MAX, &mut sweep);
    }
    sweep
}

#[test]
fn what_was_inserted_is_found_and_counted() {
    let memory = Memory::new(1 << 30, None);
    let keys: Vec<_> = (0..10_000).map(|number| insert(&memory, number, 100, 0)).collect();
    for (number, key) in keys.iter().enumerate() {
        let bytes = memory.get(*key).map(|object| object.to_vec());
        assert_eq!(bytes.as_deref(), Some(blob(number as u32, 100).1.bytes()));
    }
    assert!(memory.get(blob(10_000, 100).0).is_none());
    let stats = memory.stats();
    assert_eq!((stats.objects, stats.hits, stats.misses), (10_000, 10_000, 1));
    assert_eq!(stats.bytes, 10_000 * (100 + ENTRY_COST_BYTES));
    let error = stats.bytes.abs_diff(memory.used_bytes());
    assert!(error <= (1 << 30) / 16, "{error}");
}

#[test]
fn a_second_insertion_keeps_the_first_object_and_adds_flags() {
    let memory = Memory::new(1 << 20, None);
    let key = insert(&memory, 1, 100, 0);
    memory.insert_with(key, DURABLE, || unreachable!("it is there"));
    assert_eq!(state(&memory, key), Some(DURABLE | REFERENCED));
    memory.mark(key, CLOSURE_DURABLE);
    assert_eq!(state(&memory, key), Some(DURABLE | CLOSURE_DURABLE | REFERENCED));
    assert_eq!(memory.stats().objects, 1);
    memory.mark(blob(2, 100).0, DURABLE);
    assert_eq!(state(&memory, blob(2, 100).0), None, "marking inserts nothing");
}

#[test]
fn the_hand_gives_a_second_chance_and_drops_only_what_is_on_disk() {
    let memory = Memory::new(1 << 20, None);
    let durable = insert(&memory, 1, 100, DURABLE);
    let used = insert(&memory, 2, 100, DURABLE);
    let derived = insert(&memory, 3, 100, 0);
    let first = sweep_all(&memory);
    assert!(first.evicted.is_empty() && first.unwritten.is_empty(), "all were just inserted");
    memory.get(used);
    let second = sweep_all(&memory);
    assert_eq!(second.evicted.len(), 1);
    assert_eq!(second.unwritten.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [derived]);
    assert_eq!(state(&memory, durable), None);
    assert!(state(&memory, used).is_some() && state(&memory, derived).is_some());
    memory.evict_written(second.unwritten);
    assert_eq!(state(&memory, derived), None);
}

#[test]
fn what_passes_is_dropped_unwritten_unless_somebody_else_stores_it() {
    let memory = Memory::new(1 << 20, None);
    let passing = insert(&memory, 1, 100, PASSING);
    let kept_later = insert(&memory, 2, 100, PASSING);
    memory.insert_with(kept_later, 0, || unreachable!("it is there"));
    let kept_before = insert(&memory, 3, 100, 0);
    memory.insert_with(kept_before, PASSING, || unreachable!("it is there"));
    let held = insert(&memory, 4, 100, PASSING);
    let hold = memory.get(held);
    assert!(sweep_all(&memory).evicted.is_empty(), "each has a second chance");
    let sweep = sweep_all(&memory);
    assert_eq!(sweep.evicted.len(), 1);
    assert!(state(&memory, passing).is_none());
    let mut unwritten: Vec<Handle> = sweep.unwritten.iter().map(|(key, _)| *key).collect();
    let mut wanted = vec![kept_later, kept_before];
    unwritten.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(unwritten, wanted);
    assert!(state(&memory, held).is_some());
    drop(hold);
}

#[test]
fn what_passed_goes_with_the_last_of_those_that_passed_it_on() {
    let memory = Memory::new(1 << 20, None);
    let before = memory.stats().bytes;
    let twice = insert(&memory, 1, 100, PASSING);
    memory.insert_with(twice, PASSING, || unreachable!("it is there"));
    memory.drop_passed(twice);
    assert!(state(&memory, twice).is_some(), "one still needs it");
    let hold = memory.get(twice);
    memory.drop_passed(twice);
    assert!(state(&memory, twice).is_none());
    assert_eq!(hold.unwrap().len(), 100, "who holds it keeps its bytes");
    // Stored for longer, before or after.
    let kept_later = insert(&memory, 2, 100, PASSING);
    memory.insert_with(kept_later, 0, || unreachable!("it is there"));
    let kept_before = insert(&memory, 3, 100, 0);
    memory.insert_with(kept_before, PASSING, || unreachable!("it is there"));
    for key in [kept_later, kept_before, twice] {
        memory.drop_passed(key);
        memory.drop_passed(key);
    }
    assert!(state(&memory, kept_later).is_some() && state(&memory, kept_before).is_some());
    let again = insert(&memory, 4, 100, PASSING);
    memory.drop_passed(again);
    assert_eq!(memory.stats().bytes - before, 2 * (100 + ENTRY_COST_BYTES));
}

#[test]
fn an_object_used_while_it_was_written_stays() {
    let memory = Memory::new(1 << 20, None);
    let key = insert(&memory, 3, 100, 0);
    sweep_all(&memory);
    let unwritten = sweep_all(&memory).unwritten;
    assert_eq!(unwritten.len(), 1);
    memory.get(key);
    memory.evict_written(unwritten);
    assert_eq!(state(&memory, key), Some(DURABLE | REFERENCED));
}

#[test]
fn what_somebody_holds_is_not_dropped() {
    let memory = Memory::new(1 << 20, None);
    for flags in [DURABLE, 0] {
        let (small, large) = (insert(&memory, 1, 100, flags), insert(&memory, 2, 10_000, flags));
        let held = [small, large].map(|key| memory.get(key).unwrap());
        for _ in 0..5 {
            let sweep = sweep_all(&memory);
            assert!(sweep.evicted.is_empty() && sweep.unwritten.is_empty());
        }
        drop(held);
        // Once more for the hand: it was looked at since the hand passed.
        sweep_all(&memory);
        let sweep = sweep_all(&memory);
        memory.evict_written(sweep.unwritten);
        assert_eq!((state(&memory, small), state(&memory, large)), (None, None));
    }
}

#[test]
fn what_somebody_began_to_hold_while_it_was_written_stays_until_it_is_let_go() {
    let memory = Memory::new(1 << 20, None);
    let key = insert(&memory, 3, 100, 0);
    sweep_all(&memory);
    let unwritten = sweep_all(&memory).unwritten;
    // A look without a mark: only the hold can keep it.
    let held = memory.peek(key).map(|(object, _)| object);
    memory.evict_written(unwritten);
    assert_eq!(state(&memory, key), Some(DURABLE));
    assert!(sweep_all(&memory).evicted.is_empty());
    drop(held);
    assert_eq!(sweep_all(&memory).evicted.len(), 1);
}

#[test]
fn bytes_are_given_back_exactly() {
    let memory = Memory::new(64 << 20, None);
    for number in 0..5_000 {
        insert(&memory, number, 31 + number as usize % 900, if number % 2 == 0 { DURABLE } else { 0 });
    }
    sweep_all(&memory);
    let unwritten = sweep_all(&memory).unwritten;
    assert_eq!(unwritten.len(), 2_500);
    memory.evict_written(unwritten);
    assert_eq!((memory.stats().objects, memory.stats().bytes, memory.used_bytes()), (0, 0, 0));
    assert_eq!(memory.stats().evictions, 5_000);
}

#[test]
fn room_is_judged_by_the_budget() {
    let memory = Memory::new(1 << 20, None);
    assert_eq!(memory.lacking_bytes((1 << 20) - ENTRY_COST_BYTES), 0);
    assert_eq!(memory.lacking_bytes(1 << 20), ENTRY_COST_BYTES);
    assert!(memory.lacking_bytes(u64::MAX) > 0);
}

#[test]
fn what_is_let_go_leaves_if_it_can_be_had_again() {
    let memory = Memory::new(1 << 20, None);
    let before = memory.stats().bytes;
    let on_disk = insert(&memory, 1, 100, DURABLE);
    let derived = insert(&memory, 2, 100, 0);
    let held = insert(&memory, 3, 100, DURABLE);
    let hold = memory.get(held);
    // Being looked at is no reason to stay.
    assert!(memory.get(on_disk).is_some());
    for key in [on_disk, derived, held, on_disk] {
        memory.let_go(key);
    }
    assert!(state(&memory, on_disk).is_none());
    assert!(state(&memory, derived).is_some(), "nowhere else is it");
    assert!(state(&memory, held).is_some(), "who holds it relies on finding it");
    assert_eq!(memory.stats().bytes - before, 2 * (100 + ENTRY_COST_BYTES));
    drop(hold);
    memory.let_go(held);
    assert!(state(&memory, held).is_none());
}
