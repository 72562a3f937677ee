// SPDX-License-Identifier: Apache-2.0
//! Which objects on the disk nobody was told are stored: the node has written them by
//! itself, because memory was short or a result was worth remembering. Only these may
//! be dropped, so what is not known for certain counts as put.
//!
//! What the node writes is noted here, and what is put as well; every now and then, with
//! nobody at the disk, the first without the second becomes rows of the index. A crash
//! loses notes of the first kind only together with those of the second, and rows are
//! taken back before a put is acknowledged.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use objects::Handle;
use parking_lot::Mutex;

use crate::Error;
use crate::disk::Disk;
use crate::files::object_len;
use crate::index::Batch;

/// Smaller objects are always kept: a recipe takes as much.
pub(crate) const DERIVED_MIN_BYTES: u64 = 4 << 10;
/// Notes of either kind; of more, nothing is known.
const NOTED_MAX: usize = 64 << 10;
/// So many notes are worth making rows of them.
const SETTLED_MIN: usize = 4 << 10;
/// Or this much time since the last ones.
const SETTLED_INTERVAL: Duration = Duration::from_secs(10);

/// What was written since the last rows.
#[derive(Default)]
pub(crate) struct Promises {
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    /// What the node wrote, where nothing was.
    unpromised: HashSet<Handle>,
    /// What somebody put, or relies on.
    promised: HashSet<Handle>,
    /// There were too many of these: nothing is known of what was written meanwhile.
    is_over: bool,
    last: Option<Instant>,
}

impl Disk {
    /// Of what the node is about to write by itself: what is not there. For who stays.
    pub(crate) fn new_here(&self, keys: impl Iterator<Item = Handle>) -> Result<Vec<Handle>, Error> {
        let mut new = Vec::new();
        for key in keys.filter(|key| object_len(*key) >= DERIVED_MIN_BYTES) {
            if !self.contains(key)? {
                new.push(key);
            }
        }
        Ok(new)
    }

    /// These were not there, and were written by the node. For who has stayed since.
    pub(crate) fn note_unpromised(&self, keys: Vec<Handle>) {
        let mut noted = self.promises().noted.lock();
        let room = NOTED_MAX - noted.unpromised.len().min(NOTED_MAX);
        noted.unpromised.extend(keys.into_iter().take(room));
    }

    /// Those of these that the node has written by itself, and nobody has put, as far as is known.
    pub(crate) fn unpromised(&self, keys: &[Handle]) -> Result<HashSet<Handle>, Error> {
        // First what is noted: it becomes rows.
        let noted = self.promises().noted.lock();
        let is_noted = |key: &&Handle| noted.unpromised.contains(*key) && !noted.promised.contains(*key);
        let mut unpromised: HashSet<Handle> = keys.iter().filter(is_noted).copied().collect();
        drop(noted);
        unpromised.extend(self.index().unpromised(keys)?);
        Ok(unpromised)
    }

    /// Somebody puts these, or relies on their staying: nothing that is not promised is
    /// among them when this returns. For who stays until they are there.
    pub(crate) fn promise(&self, keys: impl Iterator<Item = Handle>) -> Result<(), Error> {
        let keys: Vec<Handle> = keys.filter(|key| object_len(*key) >= DERIVED_MIN_BYTES).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let mut noted = self.promises().noted.lock();
        noted.is_over |= noted.promised.len() + keys.len() > NOTED_MAX;
        if !noted.is_over {
            noted.promised.extend(&keys);
        }
        drop(noted);
        let unpromised = self.index().unpromised(&keys)?;
        if unpromised.is_empty() {
            return Ok(());
        }
        // Their recipes stay: what was dropped is not on the disk before it is written.
        let unpromised = unpromised.into_iter().map(|key| (key, false)).collect();
        self.committer().commit(Batch { unpromised, ..Batch::default() }).map(drop)
    }

    /// Whether there is enough to make rows of.
    pub(crate) fn has_unsettled(&self) -> bool {
        let noted = self.promises().noted.lock();
        let is_due = noted.last.is_none_or(|last| last.elapsed() >= SETTLED_INTERVAL);
        noted.unpromised.len() >= SETTLED_MIN || (is_due && !noted.unpromised.is_empty())
    }

    /// Makes rows of what was noted. Not for who stays: it waits until nobody does.
    pub(crate) fn settle_promises(&self) -> Result<(), Error> {
        let _alone = self.alone();
        let Noted { unpromised, promised, is_over, .. } = {
            let mut noted = self.promises().noted.lock();
            std::mem::replace(&mut *noted, Noted { last: Some(Instant::now()), ..Noted::default() })
        };
        if is_over {
            return Ok(());
        }
        let rows: Vec<_> = unpromised.difference(&promised).map(|key| (*key, true)).collect();
        if rows.is_empty() {
            return Ok(());
        }
        self.committer().commit(Batch { unpromised: rows, ..Batch::default() }).map(drop)
    }
}
