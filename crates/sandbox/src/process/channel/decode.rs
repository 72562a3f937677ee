// SPDX-License-Identifier: Apache-2.0
//! What an instance has sent, as frames: how long each kind may be, which is
//! looked at before there is memory for it, and what is in it.

use std::time::Duration;

use adapter::frame::{
    ALONE, ASK, ASK_AGAIN, ASK_BODY_MAX, ASK_NAME_MAX, ASK_TYPE_MAX, ASK_WITHIN, AskId, BAD_RESULT, DROPPED,
    HELLO, KEEPS, LEAVING, LINE_HEAD_MAX, LOADED, LOG, MAPPED, OUTBOX, PHASES, PIECE, PIECE_MAX, RAISED,
    RESULT, SAID, SERVED, SERVED_WITHIN, SERVING, TEXT_LEN_MAX, Turn, UNCONFINED, WAITED, WANTS,
};

use super::{
    ASK_HEAD_LEN, ASK_LEN_MAX, Answer, Bounds, Broken, Frame, HEADER_LEN, HELLO_LEN, LOG_PIECE_MAX, Raised,
};
use crate::line::LineAsk;
use crate::nested::NestedCall;
use crate::process::{phases, report, within};

/// The stream of what is printed that is not standard output.
const STANDARD_ERROR: u8 = 2;

/// The head of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    kind: u8,
    turn: Turn,
    /// Bytes of the payload.
    pub(super) len: usize,
}

impl Head {
    /// The head of a frame, if a frame of its kind may be so long.
    pub(super) fn checked(header: [u8; HEADER_LEN], bounds: Bounds) -> Result<Self, Broken> {
        let [a, b, c, d, kind, turn @ ..] = header;
        let len = u32::from_le_bytes([a, b, c, d]) as usize;
        let fits = match kind {
            HELLO => len == HELLO_LEN,
            LOADED | LEAVING | KEEPS | SAID | ALONE => len == 0,
            RESULT => len as u64 <= bounds.result_bytes_max,
            OUTBOX | MAPPED => len == 8,
            PIECE => len <= PIECE_MAX,
            WANTS => len == 4,
            RAISED => len <= 3 * (4 + TEXT_LEN_MAX),
            BAD_RESULT | UNCONFINED => len <= TEXT_LEN_MAX,
            LOG => (1..=LOG_PIECE_MAX).contains(&len),
            ASK => (ASK_HEAD_LEN..=ASK_LEN_MAX).contains(&len),
            ASK_AGAIN => (ASK_HEAD_LEN + 4..=ASK_LEN_MAX + 4).contains(&len),
            ASK_WITHIN => (within::ASK_BYTES_MIN..=within::ASK_BYTES_MAX).contains(&len),
            SERVED => (1..=report::BYTES_MAX).contains(&len),
            SERVED_WITHIN => (5..=4 + report::BYTES_MAX).contains(&len),
            SERVING => len <= LINE_HEAD_MAX,
            WAITED => len == 8,
            DROPPED => len == 4,
            PHASES => (phases::HEAD_BYTES..=phases::BYTES_MAX).contains(&len),
            _ => return Err(Broken::Lie("a frame of no known kind")),
        };
        let head = Self { kind, turn: Turn::from_le_bytes(turn), len };
        if fits { Ok(head) } else { Err(Broken::Lie("a frame of a length that its kind does not have")) }
    }

    pub(super) fn decode(self, mut payload: Vec<u8>) -> Result<Frame, Broken> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self.kind {
            HELLO => match payload.as_slice() {
                [b'S', b'N', b'W', b'P', low, high, pid @ ..] => Ok(Frame::Hello {
                    version: u16::from_le_bytes([*low, *high]),
                    pid: pid.try_into().map_or(0, u32::from_le_bytes),
                }),
                _ => Err(Broken::Lie("a hello of something else")),
            },
            LOADED => Ok(Frame::Loaded),
            LEAVING => Ok(Frame::Leaving),
            KEEPS => Ok(Frame::Keeps(self.turn)),
            ALONE => Ok(Frame::Alone(self.turn)),
            SAID => Ok(Frame::Said),
            RESULT => Ok(Frame::Answer(self.turn, Answer::Result(payload))),
            OUTBOX | MAPPED => {
                let len = payload.first_chunk().map_or(0, |len| u64::from_le_bytes(*len));
                let answer = if self.kind == OUTBOX { Answer::Outbox(len) } else { Answer::Mapped(len) };
                Ok(Frame::Answer(self.turn, answer))
            }
            PIECE => Ok(Frame::Piece(self.turn, payload)),
            WANTS => match payload.first_chunk() {
                Some(bytes) => Ok(Frame::Wants(self.turn, u32::from_le_bytes(*bytes))),
                None => Err(Broken::Lie("half a wish")),
            },
            RAISED => Ok(Frame::Answer(self.turn, Answer::Raised(raised(&payload)?))),
            BAD_RESULT => Ok(Frame::Answer(self.turn, Answer::BadResult(text(&payload)))),
            UNCONFINED => Ok(Frame::Unconfined(text(&payload))),
            LOG => {
                let stream = payload.remove(0);
                Ok(Frame::Log(self.turn, stream == STANDARD_ERROR, payload))
            }
            PHASES => {
                let phases = phases::read(&payload).ok_or(Broken::Lie("half of a step's phases"))?;
                Ok(Frame::Phases(self.turn, phases))
            }
            _ => self.decode_of_others(payload),
        }
    }

    /// What has to do with calls of other functions.
    fn decode_of_others(self, payload: Vec<u8>) -> Result<Frame, Broken> {
        match self.kind {
            ASK => {
                let (id, nested) = asked(&payload).ok_or(Broken::Lie("half an ask"))?;
                Ok(Frame::Ask(self.turn, id, nested))
            }
            ASK_AGAIN => {
                let half = Broken::Lie("half an ask");
                let Some((line, ask)) = payload.split_first_chunk() else { return Err(half) };
                let (id, nested) = asked(ask).ok_or(half)?;
                Ok(Frame::AskAgain(self.turn, u32::from_le_bytes(*line), id, nested))
            }
            ASK_WITHIN => {
                let ask = within::asked(&payload).ok_or(Broken::Lie("half an ask"))?;
                Ok(Frame::AskWithin(self.turn, Box::new(ask)))
            }
            SERVED_WITHIN => {
                let half = Broken::Lie("half a report");
                let Some((number, reports)) = payload.split_first_chunk() else { return Err(half) };
                let reports = report::read(reports).ok_or(half)?;
                Ok(Frame::ServedWithin(u32::from_le_bytes(*number), reports))
            }
            SERVED => {
                let reports = report::read(&payload).ok_or(Broken::Lie("half a report"))?;
                Ok(Frame::Served(self.turn, reports))
            }
            SERVING => Ok(Frame::Serving(self.turn, payload)),
            WAITED => {
                let us = payload.first_chunk().map_or(0, |us| u64::from_le_bytes(*us));
                Ok(Frame::Waited(self.turn, Duration::from_micros(us)))
            }
            DROPPED => {
                let line = payload.first_chunk().map_or(0, |id| u32::from_le_bytes(*id));
                Ok(Frame::Dropped(self.turn, line))
            }
            _ => Err(Broken::Lie("a frame of no known kind")),
        }
    }
}

pub(in crate::process) fn raised(mut rest: &[u8]) -> Result<Raised, Broken> {
    let mut text = || {
        let (len, after) = rest.split_first_chunk().ok_or(Broken::Lie("half an exception"))?;
        let len = u32::from_le_bytes(*len) as usize;
        let bytes = after.get(..len).filter(|bytes| bytes.len() <= TEXT_LEN_MAX);
        let bytes = bytes.ok_or(Broken::Lie("half an exception"))?;
        rest = &after[len..];
        Ok(String::from_utf8_lossy(bytes).into_owned())
    };
    Ok(Raised { kind: text()?, message: text()?, traceback: text()? })
}

/// Id and call of an ask; `None` if it is none.
pub(in crate::process) fn asked(payload: &[u8]) -> Option<(AskId, NestedCall)> {
    fn text(rest: &[u8], most: usize) -> Option<(String, &[u8])> {
        let (len, rest) = rest.split_first_chunk()?;
        let (text, rest) = rest.split_at_checked(u16::from_le_bytes(*len) as usize)?;
        let is_short = text.len() <= most;
        is_short.then(|| (String::from_utf8_lossy(text).into_owned(), rest))
    }
    let (id, rest) = payload.split_first_chunk()?;
    let (function, rest) = text(rest, ASK_NAME_MAX)?;
    let (content_type, body) = text(rest, ASK_TYPE_MAX)?;
    let is_short = body.len() <= ASK_BODY_MAX;
    let line = LineAsk::default();
    let nested = || NestedCall { function, content_type, body: body.to_vec(), line };
    is_short.then(|| (AskId::from_le_bytes(*id), nested()))
}
