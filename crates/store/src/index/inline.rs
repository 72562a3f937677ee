// SPDX-License-Identifier: Apache-2.0
//! Small objects in the index itself, where the version before had them.

use objects::Handle;
use redb::{ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _, TableDefinition};

use super::{Index, commit_synced};
use crate::Error;

const OBJECTS: TableDefinition<'_, &[u8; 32], &[u8]> = TableDefinition::new("objects");

/// Some of them, and the last key that was looked at.
type Step = (Vec<(Handle, Vec<u8>)>, [u8; 32]);

impl Index {
    /// How many there are.
    pub(crate) fn inline_objects(&self) -> Result<u64, Error> {
        self.with_database(|database| match database.begin_read()?.open_table(OBJECTS) {
            Ok(table) => Ok(table.len()?),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(0),
            Err(error) => Err(error.into()),
        })
    }

    /// The first of them, of about so many bytes in all, not verified.
    pub(crate) fn first_inline(&self, bytes_max: usize) -> Result<Step, Error> {
        self.with_database(|database| {
            let (mut found, mut last) = (Vec::new(), [u8::MAX; 32]);
            let mut bytes = 0;
            for row in database.begin_read()?.open_table(OBJECTS)?.iter()? {
                let (key, object) = row?;
                last = *key.value();
                // A key that is no handle was never given to anybody.
                if let Ok(key) = Handle::from_bytes(last) {
                    found.push((key, object.value().to_vec()));
                }
                bytes += object.value().len() + Handle::LEN;
                if bytes >= bytes_max {
                    break;
                }
            }
            Ok((found, last))
        })
    }

    /// Removes those that are in packs now, up to and with `last`.
    pub(crate) fn drop_inline(&self, last: [u8; 32]) -> Result<(), Error> {
        self.with_database(|database| {
            let transaction = database.begin_write()?;
            let mut table = transaction.open_table(OBJECTS)?;
            table.retain_in::<&[u8; 32], _>(..=&last, |_, _| false)?;
            drop(table);
            commit_synced(transaction)
        })
    }

    /// Removes the table, which is empty.
    pub(crate) fn drop_inline_table(&self) -> Result<(), Error> {
        self.with_database(|database| {
            let transaction = database.begin_write()?;
            transaction.delete_table(OBJECTS)?;
            commit_synced(transaction)
        })
    }
}
