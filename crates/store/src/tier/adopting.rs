// SPDX-License-Identifier: Apache-2.0
//! What is there when a home takes a tier: where objects are, for those that have no row, and which
//! rows say something of it that is not so any more. Others may have taken things away since this home
//! owned it last, and the disk may have been set back to an older state.

use std::collections::HashSet;

use objects::Handle;

use super::Taken;
use super::far::Far;
use super::form::{self, HEADER_LEN, OBJECTS, PACK_BYTES_MAX, PACKS};
use super::rows::ROWS;
use super::sending;
use super::sentence::PackName;
use crate::Error;
use crate::disk::Disk;
use crate::index::{Batch, Place, Tiered, seconds_now};

/// Of a pack, at first.
const TABLE_BYTES: u64 = 16 << 10;

/// Names of what is there.
#[derive(Default)]
struct There {
    packs: HashSet<PackName>,
    large: HashSet<Handle>,
}

impl There {
    fn has(&self, key: Handle, row: &Tiered) -> bool {
        match row.place.pack() {
            Some(pack) => self.packs.contains(&pack),
            None => self.large.contains(&key),
        }
    }
}

impl Far {
    /// Makes rows say what is there. Nothing goes from there meanwhile, and no pack is sent. Returns of
    /// what it is known now that it is not.
    pub(super) fn adopt_all(&self, disk: &Disk, taken: &mut Taken) -> Result<Vec<Handle>, Error> {
        // First: what loses its row is sent again if it is here, also if this ends in between.
        sending::begin_anew(disk, self)?;
        let mut there = There::default();
        self.visit(PACKS, |names| {
            there.packs.extend(names.iter().filter_map(|name| form::named_pack(name)));
            Ok(())
        })?;
        self.visit(OBJECTS, |names| {
            there.large.extend(names.iter().filter_map(|name| form::named(name)));
            Ok(())
        })?;
        let absent = self.forget_absent(disk, &there)?;
        for pack in &there.packs {
            let Some(contents) = self.table(pack)? else {
                taken.damaged += 1;
                continue;
            };
            let row = |(key, offset)| (key, Place::Packed { pack: *pack, offset });
            self.adopt(disk, contents.into_iter().map(row), taken)?;
        }
        self.adopt(disk, there.large.into_iter().map(|key| (key, Place::Lone)), taken)?;
        // Somebody else may have put some into other packs.
        let mut gone = Vec::new();
        for some in absent.chunks(ROWS) {
            let rows = disk.index().all_tiered(some)?;
            gone.extend(some.iter().zip(rows).filter(|(_, row)| row.is_none()).map(|(key, _)| *key));
        }
        taken.absent = gone.len() as u64;
        Ok(gone)
    }

    /// Forgets rows of what is not there, and says whose. Of what is, nothing says any more that all that it names
    /// is there too, nor that it is what this home has sent.
    fn forget_absent(&self, disk: &Disk, there: &There) -> Result<Vec<Handle>, Error> {
        let mut absent = Vec::new();
        disk.index().visit_tiered(ROWS, |rows| {
            let keys: Vec<Handle> = rows.iter().map(|(key, _)| *key).collect();
            self.change_rows(disk, &keys, Batch::default(), |key, row| {
                let kept = row.filter(|row| there.has(key, row));
                absent.extend((row.is_some() && kept.is_none()).then_some(key));
                kept.map(|row| Tiered { is_whole: false, is_seen: false, ..row })
            })
        })?;
        Ok(absent)
    }

    /// What a pack has. `None`: its beginning is damaged.
    pub(super) fn table(&self, pack: &PackName) -> Result<Option<Vec<(Handle, u32)>>, Error> {
        let name = form::pack_name(pack);
        let begin = self.ask(|depot| depot.get(&name, 0..TABLE_BYTES))?.unwrap_or_default();
        let Some(len) = begin.get(..HEADER_LEN as usize).and_then(form::table_len) else { return Ok(None) };
        let table = match begin.get(..len as usize) {
            Some(table) => table.to_vec(),
            None => self.ask(|depot| depot.get(&name, 0..len))?.unwrap_or_default(),
        };
        Ok(form::contents(pack, &table))
    }

    /// All bytes of a pack, whatever they are.
    pub(super) fn pack_bytes(&self, pack: &PackName) -> Result<Vec<u8>, Error> {
        let bytes = self.ask(|depot| depot.get(&form::pack_name(pack), 0..PACK_BYTES_MAX))?;
        Ok(bytes.unwrap_or_default())
    }

    /// Writes rows of what has none.
    pub(super) fn adopt(
        &self,
        disk: &Disk,
        found: impl Iterator<Item = (Handle, Place)>,
        taken: &mut Taken,
    ) -> Result<(), Error> {
        let found: Vec<_> = found.collect();
        let since_s = seconds_now();
        for some in found.chunks(ROWS) {
            let keys: Vec<Handle> = some.iter().map(|(key, _)| *key).collect();
            let mut places = some.iter().map(|(_, place)| *place);
            self.change_rows(disk, &keys, Batch::default(), |_, row| {
                let place = places.next()?;
                taken.objects += u64::from(row.is_none());
                let found = Tiered { place, is_whole: false, is_seen: false, is_damaged: false, since_s };
                row.or(Some(found))
            })?;
        }
        Ok(())
    }
}
