// SPDX-License-Identifier: Apache-2.0
//! The index over storage that fails and loses power at any write.
#![allow(clippy::unwrap_used)]

use std::io;
use std::sync::Arc;

use objects::Handle;
use parking_lot::Mutex;
use redb::{Builder, StorageBackend};
use tempfile::tempdir;

use super::*;

/// A disk in memory: what was written, and what of it a power cut leaves.
#[derive(Clone, Debug, Default)]
struct FaultyDisk(Arc<Mutex<FaultyState>>);

#[derive(Debug, Default)]
struct FaultyState {
    live: Vec<u8>,
    synced: Vec<u8>,
    /// Writes since the last sync, in order.
    unsynced: Vec<Write>,
    /// Writes that still succeed; `None`: all.
    writes_left: Option<u64>,
}

#[derive(Clone, Debug)]
enum Write {
    Bytes(u64, Vec<u8>),
    Len(u64),
}

impl Write {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Len(len) => bytes.resize(*len as usize, 0),
            Self::Bytes(offset, data) => {
                let end = *offset as usize + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*offset as usize..end].copy_from_slice(data);
            }
        }
    }
}

impl FaultyDisk {
    fn write_one(&self, write: Write) -> io::Result<()> {
        let mut state = self.0.lock();
        if let Some(left) = &mut state.writes_left {
            *left = left.checked_sub(1).ok_or_else(|| io::Error::from_raw_os_error(28))?;
        }
        write.apply(&mut state.live);
        state.unsynced.push(write);
        Ok(())
    }

    /// The disk after a power cut: what was synced, and of the rest what
    /// `survives` says, by its position.
    fn after_power_cut(&self, survives: impl Fn(usize) -> bool) -> Self {
        let state = self.0.lock();
        let mut bytes = state.synced.clone();
        let kept = state.unsynced.iter().enumerate().filter(|(position, _)| survives(*position));
        kept.for_each(|(_, write)| write.apply(&mut bytes));
        let state = FaultyState { live: bytes.clone(), synced: bytes, ..FaultyState::default() };
        Self(Arc::new(Mutex::new(state)))
    }

    fn index(&self) -> Result<Index, Error> {
        let disk = self.clone();
        let opener = move || Builder::new().set_cache_size(1 << 20).create_with_backend(disk.clone());
        Index::with_opener("/index".into(), Box::new(opener), 1000)
    }
}

impl StorageBackend for FaultyDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().live.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.lock();
        let bytes = state.live.get(offset as usize..).and_then(|bytes| bytes.get(..out.len()));
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.write_one(Write::Len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.writes_left == Some(0) {
            return Err(io::Error::from_raw_os_error(28));
        }
        let FaultyState { synced, unsynced, .. } = &mut *state;
        unsynced.drain(..).for_each(|write| write.apply(synced));
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_one(Write::Bytes(offset, data.to_vec()))
    }
}

fn object(number: u64) -> (Handle, Object) {
    let mut bytes = vec![number as u8; 40 + (number as usize * 97) % 3000];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    (Handle::blob(&bytes), Object::from_vec(bytes))
}

fn record(number: u64) -> Record {
    Record { result: object(number).0, rule: Rule::Select, nanos: number, fuel: !number }
}

/// An object, a relation to it and a label for it, all or none.
fn batch(number: u64) -> Batch {
    let (key, object) = object(number);
    Batch {
        objects: vec![(key, object)],
        relations: vec![(key.identification().unwrap(), record(number))],
        label: Some((format!("label-{number}"), Some(key))),
        removed: Vec::new(),
    }
}

/// How much of `batch(number)` is there; what is there must be right.
fn parts_present(index: &Index, number: u64) -> usize {
    let (key, object) = object(number);
    let stored = index.object(key).unwrap();
    assert!(stored.as_deref().is_none_or(|bytes| bytes == object.bytes()));
    let label = index.label(&format!("label-{number}")).unwrap();
    assert!(label.is_none_or(|label| label == key));
    let mut related = false;
    index
        .relations(usize::MAX, |found, is| {
            related |= found == key.identification().unwrap() && is == record(number)
        })
        .unwrap();
    usize::from(stored.is_some()) + usize::from(label.is_some()) + usize::from(related)
}

#[test]
fn a_batch_is_written_as_a_whole_and_read_back() {
    let folder = tempdir().unwrap();
    let open = || Index::open(folder.path().join("index.redb"), 1 << 20, 1000).unwrap();
    let index = open();
    assert_eq!(parts_present(&index, 1), 0);
    let batches = [batch(1), batch(2)];
    let committed = index.commit(&batches.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(committed, [Committed::default(); 2]);
    drop(index);
    let index = open();
    assert_eq!((parts_present(&index, 1), parts_present(&index, 2), parts_present(&index, 3)), (3, 3, 0));
    assert_eq!(index.labels().unwrap(), [("label-1".into(), object(1).0), ("label-2".into(), object(2).0)]);
    assert_eq!(index.absent([object(1).0, object(3).0].into_iter()).unwrap(), [object(3).0]);
    let removal =
        Batch { removed: vec![object(1).0], label: Some(("label-1".into(), None)), ..Batch::default() };
    assert!(index.commit(&[&removal]).unwrap()[0].label_existed);
    assert!(!index.commit(&[&removal]).unwrap()[0].label_existed);
    assert_eq!((index.object(object(1).0).unwrap(), index.label("label-1").unwrap()), (None, None));
}

#[test]
fn what_was_acknowledged_survives_a_power_cut_at_any_write() {
    let mut cuts_within_commits = 0;
    for cut in (0..400).step_by(3) {
        let disk = FaultyDisk::default();
        let Ok(index) = disk.index() else { unreachable!() };
        disk.0.lock().writes_left = Some(cut);
        let acknowledged =
            (0..12).take_while(|number| index.commit(&[&batch(*number)]).is_ok()).count() as u64;
        for (pattern, survives) in
            [|_| false, |position| position % 2 == 0, |position| position % 3 != 0, |_| true]
                .iter()
                .enumerate()
        {
            let after = disk.after_power_cut(survives).index().unwrap();
            for number in 0..acknowledged {
                assert_eq!(parts_present(&after, number), 3, "cut {cut}, pattern {pattern}, object {number}");
            }
            let torn = parts_present(&after, acknowledged);
            assert!(torn == 0 || torn == 3, "cut {cut}, pattern {pattern}: {torn} of 3 parts");
            after.commit(&[&batch(100)]).unwrap();
            assert_eq!(parts_present(&after, 100), 3);
        }
        cuts_within_commits += u64::from(acknowledged < 12);
    }
    assert!(cuts_within_commits > 20, "the cuts missed the commits: {cuts_within_commits}");
}

#[test]
fn a_full_disk_is_reported_and_survived() {
    let disk = FaultyDisk::default();
    let index = disk.index().unwrap();
    index.commit(&[&batch(1)]).unwrap();
    for writes_left in [0, 1, 2, 5] {
        disk.0.lock().writes_left = Some(writes_left);
        let error = index.commit(&[&batch(2)]).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        assert!(error.to_string().starts_with("/index: No space left on device"), "{error}");
        disk.0.lock().writes_left = None;
        assert_eq!((parts_present(&index, 1), parts_present(&index, 2)), (3, 0), "{writes_left}");
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
fn relations_beyond_the_limit_push_others_out() {
    let index = FaultyDisk::default().index().unwrap();
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
        let error = Index::open(path.clone(), 1 << 20, 10).err().unwrap();
        assert!(error.to_string().contains("index.redb"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), rubbish, "it is left alone");
    }
}
