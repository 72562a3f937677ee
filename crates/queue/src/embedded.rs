// SPDX-License-Identifier: Apache-2.0
//! The driver in this process: the ledger in memory, and one database.
//!
//! What the ledger decided is handed to the committer while the ledger is
//! locked, so that the disk sees changes in the order in which they were made;
//! their callers wait for the disk with the lock released.

use std::path::Path;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use redb::Builder;
use redb::backends::InMemoryBackend;

use crate::committer::Committer;
use crate::database::{Batch, Database, Opener};
use crate::ledger::Ledger;
use crate::message::{Claimed, End, Pushed, State, Stats, Status};
use crate::record::{Entry, joined};
use crate::{Error, Id, Message, Note, Options, Payload, Queue};

/// Pages that the database keeps in memory.
const CACHE_BYTES: usize = 16 << 20;
/// What one sweep forgets at most, of each kind.
const SWEEP_MAX: usize = 1000;
/// After the disk failed, a message waits for so long.
const DISK_PAUSE_MS: u64 = 30_000;
/// A reason is no longer, in bytes.
const REASON_MAX: usize = 4096;

/// A queue on the disk of this machine, or in the memory of this process.
pub struct Embedded {
    // Dropped first: it uses the database.
    committer: Committer,
    database: Arc<Database>,
    options: Options,
    ledger: Mutex<Ledger>,
    /// Told when a message has arrived, or could not.
    arrived: Condvar,
    /// Held while dead letters and outcomes change: by whoever reads first and
    /// writes then.
    changing: Mutex<()>,
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded").field("path", &self.database.path()).finish_non_exhaustive()
    }
}

impl Embedded {
    /// Opens or makes the queue in this file.
    ///
    /// # Errors
    /// If the file cannot be read as one.
    pub fn open(path: &Path, options: Options) -> Result<Self, Error> {
        let file = path.to_owned();
        let opener = move || Builder::new().set_cache_size(CACHE_BYTES).create(&file);
        Self::with_opener(path, Box::new(opener), options)
    }

    /// A queue that ends with this process.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn in_memory(options: Options) -> Result<Self, Error> {
        let opener = || Builder::new().create_with_backend(InMemoryBackend::new());
        Self::with_opener(Path::new("(memory)"), Box::new(opener), options)
    }

    pub(crate) fn with_opener(path: &Path, opener: Opener, options: Options) -> Result<Self, Error> {
        let database = Arc::new(Database::open(path, opener)?);
        let ledger = Mutex::new(Ledger::of(database.load()?));
        let committer = Committer::start(Arc::clone(&database))?;
        Ok(Self { committer, database, options, ledger, arrived: Condvar::new(), changing: Mutex::new(()) })
    }

    /// Waits until a message with the same key is on the disk; whether it is.
    fn has_arrived(&self, twin: Id, message: &Message, now_ms: u64) -> bool {
        let mut ledger = self.ledger.lock();
        while ledger.is_arriving(twin) {
            self.arrived.wait(&mut ledger);
        }
        // One that could not be written gave its key back.
        ledger.twin(message, now_ms) == Some(twin)
    }

    /// Takes a message, or names the one that has its key.
    fn try_push(&self, message: &Message, now_ms: u64, is_bounded: bool) -> Result<Option<Id>, Error> {
        let entry = new_entry(message, now_ms);
        let payload = joined(&message.head, &message.body);
        let mut ledger = self.ledger.lock();
        if let Some(twin) = ledger.twin(message, now_ms) {
            return Ok(Some(twin));
        }
        if is_bounded {
            ledger.check_room(message, &self.options)?;
        }
        let key = ledger.arrive(message, &entry, now_ms);
        let batch = Batch {
            entries: vec![(message.id, Some(entry.clone()))],
            payloads: vec![(message.id, Some(payload))],
            keys: key.iter().map(|(name, key)| (name.clone(), Some(*key))).collect(),
            marks: message.mark.clone().into_iter().collect(),
            ..Batch::default()
        };
        let begun = self.committer.begin(batch);
        drop(ledger);
        let written = begun.and_then(crate::committer::Pending::wait);
        let mut ledger = self.ledger.lock();
        match &written {
            Ok(()) => {
                ledger.arrived(message.id, entry, message.mark.clone());
                ledger.counts.pushed += 1;
            }
            Err(_) => ledger.turned_back(message.id, &entry, key.as_ref()),
        }
        drop(ledger);
        self.arrived.notify_all();
        written.map(|()| None)
    }

    /// A claimed message as it is to be, with its outcome.
    fn ended(entry: &Entry, end: End, now_ms: u64) -> (Entry, Option<Vec<u8>>) {
        let mut entry = entry.clone();
        match end {
            End::Succeeded(outcome) => {
                entry.state = State::Succeeded;
                entry.ended_ms = now_ms;
                entry.bytes = outcome.len() as u64;
                return (entry, Some(crate::record::checked(&outcome)));
            }
            End::Retry { due_ms, reason, counts } => {
                entry.state = State::Waiting;
                entry.due_ms = due_ms;
                entry.reason = shortened(reason);
                entry.attempts = entry.attempts.saturating_sub(u32::from(!counts));
            }
            End::Dead { reason } => {
                entry.state = State::Dead;
                entry.ended_ms = now_ms;
                entry.reason = shortened(reason);
            }
        }
        (entry, None)
    }

    /// Writes how a message ended, and makes room for its outcome.
    fn write_end(&self, id: Id, end: End, follow: Option<&Message>, now_ms: u64) -> Result<(), Error> {
        let _changing = self.changing.lock();
        let mut ledger = self.ledger.lock();
        let Some(entry) = ledger.entry(id).filter(|entry| entry.state == State::Running) else {
            tracing::error!(%id, "a message ends that is not under way");
            return Ok(());
        };
        let (leaving, bytes) = match end {
            End::Succeeded(_) => (1, entry.bytes),
            End::Retry { .. } | End::Dead { .. } => (0, 0),
        };
        let room = |follow| ledger.check_room_beside(follow, leaving, bytes, &self.options);
        let (end, follow) = match follow.map(room) {
            // What follows is most of what a queue may come to hold: its bounds are those of all.
            Some(Err(error)) => {
                let reason = format!("it was made, but what came of it cannot be sent: {error}");
                (End::Dead { reason }, None)
            }
            _ => (end, follow),
        };
        let (entry, outcome) = Self::ended(entry, end, now_ms);
        let old = match &outcome {
            Some(_) => ledger.old_outcomes(&self.options, now_ms, Some(entry.bytes)),
            None => Vec::new(),
        };
        let mut batch = removal(&old);
        batch.entries.push((id, Some(entry.clone())));
        if outcome.is_some() {
            batch.payloads.push((id, None));
            batch.outcomes.push((id, outcome));
        }
        let mut followed = None;
        if let Some(follow) = follow {
            let entry = new_entry(follow, now_ms);
            ledger.arrive(follow, &entry, now_ms);
            batch.entries.push((follow.id, Some(entry.clone())));
            batch.payloads.push((follow.id, Some(joined(&follow.head, &follow.body))));
            followed = Some((follow.id, entry));
        }
        let begun = self.committer.begin(batch);
        drop(ledger);
        let written = begun.and_then(crate::committer::Pending::wait);
        let mut ledger = self.ledger.lock();
        if written.is_err() {
            followed.iter().for_each(|(id, entry)| ledger.turned_back(*id, entry, None));
            return written;
        }
        old.into_iter().for_each(|id| ledger.change(id, None));
        ledger.change(id, Some(entry));
        followed.into_iter().for_each(|(id, entry)| ledger.arrived(id, entry, None));
        Ok(())
    }

    /// Changes a dead letter; whether it is one.
    fn change_dead(&self, id: Id, change: impl FnOnce(&Entry) -> Option<Entry>) -> Result<bool, Error> {
        let _changing = self.changing.lock();
        let ledger = self.ledger.lock();
        let dead = ledger.entry(id).filter(|entry| entry.state == State::Dead);
        let Some(changed) = dead.map(change) else { return Ok(false) };
        let batch = match &changed {
            Some(entry) => Batch { entries: vec![(id, Some(entry.clone()))], ..Batch::default() },
            None => removal(&[id]),
        };
        let begun = self.committer.begin(batch);
        drop(ledger);
        begun?.wait()?;
        self.ledger.lock().change(id, changed);
        Ok(true)
    }
}

fn new_entry(message: &Message, now_ms: u64) -> Entry {
    Entry {
        lane: message.lane.clone(),
        state: State::Waiting,
        pushed_ms: now_ms,
        created_ms: now_ms,
        due_ms: message.due_ms,
        ended_ms: 0,
        attempts: 0,
        reason: String::new(),
        bytes: message.bytes(),
    }
}

/// What forgets messages.
fn removal(ids: &[Id]) -> Batch {
    Batch {
        entries: ids.iter().map(|id| (*id, None)).collect(),
        payloads: ids.iter().map(|id| (*id, None)).collect(),
        outcomes: ids.iter().map(|id| (*id, None)).collect(),
        ..Batch::default()
    }
}

fn shortened(mut reason: String) -> String {
    if reason.len() > REASON_MAX {
        reason.truncate(reason.floor_char_boundary(REASON_MAX));
        reason.push('…');
    }
    reason
}

impl Queue for Embedded {
    fn push(&self, message: Message, now_ms: u64) -> Result<Pushed, Error> {
        loop {
            let Some(twin) = self.try_push(&message, now_ms, true)? else { return Ok(Pushed::New) };
            // The first one may not have reached the disk, and may never.
            if self.has_arrived(twin, &message, now_ms) {
                self.ledger.lock().counts.duplicates += 1;
                return Ok(Pushed::Duplicate(twin));
            }
        }
    }

    fn claim(&self, now_ms: u64, limit: &dyn Fn(&str) -> usize) -> Result<Option<Claimed>, Error> {
        let (id, entry) = {
            let mut ledger = self.ledger.lock();
            let Some((id, entry)) = ledger.claim(now_ms, limit) else { return Ok(None) };
            // Not waited for: an attempt that kills the node after this was
            // written counts, which is what keeps it from doing so for ever.
            self.committer.note(Batch { entries: vec![(id, Some(entry.clone()))], ..Batch::default() })?;
            (id, entry)
        };
        match self.database.payload(id) {
            Ok(Some((head, body))) => {
                let Entry { lane, attempts: attempt, created_ms, .. } = entry;
                Ok(Some(Claimed { id, lane, attempt, created_ms, head, body }))
            }
            Ok(None) | Err(Error::Damaged { .. }) => {
                let reason = "what it says is damaged on the disk".to_owned();
                self.end(id, End::Dead { reason }, None, now_ms)?;
                Err(self.database.damaged(format!("the message {id} is damaged")))
            }
            Err(error) => {
                let reason = error.to_string();
                let due_ms = now_ms.saturating_add(DISK_PAUSE_MS);
                self.end(id, End::Retry { due_ms, reason, counts: false }, None, now_ms)?;
                Err(error)
            }
        }
    }

    fn next_due(&self) -> Option<u64> {
        self.ledger.lock().next_due()
    }

    fn end(&self, id: Id, end: End, follow: Option<Message>, now_ms: u64) -> Result<(), Error> {
        let written = self.write_end(id, end, follow.as_ref(), now_ms);
        if written.is_err() {
            // At least once: what could not be written down is done again.
            let mut ledger = self.ledger.lock();
            let entry = ledger.entry(id).filter(|entry| entry.state == State::Running).cloned();
            if let Some(mut entry) = entry {
                entry.state = State::Waiting;
                entry.due_ms = now_ms.saturating_add(DISK_PAUSE_MS);
                ledger.change(id, Some(entry));
            }
        }
        written
    }

    fn status(&self, id: Id) -> Option<Status> {
        self.ledger.lock().status(id)
    }

    fn outcome(&self, id: Id) -> Result<Option<Vec<u8>>, Error> {
        self.database.outcome(id)
    }

    fn note(&self, id: Id, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        let ledger = self.ledger.lock();
        if ledger.entry(id).is_none() {
            return Ok(false);
        }
        let notes = vec![(id, (key.to_vec(), value.to_vec()))];
        let begun = self.committer.begin(Batch { notes, ..Batch::default() });
        drop(ledger);
        begun?.wait().map(|()| true)
    }

    fn notes(&self, id: Id) -> Result<Vec<Note>, Error> {
        self.database.notes(id)
    }

    fn recent(&self, lane: &str, limit: usize) -> Vec<Status> {
        self.ledger.lock().recent(lane, limit)
    }

    fn payload(&self, id: Id) -> Result<Option<Payload>, Error> {
        self.database.payload(id)
    }

    fn dead(&self, lane: Option<&str>, after: Option<Id>, limit: usize) -> Vec<Status> {
        self.ledger.lock().dead(lane, after, limit)
    }

    fn redrive(&self, id: Id, now_ms: u64) -> Result<bool, Error> {
        self.change_dead(id, |dead| {
            let mut entry = dead.clone();
            (entry.state, entry.attempts) = (State::Waiting, 0);
            (entry.created_ms, entry.due_ms, entry.ended_ms) = (now_ms, now_ms, 0);
            Some(entry)
        })
    }

    fn purge(&self, id: Id) -> Result<bool, Error> {
        self.change_dead(id, |_| None)
    }

    fn sweep(&self, now_ms: u64) -> Result<(), Error> {
        let _changing = self.changing.lock();
        let mut ledger = self.ledger.lock();
        let dead = ledger.old_dead(&self.options, now_ms);
        let mut old = ledger.old_outcomes(&self.options, now_ms, None);
        let expired = dead.len().min(SWEEP_MAX);
        old.truncate(SWEEP_MAX);
        old.extend_from_slice(&dead[..expired]);
        let keys = ledger.expire_keys(now_ms, SWEEP_MAX);
        if old.is_empty() && keys.is_empty() {
            return Ok(());
        }
        let keys = keys.into_iter().map(|name| (name, None)).collect();
        let begun = self.committer.begin(Batch { keys, ..removal(&old) });
        drop(ledger);
        begun?.wait()?;
        let mut ledger = self.ledger.lock();
        old.into_iter().for_each(|id| ledger.change(id, None));
        ledger.counts.expired += expired as u64;
        if expired > 0 {
            tracing::warn!(expired, "dead letters were kept for as long as they are, and are gone");
        }
        Ok(())
    }

    fn mark(&self, name: &str) -> Option<u64> {
        self.ledger.lock().mark(name)
    }

    fn stats(&self) -> Stats {
        self.ledger.lock().stats()
    }
}
