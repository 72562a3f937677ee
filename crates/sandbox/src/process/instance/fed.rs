// SPDX-License-Identifier: Apache-2.0
//! Bodies of requests that come while an instance serves them.
//!
//! The node brings no more than the instance has room for, which says when it
//! has taken some of it. What an instance does not read waits here: so all of its
//! calls together have a bound.

use std::sync::Arc;

use super::{Broken, Instance, Turn};
use crate::fed::{Feed, Intake};
use crate::process::channel::STREAM_WINDOW;

/// What may wait until an instance reads it, of the bodies of all of its calls.
const UNREAD_MAX: usize = 4 << 20;

/// A body that comes while its call runs.
pub(super) struct Fed {
    feed: Arc<dyn Feed>,
    /// Bytes that may still be brought.
    room: usize,
    window: usize,
    is_over: bool,
}

impl Fed {
    pub(super) fn new(feed: Arc<dyn Feed>, window: usize) -> Box<Self> {
        Box::new(Self { feed, room: window, window, is_over: false })
    }

    /// So much is brought; false if there is no room for that.
    fn takes(&mut self, bytes: usize) -> bool {
        let left = self.room.checked_sub(bytes);
        self.room = left.unwrap_or(self.room);
        left.is_some()
    }

    /// The instance has taken so much of it.
    fn gives(&mut self, bytes: u32) -> Result<(), Broken> {
        let room = self.room + bytes as usize;
        // Of frames that ask for nothing there could be any number.
        if bytes == 0 || room > self.window {
            return Err(Broken::Lie("it wants more of a body than it has taken"));
        }
        self.room = room;
        if !self.is_over {
            self.feed.wants(bytes);
        }
        Ok(())
    }
}

/// What may be brought to each of so many calls before it has taken any of it.
pub(super) fn window(calls_at_once: u16) -> usize {
    STREAM_WINDOW.min(UNREAD_MAX / usize::from(calls_at_once.max(1)))
}

impl Instance {
    /// Tells where its body goes of the call that was begun last, if it comes later.
    pub(crate) fn feed(&self, intake: impl FnOnce(Turn) -> Box<dyn Intake>) {
        let last = self.under_way.last().filter(|call| call.turn == self.last_turn);
        if let Some(fed) = last.and_then(|call| call.fed.as_ref()) {
            fed.feed.begins(intake(self.last_turn), fed.room);
        }
    }

    fn fed(&mut self, turn: Turn) -> Option<&mut Fed> {
        let call = self.under_way.iter_mut().find(|call| call.turn == turn)?;
        call.fed.as_deref_mut().filter(|fed| !fed.is_over)
    }

    /// The next bytes of a body, if its call still runs.
    pub(crate) fn bring(&mut self, turn: Turn, bytes: &[u8]) {
        let Some(fed) = self.fed(turn) else { return };
        // Whoever brings knows how much there is room for.
        if !fed.takes(bytes.len()) {
            return self.end_body(turn, false);
        }
        if !bytes.is_empty() {
            // If nothing can be sent any more, whoever reads will find out why.
            _ = self.channel.body(turn, bytes).and_then(|()| self.channel.flush());
        }
    }

    /// No more of a body comes; whether that was all of it.
    pub(crate) fn end_body(&mut self, turn: Turn, is_whole: bool) {
        let Some(fed) = self.fed(turn) else { return };
        fed.is_over = true;
        _ = self.channel.end_body(turn, is_whole).and_then(|()| self.channel.flush());
    }

    /// The instance has taken so much of a body.
    pub(super) fn wanted(&mut self, turn: Turn, bytes: u32) -> Result<(), Broken> {
        let call = self.under_way.iter_mut().find(|call| call.turn == turn);
        let fed = call.and_then(|call| call.fed.as_mut());
        fed.ok_or(Broken::Lie("it wants more of a body that does not come"))?.gives(bytes)
    }
}

#[cfg(test)]
mod tests;
