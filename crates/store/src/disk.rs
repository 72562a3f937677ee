// SPDX-License-Identifier: Apache-2.0
//! The disk tier: small objects in packs, large ones as files, behind one
//! face. Whatever it holds is synced; whatever it gives was verified.

mod parts;

use std::collections::HashSet;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use objects::Handle;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::collect::Sentence;
use crate::committer::Committer;
use crate::files::{Files, FilesStats, TempFile, is_large, object_len};
use crate::index::{Batch, Index};
use crate::packs::{FRESH, Folder, Packs, Spot, Untouched, now};
use crate::promises::Promises;
use crate::reserve::{Lent, Reserve};
use crate::tier::Far;
use crate::{Error, Object, Record};
pub(crate) use parts::Growing;

/// Large objects whose hash this process has checked; forgotten beyond this.
const VERIFIED_MAX: usize = 1 << 16;

/// The tier.
pub(crate) struct Disk {
    // Dropped in this order: the thread, the database, last the folder's lock.
    committer: Committer,
    index: Arc<Index>,
    files: Files,
    /// Who writes, or relies on what is there, holds this; a collection takes it to
    /// say what goes.
    gate: RwLock<()>,
    /// Held by the one collection.
    pub(crate) collecting: Mutex<()>,
    /// Somebody wants the collection that looks for what is needed to end.
    pub(crate) stops_collecting: AtomicBool,
    /// Large objects that were put again since a collection began, if one has.
    renewed: Mutex<Option<Vec<Handle>>>,
    /// What a collection takes away: to everybody else it is gone already.
    sentence: RwLock<Option<Arc<Sentence>>>,
    verified: Mutex<HashSet<Handle>>,
    large: Mutex<FilesStats>,
    /// By both clocks.
    opened: (SystemTime, Instant),
    promises: Promises,
    reserve: Reserve,
    /// The durable tier, if there is one.
    far: OnceLock<Arc<Far>>,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    corrupt: AtomicU64,
    /// Held by who makes an outboard, which reads all of an object: one at a time.
    making: Mutex<()>,
    /// Objects that collections have taken away.
    pub(crate) collected: AtomicU64,
}

/// What was found under a name.
pub(crate) enum Looked {
    /// Nothing.
    Absent,
    /// What it names.
    Sound(Object),
    /// Something else.
    Damaged,
}

/// Counts of the tier.
#[derive(Default)]
pub(crate) struct DiskStats {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) relations: u64,
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) corrupt: u64,
}

impl Disk {
    /// The tier in a folder that was opened.
    pub(crate) fn over(files: Files, cache_bytes: usize, relations_max: u64) -> Result<Self, Error> {
        let folder = files.packs_folder();
        let packs = Packs::open(&folder, Box::new(Folder(folder.clone())))?;
        let index = Index::open(files.index_path(), cache_bytes, relations_max, packs)?;
        let large = files.scan()?;
        let disk = Self::of(files, index, large)?;
        if disk.files.is_home() {
            disk.reserve.keep(disk.index_bytes());
        }
        Ok(disk)
    }

    /// The tier, to be looked at: whatever this does, its folder stays as it is.
    pub(crate) fn to_look(files: Files, cache_bytes: usize) -> Result<Self, Error> {
        if !files.index_path().exists() {
            let reason = "it is not there: whoever made this folder was broken off, or it is damaged";
            return Err(Error::Index { path: files.index_path(), reason: reason.to_owned() });
        }
        let folder = files.packs_folder();
        let packs = Packs::open(&folder, Box::new(Untouched(folder.clone())))?;
        let index = Index::to_look(files.index_path(), cache_bytes, packs)?;
        Self::of(files, index, FilesStats::default())
    }

    fn of(files: Files, index: Index, large: FilesStats) -> Result<Self, Error> {
        let index = Arc::new(index);
        let reserve = Reserve::of(files.home().to_owned());
        Ok(Self {
            committer: Committer::start(Arc::clone(&index))?,
            index,
            files,
            gate: RwLock::default(),
            collecting: Mutex::default(),
            stops_collecting: AtomicBool::new(false),
            renewed: Mutex::default(),
            sentence: RwLock::default(),
            verified: Mutex::default(),
            large: Mutex::new(large),
            opened: (now(), Instant::now()),
            promises: Promises::default(),
            reserve,
            far: OnceLock::new(),
            reads: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            making: Mutex::default(),
            corrupt: AtomicU64::new(0),
            collected: AtomicU64::new(0),
        })
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    pub(crate) fn temp_file(&self) -> Result<TempFile, Error> {
        self.files.temp_file()
    }

    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    fn index_bytes(&self) -> u64 {
        std::fs::metadata(self.index.path()).map_or(0, |metadata| metadata.len())
    }

    /// For who takes something away: as long as it is held, on a full disk there is some room.
    pub(crate) fn lend_reserve(&self) -> Lent<'_> {
        self.reserve.lend(self.index_bytes())
    }

    /// What is lent is needed after all. Whether there is more room now.
    pub(crate) fn lend_more(&self) -> bool {
        self.reserve.lend_more(self.index_bytes())
    }

    /// Before so much is written: whether there is room for it besides what was lent.
    pub(crate) fn spare(&self, bytes: u64) -> Result<(), Error> {
        self.reserve.spare(bytes)
    }

    pub(crate) fn promises(&self) -> &Promises {
        &self.promises
    }

    pub(crate) fn far(&self) -> Option<&Arc<Far>> {
        self.far.get()
    }

    /// From now on there is a tier; false if there was one.
    pub(crate) fn attach(&self, far: Arc<Far>) -> bool {
        self.far.set(far).is_ok()
    }

    /// These were put, and are synced.
    pub(crate) fn note_put(&self, keys: impl Iterator<Item = Handle>) {
        if let Some(far) = self.far() {
            far.note_put(keys);
        }
    }

    /// A large object is looked at.
    pub(crate) fn note_used(&self, key: Handle) {
        if let Some(far) = self.far() {
            far.note_used(key);
        }
    }

    pub(crate) fn committer(&self) -> &Committer {
        &self.committer
    }

    /// For as long as it is held, what is there stays there. Not to be asked for twice
    /// by one thread: who waits to be alone comes first.
    pub(crate) fn stay(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read()
    }

    /// [`Disk::stay`], unless that takes waiting.
    pub(crate) fn try_stay(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.gate.try_read()
    }

    /// For as long as it is held, nobody relies on anything.
    pub(crate) fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write()
    }

    /// What was not written since then is older than this. Who puts what is there
    /// already may have relied on what was written [`FRESH`] before; and a clock that
    /// went further than time did since this process began tells nothing of it.
    pub(crate) fn before(&self, age: Duration) -> SystemTime {
        let (wall, clock) = self.opened;
        let told = now().duration_since(wall).unwrap_or_default();
        let skew = told.saturating_sub(clock.elapsed());
        now().checked_sub(age + FRESH + skew).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// From now on it is noted which large objects are put again; or no more. Those
    /// that were since the last time.
    pub(crate) fn note_renewed(&self, notes: bool) -> Vec<Handle> {
        let notes = notes.then(Vec::new);
        std::mem::replace(&mut *self.renewed.lock(), notes).unwrap_or_default()
    }

    /// From now on what it says is gone; `None`: it is carried out.
    pub(crate) fn sentence(&self, sentence: Option<Arc<Sentence>>) {
        *self.sentence.write() = sentence;
    }

    /// Whether a collection is taking it away.
    pub(crate) fn is_gone(&self, key: Handle, spot: Option<Spot>) -> bool {
        self.sentence.read().as_ref().is_some_and(|sentence| sentence.takes(key, spot))
    }

    /// Whether the object is there; its bytes are not looked at.
    pub(crate) fn contains(&self, key: Handle) -> Result<bool, Error> {
        if is_large(key) {
            return Ok(self.files.contains(key)? && !self.is_gone(key, None));
        }
        Ok(self.index.spot(key)?.is_some_and(|spot| !self.is_gone(key, Some(spot))))
    }

    /// Whether the object is there, or in the tier, or was dropped and can be made again.
    pub(crate) fn has(&self, key: Handle) -> Result<bool, Error> {
        Ok(self.contains(key)?
            || self.tiered(key)?.is_some_and(|row| !row.is_damaged)
            || self.index.recipe(key)?.is_some())
    }

    /// The object, verified: large ones once per process, small ones always.
    ///
    /// # Errors
    /// [`Error::Corrupt`] once; then the object is absent until it is put again.
    pub(crate) fn read(&self, key: Handle) -> Result<Option<Object>, Error> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.sentence.read().is_some() && !self.contains(key)? {
            return Ok(None);
        }
        if !is_large(key) {
            let Some((bytes, spot)) = self.index.object(key)? else { return Ok(None) };
            self.read_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            if hashes_to(&bytes, key) {
                return Ok(Some(Object::from_vec(bytes)));
            }
            self.corrupt.fetch_add(1, Ordering::Relaxed);
            let path = self.files.quarantine_bytes(key, &bytes)?;
            // Somebody may have put it again meanwhile.
            self.committer.commit(Batch { dead: vec![(key, spot)], ..Batch::default() })?;
            return Err(Error::Corrupt { handle: key, path });
        }
        let read = self.read_opened(key, || {});
        if matches!(read, Ok(Some(_))) {
            self.note_used(key);
        }
        read
    }

    /// [`Disk::read`] of a large object for who only sends it to the tier: that is no use of it.
    pub(crate) fn read_to_send(&self, key: Handle) -> Result<Option<Object>, Error> {
        if self.contains(key)? { self.read_opened(key, || {}) } else { Ok(None) }
    }

    /// [`Disk::read`] for who must not wait for a disk: a small object that the kernel has
    /// in its memory. `None`: whoever may wait has to look, and to say what is wrong.
    pub(crate) fn read_cached(&self, key: Handle) -> Option<Object> {
        if is_large(key) {
            return None;
        }
        let (bytes, spot) = self.index.object_cached(key)?;
        if self.is_gone(key, Some(spot)) || !hashes_to(&bytes, key) {
            return None;
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Some(Object::from_vec(bytes))
    }

    /// The object, verified anew whatever this process has read of it, with nothing done about
    /// damage: for who looks at everything, or at what is another's.
    pub(crate) fn look(&self, key: Handle) -> Result<Looked, Error> {
        look(&self.index, &self.files, key)
    }

    /// `opened` is called when the file is open and nothing was said of it yet.
    fn read_opened(&self, key: Handle, opened: impl Fn()) -> Result<Option<Object>, Error> {
        loop {
            // Before it is opened: what is said of the name later may be said of another
            // file, which was put in the place of this one when that was found damaged.
            let is_verified = self.verified.lock().contains(&key);
            let Some((object, file)) = self.files.read(key)? else { return Ok(None) };
            opened();
            if object.len() as u64 == object_len(key) && is_verified {
                return Ok(Some(object));
            }
            self.read_bytes.fetch_add(object.len() as u64, Ordering::Relaxed);
            if hashes_to(&object, key) {
                self.remember_verified(key);
                return Ok(Some(object));
            }
            if let Some(error) = self.condemn(key, &file)? {
                return Err(error);
            }
        }
    }

    /// Bytes of large objects and packs.
    pub(crate) fn bytes(&self) -> u64 {
        self.large.lock().bytes + self.index.packs().bytes()
    }

    /// The bytes of a large object are not what its name says: they are moved aside.
    /// What to say of it; `None` if its name has another file by now, or none.
    fn condemn(&self, key: Handle, file: &File) -> Result<Option<Error>, Error> {
        let aside = self.files.quarantine_file(key, file, || {
            self.corrupt.fetch_add(1, Ordering::Relaxed);
            self.verified.lock().remove(&key);
            self.count_large(-1, key);
            self.drop_outboard(key)
        })?;
        Ok(aside.map(|path| Error::Corrupt { handle: key, path }))
    }

    /// Writes what is not there yet, or not since a short while ago: who puts
    /// something counts on its staying, also if nobody else wants it any more. All
    /// of it is synced when this returns; none of it before what it names, if that
    /// stands before it. Relations are written with or after the objects.
    pub(crate) fn write(
        &self,
        objects: &[(Handle, Object)],
        relations: Vec<(Handle, Record)>,
    ) -> Result<(), Error> {
        let mut rest = objects;
        while let Some(at) = rest.iter().position(|(key, _)| is_large(*key) && key.names_tree()) {
            let (named, trees) = rest.split_at(at);
            let (tree, after) = trees.split_at(1);
            self.write_together(named, Vec::new())?;
            self.write_together(tree, Vec::new())?;
            rest = after;
        }
        self.write_together(rest, relations)
    }

    /// Large objects come before small ones.
    fn write_together(
        &self,
        objects: &[(Handle, Object)],
        relations: Vec<(Handle, Record)>,
    ) -> Result<(), Error> {
        if !objects.is_empty() || !relations.is_empty() {
            self.spare(objects.iter().map(|(key, _)| object_len(*key)).sum())?;
        }
        let (large, small): (Vec<_>, Vec<_>) = objects.iter().partition(|(key, _)| is_large(*key));
        for (key, object) in &large {
            if self.files.contains(*key)? {
                self.renew(*key)?;
            } else {
                let mut temp = self.files.temp_file()?;
                temp.write_all(object)?;
                let outboard = Growing::over(&self.files, *key, object);
                self.publish(temp, *key, outboard)?;
            }
        }
        self.files.sync_names(large.iter().map(|(key, _)| *key))?;
        let fresh_from = self.index.packs().fresh_from();
        let spots = self.index.spots(small.iter().map(|(key, _)| *key))?;
        let is_fresh = |key: Handle, spot: Option<Spot>| {
            spot.is_some_and(|spot| spot.pack >= fresh_from) && !self.is_gone(key, spot)
        };
        let stale = small.into_iter().zip(spots).filter(|((key, _), spot)| !is_fresh(*key, *spot));
        let objects: Vec<_> = stale.map(|(object, _)| object.clone()).collect();
        if !relations.is_empty() {
            self.files.sync_new_names()?;
        }
        if !objects.is_empty() || !relations.is_empty() {
            self.committer.commit(Batch { objects, relations, ..Batch::default() })?;
        }
        Ok(())
    }

    /// A file that is there counts as written now. For who stays.
    pub(crate) fn renew(&self, key: Handle) -> Result<(), Error> {
        if let Some(renewed) = &mut *self.renewed.lock() {
            renewed.push(key);
        }
        if let Some(sentence) = &*self.sentence.read() {
            sentence.spare(key);
        }
        self.files.renew(key)
    }

    /// Gives a streamed file its name, synced, and maps it. For who stays.
    pub(crate) fn adopt(
        &self,
        temp: TempFile,
        key: Handle,
        outboard: Option<TempFile>,
    ) -> Result<Option<Object>, Error> {
        self.publish(temp, key, outboard)?;
        self.files.sync_names(std::iter::once(key))?;
        self.read(key)
    }

    /// The bytes were hashed on their way into the file: they count as verified.
    fn publish(&self, temp: TempFile, key: Handle, outboard: Option<TempFile>) -> Result<(), Error> {
        if self.files.publish(temp, key)? {
            self.count_large(1, key);
            self.remember_verified(key);
            if let Some(outboard) = outboard {
                self.keep_outboard(outboard, key);
            }
            return Ok(());
        }
        self.renew(key)
    }

    /// Sets or removes a label; true if it existed.
    pub(crate) fn write_label(&self, name: &str, handle: Option<Handle>) -> Result<bool, Error> {
        self.files.sync_new_names()?;
        let batch = || Batch { label: Some((name.to_owned(), handle)), ..Batch::default() };
        let committed = match self.committer.commit(batch()) {
            // On a full disk names must be taken away before a collection can free anything.
            Err(error) if handle.is_none() && error.is_full_disk() => {
                let _room = self.lend_reserve();
                self.committer.commit(batch())?
            }
            committed => committed?,
        };
        if committed.label_refused {
            return Err(Error::TooManyLabels);
        }
        if let Some(far) = self.far() {
            far.note_label();
        }
        Ok(committed.label_existed)
    }

    fn remember_verified(&self, key: Handle) {
        let mut verified = self.verified.lock();
        if verified.len() >= VERIFIED_MAX {
            verified.clear();
        }
        verified.insert(key);
    }

    /// Removes a large object's file.
    pub(crate) fn remove_large(&self, key: Handle) -> Result<(), Error> {
        self.verified.lock().remove(&key);
        if self.files.remove(key)? {
            self.count_large(-1, key);
        }
        self.drop_outboard(key)
    }

    fn count_large(&self, files: i64, key: Handle) {
        let mut large = self.large.lock();
        large.objects = large.objects.saturating_add_signed(files);
        large.bytes = large.bytes.saturating_add_signed(files * object_len(key) as i64);
    }

    pub(crate) fn stats(&self) -> Result<DiskStats, Error> {
        let large = *self.large.lock();
        let small = self.index.stats()?;
        let path = self.index.path();
        let index_bytes = std::fs::metadata(path).map_err(|source| Error::io(path, source))?.len();
        let index_bytes = index_bytes + self.index.packs().bytes();
        Ok(DiskStats {
            objects: large.objects + small.objects,
            bytes: large.bytes + index_bytes,
            relations: small.relations,
            reads: self.reads.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            corrupt: self.corrupt.load(Ordering::Relaxed),
        })
    }
}

/// [`Disk::look`] without all that a tier has more.
pub(crate) fn look(index: &Index, files: &Files, key: Handle) -> Result<Looked, Error> {
    let looked =
        |object: Object| if hashes_to(&object, key) { Looked::Sound(object) } else { Looked::Damaged };
    if is_large(key) {
        // Of another's folder anything may have the name: a pipe that nobody writes to, or more bytes
        // than anybody can hash.
        if !files.contains(key)? {
            let is_there = files.path(key).symlink_metadata().is_ok();
            return Ok(if is_there { Looked::Damaged } else { Looked::Absent });
        }
        return Ok(files.read(key)?.map_or(Looked::Absent, |(object, _)| looked(object)));
    }
    let mut seen = None;
    loop {
        let Some(spot) = index.spot(key)? else { return Ok(Looked::Absent) };
        if let Some(bytes) = index.packs().read(spot, key)? {
            return Ok(looked(Object::from_vec(bytes)));
        }
        // It may have been moved just now.
        if seen.replace(spot) == Some(spot) {
            return Ok(Looked::Damaged);
        }
    }
}

pub(crate) fn hashes_to(bytes: &[u8], key: Handle) -> bool {
    if key.names_tree() {
        Handle::tree(bytes).is_ok_and(|handle| handle == key)
    } else {
        Handle::blob(bytes) == key
    }
}
