// SPDX-License-Identifier: Apache-2.0
//! Results that come in pieces.
//!
//! Whoever wants to hear one gets its bytes as they come; nothing of them is
//! kept here but the head and the digest, so that a result may be longer than
//! memory. Where nobody does, the pieces are put together.

use adapter::frame::{PIECE_MAX, STREAM_MAX};
use objects::{FailureCode, Handle, LITERAL_LEN_MAX};

use super::{Broken, Instance, Sources, Turn, UnderWay};
use crate::Fault;
use crate::process::channel::STREAM_WINDOW;
use crate::streamed::Listener;

/// Bits of the first word of a result that are no part of its head's length.
const FLAGS: u32 = 0b11 << 30;
/// One of them: in place of the body stands the handle that it would have.
const STREAMED: u32 = 1 << 30;
/// Bytes of that word.
const LEN_WORD: usize = 4;

/// What has come of a result.
pub(super) struct Streamed {
    /// Bytes that may come before the node says more.
    window: usize,
    /// No more of it will come, though the call goes on.
    is_whole: bool,
    kept: Kept,
}

enum Kept {
    /// All of it, for a result that is wanted whole.
    Whole { bytes: Vec<u8>, most: u64 },
    /// Nothing: it is longer than a result that is wanted whole may be.
    TooLong { len: u64, most: u64 },
    /// Its head, and what names the rest, which somebody hears.
    Heard(Box<Heard>),
}

struct Heard {
    listener: Box<dyn Listener>,
    head: Vec<u8>,
    /// The beginning of the body: all of it where its handle holds it.
    start: Vec<u8>,
    digest: blake3::Hasher,
    len: u64,
}

impl Heard {
    fn new(listener: Box<dyn Listener>, head: &[u8]) -> Self {
        let (head, start) = (head.to_vec(), Vec::new());
        Self { listener, head, start, digest: blake3::Hasher::new(), len: 0 }
    }

    fn add(&mut self, piece: &[u8]) -> Result<(), Broken> {
        self.len = within(self.len, piece)?;
        if self.start.len() <= LITERAL_LEN_MAX {
            self.start.extend_from_slice(&piece[..piece.len().min(LITERAL_LEN_MAX + 1)]);
        }
        self.digest.update(piece);
        self.listener.hears(piece);
        Ok(())
    }

    /// What stands for the result: its head, and the name of the rest.
    fn end(self) -> Option<Vec<u8>> {
        let Self { mut head, start, digest, len, .. } = self;
        let body = match Handle::literal(&start) {
            Some(body) => body,
            None => Handle::blob_from_hash(digest.finalize().as_bytes(), len)?,
        };
        // The highest bits of its length, in the last byte of it.
        head[LEN_WORD - 1] |= (STREAMED >> 24) as u8;
        head.extend_from_slice(body.as_bytes());
        Some(head)
    }
}

impl Kept {
    /// One piece more; the first one has the head, which ends where it says.
    fn add(&mut self, piece: &[u8]) -> Result<(), Broken> {
        match self {
            Self::Whole { bytes, most } => {
                bytes.extend_from_slice(piece);
                if bytes.len() as u64 > *most {
                    *self = Self::TooLong { len: bytes.len() as u64, most: *most };
                }
            }
            Self::TooLong { len, .. } => *len = within(*len, piece)?,
            Self::Heard(heard) => heard.add(piece)?,
        }
        Ok(())
    }
}

/// The length of a result with one piece more.
fn within(len: u64, piece: &[u8]) -> Result<u64, Broken> {
    let len = len + piece.len() as u64;
    // Adapters keep this bound, and say so.
    if len > STREAM_MAX + PIECE_MAX as u64 {
        return Err(Broken::Lie("a longer result than it may have"));
    }
    Ok(len)
}

impl Streamed {
    /// One piece more; an empty one says that this was all.
    fn add(&mut self, piece: &[u8]) -> Result<(), Broken> {
        if self.is_whole {
            return Err(Broken::Lie("a piece of a result after its last one"));
        }
        self.is_whole = piece.is_empty();
        match &mut self.kept {
            Kept::Heard(heard) if self.is_whole => heard.listener.has_all(),
            kept => kept.add(piece)?,
        }
        Ok(())
    }

    /// The result, after its last piece.
    pub(super) fn end(self, last: &[u8]) -> Result<Result<Vec<u8>, Fault>, Broken> {
        if !last.is_empty() {
            return Err(Broken::Lie("a result at once after pieces of it"));
        }
        match self.kept {
            Kept::Whole { bytes, .. } => Ok(Ok(bytes)),
            Kept::TooLong { most, .. } => {
                let why = format!("its result has more than {most} bytes, and is wanted whole");
                Ok(Err(Fault::new(FailureCode::BadResult, why)))
            }
            Kept::Heard(heard) => heard.end().map(Ok).ok_or(Broken::Lie("a result without a name")),
        }
    }
}

/// Where the head of a result ends, of which this is the beginning.
fn head_end(piece: &[u8]) -> Option<usize> {
    let (len, _) = piece.split_first_chunk()?;
    let end = LEN_WORD + (u32::from_le_bytes(*len) & !FLAGS) as usize;
    (end <= piece.len()).then_some(end)
}

impl Instance {
    /// A piece of a result has come.
    pub(super) fn piece(&mut self, turn: Turn, piece: &[u8], sources: Sources<'_>) -> Result<(), Broken> {
        let most = self.terms.bounds.result_bytes_max;
        let begun = if self.is_serial { 1 } else { usize::MAX };
        let call = self.under_way.iter_mut().take(begun).find(|call| call.turn == turn);
        let call = call.ok_or(Broken::Lie("a piece of a result of no call"))?;
        let streamed = match &mut call.streamed {
            Some(streamed) => {
                streamed.add(piece)?;
                streamed
            }
            None => {
                let kept = begins(call, piece, most, sources)?;
                call.streamed.insert(Streamed { window: STREAM_WINDOW, is_whole: false, kept })
            }
        };
        let left = streamed.window.checked_sub(piece.len());
        streamed.window = left.ok_or(Broken::Lie("more of a result than there is room for"))?;
        if !piece.is_empty() && !matches!(streamed.kept, Kept::Heard(_)) {
            self.make_room(turn, piece.len() as u32);
        }
        Ok(())
    }

    /// Lets so many more bytes of a result come, if its call still runs.
    pub(crate) fn make_room(&mut self, turn: Turn, bytes: u32) {
        let call = self.under_way.iter_mut().find(|call| call.turn == turn);
        let Some(streamed) = call.and_then(|call| call.streamed.as_mut()) else { return };
        streamed.window += bytes as usize;
        // If nothing can be sent any more, whoever reads will find out why.
        _ = self.channel.room(turn, bytes).and_then(|()| self.channel.flush());
    }

    /// Says that nobody waits for a result any more, if its call still runs.
    pub(crate) fn leave(&mut self, turn: Turn) {
        if self.under_way.iter().any(|call| call.turn == turn) {
            _ = self.channel.left(turn).and_then(|()| self.channel.flush());
        }
    }
}

/// What is to be kept of a result that begins with this piece.
fn begins(call: &UnderWay, piece: &[u8], most: u64, sources: Sources<'_>) -> Result<Kept, Broken> {
    let end = head_end(piece).ok_or(Broken::Lie("the head of a result in two pieces"))?;
    let listener = call.others.audience.as_ref().and_then(|audience| audience.begins(sources(call.turn)));
    let Some(mut listener) = listener else {
        let mut kept = Kept::Whole { bytes: Vec::new(), most };
        kept.add(piece)?;
        return Ok(kept);
    };
    let (head, body) = piece.split_at(end);
    listener.hears(head);
    let mut heard = Heard::new(listener, head);
    if !body.is_empty() {
        heard.add(body)?;
    }
    Ok(Kept::Heard(Box::new(heard)))
}

#[cfg(test)]
mod tests;
