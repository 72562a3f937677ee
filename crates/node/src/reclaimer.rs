// SPDX-License-Identifier: Apache-2.0
//! Makes room in a node without a disk, between requests.
//!
//! Such a node has nowhere to put what it evicts. When its memory runs short
//! it forgets what it could compute again and nobody named; but only while no
//! request is under way, since what a walk still needs cannot be told from
//! outside. Until then, what would need more memory is refused.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use store::Store;

use crate::Scheduler;

/// Time between two rounds: what nobody looked at for as long may go. Whoever
/// has just stored something, or been told a result, has that long to use it.
const INTERVAL: Duration = Duration::from_secs(1);

/// The thread that makes room.
pub(crate) struct Reclaimer {
    store: Arc<Store>,
    scheduler: Arc<Scheduler>,
    is_closed: Mutex<bool>,
    closed: Condvar,
}

impl Reclaimer {
    pub(crate) fn new(store: Arc<Store>, scheduler: Arc<Scheduler>) -> Self {
        Self { store, scheduler, is_closed: Mutex::new(false), closed: Condvar::new() }
    }

    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let reclaimer = Arc::clone(self);
        crate::workers::spawn("sinew-reclaim".to_owned(), move || reclaimer.run())
    }

    fn run(&self) {
        let mut is_closed = self.is_closed.lock();
        while !*is_closed {
            self.closed.wait_for(&mut is_closed, INTERVAL);
            if self.store.is_nearly_full() && self.scheduler.requests() == 0 {
                let reclaimed = self.store.reclaim();
                tracing::debug!(reclaimed.objects, reclaimed.relations, "made room in memory");
            }
        }
    }

    pub(crate) fn close(&self) {
        *self.is_closed.lock() = true;
        self.closed.notify_all();
    }
}

/// Why something is refused that needs memory.
pub(crate) fn full_text(store: &Store) -> String {
    let budget = store.stats().memory_budget_bytes >> 20;
    format!(
        "the node's memory for objects, {budget} MiB, is used up, and it has no disk to move them to; \
         start it with a home (sinew up --home DIR) or more memory (--memory), or try again later"
    )
}
