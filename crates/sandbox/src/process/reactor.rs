// SPDX-License-Identifier: Apache-2.0
//! Who tells instances that something has come for them.
//!
//! The node has an event loop already, for its clients. Channels of instances
//! are watched by the same one, so that an answer of a function is read by the
//! very thread that hands it on.

use std::fmt;
use std::os::fd::OwnedFd;

use crate::Home;

/// What is to happen when a descriptor is ready. Called by one thread at a
/// time, and never blocks.
pub trait Ready: Send + Sync {
    /// Something can be read or written now.
    fn act(&self) -> Next;
}

/// What is wanted after a descriptor was ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// To be called when further bytes come, or there is room again.
    Wait,
    /// To be called again as soon as others were looked after: enough was done
    /// at once, and not all.
    Again,
    /// Nothing more.
    Over,
}

/// Event loops. Their functions return at once; the descriptors that they take
/// are their own, and are closed when no more is wanted.
pub trait Reactor: Send + Sync + fmt::Debug {
    /// The loop that is to watch one more instance.
    fn home(&self) -> Home {
        Home::default()
    }

    /// The loop that this thread runs; none, if it runs none, or there is only one.
    fn here(&self) -> Option<Home> {
        None
    }

    /// Calls `ready` on a loop whenever bytes have come, until it wants no more. It is
    /// called again only when further ones come.
    fn watch(&self, home: Home, fd: OwnedFd, ready: Box<dyn Ready>);

    /// Calls `ready` on a loop when there is room for writing, until it wants no more.
    fn when_writable(&self, home: Home, fd: OwnedFd, ready: Box<dyn Ready>);

    /// Calls `ready` once on a loop, when all that is ready there now has been acted on. The
    /// loop is the one that this thread runs, or `home` if it runs none.
    fn after_this_turn(&self, home: Home, ready: Box<dyn Ready>);

    /// An instance that had nothing to do was given something.
    fn began(&self) {}
}
