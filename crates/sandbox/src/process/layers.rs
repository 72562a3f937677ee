// SPDX-License-Identifier: Apache-2.0
//! Directories of the store as plain files, for containers to see.
//!
//! A *layer* is a directory tree (`docs/spec/functions.md`, section 3), written
//! out once and mounted read-only wherever it is used. The least recently used
//! ones go when all together have more bytes than they may. Layers live as
//! long as the node: what is on disk when it starts, nobody has verified, and
//! it is removed.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use objects::{FailureCode, Handle, TreeView};
use parking_lot::{Condvar, Mutex};
use store::{Object, Store};

use crate::Fault;

/// Files and directories of one layer.
const ENTRIES_MAX: usize = 100_000;
const DEPTH_MAX: usize = 64;
/// Bytes of one layer's files.
const BYTES_MAX: u64 = 4 << 30;
/// What a file takes on the disk, however small it is.
const FILE_BYTES_MIN: u64 = 4096;
const NAME_LEN_MAX: usize = 255;
/// When all files were written, as functions see it, since 1970. Who makes an index of some
/// of them beforehand knows it (`cli`, of Java's classes).
const FILES_TIME: Duration = Duration::from_secs(1);

/// A directory that holds layers.
pub struct Layers {
    root: PathBuf,
    store: Arc<Store>,
    bytes_max: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ready: HashMap<Handle, Ready>,
    making: HashSet<Handle>,
    bytes: u64,
    uses: u64,
}

#[derive(Debug)]
struct Ready {
    layer: Arc<Layer>,
    last_use: u64,
}

/// A directory tree as plain files. It stays for as long as this is held.
#[derive(Debug)]
pub struct Layer {
    path: PathBuf,
    bytes: u64,
}

impl Layer {
    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Layers {
    /// An empty directory of layers at `root`; what is there now is removed.
    /// `bytes_max` bounds what is kept beyond the layers in use.
    ///
    /// # Errors
    /// If the directory cannot be emptied and made.
    pub fn open(root: PathBuf, store: Arc<Store>, bytes_max: u64) -> io::Result<Self> {
        match fs::remove_dir_all(&root) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if let Some(parent) = root.parent() {
            fs::create_dir_all(parent)?;
        }
        // Containers see what is mounted for them; no other account of this
        // machine needs to see what functions are made of, or may have put
        // something in its place.
        fs::DirBuilder::new().mode(0o700).create(&root)?;
        Ok(Self { root, store, bytes_max, state: Mutex::default(), changed: Condvar::new() })
    }

    /// The directory in which all of them lie.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The layer of a directory tree, which is written out if it is not there.
    /// Blocks meanwhile.
    ///
    /// # Errors
    /// `bad-procedure` if the tree is no directory or breaks a limit,
    /// `missing-data` if some of it is not on this node, `resources` if it
    /// cannot be written.
    pub fn get(&self, tree: Handle) -> Result<Arc<Layer>, Fault> {
        let mut state = self.state.lock();
        loop {
            state.uses += 1;
            let last_use = state.uses;
            if let Some(ready) = state.ready.get_mut(&tree) {
                ready.last_use = last_use;
                return Ok(Arc::clone(&ready.layer));
            }
            if state.making.insert(tree) {
                break;
            }
            self.changed.wait(&mut state);
        }
        drop(state);
        let made = self.make(tree);
        let mut state = self.state.lock();
        state.making.remove(&tree);
        self.changed.notify_all();
        let layer = Arc::new(made?);
        state.bytes += layer.bytes;
        let ready = Ready { layer: Arc::clone(&layer), last_use: state.uses };
        state.ready.insert(tree, ready);
        let unused = state.take_unused(self.bytes_max);
        // Out of the way under the lock: the same layer may be made again at once.
        let away: Vec<PathBuf> = unused.iter().map(|layer| self.put_aside(&layer.path, &mut state)).collect();
        drop(state);
        away.iter().for_each(|path| remove(path));
        Ok(layer)
    }

    fn put_aside(&self, path: &Path, state: &mut State) -> PathBuf {
        state.uses += 1;
        let aside = self.root.join(format!("old-{}", state.uses));
        match fs::rename(path, &aside) {
            Ok(()) => aside,
            Err(_) => path.to_owned(),
        }
    }

    fn make(&self, tree: Handle) -> Result<Layer, Fault> {
        let path = self.root.join(tree.to_string());
        let new = path.with_extension("new");
        let written = Writer { store: &self.store, entries: 0, bytes: 0 }.write(tree, &new);
        let made = written.and_then(|bytes| {
            fs::rename(&new, &path).map_err(|error| unwritable(&path, &error))?;
            Ok(Layer { path, bytes })
        });
        made.inspect_err(|_| remove(&new))
    }
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layers").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Drop for Layers {
    fn drop(&mut self) {
        remove(&self.root);
    }
}

impl State {
    /// The layers that have to go, which nobody uses, oldest first.
    fn take_unused(&mut self, bytes_max: u64) -> Vec<Arc<Layer>> {
        let mut taken = Vec::new();
        while self.bytes > bytes_max {
            let unused = self.ready.iter().filter(|(_, ready)| Arc::strong_count(&ready.layer) == 1);
            let Some(oldest) = unused.min_by_key(|(_, ready)| ready.last_use).map(|(tree, _)| *tree) else {
                break;
            };
            if let Some(ready) = self.ready.remove(&oldest) {
                self.bytes -= ready.layer.bytes;
                taken.push(ready.layer);
            }
        }
        taken
    }
}

/// Removes a directory tree, as far as that works: what stays is removed when
/// the node starts again.
fn remove(path: &Path) {
    _ = fs::remove_dir_all(path);
}

fn bad(why: impl Into<String>) -> Fault {
    Fault::new(FailureCode::BadProcedure, why.into())
}

fn unwritable(path: &Path, error: &io::Error) -> Fault {
    Fault::new(FailureCode::Resources, format!("a layer cannot be written: {}: {error}", path.display()))
}

/// Writes one directory tree out.
struct Writer<'a> {
    store: &'a Store,
    entries: usize,
    bytes: u64,
}

/// What a directory's list says of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Child {
    File,
    Program,
    Directory,
}

impl Writer<'_> {
    /// The bytes of all files.
    fn write(mut self, tree: Handle, root: &Path) -> Result<u64, Fault> {
        remove(root);
        let mut waiting = vec![(tree, root.to_owned(), 0)];
        while let Some((tree, path, depth)) = waiting.pop() {
            if depth > DEPTH_MAX {
                return Err(bad(format!("a directory is more than {DEPTH_MAX} levels deep")));
            }
            fs::create_dir(&path).map_err(|error| unwritable(&path, &error))?;
            let data = self.object(tree, true)?;
            for (name, child, handle) in children(&data, |list| self.object(list, false))? {
                self.entries += 1;
                if self.entries > ENTRIES_MAX {
                    return Err(bad(format!("a directory has more than {ENTRIES_MAX} entries in all")));
                }
                let path = path.join(&name);
                match child {
                    Child::Directory => waiting.push((handle, path, depth + 1)),
                    Child::File => self.file(handle, &path, 0o444)?,
                    Child::Program => self.file(handle, &path, 0o555)?,
                }
            }
            // Whatever the node's umask is: the function runs as another user.
            fs::set_permissions(&path, Permissions::from_mode(0o755))
                .map_err(|error| unwritable(&path, &error))?;
        }
        Ok(self.bytes)
    }

    fn file(&mut self, handle: Handle, path: &Path, mode: u32) -> Result<(), Fault> {
        // The size is in the handle, so that nothing too large is even read.
        self.bytes = self.bytes.saturating_add(handle.size().max(FILE_BYTES_MIN));
        if self.bytes > BYTES_MAX {
            return Err(bad(format!("a directory has more than {BYTES_MAX} bytes")));
        }
        let data = self.object(handle, false)?;
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(&data)?;
            // What a function sees is the same on every node, at every time.
            file.set_modified(UNIX_EPOCH + FILES_TIME)?;
            file.set_permissions(Permissions::from_mode(mode))
        };
        write().map_err(|error| unwritable(path, &error))
    }

    /// The data of a blob or tree.
    fn object(&self, handle: Handle, is_tree: bool) -> Result<Object, Fault> {
        if !handle.is_value() || handle.is_failure() || handle.names_tree() != is_tree {
            let wanted =
                if is_tree { "a directory is no tree" } else { "a file or list of names is no blob" };
            return Err(bad(wanted));
        }
        match self.store.get(handle.definition()) {
            Ok(Some(data)) => Ok(data),
            Ok(None) => Err(Fault::new(
                FailureCode::MissingData,
                format!("{handle} of the function's files is not on this node; deploy it again"),
            )),
            Err(error) => Err(Fault::new(FailureCode::Resources, error.to_string())),
        }
    }
}

/// A child of a directory: its name, what it is, its handle.
type Named = (OsString, Child, Handle);

/// The children of a directory, whose list of names is entry 0.
fn children<D: Deref<Target = [u8]>>(
    tree: &[u8],
    list: impl FnOnce(Handle) -> Result<D, Fault>,
) -> Result<Vec<Named>, Fault> {
    let tree = TreeView::from_bytes(tree).map_err(|error| bad(error.to_string()))?;
    let mut entries = tree.iter();
    let names = list(entries.next().ok_or_else(|| bad("a directory is an empty tree"))?)?;
    let Some(lines) = names.strip_suffix(b"\n").or(names.is_empty().then_some(&[])) else {
        return Err(bad("a directory's list of names does not end with a line feed"));
    };
    let mut found: Vec<Named> = Vec::with_capacity(entries.len());
    for line in lines.split(|byte| *byte == b'\n').filter(|_| !names.is_empty()) {
        let shown = || String::from_utf8_lossy(line).into_owned();
        let (child, name) = match line {
            [b'f', b' ', name @ ..] => (Child::File, name),
            [b'x', b' ', name @ ..] => (Child::Program, name),
            [b'd', b' ', name @ ..] => (Child::Directory, name),
            _ => return Err(bad(format!("{:?} is no line of a directory's list", shown()))),
        };
        let is_plain = (1..=NAME_LEN_MAX).contains(&name.len())
            && name != b"."
            && name != b".."
            && !name.iter().any(|byte| matches!(byte, b'/' | b'\0'));
        // In order, so that no name is there twice.
        let is_next = found.last().is_none_or(|(last, _, _)| last.as_bytes() < name);
        let Some(handle) = entries.next().filter(|_| is_plain && is_next) else {
            let why = "is not allowed as a name, out of order, or without an entry";
            return Err(bad(format!("{:?} {why}", shown())));
        };
        found.push((OsStr::from_bytes(name).to_owned(), child, handle));
    }
    match entries.next() {
        None => Ok(found),
        Some(_) => Err(bad("a directory has more entries than names")),
    }
}

#[cfg(test)]
mod tests;
