// SPDX-License-Identifier: Apache-2.0
//! Parts of large objects: read and verified by their outboards, which are made
//! while the objects are written, or when one is first missed.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;

use blake3::hazmat::ChainingValue;
use objects::{HASH_LEN, Handle};

use super::Disk;
use crate::Error;
use crate::files::{Files, TempFile, object_len};
use crate::outboard::{
    GROUP_BYTES, Grower, group_value, group_values, groups_of, is_partial, outboard_len, upper_levels,
};

/// Groups that are read at once.
const GROUPS_AT_ONCE: usize = 64;
/// Values that are held before they are written: 64 KiB, for 32 MiB of an object.
const VALUES_HELD: usize = 2048;

/// What was found where a part should be.
enum Part {
    Sound(Vec<u8>),
    Damaged,
    /// The outboard that it takes cannot be kept.
    NoRoom,
}

impl Disk {
    /// These bytes of a large object, which lie within it; verified, whatever this
    /// process has read of it before.
    ///
    /// # Errors
    /// [`Error::Corrupt`] as [`Disk::read`], if what is read is damaged.
    pub(crate) fn read_part(&self, key: Handle, range: Range<u64>) -> Result<Option<Vec<u8>>, Error> {
        if self.is_gone(key, None) {
            return Ok(None);
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        loop {
            let Some((file, len)) = self.files.open_object(key)? else { return Ok(None) };
            self.note_used(key);
            let part = match len == object_len(key) {
                true => self.part_of(key, &file, range.clone())?,
                false => Part::Damaged,
            };
            match part {
                Part::Sound(part) => return Ok(Some(part)),
                Part::NoRoom => return self.part_of_whole(key, range),
                Part::Damaged => {
                    if let Some(error) = self.condemn(key, &file)? {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn part_of(&self, key: Handle, file: &File, range: Range<u64>) -> Result<Part, Error> {
        if range.is_empty() {
            return Ok(Part::Sound(Vec::new()));
        }
        let groups = groups_of(&range);
        let mut values = self.values(key, &groups);
        if values.is_none() {
            if !self.make_outboard(key, file, &groups)? {
                return Ok(Part::Damaged);
            }
            values = self.values(key, &groups);
        }
        let Some(values) = values else { return Ok(Part::NoRoom) };
        let mut part = Vec::with_capacity((range.end - range.start) as usize);
        let mut piece = vec![0; values.len().min(GROUPS_AT_ONCE) * GROUP_BYTES as usize];
        let mut group = groups.start;
        for values in values.chunks(GROUPS_AT_ONCE) {
            let begin = group * GROUP_BYTES;
            let end = (begin + values.len() as u64 * GROUP_BYTES).min(object_len(key));
            let bytes = &mut piece[..(end - begin) as usize];
            file.read_exact_at(bytes, begin).map_err(|source| self.unreadable(key, source))?;
            self.read_bytes.fetch_add(end - begin, Ordering::Relaxed);
            for (bytes, value) in bytes.chunks(GROUP_BYTES as usize).zip(values) {
                if group_value(key, group, bytes) != *value {
                    return Ok(Part::Damaged);
                }
                group += 1;
            }
            let wanted = range.start.max(begin) - begin..range.end.min(end) - begin;
            part.extend_from_slice(&bytes[wanted.start as usize..wanted.end as usize]);
        }
        Ok(Part::Sound(part))
    }

    fn unreadable(&self, key: Handle, source: io::Error) -> Error {
        Error::io(self.files.path(key), source)
    }

    /// The values of these groups, if there is an outboard that has them.
    fn values(&self, key: Handle, groups: &Range<u64>) -> Option<Vec<ChainingValue>> {
        let (file, len) = self.files.open_outboard(key).ok().flatten()?;
        if len != outboard_len(object_len(key)) {
            return None;
        }
        let read = |offset, bytes: &mut [u8]| {
            self.read_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            file.read_exact_at(bytes, offset)
        };
        group_values(key, groups.clone(), read).ok()
    }

    /// Reads all of an object, verifies it, and keeps its outboard if that can be. False
    /// if it is damaged.
    fn make_outboard(&self, key: Handle, file: &File, missed: &Range<u64>) -> Result<bool, Error> {
        let _one = self.making.lock();
        if self.values(key, missed).is_some() {
            // Somebody else has made it meanwhile.
            return Ok(true);
        }
        let mut growing = Growing::new(key.names_tree());
        let mut piece = vec![0; GROUPS_AT_ONCE * GROUP_BYTES as usize];
        let mut at = 0;
        loop {
            let read = file.read_at(&mut piece, at).map_err(|source| self.unreadable(key, source))?;
            if read == 0 {
                break;
            }
            self.read_bytes.fetch_add(read as u64, Ordering::Relaxed);
            growing.update(&self.files, &piece[..read]);
            at += read as u64;
        }
        let (hash, grown) = growing.finish();
        if at != object_len(key) || hash.as_bytes().get(..HASH_LEN) != Some(key.hash_bytes()) {
            return Ok(false);
        }
        let outboard = grown.complete(&self.files, key);
        let _stays = self.stay();
        if let Some(outboard) = outboard
            && self.files.contains(key)?
        {
            self.keep_outboard(outboard, key);
        }
        Ok(true)
    }

    fn part_of_whole(&self, key: Handle, range: Range<u64>) -> Result<Option<Vec<u8>>, Error> {
        let _stays = self.stay();
        let object = self.read(key)?;
        Ok(object.and_then(|object| Some(object.get(range.start as usize..range.end as usize)?.to_vec())))
    }

    /// Puts an outboard beside its object. Where that fails it is made another time.
    pub(super) fn keep_outboard(&self, outboard: TempFile, key: Handle) {
        if self.files.publish_outboard(outboard, key).is_ok_and(|is_new| is_new) {
            self.large.lock().bytes += outboard_len(object_len(key));
        }
    }

    pub(super) fn drop_outboard(&self, key: Handle) -> Result<(), Error> {
        if is_partial(key) && self.files.remove_outboard(key)? {
            let mut large = self.large.lock();
            large.bytes = large.bytes.saturating_sub(outboard_len(object_len(key)));
        }
        Ok(())
    }
}

/// The hash of an object that is being written, and its outboard. What goes wrong
/// with the latter is no error: it is made when it is missed.
pub(crate) struct Growing {
    grower: Grower,
    grown: Grown,
}

/// What there is of an outboard: values of groups.
#[derive(Default)]
pub(crate) struct Grown {
    /// Those that come last.
    values: Vec<ChainingValue>,
    /// Those before them, if there are many.
    temp: Option<TempFile>,
    is_lost: bool,
}

impl Growing {
    /// Of a blob, or a tree.
    pub(crate) fn new(is_tree: bool) -> Self {
        Self { grower: Grower::new(is_tree), grown: Grown::default() }
    }

    /// The outboard of an object that is in memory, if it is to have one.
    pub(crate) fn over(files: &Files, key: Handle, bytes: &[u8]) -> Option<TempFile> {
        if !is_partial(key) {
            return None;
        }
        let mut growing = Self::new(key.names_tree());
        growing.update(files, bytes);
        growing.finish().1.complete(files, key)
    }

    /// What comes next of the object.
    pub(crate) fn update(&mut self, files: &Files, bytes: &[u8]) {
        for piece in bytes.chunks(VALUES_HELD * GROUP_BYTES as usize) {
            self.grower.update(piece);
            self.grown.values.extend(self.grower.take_values());
            if self.grown.values.len() >= VALUES_HELD {
                self.grown.flush(files);
            }
        }
    }

    /// The hash of all.
    pub(crate) fn finish(self) -> (blake3::Hash, Grown) {
        let Self { grower, mut grown } = self;
        let (hash, values) = grower.finish();
        grown.values.extend(values);
        (hash, grown)
    }
}

impl Grown {
    fn flush(&mut self, files: &Files) {
        let values = std::mem::take(&mut self.values);
        if self.is_lost {
            return;
        }
        let mut write = || {
            let temp = match &mut self.temp {
                Some(temp) => temp,
                None => self.temp.insert(files.temp_file()?),
            };
            temp.write_all(values.as_flattened())
        };
        if write().is_err() {
            (self.temp, self.is_lost) = (None, true);
        }
    }

    /// The whole outboard, if the object is to have one and it could be written.
    pub(crate) fn complete(mut self, files: &Files, key: Handle) -> Option<TempFile> {
        if !is_partial(key) {
            return None;
        }
        self.flush(files);
        let temp = self.temp?;
        let read = |offset, bytes: &mut [u8]| temp.read_exact_at(bytes, offset);
        upper_levels(key, read, |bytes| temp.append(bytes)).ok()?;
        Some(temp)
    }
}

#[cfg(test)]
mod tests;
