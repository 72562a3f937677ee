// SPDX-License-Identifier: Apache-2.0
//! Results that are heard before they are whole.
//!
//! An instance may send its result in pieces. Where somebody wants them as they
//! come, they are handed on and not kept; else they are put together, and the
//! call has its result at its end, as if it had been sent at once.

use std::sync::Arc;

use crate::fed::Feed;

/// Who may want to hear the result of one call before it is whole, and may send
/// the body of its request so.
pub trait Audience: Send + Sync {
    /// A result begins to come. `None`: it is wanted whole. Does not block, and
    /// does not use the source before it has returned.
    fn begins(&self, source: Box<dyn Source>) -> Option<Box<dyn Listener>>;

    /// The body of its request, if that comes while the call runs. Does not block.
    fn body(&self) -> Option<Arc<dyn Feed>> {
        None
    }
}

/// Hears the bytes of one result in their order, its head among the first ones.
/// It is dropped after the last of them, or when no more will come; how the call
/// ended is told as of any other.
pub trait Listener: Send {
    /// The next bytes. Does not block, and does not use the source: whoever calls
    /// holds the instance.
    fn hears(&mut self, piece: &[u8]);
    /// That was all of them, though the call goes on. As `hears`.
    fn has_all(&mut self) {}
}

/// Where the bytes of one result come from.
pub trait Source: Send + Sync {
    /// So many more may come. At first a window of them is open.
    fn wants(&self, bytes: u32);
    /// Nobody hears them any more. The call goes on until it ends or is stopped.
    fn leaves(&self);
}
