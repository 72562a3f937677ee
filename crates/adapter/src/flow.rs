// SPDX-License-Identifier: Apache-2.0
//! What comes and goes of one call while it runs: its body and its result, in
//! pieces, each at the pace at which the other side takes it.

use std::io;

use crate::frame::{BODY, BODY_LOST, PIECE, PIECE_MAX, ROOM, STREAM_WINDOW, Turn, WANTS};
use crate::wire::{Channel, Frame};

/// What there is of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Its next bytes.
    Some(Vec<u8>),
    /// Nothing now.
    None,
    /// No more will come; whether that is all of it.
    End { is_whole: bool },
}

/// A call's body and result.
#[derive(Debug)]
pub(crate) struct Flow {
    /// The call, as the node names it.
    turn: Turn,
    /// Bytes of its result that may be sent now, if that is sent in pieces.
    room: Option<usize>,
    /// What has come of its body and is not taken, if it comes while the call runs.
    body: Option<Body>,
}

/// A body that comes while its call runs.
#[derive(Debug, Default)]
struct Body {
    bytes: Vec<u8>,
    /// No more will come; whether that is all of it.
    is_whole: Option<bool>,
}

impl Flow {
    pub(crate) fn new(turn: Turn) -> Self {
        Self { turn, room: None, body: None }
    }

    /// What the node says of them; false if it is about neither.
    pub(crate) fn hear(&mut self, frame: Frame) -> bool {
        match (frame.kind, &mut self.room, &mut self.body) {
            (ROOM, Some(room), _) => {
                let Some(bytes) = frame.payload.first_chunk() else { return false };
                *room += u32::from_le_bytes(*bytes) as usize;
            }
            (BODY | BODY_LOST, _, Some(body)) => {
                body.is_whole = frame.payload.is_empty().then_some(frame.kind == BODY);
                body.bytes.extend(frame.payload);
            }
            _ => return false,
        }
        true
    }

    /// The body comes from now on.
    pub(crate) fn begin_body(&mut self) {
        self.body = Some(Body::default());
    }

    /// Takes what has come of the body, so that more may come.
    pub(crate) fn take_body(&mut self, channel: &mut Channel) -> io::Result<Taken> {
        let Some(body) = &mut self.body else { return Ok(Taken::None) };
        match (body.bytes.is_empty(), body.is_whole) {
            (true, Some(is_whole)) => Ok(Taken::End { is_whole }),
            (true, None) => Ok(Taken::None),
            (false, is_whole) => {
                let bytes = std::mem::take(&mut body.bytes);
                if is_whole.is_none() {
                    let taken = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                    channel.send(WANTS, self.turn, &[&taken.to_le_bytes()])?;
                }
                Ok(Taken::Some(bytes))
            }
        }
    }

    /// The result is sent in pieces from now on.
    pub(crate) fn begin_pieces(&mut self) {
        self.room = Some(STREAM_WINDOW);
    }

    /// Whether the node may say how the result goes on.
    pub(crate) fn is_in_pieces(&self) -> bool {
        self.room.is_some()
    }

    /// Sends what there is room for, of these bytes of the result: how many.
    pub(crate) fn send_pieces(&mut self, bytes: &[u8], channel: &mut Channel) -> io::Result<usize> {
        let len = self.room.unwrap_or(0).min(bytes.len());
        for piece in bytes[..len].chunks(PIECE_MAX) {
            channel.send(PIECE, self.turn, &[piece])?;
        }
        self.room = self.room.map(|room| room - len);
        Ok(len)
    }
}
