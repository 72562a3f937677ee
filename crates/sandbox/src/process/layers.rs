// SPDX-License-Identifier: Apache-2.0
//! Directories of the store as plain files, for containers to see.
//!
//! A *layer* is a directory tree (`docs/spec/functions.md`, section 3), written
//! out once and mounted read-only wherever it is used. The least recently used
//! ones go when all together have more bytes than they may.
//!
//! Layers stay when the node ends, and its next start finds them, if the
//! machine has not been started since: what a kernel has not written to the
//! disk is lost with it, and nobody could tell without reading everything
//! (`docs/decisions/0113-layers-outlive-the-node.md`). On the disk:
//!
//! ```text
//! ROOT/1-BOOT/tree-HASH-SIZE.BYTES/…    a layer, with the bytes of its files
//!            /new-7/…                   one that is being written
//!            /old-9/…                   one that is being removed
//! ```

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use objects::Handle;
use parking_lot::{Condvar, Mutex};
use store::Store;

use crate::Fault;

mod leaving;
mod written;

use leaving::Leaving;
use written::{Writer, is_whole, unwritable};

/// Layers that were written out otherwise than these are not used.
const FORMAT: u32 = 1;
/// What is another one after each start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A directory that holds layers.
pub struct Layers {
    /// Of this start of the machine.
    root: PathBuf,
    store: Arc<Store>,
    bytes_max: u64,
    state: Mutex<State>,
    changed: Condvar,
    leaving: Leaving,
    /// What is removed at the end.
    temporary: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct State {
    ready: HashMap<Handle, Ready>,
    /// What an earlier node has left, and nobody has asked for yet.
    found: HashMap<Handle, Layer>,
    making: HashSet<Handle>,
    /// Of those that are ready, and those that were found.
    bytes: u64,
    /// How often one was asked for or put aside. Names have it too, and none is there twice.
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
    /// The layers at `root`, which is made if it is not there: those that were
    /// written out since the machine's start, by whatever node had `root` then.
    /// All else in `root` is removed, in the background. One node at a time may
    /// have it. `bytes_max` bounds what is kept beyond the layers in use.
    ///
    /// # Errors
    /// If the directory cannot be read or made.
    pub fn open(root: &Path, store: Arc<Store>, bytes_max: u64) -> io::Result<Self> {
        let boot = fs::read_to_string(BOOT_ID).unwrap_or_default();
        if boot.is_empty() {
            // When what is there was written, nobody knows.
            remove(root)?;
        }
        make_own(root)?;
        let current = root.join(format!("{FORMAT}-{}", boot.trim()));
        let mut away = names(root)?;
        away.retain(|path| *path != current);
        make_own(&current)?;
        let mut state = State::default();
        let mut others = names(&current)?;
        others.retain(|path| !state.finds(path));
        let layers = Self {
            root: current,
            store,
            bytes_max,
            state: Mutex::new(state),
            changed: Condvar::new(),
            leaving: Leaving::default(),
            temporary: None,
        };
        {
            let mut state = layers.state.lock();
            away.extend(others.iter().filter_map(|path| layers.put_aside(path, &mut state)));
            away.extend(layers.put_aside_unused(&mut state));
        }
        layers.leaving.add(away);
        Ok(layers)
    }

    /// Layers that end with the node, for one that keeps nothing. What is at
    /// `root` is removed.
    ///
    /// # Errors
    /// As [`Layers::open`].
    pub fn temporary(root: &Path, store: Arc<Store>, bytes_max: u64) -> io::Result<Self> {
        remove(root)?;
        let mut layers = Self::open(root, store, bytes_max)?;
        layers.temporary = Some(root.to_owned());
        Ok(layers)
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
        let number = loop {
            let number = state.number();
            if let Some(ready) = state.ready.get_mut(&tree) {
                ready.last_use = number;
                return Ok(Arc::clone(&ready.layer));
            }
            if state.making.insert(tree) {
                break number;
            }
            self.changed.wait(&mut state);
        };
        let found = state.found.remove(&tree).inspect(|layer| state.bytes -= layer.bytes);
        drop(state);
        let made = self.found_or_made(tree, found, number);
        let mut state = self.state.lock();
        state.making.remove(&tree);
        self.changed.notify_all();
        let layer = Arc::new(made?);
        state.bytes += layer.bytes;
        let ready = Ready { layer: Arc::clone(&layer), last_use: state.uses };
        state.ready.insert(tree, ready);
        let away = self.put_aside_unused(&mut state);
        drop(state);
        self.leaving.add(away);
        Ok(layer)
    }

    fn found_or_made(&self, tree: Handle, found: Option<Layer>, number: u64) -> Result<Layer, Fault> {
        if let Some(found) = found {
            if is_whole(&found.path, found.bytes) {
                return Ok(found);
            }
            let away = self.put_aside(&found.path, &mut self.state.lock());
            self.leaving.add(away.into_iter().collect());
        }
        let new = self.root.join(format!("new-{number}"));
        let made = Writer::new(&self.store).write(tree, &new).and_then(|bytes| {
            let path = self.root.join(format!("{tree}.{bytes}"));
            fs::rename(&new, &path).map_err(|error| unwritable(&path, &error))?;
            Ok(Layer { path, bytes })
        });
        made.inspect_err(|_| self.leaving.add(vec![new]))
    }

    /// Takes layers away that nobody uses, as many as there are too many: where they are now.
    fn put_aside_unused(&self, state: &mut State) -> Vec<PathBuf> {
        let unused = state.take_unused(self.bytes_max);
        // Out of the way under the lock: the same layer may be made again at once.
        unused.iter().filter_map(|path| self.put_aside(path, state)).collect()
    }

    /// Where it is then, if that worked: what stays where it was is not removed, for it may be made again.
    fn put_aside(&self, path: &Path, state: &mut State) -> Option<PathBuf> {
        let aside = self.root.join(format!("old-{}", state.number()));
        fs::rename(path, &aside).ok().map(|()| aside)
    }
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layers").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Drop for Layers {
    fn drop(&mut self) {
        if let Some(root) = &self.temporary {
            drop(std::mem::take(&mut self.leaving));
            _ = remove(root);
        }
    }
}

impl State {
    /// One that was not there before.
    fn number(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    /// Whether an earlier node has left a layer there. What has a number instead was not finished, and is
    /// not called so again.
    fn finds(&mut self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(number) = name.strip_prefix("new-").or_else(|| name.strip_prefix("old-")) {
            self.uses = self.uses.max(number.parse().unwrap_or_default()).min(u64::MAX / 2);
        }
        let layer =
            name.split_once('.').and_then(|(tree, bytes)| Some((tree.parse().ok()?, bytes.parse().ok()?)));
        let Some((tree, bytes)) = layer.filter(|(tree, _)| !self.found.contains_key(tree)) else {
            return false;
        };
        let Some(all) = self.bytes.checked_add(bytes) else { return false };
        self.bytes = all;
        self.found.insert(tree, Layer { path: path.to_owned(), bytes });
        true
    }

    /// Where the layers lie that have to go, which nobody uses, oldest first.
    fn take_unused(&mut self, bytes_max: u64) -> Vec<PathBuf> {
        let mut taken = Vec::new();
        while self.bytes > bytes_max {
            let Some(layer) = self.take_oldest() else { break };
            self.bytes -= layer.bytes;
            taken.push(layer.path.clone());
        }
        taken
    }

    fn take_oldest(&mut self) -> Option<Arc<Layer>> {
        if let Some(tree) = self.found.keys().next().copied() {
            return self.found.remove(&tree).map(Arc::new);
        }
        let unused = self.ready.iter().filter(|(_, ready)| Arc::strong_count(&ready.layer) == 1);
        let oldest = unused.min_by_key(|(_, ready)| ready.last_use).map(|(tree, _)| *tree)?;
        self.ready.remove(&oldest).map(|ready| ready.layer)
    }
}

/// Makes a directory that is this process's own alone, if it is not there. Containers see what is mounted for
/// them; no other account of this machine needs to see what functions are made of, or may have put something
/// in its place.
fn make_own(path: &Path) -> io::Result<()> {
    if let Ok(found) = fs::symlink_metadata(path) {
        if found.is_dir() && found.uid() == linux::own_user().0 && found.mode() & 0o077 == 0 {
            return Ok(());
        }
        remove(path)?;
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    DirBuilder::new().mode(0o700).create(path)
}

/// What is in a directory.
fn names(path: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect()
}

/// Removes a directory tree, or a file; neither is fine.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests;
