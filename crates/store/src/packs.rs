// SPDX-License-Identifier: Apache-2.0
//! Small objects on disk: records in packs, which are files that only grow.
//!
//! Objects that are put together are one write and one sync. Where they are is
//! in the index, which is not synced for each of them: what it does not know
//! after a crash is read from the packs' ends ([`Packs::since`]). Nothing is
//! changed in place. Room is given back with whole packs: what of one is still
//! needed is written anew, and the file removed.
//!
//! A pack takes objects for an hour at most, so that its age is theirs.

mod medium;
mod records;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use objects::Handle;
use parking_lot::{Mutex, RwLock};

pub(crate) use medium::{Folder, Medium, Pack, Untouched};
pub(crate) use records::{Found, Records, Sound, UNIT, span};
pub(crate) use records::{HEADER_LEN, begun};
pub(crate) use records::{header, push};

use crate::files::object_len;
use crate::{Error, Object};

/// A pack is not begun anew before it has so many bytes, or is so old.
pub(crate) const PACK_BYTES: u64 = 256 << 20;
const PACK_AGE: Duration = Duration::from_secs(3600);
/// What is put again is written again if its pack is older: whoever puts something
/// counts on its staying for a while, named or not.
pub(crate) const FRESH: Duration = Duration::from_secs(1800);

/// Where an object's record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) pack: u32,
    /// In units from the pack's beginning.
    pub(crate) unit: u32,
}

impl Spot {
    pub(crate) fn to_u64(self) -> u64 {
        u64::from(self.pack) << 32 | u64::from(self.unit)
    }

    pub(crate) fn from_u64(spot: u64) -> Self {
        Self { pack: (spot >> 32) as u32, unit: spot as u32 }
    }
}

/// All packs of a store.
pub(crate) struct Packs {
    /// For messages.
    path: PathBuf,
    medium: Box<dyn Medium>,
    open: RwLock<BTreeMap<u32, Arc<dyn Pack>>>,
    /// The number of the next pack. None is used twice: what the index says of one
    /// must never be taken for another.
    next: AtomicU32,
    tail: Mutex<Option<Tail>>,
}

/// A pack, and how long what was written of it is.
type Written = (Arc<dyn Pack>, u64);

/// The pack that takes what is written.
struct Tail {
    number: u32,
    pack: Arc<dyn Pack>,
    len: u64,
    begun: u64,
}

impl Packs {
    /// Finds the packs that are there. The newest goes on being written to, once
    /// [`Packs::since`] has said where it ends.
    pub(crate) fn open(path: &Path, medium: Box<dyn Medium>) -> Result<Self, Error> {
        let fail = |source| Error::io(path, source);
        let mut open = BTreeMap::new();
        for number in medium.list().map_err(fail)? {
            open.insert(number, medium.open(number).map_err(fail)?);
        }
        let next = open.last_key_value().map_or(0, |(last, _)| last + 1);
        let (open, next) = (RwLock::new(open), AtomicU32::new(next));
        Ok(Self { path: path.to_owned(), medium, open, next, tail: Mutex::new(None) })
    }

    fn fail(&self, source: std::io::Error) -> Error {
        Error::io(&self.path, source)
    }

    /// Hands out what was written from `mark` on, synced, and says where that ends. Of each
    /// pack it reads up to what was not written whole, behind which nothing is that
    /// was acknowledged. What is damaged before that is not handed out: perhaps it was
    /// never written whole either, and whoever puts it again must not find it there.
    pub(crate) fn since(
        &self,
        mark: Spot,
        mut found: impl FnMut(Spot, Handle) -> Result<(), Error>,
    ) -> Result<Spot, Error> {
        let mut tail = self.tail.lock();
        let mut end = mark;
        self.next.fetch_max(mark.pack + u32::from(mark.unit > 0), Ordering::Relaxed);
        let packs: Vec<_> =
            self.open.read().range(mark.pack..).map(|(number, pack)| (*number, Arc::clone(pack))).collect();
        for (number, pack) in packs {
            let len = pack.len().map_err(|source| self.fail(source))?;
            let from = if number == mark.pack { u64::from(mark.unit) * UNIT } else { 0 };
            if len > from && !self.medium.is_untouched() {
                // A process that was killed has written it, and perhaps not waited for the disk.
                pack.sync().map_err(|source| self.fail(source))?;
            }
            let bytes = pack.all(len).map_err(|source| self.fail(source))?;
            let begun = bytes.get(..HEADER_LEN as usize).and_then(begun);
            let mut records = Records::new(&bytes, from);
            let mut whole = records.at();
            let mut is_damaged = begun.is_none();
            loop {
                match records.next().filter(Found::is_sound) {
                    Some(record) => found(Spot { pack: number, unit: record.unit }, record.key)?,
                    None if records.resume(whole) => is_damaged = true,
                    None => break,
                }
                whole = records.at();
            }
            end = Spot { pack: number, unit: (whole / UNIT) as u32 };
            // A damaged one stays as it is.
            *tail = begun.filter(|_| !is_damaged).map(|begun| Tail { number, pack, len: whole, begun });
        }
        Ok(end)
    }

    /// Writes objects, synced when this returns, and says where each is.
    pub(crate) fn append(&self, objects: &[(Handle, &[u8])]) -> Result<Vec<Spot>, Error> {
        let mut guard = self.tail.lock();
        let mut tail = self.tail_with_room(guard.take())?;
        let mut spots = Vec::with_capacity(objects.len());
        let mut bytes = Vec::new();
        let mut at = tail.len;
        for (key, object) in objects {
            debug_assert_eq!(object.len() as u64, object_len(*key));
            spots.push(Spot { pack: tail.number, unit: (at / UNIT) as u32 });
            push(&mut bytes, *key, object);
            at += span(*key);
        }
        let written = tail.pack.write_all_at(&bytes, tail.len).and_then(|()| tail.pack.sync());
        if let Err(source) = written {
            // What was not synced may be there or not, now and after a crash. Where it
            // can be cut off this pack goes on; otherwise it stays as it is, without a tail.
            let is_cut = tail.pack.set_len(tail.len).and_then(|()| tail.pack.sync()).is_ok();
            *guard = is_cut.then_some(tail);
            return Err(self.fail(source));
        }
        tail.len = at;
        *guard = Some(tail);
        Ok(spots)
    }

    /// Where the next object will be: everything before it is synced.
    pub(crate) fn end(&self) -> Spot {
        match &*self.tail.lock() {
            Some(tail) => Spot { pack: tail.number, unit: (tail.len / UNIT) as u32 },
            None => Spot { pack: self.next_number(), unit: 0 },
        }
    }

    fn next_number(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    fn tail_with_room(&self, tail: Option<Tail>) -> Result<Tail, Error> {
        let now = since_1970(now());
        let takes = |tail: &Tail| {
            let is_young = now.saturating_sub(tail.begun) < PACK_AGE.as_secs() && tail.begun <= now;
            tail.len < PACK_BYTES && is_young
        };
        if let Some(tail) = tail.filter(takes) {
            return Ok(tail);
        }
        let number = self.next_number();
        let pack = self.medium.create(number).map_err(|source| self.fail(source))?;
        if let Err(source) = pack.write_all_at(&header(now), 0) {
            // What cannot be removed either is an empty pack, which does no harm; its
            // number is not used again.
            if self.medium.remove(number).is_err() {
                self.next.store(number + 1, Ordering::Relaxed);
            }
            return Err(self.fail(source));
        }
        self.next.store(number + 1, Ordering::Relaxed);
        self.open.write().insert(number, Arc::clone(&pack));
        Ok(Tail { number, pack, len: HEADER_LEN, begun: now })
    }

    /// From now on a new pack is written to. Its number: all packs before it stay
    /// as they are.
    pub(crate) fn roll(&self) -> u32 {
        *self.tail.lock() = None;
        self.next_number()
    }

    /// Whether there is such a pack.
    pub(crate) fn contains(&self, number: u32) -> bool {
        self.open.read().contains_key(&number)
    }

    /// What to say of one that ought to be there.
    pub(crate) fn missing(&self, number: u32) -> Error {
        let what = format!("pack {number} is not there: put it back from a copy");
        self.fail(std::io::Error::new(std::io::ErrorKind::NotFound, what))
    }

    /// The bytes at a spot that are to be the object's, not verified. `None`: the
    /// pack is gone, or too short, or another object is there.
    pub(crate) fn read(&self, spot: Spot, key: Handle) -> Result<Option<Vec<u8>>, Error> {
        let Some(pack) = self.open.read().get(&spot.pack).cloned() else { return Ok(None) };
        let mut record = vec![0; Handle::LEN + object_len(key) as usize];
        match pack.read_exact_at(&mut record, u64::from(spot.unit) * UNIT) {
            Ok(()) => {}
            Err(source) if source.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(source) => return Err(self.fail(source)),
        }
        if record.get(..Handle::LEN) != Some(key.as_bytes()) {
            return Ok(None);
        }
        Ok(Some(record.split_off(Handle::LEN)))
    }

    /// [`Packs::read`] for who must not wait; `None`: whoever may has to look.
    pub(crate) fn read_cached(&self, spot: Spot, key: Handle) -> Option<Vec<u8>> {
        let pack = self.open.try_read()?.get(&spot.pack).cloned()?;
        let mut record = vec![0; Handle::LEN + object_len(key) as usize];
        let is_read = pack.read_cached(&mut record, u64::from(spot.unit) * UNIT);
        let is_it = is_read && record.get(..Handle::LEN) == Some(key.as_bytes());
        is_it.then(|| record.split_off(Handle::LEN))
    }

    /// The numbers of packs that were not written to since `before`, and how long they are.
    pub(crate) fn older(&self, before: SystemTime) -> Result<Vec<(u32, u64)>, Error> {
        let packs: Vec<_> = self.open.read().iter().map(|(number, pack)| (*number, pack.clone())).collect();
        let mut older = Vec::new();
        for (number, pack) in packs {
            if pack.changed().map_err(|source| self.fail(source))? < before {
                older.push((number, pack.len().map_err(|source| self.fail(source))?));
            }
        }
        Ok(older)
    }

    /// What is in the pack of this number, and in those after it, was put a short
    /// while ago.
    pub(crate) fn fresh_from(&self) -> u32 {
        let now = now();
        let age =
            |pack: &Arc<dyn Pack>| pack.changed().ok().and_then(|changed| now.duration_since(changed).ok());
        let open = self.open.read();
        let newest = open.iter().rev();
        let fresh = newest.take_while(|(_, pack)| age(pack).is_some_and(|age| age < FRESH));
        fresh
            .last()
            .map_or_else(|| open.last_key_value().map_or(0, |(last, _)| last + 1), |(first, _)| *first)
    }

    /// Numbers of all packs.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.open.read().keys().copied().collect()
    }

    /// All of a pack that was written, to look at record by record. `None`: it is gone.
    pub(crate) fn all(&self, number: u32) -> Result<Option<Object>, Error> {
        let Some((pack, len)) = self.pack(number)? else { return Ok(None) };
        pack.all(len).map(Some).map_err(|source| self.fail(source))
    }

    /// A pack, and how long what was written of it is. `None`: it is gone.
    pub(crate) fn pack(&self, number: u32) -> Result<Option<Written>, Error> {
        let tail = self.tail.lock();
        let Some(pack) = self.open.read().get(&number).cloned() else { return Ok(None) };
        let written = tail.as_ref().filter(|tail| tail.number == number).map(|tail| tail.len);
        drop(tail);
        let len = written.map_or_else(|| pack.len(), Ok).map_err(|source| self.fail(source))?;
        Ok(Some((pack, len)))
    }

    /// Writes the header of a pack anew, which begins when it was last written to, for all that is known.
    pub(crate) fn mend_header(&self, number: u32) -> Result<(), Error> {
        let Some((pack, _)) = self.pack(number)? else { return Ok(()) };
        let mended = pack.changed().and_then(|changed| {
            pack.write_all_at(&header(since_1970(changed)), 0)?;
            pack.sync()
        });
        mended.map_err(|source| self.fail(source))
    }

    /// Removes a pack that holds nothing the index names.
    pub(crate) fn remove(&self, number: u32) -> Result<(), Error> {
        self.medium.remove(number).map_err(|source| self.fail(source))?;
        self.open.write().remove(&number);
        Ok(())
    }

    /// Bytes of all packs.
    pub(crate) fn bytes(&self) -> u64 {
        self.open.read().values().map(|pack| pack.len().unwrap_or_default()).sum()
    }
}

#[expect(clippy::disallowed_methods, reason = "the age of what a disk holds outlives the process")]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

fn since_1970(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
pub(crate) mod tests;
