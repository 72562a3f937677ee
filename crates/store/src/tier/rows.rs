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

/// Something was found damaged, and not all trees that name it are known to be torn.
const DOUBTFUL: &str = "doubtful";
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

    /// Whether a process before this one has left doubts.
    pub(super) fn find_doubts(&self, disk: &Disk) -> Result<(), Error> {
        let has_some = disk.index().tier_note(DOUBTFUL)?.is_some_and(|note| !note.is_empty());
        self.doubts.store(u64::from(has_some), Ordering::Release);
        Ok(())
    }

    /// These are not what they should be there, as far as their rows are of what was looked at. From now on no tree
    /// is known to be whole there.
    pub(super) fn mark_damaged(
        &self,
        disk: &Disk,
        keys: &[Handle],
        is_it: impl Fn(&Tiered) -> bool,
    ) -> Result<(), Error> {
        // First: whoever walks now writes down nothing of what it has found.
        self.doubts.fetch_add(1, Ordering::AcqRel);
        let batch = Batch { tier_notes: vec![(DOUBTFUL, vec![1])], ..Batch::default() };
        self.change_rows(disk, keys, batch, |_, row| {
            row.map(|row| Tiered { is_damaged: row.is_damaged || is_it(&row), ..row })
        })
    }

    /// Forgets which trees are whole, if something was found damaged since that was last done. For who walks then.
    pub(super) fn settle_doubts(&self, disk: &Disk) -> Result<u64, Error> {
        loop {
            let doubts = self.doubts.load(Ordering::Acquire);
            if self.settled.load(Ordering::Acquire) == doubts {
                return Ok(doubts);
            }
            disk.index().visit_tiered(ROWS, |rows| {
                let whole = rows.iter().filter(|(_, row)| row.is_whole).map(|(key, _)| *key);
                let torn = |_, row: Option<Tiered>| row.map(|row| Tiered { is_whole: false, ..row });
                self.change_rows(disk, &whole.collect::<Vec<_>>(), Batch::default(), torn)
            })?;
            let _one = self.rows.lock();
            if self.doubts.load(Ordering::Acquire) == doubts {
                let tier_notes = vec![(DOUBTFUL, Vec::new())];
                disk.committer().commit(Batch { tier_notes, ..Batch::default() })?;
                self.settled.store(doubts, Ordering::Release);
            }
        }
    }

    /// What was read where this row says is not the object. Whoever has it here sends it again.
    pub(super) fn note_damaged(&self, disk: &Disk, key: Handle, read: &Tiered) -> Result<(), Error> {
        if !self.progress.lock().lost.contains(&key) {
            return Ok(());
        }
        // Somebody may have put it while it was read: those who sent it then found a row. Who waits for packs from
        // now on waits until these were looked at with what the row says then.
        let are_packs_doubtful = !is_large(key) && disk.contains(key)?;
        self.doubt_packs(are_packs_doubtful);
        // If it was sent again meanwhile, to send it once more is all that comes of it.
        self.mark_damaged(disk, &[key], |row| row.place == read.place)?;
        self.progress.lock().lost.remove(&key);
        self.doubt_packs(are_packs_doubtful);
        if is_large(key) && disk.contains(key)? {
            self.note_put(std::iter::once(key));
        }
        Ok(())
    }

    fn doubt_packs(&self, are_doubtful: bool) {
        if are_doubtful {
            self.progress.lock().are_packs_doubtful = true;
            self.changed.notify_all();
        }
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
