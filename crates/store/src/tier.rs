// SPDX-License-Identifier: Apache-2.0
//! The durable tier: what was put, and what labels name, is also kept where the loss of this
//! machine's disk does not reach it, in a bucket for example.
//!
//! It is written behind: who puts waits for the disk, or for the tier if it says so
//! ([`Store::tier_until`](crate::Store::tier_until)). What is not on the disk, or is damaged there, is read from the tier
//! ([`Store::bring`]). A home that is empty can take a tier over ([`Store::take_tier`]).
//!
//! Invariants: a row of the index says that the tier has an object only after it has; the
//! newest labels in the tier name nothing that is not there; nothing that comes from the tier is
//! believed.

mod adopting;
mod collecting;
mod contract;
mod depot;
mod evicting;
mod far;
mod form;
mod owning;
mod publishing;
mod reach;
mod reading;
mod rows;
mod sending;
mod sentence;
mod sweeping;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use collecting::{TierCollected, TierCollection, TierProgress};
pub use contract::check_depot;
pub use depot::{Depot, DepotError, FolderDepot, LISTED_MAX};
pub(crate) use far::Far;
use far::Lane;

pub use waiting::Awaited;

use crate::disk::Disk;
use crate::memory::Memory;
use crate::packs::UNIT;
use crate::{Error, Store};

/// How the tier is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierOptions {
    /// Small objects wait for so long for others, unless somebody waits for them.
    pub linger: Duration,
    /// The longest pause after something went wrong.
    pub pause_max: Duration,
    /// What an answer takes, before any was seen.
    pub latency: Duration,
    /// What comes in a second, before anything was seen to.
    pub bytes_per_second: u64,
    /// What the tier has leaves the disk while that has more bytes than this.
    pub disk_max: Option<u64>,
    /// Who takes a tier waits for so long for the home before it to end taking things away there: what it had
    /// begun to remove is removed by then.
    pub collector_patience: Duration,
}

impl Default for TierOptions {
    fn default() -> Self {
        Self {
            linger: Duration::from_secs(1),
            pause_max: Duration::from_secs(30),
            latency: Duration::from_millis(50),
            bytes_per_second: 50 << 20,
            disk_max: None,
            collector_patience: Duration::from_secs(180),
        }
    }
}

/// What happened since the process began.
#[derive(Default)]
pub(crate) struct Counts {
    sent: AtomicU64,
    sent_bytes: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    brought: AtomicU64,
    parts: AtomicU64,
    corrupt: AtomicU64,
    failures: AtomicU64,
    gaps: AtomicU64,
    evicted: AtomicU64,
    evicted_bytes: AtomicU64,
    collected: AtomicU64,
    collected_bytes: AtomicU64,
    moved_bytes: AtomicU64,
}

/// How the tier fares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierStatus {
    /// What it is called.
    pub name: String,
    /// Objects that are there, as far as this home knows.
    pub objects: u64,
    /// Bytes of packs behind what was sent, at most.
    pub waiting_bytes: u64,
    /// Large objects that wait.
    pub waiting_large: u64,
    /// Large objects that the tier does not take for now, though it takes others.
    pub aside: u64,
    /// Whether labels wait that were set or taken away.
    pub labels_wait: bool,
    /// The number of the newest labels there; 0: none.
    pub labels: u64,
    /// Objects that labels name and that are nowhere.
    pub gaps: u64,
    /// Objects that were sent since the process began.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Reads of the tier.
    pub reads: u64,
    /// Bytes that they brought.
    pub read_bytes: u64,
    /// Objects that were brought as a whole.
    pub brought: u64,
    /// Parts that were read.
    pub parts: u64,
    /// Objects that were damaged there.
    pub corrupt: u64,
    /// Failed tries to send.
    pub failures: u64,
    /// Objects that have left the disk since the tier has them.
    pub evicted: u64,
    /// Their bytes.
    pub evicted_bytes: u64,
    /// Objects that were taken away there since nobody needs them.
    pub collected: u64,
    /// Their bytes.
    pub collected_bytes: u64,
    /// Bytes that were written anew, since little else of their packs was needed.
    pub moved_bytes: u64,
    /// How far a collection there is, if one is under way.
    pub collection: Option<TierProgress>,
    /// What goes wrong now, for people.
    pub trouble: Option<String>,
    /// Nothing is sent before somebody does something about it.
    pub is_refused: bool,
    /// What an answer takes, in nanoseconds.
    pub latency_nanos: u64,
    /// What comes in a second.
    pub bytes_per_second: u64,
}

/// What a home has learnt of a tier that it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Labels that it did not have, or had otherwise.
    pub labels: u64,
    /// Those that it had otherwise: what it had is now called `before-take/NAME`.
    pub replaced: u64,
    /// Objects that it did not know to be there.
    pub objects: u64,
    /// Objects that it believed to be there and that are not: they are sent again if they are here.
    pub absent: u64,
    /// Packs whose beginning is damaged: what is in them is not known.
    pub damaged: u64,
}

/// The threads that send.
pub(crate) struct Sending {
    far: Arc<Far>,
    threads: Vec<JoinHandle<()>>,
}

impl Sending {
    fn start(disk: &Arc<Disk>, memory: &Arc<Memory>, far: &Arc<Far>) -> Result<Self, Error> {
        let mut sending = Self { far: Arc::clone(far), threads: Vec::new() };
        for (lane, name) in [
            (Lane::Packs, "tier-packs"),
            (Lane::Large, "tier-large"),
            (Lane::Labels, "tier-labels"),
            (Lane::Room, "tier-room"),
            // One may be at something large.
            (Lane::Wanted, "tier-wanted-1"),
            (Lane::Wanted, "tier-wanted-2"),
        ] {
            let (disk, memory, far) = (Arc::clone(disk), Arc::clone(memory), Arc::clone(far));
            let thread = thread::Builder::new().name(format!("store-{name}"));
            let thread = thread.spawn(move || sending::run(&disk, &memory, &far, lane));
            sending.threads.push(thread.map_err(|source| Error::io(name, source))?);
        }
        Ok(sending)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.far.close();
        for thread in self.threads.drain(..) {
            // What it had not sent is sent by the next process.
            let _ = thread.join();
        }
    }
}

impl Store {
    /// From now on what is put, and what labels name, is sent to this depot, and what is missing here is
    /// read from there. Once, and not of a store without a disk.
    ///
    /// # Errors
    /// [`Error::NoDisk`]; [`Error::Tier`] the second time; [`Error::Io`] if there are no threads.
    pub fn attach_tier(&self, depot: Arc<dyn Depot>, options: TierOptions) -> Result<(), Error> {
        let disk = self.disk().ok_or(Error::NoDisk)?;
        let far = Arc::new(Far::new(depot, options));
        far.find_doubts(disk)?;
        if !disk.attach(Arc::clone(&far)) {
            return Err(Error::Tier { tier: far.depot.name(), why: "the store has one already".to_owned() });
        }
        self.keep_sending(Sending::start(disk, &self.memory, &far)?);
        Ok(())
    }

    pub(crate) fn far(&self) -> Option<&Arc<Far>> {
        self.disk()?.far()
    }

    /// Whether there is a tier.
    pub fn has_tier(&self) -> bool {
        self.far().is_some()
    }

    /// How the tier fares; `None`: there is none.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Index`] if the disk cannot be read.
    pub fn tier_status(&self) -> Result<Option<TierStatus>, Error> {
        let (Some(disk), Some(far)) = (self.disk(), self.far()) else { return Ok(None) };
        let sent_to = sending::sent_to(disk)?;
        let packs = disk.index().packs();
        let mut waiting_bytes = 0;
        for number in packs.numbers().into_iter().filter(|number| *number >= sent_to.pack) {
            let len = packs.pack(number)?.map_or(0, |(_, len)| len);
            let sent = if number == sent_to.pack { u64::from(sent_to.unit) * UNIT } else { 0 };
            waiting_bytes += len.saturating_sub(sent.max(crate::packs::HEADER_LEN));
        }
        let labels = disk.index().tier_note(publishing::PUBLISHED)?;
        let labels = labels.and_then(|note| Some(u64::from_le_bytes(*note.first_chunk()?)));
        let (waiting_large, aside) = {
            let progress = far.progress.lock();
            (progress.large.len() as u64, progress.aside.len() as u64)
        };
        let (trouble, speed) = (far.trouble(), far.speed());
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &far.counts;
        Ok(Some(TierStatus {
            name: far.depot.name(),
            objects: disk.index().tiered_len()?,
            waiting_bytes,
            waiting_large,
            aside,
            labels_wait: far.labels_wanted().is_some(),
            labels: labels.unwrap_or_default(),
            gaps: count(&counts.gaps),
            sent: count(&counts.sent),
            sent_bytes: count(&counts.sent_bytes),
            reads: count(&counts.reads),
            read_bytes: count(&counts.read_bytes),
            brought: count(&counts.brought),
            parts: count(&counts.parts),
            corrupt: count(&counts.corrupt),
            failures: count(&counts.failures),
            evicted: count(&counts.evicted),
            evicted_bytes: count(&counts.evicted_bytes),
            collected: count(&counts.collected),
            collected_bytes: count(&counts.collected_bytes),
            moved_bytes: count(&counts.moved_bytes),
            collection: *far.collection.lock(),
            is_refused: trouble.as_ref().is_some_and(|(_, is_refused)| *is_refused),
            trouble: trouble.map(|(why, _)| why),
            latency_nanos: speed.latency_nanos as u64,
            bytes_per_second: speed.bytes_per_s as u64,
        }))
    }
}

#[cfg(test)]
pub(crate) mod tests;
