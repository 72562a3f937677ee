// SPDX-License-Identifier: Apache-2.0
//! What is in the durable tier, and where there; whose tier it is.
//!
//! A row is written after what it says is there. It is never believed: whatever is read
//! from the tier is compared with its name.

use std::time::SystemTime;

use objects::Handle;
use redb::{
    Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _,
    TableDefinition, WriteTransaction,
};

use super::rows::behind;
use super::{Batch, CHECK_LEN, Index, Rows, checked, commit_synced, seal};
use crate::Error;
use crate::packs::now;

/// Objects that the tier has.
const TIERED: TableDefinition<'_, &[u8; 32], &[u8; ROW_LEN]> = TableDefinition::new("tier_objects");
/// The same of homes that did not know since when.
pub(super) const UNDATED: TableDefinition<'_, &[u8; 32], &[u8; UNDATED_LEN]> = TableDefinition::new("tiered");
/// What the home knows of its tier, by name.
const TIER: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("tier");

/// Bytes of the name of a pack in the tier.
pub(crate) const PACK_NAME_LEN: usize = 16;
/// What it is, its pack's name, where it begins there, since when, checksum.
const ROW_LEN: usize = UNDATED_LEN + 4;
pub(super) const UNDATED_LEN: usize = 1 + PACK_NAME_LEN + 4 + CHECK_LEN;
const LONE: u8 = 1;
const PACKED: u8 = 2;
/// All that the tree names is in the tier too.
const WHOLE: u8 = 0x80;
/// This home has sent it, or has read it.
const SEEN: u8 = 0x40;
/// It is not what was read there the last time.
const DAMAGED: u8 = 0x20;

/// Where an object is in the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// By its own name.
    Lone,
    /// In a pack, from this byte on.
    Packed { pack: [u8; PACK_NAME_LEN], offset: u32 },
}

impl Place {
    /// Its pack, if it is in one.
    pub(crate) fn pack(self) -> Option<[u8; PACK_NAME_LEN]> {
        match self {
            Self::Lone => None,
            Self::Packed { pack, .. } => Some(pack),
        }
    }
}

/// What the index knows of an object in the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiered {
    pub(crate) place: Place,
    /// All that it names is there too.
    pub(crate) is_whole: bool,
    /// This home has sent it, or has read all of it there. Others are only said to be there.
    pub(crate) is_seen: bool,
    /// Something else was read there, or nothing: it is to be sent again.
    pub(crate) is_damaged: bool,
    /// When it was sent, or put again, or relied on: seconds since 1970.
    pub(crate) since_s: u32,
}

impl Index {
    /// Where the tier has the object. A damaged row is none.
    pub(crate) fn tiered(&self, key: Handle) -> Result<Option<Tiered>, Error> {
        Ok(self.all_tiered(&[key])?.into_iter().next().flatten())
    }

    /// Where the tier has these objects, in their order.
    pub(crate) fn all_tiered(&self, keys: &[Handle]) -> Result<Vec<Option<Tiered>>, Error> {
        self.read(|transaction| {
            let table = transaction.open_table(TIERED)?;
            // Most homes have no tier.
            if table.is_empty()? {
                return Ok(vec![None; keys.len()]);
            }
            let row = |key: &Handle| {
                let row = table.get(key.as_bytes())?;
                Ok(row.and_then(|row| parse(key.as_bytes(), row.value())))
            };
            keys.iter().map(row).collect()
        })
    }

    /// Hands out all rows that are sound, so many at a time, with no transaction open meanwhile.
    pub(crate) fn visit_tiered(
        &self,
        most: usize,
        mut found: impl FnMut(&[(Handle, Tiered)]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut behind = None;
        loop {
            let (rows, looked) = self.tiered_behind(behind, most)?;
            if looked.is_none() {
                return Ok(());
            }
            found(&rows)?;
            behind = looked;
        }
    }

    /// The rows behind this key that are sound, of so many that are looked at; and the last key that was.
    pub(crate) fn tiered_behind(&self, key: Option<[u8; 32]>, most: usize) -> Result<Rows<Tiered>, Error> {
        self.read(|transaction| behind(transaction, TIERED, key, most, parse))
    }

    /// How many objects the tier has.
    pub(crate) fn tiered_len(&self) -> Result<u64, Error> {
        self.read(|transaction| Ok(transaction.open_table(TIERED)?.len()?))
    }

    /// What was noted of the tier under a name.
    pub(crate) fn tier_note(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        self.read(|transaction| {
            let row = transaction.open_table(TIER)?.get(name)?;
            Ok(row.map(|row| row.value().to_vec()))
        })
    }
}

/// Makes the tables if there are none: homes are older than they.
pub(super) fn make_tables(database: &Database) -> Result<(), redb::Error> {
    let is_there = |transaction: &ReadTransaction| match transaction.open_table(TIERED) {
        Ok(_) => Ok(true),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(false),
        Err(error) => Err(error),
    };
    if !is_there(&database.begin_read()?)? {
        let transaction = database.begin_write()?;
        transaction.open_table(TIER)?;
        date(&transaction)?;
        commit_synced(transaction)?;
    }
    Ok(())
}

/// What the tier has had since nobody knows when, it has had since now.
fn date(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    let mut tiered = transaction.open_table(TIERED)?;
    let undated = transaction.open_table(UNDATED)?;
    for old in undated.iter()? {
        let (key, old) = old?;
        let content = checked(key.value(), old.value());
        if let (Ok(handle), Some(content)) = (Handle::from_bytes(*key.value()), content)
            && let Some(told) = parse_content(&[content, &seconds_now().to_le_bytes()].concat())
        {
            tiered.insert(key.value(), &row(handle, &told))?;
        }
    }
    drop(undated);
    transaction.delete_table(UNDATED)?;
    Ok(())
}

/// Seconds since 1970.
pub(crate) fn seconds_now() -> u32 {
    seconds(now())
}

/// Seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> u32 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

/// Writes what batches say of it.
pub(super) fn write(transaction: &WriteTransaction, batches: &[&Batch]) -> Result<(), redb::Error> {
    let says = |batch: &&&Batch| !batch.tiered.is_empty() || !batch.tier_notes.is_empty();
    for batch in batches.iter().filter(says) {
        let mut tiered = transaction.open_table(TIERED)?;
        for (key, told) in &batch.tiered {
            match told {
                Some(told) => tiered.insert(key.as_bytes(), &row(*key, told))?.map(drop),
                None => tiered.remove(key.as_bytes())?.map(drop),
            };
        }
        let mut notes = transaction.open_table(TIER)?;
        for (name, note) in &batch.tier_notes {
            notes.insert(*name, note.as_slice())?;
        }
    }
    Ok(())
}

fn row(key: Handle, told: &Tiered) -> [u8; ROW_LEN] {
    let mut row = [0; ROW_LEN];
    row[0] = match told.place {
        Place::Lone => LONE,
        Place::Packed { pack, offset } => {
            row[1..][..PACK_NAME_LEN].copy_from_slice(&pack);
            row[1 + PACK_NAME_LEN..][..4].copy_from_slice(&offset.to_le_bytes());
            PACKED
        }
    };
    row[1 + PACK_NAME_LEN + 4..][..4].copy_from_slice(&told.since_s.to_le_bytes());
    row[0] |= if told.is_whole { WHOLE } else { 0 };
    row[0] |= if told.is_seen { SEEN } else { 0 };
    row[0] |= if told.is_damaged { DAMAGED } else { 0 };
    seal(key.as_bytes(), &mut row);
    row
}

fn parse(key: &[u8; 32], row: &[u8; ROW_LEN]) -> Option<Tiered> {
    parse_content(checked(key, row)?)
}

fn parse_content(content: &[u8]) -> Option<Tiered> {
    let (what, rest) = content.split_first()?;
    let since_s = u32::from_le_bytes(*rest.get(PACK_NAME_LEN + 4..)?.first_chunk()?);
    let place = match what & !(WHOLE | SEEN | DAMAGED) {
        LONE => Place::Lone,
        PACKED => {
            let (pack, rest) = rest.split_first_chunk()?;
            Place::Packed { pack: *pack, offset: u32::from_le_bytes(*rest.first_chunk()?) }
        }
        _ => return None,
    };
    let [is_whole, is_seen, is_damaged] = [WHOLE, SEEN, DAMAGED].map(|flag| what & flag != 0);
    Some(Tiered { place, is_whole, is_seen, is_damaged, since_s })
}
