// SPDX-License-Identifier: Apache-2.0
//! The index: one redb database that says where small objects are, and has the
//! labels and relations.
//!
//! Objects verify themselves by their handle. Labels and relations carry a
//! checksum, so that a flipped bit on the disk never becomes an answer.
//!
//! An object is synced with its pack, and the index only now and then: what it
//! has not synced is found in the packs again. Labels, relations and whatever is
//! taken away are synced with each commit. After a failed write redb wants to be
//! opened again; the index does so, which takes it back to its last synced
//! commit, and reads what the packs have more.

mod file;
mod inline;
mod overlay;
mod recipes;
mod rows;
mod spots;
mod tiered;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use objects::Handle;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use redb::{
    Builder, Database, DatabaseError, Durability, ReadTransaction, ReadableDatabase as _, ReadableTable as _,
    ReadableTableMetadata as _, Table, TableDefinition, WriteTransaction,
};

use crate::labels::LABELS_MAX;
use crate::packs::{Packs, Spot};
use crate::{Error, Object, Recipe, Record, Rule};
#[cfg(test)]
pub(crate) use file::Hurry;
use file::IndexFile;
pub(crate) use rows::{ROWS, RelationRow, Rows};
use spots::{Recent, SPOTS};
pub(crate) use tiered::{PACK_NAME_LEN, Place, Tiered, seconds, seconds_now};

const LABELS: TableDefinition<'_, &str, &[u8; LABEL_ROW_LEN]> = TableDefinition::new("labels");
const RELATIONS: TableDefinition<'_, &[u8; 32], &[u8; RELATION_ROW_LEN]> = TableDefinition::new("relations");

const CHECK_LEN: usize = 8;
/// Handle, checksum.
const LABEL_ROW_LEN: usize = Handle::LEN + CHECK_LEN;
/// Result, fuel, nanoseconds, rule, checksum.
/// Failures of other releases are not remembered: what this platform can run, and how it counts fuel, is
/// of a release, and results are for ever. Grows, modulo 16, with a release in which something succeeds that
/// failed before.
const FAILURES_RELEASE: u8 = 1;
/// Where it stands in the byte of the rule.
const RELEASE_SHIFT: u32 = 4;
const RELATION_ROW_LEN: usize = Handle::LEN + 8 + 8 + 1 + CHECK_LEN;

/// What one caller wants written; all of it in one transaction, or none.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) objects: Vec<(Handle, Object)>,
    pub(crate) relations: Vec<(Handle, Record)>,
    pub(crate) label: Option<(String, Option<Handle>)>,
    /// Objects that are written anew, if they still are at these spots.
    pub(crate) moved: Vec<(Handle, Spot, Object)>,
    /// Objects that nobody needs, or that are damaged, if they still are at these spots.
    pub(crate) dead: Vec<(Handle, Spot)>,
    /// Keys of relations that lead nowhere any more.
    pub(crate) forgotten: Vec<Handle>,
    /// Recipes of objects that are dropped; `None`: it is not needed any more.
    pub(crate) recipes: Vec<(Handle, Option<Recipe>)>,
    /// Objects that the node has written by itself, or that somebody relies on after all.
    pub(crate) unpromised: Vec<(Handle, bool)>,
    /// What the durable tier has by now, and where; `None`: no more.
    pub(crate) tiered: Vec<(Handle, Option<Tiered>)>,
    /// What is to be known of the tier, by name.
    pub(crate) tier_notes: Vec<(&'static str, Vec<u8>)>,
}

impl Batch {
    pub(crate) fn bytes(&self) -> usize {
        let moved = self.moved.iter().map(|(.., object)| object.len());
        self.objects.iter().map(|(_, object)| object.len()).chain(moved).sum()
    }

    /// Whether it does nothing that the packs would tell again.
    fn only_adds(&self) -> bool {
        let Self { objects: _, relations, label, moved, dead, forgotten, recipes, unpromised, .. } = self;
        let takes_nothing = moved.is_empty() && dead.is_empty() && forgotten.is_empty();
        let tells_nothing = relations.is_empty() && label.is_none();
        let is_still = self.tiered.is_empty() && self.tier_notes.is_empty();
        takes_nothing && tells_nothing && recipes.is_empty() && unpromised.is_empty() && is_still
    }
}

/// What a committed batch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Committed {
    /// The label existed before.
    pub(crate) label_existed: bool,
    /// The label was not written: there are too many.
    pub(crate) label_refused: bool,
}

/// Rows of the tables.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IndexStats {
    pub(crate) objects: u64,
    pub(crate) relations: u64,
}

/// Opens the database's storage: a file, or what a test puts in its place.
type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>;

/// The open database.
pub(crate) struct Index {
    path: PathBuf,
    opener: Opener,
    /// More relations than this push others out.
    relations_max: u64,
    packs: Packs,
    recent: RwLock<Recent>,
    /// Held while what is recent changes or is written down: in between, what came meanwhile
    /// would be taken for written.
    writing: Mutex<()>,
    /// `None` after a failed write until it could be opened again.
    database: RwLock<Option<Database>>,
}

impl Index {
    /// Opens or makes the database; brings it to its last synced commit if the
    /// process before us did not close it.
    pub(crate) fn open(
        path: PathBuf,
        cache_bytes: usize,
        relations_max: u64,
        packs: Packs,
    ) -> Result<Self, Error> {
        begin(&path)?;
        let file = path.clone();
        let opener = move || {
            let file = IndexFile::open(&file)?;
            Builder::new().set_cache_size(cache_bytes).create_with_backend(file)
        };
        Self::with_opener(path, Box::new(opener), relations_max, packs)
    }

    /// Opens the database to look at it: what opening it writes stays in memory.
    pub(crate) fn to_look(path: PathBuf, cache_bytes: usize, packs: Packs) -> Result<Self, Error> {
        let file = path.clone();
        let opener = move || {
            let overlay = overlay::Overlay::over(&file).map_err(redb::StorageError::from)?;
            Builder::new().set_cache_size(cache_bytes).create_with_backend(overlay)
        };
        Self::with_opener(path, Box::new(opener), u64::MAX, packs)
    }

    fn with_opener(path: PathBuf, opener: Opener, relations_max: u64, packs: Packs) -> Result<Self, Error> {
        let (recent, database) = (RwLock::default(), RwLock::new(None));
        let writing = Mutex::default();
        let index = Self { path, opener, relations_max, packs, recent, writing, database };
        index.reopen()?;
        index.catch_up()?;
        Ok(index)
    }

    pub(crate) fn packs(&self) -> &Packs {
        &self.packs
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn reopen(&self) -> Result<(), Error> {
        let mut database = self.database.write();
        // The old one must be gone first: the file is locked.
        *database = None;
        *database = Some(self.guarded(|| (self.opener)().map_err(redb::Error::from))?);
        Ok(())
    }

    fn database(&self) -> Result<RwLockReadGuard<'_, Option<Database>>, Error> {
        let guard = self.database.read();
        if guard.is_some() {
            return Ok(guard);
        }
        drop(guard);
        self.reopen()?;
        Ok(self.database.read())
    }

    /// Turns redb's errors, and its panics over damaged pages, into ours.
    fn guarded<T>(&self, act: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, Error> {
        match catch_unwind(AssertUnwindSafe(act)) {
            Ok(Ok(value)) => Ok(value),
            // So it says that the file is none of its own, or too short.
            Ok(Err(redb::Error::Io(source)))
                if matches!(
                    source.kind(),
                    std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof
                ) =>
            {
                Err(self.damaged(source.to_string()))
            }
            Ok(Err(redb::Error::Io(source))) => Err(Error::io(&self.path, source)),
            Ok(Err(redb::Error::PreviousIo)) => {
                Err(Error::io(&self.path, std::io::Error::other("an earlier write failed")))
            }
            Ok(Err(error)) => Err(self.damaged(error.to_string())),
            Err(_) => Err(self.damaged("the database is damaged: reading it panicked".to_owned())),
        }
    }

    fn damaged(&self, reason: String) -> Error {
        Error::Index { path: self.path.clone(), reason }
    }

    fn with_database<T>(&self, act: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, Error> {
        let guard = self.database()?;
        let database = guard.as_ref().ok_or(Error::Closed)?;
        self.guarded(|| act(database))
    }

    fn read<T>(&self, act: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>) -> Result<T, Error> {
        self.with_database(|database| act(&database.begin_read()?))
    }

    pub(crate) fn label(&self, name: &str) -> Result<Option<Handle>, Error> {
        let row = self.read(|transaction| {
            let row = transaction.open_table(LABELS)?.get(name)?;
            Ok(row.map(|row| *row.value()))
        })?;
        row.map(|row| self.parse_label(name, &row)).transpose()
    }

    pub(crate) fn labels(&self) -> Result<Vec<(String, Handle)>, Error> {
        let rows = self.read(|transaction| {
            let mut rows = Vec::new();
            for row in transaction.open_table(LABELS)?.iter()? {
                let (name, handle) = row?;
                rows.push((name.value().to_owned(), *handle.value()));
            }
            Ok(rows)
        })?;
        let parse = |(name, row): (String, _)| self.parse_label(&name, &row).map(|handle| (name, handle));
        rows.into_iter().map(parse).collect()
    }

    fn parse_label(&self, name: &str, row: &[u8; LABEL_ROW_LEN]) -> Result<Handle, Error> {
        let handle = checked(name.as_bytes(), row).and_then(|row| handle_at(row, 0));
        handle.ok_or_else(|| self.damaged(format!("the label {name:?} is damaged: set it again")))
    }

    /// Up to `limit` relations. Damaged ones are left out and counted.
    pub(crate) fn relations(
        &self,
        limit: usize,
        mut found: impl FnMut(Handle, Record),
    ) -> Result<u64, Error> {
        self.read(|transaction| {
            let mut damaged = 0;
            for row in transaction.open_table(RELATIONS)?.iter()?.take(limit) {
                let (key, row) = row?;
                match (Handle::from_bytes(*key.value()), parse_relation(key.value(), row.value())) {
                    (Ok(key), Some(record)) => found(key, record),
                    _ if is_outdated(key.value(), row.value()) => {}
                    _ => damaged += 1,
                }
            }
            Ok(damaged)
        })
    }

    pub(crate) fn stats(&self) -> Result<IndexStats, Error> {
        let new = self.recent.read().new_objects();
        self.read(|transaction| {
            let objects = transaction.open_table(SPOTS)?.len()? + new;
            let relations = transaction.open_table(RELATIONS)?.len()?;
            Ok(IndexStats { objects, relations })
        })
    }

    /// Writes the batches in one transaction and waits until they are synced, one caller
    /// after the other.
    pub(crate) fn commit(&self, batches: &[&Batch]) -> Result<Vec<Committed>, Error> {
        let _alone = self.writing.lock();
        let committed = self.try_commit(batches);
        if committed.is_err() {
            // If this fails too, the next caller tries again.
            let _ = self.reopen();
        }
        committed
    }

    fn try_commit(&self, batches: &[&Batch]) -> Result<Vec<Committed>, Error> {
        // First, so that what is written below is not more than is found again soon.
        if self.knows_enough() {
            self.flush(self.packs.end())?;
        }
        let written = self.write_objects(batches)?;
        let bytes: usize = batches.iter().map(|batch| batch.bytes()).sum();
        self.learn(&written, bytes as u64)?;
        if batches.iter().all(|batch| batch.only_adds()) {
            return Ok(vec![Committed::default(); batches.len()]);
        }
        let committed = self.with_database(|database| {
            let transaction = database.begin_write()?;
            let mut spots = self.write_spots(&transaction, self.packs.end())?;
            spots::take_away(&mut spots, batches)?;
            drop(spots);
            let committed = self.write(&transaction, batches)?;
            recipes::write(&transaction, batches)?;
            tiered::write(&transaction, batches)?;
            commit_synced(transaction)?;
            Ok(committed)
        })?;
        self.flushed();
        Ok(committed)
    }

    /// Writes the batches' objects into a pack, each once; synced when this returns.
    fn write_objects(&self, batches: &[&Batch]) -> Result<Vec<(Handle, Spot)>, Error> {
        let moved = batches.iter().flat_map(|batch| &batch.moved);
        let places = self.spots(moved.clone().map(|(key, ..)| *key))?;
        let moved = moved.zip(places).filter(|((_, from, _), place)| *place == Some(*from));
        let moved = moved.map(|((key, _, object), _)| (*key, object.bytes()));
        let new = batches.iter().flat_map(|batch| &batch.objects).map(|(key, object)| (*key, object.bytes()));
        let mut seen = HashSet::new();
        let objects: Vec<_> = new.chain(moved).filter(|(key, _)| seen.insert(*key)).collect();
        if objects.is_empty() {
            return Ok(Vec::new());
        }
        let spots = self.packs.append(&objects)?;
        Ok(objects.into_iter().map(|(key, _)| key).zip(spots).collect())
    }

    fn write(
        &self,
        transaction: &WriteTransaction,
        batches: &[&Batch],
    ) -> Result<Vec<Committed>, redb::Error> {
        let mut labels = transaction.open_table(LABELS)?;
        let mut relations = transaction.open_table(RELATIONS)?;
        let mut committed = Vec::with_capacity(batches.len());
        for batch in batches {
            for key in &batch.forgotten {
                relations.remove(key.as_bytes())?;
            }
            for (key, record) in &batch.relations {
                relations.insert(key.as_bytes(), &relation_row(*key, record))?;
                self.evict_relation(&mut relations, *key)?;
            }
            let label = batch.label.as_ref();
            let done = label.map(|(name, handle)| write_label(&mut labels, name, *handle)).transpose()?;
            committed.push(done.unwrap_or_default());
        }
        Ok(committed)
    }

    /// Over the limit, the neighbour of the new key goes: keys are hashes, so
    /// that is a random one.
    fn evict_relation(
        &self,
        relations: &mut Table<'_, &[u8; 32], &[u8; RELATION_ROW_LEN]>,
        key: Handle,
    ) -> Result<(), redb::Error> {
        if relations.len()? <= self.relations_max {
            return Ok(());
        }
        let neighbour = match relations.range::<&[u8; 32]>(key.as_bytes()..)?.nth(1) {
            Some(row) => Some(*row?.0.value()),
            None => relations.first()?.map(|(first, _)| *first.value()),
        };
        if let Some(neighbour) = neighbour {
            relations.remove(&neighbour)?;
        }
        Ok(())
    }
}

/// Makes the database if there is none, under another name first: a process that is killed
/// while it makes one leaves a file that is none.
fn begin(path: &Path) -> Result<(), Error> {
    if path.exists() {
        return Ok(());
    }
    let draft = path.with_extension("new");
    match std::fs::remove_file(&draft) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => return Err(Error::io(draft, source)),
        _ => {}
    }
    let made = IndexFile::open(&draft).and_then(|file| Builder::new().create_with_backend(file));
    drop(made.map_err(|error| Error::Index { path: draft.clone(), reason: error.to_string() })?);
    let named = std::fs::rename(&draft, path).and_then(|()| match path.parent() {
        Some(folder) => crate::sync::folder(folder),
        None => Ok(()),
    });
    named.map_err(|source| Error::io(path, source))
}

/// Recovery after a crash must not read the whole database.
fn commit_synced(mut transaction: WriteTransaction) -> Result<(), redb::Error> {
    transaction.set_durability(Durability::Immediate)?;
    transaction.set_quick_repair(true);
    Ok(transaction.commit()?)
}

impl Drop for Index {
    fn drop(&mut self) {
        // What fails is found in the packs again.
        let _ = self.flush(self.packs.end());
    }
}

fn write_label(
    labels: &mut Table<'_, &str, &[u8; LABEL_ROW_LEN]>,
    name: &str,
    handle: Option<Handle>,
) -> Result<Committed, redb::Error> {
    let label_existed = labels.get(name)?.is_some();
    let mut label_refused = false;
    match handle {
        Some(_) if !label_existed && labels.len()? >= LABELS_MAX => label_refused = true,
        Some(handle) => {
            let mut row = [0; LABEL_ROW_LEN];
            row[..Handle::LEN].copy_from_slice(handle.as_bytes());
            seal(name.as_bytes(), &mut row);
            labels.insert(name, &row)?;
        }
        None => {
            labels.remove(name)?;
        }
    }
    Ok(Committed { label_existed, label_refused })
}

fn relation_row(key: Handle, record: &Record) -> [u8; RELATION_ROW_LEN] {
    let mut row = [0; RELATION_ROW_LEN];
    row[..32].copy_from_slice(record.result.as_bytes());
    row[32..40].copy_from_slice(&record.fuel.to_le_bytes());
    row[40..48].copy_from_slice(&record.nanos.to_le_bytes());
    row[48] = record.rule as u8 | release_of(record.result) << RELEASE_SHIFT;
    seal(key.as_bytes(), &mut row);
    row
}

fn parse_relation(key: &[u8; 32], row: &[u8; RELATION_ROW_LEN]) -> Option<Record> {
    let row = checked(key, row)?;
    let number = |at: usize| row.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let (result, rule) = (handle_at(row, 0)?, *row.get(48)?);
    if rule >> RELEASE_SHIFT != release_of(result) {
        return None;
    }
    let rule = Rule::from_u8(rule & !(u8::MAX << RELEASE_SHIFT))?;
    Some(Record { result, fuel: number(32)?, nanos: number(40)?, rule })
}

/// Which release a result has to be of.
fn release_of(result: Handle) -> u8 {
    if result.is_failure() { FAILURES_RELEASE } else { 0 }
}

/// Whether it is a failure of another release, with nothing wrong with it.
fn is_outdated(key: &[u8; 32], row: &[u8; RELATION_ROW_LEN]) -> bool {
    let result = checked(key, row).and_then(|row| handle_at(row, 0));
    result.is_some_and(|result| result.is_failure())
}

fn handle_at(row: &[u8], at: usize) -> Option<Handle> {
    Handle::from_bytes(*row.get(at..)?.first_chunk()?).ok()
}

/// Writes the checksum of key and row into the row's last bytes.
fn seal(key: &[u8], row: &mut [u8]) {
    let (content, check) = row.split_at_mut(row.len() - CHECK_LEN);
    check.copy_from_slice(&checksum(key, content));
}

/// The row without its checksum, if that is right.
fn checked<'a>(key: &[u8], row: &'a [u8]) -> Option<&'a [u8]> {
    let (content, check) = row.split_at_checked(row.len().checked_sub(CHECK_LEN)?)?;
    (checksum(key, content) == *check).then_some(content)
}

fn checksum(key: &[u8], content: &[u8]) -> [u8; CHECK_LEN] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(key).update(content);
    let mut check = [0; CHECK_LEN];
    check.copy_from_slice(&hasher.finalize().as_bytes()[..CHECK_LEN]);
    check
}

#[cfg(test)]
mod tests;
