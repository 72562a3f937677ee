// SPDX-License-Identifier: Apache-2.0
//! Memories of snapshots, each as one image that all who go on from it share.
//!
//! An image is made of its pieces by whoever needs it first, while others wait. Most
//! programs begin alike: an image of which little differs from one that is here takes memory for
//! that only, and belongs to the same *family*. The
//! least recently used ones go when there are too many bytes; those that map one
//! keep it until they end. Private copies of which nothing differs from the image any
//! more are kept for the next ones, who have no fault at the pages that were written before; one
//! of another image of the family is turned into what is wanted.

use std::collections::HashMap;
use std::sync::Arc;

use linux::{KeptCopy, MemoryImage, MemoryImageWriter};
use objects::{FailureCode, Handle};
use parking_lot::Mutex;
use store::{Object, Store};

use super::files::is_blob;
use super::snapshot::{PIECE_BYTES, Snapshot};
use crate::Fault;
use crate::wasm::call::load;

/// Images at most.
const IMAGES_MAX: usize = 1024;
/// Files that they are in, at most.
const FILES_MAX: usize = 256;
/// Families that a new image is compared with, those used last.
const COMPARED_MAX: usize = 8;
/// Pages in which an image may differ from what its family has in common, at most: they are copied
/// after each call, which for these takes a few milliseconds at worst.
const CHANGED_PAGES_MAX: usize = 2048;
/// At most this part of all may differ: else too little is shared for what it takes.
const CHANGED_PART_MAX: u64 = 8;
/// Of a small one so many may.
const CHANGED_PAGES_MIN: usize = 16;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// Copies that are kept for one family.
const COPIES_MAX: usize = 8;
/// To give more bytes than this back to a copy takes as long as making one.
pub(super) const PRIVATE_BYTES_MAX: u64 = 64 << 20;

/// What an empty piece stands for.
static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

/// The image of one memory, once it was made.
type Place = Arc<Mutex<Option<Arc<MemoryImage>>>>;

#[derive(Default)]
struct Entry {
    place: Place,
    image: Option<Arc<MemoryImage>>,
    /// Of the image, without those in common.
    bytes: u64,
    last_used: u64,
}

/// Images that have bytes in common.
struct Family {
    first: Arc<MemoryImage>,
    members: usize,
    /// Those in common.
    bytes: u64,
    copies: Vec<KeptCopy>,
    last_used: u64,
}

#[derive(Default)]
struct Entries {
    by_memory: HashMap<Handle, Entry>,
    families: Vec<Family>,
    /// Of images, families and copies.
    bytes: u64,
    /// That images are in.
    files: usize,
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
        let pieces = Pieces::of(snapshot, store)?;
        let made = Arc::new(pieces.image(&self.families())?);
        pieces.let_go();
        *image = Some(Arc::clone(&made));
        self.entries.lock().made(snapshot.memory, &made, self.bytes_max);
        Ok(made)
    }

    /// A copy of the image that [`Self::of`] gave, if one was kept for it or can be turned into one.
    pub(super) fn copy(&self, image: &Arc<MemoryImage>) -> Option<KeptCopy> {
        let copy = {
            let mut entries = self.entries.lock();
            entries.clock += 1;
            let clock = entries.clock;
            let family = entries.family(image)?;
            family.last_used = clock;
            let own = family.copies.iter().position(|copy| Arc::ptr_eq(copy.image(), image));
            let fits = || family.copies.iter().position(|copy| copy.fits(image));
            let copy = family.copies.remove(own.or_else(fits)?);
            entries.bytes -= copy.private_bytes();
            copy
        };
        copy.turned(image)
    }

    /// Keeps a copy for others, if there is room for it.
    pub(super) fn keep(&self, memory: Handle, copy: KeptCopy) {
        let mut entries = self.entries.lock();
        if entries.bytes_of(copy.image()) + copy.private_bytes() > self.bytes_max {
            return;
        }
        let bytes = copy.private_bytes();
        let Some(family) = entries.family(copy.image()) else { return };
        let oldest = (family.copies.len() == COPIES_MAX).then(|| family.copies.remove(0));
        family.copies.push(copy);
        entries.bytes += bytes;
        entries.bytes -= oldest.as_ref().map_or(0, KeptCopy::private_bytes);
        entries.drop_oldest(memory, self.bytes_max);
    }

    fn place(&self, memory: Handle) -> Place {
        let mut entries = self.entries.lock();
        entries.clock += 1;
        let last_used = entries.clock;
        let entry = entries.by_memory.entry(memory).or_default();
        entry.last_used = last_used;
        let place = Arc::clone(&entry.place);
        entries.drop_oldest(memory, self.bytes_max);
        place
    }

    /// An image of each family that was used last.
    fn families(&self) -> Vec<Arc<MemoryImage>> {
        let mut entries = self.entries.lock();
        entries.families.sort_unstable_by_key(|family| std::cmp::Reverse(family.last_used));
        entries.families.iter().take(COMPARED_MAX).map(|family| Arc::clone(&family.first)).collect()
    }
}

impl Entries {
    fn family(&mut self, image: &MemoryImage) -> Option<&mut Family> {
        self.families.iter_mut().find(|family| family.first.shares_with(image))
    }

    /// Of its family with all copies, and its own.
    fn bytes_of(&mut self, image: &MemoryImage) -> u64 {
        let of_family = |family: &mut Family| {
            family.bytes + family.copies.iter().map(KeptCopy::private_bytes).sum::<u64>()
        };
        image.own_bytes().unwrap_or(0) + self.family(image).map_or(0, of_family)
    }

    fn made(&mut self, memory: Handle, image: &Arc<MemoryImage>, bytes_max: u64) {
        let last_used = self.clock;
        let Some(entry) = self.by_memory.get_mut(&memory) else { return };
        // One that was dropped meanwhile, and is made by another one again, is not counted twice.
        if entry.image.is_some() {
            return;
        }
        entry.image = Some(Arc::clone(image));
        entry.bytes = image.own_bytes().unwrap_or(image.len() as u64);
        self.bytes += entry.bytes;
        self.files += usize::from(image.has_tail());
        match self.family(image) {
            Some(family) => {
                family.members += 1;
                family.last_used = last_used;
            }
            None => {
                let bytes = image.common_bytes().unwrap_or(image.len() as u64);
                self.bytes += bytes;
                self.files += 1;
                let first = Arc::clone(image);
                self.families.push(Family { first, members: 1, bytes, copies: Vec::new(), last_used });
            }
        }
        self.drop_oldest(memory, bytes_max);
    }

    /// Holds to the bounds, but keeps `current`.
    fn drop_oldest(&mut self, current: Handle, bytes_max: u64) {
        debug_assert_eq!((self.bytes, self.files), self.counted(), "what is there was counted once");
        while self.bytes > bytes_max || self.files > FILES_MAX || self.by_memory.len() > IMAGES_MAX {
            let others = self.by_memory.iter().filter(|(memory, _)| **memory != current);
            let oldest = others.min_by_key(|(_, entry)| entry.last_used).map(|(memory, _)| *memory);
            let Some(entry) = oldest.and_then(|oldest| self.by_memory.remove(&oldest)) else { return };
            self.dropped(&entry);
        }
    }

    /// Bytes and files, by looking at all.
    fn counted(&self) -> (u64, usize) {
        let images = self.by_memory.values().filter_map(|entry| Some((entry.bytes, entry.image.as_ref()?)));
        let own = images.map(|(bytes, image)| (bytes, usize::from(image.has_tail())));
        let copies = |family: &Family| family.copies.iter().map(KeptCopy::private_bytes).sum::<u64>();
        let families = self.families.iter().map(|family| (family.bytes + copies(family), 1));
        own.chain(families).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    fn dropped(&mut self, entry: &Entry) {
        let Some(image) = &entry.image else { return };
        self.bytes -= entry.bytes;
        self.files -= usize::from(image.has_tail());
        let place = self.families.iter().position(|family| family.first.shares_with(image));
        let Some(place) = place else { return };
        self.families[place].members -= 1;
        if self.families[place].members == 0 {
            let family = self.families.swap_remove(place);
            self.files -= 1;
            self.bytes -= family.bytes + family.copies.iter().map(KeptCopy::private_bytes).sum::<u64>();
        }
    }
}

/// A snapshot's memory, as objects.
struct Pieces<'a> {
    store: &'a Store,
    list: Object,
    len: usize,
}

impl<'a> Pieces<'a> {
    fn of(snapshot: &Snapshot, store: &'a Store) -> Result<Self, Fault> {
        let list = load(store, snapshot.memory)?;
        let len = usize::try_from(snapshot.memory_bytes).map_err(|_| wrong("it is too long"))?;
        if list.as_tree().len() != len.div_ceil(PIECE_BYTES) {
            return Err(wrong("it has not as many pieces as its length says"));
        }
        for (at, piece) in (0..len).step_by(PIECE_BYTES).zip(list.as_tree().iter()) {
            let expected = PIECE_BYTES.min(len - at) as u64;
            if !is_blob(piece) || ![0, expected].contains(&piece.size()) {
                return Err(wrong("a piece is no blob, or has not the length of one"));
            }
        }
        Ok(Self { store, list, len })
    }

    /// The image: like one of these, or of a family of its own.
    fn image(&self, families: &[Arc<MemoryImage>]) -> Result<MemoryImage, Fault> {
        for family in families {
            if let Some(image) = self.alike(family)? {
                return Ok(image);
            }
        }
        let mut writer = MemoryImageWriter::new(self.len).map_err(none)?;
        for (at, piece) in (0..self.len).step_by(PIECE_BYTES).zip(self.list.as_tree().iter()) {
            if piece.size() > 0 {
                writer.write(at, load(self.store, piece)?.bytes()).map_err(none)?;
            }
        }
        writer.finish().map_err(none)
    }

    /// The image, if not much of it differs from another one.
    fn alike(&self, other: &MemoryImage) -> Result<Option<MemoryImage>, Fault> {
        let part = other.common_bytes().map_err(none)? / PAGE / CHANGED_PART_MAX;
        let pages_max = (part as usize).clamp(CHANGED_PAGES_MIN, CHANGED_PAGES_MAX);
        let Some(mut writer) = other.alike(self.len, pages_max).map_err(none)? else {
            return Ok(None);
        };
        for (at, piece) in (0..self.len).step_by(PIECE_BYTES).zip(self.list.as_tree().iter()) {
            let is_alike = match piece.size() {
                0 => writer.write(&ZEROS[..PIECE_BYTES.min(self.len - at)]),
                _ => writer.write(load(self.store, piece)?.bytes()),
            };
            if !is_alike.map_err(none)? {
                return Ok(None);
            }
        }
        writer.finish().map(Some).map_err(none)
    }

    /// The image has them now: what is on disk need not be in memory besides.
    fn let_go(&self) {
        self.list.as_tree().iter().for_each(|piece| self.store.let_go(piece));
    }
}

fn wrong(why: &str) -> Fault {
    Fault::new(FailureCode::BadThunk, format!("the snapshot's memory: {why}"))
}

fn none(error: std::io::Error) -> Fault {
    Fault::new(FailureCode::Resources, format!("the node cannot map the snapshot's memory: {error}"))
}

#[cfg(test)]
mod tests;
