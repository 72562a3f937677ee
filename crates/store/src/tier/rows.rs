// SPDX-License-Identifier: Apache-2.0
//! Rows of what the tier has: how they are read while something goes from there, and how
//! they are changed by several at once.

use objects::Handle;
use std::time::SystemTime;

use super::far::Far;
use crate::Error;
use crate::disk::Disk;
use crate::index::{Batch, Tiered, seconds, seconds_now};
use crate::packs::FRESH;

/// Rows that are written together.
pub(super) const ROWS: usize = 16 << 10;

impl Tiered {
    /// Whether whoever relies on it from now on has to say so.
    pub(super) fn is_stale(&self) -> bool {
        u64::from(self.since_s) + FRESH.as_secs() < u64::from(seconds_now())
    }

    /// The same, relied on at this time too.
    pub(super) fn relied_on(self, at: SystemTime) -> Self {
        Self { since_s: self.since_s.max(seconds(at)), ..self }
    }
}

impl Disk {
    /// Where the tier has the object, unless it is going from there.
    pub(crate) fn tiered(&self, key: Handle) -> Result<Option<Tiered>, Error> {
        Ok(self.all_tiered(&[key])?.into_iter().next().flatten())
    }

    /// [`Disk::tiered`] of each of these, in their order.
    pub(crate) fn all_tiered(&self, keys: &[Handle]) -> Result<Vec<Option<Tiered>>, Error> {
        let mut rows = self.index().all_tiered(keys)?;
        if let Some(sentence) = self.far().and_then(|far| far.sentence()) {
            for (key, row) in keys.iter().zip(&mut rows) {
                row.take_if(|row| sentence.takes(*key, row));
            }
        }
        Ok(rows)
    }
}

impl Far {
    /// Changes the rows of these objects, and writes the batch with them. Synced when this returns. What is
    /// changed is what is there then: nobody else writes rows in between.
    pub(super) fn change_rows(
        &self,
        disk: &Disk,
        keys: &[Handle],
        mut batch: Batch,
        mut change: impl FnMut(Handle, Option<Tiered>) -> Option<Tiered>,
    ) -> Result<(), Error> {
        let _one = self.rows.lock();
        for keys in keys.chunks(ROWS) {
            let rows = disk.index().all_tiered(keys)?;
            for (key, row) in keys.iter().zip(rows) {
                let changed = change(*key, row);
                batch.tiered.extend((changed != row).then_some((*key, changed)));
            }
        }
        if batch.tiered.is_empty() && batch.tier_notes.is_empty() {
            return Ok(());
        }
        disk.committer().commit(batch).map(drop)
    }

    /// Somebody relies on what is in the tier: it stays there as long as if it was put now. For who stays.
    pub(crate) fn rely(&self, disk: &Disk, key: Handle, row: &Tiered) -> Result<(), Error> {
        if let Some(relied) = &mut *self.relied.lock() {
            relied.push(key);
        }
        if !row.is_stale() {
            return Ok(());
        }
        let now = crate::packs::now();
        self.change_rows(disk, &[key], Batch::default(), |_, row| row.map(|row| row.relied_on(now)))
    }
}
