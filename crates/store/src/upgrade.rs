// SPDX-License-Identifier: Apache-2.0
//! Brings a home of an older format up to date: of the first, small objects go from
//! the index into packs; of the second, nothing is otherwise but its number, by which
//! older code refuses it. What is done stays done when it is interrupted; the format
//! is written last, so that it goes on when it is run again.

use std::path::Path;

use crate::Error;
use crate::Object;
use crate::disk::hashes_to;
use crate::files::{Before, Files, Kind};
use crate::index::{Batch, Index};
use crate::packs::{Folder, Packs};

/// Objects that are moved at once.
const STEP_BYTES: usize = 8 << 20;
/// What of the index is held in memory.
const CACHE_BYTES: usize = 64 << 20;

/// What an upgrade did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upgraded {
    /// Objects that were moved.
    pub objects: u64,
    /// Objects that were damaged, and moved to `quarantine`.
    pub damaged: u64,
}

/// Brings a home up to date. `None`: it is. `progress` hears how many objects of how
/// many are done.
///
/// # Errors
/// [`Error::Locked`] while a node uses it; [`Error::UnknownFormat`]; those of reading
/// and writing, after which it can be run again.
pub fn upgrade(home: &Path, progress: impl FnMut(u64, u64)) -> Result<Option<Upgraded>, Error> {
    let Some((files, before)) = Files::open_before(home)? else { return Ok(None) };
    let upgraded = match before {
        Before::Inline => move_into_packs(&files, progress)?,
        Before::Alike => Upgraded::default(),
    };
    files.write_format(Kind::Home)?;
    Ok(Some(upgraded))
}

fn move_into_packs(files: &Files, mut progress: impl FnMut(u64, u64)) -> Result<Upgraded, Error> {
    let folder = files.packs_folder();
    let packs = Packs::open(&folder, Box::new(Folder(folder.clone())))?;
    let index = Index::open(files.index_path(), CACHE_BYTES, u64::MAX, packs)?;
    let all = index.inline_objects()?;
    let mut upgraded = Upgraded::default();
    let mut left = all;
    while left > 0 {
        progress(all - left, all);
        let (step, last) = index.first_inline(STEP_BYTES)?;
        let mut objects = Vec::with_capacity(step.len());
        for (key, bytes) in step {
            if hashes_to(&bytes, key) {
                objects.push((key, Object::from_vec(bytes)));
            } else {
                files.quarantine_bytes(key, &bytes)?;
                upgraded.damaged += 1;
            }
        }
        upgraded.objects += objects.len() as u64;
        index.commit(&[&Batch { objects, ..Batch::default() }])?;
        index.drop_inline(last)?;
        left = index.inline_objects()?;
    }
    progress(all, all);
    if all > 0 {
        index.drop_inline_table()?;
    }
    Ok(upgraded)
}

#[cfg(test)]
pub(crate) mod tests;
