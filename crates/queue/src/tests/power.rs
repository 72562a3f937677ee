// SPDX-License-Identifier: Apache-2.0
//! The queue over storage that fails and loses power at any write.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{Builder, StorageBackend};

use super::{claim, is_like, keyed, message};
use crate::{Embedded, End, Error, Id, Message, Options, Pushed, Queue, State};

/// A disk in memory: what was written, and what of it a power cut leaves.
#[derive(Clone, Debug, Default)]
struct FaultyDisk(Arc<Mutex<Faulty>>);

#[derive(Debug, Default)]
struct Faulty {
    live: Vec<u8>,
    synced: Vec<u8>,
    /// Writes since the last sync, in order; a length without bytes sets it.
    unsynced: Vec<(u64, Option<Vec<u8>>)>,
    /// Writes that still succeed; `None`: all.
    writes_left: Option<u64>,
    syncs: u64,
}

fn apply(bytes: &mut Vec<u8>, (at, data): &(u64, Option<Vec<u8>>)) {
    let at = *at as usize;
    let Some(data) = data else { return bytes.resize(at, 0) };
    let end = at + data.len();
    bytes.resize(bytes.len().max(end), 0);
    bytes[at..end].copy_from_slice(data);
}

impl FaultyDisk {
    fn write_one(&self, write: (u64, Option<Vec<u8>>)) -> io::Result<()> {
        let mut state = self.0.lock();
        if let Some(left) = &mut state.writes_left {
            *left = left.checked_sub(1).ok_or_else(|| io::Error::from_raw_os_error(28))?;
        }
        apply(&mut state.live, &write);
        state.unsynced.push(write);
        Ok(())
    }

    /// The disk after a power cut: what was synced, and of the rest what
    /// `survives` says, by its position.
    fn after_power_cut(&self, survives: impl Fn(usize) -> bool) -> Self {
        let state = self.0.lock();
        let mut bytes = state.synced.clone();
        let kept = state.unsynced.iter().enumerate().filter(|(position, _)| survives(*position));
        kept.for_each(|(_, write)| apply(&mut bytes, write));
        Self(Arc::new(Mutex::new(Faulty { live: bytes.clone(), synced: bytes, ..Faulty::default() })))
    }

    fn queue(&self) -> Result<Embedded, Error> {
        let disk = self.clone();
        let opener = move || Builder::new().set_cache_size(1 << 20).create_with_backend(disk.clone());
        Embedded::with_opener(Path::new("/queue"), Box::new(opener), Options::default())
    }

    fn syncs(&self) -> u64 {
        self.0.lock().syncs
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
        self.write_one((len, None))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.writes_left == Some(0) {
            return Err(io::Error::from_raw_os_error(28));
        }
        state.syncs += 1;
        let Faulty { synced, unsynced, .. } = &mut *state;
        unsynced.drain(..).for_each(|write| apply(synced, &write));
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_one((offset, Some(data.to_vec())))
    }
}

/// What the queue has promised.
#[derive(Default)]
struct Promises {
    /// Messages that were acknowledged, and their latest acknowledged state.
    held: BTreeMap<u64, (Message, State)>,
}

impl Promises {
    /// Pushes, claims and ends with what a number says.
    fn act(&mut self, queue: &Embedded, number: u64) {
        let pushed = match number % 3 {
            0 => keyed(number, "keyed", &format!("key {number}"), 1 << 40),
            _ => message(number, ["a", "b"][number as usize % 2]),
        };
        if queue.push(pushed.clone(), number).is_ok() {
            self.held.insert(number, (pushed, State::Waiting));
        }
        if number.is_multiple_of(2) {
            return;
        }
        let Ok(Some(claimed)) = queue.claim(number, &|_| usize::MAX) else { return };
        let (end, state) = match number % 5 {
            0 => (End::Dead { reason: "dead".to_owned() }, State::Dead),
            1 => (End::Retry { due_ms: 0, reason: "again".to_owned(), counts: true }, State::Waiting),
            _ => (End::Succeeded(claimed.head.clone()), State::Succeeded),
        };
        if queue.end(claimed.id, end, None, number).is_ok()
            && let Some((_, held)) = self.held.get_mut(&(claimed.id.0 as u64))
        {
            *held = state;
        }
    }

    /// Whether a queue that was opened again keeps all of it.
    fn check(&self, queue: &Embedded) {
        let mut waiting = BTreeMap::new();
        while let Some(claimed) = claim(queue, u64::MAX) {
            assert!(waiting.insert(claimed.id.0 as u64, claimed).is_none(), "one message twice");
        }
        for (number, (message, state)) in &self.held {
            match state {
                // An end that was not acknowledged may have been written all the same.
                State::Waiting | State::Running => match waiting.get(number) {
                    Some(claimed) => assert!(is_like(claimed, message), "{number}"),
                    None => assert!(queue.status(message.id).is_some(), "{number} is lost"),
                },
                State::Succeeded => {
                    assert_eq!(queue.outcome(message.id).unwrap().as_ref(), Some(&message.head));
                    assert!(!waiting.contains_key(number), "{number} is done again");
                }
                State::Dead => {
                    assert_eq!(queue.payload(message.id).unwrap().unwrap().1, message.body);
                    assert_eq!(queue.status(message.id).unwrap().state, State::Dead);
                }
            }
            if message.dedup.is_some() {
                let again = Message { id: Id(u128::MAX), ..message.clone() };
                assert_eq!(queue.push(again, 1).unwrap(), Pushed::Duplicate(message.id));
            }
        }
    }
}

#[test]
fn what_was_acknowledged_survives_a_power_cut() {
    for cut in 0..60_u64 {
        let disk = FaultyDisk::default();
        let queue = disk.queue().unwrap();
        let mut promises = Promises::default();
        for number in 1..=cut {
            promises.act(&queue, number);
        }
        let random = |position: usize| {
            blake3::hash(&(cut << 32 | position as u64).to_le_bytes()).as_bytes()[0] & 1 == 0
        };
        for survives in [&|_| false, &|_| true, &random] as [&dyn Fn(usize) -> bool; 3] {
            promises.check(&disk.after_power_cut(survives).queue().unwrap());
        }
    }
}

#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    for writes in (0..400).step_by(7) {
        let disk = FaultyDisk::default();
        let queue = disk.queue().unwrap();
        let mut promises = Promises::default();
        promises.act(&queue, 1);
        disk.0.lock().writes_left = Some(writes);
        for number in 2..30 {
            promises.act(&queue, number);
        }
        disk.0.lock().writes_left = None;
        // There is room again: it goes on.
        for number in 30..40 {
            promises.act(&queue, number);
        }
        assert!(promises.held.contains_key(&39), "{writes}");
        drop(queue);
        promises.check(&disk.queue().unwrap());
    }
}

#[test]
fn those_who_wait_together_share_a_sync() {
    const THREADS: u64 = 16;
    const EACH: u64 = 50;
    let disk = FaultyDisk::default();
    let queue = Arc::new(disk.queue().unwrap());
    let before = disk.syncs();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let queue = queue.clone();
            let push = move || {
                for step in 0..EACH {
                    queue.push(message(thread * EACH + step, "a"), 0).unwrap();
                }
            };
            std::thread::Builder::new().spawn(push).unwrap()
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let alone = {
        let before = disk.syncs();
        queue.push(message(THREADS * EACH, "a"), 0).unwrap();
        disk.syncs() - before
    };
    let syncs = disk.syncs() - before;
    assert!(syncs < THREADS * EACH * alone / 2, "{syncs} syncs, {alone} for one alone");
}

#[test]
fn an_attempt_that_the_node_did_not_survive_counts() {
    let disk = FaultyDisk::default();
    let queue = disk.queue().unwrap();
    queue.push(message(1, "a"), 0).unwrap();
    claim(&queue, 0).unwrap();
    // The note that it began is not waited for, but it goes with what is.
    queue.push(message(2, "a"), 0).unwrap();
    let queue = disk.after_power_cut(|_| false).queue().unwrap();
    let claimed = claim(&queue, 0).unwrap();
    assert_eq!((claimed.id, claimed.attempt), (Id(1), 2));
    assert!(queue.status(Id(1)).unwrap().reason.contains("ended during"));
}

#[test]
fn damaged_bytes_are_noticed_and_buried() {
    let disk = FaultyDisk::default();
    let queue = disk.queue().unwrap();
    let mut long = message(1, "a");
    long.body = b"a text that is easily found".repeat(400);
    queue.push(long, 0).unwrap();
    drop(queue);
    let found = disk.0.lock().live.windows(6).position(|bytes| bytes == b"easily").unwrap();
    disk.0.lock().live[found] ^= 1;
    let queue = disk.queue().unwrap();
    assert!(matches!(queue.claim(0, &|_| 1), Err(Error::Damaged { .. })));
    let status = queue.status(Id(1)).unwrap();
    assert_eq!(status.state, State::Dead);
    assert!(status.reason.contains("damaged"));
}
