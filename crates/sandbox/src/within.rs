// SPDX-License-Identifier: Apache-2.0
//! Functions that are called within the instance that calls them.
//!
//! Functions of one group that are the same process but for their handlers need no
//! other instance to call each other: the adapter loads the other handler too, and
//! calls it as it would be called by a message (decision 0107). The node is asked
//! once, and told afterwards what was called, as on a line.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::line::LineRecords;

/// Counts how often it has changed which versions of functions serve, for those who were told
/// something that holds until then.
#[derive(Debug, Clone, Default)]
pub struct Changes(Arc<AtomicU64>);

impl Changes {
    /// Something has changed: it can be seen already.
    pub fn note(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// From now on.
    pub fn now(&self) -> Since {
        Since { changes: self.clone(), count: self.0.load(Ordering::Acquire) }
    }
}

/// A moment among changes.
#[derive(Debug, Clone)]
pub struct Since {
    changes: Changes,
    count: u64,
}

impl Since {
    /// Whether nothing has changed since.
    pub fn is_now(&self) -> bool {
        self.changes.0.load(Ordering::Acquire) == self.count
    }
}

/// What an instance is told of a function that it is to call within itself.
#[derive(Clone)]
pub struct Within {
    /// The function's name.
    pub function: String,
    /// Its version.
    pub version: u64,
    /// What one call of it may take.
    pub timeout: Duration,
    /// `module.name`; `None`: the runtime's usual one.
    pub handler: Option<String>,
    /// Where its calls are written down.
    pub records: Arc<dyn LineRecords>,
    /// It holds until something changes.
    pub since: Since,
}
