// SPDX-License-Identifier: Apache-2.0
//! Reads packs in windows, and holds their records against the index.

use std::io;

use objects::{Handle, TreeView};

use super::found::pack_name;
use super::{Finding, Inspector};
use crate::Error;
use crate::files::{LARGE_BYTES, is_large};
use crate::packs::{Found, HEADER_LEN, Pack, Records, Spot, UNIT, begun};

/// What is read of a pack at once: many records, the longest has little over 64 KiB.
const WINDOW_BYTES: u64 = 8 << 20;
/// A record that is cut off by a window's end begins here before it at the earliest, and
/// so does the one behind a damaged one.
const MARGIN_BYTES: u64 = 2 * (LARGE_BYTES + UNIT);
/// A disk that does not read something is asked for pieces of it.
const SECTOR_BYTES: usize = 4096;
/// Records that are looked up together.
const CHUNK: usize = 1024;

/// What stands somewhere in a pack.
pub(super) enum Stretch<'a> {
    /// An object, at a unit of the pack.
    Sound(Found<'a>),
    /// So many bytes from here on are none; perhaps the object of this handle, damaged.
    Damaged { from: u64, bytes: u64, key: Option<Handle> },
    /// The disk failed here.
    Unreadable(u64, io::Error),
}

/// Hands out all that stands in a pack of this length, in order. A window is as much as
/// is in memory; `read` is told of each.
pub(super) fn stretches(
    pack: &dyn Pack,
    len: u64,
    mut found: impl FnMut(Stretch<'_>) -> Result<(), Error>,
    mut read: impl FnMut(u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut at = HEADER_LEN;
    while at < len {
        // The records' reader takes the first unit for a header.
        let base = at - HEADER_LEN;
        let end = len.min(base + WINDOW_BYTES);
        let is_last = end == len;
        let mut window = vec![0; (end - base) as usize];
        if let Err((offset, source)) = read_window(pack, &mut window, base) {
            found(Stretch::Unreadable(offset, source))?;
        }
        let mut records = Records::new(&window, 0);
        let unit = (base / UNIT) as u32;
        loop {
            let from = records.at();
            if !is_last && from + MARGIN_BYTES > window.len() as u64 {
                break;
            }
            let record = records.next().map(|record| Found { unit: record.unit + unit, ..record });
            match record {
                Some(record) if record.is_sound() => found(Stretch::Sound(record))?,
                None if from >= window.len() as u64 => break,
                record => {
                    let goes_on = records.resume(from);
                    // Where nothing sound begins, more than one may be damaged.
                    let skipped = (from + MARGIN_BYTES / 2).next_multiple_of(UNIT).min(window.len() as u64);
                    let to = if goes_on { records.at() } else { skipped };
                    let key = record.map(|record| record.key);
                    found(Stretch::Damaged { from: base + from, bytes: to - from, key })?;
                    if to >= window.len() as u64 {
                        break;
                    }
                    records = Records::new(&window, to);
                }
            }
        }
        read(records.at().min(window.len() as u64) - HEADER_LEN)?;
        at = if is_last { len } else { base + records.at() };
    }
    Ok(())
}

/// Fills a window; what the disk does not read is zeros. Where that begins, and why.
fn read_window(pack: &dyn Pack, window: &mut [u8], base: u64) -> Result<(), (u64, io::Error)> {
    let Err(_) = pack.read_exact_at(window, base) else { return Ok(()) };
    let mut failed = Ok(());
    for (number, sector) in window.chunks_mut(SECTOR_BYTES).enumerate() {
        let offset = base + (number * SECTOR_BYTES) as u64;
        if let Err(source) = pack.read_exact_at(sector, offset) {
            sector.fill(0);
            if failed.is_ok() {
                failed = Err((offset, source));
            }
        }
    }
    failed
}

impl Inspector<'_, '_> {
    pub(super) fn scan_packs(&mut self) -> Result<(), Error> {
        let mut accounted = 0;
        for number in self.place.packs.numbers() {
            let Some((pack, len)) = self.place.packs.pack(number)? else { continue };
            let mut header = [0; HEADER_LEN as usize];
            let has_header = pack.read_exact_at(&mut header, 0).is_ok() && begun(&header).is_some();
            // One that was just begun when its process ended is empty.
            if !has_header && len > 0 {
                self.found(Finding::header(number));
                self.headers.push(number);
            }
            accounted += self.scan_pack(number, &*pack, len)?;
        }
        self.accounted = accounted;
        Ok(())
    }

    /// How many rows of the index lead here.
    fn scan_pack(&mut self, number: u32, pack: &dyn Pack, len: u64) -> Result<u64, Error> {
        let mut accounted = 0;
        let mut chunk: Vec<(Handle, u32, u64)> = Vec::with_capacity(CHUNK);
        let mut read = 0;
        // Both need the inspector: the one while a window is in memory, the other between two.
        let this = std::cell::RefCell::new(self);
        stretches(
            pack,
            len,
            |stretch| {
                let mut this = this.borrow_mut();
                match stretch {
                    Stretch::Sound(record) => {
                        chunk.push((record.key, record.unit, record.bytes.len() as u64));
                        if record.key.names_tree() {
                            this.entries(record.key, record.unit, number, record.bytes)?;
                        }
                        if chunk.len() == CHUNK {
                            accounted += this.place_of(number, &mut chunk)?;
                        }
                    }
                    Stretch::Damaged { from, bytes, key } => {
                        accounted += this.damaged_stretch(number, from, bytes, key)?;
                    }
                    Stretch::Unreadable(offset, source) => {
                        this.found(Finding::unreadable(pack_name(number), offset, &source));
                    }
                }
                Ok(())
            },
            |bytes| {
                read += bytes;
                this.borrow_mut().advance(bytes)
            },
        )?;
        let this = this.into_inner();
        accounted += this.place_of(number, &mut chunk)?;
        this.advance(len.saturating_sub(read))?;
        Ok(accounted)
    }

    /// Looks up where sound records should be. How many are where the index has them.
    fn place_of(&mut self, number: u32, chunk: &mut Vec<(Handle, u32, u64)>) -> Result<u64, Error> {
        let keys = chunk.iter().map(|(key, ..)| *key);
        let spots = self.place.index.map(|index| index.spots(keys)).transpose()?;
        let mut placed = 0;
        for (at, (_, unit, bytes)) in chunk.drain(..).enumerate() {
            let here = Spot { pack: number, unit };
            let spot = spots.as_ref().and_then(|spots| spots.get(at).copied().flatten());
            if spots.is_none() || spot == Some(here) {
                placed += 1;
                self.checked.objects += 1;
                self.checked.bytes += bytes;
            } else {
                self.checked.unnamed += 1;
            }
        }
        Ok(placed)
    }

    /// Whether all is there that a tree names which the index leads to.
    fn entries(&mut self, tree: Handle, unit: u32, pack: u32, bytes: &[u8]) -> Result<(), Error> {
        let Some(index) = self.place.index else { return Ok(()) };
        if index.spot(tree)? != Some(Spot { pack, unit }) {
            return Ok(());
        }
        for key in self.place.absent(TreeView::from_checked(bytes).iter())? {
            self.miss(key, tree);
        }
        Ok(())
    }

    /// Whose it is, if the index leads here: then 1.
    fn damaged_stretch(
        &mut self,
        number: u32,
        from: u64,
        bytes: u64,
        key: Option<Handle>,
    ) -> Result<u64, Error> {
        let here = Spot { pack: number, unit: (from / UNIT) as u32 };
        let spot = match (key, self.place.index) {
            (Some(key), Some(index)) => index.spot(key)?,
            _ => None,
        };
        if let Some(key) = key.filter(|_| spot == Some(here)) {
            self.found(Finding::damaged(pack_name(number), key));
            self.lose(key);
            return Ok(1);
        }
        self.found(Finding::stretch(number, from, bytes));
        Ok(0)
    }

    /// Looks at rows one by one, if not every one was met in the packs.
    pub(super) fn scan_rows(&mut self) -> Result<(), Error> {
        let Some(index) = self.place.index else { return Ok(()) };
        if index.rows()? == self.accounted {
            return Ok(());
        }
        let mut behind = None;
        loop {
            let rows = index.spots_behind(behind)?;
            let Some((last, _)) = rows.last() else { return Ok(()) };
            behind = Some(*last);
            for (row, spot) in rows {
                let is_small = |key: &Handle| {
                    *key == key.plain_tree() && key.literal_bytes().is_none() && !is_large(*key)
                };
                let Some(key) = Handle::from_bytes(row).ok().filter(is_small) else {
                    self.found(Finding::no_row(&row));
                    self.strike(row);
                    continue;
                };
                if self.place.packs.read(spot, key)?.is_none() && index.spot(key)? == Some(spot) {
                    self.found(Finding::nowhere(key, spot));
                    self.lose(key);
                    self.strike(row);
                }
            }
        }
    }

    fn strike(&mut self, row: [u8; 32]) {
        if self.nowhere.len() < super::KNOWN_MAX {
            self.nowhere.push(row);
        } else {
            self.checked.is_cut = true;
        }
    }
}
