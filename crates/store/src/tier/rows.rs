// SPDX-License-Identifier: Apache-2.0
//! Rows of what the tier has: how they are read while something goes from there, and how
//! they are changed by several at once.

use std::sync::atomic::Ordering;
use std::time::SystemTime;

use objects::Handle;

use super::far::Far;
use crate::Error;
use crate::disk::Disk;
use crate::files::is_large;
use crate::index::{Batch, Place, Tiered, seconds, seconds_now};
use crate::packs::FRESH;

/// How many rows say that something is damaged.
const DAMAGED: &str = "damaged";
/// Rows that are written together.
pub(super) const ROWS: usize = 16 << 10;

impl Tiered {
    /// Of what was sent just now.
    pub(super) fn sent(place: Place) -> Self {
        Self { place, is_whole: false, is_seen: true, is_damaged: false, since_s: seconds_now() }
    }

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
        let before = self.damaged.load(Ordering::Relaxed);
        let mut damaged = before;
        let count = |row: Option<Tiered>| u64::from(row.is_some_and(|row| row.is_damaged));
        for keys in keys.chunks(ROWS) {
            let rows = disk.index().all_tiered(keys)?;
            for (key, row) in keys.iter().zip(rows) {
                let changed = change(*key, row);
                if changed != row {
                    damaged = (damaged + count(changed)).saturating_sub(count(row));
                    batch.tiered.push((*key, changed));
                }
            }
        }
        if damaged != before {
            batch.tier_notes.push((DAMAGED, damaged.to_le_bytes().to_vec()));
        }
        if batch.tiered.is_empty() && batch.tier_notes.is_empty() {
            return Ok(());
        }
        // Until all is good again, nobody relies on what was found to be whole.
        self.damaged.fetch_max(damaged, Ordering::Relaxed);
        disk.committer().commit(batch)?;
        self.damaged.store(damaged, Ordering::Relaxed);
        Ok(())
    }

    /// How many rows say that something is damaged, as a process before this one has left them.
    pub(super) fn find_damaged(&self, disk: &Disk) -> Result<(), Error> {
        let _one = self.rows.lock();
        let note = disk.index().tier_note(DAMAGED)?;
        let damaged =
            note.and_then(|note| Some(u64::from_le_bytes(*note.first_chunk()?))).unwrap_or_default();
        self.damaged.store(damaged, Ordering::Relaxed);
        self.progress.lock().are_packs_doubtful = damaged > 0;
        Ok(())
    }

    /// Whether something that rows name was found damaged, and not sent again so far.
    pub(super) fn has_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed) > 0
    }

    /// What was read where this row says is not the object, and who has it here sends it again.
    pub(super) fn note_damaged(&self, disk: &Disk, key: Handle, read: &Tiered) -> Result<(), Error> {
        if !self.progress.lock().lost.remove(&key) {
            return Ok(());
        }
        // It may have been sent again meanwhile, or moved.
        let damaged = |_, row: Option<Tiered>| {
            row.map(|row| Tiered { is_damaged: row.is_damaged || row == *read, ..row })
        };
        self.change_rows(disk, &[key], Batch::default(), damaged)?;
        if !disk.contains(key)? {
            return Ok(());
        }
        // Somebody put it while it was read; those who sent it then found a row.
        if is_large(key) {
            self.note_put(std::iter::once(key));
        } else {
            self.progress.lock().are_packs_doubtful = true;
            self.changed.notify_all();
        }
        Ok(())
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
