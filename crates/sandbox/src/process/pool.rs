// SPDX-License-Identifier: Apache-2.0
//! Containers of one kind that are ready before they are needed.

use std::sync::Arc;

use parking_lot::Mutex;

use super::bounds::Bounds;
use super::container::Container;
use super::error::Error;
use super::realm::Realm;
use super::rootfs::Rootfs;
use super::runtime::Runtime;

/// Keeps up to a number of prepared containers of one kind. What is taken
/// never comes back: a container is used once.
///
/// The pool has no thread; whoever owns it calls [`fill`](Self::fill) when it
/// has time.
#[derive(Debug)]
pub struct Pool {
    runtime: Arc<Runtime>,
    /// In which they are made, if not on the host.
    realm: Option<Arc<Realm>>,
    rootfs: Rootfs,
    bounds: Bounds,
    most: usize,
    /// Prepared, and how many are just being prepared.
    ready: Mutex<(Vec<Container>, usize)>,
}

impl Pool {
    /// An empty pool, for `most` containers.
    pub fn new(runtime: Arc<Runtime>, rootfs: Rootfs, bounds: Bounds, most: usize) -> Self {
        Self { runtime, realm: None, rootfs, bounds, most, ready: Mutex::default() }
    }

    /// The same, of containers in a realm.
    pub(super) fn within(self, realm: Option<Arc<Realm>>) -> Self {
        Self { realm, ..self }
    }

    fn make(&self) -> Result<Container, Error> {
        self.runtime.prepare_within(self.realm.as_deref(), &self.rootfs, &self.bounds)
    }

    /// A container that is ready, or else one that is made now.
    ///
    /// # Errors
    /// As [`Runtime::prepare`].
    pub fn take(&self) -> Result<Container, Error> {
        let ready = self.ready.lock().0.pop();
        match ready {
            Some(container) => Ok(container),
            None => self.make(),
        }
    }

    /// Prepares one container if there is room for it; false if there is not.
    ///
    /// # Errors
    /// As [`Runtime::prepare`].
    pub fn fill(&self) -> Result<bool, Error> {
        {
            let mut ready = self.ready.lock();
            if ready.0.len() + ready.1 >= self.most {
                return Ok(false);
            }
            ready.1 += 1;
        }
        let prepared = self.make();
        let mut ready = self.ready.lock();
        ready.1 -= 1;
        ready.0.push(prepared?);
        Ok(true)
    }

    /// How many are ready.
    pub fn ready(&self) -> usize {
        self.ready.lock().0.len()
    }

    /// Destroys those that are ready.
    pub fn drain(&self) {
        let ready = std::mem::take(&mut self.ready.lock().0);
        drop(ready);
    }
}
