// SPDX-License-Identifier: Apache-2.0
//! Keeps the disk below a bound: what the tier has leaves it, what was not used for longest first.
//!
//! Only large blobs leave: trees are walked by whoever looks for what is needed, and small objects
//! lie in packs together. What is only here stays, however full the disk is.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use objects::Handle;
use parking_lot::Mutex;

use super::far::{Far, Halt};
use crate::Error;
use crate::disk::Disk;
use crate::files::object_len;
use crate::index::Batch;
use crate::memory::Memory;
use crate::packs::now;

/// Objects of which is known when they were used; others were when they were written.
const USED_MAX: usize = 64 << 10;
/// Files that are removed while nobody relies on anything.
const AT_ONCE: usize = 16;

/// When large objects were read last.
#[derive(Default)]
pub(super) struct Used(Mutex<HashMap<Handle, SystemTime>>);

impl Far {
    /// A large object is read from the disk.
    pub(crate) fn note_used(&self, key: Handle) {
        if self.options.disk_max.is_none() {
            return;
        }
        let mut used = self.used.0.lock();
        if used.len() >= USED_MAX {
            used.clear();
        }
        used.insert(key, now());
    }
}

/// Takes away from the disk what the tier has, until no more than the bound is there.
pub(super) fn evict(disk: &Disk, memory: &Memory, far: &Far) -> Result<(), Halt> {
    let Some(disk_max) = far.options.disk_max else { return Ok(()) };
    if disk.bytes() <= disk_max {
        return Ok(());
    }
    // A tier that is not ours any more, or does not answer, is nothing to rely on.
    super::owning::ensure(disk, far)?;
    let mut candidates = Vec::new();
    let used = far.used.0.lock().clone();
    disk.files().visit(|key, path| {
        let written = std::fs::metadata(path).and_then(|metadata| metadata.modified());
        let last = used.get(&key).copied().into_iter().chain(written).max();
        candidates.extend((!key.names_tree()).then_some((last, key)));
    })?;
    candidates.sort_unstable_by_key(|(last, key)| (*last, *key.as_bytes()));
    for some in candidates.chunks(AT_ONCE) {
        if disk.bytes() <= disk_max || far.progress.lock().is_closing {
            return Ok(());
        }
        evict_some(disk, memory, far, some, disk_max)?;
    }
    Ok(())
}

fn evict_some(
    disk: &Disk,
    memory: &Memory,
    far: &Far,
    some: &[(Option<SystemTime>, Handle)],
    disk_max: u64,
) -> Result<(), Error> {
    let _alone = disk.alone();
    let keys: Vec<Handle> = some.iter().map(|(_, key)| *key).collect();
    // Rows are synced before anybody can read them.
    let written: HashMap<Handle, SystemTime> =
        some.iter().filter_map(|(at, key)| Some((*key, (*at)?))).collect();
    // What was put a short while ago stays there as long as it would have stayed here.
    far.change_rows(disk, &keys, Batch::default(), |key, row| {
        row.map(|row| written.get(&key).map_or(row, |at| row.relied_on(*at)))
    })?;
    for (key, row) in keys.iter().zip(disk.all_tiered(&keys)?) {
        if disk.bytes() <= disk_max {
            break;
        }
        if row.is_some_and(|row| row.is_seen && !row.is_damaged) && disk.files().contains(*key)? {
            disk.remove_large(*key)?;
            // Its room is free when nobody maps it any more.
            memory.let_go(*key);
            far.counts.evicted.fetch_add(1, Ordering::Relaxed);
            far.counts.evicted_bytes.fetch_add(object_len(*key), Ordering::Relaxed);
        }
    }
    Ok(())
}
