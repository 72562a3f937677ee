// SPDX-License-Identifier: Apache-2.0
//! Content-addressed objects and memoised relations.
//!
//! A [`Store`] has two tiers. The *memory tier* is sharded and never waits for
//! I/O; what is *kept* there is derived and may be recomputed. The *disk tier*
//! under a home folder holds what was *put*: it is synced when the call
//! returns, and verified by hash when it is read again. [`Relations`] remember
//! which handle a computation evaluated to.
//!
//! Invariants: an object never changes under its handle; bytes that do not
//! hash to their handle never leave this crate; whatever is on the disk tier
//! is synced; a relation reaches the disk only after its result did.
//!
//! ```text
//! $SINEW_HOME/FORMAT           what wrote this folder
//!             lock             held by the one process that uses it; its pid
//!             index.redb       where small objects are, labels, relations
//!             packs/N.pack     objects under 64 KiB, one after another
//!             objects/ab/NAME  objects from 64 KiB, by the text of their handle
//!             objects/ab/NAME.outboard  of those from 1 MiB: hashes over parts
//!             reserve          room for collections on a full disk
//!             quarantine/NAME  bytes that did not hash to their handle
//!             tmp/             files being written; emptied when opened
//! ```

mod background;
mod backup;

mod blob_writer;
mod closure;
mod collect;
mod committer;
mod dense;
mod disk;
mod error;
mod files;
mod fsck;
mod index;
mod inventory;
mod labels;
mod memory;
mod object;
mod outboard;
mod packs;
mod promises;
mod recipes;
mod reclaim;
mod relations;
mod reserve;
mod seed;
mod store;
mod sync;
mod tier;
mod upgrade;
mod visited;

pub use backup::{Backed, Backup, BackupFolder, Forgotten, Point, Points, Restore, Restored, forget};
pub use blob_writer::BlobWriter;
pub use collect::{Collected, Collection, Dropping};
pub use error::Error;
pub use fsck::{Check, Checked, Finding, Harm, Watch, fsck, fsck_backup};
pub use inventory::{Inventory, Kept, Sought, Stored};
pub use labels::{LABEL_LEN_MAX, LABELS_MAX};
pub use object::{LentMemory, Object};
pub use recipes::Recipe;
pub use reclaim::Reclaimed;
pub use relations::{Claim, Record, Relations, Remembered, Rule};
pub use store::{Options, Stats, Store};
#[doc(hidden)]
pub use tier::check_depot;
pub use tier::{
    Awaited, Depot, DepotError, FolderDepot, LISTED_MAX, Taken, TierCollected, TierCollection, TierOptions,
    TierProgress, TierStatus,
};
pub use upgrade::{Upgraded, upgrade};

#[cfg(test)]
mod tests;
