// SPDX-License-Identifier: Apache-2.0
//! The tables on the disk: one redb database.
//!
//! After a failed write redb wants to be opened again; this does so, which
//! takes it back to its last synced commit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parking_lot::RwLock;
use redb::{
    Database as Redb, DatabaseError, Durability, ReadTransaction, ReadableDatabase as _, ReadableTable as _,
    TableDefinition, WriteTransaction,
};

use crate::record::{self, Entry, Key};
use crate::{Error, Id, Note, Payload};

const ENTRIES: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("entries");
const PAYLOADS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("payloads");
const OUTCOMES: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("outcomes");
const KEYS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("keys");
const MARKS: TableDefinition<'_, &str, u64> = TableDefinition::new("marks");
const NOTES: TableDefinition<'_, (u128, &[u8]), &[u8]> = TableDefinition::new("notes");

/// What one caller wants written; all of it in one transaction, or none.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// `None` removes.
    pub(crate) entries: Vec<(Id, Option<Entry>)>,
    pub(crate) payloads: Vec<(Id, Option<Vec<u8>>)>,
    pub(crate) outcomes: Vec<(Id, Option<Vec<u8>>)>,
    pub(crate) keys: Vec<(String, Option<Key>)>,
    pub(crate) marks: Vec<(String, u64)>,
    /// Those of a message that is removed go with it.
    pub(crate) notes: Vec<(Id, Note)>,
}

impl Batch {
    pub(crate) fn bytes(&self) -> usize {
        let long = self.payloads.iter().chain(&self.outcomes);
        let noted: usize = self.notes.iter().map(|(_, (_, value))| value.len()).sum();
        noted + long.map(|(_, row)| row.as_ref().map_or(0, Vec::len)).sum::<usize>()
    }
}

/// All that is kept in memory as well.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) entries: Vec<(Id, Entry)>,
    pub(crate) keys: Vec<(String, Key)>,
    pub(crate) marks: Vec<(String, u64)>,
}

/// Opens the database's storage: a file, or what a test puts in its place.
pub(crate) type Opener = Box<dyn Fn() -> Result<Redb, DatabaseError> + Send + Sync>;

/// The open database.
pub(crate) struct Database {
    path: PathBuf,
    opener: Opener,
    /// `None` after a failed write until it could be opened again.
    open: RwLock<Option<Redb>>,
}

impl Database {
    pub(crate) fn open(path: &Path, opener: Opener) -> Result<Self, Error> {
        let database = Self { path: path.to_owned(), opener, open: RwLock::new(None) };
        database.reopen()?;
        // All tables exist from here on, so that readers need not ask.
        database.commit(&[])?;
        Ok(database)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn reopen(&self) -> Result<(), Error> {
        let mut open = self.open.write();
        // The old one must be gone first: the file is locked.
        *open = None;
        *open = Some(self.guarded(|| (self.opener)().map_err(redb::Error::from))?);
        Ok(())
    }

    /// Turns redb's errors, and its panics over damaged pages, into ours.
    fn guarded<T>(&self, act: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, Error> {
        let io = |source| Error::Io { path: self.path.clone(), source };
        match catch_unwind(AssertUnwindSafe(act)) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(redb::Error::Io(source))) => Err(io(source)),
            Ok(Err(redb::Error::PreviousIo)) => Err(io(std::io::Error::other("an earlier write failed"))),
            Ok(Err(error)) => Err(self.damaged(error.to_string())),
            Err(_) => Err(self.damaged("the database is damaged: reading it panicked".to_owned())),
        }
    }

    pub(crate) fn damaged(&self, reason: String) -> Error {
        Error::Damaged { path: self.path.clone(), reason }
    }

    fn with<T>(&self, act: impl FnOnce(&Redb) -> Result<T, redb::Error>) -> Result<T, Error> {
        if self.open.read().is_none() {
            self.reopen()?;
        }
        let open = self.open.read();
        let database = open.as_ref().ok_or(Error::Closed)?;
        self.guarded(|| act(database))
    }

    fn read<T>(&self, act: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>) -> Result<T, Error> {
        self.with(|database| act(&database.begin_read()?))
    }

    /// Writes all batches in one transaction; it is synced when this returns.
    pub(crate) fn commit(&self, batches: &[&Batch]) -> Result<(), Error> {
        let written = self.with(|database| {
            let mut transaction = database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            write(&transaction, batches)?;
            transaction.commit()?;
            Ok(())
        });
        if written.is_err() {
            *self.open.write() = None;
        }
        written
    }

    /// Head and body of a message.
    pub(crate) fn payload(&self, id: Id) -> Result<Option<Payload>, Error> {
        let row = self.read(|transaction| {
            let table = transaction.open_table(PAYLOADS)?;
            Ok(table.get(id.0)?.map(|row| record::parted(row.value())))
        })?;
        row.map(|row| row.ok_or_else(|| self.damaged(format!("the message {id} is damaged")))).transpose()
    }

    /// What came of a message.
    pub(crate) fn outcome(&self, id: Id) -> Result<Option<Vec<u8>>, Error> {
        let row = self.read(|transaction| {
            let table = transaction.open_table(OUTCOMES)?;
            Ok(table.get(id.0)?.map(|row| record::content(row.value()).map(<[u8]>::to_vec)))
        })?;
        row.map(|row| row.ok_or_else(|| self.damaged(format!("the outcome of {id} is damaged")))).transpose()
    }

    /// What is written down about a message. What is damaged is left out.
    pub(crate) fn notes(&self, id: Id) -> Result<Vec<Note>, Error> {
        self.read(|transaction| {
            let mut notes = Vec::new();
            for row in transaction.open_table(NOTES)?.range((id.0, [].as_slice())..)? {
                let (key, row) = row?;
                let (of, key) = key.value();
                if of != id.0 {
                    break;
                }
                notes.extend(record::content(row.value()).map(|value| (key.to_vec(), value.to_vec())));
            }
            Ok(notes)
        })
    }

    /// Everything that was committed. What is damaged is left out, and told to
    /// the log.
    pub(crate) fn load(&self) -> Result<Loaded, Error> {
        let mut damaged = 0_u64;
        let loaded = self.read(|transaction| {
            let mut loaded = Loaded::default();
            for row in transaction.open_table(ENTRIES)?.iter()? {
                let (id, row) = row?;
                match record::decoded(row.value()) {
                    Some(entry) => loaded.entries.push((Id(id.value()), entry)),
                    None => damaged += 1,
                }
            }
            for row in transaction.open_table(KEYS)?.iter()? {
                let (key, row) = row?;
                loaded.keys.extend(record::decoded(row.value()).map(|found| (key.value().to_owned(), found)));
            }
            for row in transaction.open_table(MARKS)?.iter()? {
                let (name, number) = row?;
                loaded.marks.push((name.value().to_owned(), number.value()));
            }
            Ok(loaded)
        })?;
        if damaged > 0 {
            tracing::error!(damaged, path = %self.path.display(), "messages of the queue are damaged, and lost");
        }
        Ok(loaded)
    }
}

fn write(transaction: &WriteTransaction, batches: &[&Batch]) -> Result<(), redb::Error> {
    let mut entries = transaction.open_table(ENTRIES)?;
    let mut payloads = transaction.open_table(PAYLOADS)?;
    let mut outcomes = transaction.open_table(OUTCOMES)?;
    let mut keys = transaction.open_table(KEYS)?;
    let mut marks = transaction.open_table(MARKS)?;
    let mut notes = transaction.open_table(NOTES)?;
    for batch in batches {
        for (id, (key, value)) in &batch.notes {
            notes.insert((id.0, key.as_slice()), record::checked(value).as_slice())?;
        }
        for (id, entry) in &batch.entries {
            match entry {
                Some(entry) => _ = entries.insert(id.0, record::encoded(entry).as_slice())?,
                None => {
                    entries.remove(id.0)?;
                    let (none, next) = ([].as_slice(), id.0.saturating_add(1));
                    notes.retain_in((id.0, none)..(next, none), |_, _| false)?;
                }
            }
        }
        for (table, rows) in [(&mut payloads, &batch.payloads), (&mut outcomes, &batch.outcomes)] {
            for (id, row) in rows {
                match row {
                    Some(row) => _ = table.insert(id.0, row.as_slice())?,
                    None => _ = table.remove(id.0)?,
                }
            }
        }
        for (name, key) in &batch.keys {
            match key {
                Some(key) => _ = keys.insert(name.as_str(), record::encoded(key).as_slice())?,
                None => _ = keys.remove(name.as_str())?,
            }
        }
        for (name, number) in &batch.marks {
            marks.insert(name.as_str(), number)?;
        }
    }
    Ok(())
}
