// SPDX-License-Identifier: Apache-2.0
//! What was acknowledged in memory, and is written to the disk with nobody waiting for it.
//!
//! It is bounded: whoever finds no place here writes before the answer. One thread writes all that has come
//! meanwhile in one commit, so that a disk that is slow takes no more threads from others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use objects::{BundleReader, BundleRecord, TreeView};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::backend::Backend;
use crate::body::{BUDGET_UNIT_BYTES, Buffered};

/// Objects that wait for the disk.
pub(crate) enum Objects {
    /// A blob's bytes.
    Blob(Vec<u8>),
    /// The bytes of a tree, which were checked.
    Tree(Vec<u8>),
    /// A bundle that was read before.
    Bundle(Buffered),
}

impl Objects {
    fn records(&self) -> Vec<BundleRecord<'_>> {
        match self {
            Self::Blob(bytes) => vec![BundleRecord::Blob(bytes)],
            Self::Tree(bytes) => vec![BundleRecord::Tree(TreeView::from_checked(bytes))],
            Self::Bundle(bundle) => {
                let records = BundleReader::new(&bundle.bytes);
                records.map(|records| records.map_while(Result::ok).collect()).unwrap_or_default()
            }
        }
    }
}

/// A place among what waits.
pub(crate) struct Place {
    permit: OwnedSemaphorePermit,
    bytes: Gauge,
}

impl Place {
    fn bytes(&self) -> i64 {
        self.permit.num_permits() as i64 * BUDGET_UNIT_BYTES as i64
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.bytes.dec_by(self.bytes());
    }
}

struct Due {
    objects: Objects,
    _place: Place,
}

#[derive(Default)]
struct Waiting {
    due: Vec<Due>,
    /// Somebody is at it.
    is_written: bool,
}

/// What waits for the disk.
pub(crate) struct Behind {
    budget: Arc<Semaphore>,
    units: u32,
    waiting: Arc<Mutex<Waiting>>,
    bytes: Gauge,
}

impl Behind {
    /// For so many bytes; what is short counts as 64 KiB.
    pub(crate) fn new(max_bytes: u64) -> Self {
        let units = u32::try_from(max_bytes / BUDGET_UNIT_BYTES).unwrap_or(u32::MAX);
        let units = units.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        Self {
            budget: Arc::new(Semaphore::new(units as usize)),
            units,
            waiting: Arc::default(),
            bytes: Gauge::default(),
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "What was acknowledged in memory and waits for the disk; what is short counts as 64 KiB";
        registry.register_with_unit("behind", help, Unit::Bytes, self.bytes.clone());
    }

    /// A place for so many bytes. `None`: too much waits already, and this is to be written at once.
    pub(crate) fn place(&self, len: usize) -> Option<Place> {
        let units = u32::try_from((len as u64).div_ceil(BUDGET_UNIT_BYTES).max(1)).ok()?;
        let permit = self.budget.clone().try_acquire_many_owned(units).ok()?;
        let place = Place { permit, bytes: self.bytes.clone() };
        self.bytes.inc_by(place.bytes());
        Some(place)
    }

    /// Has these written.
    pub(crate) fn write(&self, backend: &Arc<dyn Backend>, place: Place, objects: Objects) {
        let mut waiting = lock(&self.waiting);
        waiting.due.push(Due { objects, _place: place });
        if !std::mem::replace(&mut waiting.is_written, true) {
            let (waiting, backend) = (self.waiting.clone(), backend.clone());
            drop(tokio::task::spawn_blocking(move || write_all(&waiting, &*backend)));
        }
    }

    /// Returns when all that waits is written, or cannot be.
    pub(crate) async fn settled(&self) {
        // It is never closed.
        drop(self.budget.acquire_many(self.units).await);
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whoever comes after a writer that has panicked writes what is left.
struct Writing<'a>(&'a Mutex<Waiting>);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(self.0).is_written = false;
        }
    }
}

fn write_all(waiting: &Mutex<Waiting>, backend: &dyn Backend) {
    let _writing = Writing(waiting);
    loop {
        let due = {
            let mut waiting = lock(waiting);
            if waiting.due.is_empty() {
                waiting.is_written = false;
                return;
            }
            std::mem::take(&mut waiting.due)
        };
        let records: Vec<BundleRecord<'_>> = due.iter().flat_map(|due| due.objects.records()).collect();
        if backend.put_many(&records).is_ok() {
            continue;
        }
        // What one of them is too much for may have room for the others.
        for due in &due {
            if let Err(error) = backend.put_many(&due.objects.records()) {
                tracing::error!(%error, "what was acknowledged in memory is not on the disk");
            }
        }
    }
}
