// SPDX-License-Identifier: Apache-2.0
//! Which objects nobody put, and the recipes of those that were dropped.

use objects::{Handle, Kind};
use redb::{
    Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _,
    TableDefinition, WriteTransaction,
};

use super::rows::behind;
use super::{Batch, CHECK_LEN, Index, Rows, checked, commit_synced, handle_at, seal};
use crate::{Error, Recipe};

/// Objects that are not here, and how they are made.
const RECIPES: TableDefinition<'_, &[u8; 32], &[u8; ROW_LEN]> = TableDefinition::new("recipes");
/// Objects that the node has written by itself: nobody was told that they are stored.
const UNPROMISED: TableDefinition<'_, &[u8; 32], ()> = TableDefinition::new("unpromised");

/// Application, nanoseconds of its own and in all, seconds since 1970, depth, checksum.
const ROW_LEN: usize = Handle::LEN + 8 + 8 + 8 + 4 + CHECK_LEN;

impl Index {
    /// The recipe of an object that was dropped. A damaged one is none.
    pub(crate) fn recipe(&self, key: Handle) -> Result<Option<Recipe>, Error> {
        self.read(|transaction| {
            let row = transaction.open_table(RECIPES)?.get(key.as_bytes())?;
            Ok(row.and_then(|row| parse(key.as_bytes(), row.value())))
        })
    }

    /// All recipes, without those that are damaged; how many are.
    pub(crate) fn recipes(&self, mut found: impl FnMut(Handle, Recipe)) -> Result<u64, Error> {
        self.read(|transaction| {
            let mut damaged = 0;
            for row in transaction.open_table(RECIPES)?.iter()? {
                let (key, row) = row?;
                match (Handle::from_bytes(*key.value()), parse(key.value(), row.value())) {
                    (Ok(key), Some(recipe)) => found(key, recipe),
                    _ => damaged += 1,
                }
            }
            Ok(damaged)
        })
    }

    /// The recipes behind this key, of so many that are looked at; and the last key that was.
    pub(crate) fn recipes_behind(&self, key: Option<[u8; 32]>, most: usize) -> Result<Rows<Recipe>, Error> {
        self.read(|transaction| behind(transaction, RECIPES, key, most, parse))
    }

    /// How many recipes there are.
    pub(crate) fn recipes_len(&self) -> Result<u64, Error> {
        self.read(|transaction| Ok(transaction.open_table(RECIPES)?.len()?))
    }

    /// Those of these objects that nobody put.
    pub(crate) fn unpromised(&self, keys: &[Handle]) -> Result<Vec<Handle>, Error> {
        self.read(|transaction| {
            let table = transaction.open_table(UNPROMISED)?;
            let mut found = Vec::new();
            // Most homes have few of them, or none.
            if !table.is_empty()? {
                for key in keys {
                    found.extend(table.get(key.as_bytes())?.map(|_| *key));
                }
            }
            Ok(found)
        })
    }

    /// All objects that nobody put.
    pub(crate) fn all_unpromised(&self, mut found: impl FnMut(Handle)) -> Result<(), Error> {
        self.read(|transaction| {
            for row in transaction.open_table(UNPROMISED)?.iter()? {
                let (key, _) = row?;
                Handle::from_bytes(*key.value()).into_iter().for_each(&mut found);
            }
            Ok(())
        })
    }
}

/// Makes the tables if there are none: homes are older than they.
pub(super) fn make_tables(database: &Database) -> Result<(), redb::Error> {
    let is_there = |transaction: &ReadTransaction| match transaction.open_table(UNPROMISED) {
        Ok(_) => Ok(true),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(false),
        Err(error) => Err(error),
    };
    if !is_there(&database.begin_read()?)? {
        let transaction = database.begin_write()?;
        transaction.open_table(RECIPES)?;
        transaction.open_table(UNPROMISED)?;
        commit_synced(transaction)?;
    }
    Ok(())
}

/// Writes what batches say of them.
pub(super) fn write(transaction: &WriteTransaction, batches: &[&Batch]) -> Result<(), redb::Error> {
    if batches.iter().all(|batch| batch.recipes.is_empty() && batch.unpromised.is_empty()) {
        return Ok(());
    }
    let mut recipes = transaction.open_table(RECIPES)?;
    let mut unpromised = transaction.open_table(UNPROMISED)?;
    for batch in batches {
        for (key, recipe) in &batch.recipes {
            match recipe {
                Some(recipe) => recipes.insert(key.as_bytes(), &row(*key, recipe))?.map(drop),
                None => recipes.remove(key.as_bytes())?.map(drop),
            };
        }
        for (key, is) in &batch.unpromised {
            if *is {
                unpromised.insert(key.as_bytes(), ())?;
            } else {
                unpromised.remove(key.as_bytes())?;
            }
        }
    }
    Ok(())
}

fn row(key: Handle, recipe: &Recipe) -> [u8; ROW_LEN] {
    let mut row = [0; ROW_LEN];
    row[..32].copy_from_slice(recipe.application.as_bytes());
    row[32..40].copy_from_slice(&recipe.own_nanos.to_le_bytes());
    row[40..48].copy_from_slice(&recipe.nanos.to_le_bytes());
    row[48..56].copy_from_slice(&recipe.since_s.to_le_bytes());
    row[56..60].copy_from_slice(&recipe.depth.to_le_bytes());
    seal(key.as_bytes(), &mut row);
    row
}

fn parse(key: &[u8; 32], row: &[u8; ROW_LEN]) -> Option<Recipe> {
    let row = checked(key, row)?;
    let number = |at: usize| row.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let depth = row.get(56..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
    let application = handle_at(row, 0).filter(|handle| handle.kind() == Kind::Application)?;
    Some(Recipe { application, own_nanos: number(32)?, nanos: number(40)?, since_s: number(48)?, depth })
}
