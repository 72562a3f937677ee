// SPDX-License-Identifier: Apache-2.0
//! Sends what is on the disk to the tier.
//!
//! There is no queue to be lost. Small objects are in packs that only grow, so that up to where
//! they were sent is one number; a large one that has no row of the tier was not sent. A row, and
//! that number, are written after the tier has what they say.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use objects::Handle;

use super::depot::DepotError;
use super::far::{Far, Halt, Lane};
use super::form::{self, PACK_BYTES, PACK_OBJECTS, object_name, outboard_name, pack_name};
use super::rows::ROWS;
use crate::disk::Disk;
use crate::files::{is_large, object_len};
use crate::index::{Batch, Place, Tiered};
use crate::memory::Memory;
use crate::outboard::{Grower, is_hash_of, is_partial, upper_levels};
use crate::packs::{Sound, Spot, UNIT, now};
use crate::{Error, Object};

/// Up to where packs were sent.
pub(super) const END: &str = "end";
/// Records whose rows are looked up together.
const LOOKED_UP: usize = 256;

/// What is sent together, and where the next begins.
struct Chunk {
    objects: Vec<(Handle, Object)>,
    /// They are there for long, and somebody has put them again.
    renewed: Vec<Handle>,
    next: Spot,
    is_last: bool,
}

/// Sends small objects until there are none that wait.
pub(super) fn packs(disk: &Disk, far: &Far) -> Result<(), Halt> {
    let _in_order = far.sending_packs.lock();
    let goal = disk.index().packs().end();
    look_again(disk, far)?;
    let mut from = sent_to(disk)?;
    let before = far.progress.lock().packs_before;
    loop {
        let chunk = collect(disk, from, before)?;
        renew(disk, far, &chunk.renewed)?;
        if !chunk.objects.is_empty() {
            super::owning::ensure(disk, far)?;
            send_pack(disk, far, &chunk.objects, Some(chunk.next))?;
        } else if chunk.next != from {
            disk.committer().commit(end_batch(chunk.next))?;
        }
        from = chunk.next;
        if chunk.is_last {
            break;
        }
        if far.progress.lock().is_closing {
            return Err(Halt::Later("the node stops".to_owned()));
        }
        if far.is_taken.load(Ordering::Relaxed) {
            return Err(Halt::Later("it is being taken".to_owned()));
        }
    }
    let mut progress = far.progress.lock();
    progress.packs = progress.packs.max(goal);
    drop(progress);
    far.changed.notify_all();
    Ok(())
}

/// Up to where packs were sent.
pub(super) fn sent_to(disk: &Disk) -> Result<Spot, Error> {
    let end = disk.index().tier_note(END)?;
    let end = end.and_then(|end| Some(u64::from_le_bytes(*end.first_chunk()?)));
    Ok(Spot::from_u64(end.unwrap_or_default()))
}

/// Has all that is here and has no row sent. For who lets nobody send packs meanwhile.
pub(super) fn begin_anew(disk: &Disk, far: &Far) -> Result<(), Error> {
    let begin = Spot::from_u64(0);
    disk.committer().commit(end_batch(begin))?;
    let mut progress = far.progress.lock();
    progress.packs = begin;
    progress.unlist();
    Ok(())
}

fn end_batch(end: Spot) -> Batch {
    let tier_notes = vec![(END, end.to_u64().to_le_bytes().to_vec())];
    Batch { tier_notes, ..Batch::default() }
}

/// Somebody has put these again, which are there for long: they stay there as what was put now.
fn renew(disk: &Disk, far: &Far, keys: &[Handle]) -> Result<(), Error> {
    let now = now();
    far.change_rows(disk, keys, Batch::default(), |_, row| row.map(|row| row.relied_on(now)))
}

/// Has all packs looked at from the beginning on, if something in them may have to be sent again.
fn look_again(disk: &Disk, far: &Far) -> Result<(), Error> {
    if !far.progress.lock().are_packs_doubtful {
        return Ok(());
    }
    let (begin, end) = (Spot::from_u64(0), sent_to(disk)?);
    disk.committer().commit(end_batch(begin))?;
    let mut progress = far.progress.lock();
    progress.are_packs_doubtful = false;
    progress.packs = begin;
    progress.packs_before = progress.packs_before.max(end);
    Ok(())
}

/// What comes behind a place in the packs and is not in the tier. What is before the other one was not put again.
fn collect(disk: &Disk, from: Spot, before: Spot) -> Result<Chunk, Error> {
    let packs = disk.index().packs();
    let mut chunk = Chunk { objects: Vec::new(), renewed: Vec::new(), next: from, is_last: false };
    let (mut bytes, mut seen) = (0, HashSet::new());
    for number in packs.numbers().into_iter().filter(|number| *number >= from.pack) {
        let begin = if number == from.pack { u64::from(from.unit) * UNIT } else { 0 };
        // It was taken away meanwhile, and what is needed of it written anew behind.
        let Some(pack) = packs.all(number)? else { continue };
        let mut records = Sound::new(&pack, begin);
        loop {
            let some: Vec<_> = records.by_ref().take(LOOKED_UP).collect();
            let keys: Vec<Handle> = some.iter().map(|record| record.key).collect();
            for (record, row) in some.iter().zip(disk.all_tiered(&keys)?) {
                let is_new = Spot { pack: number, unit: record.unit } >= before;
                chunk.renewed.extend(row.filter(|row| is_new && row.is_stale()).map(|_| record.key));
                if row.is_none_or(|row| row.is_damaged) && seen.insert(record.key) {
                    bytes += record.bytes.len();
                    chunk.objects.push((record.key, Object::copy_of(record.bytes)));
                }
            }
            chunk.next = Spot { pack: number, unit: (records.at() / UNIT) as u32 };
            if some.len() < LOOKED_UP {
                break;
            }
            let is_much = chunk.renewed.len() >= ROWS || chunk.objects.len() + LOOKED_UP > PACK_OBJECTS;
            if bytes >= PACK_BYTES || is_much {
                return Ok(chunk);
            }
        }
    }
    chunk.is_last = true;
    Ok(chunk)
}

/// Sends small objects in one pack, and notes that they are there.
pub(super) fn send_pack(
    disk: &Disk,
    far: &Far,
    objects: &[(Handle, Object)],
    end: Option<Spot>,
) -> Result<(), Halt> {
    let (pack, bytes) = form::pack(objects);
    let contents = form::table_len(&bytes).and_then(|len| form::contents(&pack, bytes.get(..len as usize)?));
    let contents = contents.ok_or_else(|| Halt::Later("a pack is not what it was made to be".to_owned()))?;
    let len = bytes.len() as u64;
    let _claimed = far.claim(pack_name(&pack));
    if let Some(sentence) = far.sentence() {
        sentence.spare_pack(&pack);
    }
    far.depot.put(&pack_name(&pack), &Object::from_vec(bytes))?;
    super::owning::ensure(disk, far)?;
    let offsets: HashMap<Handle, u32> = contents.iter().copied().collect();
    let keys: Vec<Handle> = contents.into_iter().map(|(key, _)| key).collect();
    far.change_rows(disk, &keys, end.map(end_batch).unwrap_or_default(), |key, _| {
        let place = Place::Packed { pack, offset: *offsets.get(&key)? };
        Some(Tiered::sent(place))
    })?;
    far.counts.sent.fetch_add(objects.len() as u64, Ordering::Relaxed);
    far.counts.sent_bytes.fetch_add(len, Ordering::Relaxed);
    Ok(())
}

/// Sends large objects until there are none that wait.
pub(super) fn large(disk: &Disk, far: &Far) -> Result<(), Halt> {
    let mut refusals = Refusals(0);
    loop {
        let mut progress = far.progress.lock();
        if progress.is_closing {
            return Err(Halt::Later("the node stops".to_owned()));
        }
        let next = progress.front();
        // What came before them goes first; what comes from now on is listed again.
        let is_before = |number: &mut u64| next.is_none_or(|(first, _)| first > *number);
        let unlisted = progress.unlisted.take_if(is_before);
        let due = if unlisted.is_none() { progress.aside_due() } else { None };
        if let Some((_, key)) = next.filter(|_| unlisted.is_none() && due.is_none()) {
            // Who puts it again from now on has it sent again.
            progress.begins(&key);
        }
        drop(progress);
        if let Some(number) = unlisted {
            let sent = send_unlisted(disk, far, &mut refusals);
            let mut progress = far.progress.lock();
            match sent {
                Ok(()) => progress.large_done = progress.large_done.max(number),
                Err(halt) => {
                    progress.unlist();
                    return Err(halt);
                }
            }
        } else if let Some(key) = due {
            refusals.note(far, send_or_put_aside(disk, far, u64::MAX, key)?)?;
        } else if let Some((number, key)) = next {
            let refusal = send_or_put_aside(disk, far, number, key)?;
            if refusal.is_none() {
                far.progress.lock().pop();
            }
            refusals.note(far, refusal)?;
        } else {
            return Ok(());
        }
        far.changed.notify_all();
    }
}

/// How many were refused one after another.
struct Refusals(u32);

impl Refusals {
    /// So many are due to the tier and not to them: it is left in peace for a while.
    const MOST: u32 = 16;

    fn note(&mut self, far: &Far, refusal: Option<Halt>) -> Result<(), Halt> {
        let Some(halt) = refusal else {
            self.0 = 0;
            return Ok(());
        };
        self.0 += 1;
        if self.0 >= Self::MOST {
            return Err(halt);
        }
        far.counts.failures.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Sends one whose turn has come. One that the tier does not take is put aside, to be tried again after those
/// that wait; why it does not, if so.
fn send_or_put_aside(disk: &Disk, far: &Far, number: u64, key: Handle) -> Result<Option<Halt>, Halt> {
    let sent = send_large(disk, far, key);
    let mut progress = far.progress.lock();
    match sent {
        Ok(is_new) => {
            let was_aside = progress.aside.remove(&key).is_some();
            if was_aside && is_new {
                progress.hasten(far.options.pause_max);
            }
            Ok(None)
        }
        Err(Halt::Object(key, why)) => {
            let refusal = Halt::Object(key, why.clone());
            // There may be too many.
            match progress.put_aside(number, key, why, far.options.pause_max) {
                true => Ok(Some(refusal)),
                false => Err(refusal),
            }
        }
        Err(halt) => Err(halt),
    }
}

/// Sends all that no row of the tier names, or one that is wrong, but for what nobody put.
fn send_unlisted(disk: &Disk, far: &Far, refusals: &mut Refusals) -> Result<(), Halt> {
    /// When they were put is not known: whoever waits for everything waits for them. The first number there is.
    const BEFORE_ALL: u64 = 1;
    let mut files = Vec::new();
    disk.files().visit(|key, path| {
        files.push((key, std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()));
    })?;
    for some in files.chunks(LOOKED_UP) {
        let (keys, written): (Vec<_>, Vec<_>) = some.iter().copied().unzip();
        let unpromised = disk.unpromised(&keys)?;
        let rows = disk.all_tiered(&keys)?;
        // Some may have been put again since they were sent.
        let mut written = written.into_iter();
        far.change_rows(disk, &keys, Batch::default(), |_, row| {
            let at = written.next().flatten();
            row.map(|row| at.filter(|_| row.is_stale()).map_or(row, |at| row.relied_on(at)))
        })?;
        for (key, row) in keys.iter().zip(rows) {
            let is_aside = far.progress.lock().aside.contains_key(key);
            if row.is_none_or(|row| row.is_damaged) && !is_aside && !unpromised.contains(key) {
                // To begin anew for each that is refused would be to look at all files as often.
                refusals.note(far, send_or_put_aside(disk, far, BEFORE_ALL, *key)?)?;
            }
            if far.progress.lock().is_closing {
                return Err(Halt::Later("the node stops".to_owned()));
            }
        }
    }
    Ok(())
}

/// Sends one, unless it is there. What is not here any more, or is damaged, is passed over: whoever reads it
/// is told. Whether the tier has taken it now.
pub(super) fn send_large(disk: &Disk, far: &Far, key: Handle) -> Result<bool, Halt> {
    debug_assert!(is_large(key), "small ones go in packs");
    let _claimed = far.claim(object_name(key));
    let row = disk.tiered(key)?;
    let is_damaged = row.is_some_and(|row| row.is_damaged);
    if let Some(row) = row.filter(|_| !is_damaged) {
        if row.is_stale() {
            renew(disk, far, &[key])?;
        }
        return Ok(false);
    }
    let object = match disk.read_to_send(key) {
        Ok(Some(object)) => object,
        Ok(None) | Err(Error::Corrupt { .. }) => return Ok(false),
        Err(error) => return Err(Halt::Object(key, error.to_string())),
    };
    let refused = |error: DepotError| Halt::Object(key, error.to_string());
    super::owning::ensure(disk, far)?;
    if let Some(sentence) = far.sentence() {
        sentence.spare(key);
    }
    if is_damaged {
        // What is there says that it is what is to be sent, and is not.
        far.depot.remove(&object_name(key)).map_err(refused)?;
        far.depot.remove(&outboard_name(key)).map_err(refused)?;
    }
    if is_partial(key) {
        let Some(outboard) = outboard_of(key, &object) else { return Ok(false) };
        far.depot.put(&outboard_name(key), &Object::from_vec(outboard)).map_err(refused)?;
    }
    far.depot.put(&object_name(key), &object).map_err(refused)?;
    // It may have taken long.
    super::owning::ensure(disk, far)?;
    far.change_rows(disk, &[key], Batch::default(), |_, _| Some(Tiered::sent(Place::Lone)))?;
    far.counts.sent.fetch_add(1, Ordering::Relaxed);
    far.counts.sent_bytes.fetch_add(object_len(key), Ordering::Relaxed);
    Ok(true)
}

/// The outboard of an object; `None` if that is damaged.
fn outboard_of(key: Handle, object: &Object) -> Option<Vec<u8>> {
    let mut grower = Grower::new(key.names_tree());
    grower.update(object);
    let (hash, values) = grower.finish();
    if !is_hash_of(&hash, key) {
        return None;
    }
    let outboard = std::cell::RefCell::new(values.as_flattened().to_vec());
    let read = |offset: u64, bytes: &mut [u8]| {
        let outboard = outboard.borrow();
        let from = outboard.get(offset as usize..offset as usize + bytes.len());
        bytes.copy_from_slice(from.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    };
    let append = |bytes: &[u8]| {
        outboard.borrow_mut().extend_from_slice(bytes);
        Ok(())
    };
    upper_levels(key, read, append).ok()?;
    Some(outboard.into_inner())
}

/// Runs a lane until the tier is closed.
pub(super) fn run(disk: &Disk, memory: &Memory, far: &Far, lane: Lane) {
    if lane == Lane::Room && disk.index().tiered_len().is_ok_and(|len| len > 0) {
        // What rows say is told to who relies on it only when it is certain that the tier is this home's.
        far.fared(lane, super::owning::ensure(disk, far).err());
    }
    while far.idle(lane, far.options.linger) {
        let done = match lane {
            Lane::Packs => packs(disk, far),
            Lane::Large => large(disk, far),
            Lane::Labels => super::publishing::publish(disk, far),
            Lane::Room => super::evicting::evict(disk, memory, far),
            Lane::Wanted => super::waiting::send_wanted(disk, far),
        };
        let halt = done.err();
        // What somebody waits for has a pause of its own, and others go on.
        let rests =
            halt.as_ref().is_some_and(|halt| lane != Lane::Wanted || matches!(halt, Halt::Refused(_)));
        far.fared(lane, halt);
        if rests && !far.rest(lane) {
            return;
        }
    }
}
