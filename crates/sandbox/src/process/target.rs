// SPDX-License-Identifier: Apache-2.0
//! Where an instance puts a long result.

use std::io;

use linux::Outbox;
use rmmap::Lease;

/// Where a long result may be put, and where in memory it lies there; there are no addresses where values
/// are sent.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) outbox: Outbox,
    pub(crate) lease: Option<Lease>,
}

impl Target {
    pub(crate) fn of(outbox: Outbox) -> Self {
        Self { outbox, lease: None }
    }

    /// One as long as the addresses.
    pub(crate) fn leased(lease: Lease) -> io::Result<Self> {
        Ok(Self { outbox: Outbox::create(lease.len())?, lease: Some(lease) })
    }
}
