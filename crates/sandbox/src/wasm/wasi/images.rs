// SPDX-License-Identifier: Apache-2.0
//! Memories of snapshots, each as one image that all who go on from it share.
//!
//! An image is made of its pieces by whoever needs it first, while others wait. The
//! least recently used ones go when there are too many bytes; those that map one
//! keep it until they end. Private copies of which nothing differs from the image any
//! more are kept for the next ones, who have no fault at the pages that were written before.

use std::collections::HashMap;
use std::sync::Arc;

use linux::{KeptCopy, MemoryImage, MemoryImageWriter};
use objects::{FailureCode, Handle};
use parking_lot::Mutex;
use store::Store;

use super::files::is_blob;
use super::snapshot::{PIECE_BYTES, Snapshot};
use crate::Fault;
use crate::wasm::call::load;

/// Images at most, so that their descriptors are bounded.
const IMAGES_MAX: usize = 256;

/// Copies of one image that are kept.
const COPIES_MAX: usize = 8;
/// To give more bytes than this back to a copy takes as long as making one.
pub(super) const PRIVATE_BYTES_MAX: u64 = 64 << 20;

/// The image of one memory, once it was made.
type Place = Arc<Mutex<Option<Arc<MemoryImage>>>>;

struct Entry {
    place: Place,
    /// Of the image, and of the copies.
    bytes: u64,
    copies: Vec<KeptCopy>,
    last_used: u64,
}

#[derive(Default)]
struct Entries {
    by_memory: HashMap<Handle, Entry>,
    clock: u64,
}

/// The images that a node has ready.
pub(crate) struct Images {
    entries: Mutex<Entries>,
    bytes_max: u64,
}

impl Images {
    /// None so far, and of at most so many bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { entries: Mutex::default(), bytes_max }
    }

    /// The image of a snapshot's memory.
    ///
    /// # Errors
    /// `missing-data`; `bad-thunk` if its pieces are none; `resources`.
    pub(super) fn of(&self, snapshot: &Snapshot, store: &Store) -> Result<Arc<MemoryImage>, Fault> {
        let place = self.place(snapshot.memory);
        let mut image = place.lock();
        if let Some(image) = &*image {
            return Ok(Arc::clone(image));
        }
        let made = Arc::new(make(snapshot, store)?);
        *image = Some(Arc::clone(&made));
        self.made(snapshot.memory, &made);
        Ok(made)
    }

    /// A copy of the image that [`Self::of`] gave, if one was kept.
    pub(super) fn copy(&self, memory: Handle, image: &Arc<MemoryImage>) -> Option<KeptCopy> {
        let mut entries = self.entries.lock();
        let entry = entries.by_memory.get_mut(&memory)?;
        let copy = entry.copies.pop()?;
        entry.bytes -= copy.private_bytes();
        // One of an image that has gone meanwhile, and was made again, has the same bytes; it would hold both in memory.
        Some(copy).filter(|copy| Arc::ptr_eq(copy.image(), image))
    }

    /// Keeps a copy for others, if there is room for it.
    pub(super) fn keep(&self, memory: Handle, copy: KeptCopy) {
        let mut entries = self.entries.lock();
        let has_room = |entry: &&mut Entry| {
            entry.copies.len() < COPIES_MAX && entry.bytes + copy.private_bytes() <= self.bytes_max
        };
        if let Some(entry) = entries.by_memory.get_mut(&memory).filter(has_room) {
            entry.bytes += copy.private_bytes();
            entry.copies.push(copy);
            drop_oldest(&mut entries, memory, self.bytes_max);
        }
    }

    fn place(&self, memory: Handle) -> Place {
        let mut entries = self.entries.lock();
        entries.clock += 1;
        let last_used = entries.clock;
        let new = || Entry { place: Place::default(), bytes: 0, copies: Vec::new(), last_used };
        let entry = entries.by_memory.entry(memory).or_insert_with(new);
        entry.last_used = last_used;
        let place = Arc::clone(&entry.place);
        drop_oldest(&mut entries, memory, self.bytes_max);
        place
    }

    fn made(&self, memory: Handle, image: &MemoryImage) {
        let bytes = image.resident_bytes().unwrap_or(image.len() as u64);
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.by_memory.get_mut(&memory) {
            entry.bytes += bytes;
        }
        drop_oldest(&mut entries, memory, self.bytes_max);
    }
}

/// Holds to the bounds, but keeps `current`.
fn drop_oldest(entries: &mut Entries, current: Handle, bytes_max: u64) {
    loop {
        let bytes: u64 = entries.by_memory.values().map(|entry| entry.bytes).sum();
        if bytes <= bytes_max && entries.by_memory.len() <= IMAGES_MAX {
            return;
        }
        let others = entries.by_memory.iter().filter(|(memory, _)| **memory != current);
        let oldest = others.min_by_key(|(_, entry)| entry.last_used).map(|(memory, _)| *memory);
        let Some(oldest) = oldest else { return };
        entries.by_memory.remove(&oldest);
    }
}

/// The bytes of a memory, out of their pieces.
fn make(snapshot: &Snapshot, store: &Store) -> Result<MemoryImage, Fault> {
    let wrong = |why: &str| Fault::new(FailureCode::BadThunk, format!("the snapshot's memory: {why}"));
    let none = |error: std::io::Error| {
        Fault::new(FailureCode::Resources, format!("the node cannot map the snapshot's memory: {error}"))
    };
    let pieces = load(store, snapshot.memory)?;
    let pieces = pieces.as_tree();
    let len = usize::try_from(snapshot.memory_bytes).map_err(|_| wrong("it is too long"))?;
    if pieces.len() != len.div_ceil(PIECE_BYTES) {
        return Err(wrong("it has not as many pieces as its length says"));
    }
    let writer = MemoryImageWriter::new(len).map_err(none)?;
    for (at, piece) in (0..len).step_by(PIECE_BYTES).zip(pieces.iter()) {
        let expected = PIECE_BYTES.min(len - at) as u64;
        if !is_blob(piece) || ![0, expected].contains(&piece.size()) {
            return Err(wrong("a piece is no blob, or has not the length of one"));
        }
        if piece.size() > 0 {
            writer.write(at, load(store, piece)?.bytes()).map_err(none)?;
        }
    }
    writer.finish().map_err(none)
}
