// SPDX-License-Identifier: Apache-2.0
//! Results on their way from an instance to a client, before they are whole.
//!
//! The thread that reads the instance puts the bytes here, and the task that
//! writes to the client takes them. What lies here is never more than what the
//! instance may send before the client has taken some of it.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use axum::body::Bytes;
use gateway::Pieces;
use parking_lot::Mutex;
use sandbox::{Listener, Source};

/// Room is given again when the client has taken so much: a quarter of what an
/// instance may send at first.
const ROOM_STEP: u32 = 64 << 10;

/// Bytes that nobody has taken yet.
#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// No more will come.
    is_over: bool,
    /// Nor then, but the call goes on.
    is_whole: bool,
    /// Nobody takes any more.
    is_left: bool,
    waker: Option<Waker>,
}

type Shared = Arc<Mutex<Waiting>>;

/// The end that puts bytes in.
pub(crate) struct Inlet(Shared);

/// The end that takes them.
pub(crate) struct Outlet {
    shared: Shared,
    source: Box<dyn Source>,
    /// Bytes that were taken and not yet given back as room.
    owed: u32,
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").field("owed", &self.owed).finish_non_exhaustive()
    }
}

/// Both ends of a result that comes from this source.
pub(crate) fn stream(source: Box<dyn Source>) -> (Inlet, Outlet) {
    let shared = Shared::default();
    (Inlet(Arc::clone(&shared)), Outlet { shared, source, owed: 0 })
}

impl Outlet {
    /// Nobody takes anything, and the source is not told: the call is stopped by
    /// whoever has left.
    pub(crate) fn forget(self) {
        let mut waiting = self.shared.lock();
        (waiting.is_over, waiting.is_left) = (true, true);
    }
}

impl Listener for Inlet {
    fn hears(&mut self, piece: &[u8]) {
        let mut waiting = self.0.lock();
        if waiting.is_left {
            return;
        }
        waiting.bytes.extend_from_slice(piece);
        let waker = waiting.waker.take();
        drop(waiting);
        waker.into_iter().for_each(Waker::wake);
    }

    fn has_all(&mut self) {
        let mut waiting = self.0.lock();
        waiting.is_whole = true;
        let waker = waiting.waker.take();
        drop(waiting);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.is_over = true;
        let waker = waiting.waker.take();
        drop(waiting);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Pieces for Outlet {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let bytes = {
            let mut waiting = self.shared.lock();
            if waiting.bytes.is_empty() {
                if waiting.is_over || waiting.is_whole {
                    return Poll::Ready(None);
                }
                waiting.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            std::mem::take(&mut waiting.bytes)
        };
        // Without the lock: the source locks the instance, and whoever holds that
        // puts bytes in.
        self.owed = self.owed.saturating_add(bytes.len() as u32);
        if self.owed >= ROOM_STEP {
            self.source.wants(std::mem::take(&mut self.owed));
        }
        Poll::Ready(Some(bytes.into()))
    }

    fn is_whole(&self) -> bool {
        self.shared.lock().is_whole
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        let has_all = {
            let mut waiting = self.shared.lock();
            waiting.is_left = true;
            waiting.bytes = Vec::new();
            waiting.is_over || waiting.is_whole
        };
        if !has_all {
            self.source.leaves();
        }
    }
}

#[cfg(test)]
mod tests;
