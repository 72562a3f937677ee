// SPDX-License-Identifier: Apache-2.0
//! Where small objects are. The newest spots are in memory and reach the database
//! with the next synced commit: until then the packs would tell them again.

use std::collections::HashMap;

use objects::Handle;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, Table, TableDefinition};

use super::file::Hurry;
use super::{Batch, Index, LABELS, RELATIONS, commit_synced};
use crate::Error;
use crate::packs::Spot;

/// [`Spot::to_u64`] of small objects.
pub(super) const SPOTS: TableDefinition<'_, &[u8; 32], u64> = TableDefinition::new("spots");
/// Where the packs end that the table of spots knows ([`END`]).
const STATE: TableDefinition<'_, &str, u64> = TableDefinition::new("state");
const END: &str = "end";

/// Spots that wait in memory, and bytes of their objects: more would take long to
/// read again.
const RECENT_MAX: usize = 64 << 10;
const RECENT_BYTES_MAX: u64 = 32 << 20;
/// An object is looked for so often: it may be moved meanwhile.
const READS: usize = 3;

/// Spots that the database does not know.
#[derive(Default)]
pub(super) struct Recent {
    spots: HashMap<Handle, Spot>,
    bytes: u64,
    /// Those of them of which the database knows none.
    new: u64,
}

impl Recent {
    fn is_full(&self) -> bool {
        self.spots.len() >= RECENT_MAX || self.bytes >= RECENT_BYTES_MAX
    }

    pub(super) fn new_objects(&self) -> u64 {
        self.new
    }
}

type SpotsTable<'a> = Table<'a, &'static [u8; 32], u64>;

impl Index {
    /// Makes the tables if there are none, so that readers need not ask, and takes
    /// from the packs what the database does not know.
    pub(super) fn catch_up(&self) -> Result<(), Error> {
        let end = self.with_database(|database| {
            if !has_tables(database)? {
                let transaction = database.begin_write()?;
                transaction.open_table(SPOTS)?;
                transaction.open_table(STATE)?;
                transaction.open_table(LABELS)?;
                transaction.open_table(RELATIONS)?;
                commit_synced(transaction)?;
            }
            super::recipes::make_tables(database)?;
            super::tiered::make_tables(database)?;
            let row = database.begin_read()?.open_table(STATE)?.get(END)?;
            Ok(row.map_or(0, |end| end.value()))
        })?;
        self.packs.since(Spot::from_u64(end), |spot, key| {
            self.learn(&[(key, spot)], 0)?;
            if self.recent.read().is_full() { self.flush(spot) } else { Ok(()) }
        })?;
        Ok(())
    }

    /// Where the object is.
    pub(crate) fn spot(&self, key: Handle) -> Result<Option<Spot>, Error> {
        Ok(self.spots(std::iter::once(key))?.into_iter().next().flatten())
    }

    /// Where these objects are, in their order.
    pub(crate) fn spots(&self, keys: impl Iterator<Item = Handle>) -> Result<Vec<Option<Spot>>, Error> {
        let keys: Vec<Handle> = keys.collect();
        let recent = self.recent.read();
        let mut spots: Vec<_> = keys.iter().map(|key| recent.spots.get(key).copied()).collect();
        // Before the database is asked: a spot goes from the one to the other.
        drop(recent);
        if spots.iter().all(Option::is_some) {
            return Ok(spots);
        }
        self.read(|transaction| {
            let table = transaction.open_table(SPOTS)?;
            for (key, spot) in keys.iter().zip(&mut spots).filter(|(_, spot)| spot.is_none()) {
                *spot = table.get(key.as_bytes())?.map(|spot| Spot::from_u64(spot.value()));
            }
            Ok(spots)
        })
    }

    /// Hands out the spots that the database does not know.
    pub(crate) fn visit_recent(&self, mut found: impl FnMut(Handle, Spot)) {
        self.recent.read().spots.iter().for_each(|(key, spot)| found(*key, *spot));
    }

    /// The bytes at the object's spot, not verified, and the spot: no bytes where
    /// something else is.
    pub(crate) fn object(&self, key: Handle) -> Result<Option<(Vec<u8>, Spot)>, Error> {
        let mut tries = READS;
        loop {
            let Some(spot) = self.spot(key)? else { return Ok(None) };
            if let Some(bytes) = self.packs.read(spot, key)? {
                return Ok(Some((bytes, spot)));
            }
            tries -= 1;
            if tries == 0 {
                let is_there = self.packs.contains(spot.pack);
                return if is_there {
                    Ok(Some((Vec::new(), spot)))
                } else {
                    Err(self.packs.missing(spot.pack))
                };
            }
        }
    }

    /// [`Index::object`] for who must not wait for a disk; `None`: whoever may has to look.
    pub(crate) fn object_cached(&self, key: Handle) -> Option<(Vec<u8>, Spot)> {
        let recent = self.recent.try_read()?.spots.get(&key).copied();
        let spot = recent.or_else(|| self.spot_cached(key))?;
        Some((self.packs.read_cached(spot, key)?, spot))
    }

    /// Where the object is, as far as the database says so at once.
    pub(super) fn spot_cached(&self, key: Handle) -> Option<Spot> {
        let database = self.database.try_read()?;
        let database = database.as_ref()?;
        let _hurry = Hurry::begin();
        let looked = self.guarded(|| {
            let table = database.begin_read()?.open_table(SPOTS)?;
            Ok(table.get(key.as_bytes())?.map(|spot| Spot::from_u64(spot.value())))
        });
        // Who may wait is told what is wrong.
        looked.ok().flatten()
    }

    /// Remembers where objects are that were written, of so many bytes.
    pub(super) fn learn(&self, written: &[(Handle, Spot)], bytes: u64) -> Result<(), Error> {
        let known = self.spots(written.iter().map(|(key, _)| *key))?;
        let mut recent = self.recent.write();
        recent.spots.extend(written.iter().copied());
        recent.new += known.iter().filter(|spot| spot.is_none()).count() as u64;
        recent.bytes += bytes;
        Ok(())
    }

    /// Whether the database has to learn of them before there are more.
    pub(super) fn knows_enough(&self) -> bool {
        self.recent.read().is_full()
    }

    /// Writes what is known into the database, up to this end of the packs.
    pub(super) fn flush(&self, end: Spot) -> Result<(), Error> {
        self.with_database(|database| {
            let transaction = database.begin_write()?;
            self.write_spots(&transaction, end)?;
            commit_synced(transaction)
        })?;
        self.flushed();
        Ok(())
    }

    /// Writes what is known into a transaction; see [`Index::flushed`].
    pub(super) fn write_spots<'a>(
        &self,
        transaction: &'a redb::WriteTransaction,
        end: Spot,
    ) -> Result<SpotsTable<'a>, redb::Error> {
        let mut table = transaction.open_table(SPOTS)?;
        for (key, spot) in &self.recent.read().spots {
            table.insert(key.as_bytes(), spot.to_u64())?;
        }
        transaction.open_table(STATE)?.insert(END, end.to_u64())?;
        Ok(table)
    }

    /// The transaction with what was known is synced.
    pub(super) fn flushed(&self) {
        *self.recent.write() = Recent::default();
    }
}

/// Takes away what these batches say.
pub(super) fn take_away(spots: &mut SpotsTable<'_>, batches: &[&Batch]) -> Result<(), redb::Error> {
    for (key, spot) in batches.iter().flat_map(|batch| &batch.dead) {
        if spots.get(key.as_bytes())?.is_some_and(|place| place.value() == spot.to_u64()) {
            spots.remove(key.as_bytes())?;
        }
    }
    Ok(())
}

fn has_tables(database: &Database) -> Result<bool, redb::Error> {
    match database.begin_read()?.open_table(STATE) {
        Ok(_) => Ok(true),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
