// SPDX-License-Identifier: Apache-2.0
//! The disk tier: small objects in the index, large ones as files, behind one
//! face. Whatever it holds is synced; whatever it gives was verified.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use objects::Handle;
use parking_lot::Mutex;
use std::collections::HashSet;

use crate::committer::Committer;
use crate::files::{Files, FilesStats, TempFile, is_large, object_len};
use crate::index::{Batch, Index};
use crate::{Error, Object, Record};

/// Large objects whose hash this process has checked; forgotten beyond this.
const VERIFIED_MAX: usize = 1 << 16;

/// The tier.
pub(crate) struct Disk {
    // Dropped in this order: the thread, the database, last the folder's lock.
    committer: Committer,
    index: Arc<Index>,
    files: Files,
    verified: Mutex<HashSet<Handle>>,
    large: Mutex<FilesStats>,
    reads: AtomicU64,
    corrupt: AtomicU64,
}

/// Counts of the tier.
#[derive(Default)]
pub(crate) struct DiskStats {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) relations: u64,
    pub(crate) reads: u64,
    pub(crate) corrupt: u64,
}

impl Disk {
    pub(crate) fn open(home: &Path, cache_bytes: usize, relations_max: u64) -> Result<Self, Error> {
        let files = Files::open(home)?;
        let index = Arc::new(Index::open(files.index_path(), cache_bytes, relations_max)?);
        let large = files.scan()?;
        Ok(Self {
            committer: Committer::start(Arc::clone(&index))?,
            index,
            files,
            verified: Mutex::default(),
            large: Mutex::new(large),
            reads: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
        })
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    pub(crate) fn temp_file(&self) -> Result<TempFile, Error> {
        self.files.temp_file()
    }

    /// Whether the object is there; its bytes are not looked at.
    pub(crate) fn contains(&self, key: Handle) -> Result<bool, Error> {
        if is_large(key) {
            return self.files.contains(key);
        }
        Ok(self.index.absent(std::iter::once(key))?.is_empty())
    }

    /// The object, verified: large ones once per process, small ones always.
    ///
    /// # Errors
    /// [`Error::Corrupt`] once; then the object is absent until it is put again.
    pub(crate) fn read(&self, key: Handle) -> Result<Option<Object>, Error> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if !is_large(key) {
            let Some(bytes) = self.index.object(key)? else { return Ok(None) };
            if hashes_to(&bytes, key) {
                return Ok(Some(Object::from_vec(bytes)));
            }
            self.corrupt.fetch_add(1, Ordering::Relaxed);
            let path = self.files.quarantine_bytes(key, &bytes)?;
            self.committer.commit(Batch { removed: vec![key], ..Batch::default() })?;
            return Err(Error::Corrupt { handle: key, path });
        }
        let Some(object) = self.files.read(key)? else { return Ok(None) };
        let verified = object.len() as u64 == object_len(key) && self.verified.lock().contains(&key);
        if verified {
            return Ok(Some(object));
        }
        if !hashes_to(&object, key) {
            self.corrupt.fetch_add(1, Ordering::Relaxed);
            self.verified.lock().remove(&key);
            let path = self.files.quarantine_file(key)?;
            self.count_large(-1, key);
            return Err(Error::Corrupt { handle: key, path });
        }
        self.remember_verified(key);
        Ok(Some(object))
    }

    /// Writes what is not there yet; all of it is synced when this returns.
    /// Relations are written with or after the objects.
    pub(crate) fn write(
        &self,
        objects: &[(Handle, Object)],
        relations: Vec<(Handle, Record)>,
    ) -> Result<(), Error> {
        let (large, small): (Vec<_>, Vec<_>) = objects.iter().partition(|(key, _)| is_large(*key));
        for (key, object) in &large {
            if !self.files.contains(*key)? {
                let mut temp = self.files.temp_file()?;
                temp.write_all(object)?;
                self.publish(temp, *key)?;
            }
        }
        self.files.sync_names(large.iter().map(|(key, _)| *key))?;
        let absent = match small.is_empty() {
            true => HashSet::new(),
            false => self.index.absent(small.iter().map(|(key, _)| *key))?.into_iter().collect(),
        };
        if absent.is_empty() && relations.is_empty() {
            return Ok(());
        }
        let objects = small.into_iter().filter(|(key, _)| absent.contains(key)).cloned().collect();
        self.committer.commit(Batch { objects, relations, ..Batch::default() })?;
        Ok(())
    }

    /// Gives a streamed file its name, synced, and maps it.
    pub(crate) fn adopt(&self, temp: TempFile, key: Handle) -> Result<Option<Object>, Error> {
        self.publish(temp, key)?;
        self.files.sync_names(std::iter::once(key))?;
        self.read(key)
    }

    /// The bytes were hashed on their way into the file: they count as verified.
    fn publish(&self, temp: TempFile, key: Handle) -> Result<(), Error> {
        if self.files.publish(temp, key)? {
            self.count_large(1, key);
            self.remember_verified(key);
        }
        Ok(())
    }

    /// Sets or removes a label; true if it existed.
    pub(crate) fn write_label(&self, name: &str, handle: Option<Handle>) -> Result<bool, Error> {
        let batch = Batch { label: Some((name.to_owned(), handle)), ..Batch::default() };
        let committed = self.committer.commit(batch)?;
        if committed.label_refused {
            return Err(Error::TooManyLabels);
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
        Ok(DiskStats {
            objects: large.objects + small.objects,
            bytes: large.bytes + index_bytes,
            relations: small.relations,
            reads: self.reads.load(Ordering::Relaxed),
            corrupt: self.corrupt.load(Ordering::Relaxed),
        })
    }
}

fn hashes_to(bytes: &[u8], key: Handle) -> bool {
    if key.names_tree() {
        Handle::tree(bytes).is_ok_and(|handle| handle == key)
    } else {
        Handle::blob(bytes) == key
    }
}
