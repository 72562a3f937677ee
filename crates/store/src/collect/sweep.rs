// SPDX-License-Identifier: Apache-2.0
//! Takes away what goes: rows of the index, files, and packs of which little is
//! left.

use objects::Handle;

use super::{Collected, Sentence, in_steps};
use crate::disk::Disk;
use crate::files::object_len;
use crate::index::Batch;
use crate::packs::{Found, PACK_BYTES, Records, Spot, UNIT, span};
use crate::{Error, Object};

/// Records that are looked up together.
const CHUNK: usize = 4096;
/// Objects that are taken away in one transaction: each writes pages of the index
/// all over it, and many write the same.
const DEAD_AT_ONCE: usize = 64 << 10;
/// What is moved out of packs is written in pieces of so many bytes.
const MOVED_BYTES: usize = 32 << 20;
/// Large files that are removed while nobody relies on anything.
const LARGE_AT_ONCE: usize = 64;
/// A pack with less than so many hundredths of its bytes in use is written anew.
const USED_MIN_PERCENT: u64 = 60;
/// So many packs that are small, an eighth of what one may have, become one.
const SMALL_PACKS: usize = 8;
const SMALL_BYTES: u64 = PACK_BYTES / 8;

/// What of a pack's objects stays and goes.
#[derive(Default)]
struct Contents {
    dead: u64,
    dead_bytes: u64,
    /// The units of those that stay: there may be millions.
    live: Vec<u32>,
    live_bytes: u64,
    /// What their records take of the pack.
    live_span: u64,
    /// Something of it cannot be read: it stays, for the index may know more of it.
    is_damaged: bool,
}

/// Only counts.
pub(super) fn count(disk: &Disk, sentence: &Sentence) -> Result<Collected, Error> {
    let mut collected = Collected::default();
    for number in disk.index().packs().numbers() {
        if let Some(pack) = disk.index().packs().all(number)? {
            collected.add(&contents(disk, sentence, number, &pack, |_| Ok(()))?);
        }
    }
    disk.files().visit(|key, _| collected.add_large(key, sentence.takes(key, None)))?;
    Ok(collected)
}

/// Takes away what the sentence takes, and counts.
pub(super) fn sweep(disk: &Disk, sentence: &Sentence) -> Result<Collected, Error> {
    let mut collected = Collected::default();
    let packs = disk.index().packs();
    let swept = sentence.packs();
    // Before anything is moved into them.
    for number in packs.numbers().into_iter().filter(|number| !swept.contains(number)) {
        if let Some(pack) = packs.all(number)? {
            collected.add(&contents(disk, sentence, number, &pack, |_| Ok(()))?);
        }
    }
    // First: to remove a file takes no room, also on a disk that is full.
    sweep_large(disk, sentence, &mut collected)?;
    let (mut small, mut later) = (Vec::new(), Vec::new());
    for &number in &swept {
        let Some(pack) = packs.all(number)? else { continue };
        let bury = |dead: Vec<_>| {
            in_steps(disk, &dead, DEAD_AT_ONCE, |dead| Batch { dead: dead.to_vec(), ..Batch::default() })
        };
        let contents = contents(disk, sentence, number, &pack, bury)?;
        collected.add(&contents);
        let len = pack.len() as u64;
        if contents.is_damaged {
            continue;
        }
        if contents.live_span * 100 < len * USED_MIN_PERCENT {
            match try_move_out(disk, number, &pack, &contents)? {
                Some(freed_bytes) => collected.freed_bytes += freed_bytes,
                // Others need no room, or less, and make some.
                None => later.push((contents.live_span, number)),
            }
        } else if len < SMALL_BYTES {
            small.push((number, contents));
        }
    }
    later.sort_unstable();
    for (_, number) in later {
        let Some(pack) = packs.all(number)? else { continue };
        let contents = contents(disk, sentence, number, &pack, |_| Ok(()))?;
        collected.freed_bytes += try_move_out(disk, number, &pack, &contents)?.unwrap_or_default();
    }
    if small.len() >= SMALL_PACKS {
        for (number, contents) in small {
            let Some(pack) = packs.all(number)? else { continue };
            collected.freed_bytes += try_move_out(disk, number, &pack, &contents)?.unwrap_or_default();
        }
    }
    Ok(collected)
}

/// [`move_out`]; `None` where the disk has no room for that: the pack stays as it is, and the
/// next collection comes to it.
fn try_move_out(disk: &Disk, number: u32, pack: &Object, contents: &Contents) -> Result<Option<u64>, Error> {
    if contents.live_span > 0 && disk.files().free_bytes()? < contents.live_span {
        return Ok(None);
    }
    match move_out(disk, number, pack, &contents.live) {
        Err(error) if error.is_full_disk() => Ok(None),
        moved => moved.map(Some),
    }
}

/// The objects whose spots are in this pack. Those that go are handed out.
fn contents(
    disk: &Disk,
    sentence: &Sentence,
    number: u32,
    pack: &Object,
    mut bury: impl FnMut(Vec<(Handle, Spot)>) -> Result<(), Error>,
) -> Result<Contents, Error> {
    let mut contents = Contents::default();
    let mut records = Records::new(pack, 0);
    let mut dead = Vec::new();
    loop {
        let from = records.at();
        let chunk: Vec<Found<'_>> = records.by_ref().take(CHUNK).collect();
        if dead.len() >= DEAD_AT_ONCE || (chunk.is_empty() && !dead.is_empty()) {
            bury(std::mem::take(&mut dead))?;
        }
        if chunk.is_empty() {
            // What is behind the end of a pack that was not damaged was never written whole.
            if from >= pack.len() as u64 || !records.resume(from) {
                contents.is_damaged |= from < pack.len() as u64;
                return Ok(contents);
            }
            contents.is_damaged = true;
            continue;
        }
        let spots = disk.index().spots(chunk.iter().map(|record| record.key))?;
        for (record, place) in chunk.iter().zip(spots) {
            let spot = Spot { pack: number, unit: record.unit };
            if place != Some(spot) {
                // Put again since, or moved, or gone already; or no record at all.
                if !record.is_sound() {
                    contents.is_damaged = true;
                    let from = u64::from(record.unit) * UNIT;
                    if !records.resume(from) {
                        records = Records::new(pack, pack.len() as u64);
                    }
                    break;
                }
            } else if sentence.takes(record.key, Some(spot)) {
                dead.push((record.key, spot));
                contents.dead += 1;
                contents.dead_bytes += object_len(record.key);
            } else {
                contents.live.push(record.unit);
                contents.live_bytes += object_len(record.key);
                contents.live_span += span(record.key);
            }
        }
    }
}

/// Writes anew what is needed of a pack, and removes it. By how many bytes the
/// packs have become less.
fn move_out(disk: &Disk, number: u32, pack: &Object, live: &[u32]) -> Result<u64, Error> {
    let mut live = live.iter().copied().peekable();
    let mut batch = Batch::default();
    let mut moved_bytes = 0;
    for record in Records::new(pack, 0) {
        if live.next_if_eq(&record.unit).is_none() {
            continue;
        }
        if !record.is_sound() {
            // Reading it moves it aside; whoever asks for it next is told.
            match disk.read(record.key) {
                Ok(_) | Err(Error::Corrupt { .. }) => continue,
                Err(error) => return Err(error),
            }
        }
        let spot = Spot { pack: number, unit: record.unit };
        batch.moved.push((record.key, spot, Object::copy_of(record.bytes)));
        if batch.bytes() >= MOVED_BYTES {
            moved_bytes += batch.bytes() as u64;
            disk.committer().commit(std::mem::take(&mut batch))?;
        }
    }
    moved_bytes += batch.bytes() as u64;
    if !batch.moved.is_empty() {
        disk.committer().commit(batch)?;
    }
    disk.index().packs().remove(number)?;
    Ok((pack.len() as u64).saturating_sub(moved_bytes))
}

fn sweep_large(disk: &Disk, sentence: &Sentence, collected: &mut Collected) -> Result<(), Error> {
    loop {
        let _alone = disk.alone();
        let keys = sentence.some_large(LARGE_AT_ONCE);
        if keys.is_empty() {
            break;
        }
        for key in keys {
            disk.remove_large(key)?;
            sentence.spare(key);
            collected.add_large(key, true);
            collected.freed_bytes += object_len(key);
        }
    }
    disk.files().visit(|key, _| collected.add_large(key, false))
}

impl Collected {
    fn add(&mut self, contents: &Contents) {
        self.objects += contents.dead;
        self.bytes += contents.dead_bytes;
        self.kept_objects += contents.live.len() as u64;
        self.kept_bytes += contents.live_bytes;
    }

    fn add_large(&mut self, key: Handle, goes: bool) {
        let (objects, bytes) = match goes {
            true => (&mut self.objects, &mut self.bytes),
            false => (&mut self.kept_objects, &mut self.kept_bytes),
        };
        *objects += 1;
        *bytes += object_len(key);
    }
}
