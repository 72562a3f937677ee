// SPDX-License-Identifier: Apache-2.0
//! Rows of the index one by one, for who checks all of it: also those that are
//! damaged.

use std::ops::Bound;

use objects::Handle;
use redb::{ReadTransaction, ReadableTable as _, ReadableTableMetadata as _, TableDefinition};

use super::spots::SPOTS;
use super::{Index, LABELS, RELATIONS, checked, commit_synced, handle_at, is_outdated, parse_relation};
use crate::packs::Spot;
use crate::{Error, Record};

/// Rows that are read in one transaction.
pub(crate) const ROWS: usize = 4096;

/// Sound rows of some that were looked at, and the last key of all these; `None`: there were none.
pub(crate) type Rows<T> = (Vec<(Handle, T)>, Option<[u8; 32]>);

/// What a relation's row says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RelationRow {
    /// A relation.
    Is(Record),
    /// A failure of another release, which nobody asks for.
    Outdated,
    /// Nothing that was written so.
    Damaged,
}

/// The rows of a table behind this key that say something, of so many that are looked at; and the last key
/// that was.
pub(super) fn behind<const LEN: usize, T>(
    transaction: &ReadTransaction,
    definition: TableDefinition<'_, &'static [u8; 32], &'static [u8; LEN]>,
    key: Option<[u8; 32]>,
    most: usize,
    parse: fn(&[u8; 32], &[u8; LEN]) -> Option<T>,
) -> Result<Rows<T>, redb::Error> {
    let from = key.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
    let table = transaction.open_table(definition)?;
    let (mut rows, mut looked) = (Vec::new(), None);
    for row in table.range::<&[u8; 32]>((from, Bound::Unbounded))?.take(most) {
        let (key, row) = row?;
        looked = Some(*key.value());
        rows.extend(Handle::from_bytes(*key.value()).ok().zip(parse(key.value(), row.value())));
    }
    Ok((rows, looked))
}

impl Index {
    /// Whether the database's own hashes are right. Nobody else may use it meanwhile.
    pub(crate) fn is_sound(&self) -> Result<bool, Error> {
        let mut guard = self.database.write();
        let database = guard.as_mut().ok_or(Error::Closed)?;
        match self.guarded(|| database.check_integrity().map_err(redb::Error::from)) {
            // What it has put right itself, as after an end that nobody expected, is right.
            Ok(_) => Ok(true),
            Err(Error::Index { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What to say where they are not.
    pub(crate) fn unsound(&self) -> Error {
        self.damaged("pages of the database are damaged".to_owned())
    }

    /// How many spots the database has; those that are in memory only are not among them.
    pub(crate) fn rows(&self) -> Result<u64, Error> {
        self.read(|transaction| Ok(transaction.open_table(SPOTS)?.len()?))
    }

    /// The spots that the database has, behind this key, some at a time. A key that is no
    /// handle is one of nobody's.
    pub(crate) fn spots_behind(&self, key: Option<[u8; 32]>) -> Result<Vec<([u8; 32], Spot)>, Error> {
        self.read(|transaction| {
            let from = key.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let table = transaction.open_table(SPOTS)?;
            let mut rows = Vec::new();
            for row in table.range::<&[u8; 32]>((from, Bound::Unbounded))?.take(ROWS) {
                let (key, spot) = row?;
                rows.push((*key.value(), Spot::from_u64(spot.value())));
            }
            Ok(rows)
        })
    }

    /// All labels; `None`: the label is damaged.
    pub(crate) fn label_rows(&self) -> Result<Vec<(String, Option<Handle>)>, Error> {
        self.read(|transaction| {
            let mut rows = Vec::new();
            for row in transaction.open_table(LABELS)?.iter()? {
                let (name, row) = row?;
                let name = name.value().to_owned();
                let handle = checked(name.as_bytes(), row.value()).and_then(|row| handle_at(row, 0));
                rows.push((name, handle));
            }
            Ok(rows)
        })
    }

    /// The relations behind this key, some at a time.
    pub(crate) fn relations_behind(
        &self,
        key: Option<[u8; 32]>,
    ) -> Result<Vec<([u8; 32], RelationRow)>, Error> {
        self.read(|transaction| {
            let from = key.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let table = transaction.open_table(RELATIONS)?;
            let mut rows = Vec::new();
            for row in table.range::<&[u8; 32]>((from, Bound::Unbounded))?.take(ROWS) {
                let (key, row) = row?;
                let is_key = Handle::from_bytes(*key.value()).is_ok();
                let record = parse_relation(key.value(), row.value()).filter(|_| is_key);
                let said = match record {
                    Some(record) => RelationRow::Is(record),
                    None if is_outdated(key.value(), row.value()) => RelationRow::Outdated,
                    None => RelationRow::Damaged,
                };
                rows.push((*key.value(), said));
            }
            Ok(rows)
        })
    }

    /// Writes what is known of spots into the database, so that its rows are all there are.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        let _alone = self.writing.lock();
        self.flush(self.packs().end())
    }

    /// Takes rows away whatever they say: spots, and relations, by their keys.
    pub(crate) fn strike(&self, spots: &[[u8; 32]], relations: &[[u8; 32]]) -> Result<(), Error> {
        self.settle()?;
        self.with_database(|database| {
            let transaction = database.begin_write()?;
            let mut table = transaction.open_table(SPOTS)?;
            for key in spots {
                table.remove(key)?;
            }
            drop(table);
            let mut table = transaction.open_table(RELATIONS)?;
            for key in relations {
                table.remove(key)?;
            }
            drop(table);
            commit_synced(transaction)
        })
    }
}
