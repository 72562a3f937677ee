// SPDX-License-Identifier: Apache-2.0
//! Knows of a folder what its disk is bound to have after a loss of power: of each file the
//! bytes as of its last sync, of each folder the names as of its own. Whatever came since may
//! be there, or not, or in part: a bare name, a name without its bytes, some of the bytes.
//!
//! A test is called before each sync of a file below the folder, and can lay out elsewhere what
//! would be left. Nothing below the folder is synced for real.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::UNIX_EPOCH;

use parking_lot::Mutex;
use tempfile::{TempDir, tempdir};

/// Those that live. Tests run beside each other.
static WITNESSES: Mutex<Vec<Weak<Witness>>> = Mutex::new(Vec::new());
static UNSYNCED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static LIVING: AtomicUsize = AtomicUsize::new(0);
/// What is left in memory for tests, where they use it.
const MEMORY_BYTES: u64 = 1 << 30;
/// A disk writes so many bytes or none of them.
const SECTOR_BYTES: usize = 512;

/// A file or folder, by whatever name: numbers of inodes are used again, so when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Id {
    inode: u64,
    made: u128,
    is_folder: bool,
}

impl Id {
    fn of(metadata: &Metadata) -> Self {
        let made = metadata.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        Self {
            inode: metadata.ino(),
            made: made.unwrap_or_default().as_nanos(),
            is_folder: metadata.is_dir(),
        }
    }
}

type Names = BTreeMap<OsString, Id>;

/// What was synced.
#[derive(Clone, Default)]
struct Synced {
    files: HashMap<Id, Arc<Vec<u8>>>,
    folders: HashMap<Id, Names>,
}

/// What survives of that which was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survives {
    /// As little as may be.
    Nothing,
    /// Names, without what was written to their files.
    Names,
    /// Some names, and some sectors of files.
    Some(u64),
    /// All, as after a kill.
    All,
}

impl Survives {
    fn draws(self, place: &Path, sector: usize) -> bool {
        let Self::Some(seed) = self else { return self == Self::All };
        let mut hasher = blake3::Hasher::new();
        // Where tests lay things out differs from run to run.
        let name = place.file_name().unwrap_or_default();
        hasher.update(&seed.to_le_bytes()).update(name.as_encoded_bytes());
        hasher.update(&sector.to_le_bytes());
        hasher.finalize().as_bytes()[0] & 1 == 1
    }

    /// The bytes of a file, of which nothing was synced, or an older state.
    fn bytes(self, place: &Path, synced: Option<&Arc<Vec<u8>>>, live: Vec<u8>) -> Vec<u8> {
        let synced = synced.map(|bytes| bytes.as_slice()).unwrap_or_default();
        match self {
            Self::All => live,
            Self::Nothing | Self::Names => synced.to_vec(),
            Self::Some(_) => {
                let len = if self.draws(place, usize::MAX) { live.len() } else { synced.len() };
                let mut bytes = vec![0; len];
                for (number, sector) in bytes.chunks_mut(SECTOR_BYTES).enumerate() {
                    let from = if self.draws(place, number) { live.as_slice() } else { synced };
                    let from = from.get(number * SECTOR_BYTES..).unwrap_or_default();
                    let there = from.len().min(sector.len());
                    sector[..there].copy_from_slice(&from[..there]);
                }
                bytes
            }
        }
    }
}

/// One folder that is watched.
pub(crate) struct Witness {
    root: PathBuf,
    synced: Mutex<Synced>,
    syncs: AtomicUsize,
    /// Is called before each sync, with its number.
    before: Box<dyn Fn(&Moment<'_>) + Send + Sync>,
    /// What was wrong in there first.
    failed: Mutex<Option<String>>,
}

/// Right before a sync.
pub(crate) struct Moment<'a> {
    /// How many were before it.
    pub(crate) number: usize,
    /// What is to be synced.
    pub(crate) path: &'a Path,
    root: &'a Path,
    synced: &'a Synced,
}

impl Witness {
    /// From now on: all that is below `root` is synced.
    pub(crate) fn of(root: &Path, before: impl Fn(&Moment<'_>) + Send + Sync + 'static) -> Arc<Self> {
        let mut synced = Synced::default();
        learn(root, &mut synced);
        Self::begin(root, synced, Box::new(before))
    }

    fn begin(root: &Path, synced: Synced, before: Box<dyn Fn(&Moment<'_>) + Send + Sync>) -> Arc<Self> {
        let witness = Arc::new(Self {
            root: root.canonicalize().unwrap(),
            synced: Mutex::new(synced),
            syncs: AtomicUsize::new(0),
            before,
            failed: Mutex::default(),
        });
        WITNESSES.lock().push(Arc::downgrade(&witness));
        LIVING.fetch_add(1, Ordering::SeqCst);
        witness
    }

    /// How many syncs there were.
    pub(crate) fn syncs(&self) -> usize {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Fails as the first of what was called has, on whatever thread that was.
    pub(crate) fn assert_nothing_failed(&self) {
        if let Some(failed) = self.failed.lock().take() {
            panic!("{failed}");
        }
    }

    /// [`Moment::lay_out`] of this moment, whether or not anything is about to be synced.
    pub(crate) fn lay_out(&self, to: &Path, survives: Survives) {
        let synced = self.synced.lock();
        Moment { number: self.syncs(), path: &self.root, root: &self.root, synced: &synced }
            .lay_out(to, survives);
    }

    fn sync(&self, file: &File, path: &Path) {
        let mut synced = self.synced.lock();
        let number = self.syncs.fetch_add(1, Ordering::Relaxed);
        let moment = Moment { number, path, root: &self.root, synced: &synced };
        if self.failed.lock().is_none()
            && let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.before)(&moment)))
        {
            let said = panic.downcast_ref::<String>().cloned();
            let said = said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).to_owned()));
            let what = said.unwrap_or_default();
            *self.failed.lock() = Some(format!("before sync {number}, of {}: {what}", path.display()));
        }
        let metadata = file.metadata().unwrap();
        if metadata.is_dir() {
            synced.folders.insert(Id::of(&metadata), names(path));
        } else {
            // It may be open for writing only, and may have no name any more.
            let bytes = fs::read(descriptor(file)).unwrap();
            synced.files.insert(Id::of(&metadata), Arc::new(bytes));
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        LIVING.fetch_sub(1, Ordering::SeqCst);
        WITNESSES.lock().retain(|witness| witness.strong_count() > 0);
    }
}

/// A file or folder is to be synced: whether it is watched, and then needs not be.
pub(crate) fn has_synced(file: &File) -> bool {
    if LIVING.load(Ordering::SeqCst) == 0 {
        return false;
    }
    let path = fs::read_link(descriptor(file)).unwrap();
    if UNSYNCED.lock().iter().any(|folder| path.starts_with(folder)) {
        return true;
    }
    let living: Vec<_> = WITNESSES.lock().iter().filter_map(Weak::upgrade).collect();
    let witness = living.iter().find(|witness| path.starts_with(&witness.root));
    witness.inspect(|witness| witness.sync(file, &path)).is_some()
}

fn descriptor(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// A folder that is quick to fill and to empty, where there is such a thing.
pub(crate) fn in_memory() -> TempDir {
    let has_room = linux::disk_free_bytes("/dev/shm".as_ref()).is_ok_and(|free| free > MEMORY_BYTES);
    if has_room { tempfile::tempdir_in("/dev/shm").or_else(|_| tempdir()) } else { tempdir() }.unwrap()
}

/// A folder that no power is lost in: below it nothing waits for the disk.
pub(crate) struct Unsynced(TempDir);

impl Unsynced {
    pub(crate) fn new() -> Self {
        let folder = in_memory();
        UNSYNCED.lock().push(folder.path().canonicalize().unwrap());
        LIVING.fetch_add(1, Ordering::SeqCst);
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Unsynced {
    fn drop(&mut self) {
        LIVING.fetch_sub(1, Ordering::SeqCst);
        let path = self.path().canonicalize().unwrap();
        UNSYNCED.lock().retain(|folder| *folder != path);
    }
}

impl Moment<'_> {
    /// Makes a folder as the disk would be after a loss of power now.
    pub(crate) fn lay_out(&self, to: &Path, survives: Survives) {
        self.lay_out_as(to, survives, &mut HashMap::new());
    }

    /// Makes a folder as a kill leaves it now: all is there, and what was not synced is not.
    pub(crate) fn after_kill(&self, to: &Path) -> Arc<Witness> {
        let mut laid = HashMap::new();
        self.lay_out_as(to, Survives::All, &mut laid);
        let now = |id: &Id| laid.get(id).copied().unwrap_or(*id);
        let names = |names: &Names| names.iter().map(|(name, id)| (name.clone(), now(id))).collect();
        let synced = Synced {
            files: self.synced.files.iter().map(|(id, bytes)| (now(id), Arc::clone(bytes))).collect(),
            folders: self.synced.folders.iter().map(|(id, of)| (now(id), names(of))).collect(),
        };
        Witness::begin(to, synced, Box::new(|_| {}))
    }

    fn lay_out_as(&self, to: &Path, survives: Survives, laid: &mut HashMap<Id, Id>) {
        let root = Id::of(&fs::metadata(self.root).unwrap());
        self.lay(root, Some(self.root), to, survives, laid);
    }

    /// Makes one file or folder, which others may use under `live`.
    fn lay(&self, id: Id, live: Option<&Path>, to: &Path, survives: Survives, laid: &mut HashMap<Id, Id>) {
        if !id.is_folder {
            let synced = self.synced.files.get(&id);
            let written = live.and_then(|path| fs::read(path).ok());
            let written = written.or_else(|| synced.map(|bytes| bytes.to_vec())).unwrap_or_default();
            fs::write(to, survives.bytes(to, synced, written)).unwrap();
            laid.insert(id, Id::of(&fs::metadata(to).unwrap()));
            return;
        }
        fs::create_dir(to).unwrap();
        laid.insert(id, Id::of(&fs::metadata(to).unwrap()));
        let none = Names::new();
        let synced = self.synced.folders.get(&id).unwrap_or(&none);
        let there = live.map(names).unwrap_or_default();
        for name in synced.keys().chain(there.keys()).collect::<BTreeSet<_>>() {
            let (before, after) = (synced.get(name), there.get(name));
            let is_after = survives == Survives::Names || survives.draws(&to.join(name), 0);
            let Some(&named) = (if is_after { after } else { before }) else { continue };
            let path = live.filter(|_| after == Some(&named)).map(|folder| folder.join(name));
            self.lay(named, path.as_deref(), &to.join(name), survives, laid);
        }
    }
}

/// The names in a folder; what goes meanwhile has none.
fn names(folder: &Path) -> Names {
    let Ok(entries) = fs::read_dir(folder) else { return Names::new() };
    let entries = entries.filter_map(Result::ok);
    entries.filter_map(|entry| Some((entry.file_name(), Id::of(&entry.metadata().ok()?)))).collect()
}

/// All below a folder is synced.
fn learn(path: &Path, synced: &mut Synced) {
    let metadata = fs::metadata(path).unwrap();
    if !metadata.is_dir() {
        synced.files.insert(Id::of(&metadata), Arc::new(fs::read(path).unwrap()));
        return;
    }
    let names = names(path);
    names.keys().for_each(|name| learn(&path.join(name), synced));
    synced.folders.insert(Id::of(&metadata), names);
}
