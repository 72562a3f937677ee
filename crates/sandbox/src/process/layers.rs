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
//! ROOT/1-BOOT/new-7/…                               a layer that is being written
//!            /tree-HASH-SIZE.BYTES.LISTING.7/…      one that is whole: what it has (`written::Listing`)
//! ```
//!
//! Numbers are there once, so that what is removed is never in the way of what is made.

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
use written::{Listing, Writer, is_whole, unwritable};

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
    /// What an earlier node has left, and nobody has asked for yet, with its number.
    found: HashMap<Handle, (u64, Layer)>,
    making: HashSet<Handle>,
    /// Of those that are ready, and those that were found.
    bytes: u64,
    /// How often one was asked for. Names have it too, and none is there twice.
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
    listing: Listing,
}

impl Layer {
    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.listing.bytes
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
        // Functions whose files nobody has any more were deleted.
        let is_kept = |tree| store.is_here(tree).unwrap_or_default();
        away.extend(names(&current)?.into_iter().filter(|path| !state.finds(path, is_kept)));
        away.extend(state.take_unused(bytes_max));
        let layers = Self {
            root: current,
            store,
            bytes_max,
            state: Mutex::new(state),
            changed: Condvar::new(),
            leaving: Leaving::default(),
            temporary: None,
        };
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
        let found = state.found.remove(&tree).map(|(_, layer)| layer);
        state.bytes -= found.as_ref().map_or(0, Layer::bytes);
        drop(state);
        let made = self.found_or_made(tree, found, number);
        let mut state = self.state.lock();
        state.making.remove(&tree);
        self.changed.notify_all();
        let layer = Arc::new(made?);
        state.bytes += layer.bytes();
        let ready = Ready { layer: Arc::clone(&layer), last_use: state.uses };
        state.ready.insert(tree, ready);
        let away = state.take_unused(self.bytes_max);
        drop(state);
        self.leaving.add(away);
        Ok(layer)
    }

    fn found_or_made(&self, tree: Handle, found: Option<Layer>, number: u64) -> Result<Layer, Fault> {
        if let Some(found) = found {
            if is_whole(&found.path, found.listing) {
                return Ok(found);
            }
            self.leaving.add(vec![found.path]);
        }
        let new = self.root.join(format!("new-{number}"));
        let made = Writer::new(&self.store, &new).write(tree).and_then(|listing| {
            let path = self.root.join(format!("{tree}.{}.{:032x}.{number}", listing.bytes, listing.sum));
            fs::rename(&new, &path).map_err(|error| unwritable(&path, &error))?;
            Ok(Layer { path, listing })
        });
        made.inspect_err(|_| self.leaving.add(vec![new]))
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

    /// Whether an earlier node has left a layer there. What was not finished is none; its number is not given again either.
    fn finds(&mut self, path: &Path, is_kept: impl Fn(Handle) -> bool) -> bool {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number =
            name.rsplit(['.', '-']).next().and_then(|number| number.parse().ok()).unwrap_or_default();
        self.uses = self.uses.max(number).min(u64::MAX / 2);
        let Some((tree, listing)) = layer_of(name) else { return false };
        let Some(all) = self.bytes.checked_add(listing.bytes) else { return false };
        if self.found.contains_key(&tree) || !is_kept(tree) {
            return false;
        }
        self.bytes = all;
        self.found.insert(tree, (number, Layer { path: path.to_owned(), listing }));
        true
    }

    /// Where the layers lie that have to go, which nobody uses, oldest first.
    fn take_unused(&mut self, bytes_max: u64) -> Vec<PathBuf> {
        let mut taken = Vec::new();
        while self.bytes > bytes_max {
            let Some(layer) = self.take_oldest() else { break };
            self.bytes -= layer.bytes();
            taken.push(layer.path.clone());
        }
        taken
    }

    fn take_oldest(&mut self) -> Option<Arc<Layer>> {
        // Those first of which nobody knows when they were used, as they were made.
        let first = self.found.iter().min_by_key(|(_, (number, _))| *number).map(|(tree, _)| *tree);
        if let Some((_, layer)) = first.and_then(|tree| self.found.remove(&tree)) {
            return Some(Arc::new(layer));
        }
        let unused = self.ready.iter().filter(|(_, ready)| Arc::strong_count(&ready.layer) == 1);
        let oldest = unused.min_by_key(|(_, ready)| ready.last_use).map(|(tree, _)| *tree)?;
        self.ready.remove(&oldest).map(|ready| ready.layer)
    }
}

/// What the name of a whole layer says.
fn layer_of(name: &str) -> Option<(Handle, Listing)> {
    let mut parts = name.split('.');
    let (tree, bytes, sum, _) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let listing = Listing { bytes: bytes.parse().ok()?, sum: u128::from_str_radix(sum, 16).ok()? };
    Some((tree.parse().ok()?, listing)).filter(|_| parts.next().is_none())
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
