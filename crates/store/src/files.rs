// SPDX-License-Identifier: Apache-2.0
//! The home folder: its layout, its lock, and the files of large objects.
//!
//! A file gets its name only when its bytes are synced, so a name never shows
//! a half-written object. The folders of `objects` exist from the beginning:
//! publishing a file syncs one folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use linux::Mapping;
use objects::Handle;
use parking_lot::Mutex;

use crate::outboard::outboard_len;
use crate::packs::now;
use crate::{Error, Object};

/// What this version writes into FORMAT. A table or a file that older code must not ignore, as
/// recipes, is a new format: who opens a home of a later one refuses it.
const FORMAT: &str = "sinew-store 3";
/// What versions before it wrote, and can be upgraded.
const FORMATS_BEFORE: [(&str, Before); 2] =
    [("sinew-store 1", Before::Inline), ("sinew-store 2", Before::Alike)];
/// A folder of points in time ([`crate::backup`]): packs, objects and an index as in a home.
const FORMAT_BACKUP: &str = "sinew-backup 1";
/// What is to become a home, and is not whole yet.
const FORMAT_UNFINISHED: &str = "sinew-restore 1";
/// What every home's FORMAT begins with.
const FORMAT_FAMILY: &str = "sinew-store ";
/// What a folder may have that was begun, and not laid out when its process ended.
const BEGUN: [&str; 5] = ["lock", "objects", "packs", "tmp", "quarantine"];
/// The most bytes of FORMAT that are looked at.
const FORMAT_LEN_MAX: u64 = 256;
/// Objects from this length are files of their own.
pub(crate) const LARGE_BYTES: u64 = 64 << 10;
/// How the name of an object's outboard ends, which stands beside its file.
const OUTBOARD: &str = "outboard";
/// Beyond this many mappings in the process, files are read into memory: the
/// kernel grants 65,530 and the sandboxes need many.
const MAPPINGS_MAX: usize = 16 << 10;

/// A name that was given so long ago is on the disk: kernels wait for half a minute.
const NAMES_AGE: Duration = Duration::from_secs(3600);

/// Of the disk this share is kept back from what can be had again, or so many bytes
/// if that is less.
const KEPT_SHARE: u64 = 20;
const KEPT_BYTES_MAX: u64 = 4 << 30;

/// What a folder is for; its FORMAT says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What a node works with.
    Home,
    /// Points in time of a home.
    Backup,
    /// What is to become a home: it is one when its FORMAT says so, which comes last.
    Unfinished,
}

impl Kind {
    fn format(self) -> &'static str {
        match self {
            Self::Home => FORMAT,
            Self::Backup => FORMAT_BACKUP,
            Self::Unfinished => FORMAT_UNFINISHED,
        }
    }
}

/// What a home of an older format has otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Small objects are in the index.
    Inline,
    /// Nothing: but code of its time ignores what is in it now, and takes away what that needs.
    Alike,
}

impl Before {
    fn of(format: &str) -> Option<Self> {
        FORMATS_BEFORE.into_iter().find(|(before, _)| *before == format).map(|(_, before)| before)
    }
}

/// The home folder of one store, locked.
pub(crate) struct Files {
    home: PathBuf,
    kind: Kind,
    _lock: File,
    /// Numbers temporary and quarantined files.
    counter: AtomicU64,
    /// Held by who gives an object's name to a file, or takes it from one.
    naming: Mutex<Unsynced>,
}

/// Folders of `objects` with names that are not synced yet, by the first byte of these. Others
/// see such a name: before they rely on it, it is synced. A number tells the last naming.
type Unsynced = BTreeMap<u8, u64>;

/// A file without a final name yet; removed unless published.
pub(crate) struct TempFile {
    file: File,
    path: PathBuf,
    published: bool,
}

/// Files and bytes of the large objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilesStats {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

impl Files {
    /// Makes the folder if there is none, locks it, checks its format, and
    /// removes what an earlier process left unfinished.
    pub(crate) fn open(home: &Path) -> Result<Self, Error> {
        Self::open_as(home, Kind::Home)
    }

    /// [`Files::open`] of a folder of any kind.
    pub(crate) fn open_as(home: &Path, kind: Kind) -> Result<Self, Error> {
        let made: Vec<&Path> = home.ancestors().take_while(|path| !path.exists()).collect();
        make_folder(home)?;
        made.into_iter().try_for_each(sync_name)?;
        // A home is laid out where it was told to be; the others only where nothing else is. Before
        // there is a lock in it, which another's folder has no need of.
        if kind != Kind::Home && !home.join("FORMAT").exists() && !is_begun(home)? {
            return Err(Error::NotEmpty { path: home.to_owned() });
        }
        let files = Self::locked(home, kind)?;
        let found = files.found_format()?;
        if let Some(found) = found.as_ref().filter(|found| *found != kind.format()) {
            return Err(files.other_format(found.clone()));
        }
        // Also before it is laid out, which may have been begun: in a container each process may
        // have the same number, and files of the same names.
        files.clear_temporary()?;
        if found.is_none() {
            files.format()?;
        }
        Ok(files)
    }

    /// Locks the folder, and leaves all in it as it is. The text of a FORMAT that is none,
    /// if that is so: a bit may have flipped.
    pub(crate) fn open_to_look(home: &Path, kind: Kind) -> Result<(Self, Option<String>), Error> {
        // Before there is a lock in it, which another's folder has no need of.
        let has_any = ["FORMAT", "packs"].iter().any(|name| home.join(name).exists());
        if !has_any {
            return Err(match kind {
                Kind::Backup => Error::NoBackup { path: home.to_owned(), found: String::new() },
                Kind::Home | Kind::Unfinished => Error::NoHome { path: home.to_owned() },
            });
        }
        let files = Self {
            home: home.to_owned(),
            kind,
            _lock: lock_to_look(home)?,
            counter: AtomicU64::new(0),
            naming: Mutex::default(),
        };
        match files.found_format()? {
            Some(found) if found == kind.format() => Ok((files, None)),
            Some(found) if is_format(&found) => Err(files.other_format(found)),
            found => {
                if kind == Kind::Home && files.index_path().exists() && files.packs_folder().exists() {
                    return Ok((files, Some(found.unwrap_or_default())));
                }
                Err(files.other_format(found.unwrap_or_default()))
            }
        }
    }

    fn locked(home: &Path, kind: Kind) -> Result<Self, Error> {
        let lock = lock(home)?;
        Ok(Self {
            home: home.to_owned(),
            kind,
            _lock: lock,
            counter: AtomicU64::new(0),
            naming: Mutex::default(),
        })
    }

    /// A home of an older format, locked, to be brought up to date. `None`: it is
    /// of this format, or new.
    pub(crate) fn open_before(home: &Path) -> Result<Option<(Self, Before)>, Error> {
        let files = Self::locked(home, Kind::Home)?;
        let Some(found) = files.found_format()?.filter(|found| found != FORMAT) else { return Ok(None) };
        let Some(before) = Before::of(&found) else { return Err(files.other_format(found)) };
        files.clear_temporary()?;
        if before == Before::Inline {
            make_folder(&files.packs_folder())?;
            sync_folder(home)?;
        }
        Ok(Some((files, before)))
    }

    fn clear_temporary(&self) -> Result<(), Error> {
        if !self.temp_folder().exists() {
            return Ok(());
        }
        for entry in list(&self.temp_folder())? {
            fs::remove_file(&entry).map_err(|source| Error::io(&entry, source))?;
        }
        Ok(())
    }

    /// The first line of FORMAT, if there is one.
    fn found_format(&self) -> Result<Option<String>, Error> {
        let path = self.home.join("FORMAT");
        // To open a pipe is to wait for whoever writes to it.
        if path.symlink_metadata().is_ok_and(|metadata| !metadata.is_file()) {
            return Err(Error::io(path, io::Error::new(io::ErrorKind::InvalidData, "it is no file")));
        }
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::io(path, source)),
        };
        let mut bytes = Vec::new();
        file.take(FORMAT_LEN_MAX).read_to_end(&mut bytes).map_err(|source| Error::io(&path, source))?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(Some(text.lines().next().unwrap_or_default().trim().to_owned()))
    }

    fn other_format(&self, found: String) -> Error {
        let path = self.home.join("FORMAT");
        match (found.as_str(), self.kind) {
            (found, Kind::Home) if Before::of(found).is_some() => {
                Error::OldFormat { path, found: found.to_owned() }
            }
            (FORMAT_BACKUP, _) => Error::IsBackup { path: self.home.clone() },
            (FORMAT_UNFINISHED, _) => Error::Unfinished { path: self.home.clone() },
            (_, Kind::Backup) => Error::NoBackup { path: self.home.clone(), found },
            (_, Kind::Unfinished) => Error::NotEmpty { path: self.home.clone() },
            (_, Kind::Home) => Error::UnknownFormat { path, found, supported: FORMAT },
        }
    }

    /// What of the disk is free.
    pub(crate) fn free_bytes(&self) -> Result<u64, Error> {
        linux::disk_free_bytes(&self.home).map_err(|source| Error::io(&self.home, source))
    }

    /// Whether more than what is kept back of the disk is free.
    pub(crate) fn spare(&self) -> Result<(), Error> {
        let fail = |source| Error::io(&self.home, source);
        let free_bytes = self.free_bytes()?;
        let total_bytes = linux::disk_total_bytes(&self.home).map_err(fail)?;
        match lacking(free_bytes, total_bytes) {
            None => Ok(()),
            Some(kept_bytes) => Err(Error::Scarce { home: self.home.clone(), free_bytes, kept_bytes }),
        }
    }

    /// Lays the folder out. FORMAT comes last: without it, this runs again.
    fn format(&self) -> Result<(), Error> {
        let objects = self.home.join("objects");
        for folder in [objects.clone(), self.packs_folder(), self.temp_folder(), self.home.join("quarantine")]
        {
            make_folder(&folder)?;
        }
        for first_byte in 0..=u8::MAX {
            make_folder(&objects.join(format!("{first_byte:02x}")))?;
        }
        sync_folder(&objects)?;
        // Where FORMAT is, all of them are.
        sync_folder(&self.home)?;
        sync_name(&self.home)?;
        self.write_format(self.kind)
    }

    /// Says what the folder is, and that it is of this version.
    pub(crate) fn write_format(&self, kind: Kind) -> Result<(), Error> {
        self.write_file("FORMAT", format!("{}\n", kind.format()).as_bytes())
    }

    /// Writes a file of the folder's own, as a whole; it is synced when this returns.
    pub(crate) fn write_file(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let mut file = self.temp_file()?;
        file.write_all(bytes)?;
        file.publish_as(&self.home.join(name))?;
        sync_folder(&self.home)
    }

    /// Whether a node works with it.
    pub(crate) fn is_home(&self) -> bool {
        self.kind == Kind::Home
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// Files that a process left unfinished, and those that were moved aside: how many, and their bytes.
    pub(crate) fn leftovers(&self) -> Result<[(u64, u64); 2], Error> {
        let count = |folder: &Path| match list(folder) {
            Ok(paths) => Ok(paths.iter().fold((0, 0), |(files, bytes), path| {
                (files + 1, bytes + fs::symlink_metadata(path).map_or(0, |metadata| metadata.len()))
            })),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok((0, 0)),
            Err(error) => Err(error),
        };
        Ok([count(&self.temp_folder())?, count(&self.home.join("quarantine"))?])
    }

    /// Moves the index out of the way; where to. `None`: there is none.
    pub(crate) fn quarantine_index(&self) -> Result<Option<PathBuf>, Error> {
        let path = self.index_path();
        let target =
            self.home.join("quarantine").join(format!("index.redb.{}-{}", std::process::id(), self.number()));
        match fs::rename(&path, &target) {
            Ok(()) => sync_folder(&self.home).map(|()| Some(target)),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::io(path, source)),
        }
    }

    pub(crate) fn index_path(&self) -> PathBuf {
        self.home.join("index.redb")
    }

    pub(crate) fn packs_folder(&self) -> PathBuf {
        self.home.join("packs")
    }

    fn temp_folder(&self) -> PathBuf {
        self.home.join("tmp")
    }

    fn number(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }

    /// Of the object's own file.
    pub(crate) fn path(&self, key: Handle) -> PathBuf {
        self.folder(key.hash_bytes()[0]).join(key.to_string())
    }

    /// Of large objects whose hashes begin so.
    fn folder(&self, first_byte: u8) -> PathBuf {
        self.home.join("objects").join(format!("{first_byte:02x}"))
    }

    /// A new, empty file that disappears unless it is published.
    pub(crate) fn temp_file(&self) -> Result<TempFile, Error> {
        let path = self.temp_folder().join(format!("{}-{}", std::process::id(), self.number()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|source| Error::io(&path, source))?;
        Ok(TempFile { file, path, published: false })
    }

    /// Whether the object has a file of the right length. The name may not be
    /// synced yet: see [`Files::sync_names`].
    pub(crate) fn contains(&self, key: Handle) -> Result<bool, Error> {
        let path = self.path(key);
        match fs::metadata(&path) {
            Ok(metadata) => Ok(metadata.len() == object_len(key)),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(Error::io(path, source)),
        }
    }

    /// Syncs a file and gives it the object's name. True if there was none.
    pub(crate) fn publish(&self, temp: TempFile, key: Handle) -> Result<bool, Error> {
        if self.contains(key)? {
            return Ok(false);
        }
        temp.sync()?;
        let mut naming = self.naming.lock();
        if self.contains(key)? {
            return Ok(false);
        }
        naming.insert(key.hash_bytes()[0], self.number());
        temp.rename(&self.path(key))?;
        Ok(true)
    }

    /// Syncs the folders of these objects' files, each once.
    pub(crate) fn sync_names(&self, keys: impl Iterator<Item = Handle>) -> Result<(), Error> {
        let folders: BTreeSet<u8> = keys.map(|key| key.hash_bytes()[0]).collect();
        folders.into_iter().try_for_each(|first_byte| self.sync_names_in(first_byte))
    }

    /// Syncs all names that others gave and have not synced yet: for who relies on objects that
    /// were there when it looked.
    pub(crate) fn sync_new_names(&self) -> Result<(), Error> {
        let folders: Vec<u8> = self.naming.lock().keys().copied().collect();
        folders.into_iter().try_for_each(|first_byte| self.sync_names_in(first_byte))
    }

    fn sync_names_in(&self, first_byte: u8) -> Result<(), Error> {
        let last = self.naming.lock().get(&first_byte).copied();
        sync_folder(&self.folder(first_byte))?;
        let mut naming = self.naming.lock();
        // Unless there is a newer name.
        if naming.get(&first_byte).copied() == last {
            naming.remove(&first_byte);
        }
        Ok(())
    }

    /// The file and its bytes as they are, not verified. A file of the wrong length
    /// is given as it is, too.
    pub(crate) fn read(&self, key: Handle) -> Result<Option<(Object, File)>, Error> {
        let path = self.path(key);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::io(path, source)),
        };
        let fail = |source| Error::io(&path, source);
        let len = file.metadata().map_err(fail)?.len();
        if Mapping::live() >= MAPPINGS_MAX {
            let mut bytes = Vec::with_capacity(len as usize);
            file.read_to_end(&mut bytes).map_err(fail)?;
            return Ok(Some((Object::from_vec(bytes), file)));
        }
        Ok(Some((Object::mapped(Mapping::map(&file, 0, len as usize).map_err(fail)?), file)))
    }

    /// The object's file, to be read in parts, and how long it is. What stays open
    /// can be read also after it was removed.
    pub(crate) fn open_object(&self, key: Handle) -> Result<Option<(File, u64)>, Error> {
        open(&self.path(key))
    }

    /// What has the values of the object's groups, and how long it is.
    pub(crate) fn open_outboard(&self, key: Handle) -> Result<Option<(File, u64)>, Error> {
        open(&self.outboard_path(key))
    }

    fn outboard_path(&self, key: Handle) -> PathBuf {
        self.path(key).with_added_extension(OUTBOARD)
    }

    /// Puts an outboard beside its object's file, in place of one that is there;
    /// true if there was none. Not synced: it can be made again.
    pub(crate) fn publish_outboard(&self, mut temp: TempFile, key: Handle) -> Result<bool, Error> {
        let path = self.outboard_path(key);
        let is_new = !path.exists();
        fs::rename(&temp.path, &path).map_err(|source| Error::io(&path, source))?;
        temp.published = true;
        Ok(is_new)
    }

    /// Removes the object's outboard; false if there was none.
    pub(crate) fn remove_outboard(&self, key: Handle) -> Result<bool, Error> {
        remove(&self.outboard_path(key))
    }

    /// Moves a large object's damaged file out of the way and says where to. `None`: the
    /// name is not this file's any more. Somebody else has moved it, and the object may
    /// have been put again since. `moved` is called before it can be put again.
    pub(crate) fn quarantine_file(
        &self,
        key: Handle,
        damaged: &File,
        moved: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Option<PathBuf>, Error> {
        let target = self.quarantine_path(key);
        let path = self.path(key);
        let fail = |source| Error::io(&path, source);
        let naming = self.naming.lock();
        let named = match fs::metadata(&path) {
            Ok(named) => named,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(fail(source)),
        };
        // As long as it is open, no other file has its number.
        let damaged = damaged.metadata().map_err(fail)?;
        if (named.dev(), named.ino()) != (damaged.dev(), damaged.ino()) {
            return Ok(None);
        }
        fs::rename(&path, &target).map_err(fail)?;
        let told = moved();
        drop(naming);
        self.sync_names(std::iter::once(key)).and(told)?;
        Ok(Some(target))
    }

    /// Keeps a small object's damaged bytes for people to look at.
    pub(crate) fn quarantine_bytes(&self, key: Handle, bytes: &[u8]) -> Result<PathBuf, Error> {
        let target = self.quarantine_path(key);
        let mut temp = self.temp_file()?;
        temp.write_all(bytes)?;
        temp.publish_as(&target)?;
        Ok(target)
    }

    fn quarantine_path(&self, key: Handle) -> PathBuf {
        let name = format!("{key}.{}-{}", std::process::id(), self.number());
        self.home.join("quarantine").join(name)
    }

    /// The bytes of damaged trees that were moved aside.
    pub(crate) fn quarantined_trees(&self) -> Result<Vec<Vec<u8>>, Error> {
        let mut trees = Vec::new();
        for path in list(&self.home.join("quarantine"))? {
            let name = path.file_name().and_then(|name| name.to_str()?.split('.').next());
            let key = name.and_then(|name| name.parse::<Handle>().ok());
            if key.is_some_and(|key| key.names_tree()) {
                trees.push(fs::read(&path).map_err(|source| Error::io(&path, source))?);
            }
        }
        Ok(trees)
    }

    /// Counts the files. Looks at every name, so once per process. Outboards that
    /// have lost their objects are removed, and names are synced that a process which was
    /// killed may not have synced.
    pub(crate) fn scan(&self) -> Result<FilesStats, Error> {
        let mut stats = FilesStats::default();
        self.visit_names(|path| {
            if let Some(key) = named(path) {
                stats.objects += 1;
                stats.bytes += object_len(key);
            } else if path.extension().is_some_and(|extension| extension == OUTBOARD) {
                match named(&path.with_extension("")).filter(|key| self.path(*key).exists()) {
                    Some(key) => stats.bytes += outboard_len(object_len(key)),
                    None => _ = remove(path)?,
                }
            }
            Ok(())
        })?;
        for first_byte in 0..=u8::MAX {
            let folder = self.folder(first_byte);
            let changed = fs::metadata(&folder).and_then(|metadata| metadata.modified());
            let is_new = |changed| now().duration_since(changed).map_or(true, |age| age < NAMES_AGE);
            if changed.is_ok_and(is_new) && !list(&folder)?.is_empty() {
                sync_folder(&folder)?;
            }
        }
        Ok(stats)
    }

    /// Looks at every file among the large objects: whose it is, `None` if it is nobody's,
    /// and whether it is an outboard.
    pub(crate) fn visit_all(
        &self,
        mut visitor: impl FnMut(&Path, Option<Handle>, bool) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.visit_names(|path| {
            let is_outboard = path.extension().is_some_and(|extension| extension == OUTBOARD);
            let key = named(&if is_outboard { path.with_extension("") } else { path.to_owned() });
            // Elsewhere nobody finds it.
            let at_home = |key: &Handle| self.path(*key).parent() == path.parent() && is_large(*key);
            visitor(path, key.filter(|key| *key == key.plain_tree()).filter(at_home), is_outboard)
        })
    }

    /// Looks at every large object whose hash begins so.
    pub(crate) fn visit_folder(&self, first_byte: u8, visitor: impl FnMut(Handle)) -> Result<(), Error> {
        let paths = list(&self.home.join("objects").join(format!("{first_byte:02x}")))?;
        paths.iter().filter_map(|path| named(path)).for_each(visitor);
        Ok(())
    }

    /// Bytes of all files of large objects.
    pub(crate) fn large_bytes(&self) -> Result<u64, Error> {
        let mut bytes = 0;
        self.visit(|key, _| bytes += object_len(key))?;
        Ok(bytes)
    }

    /// Looks at every large object, and its file.
    pub(crate) fn visit(&self, mut visitor: impl FnMut(Handle, &Path)) -> Result<(), Error> {
        self.visit_names(|path| {
            if let Some(key) = named(path) {
                visitor(key, path);
            }
            Ok(())
        })
    }

    fn visit_names(&self, mut visitor: impl FnMut(&Path) -> Result<(), Error>) -> Result<(), Error> {
        for folder in list(&self.home.join("objects"))? {
            for path in list(&folder)? {
                visitor(&path)?;
            }
        }
        Ok(())
    }

    /// The object's file counts as written now.
    pub(crate) fn renew(&self, key: Handle) -> Result<(), Error> {
        let path = self.path(key);
        let renewed = File::options().write(true).open(&path).and_then(|file| {
            file.set_modified(now())?;
            crate::sync::all(&file)
        });
        renewed.map_err(|source| Error::io(path, source))
    }

    /// Removes the object's file; false if there was none.
    pub(crate) fn remove(&self, key: Handle) -> Result<bool, Error> {
        let _naming = self.naming.lock();
        remove(&self.path(key))
    }
}

/// What is kept back of a disk of so many bytes, if no more than that is free. Some file
/// systems do not tell their size, and say that it is nothing.
fn lacking(free_bytes: u64, total_bytes: u64) -> Option<u64> {
    let kept_bytes = (total_bytes / KEPT_SHARE).min(KEPT_BYTES_MAX);
    (total_bytes > 0 && free_bytes <= kept_bytes).then_some(kept_bytes)
}

impl TempFile {
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(|source| Error::io(&self.path, source))
    }

    /// As [`TempFile::write_all`].
    pub(crate) fn append(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.file).write_all(bytes)
    }

    /// Fills a buffer with what was written from `offset` on.
    pub(crate) fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    /// Waits until the bytes are on the disk, then names the file.
    fn publish_as(self, target: &Path) -> Result<(), Error> {
        self.sync()?;
        self.rename(target)
    }

    fn sync(&self) -> Result<(), Error> {
        crate::sync::all(&self.file).map_err(|source| Error::io(&self.path, source))
    }

    fn rename(mut self, target: &Path) -> Result<(), Error> {
        fs::rename(&self.path, target).map_err(|source| Error::io(target, source))?;
        self.published = true;
        Ok(())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.published {
            // What cannot be removed now is removed when the home is next opened.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Bytes of the object that a plain data handle names.
pub(crate) fn object_len(key: Handle) -> u64 {
    if key.names_tree() { key.size() * Handle::LEN as u64 } else { key.size() }
}

/// Whether the object has a file of its own.
pub(crate) fn is_large(key: Handle) -> bool {
    object_len(key) >= LARGE_BYTES
}

/// The object that a file's name says.
fn named(path: &Path) -> Option<Handle> {
    path.file_name()?.to_str()?.parse().ok()
}

fn open(path: &Path) -> Result<Option<(File, u64)>, Error> {
    let opened = File::open(path).and_then(|file| file.metadata().map(|metadata| (file, metadata.len())));
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::io(path, source)),
    }
}

/// False if there was none.
fn remove(path: &Path) -> Result<bool, Error> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(Error::io(path, source)),
    }
}

fn make_folder(path: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| Error::io(path, source))
}

fn sync_folder(path: &Path) -> Result<(), Error> {
    crate::sync::folder(path).map_err(|source| Error::io(path, source))
}

/// Syncs the name of a folder, in the one that it is in. That one may be another's, and not to
/// be read by us.
fn sync_name(path: &Path) -> Result<(), Error> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    match crate::sync::folder(parent) {
        // Some file systems know no such thing as a folder that is synced.
        Err(source)
            if !matches!(
                source.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
            ) =>
        {
            Err(Error::io(parent, source))
        }
        _ => Ok(()),
    }
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let fail = |source| Error::io(folder, source);
    let entries = fs::read_dir(folder).map_err(fail)?;
    entries.map(|entry| Ok(entry.map_err(fail)?.path())).collect()
}

/// A process that was forked from the last owner has the lock until it execs.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Whether there is nothing but what laying a folder out begins with.
fn is_begun(folder: &Path) -> Result<bool, Error> {
    let is_ours = |path: &PathBuf| BEGUN.iter().any(|name| path.file_name() == Some(name.as_ref()));
    Ok(list(folder)?.iter().all(is_ours))
}

/// Whether it is what some version of this platform may have written.
fn is_format(found: &str) -> bool {
    let number = found.strip_prefix(FORMAT_FAMILY);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    number.is_some_and(is_number) || matches!(found, FORMAT_BACKUP | FORMAT_UNFINISHED)
}

/// [`lock`] for who only looks: of a folder that cannot be written to, as a backup on a
/// medium of its own, the folder itself is locked.
fn lock_to_look(home: &Path) -> Result<File, Error> {
    match lock(home) {
        Err(Error::Io { path, source })
            if matches!(
                source.kind(),
                io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
            ) =>
        {
            let folder = File::open(home).map_err(|_| Error::io(path, source))?;
            match folder.try_lock() {
                Ok(()) => Ok(folder),
                Err(TryLockError::WouldBlock) => Err(Error::Locked { home: home.to_owned(), pid: None }),
                Err(TryLockError::Error(source)) => Err(Error::io(home, source)),
            }
        }
        other => other,
    }
}

/// Takes the one lock of the home folder and leaves our pid in it.
fn lock(home: &Path) -> Result<File, Error> {
    let path = home.join("lock");
    let fail = |source| Error::io(&path, source);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(&path).map_err(fail)?;
    let mut tries = 0;
    let taken = loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if tries < LOCK_TRIES => tries += 1,
            taken => break taken,
        }
        std::thread::sleep(LOCK_PAUSE);
    };
    match taken {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            // The pid is a courtesy: without it the error only says less.
            let _ = (&file).take(FORMAT_LEN_MAX).read_to_string(&mut text);
            return Err(Error::Locked { home: home.to_owned(), pid: text.trim().parse().ok() });
        }
        Err(TryLockError::Error(source)) => return Err(fail(source)),
    }
    file.set_len(0).map_err(fail)?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes()).map_err(fail)?;
    Ok(file)
}

#[cfg(test)]
mod tests;
