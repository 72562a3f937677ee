// SPDX-License-Identifier: Apache-2.0
//! Packs on a disk that fails, and as they grow older.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::tests::faulty::{FaultyDisk, Name};

fn open(disk: &FaultyDisk) -> Packs {
    Packs::open("/packs".as_ref(), Box::new(disk.clone())).unwrap()
}

fn object(number: u64) -> (Handle, Vec<u8>) {
    let mut bytes = vec![number as u8; 40 + (number as usize * 97) % 3000];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    (Handle::blob(&bytes), bytes)
}

fn append(packs: &Packs, numbers: std::ops::Range<u64>) -> Result<Vec<Spot>, Error> {
    let objects: Vec<_> = numbers.map(object).collect();
    let objects: Vec<_> = objects.iter().map(|(key, bytes)| (*key, bytes.as_slice())).collect();
    packs.append(&objects)
}

/// What a process that comes after finds from a mark on.
fn found(packs: &Packs, mark: Spot) -> (Vec<(Spot, Handle)>, Spot) {
    let mut found = Vec::new();
    let add = |spot, key| {
        found.push((spot, key));
        Ok(())
    };
    let end = packs.since(mark, add).unwrap();
    (found, end)
}

const START: Spot = Spot { pack: 0, unit: 0 };

#[test]
fn what_was_appended_is_read_at_its_spot_and_found_again() {
    let disk = FaultyDisk::default();
    let packs = open(&disk);
    assert_eq!((packs.end(), packs.bytes()), (START, 0));
    let first = append(&packs, 0..5).unwrap();
    let middle = packs.end();
    let spots = [first, append(&packs, 5..9).unwrap()].concat();
    for (number, spot) in (0..9).zip(&spots) {
        let (key, bytes) = object(number);
        assert_eq!(packs.read(*spot, key).unwrap().unwrap(), bytes);
        assert_eq!(packs.read(*spot, object(77).0).unwrap(), None, "another object is there");
    }
    assert_eq!(packs.read(Spot { pack: 9, unit: 1 }, object(1).0).unwrap(), None);
    assert_eq!(packs.read(Spot { pack: 0, unit: 1 << 30 }, object(1).0).unwrap(), None);
    let end = packs.end();
    drop(packs);
    let packs = open(&disk);
    let all: Vec<_> = spots.iter().copied().zip((0..9).map(|number| object(number).0)).collect();
    assert_eq!(found(&packs, START), (all.clone(), end));
    assert_eq!(found(&packs, middle), (all[5..].to_vec(), end));
    assert_eq!(append(&packs, 20..21).unwrap()[0], end, "the newest pack goes on");
}

#[test]
fn a_failed_write_is_cut_off_and_what_comes_after_takes_its_place() {
    for writes_left in 0..8 {
        let disk = FaultyDisk::default();
        let packs = open(&disk);
        append(&packs, 0..3).unwrap();
        let end = packs.end();
        disk.set_writes_left(Some(writes_left));
        let error = append(&packs, 3..9).unwrap_err();
        assert!(error.to_string().starts_with("/packs: No space left"), "{error}");
        disk.set_writes_left(None);
        let (here, begin) = (found(&packs, START), end);
        assert!(here.0.len() >= 3 && here.1 >= begin, "what was synced is there");
        let spots = append(&packs, 10..12).unwrap();
        for survives in [|_| false, |position| position % 2 == 0, |_| true] {
            let after = open(&disk.after_power_cut(survives));
            let keys: Vec<_> = found(&after, START).0.into_iter().map(|(_, key)| key).collect();
            for number in [0, 1, 2, 10, 11] {
                assert!(keys.contains(&object(number).0), "{number} after {writes_left} writes");
            }
            assert_eq!(after.read(spots[0], object(10).0).unwrap().unwrap(), object(10).1);
        }
    }
}

#[test]
fn what_is_damaged_before_the_end_is_not_found_and_all_else_is() {
    for (at, others) in [(32 + 3, 8), (32 + 70, 8), (32 + 30, 8)] {
        let disk = FaultyDisk::default();
        append(&open(&disk), 0..9).unwrap();
        // In the hash of the first object's handle, in its bytes, in its length.
        let mut bytes = disk.bytes(Name::Pack(0));
        bytes[at] ^= 1;
        Pack::write_all_at(&disk.file(Name::Pack(0)), &bytes, 0).unwrap();
        let (objects, end) = found(&open(&disk), START);
        let known = (0..9).filter(|number| objects.iter().any(|(_, key)| *key == object(*number).0));
        assert_eq!(known.count(), others, "{at}");
        assert_eq!(u64::from(end.unit) * UNIT, bytes.len() as u64);
    }
}

#[test]
fn a_pack_is_closed_by_age_by_size_and_when_told_to() {
    let disk = FaultyDisk::default();
    let packs = open(&disk);
    append(&packs, 0..1).unwrap();
    assert_eq!(packs.roll(), 1);
    assert_eq!(packs.end(), Spot { pack: 1, unit: 0 });
    assert_eq!(append(&packs, 1..2).unwrap()[0].pack, 1);
    // Begun two hours ago, by its header.
    let begun = since_1970(now()) - 7200;
    let old = disk.file(Name::Pack(1));
    Pack::write_all_at(&old, &header(begun), 0).unwrap();
    Pack::sync(&old).unwrap();
    let packs = open(&disk);
    found(&packs, START);
    assert_eq!(append(&packs, 2..3).unwrap()[0].pack, 2);
    // One from the future is not gone on with either.
    let young = disk.file(Name::Pack(2));
    Pack::write_all_at(&young, &header(begun + 100_000), 0).unwrap();
    let packs = open(&disk);
    found(&packs, START);
    assert_eq!(append(&packs, 3..4).unwrap()[0].pack, 3);
    assert_eq!(packs.numbers(), [0, 1, 2, 3]);
}

#[test]
fn old_packs_are_told_and_what_is_in_them_is_not_fresh() {
    let disk = FaultyDisk::default();
    let packs = open(&disk);
    assert_eq!(packs.fresh_from(), 0);
    for number in 0..3 {
        packs.roll();
        append(&packs, number..number + 1).unwrap();
    }
    assert_eq!(packs.fresh_from(), 0);
    let hours = |hours: u64| now() - Duration::from_secs(hours * 3600);
    disk.set_changed(Name::Pack(0), hours(5));
    disk.set_changed(Name::Pack(1), hours(2));
    disk.set_changed(Name::Pack(2), hours(1));
    assert_eq!(packs.fresh_from(), 3, "the newest was not written to for an hour");
    assert_eq!(packs.older(hours(3)).unwrap().iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0]);
    append(&packs, 5..6).unwrap();
    assert_eq!(packs.fresh_from(), 2);
    let gone = packs.read(Spot { pack: 0, unit: 1 }, object(0).0).unwrap();
    assert_eq!(gone, Some(object(0).1));
    packs.remove(0).unwrap();
    assert_eq!(packs.read(Spot { pack: 0, unit: 1 }, object(0).0).unwrap(), None);
    assert_eq!(open(&disk).numbers(), [1, 2]);
}

#[test]
fn a_pack_without_a_header_ends_where_it_begins() {
    let disk = FaultyDisk::default();
    let packs = open(&disk);
    append(&packs, 0..2).unwrap();
    packs.roll();
    // The process before died when it had made the next one's file.
    disk.create(1).unwrap();
    let packs = open(&disk);
    let (objects, end) = found(&packs, START);
    assert_eq!((objects.len(), end), (2, Spot { pack: 1, unit: 1 }));
    assert_eq!(append(&packs, 5..6).unwrap()[0], Spot { pack: 2, unit: 1 });
    let (objects, _) = found(&open(&disk), end);
    assert_eq!(objects.len(), 1);
}
