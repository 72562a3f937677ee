// SPDX-License-Identifier: Apache-2.0
//! Reading from the tier: whole objects, which are kept on the disk then, and parts of
//! large ones. Whatever comes is compared with its name.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use objects::Handle;

use super::far::Far;
use super::form::{object_name, outboard_name, pack_name};
use crate::disk::{Disk, Growing, hashes_to};
use crate::files::{is_large, object_len};
use crate::index::{Batch, Place, Tiered};
use crate::memory::DURABLE;
use crate::outboard::{GROUP_BYTES, group_value, group_values, groups_of, is_partial, outboard_len};
use crate::{Error, Object, Store};

/// What is read at once of a large object.
const PIECE_BYTES: u64 = 8 << 20;
/// The longest object that is read without being kept on the disk.
const LOOKED_BYTES_MAX: u64 = 256 << 20;
/// Groups that are read at once: 1 MiB.
const GROUPS_AT_ONCE: u64 = 64;
/// The last levels of an outboard that are read at once, and kept: those of 1024 nodes and less.
const TAIL_BYTES: u64 = 64 << 10;

impl Store {
    /// Whether an object that is not here is in the tier, as far as is known: not if it was found damaged there.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Index`] if the disk cannot be read.
    pub fn is_far(&self, handle: Handle) -> Result<bool, Error> {
        let Some(disk) = self.disk() else { return Ok(false) };
        Ok(disk.far_place(handle.plain_tree())?.is_some_and(|(_, row)| !row.is_damaged))
    }

    /// What it would take to bring so many bytes of an object, or all of it if it has no more, in
    /// nanoseconds, by what was seen of the tier. `None`: it is not there.
    ///
    /// # Errors
    /// As [`Store::is_far`].
    pub fn far_nanos(&self, handle: Handle, bytes: u64) -> Result<Option<u64>, Error> {
        let key = handle.plain_tree();
        let Some(disk) = self.disk() else { return Ok(None) };
        let Some((far, _)) = disk.far_place(key)? else { return Ok(None) };
        let (speed, (reads, sent)) = (far.speed(), sent_for(key, bytes));
        let moving = sent as f64 * 1e9 / speed.bytes_per_s.max(1.0);
        Ok(Some((reads as f64 * speed.latency_nanos + moving) as u64))
    }

    /// The object from the tier, which is kept on the disk from now on. Takes as long as the tier
    /// does. `None`: it is not there.
    ///
    /// # Errors
    /// [`Error::Far`] if it does not come, or is something else.
    pub fn bring(&self, handle: Handle) -> Result<Option<Object>, Error> {
        let key = handle.plain_tree();
        let Some(disk) = self.disk() else { return Ok(None) };
        let Some((far, tiered)) = disk.far_place(key)? else { return Ok(None) };
        let Some(_boarded) = far.board(key) else {
            // Whoever read it has told why not, if it did not come; then this one tries too.
            return match self.get_here(handle)? {
                Some(object) => Ok(Some(object)),
                None => self.bring_one(disk, far, key, tiered).map(Some),
            };
        };
        if let Some(object) = self.get_here(handle)? {
            return Ok(Some(object));
        }
        self.bring_one(disk, far, key, tiered).map(Some)
    }

    fn bring_one(&self, disk: &Disk, far: &Far, key: Handle, tiered: Tiered) -> Result<Object, Error> {
        let object = if is_large(key) {
            disk.judged(far, key, &tiered, self.bring_large(disk, far, key))?
        } else {
            let object = Object::from_vec(disk.far_whole(far, key, tiered)?);
            let _stays = disk.stay();
            // Where the disk is full it is only in memory, and comes another time again.
            let is_kept = disk.write(&[(key, object.clone())], Vec::new()).is_ok();
            self.memory.insert_with(key, if is_kept { DURABLE } else { 0 }, || object.clone());
            object
        };
        far.counts.brought.fetch_add(1, Ordering::Relaxed);
        Ok(object)
    }

    fn bring_large(&self, disk: &Disk, far: &Far, key: Handle) -> Result<Object, Error> {
        let mut temp = disk.temp_file()?;
        let mut growing = Growing::new(key.names_tree());
        let len = object_len(key);
        let mut at = 0;
        while at < len {
            let piece = far.read(key, &object_name(key), at..(at + PIECE_BYTES).min(len))?;
            growing.update(disk.files(), &piece);
            temp.write_all(&piece)?;
            at += piece.len() as u64;
        }
        let (hash, grown) = growing.finish();
        if !crate::outboard::is_hash_of(&hash, key) {
            return Err(far.wrong(key));
        }
        let outboard = grown.complete(disk.files(), key);
        let _stays = disk.stay();
        let object = disk.adopt(temp, key, outboard)?;
        let object = object.ok_or_else(|| far.failed(key, "it was taken away again at once".to_owned()))?;
        self.memory.insert_with(key, DURABLE, || object.clone());
        Ok(object)
    }

    /// These bytes of a large object in the tier, which lie within it, without the rest.
    pub(crate) fn bring_part(&self, key: Handle, range: Range<u64>) -> Result<Option<Vec<u8>>, Error> {
        let Some(disk) = self.disk() else { return Ok(None) };
        let Some((far, tiered)) = disk.far_place(key)? else { return Ok(None) };
        let part = far.part(key, range);
        if part.is_err() {
            far.note_damaged(disk, key, &tiered)?;
        }
        part.map(Some)
    }
}

/// How often the tier is asked for so many bytes of an object, one after another, and what it sends.
fn sent_for(key: Handle, bytes: u64) -> (u64, u64) {
    let len = object_len(key);
    if bytes >= len || !is_partial(key) {
        return (len.div_ceil(PIECE_BYTES).max(1), len);
    }
    // The groups that they are in, and before these the end of the outboard.
    let groups = bytes.div_ceil(GROUP_BYTES) + 1;
    (1 + groups.div_ceil(GROUPS_AT_ONCE), (groups * GROUP_BYTES).min(len) + TAIL_BYTES.min(outboard_len(len)))
}

impl Disk {
    /// The tier, and where it has the object.
    pub(crate) fn far_place(&self, key: Handle) -> Result<Option<(&Arc<Far>, Tiered)>, Error> {
        let Some(far) = self.far() else { return Ok(None) };
        Ok(self.tiered(key)?.map(|tiered| (far, tiered)))
    }

    /// The object from the tier, kept nowhere: for who may not write.
    pub(crate) fn look_far(&self, key: Handle) -> Result<Option<Object>, Error> {
        let Some((far, tiered)) = self.far_place(key)? else { return Ok(None) };
        if object_len(key) > LOOKED_BYTES_MAX {
            let why = "it is too long to be held in memory: read it, which has it brought to the disk";
            return Err(far.failed(key, why.to_owned()));
        }
        Ok(Some(Object::from_vec(self.far_whole(far, key, tiered)?)))
    }

    /// All of an object, in memory, wherever it is moved to in the tier meanwhile.
    pub(super) fn far_whole(&self, far: &Far, key: Handle, mut tiered: Tiered) -> Result<Vec<u8>, Error> {
        loop {
            let read = far.whole(key, tiered);
            let row = if read.is_err() { self.tiered(key)? } else { None };
            match row.filter(|row| row.place != tiered.place) {
                Some(row) => {
                    far.is_there(key);
                    tiered = row;
                }
                None => return self.judged(far, key, &tiered, read),
            }
        }
    }

    /// What was read of all of an object, where this row says: notes what that says about it.
    fn judged<T>(&self, far: &Far, key: Handle, tiered: &Tiered, read: Result<T, Error>) -> Result<T, Error> {
        match &read {
            Err(_) => far.note_damaged(self, key, tiered)?,
            // It may be the outboard that is not what it should be.
            Ok(_) if tiered.is_damaged && is_large(key) => {
                if self.contains(key)? {
                    far.note_put(std::iter::once(key));
                }
            }
            Ok(_) if tiered.is_damaged || (!tiered.is_seen && is_large(key)) => {
                // What somebody else has found meanwhile stays.
                let good = |row: Tiered| match row == *tiered {
                    true => Tiered { is_seen: true, is_damaged: false, ..row },
                    false => row,
                };
                far.change_rows(self, &[key], Batch::default(), |_, row| row.map(good))?;
            }
            Ok(_) => {}
        }
        read
    }
}

impl Far {
    pub(super) fn failed(&self, key: Handle, why: String) -> Error {
        Error::Far { handle: key, tier: self.depot.name(), why }
    }

    /// What came is not the object.
    fn wrong(&self, key: Handle) -> Error {
        self.counts.corrupt.fetch_add(1, Ordering::Relaxed);
        self.note_lost(key);
        self.failed(key, "it has other bytes under this name: they are damaged there".to_owned())
    }

    /// Exactly these bytes of what has a name.
    fn read(&self, key: Handle, name: &str, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let began = Instant::now();
        let wanted = range.end - range.start;
        let bytes = self.depot.get(name, range).map_err(|error| {
            // What does not come takes time as well.
            self.note_read(0, began.elapsed());
            self.failed(key, error.to_string())
        })?;
        let bytes = bytes.ok_or_else(|| {
            self.note_lost(key);
            self.failed(key, format!("{name} is not there any more"))
        })?;
        self.note_read(bytes.len() as u64, began.elapsed());
        if bytes.len() as u64 != wanted {
            return Err(self.wrong(key));
        }
        Ok(bytes)
    }

    /// All of an object, in memory.
    fn whole(&self, key: Handle, tiered: Tiered) -> Result<Vec<u8>, Error> {
        let bytes = match tiered.place {
            Place::Packed { pack, offset } => {
                let begin = u64::from(offset);
                self.read(key, &pack_name(&pack), begin..begin + object_len(key))?
            }
            Place::Lone => {
                let mut bytes = Vec::new();
                while (bytes.len() as u64) < object_len(key) {
                    let at = bytes.len() as u64;
                    let piece = at..(at + PIECE_BYTES).min(object_len(key));
                    bytes.extend_from_slice(&self.read(key, &object_name(key), piece)?);
                }
                bytes
            }
        };
        if hashes_to(&bytes, key) { Ok(bytes) } else { Err(self.wrong(key)) }
    }

    fn part(&self, key: Handle, range: Range<u64>) -> Result<Vec<u8>, Error> {
        debug_assert!(is_partial(key), "smaller ones are read whole");
        if range.is_empty() {
            return Ok(Vec::new());
        }
        self.counts.parts.fetch_add(1, Ordering::Relaxed);
        let groups = groups_of(&range);
        let values = self.values(key, &groups)?;
        let mut part = Vec::with_capacity((range.end - range.start) as usize);
        let mut group = groups.start;
        for values in values.chunks(GROUPS_AT_ONCE as usize) {
            let begin = group * GROUP_BYTES;
            let end = (begin + values.len() as u64 * GROUP_BYTES).min(object_len(key));
            let bytes = self.read(key, &object_name(key), begin..end)?;
            for (bytes, value) in bytes.chunks(GROUP_BYTES as usize).zip(values) {
                if group_value(key, group, bytes) != *value {
                    return Err(self.wrong(key));
                }
                group += 1;
            }
            let wanted = range.start.max(begin) - begin..range.end.min(end) - begin;
            part.extend_from_slice(&bytes[wanted.start as usize..wanted.end as usize]);
        }
        Ok(part)
    }

    /// What these groups hash to, down from the object's name.
    fn values(&self, key: Handle, groups: &Range<u64>) -> Result<Vec<[u8; 32]>, Error> {
        let (name, len) = (outboard_name(key), outboard_len(object_len(key)));
        let tail_from = len.saturating_sub(TAIL_BYTES);
        let tail = match self.tail(key) {
            Some(tail) => tail,
            None => {
                let tail = Arc::new(self.read(key, &name, tail_from..len)?);
                self.keep_tail(key, Arc::clone(&tail));
                tail
            }
        };
        let mut failure = None;
        let read = |offset: u64, bytes: &mut [u8]| {
            let end = offset + bytes.len() as u64;
            if offset >= tail_from {
                let from = (offset - tail_from) as usize;
                let kept = tail.get(from..from + bytes.len());
                bytes.copy_from_slice(kept.ok_or(std::io::ErrorKind::UnexpectedEof)?);
                return Ok(());
            }
            match self.read(key, &name, offset..end) {
                Ok(read) => bytes.copy_from_slice(&read),
                Err(error) => {
                    failure = Some(error);
                    return Err(std::io::ErrorKind::Other.into());
                }
            }
            Ok(())
        };
        let values = group_values(key, groups.clone(), read);
        values.map_err(|_| {
            self.tails.lock().remove(&key);
            failure.unwrap_or_else(|| self.wrong(key))
        })
    }
}
