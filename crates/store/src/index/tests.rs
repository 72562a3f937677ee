// SPDX-License-Identifier: Apache-2.0
//! The index over storage that fails and loses power at any write.
#![allow(clippy::unwrap_used)]

use objects::{Failure, FailureCode, Handle, TreeBuilder};
use redb::Builder;
use tempfile::tempdir;

use super::*;
use crate::packs::Folder;
use crate::tests::faulty::{FaultyDisk, Name};

fn open_on(disk: &FaultyDisk) -> Result<Index, Error> {
    open_with_cache(disk, 1 << 20)
}

fn open_with_cache(disk: &FaultyDisk, cache_bytes: usize) -> Result<Index, Error> {
    let file = disk.clone();
    let opener =
        move || Builder::new().set_cache_size(cache_bytes).create_with_backend(file.file(Name::Index));
    let packs = Packs::open("/packs".as_ref(), Box::new(disk.clone()))?;
    Index::with_opener("/index".into(), Box::new(opener), 1000, packs)
}

fn open(folder: &std::path::Path) -> Result<Index, Error> {
    let packs = Packs::open(folder, Box::new(Folder(folder.to_owned())))?;
    Index::open(folder.join("index.redb"), 1 << 20, 1000, packs)
}

fn object(number: u64) -> (Handle, Object) {
    let mut bytes = vec![number as u8; 40 + (number as usize * 97) % 3000];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    (Handle::blob(&bytes), Object::from_vec(bytes))
}

fn record(number: u64) -> Record {
    Record { result: object(number).0, rule: Rule::Select, nanos: number, fuel: !number }
}

/// An object that the packs have synced; the index has not.
fn lone_object(number: u64) -> Batch {
    Batch { objects: vec![object(number)], ..Batch::default() }
}

/// An object, a relation to it and a label for it: the last two both or none, and
/// not without the object.
fn batch(number: u64) -> Batch {
    let (key, object) = object(number);
    Batch {
        objects: vec![(key, object)],
        relations: vec![(key.identification().unwrap(), record(number))],
        label: Some((format!("label-{number}"), Some(key))),
        ..Batch::default()
    }
}

/// How much of `batch(number)` is there; what is there must be right.
fn parts_present(index: &Index, number: u64) -> usize {
    let (key, object) = object(number);
    let stored = index.object(key).unwrap().map(|(bytes, _)| bytes);
    assert!(stored.as_deref().is_none_or(|bytes| bytes == object.bytes()));
    let label = index.label(&format!("label-{number}")).unwrap();
    assert!(label.is_none_or(|label| label == key));
    let mut related = false;
    index
        .relations(usize::MAX, |found, is| {
            related |= found == key.identification().unwrap() && is == record(number)
        })
        .unwrap();
    assert_eq!(label.is_some(), related, "{number} is torn");
    assert!(stored.is_some() || !related, "{number} is named, but not there");
    usize::from(stored.is_some()) + usize::from(label.is_some()) + usize::from(related)
}

#[test]
fn a_batch_is_written_as_a_whole_and_read_back() {
    let folder = tempdir().unwrap();
    let open = || open(folder.path()).unwrap();
    let index = open();
    assert_eq!(parts_present(&index, 1), 0);
    let batches = [batch(1), batch(2)];
    let committed = index.commit(&batches.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(committed, [Committed::default(); 2]);
    drop(index);
    let index = open();
    assert_eq!((parts_present(&index, 1), parts_present(&index, 2), parts_present(&index, 3)), (3, 3, 0));
    assert_eq!(index.labels().unwrap(), [("label-1".into(), object(1).0), ("label-2".into(), object(2).0)]);
    let spots = index.spots([object(1).0, object(3).0].into_iter()).unwrap();
    assert!(spots[0].is_some() && spots[1].is_none());
    let removal = Batch {
        dead: vec![(object(1).0, spots[0].unwrap())],
        label: Some(("label-1".into(), None)),
        ..Batch::default()
    };
    assert!(index.commit(&[&removal]).unwrap()[0].label_existed);
    assert!(!index.commit(&[&removal]).unwrap()[0].label_existed);
    assert_eq!((index.object(object(1).0).unwrap(), index.label("label-1").unwrap()), (None, None));
}

#[test]
fn what_was_acknowledged_survives_a_power_cut_at_any_write() {
    let mut cuts_within_commits = 0;
    for cut in (0..700).step_by(5) {
        let disk = FaultyDisk::default();
        let Ok(index) = open_on(&disk) else { unreachable!() };
        disk.set_writes_left(Some(cut));
        let put = |number: &u64| {
            let lone = index.commit(&[&lone_object(number + 200)]);
            lone.is_ok() && index.commit(&[&batch(*number)]).is_ok()
        };
        let acknowledged = (0..12).take_while(put).count() as u64;
        for (pattern, survives) in
            [|_| false, |position| position % 2 == 0, |position| position % 3 != 0, |_| true]
                .iter()
                .enumerate()
        {
            let after = open_on(&disk.after_power_cut(survives)).unwrap();
            for number in 0..acknowledged {
                assert_eq!(parts_present(&after, number), 3, "cut {cut}, pattern {pattern}, object {number}");
                assert_eq!(parts_present(&after, number + 200), 1, "cut {cut}, pattern {pattern}, {number}");
            }
            // Checks what may be torn.
            parts_present(&after, acknowledged);
            parts_present(&after, acknowledged + 200);
            after.commit(&[&batch(100)]).unwrap();
            assert_eq!(parts_present(&after, 100), 3);
        }
        cuts_within_commits += u64::from(acknowledged < 12);
    }
    assert!(cuts_within_commits > 20, "the cuts missed the commits: {cuts_within_commits}");
}

/// An object goes with its recipe, another one is written anew, and the tier has a third: all or
/// nothing of it.
fn taking(index: &Index, number: u64) -> Batch {
    let spot = |number| index.spot(object(number).0).unwrap().unwrap();
    let (gone, moved, sent) = (object(number), object(number + 20), object(number + 40));
    let definition: TreeBuilder = [object(number + 60).0].into_iter().collect();
    let application = definition.view().handle().application().unwrap();
    let tiered = Tiered {
        place: Place::Lone,
        is_whole: true,
        is_seen: true,
        is_damaged: number.is_multiple_of(2),
        since_s: number as u32,
    };
    Batch {
        dead: vec![(gone.0, spot(number))],
        recipes: vec![(gone.0, Some(Recipe::new(application, 1, number, 1)))],
        unpromised: vec![(gone.0, true)],
        moved: vec![(moved.0, spot(number + 20), moved.1)],
        tiered: vec![(sent.0, Some(tiered))],
        tier_notes: vec![("note", number.to_le_bytes().to_vec())],
        forgotten: vec![object(number).0.identification().unwrap()],
        ..Batch::default()
    }
}

/// Whether `taking(number)` was done; it is as a whole, or not at all.
fn is_taken(index: &Index, number: u64) -> bool {
    let (gone, moved) = (object(number).0, object(number + 20));
    let is_taken = index.recipe(gone).unwrap().is_some_and(|recipe| recipe.nanos == number);
    assert_eq!(index.object(gone).unwrap().is_none(), is_taken, "{number} is torn");
    assert_eq!(index.unpromised(&[gone]).unwrap().len(), usize::from(is_taken), "{number}");
    let tiered = index.tiered(object(number + 40).0).unwrap();
    assert_eq!(tiered.map(|row| u64::from(row.since_s)), is_taken.then_some(number));
    let mut is_related = false;
    index.relations(usize::MAX, |key, _| is_related |= key == gone.identification().unwrap()).unwrap();
    assert_eq!(is_related, !is_taken, "{number}");
    let (bytes, spot) = index.object(moved.0).unwrap().unwrap();
    assert_eq!(bytes, moved.1.bytes(), "{number} was to be moved, and is lost");
    assert!(spot.pack > 0 || !is_taken, "{number} was moved");
    is_taken
}

#[test]
fn what_takes_away_is_done_as_a_whole_after_a_power_cut_at_any_write() {
    const STEPS: u64 = 6;
    let mut cuts_within = 0;
    for cut in (0..500).step_by(5) {
        let disk = FaultyDisk::default();
        let index = open_on(&disk).unwrap();
        (0..STEPS).for_each(|number| drop(index.commit(&[&batch(number)]).unwrap()));
        (20..20 + STEPS).for_each(|number| drop(index.commit(&[&lone_object(number)]).unwrap()));
        // What is moved comes into another pack.
        index.packs().roll();
        disk.set_writes_left(Some(cut));
        let take = |number: &u64| index.commit(&[&taking(&index, *number)]).is_ok();
        let done = (0..STEPS).take_while(take).count() as u64;
        // Nothing of the first pack is needed any more but by labels of what is gone.
        let is_emptied = done == STEPS && index.packs().remove(0).is_ok();
        for survives in [|_| false, |position| position % 2 == 0, |position| position % 3 != 0, |_| true] {
            let after = open_on(&disk.after_power_cut(survives)).unwrap();
            (0..done).for_each(|number| assert!(is_taken(&after, number), "{number}, cut {cut}"));
            // Checks what may be torn.
            (done..STEPS).for_each(|number| _ = is_taken(&after, number));
            assert!(!is_emptied || after.packs().numbers() == [1]);
            after.commit(&[&batch(100)]).unwrap();
            assert_eq!(parts_present(&after, 100), 3);
        }
        cuts_within += u64::from(done < STEPS);
    }
    assert!(cuts_within > 20, "the cuts missed the commits: {cuts_within}");
}

#[test]
fn a_full_disk_is_reported_and_survived() {
    let disk = FaultyDisk::default();
    let index = open_on(&disk).unwrap();
    index.commit(&[&batch(1)]).unwrap();
    for writes_left in [0, 1, 2, 5, 8] {
        disk.set_writes_left(Some(writes_left));
        let error = index.commit(&[&batch(2)]).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        assert!(error.to_string().contains(": No space left on device"), "{error}");
        disk.set_writes_left(None);
        assert_eq!(parts_present(&index, 1), 3, "{writes_left}");
        assert!(parts_present(&index, 2) < 3, "{writes_left}: the object at most");
    }
    index.commit(&[&batch(2)]).unwrap();
    assert_eq!((parts_present(&index, 1), parts_present(&index, 2)), (3, 3));
}

#[test]
fn a_flipped_bit_in_a_label_or_relation_is_never_an_answer() {
    let key = object(1).0;
    let relation = relation_row(key, &record(1));
    assert_eq!(parse_relation(key.as_bytes(), &relation), Some(record(1)));
    let mut label = [0; LABEL_ROW_LEN];
    label[..32].copy_from_slice(key.as_bytes());
    seal(b"name", &mut label);
    assert!(checked(b"name", &label).is_some() && checked(b"nome", &label).is_none());
    for bit in 0..RELATION_ROW_LEN * 8 {
        let mut row = relation;
        row[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(parse_relation(key.as_bytes(), &row), None, "bit {bit}");
        let mut row = label;
        row[bit / 8 % LABEL_ROW_LEN] ^= 1 << (bit % 8);
        assert_eq!(checked(b"name", &row), None, "bit {bit}");
    }
    let mut other_key = *key.as_bytes();
    other_key[3] ^= 4;
    assert_eq!(parse_relation(&other_key, &relation), None);
}

#[test]
fn failures_of_another_release_are_forgotten_and_not_damage() {
    let (key, application) = (object(1).0, object(2).0.identification().unwrap());
    let failure = Failure { code: FailureCode::BadProcedure, application, detail: Handle::u64(1) };
    let failed = Record { result: failure.to_tree().0, ..record(1) };
    let row = relation_row(key, &failed);
    assert_eq!(parse_relation(key.as_bytes(), &row), Some(failed));
    let mut old = row;
    old[48] &= 0b1111;
    seal(key.as_bytes(), &mut old);
    assert_eq!(parse_relation(key.as_bytes(), &old), None);
    assert!(is_outdated(key.as_bytes(), &old));
    old[3] ^= 1;
    assert!(!is_outdated(key.as_bytes(), &old), "that is damage");
    // Results are of every release.
    assert_eq!(relation_row(key, &record(1))[48] >> RELEASE_SHIFT, 0);
}

#[test]
fn relations_beyond_the_limit_push_others_out() {
    let index = open_on(&FaultyDisk::default()).unwrap();
    for start in (0..2500).step_by(500) {
        let relations = (start..start + 500).map(|n| (object(n).0.identification().unwrap(), record(n)));
        index.commit(&[&Batch { relations: relations.collect(), ..Batch::default() }]).unwrap();
    }
    assert_eq!(index.stats().unwrap().relations, 1000);
    let mut loaded = 0;
    assert_eq!(index.relations(300, |_, _| loaded += 1).unwrap(), 0);
    assert_eq!(loaded, 300);
}

#[test]
fn rubbish_in_place_of_the_index_is_an_error_with_its_path() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("index.redb");
    for rubbish in [vec![0x55; 100_000], b"redb".repeat(5000), vec![0; 4096]] {
        std::fs::write(&path, &rubbish).unwrap();
        let error = open(folder.path()).err().unwrap();
        assert!(error.to_string().contains("index.redb"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), rubbish, "it is left alone");
    }
}

/// Spots that only the database knows, of objects of a disk.
fn settled(disk: &FaultyDisk, objects: u64) -> Index {
    let index = open_on(disk).unwrap();
    for first in (0..objects).step_by(100) {
        let batches: Vec<_> = (first..objects.min(first + 100)).map(lone_object).collect();
        index.commit(&batches.iter().collect::<Vec<_>>()).unwrap();
    }
    drop(index);
    // Without a cache each look-up reads the file.
    open_with_cache(disk, 0).unwrap()
}

#[test]
fn who_must_not_wait_leaves_and_nobody_else_is_told() {
    const OBJECTS: u64 = 3000;
    let disk = FaultyDisk::default();
    let index = settled(&disk, OBJECTS);
    disk.set_slow_one_in(1);
    let reads = disk.reads();
    assert!((0..OBJECTS).all(|number| index.spot_cached(object(number).0).is_none()));
    assert!(disk.reads() - reads >= OBJECTS, "each of them tries, and leaves");
    // Meanwhile others read, write, and are not refused because of who has left.
    disk.set_slow_one_in(40);
    let (mut left, mut came) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..50).for_each(|number| drop(index.commit(&[&batch(OBJECTS + number)]).unwrap())));
        for number in (0..OBJECTS).map(|number| number * 7 % OBJECTS) {
            let (key, bytes) = object(number);
            match index.object_cached(key) {
                Some((found, _)) => {
                    came += 1;
                    assert_eq!(found, bytes.bytes());
                }
                None => left += 1,
            }
            let (found, _) = index.object(key).unwrap().unwrap();
            assert_eq!(found, bytes.bytes());
        }
    });
    assert!(left > 100 && came > 100, "{left} left, {came} came");
    disk.set_slow_one_in(0);
    assert!((0..OBJECTS).all(|number| index.object_cached(object(number).0).is_some()));
    assert_eq!(index.object_cached(object(OBJECTS + 1000).0), None);
    assert_eq!(parts_present(&index, OBJECTS + 49), 3);
}

#[test]
fn a_file_tells_at_once_what_the_kernel_has() {
    let folder = tempdir().unwrap();
    let index = open(folder.path()).unwrap();
    index.commit(&[&lone_object(1)]).unwrap();
    drop(index);
    let index = open(folder.path()).unwrap();
    let cached = index.object_cached(object(1).0);
    // Some file systems cannot tell.
    assert!(cached.is_none_or(|(bytes, _)| bytes == object(1).1.bytes()));
    assert_eq!(index.object_cached(object(2).0), None);
    assert_eq!(parts_present(&index, 1), 1);
}

#[test]
fn what_a_tier_has_since_nobody_knows_when_it_has_since_now() {
    let folder = tempdir().unwrap();
    let database = Builder::new().create(folder.path().join("index.redb")).unwrap();
    let mut old = [0; tiered::UNDATED_LEN];
    // By its own name, and this home has sent it.
    old[0] = 0x41;
    let (sound, damaged) = (Handle::blob(&[1; 70_000]), Handle::blob(&[2; 70_000]));
    seal(sound.as_bytes(), &mut old);
    let transaction = database.begin_write().unwrap();
    let mut table = transaction.open_table(tiered::UNDATED).unwrap();
    table.insert(sound.as_bytes(), &old).unwrap();
    table.insert(damaged.as_bytes(), &old).unwrap();
    drop(table);
    transaction.commit().unwrap();
    drop(database);
    let before = seconds_now();
    for _ in 0..2 {
        let index = open(folder.path()).unwrap();
        let row = index.tiered(sound).unwrap().unwrap();
        assert!(row.since_s >= before && row.is_seen && !row.is_whole, "{row:?}");
        assert_eq!((row.place, index.tiered_len().unwrap()), (Place::Lone, 1));
        assert_eq!(index.tiered(damaged).unwrap(), None);
    }
}
