// SPDX-License-Identifier: Apache-2.0
//! A disk in memory that fails and loses power at any write: the index's file
//! and the packs on it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use redb::StorageBackend;

use crate::Object;
use crate::index::Hurry;
use crate::packs::{Medium, Pack, now};

/// A file: the index, or a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    Index,
    Pack(u32),
}

/// What was written, and what of it a power cut leaves.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultyDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    live: BTreeMap<Name, Vec<u8>>,
    synced: BTreeMap<Name, Vec<u8>>,
    /// Writes that were not synced, in order.
    unsynced: Vec<(Name, Write)>,
    changed: BTreeMap<Name, SystemTime>,
    /// Writes that still succeed; `None`: all.
    writes_left: Option<u64>,
    /// Of so many reads one would have to wait; 0: none.
    slow_one_in: u64,
    reads: u64,
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

fn no_space() -> io::Error {
    io::Error::from_raw_os_error(28)
}

impl FaultyDisk {
    /// How many writes still succeed; `None`: all.
    pub(crate) fn set_writes_left(&self, writes: Option<u64>) {
        self.0.lock().writes_left = writes;
    }

    /// Of so many reads of who must not wait, one would have to; 1: each, 0: none.
    pub(crate) fn set_slow_one_in(&self, reads: u64) {
        self.0.lock().slow_one_in = reads;
    }

    /// How often it was read so far.
    pub(crate) fn reads(&self) -> u64 {
        self.0.lock().reads
    }

    /// Whether the next read would have to wait.
    fn is_slow(&self) -> bool {
        let mut state = self.0.lock();
        state.reads += 1;
        state.slow_one_in > 0 && state.reads.is_multiple_of(state.slow_one_in)
    }

    /// Has a file be as old as this.
    pub(crate) fn set_changed(&self, name: Name, changed: SystemTime) {
        self.0.lock().changed.insert(name, changed);
    }

    /// A file, as a process sees it.
    pub(crate) fn bytes(&self, name: Name) -> Vec<u8> {
        self.0.lock().live.get(&name).cloned().unwrap_or_default()
    }

    /// The disk after a power cut: what was synced, and of the rest what
    /// `survives` says, by its position.
    pub(crate) fn after_power_cut(&self, survives: impl Fn(usize) -> bool) -> Self {
        let state = self.0.lock();
        let mut files = state.synced.clone();
        for (position, (name, write)) in state.unsynced.iter().enumerate() {
            if survives(position) {
                write.apply(files.entry(*name).or_default());
            }
        }
        let changed = state.changed.clone();
        let state = State { live: files.clone(), synced: files, changed, ..State::default() };
        Self(Arc::new(Mutex::new(state)))
    }

    pub(crate) fn file(&self, name: Name) -> File {
        File { disk: self.clone(), name }
    }
}

/// One file of it.
#[derive(Debug)]
pub(crate) struct File {
    disk: FaultyDisk,
    name: Name,
}

impl File {
    fn write_one(&self, write: Write) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        if let Some(left) = &mut state.writes_left {
            *left = left.checked_sub(1).ok_or_else(no_space)?;
        }
        write.apply(state.live.entry(self.name).or_default());
        state.changed.insert(self.name, now());
        state.unsynced.push((self.name, write));
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        let mut guard = self.disk.0.lock();
        let state = &mut *guard;
        if state.writes_left == Some(0) {
            return Err(no_space());
        }
        for (name, write) in std::mem::take(&mut state.unsynced) {
            match name == self.name {
                true => write.apply(state.synced.entry(name).or_default()),
                false => state.unsynced.push((name, write)),
            }
        }
        Ok(())
    }

    fn read_exact(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.disk.0.lock();
        let file = state.live.get(&self.name);
        let bytes = file.and_then(|file| file.get(offset as usize..)?.get(..out.len()));
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn live_len(&self) -> u64 {
        self.disk.0.lock().live.get(&self.name).map_or(0, |file| file.len() as u64)
    }
}

impl StorageBackend for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.live_len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.disk.is_slow() {
            Hurry::or_leave();
        }
        self.read_exact(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.write_one(Write::Len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_one(Write::Bytes(offset, data.to_vec()))
    }
}

impl Pack for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.live_len())
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact(offset, bytes)
    }

    fn read_cached(&self, bytes: &mut [u8], offset: u64) -> bool {
        !self.disk.is_slow() && self.read_exact(offset, bytes).is_ok()
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        // In pieces, so that a cut may come within.
        for (index, piece) in bytes.chunks(500).enumerate() {
            self.write_one(Write::Bytes(offset + index as u64 * 500, piece.to_vec()))?;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.write_one(Write::Len(len))
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn changed(&self) -> io::Result<SystemTime> {
        Ok(self.disk.0.lock().changed.get(&self.name).copied().unwrap_or_else(now))
    }

    fn all(&self, len: u64) -> io::Result<Object> {
        let mut bytes = vec![0; len as usize];
        self.read_exact(0, &mut bytes)?;
        Ok(Object::from_vec(bytes))
    }
}

impl Medium for FaultyDisk {
    fn list(&self) -> io::Result<Vec<u32>> {
        let state = self.0.lock();
        let number = |name: &Name| match name {
            Name::Index => None,
            Name::Pack(number) => Some(*number),
        };
        Ok(state.live.keys().filter_map(number).collect())
    }

    fn create(&self, number: u32) -> io::Result<Arc<dyn Pack>> {
        let mut state = self.0.lock();
        if state.writes_left == Some(0) {
            return Err(no_space());
        }
        let name = Name::Pack(number);
        assert!(state.live.insert(name, Vec::new()).is_none(), "pack {number} is there already");
        state.synced.insert(name, Vec::new());
        drop(state);
        Ok(Arc::new(self.file(name)))
    }

    fn open(&self, number: u32) -> io::Result<Arc<dyn Pack>> {
        Ok(Arc::new(self.file(Name::Pack(number))))
    }

    fn remove(&self, number: u32) -> io::Result<()> {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let name = Name::Pack(number);
        state.live.remove(&name);
        state.synced.remove(&name);
        state.unsynced.retain(|(of, _)| *of != name);
        Ok(())
    }
}
