// SPDX-License-Identifier: Apache-2.0
//! The calls of other functions that an instance asks for.
//!
//! An ask belongs to a call that runs; with the end of that call, whatever it
//! is, nobody wants its answer any more. Adapters know the bounds, and keep
//! them: an instance that breaks one lies.

use std::sync::Arc;
use std::time::Instant;

use adapter::frame::{ASKS_BYTES_MAX, ASKS_MAX};

use super::{AskId, Broken, Instance, Turn};
use crate::nested::{Callees, NestedAnswer, NestedCall};

/// Answers that may wait until the instance reads them, in bytes.
const UNREAD_MAX: usize = 80 << 20;
/// What may wait beyond that of notes that an answer is not delivered: more than [`ASKS_MAX`] of them.
const NOTES_MAX: usize = 64 << 10;
const NOT_READ: NestedAnswer<'_> = NestedAnswer {
    status: 503,
    content_type: "text/plain",
    body: b"the answer is not delivered: those before it were not read",
};

/// An ask that has no answer yet.
pub(super) struct Pending {
    id: AskId,
    /// Of its body.
    bytes: usize,
    /// Stops it when it is dropped; there as soon as the call was begun.
    stop: Option<Box<dyn Send>>,
}

/// An ask that is to be begun.
pub(crate) struct Asked {
    pub(crate) turn: Turn,
    pub(crate) id: AskId,
    pub(crate) nested: NestedCall,
    pub(crate) callees: Arc<dyn Callees>,
}

impl Instance {
    /// Notes an ask, if it may be made.
    pub(super) fn asked(&mut self, turn: Turn, id: AskId, nested: NestedCall) -> Result<Asked, Broken> {
        let pending = || self.under_way.iter().flat_map(|call| &call.pending);
        if pending().count() >= ASKS_MAX {
            return Err(Broken::Lie("more calls of other functions at once than it may have"));
        }
        let bytes = nested.body.len();
        if pending().map(|other| other.bytes).sum::<usize>() + bytes > ASKS_BYTES_MAX {
            return Err(Broken::Lie("more bytes in calls of other functions at once than it may have"));
        }
        if pending().any(|other| other.id == id) {
            return Err(Broken::Lie("two calls of other functions with one id"));
        }
        let begun = if self.is_serial { 1 } else { usize::MAX };
        let call = self.under_way.iter_mut().take(begun).find(|call| call.turn == turn);
        let call = call.ok_or(Broken::Lie("a call of another function outside of any call"))?;
        let callees = call.others.callees.clone();
        let callees = callees.ok_or(Broken::Lie("a call of another function where there are none"))?;
        let mut nested = nested;
        if call.others.line.is_some() && nested.line.head.is_none() {
            let head = call.line_head.clone();
            nested.line.head =
                Some(head.ok_or(Broken::Lie("a call of another function outside of any call"))?);
        }
        call.pending.push(Pending { id, bytes, stop: None });
        if let Some(served) = &mut call.served {
            self.meter.waits(served, Instant::now());
        }
        Ok(Asked { turn, id, nested, callees })
    }

    fn pending(&mut self, turn: Turn, id: AskId) -> Option<(&mut Vec<Pending>, usize)> {
        let call = self.under_way.iter_mut().find(|call| call.turn == turn)?;
        let at = call.pending.iter().position(|pending| pending.id == id)?;
        Some((&mut call.pending, at))
    }

    /// A call has an answer more; it waits no longer if that was the last.
    fn goes_on(&mut self, turn: Turn) {
        let call = self.under_way.iter_mut().find(|call| call.turn == turn && call.pending.is_empty());
        if let Some(served) = call.and_then(|call| call.served.as_mut()) {
            self.meter.goes_on(served, Instant::now());
        }
    }

    /// Keeps what stops a call of another function, if that has no answer yet.
    pub(crate) fn hold(&mut self, turn: Turn, id: AskId, stop: Box<dyn Send>) {
        if let Some((pending, at)) = self.pending(turn, id) {
            pending[at].stop = Some(stop);
        }
    }

    /// An ask has its answer; whether somebody still waits for it.
    pub(super) fn end_ask(&mut self, turn: Turn, id: AskId) -> bool {
        let Some((pending, at)) = self.pending(turn, id) else { return false };
        pending.swap_remove(at);
        self.goes_on(turn);
        true
    }

    /// Sends an answer on, if somebody still waits for it. `Err`: as of [`Instance::act`].
    pub(crate) fn tell(&mut self, turn: Turn, id: AskId, answer: NestedAnswer<'_>) -> Result<(), Broken> {
        if !self.end_ask(turn, id) {
            return Ok(());
        }
        let unread = self.channel.unsent_len();
        if unread > UNREAD_MAX + NOTES_MAX {
            return Err(Broken::Lie("calls of other functions without end, whose answers it does not read"));
        }
        let is_read = unread + answer.body.len() <= UNREAD_MAX;
        // If nothing can be sent any more, whoever reads will find out why.
        _ = self.channel.tell(turn, id, if is_read { answer } else { NOT_READ });
        _ = self.channel.flush();
        Ok(())
    }
}
