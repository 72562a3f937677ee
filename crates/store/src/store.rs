// SPDX-License-Identifier: Apache-2.0
//! The store: both tiers, labels and relations behind one type.
//!
//! `keep_*` and [`Store::local`] are the hot path and touch the memory tier
//! only. Everything that returns a `Result` may block on the disk.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use objects::{BundleRecord, Handle, Named, TreeView};
use parking_lot::Mutex;

use crate::background::{Background, Signal, Work};
use crate::closure::Closure;
use crate::disk::Disk;
use crate::files::{Files, Kind, is_large, object_len};
use crate::labels::{MemoryLabels, check_name};
use crate::memory::{CLOSURE_DURABLE, DURABLE, Memory, PASSING, READ, STORED};
use crate::outboard::is_partial;
use crate::tier::Sending;
use crate::{BlobWriter, Error, LentMemory, Object, Relations};

/// Memory that the index may use for pages of its file.
const INDEX_CACHE_BYTES_MIN: u64 = 1 << 20;
const INDEX_CACHE_BYTES_MAX: u64 = 64 << 20;
/// Relations on disk, for each that fits into memory.
const DISK_RELATIONS_FACTOR: u64 = 4;

/// Trees of up to so many bytes are copied before it is known whether they
/// are new.
const COPIED_AHEAD_MAX: usize = 512;

/// How to open a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of the disk tier; `None`: memory only.
    pub home: Option<PathBuf>,
    /// Budget of the memory tier, in bytes. With a disk, beyond it objects are
    /// evicted; without one, puts fail, and [`Store::reclaim`] makes room.
    pub memory_bytes: u64,
    /// Budget of the relations in memory, in bytes.
    pub relations_bytes: u64,
}

/// Counts and sizes at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Objects in the memory tier.
    pub memory_objects: u64,
    /// What they cost, in bytes.
    pub memory_bytes: u64,
    /// The memory tier's budget, in bytes.
    pub memory_budget_bytes: u64,
    /// Look-ups that the memory tier answered.
    pub memory_hits: u64,
    /// Look-ups that it did not.
    pub memory_misses: u64,
    /// Objects dropped from memory.
    pub evictions: u64,
    /// Objects written to disk because memory ran short.
    pub spilled: u64,
    /// Objects on disk.
    pub disk_objects: u64,
    /// Bytes of their files and of the index.
    pub disk_bytes: u64,
    /// Objects read from disk.
    pub disk_reads: u64,
    /// Bytes of them, as far as they were looked at; of outboards too.
    pub disk_read_bytes: u64,
    /// Objects that collections have taken from the disk.
    pub collected: u64,
    /// Objects that were dropped, or damaged, and can be made again.
    pub recipes: u64,
    /// Objects and relations found damaged.
    pub corrupt: u64,
    /// Results known.
    pub relations: u64,
    /// Claims held.
    pub claims: u64,
    /// Bytes of their table.
    pub relations_bytes: u64,
    /// Look-ups that found a result.
    pub relation_hits: u64,
    /// Look-ups that found none.
    pub relation_misses: u64,
    /// Results dropped from memory.
    pub relation_evictions: u64,
    /// Results on disk.
    pub disk_relations: u64,
    /// Results not written to disk since too many waited.
    pub relations_unwritten: u64,
    /// Failed writes of the background thread.
    pub background_failures: u64,
}

/// A store. Share it as `Arc<Store>`.
pub struct Store {
    pub(crate) memory: Arc<Memory>,
    relations: Arc<Relations>,
    /// Those of a store without a disk.
    labels: MemoryLabels,
    disk: Option<OnDisk>,
}

/// What a store with a disk has more.
struct OnDisk {
    // Dropped first: they use the disk.
    sending: Mutex<Option<Sending>>,
    background: Background,
    disk: Arc<Disk>,
    damaged_relations: u64,
}

impl Store {
    /// Opens the store, makes the home folder if there is none, and loads the
    /// relations that were written.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process uses the home,
    /// [`Error::UnknownFormat`] if another version wrote it, else
    /// [`Error::Io`] and [`Error::Index`].
    pub fn open(options: Options) -> Result<Self, Error> {
        Self::open_as(options, Kind::Home)
    }

    /// [`Store::open`] of a folder of any kind.
    pub(crate) fn open_as(options: Options, kind: Kind) -> Result<Self, Error> {
        let signal = options.home.is_some().then(|| Arc::new(Signal::default()));
        let memory = Arc::new(Memory::new(options.memory_bytes, signal.clone()));
        let relations = Arc::new(Relations::new(options.relations_bytes, signal.clone()));
        let mut store = Self { memory, relations, labels: MemoryLabels::default(), disk: None };
        if let (Some(home), Some(signal)) = (&options.home, signal) {
            let cache_bytes = (options.memory_bytes / 16).clamp(INDEX_CACHE_BYTES_MIN, INDEX_CACHE_BYTES_MAX);
            let relations_max = store.relations.capacity() as u64 * DISK_RELATIONS_FACTOR;
            let disk =
                Arc::new(Disk::over(Files::open_as(home, kind)?, cache_bytes as usize, relations_max)?);
            let load = |key, record| {
                store.relations.insert_quietly(key, record);
            };
            let damaged_relations = disk.index().relations(store.relations.capacity(), load)?;
            let work = Work {
                memory: Arc::clone(&store.memory),
                disk: Arc::clone(&disk),
                relations: Arc::clone(&store.relations),
                signal,
                writing_relations: Mutex::new(()),
                failures: AtomicU64::new(0),
                spilled: AtomicU64::new(0),
            };
            let background = Background::start(Arc::new(work))?;
            let sending = Mutex::default();
            store.disk = Some(OnDisk { sending, background, disk, damaged_relations });
        }
        Ok(store)
    }

    /// Has these threads end before the disk is closed.
    pub(crate) fn keep_sending(&self, sending: Sending) {
        if let Some(on_disk) = &self.disk {
            *on_disk.sending.lock() = Some(sending);
        }
    }

    pub(crate) fn disk(&self) -> Option<&Arc<Disk>> {
        self.disk.as_ref().map(|tier| &tier.disk)
    }

    /// The object, if it is in the memory tier. Any kind of handle names its
    /// data: a ref its object, a thunk or encode its definition. Literals are
    /// in their handle, not here: `None`.
    #[inline]
    pub fn local(&self, handle: Handle) -> Option<Object> {
        self.memory.get(handle.plain_tree())
    }

    /// Keeps a derived tree in memory. Not durable; see [`Store::persist`].
    #[inline]
    pub fn keep_tree(&self, tree: TreeView<'_>) -> Handle {
        let handle = tree.handle();
        // Most trees that are made are applied next; both tables are too large
        // for the cache, so that their lines had better come together.
        self.memory.prefetch(handle);
        if let Some(thunk) = handle.application() {
            self.relations.prefetch(thunk);
        }
        if tree.as_bytes().len() > COPIED_AHEAD_MAX {
            self.memory.insert_with(handle, 0, || Object::copy_of(tree.as_bytes()));
        } else {
            // While the lines come: most trees are new.
            let object = Object::copy_of(tree.as_bytes());
            self.memory.insert_with(handle, 0, || object);
        }
        handle
    }

    /// Keeps a derived blob in memory; up to 30 bytes are a literal.
    #[inline]
    pub fn keep_blob(&self, bytes: &[u8]) -> Handle {
        let handle = Handle::blob(bytes);
        if handle.literal_bytes().is_none() {
            self.memory.insert_with(handle, 0, || Object::copy_of(bytes));
        }
        handle
    }

    /// [`Store::keep_blob`] that takes the bytes over, without a copy if they are many.
    pub fn keep_blob_vec(&self, bytes: Vec<u8>) -> Handle {
        let handle = Handle::blob(&bytes);
        if handle.literal_bytes().is_none() {
            self.memory.insert_with(handle, 0, || Object::from_vec(bytes));
        }
        handle
    }

    /// [`Store::keep_blob`] for what is of use only once, as a request is: it
    /// is never written to disk. Whoever is done with it says so
    /// ([`Store::drop_passed`]); else it is dropped when its memory is needed
    /// and nobody holds it.
    pub fn pass_blob(&self, bytes: &[u8]) -> Handle {
        self.pass(Named::blob(bytes))
    }

    /// [`Store::pass_blob`] of what has its name already, blob or tree.
    pub fn pass(&self, object: Named<'_>) -> Handle {
        let handle = object.handle();
        if handle.literal_bytes().is_none() {
            self.memory.insert_with(handle, PASSING, || Object::copy_of(object.bytes()));
        }
        handle
    }

    /// [`Store::pass_blob`] that takes the bytes over.
    pub fn pass_blob_vec(&self, bytes: Vec<u8>) -> Handle {
        let handle = Handle::blob(&bytes);
        if handle.literal_bytes().is_none() {
            self.memory.insert_with(handle, PASSING, || Object::from_vec(bytes));
        }
        handle
    }

    /// [`Store::pass_blob`] of memory that processes share; others are handed it as such
    /// ([`Object::descriptor`]).
    pub fn pass_sealed(&self, memory: linux::Sealed) -> Handle {
        self.insert_sealed(memory, PASSING)
    }

    /// [`Store::keep_blob`] of the same.
    pub fn keep_sealed(&self, memory: linux::Sealed) -> Handle {
        self.insert_sealed(memory, 0)
    }

    /// [`Store::pass_blob`] of bytes that stand for memory, which lives for as long as they do: others are
    /// handed it ([`Object::descriptor`]). They are different each time.
    pub fn pass_lent(&self, bytes: Vec<u8>, memory: LentMemory) -> Handle {
        let handle = Handle::blob(&bytes);
        debug_assert!(handle.literal_bytes().is_none(), "a handle alone cannot have memory");
        self.memory.insert_with(handle, PASSING, || Object::lent(bytes, memory));
        handle
    }

    fn insert_sealed(&self, memory: linux::Sealed, state: u8) -> Handle {
        let handle = Handle::blob(&memory);
        if handle.literal_bytes().is_none() {
            self.memory.insert_with(handle, state, || Object::sealed(memory));
        }
        handle
    }

    /// [`Store::pass_blob`] for a tree.
    pub fn pass_tree(&self, tree: TreeView<'_>) -> Handle {
        self.pass(Named::tree(tree))
    }

    /// Whoever passed this on needs it no more; once for each time. What others
    /// still pass on, or have stored, stays.
    pub fn drop_passed(&self, handle: Handle) {
        if handle.literal_bytes().is_none() {
            self.memory.drop_passed(handle.plain_tree());
        }
    }

    /// Whether memory is used up and nothing can be evicted, since there is no
    /// disk. Puts fail then; keeping still works, so whoever starts work that
    /// keeps much should ask first.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.disk.is_none() && self.memory.lacking_bytes(0) > 0
    }

    /// Whether `keep_*` of so many bytes would wait for nothing now: where more is kept than
    /// the memory tier is to have, whoever keeps waits a moment for what is written away.
    #[inline]
    pub fn keeps_at_once(&self, bytes: u64) -> bool {
        self.memory.lacking_bytes(bytes) == 0
    }

    /// For whoever keeps what a user sends.
    ///
    /// # Errors
    /// [`Error::Full`] if [`Store::is_full`].
    pub fn has_room(&self) -> Result<(), Error> {
        if !self.is_full() {
            return Ok(());
        }
        let budget_bytes = self.memory.budget_bytes();
        Err(Error::Full { needed_bytes: self.memory.lacking_bytes(0), budget_bytes })
    }

    /// For whoever writes much that can be had again: a twentieth of the disk, 4 GiB at
    /// most, is left to what is put. Without a disk as [`Store::has_room`].
    ///
    /// # Errors
    /// [`Error::Scarce`], [`Error::Full`]; [`Error::Io`] if the disk does not tell.
    pub fn has_spare_room(&self) -> Result<(), Error> {
        self.disk().map_or_else(|| self.has_room(), |disk| disk.files().spare())
    }

    /// Whether it is time for [`Store::reclaim`]: three quarters of the memory
    /// are used up, and nothing can be evicted.
    pub fn is_nearly_full(&self) -> bool {
        self.disk.is_none() && self.memory.used_bytes() > self.memory.budget_bytes() / 4 * 3
    }

    /// The object from memory, disk or tier; a literal from its handle. Verified:
    /// small objects whenever they come from disk, large ones once.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the stored bytes are not the object's; they are
    /// moved aside, so afterwards the object is absent. [`Error::Io`],
    /// [`Error::Index`] if the disk cannot be read.
    pub fn get(&self, handle: Handle) -> Result<Option<Object>, Error> {
        match self.get_here(handle) {
            Ok(None) => self.bring(handle),
            // It was moved aside; the tier may have it as it was.
            Err(error @ Error::Corrupt { .. }) => self.bring(handle)?.map(Some).ok_or(error),
            here => here,
        }
    }

    /// [`Store::get`] of what is in memory or on the disk, however long the tier takes.
    ///
    /// # Errors
    /// As there.
    pub fn get_here(&self, handle: Handle) -> Result<Option<Object>, Error> {
        if let Some(literal) = handle.literal_bytes() {
            return Ok(Some(Object::copy_of(literal)));
        }
        let key = handle.plain_tree();
        if let Some(object) = self.memory.get(key) {
            return Ok(Some(object));
        }
        let Some(disk) = self.disk() else { return Ok(None) };
        let _stays = disk.stay();
        self.read(disk, key)
    }

    /// [`Store::get`] for threads that must not wait for a disk: what is in memory, or small and in
    /// the kernel's memory, verified as ever. `None` says nothing: whoever may wait has to ask.
    pub fn get_at_once(&self, handle: Handle) -> Option<Object> {
        let key = handle.plain_tree();
        if let Some(object) = self.memory.get(key) {
            return Some(object);
        }
        // Over its budget memory makes who brings more wait until something was written.
        let disk = self.disk().filter(|_| self.memory.lacking_bytes(object_len(key)) == 0)?;
        let _stays = disk.try_stay()?;
        let object = disk.read_cached(key)?;
        self.memory.insert_with(key, DURABLE | READ, || object.clone());
        Some(object)
    }

    /// Whoever has made something else of an object does not need it in memory any more: it leaves
    /// if it is on the disk and nobody holds it. Else nothing happens.
    pub fn let_go(&self, handle: Handle) {
        if handle.literal_bytes().is_none() {
            self.memory.let_go(handle.plain_tree());
        }
    }

    /// Reads from the disk, for who stays.
    fn read(&self, disk: &Disk, key: Handle) -> Result<Option<Object>, Error> {
        let object = disk.read(key)?;
        if let Some(object) = &object {
            self.memory.insert_with(key, DURABLE | READ, || object.clone());
        }
        Ok(object)
    }

    /// Whether a part of the object can be read without the rest: it has 1 MiB or more.
    pub fn is_partial(handle: Handle) -> bool {
        is_partial(handle.plain_tree())
    }

    /// These bytes of an object; what is past its end is left out. Of a large object
    /// on the disk, no more is read and verified than the groups of 16 KiB that they
    /// are in; it does not come into memory.
    ///
    /// # Errors
    /// As [`Store::get`]: damage is found in what is read.
    pub fn read_range(&self, handle: Handle, range: Range<u64>) -> Result<Option<Vec<u8>>, Error> {
        let far = |range| match is_partial(handle.plain_tree()) {
            true => self.bring_part(handle.plain_tree(), range),
            false => Ok(self.bring(handle)?.and_then(|object| part_of(&object, &range))),
        };
        let end = range.end.min(object_len(handle.plain_tree()));
        let range = range.start.min(end)..end;
        match self.read_range_here(handle, range.clone()) {
            Ok(None) => far(range),
            // It was moved aside; the tier may have it as it was.
            Err(error @ Error::Corrupt { .. }) => far(range)?.map(Some).ok_or(error),
            here => here,
        }
    }

    /// [`Store::read_range`] of what is in memory or on the disk, however long the tier takes.
    ///
    /// # Errors
    /// As there.
    pub fn read_range_here(&self, handle: Handle, range: Range<u64>) -> Result<Option<Vec<u8>>, Error> {
        let key = handle.plain_tree();
        let end = range.end.min(object_len(key));
        let range = range.start.min(end)..end;
        if is_partial(key)
            && let Some(disk) = self.disk()
            && self.memory.state(key).is_none()
        {
            return disk.read_part(key, range);
        }
        let object = self.get_here(handle)?;
        Ok(object.and_then(|object| part_of(&object, &range)))
    }

    /// Whether [`Store::get`] would find the object; its bytes are not verified.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Index`] if the disk cannot be read.
    pub fn contains(&self, handle: Handle) -> Result<bool, Error> {
        Ok(self.is_here(handle)? || self.is_far(handle)?)
    }

    /// Whether the object is here, a tree with all that it names; then it counts as put
    /// now, for somebody relies on it ([`Store::collect`]).
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Index`]; [`Error::Corrupt`] for a damaged object.
    pub fn renew(&self, handle: Handle) -> Result<bool, Error> {
        let key = handle.plain_tree();
        let Some(disk) = self.disk() else { return self.contains(handle) };
        if handle.literal_bytes().is_some() || self.is_renewed(disk, key)? {
            return Ok(true);
        }
        // Only what is nowhere else waits for the tier.
        let Some((far, _)) = disk.far_place(key)? else { return Ok(false) };
        far.await_trust();
        self.is_renewed(disk, key)
    }

    fn is_renewed(&self, disk: &Disk, key: Handle) -> Result<bool, Error> {
        let _stays = disk.stay();
        if key.names_tree() {
            let mut closure = Closure::strict(&self.memory, disk);
            if !closure.walk(key)? {
                return Ok(false);
            }
            disk.promise(closure.visited())?;
            disk.note_put(closure.visited());
        }
        if !disk.contains(key)? {
            match disk.far_place(key)?.filter(|(far, _)| far.is_trusted()) {
                Some((far, row)) if !row.is_damaged => far.rely(disk, key, &row)?,
                Some((far, _)) => {
                    // Memory may have the only one.
                    let Some((object, _)) = self.memory.peek(key) else { return Ok(false) };
                    disk.write(&[(key, object)], Vec::new())?;
                    far.note_put(std::iter::once(key));
                }
                None => return Ok(self.memory.state(key).is_some()),
            }
            return Ok(true);
        }
        disk.promise(std::iter::once(key))?;
        disk.note_put(std::iter::once(key));
        disk.files().sync_new_names()?;
        if is_large(key) {
            disk.renew(key)?;
        } else if let Some(object) = self.read(disk, key)? {
            disk.write(&[(key, object)], Vec::new())?;
        }
        Ok(true)
    }

    /// Whether it is in memory or on the disk; its bytes are not verified.
    ///
    /// # Errors
    /// As [`Store::contains`].
    pub fn is_here(&self, handle: Handle) -> Result<bool, Error> {
        let key = handle.plain_tree();
        if handle.literal_bytes().is_some() || self.memory.state(key).is_some() {
            return Ok(true);
        }
        self.disk().map_or(Ok(false), |disk| disk.contains(key))
    }

    /// Stores a blob. With a disk, it is synced when this returns.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Index`]; without a disk [`Error::Full`].
    pub fn put_blob(&self, bytes: &[u8]) -> Result<Handle, Error> {
        let handle = Handle::blob(bytes);
        if handle.literal_bytes().is_none() {
            self.put(vec![(handle, bytes)])?;
        }
        Ok(handle)
    }

    /// Stores a tree; as [`Store::put_blob`]. Its entries need not be here.
    ///
    /// # Errors
    /// As [`Store::put_blob`].
    pub fn put_tree(&self, tree: TreeView<'_>) -> Result<Handle, Error> {
        let handle = tree.handle();
        self.put(vec![(handle, tree.as_bytes())])?;
        Ok(handle)
    }

    /// Stores the objects of a bundle, with one sync for all small ones, and
    /// returns each record's handle, a goal's included.
    ///
    /// # Errors
    /// As [`Store::put_blob`]; then some of the objects may be stored.
    pub fn put_many(&self, records: &[BundleRecord<'_>]) -> Result<Vec<Handle>, Error> {
        let handle_of = |record: &BundleRecord<'_>| match record {
            BundleRecord::Blob(bytes) => Handle::blob(bytes),
            BundleRecord::Tree(tree) => tree.handle(),
            BundleRecord::Goal(goal) => *goal,
        };
        let handles: Vec<Handle> = records.iter().map(handle_of).collect();
        let stored = records.iter().zip(&handles).filter_map(|(record, handle)| match record {
            BundleRecord::Blob(bytes) if handle.literal_bytes().is_none() => Some((*handle, *bytes)),
            BundleRecord::Tree(tree) => Some((*handle, tree.as_bytes())),
            _ => None,
        });
        self.put(stored.collect())?;
        Ok(handles)
    }

    fn put(&self, items: Vec<(Handle, &[u8])>) -> Result<(), Error> {
        let objects = items.into_iter().map(|(key, bytes)| (key, Object::copy_of(bytes))).collect();
        put_objects(&self.memory, self.disk().map(Arc::as_ref), objects)
    }

    /// A writer for a blob whose bytes arrive piece by piece.
    ///
    /// # Errors
    /// None now; the disk is first touched by [`BlobWriter::write`].
    pub fn blob_writer(&self) -> Result<BlobWriter, Error> {
        Ok(BlobWriter::new(Arc::clone(&self.memory), self.disk().cloned()))
    }

    /// Makes the object and everything local that is reachable through it
    /// durable. Without a disk this does nothing.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Index`]; [`Error::Corrupt`] if an object on the
    /// way is damaged.
    pub fn persist(&self, handle: Handle) -> Result<(), Error> {
        let Some(disk) = self.disk() else { return Ok(()) };
        let _stays = disk.stay();
        self.persist_here(disk, handle)
    }

    /// [`Store::persist`] for who stays.
    fn persist_here(&self, disk: &Disk, handle: Handle) -> Result<(), Error> {
        let state = self.memory.state(handle.plain_tree());
        if handle.literal_bytes().is_some() || state.is_some_and(|state| state & CLOSURE_DURABLE != 0) {
            return Ok(());
        }
        let mut closure = Closure::new(&self.memory, disk);
        closure.walk(handle)?;
        closure.finish(Vec::new())
    }

    /// Names a handle, after [`Store::persist`]ing it. Synced when this returns.
    ///
    /// # Errors
    /// [`Error::BadLabel`], [`Error::TooManyLabels`], and those of [`Store::persist`].
    pub fn set_label(&self, name: &str, handle: Handle) -> Result<(), Error> {
        check_name(name)?;
        let Some(disk) = self.disk() else { return self.labels.set(name, handle) };
        let _stays = disk.stay();
        self.persist_here(disk, handle)?;
        disk.write_label(name, Some(handle)).map(drop)
    }

    /// What a label names.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Index`] (also for a damaged label).
    pub fn label(&self, name: &str) -> Result<Option<Handle>, Error> {
        self.disk().map_or_else(|| Ok(self.labels.get(name)), |disk| disk.index().label(name))
    }

    /// Takes a name back; false if there was none. Synced when this returns.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Index`].
    pub fn remove_label(&self, name: &str) -> Result<bool, Error> {
        self.disk().map_or_else(|| Ok(self.labels.remove(name)), |disk| disk.write_label(name, None))
    }

    /// All labels, by name.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Index`].
    pub fn labels(&self) -> Result<Vec<(String, Handle)>, Error> {
        self.disk().map_or_else(|| Ok(self.labels.all()), |disk| disk.index().labels())
    }

    /// The memoised relations.
    #[inline]
    pub fn relations(&self) -> &Relations {
        &self.relations
    }

    /// Writes the relations that wait for the background thread, and which objects nobody
    /// has put, for an orderly end. Nothing to do without a disk.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Index`], [`Error::Corrupt`]: some are not written.
    pub fn flush_relations(&self) -> Result<(), Error> {
        let Some(tier) = &self.disk else { return Ok(()) };
        tier.background.work().write_relations()?;
        tier.disk.settle_promises()
    }

    /// Counts and sizes. Figures of a disk that cannot be read are 0.
    pub fn stats(&self) -> Stats {
        let memory = self.memory.stats();
        let relations = self.relations.stats();
        let mut stats = Stats {
            memory_objects: memory.objects,
            memory_bytes: memory.bytes,
            memory_budget_bytes: self.memory.budget_bytes(),
            memory_hits: memory.hits,
            memory_misses: memory.misses,
            evictions: memory.evictions,
            relations: relations.known,
            claims: relations.claims,
            relations_bytes: relations.bytes,
            relation_hits: relations.hits,
            relation_misses: relations.misses,
            relation_evictions: relations.evictions,
            relations_unwritten: relations.unwritten,
            ..Stats::default()
        };
        if let Some(tier) = &self.disk {
            let disk = tier.disk.stats().unwrap_or_default();
            stats.disk_objects = disk.objects;
            stats.disk_bytes = disk.bytes;
            stats.disk_reads = disk.reads;
            stats.disk_read_bytes = disk.read_bytes;
            stats.disk_relations = disk.relations;
            stats.collected = tier.disk.collected.load(Ordering::Relaxed);
            stats.recipes = tier.disk.index().recipes_len().unwrap_or_default();
            stats.corrupt = disk.corrupt + tier.damaged_relations;
            stats.background_failures = tier.background.work().failures.load(Ordering::Relaxed);
            stats.spilled = tier.background.work().spilled.load(Ordering::Relaxed);
        }
        stats
    }
}

fn part_of(object: &Object, range: &Range<u64>) -> Option<Vec<u8>> {
    Some(object.get(range.start as usize..range.end as usize)?.to_vec())
}

/// Puts objects into both tiers, or into the one there is.
pub(crate) fn put_objects(
    memory: &Memory,
    disk: Option<&Disk>,
    objects: Vec<(Handle, Object)>,
) -> Result<(), Error> {
    let Some(disk) = disk else {
        let new = objects.iter().filter(|(key, _)| memory.state(*key).is_none());
        let new_bytes = new.map(|(_, object)| object.len() as u64).sum::<u64>();
        let needed_bytes = memory.lacking_bytes(new_bytes);
        if new_bytes > 0 && needed_bytes > 0 {
            return Err(Error::Full { needed_bytes, budget_bytes: memory.budget_bytes() });
        }
        for (key, object) in objects {
            memory.insert_with(key, STORED, || object);
        }
        return Ok(());
    };
    // Until memory has them too: what it says of them is relied on.
    let _stays = disk.stay();
    disk.promise(objects.iter().map(|(key, _)| *key))?;
    disk.write(&objects, Vec::new())?;
    disk.note_put(objects.iter().map(|(key, _)| *key));
    for (key, object) in objects {
        // A large object's pages are in the page cache now: map them instead
        // of holding the bytes twice.
        let mapped = if is_large(key) { disk.read(key)? } else { None };
        memory.insert_with(key, DURABLE, || mapped.unwrap_or(object));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
