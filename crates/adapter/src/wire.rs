// SPDX-License-Identifier: Apache-2.0
//! The instance's end of the wire to the node. The node's end, and the frames,
//! are in `sandbox/src/process/channel.rs`.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use crate::frame::{
    ASK, AskId, BAD_RESULT, BODY, BODY_LOST, CALL, HELLO, LEFT, LOAD, LOADED, LOG, OUTSIDE, PIECE, PIECE_MAX,
    RAISED, RESULT, ROOM, STREAM_WINDOW, TEXT_LEN_MAX, TOLD, Turn, VERSION, WANTS,
};

/// Bytes of one log frame.
const LOG_PIECE_MAX: usize = 32 << 10;
/// What may be logged between two calls.
const BETWEEN_CALLS: u64 = 32 << 10;

/// What the node wants.
#[derive(Debug)]
pub(crate) enum Order {
    /// To load a function of this source.
    Load(Vec<u8>),
    /// To call it with these.
    Call(Vec<Vec<u8>>),
}

/// What came of a call of another function.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) id: AskId,
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
}

/// The socket to the node.
pub(crate) struct Channel {
    stream: UnixStream,
    result_max: u64,
    log_max: u64,
    log_left: u64,
    /// The call that runs, as the node names it.
    turn: Turn,
    /// What has become of its result, if that is sent in pieces.
    pieces: Option<Pieces>,
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

/// A result that is sent in pieces.
#[derive(Debug, Clone, Copy, Default)]
struct Pieces {
    /// Bytes that may be sent now.
    room: usize,
    /// Nobody wants them any more.
    has_left: bool,
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Channel {
    /// Says hello.
    pub(crate) fn open(stream: UnixStream) -> io::Result<Self> {
        let mut channel =
            Self { stream, result_max: 0, log_max: 0, log_left: 0, turn: OUTSIDE, pieces: None, body: None };
        let mut hello = b"SNWP".to_vec();
        hello.extend(VERSION.to_le_bytes());
        hello.extend(std::process::id().to_le_bytes());
        channel.send(HELLO, &[&hello])?;
        Ok(channel)
    }

    /// Bytes that a result may have.
    pub(crate) fn result_max(&self) -> usize {
        usize::try_from(self.result_max).unwrap_or(usize::MAX)
    }

    /// Bytes that a result may have, and what a call may print.
    pub(crate) fn bounds(&self) -> (u64, u64) {
        (self.result_max, self.log_max)
    }

    /// Waits for a frame: kind, turn, payload.
    fn frame(&mut self) -> io::Result<(u8, [u8; 4], Vec<u8>)> {
        let mut header = [0; 9];
        self.stream.read_exact(&mut header)?;
        let [a, b, c, d, kind, turn @ ..] = header;
        // The node sends what it was asked for; it would not profit from a lie.
        let mut payload = vec![0; u32::from_le_bytes([a, b, c, d]) as usize];
        self.stream.read_exact(&mut payload)?;
        Ok((kind, turn, payload))
    }

    /// Waits for an order; `None` when the node has closed the channel.
    pub(crate) fn next_order(&mut self) -> io::Result<Option<Order>> {
        let (kind, turn, payload) = loop {
            match self.frame() {
                // The request that it was for is over.
                Ok((TOLD | ROOM | LEFT | BODY | BODY_LOST, ..)) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                read => break read?,
            }
        };
        let order = match kind {
            LOAD => self.loading(&payload).map(Order::Load),
            CALL => {
                self.log_left = self.log_max;
                self.turn = u32::from_le_bytes(turn);
                arguments(&payload).map(Order::Call)
            }
            _ => None,
        };
        order.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Asks for another function.
    pub(crate) fn ask(&mut self, id: AskId, name: &str, content_type: &str, body: &[u8]) -> io::Result<()> {
        let mut head = id.to_le_bytes().to_vec();
        for text in [name, content_type] {
            head.extend((text.len() as u16).to_le_bytes());
            head.extend(text.as_bytes());
        }
        self.send(ASK, &[&head, body])
    }

    /// Waits for what the node says during a call: what came of a call of another
    /// function, or how the result goes on.
    pub(crate) fn hear(&mut self) -> io::Result<Option<Told>> {
        let (kind, turn, payload) = self.frame()?;
        let is_its = u32::from_le_bytes(turn) == self.turn;
        match (kind, &mut self.pieces) {
            (TOLD, _) => return told(&payload).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into()),
            (ROOM, Some(pieces)) if is_its => {
                let bytes = payload.first_chunk().ok_or(io::ErrorKind::InvalidData)?;
                pieces.room += u32::from_le_bytes(*bytes) as usize;
            }
            (LEFT, Some(pieces)) if is_its => pieces.has_left = true,
            (BODY | BODY_LOST, _) => {
                if let Some(body) = self.body.as_mut().filter(|_| is_its) {
                    body.is_whole = payload.is_empty().then_some(kind == BODY);
                    body.bytes.extend(payload);
                }
            }
            // Of a result that has ended meanwhile.
            (ROOM | LEFT, _) => {}
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(None)
    }

    /// The body of the call comes from now on.
    pub(crate) fn begin_body(&mut self) {
        self.body = Some(Body::default());
    }

    /// Whether the node may send more of the body.
    pub(crate) fn has_body_to_come(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.is_whole.is_none())
    }

    /// Takes what has come of the body, so that more may come.
    pub(crate) fn take_body(&mut self) -> io::Result<Taken> {
        let Some(body) = &mut self.body else { return Ok(Taken::None) };
        match (body.bytes.is_empty(), body.is_whole) {
            (true, Some(is_whole)) => Ok(Taken::End { is_whole }),
            (true, None) => Ok(Taken::None),
            (false, is_whole) => {
                let bytes = std::mem::take(&mut body.bytes);
                if is_whole.is_none() {
                    let taken = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                    self.send(WANTS, &[&taken.to_le_bytes()])?;
                }
                Ok(Taken::Some(bytes))
            }
        }
    }

    /// The result is sent in pieces from now on.
    pub(crate) fn begin_pieces(&mut self) {
        self.pieces = Some(Pieces { room: STREAM_WINDOW, has_left: false });
    }

    /// Whether the node may say how the result goes on.
    pub(crate) fn is_in_pieces(&self) -> bool {
        self.pieces.is_some()
    }

    /// Nobody waits for the result any more.
    pub(crate) fn has_left(&self) -> bool {
        self.pieces.is_some_and(|pieces| pieces.has_left)
    }

    /// Sends what there is room for, of these bytes of the result: how many.
    pub(crate) fn send_pieces(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.pieces.map_or(0, |pieces| pieces.room).min(bytes.len());
        for piece in bytes[..room].chunks(PIECE_MAX) {
            self.send(PIECE, &[piece])?;
        }
        if let Some(pieces) = &mut self.pieces {
            pieces.room -= room;
        }
        Ok(room)
    }

    /// The source; the bounds are noted.
    fn loading(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        let (result_max, rest) = payload.split_first_chunk()?;
        let (log_max, rest) = rest.split_first_chunk()?;
        // One call at a time: whatever else is asked for is not for executables.
        let (_calls_at_once, rest) = rest.split_first_chunk::<2>()?;
        let (name_len, rest) = rest.split_first_chunk()?;
        self.result_max = u64::from_le_bytes(*result_max);
        self.log_max = u64::from_le_bytes(*log_max);
        self.log_left = self.log_max;
        rest.get(u16::from_le_bytes(*name_len) as usize..).map(<[u8]>::to_vec)
    }

    pub(crate) fn loaded(&mut self) -> io::Result<()> {
        self.answer(LOADED, &[])
    }

    pub(crate) fn result(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.answer(RESULT, &[bytes])
    }

    pub(crate) fn bad_result(&mut self, why: &str) -> io::Result<()> {
        self.answer(BAD_RESULT, &[cut(why).as_bytes()])
    }

    pub(crate) fn raise(&mut self, kind: &str, message: &str, trace: &str) -> io::Result<()> {
        let mut payload = Vec::new();
        for text in [kind, message, trace].map(cut) {
            payload.extend((text.len() as u32).to_le_bytes());
            payload.extend(text.as_bytes());
        }
        self.answer(RAISED, &[&payload])
    }

    /// Passes on what was printed, as far as the budget goes.
    pub(crate) fn log(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(LOG_PIECE_MAX) {
            if self.log_left == 0 {
                return Ok(());
            }
            let room = usize::try_from(self.log_left).unwrap_or(usize::MAX).min(piece.len());
            self.log_left -= room as u64;
            self.send(LOG, &[b"\x01", &piece[..room]])?;
            if self.log_left == 0 {
                let note = format!("\n[output over {} bytes was dropped]\n", self.log_max);
                self.send(LOG, &[b"\x02", note.as_bytes()])?;
            }
        }
        Ok(())
    }

    /// The end of a call, or of loading; what is printed from now on is of none.
    fn answer(&mut self, kind: u8, parts: &[&[u8]]) -> io::Result<()> {
        self.log_left = self.log_left.min(BETWEEN_CALLS);
        let sent = self.send(kind, parts);
        self.pieces = None;
        self.body = None;
        self.turn = OUTSIDE;
        sent
    }

    fn send(&mut self, kind: u8, parts: &[&[u8]]) -> io::Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let len = u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut frame = len.to_le_bytes().to_vec();
        frame.push(kind);
        frame.extend(self.turn.to_le_bytes());
        if frame.len() + len as usize > LOG_PIECE_MAX {
            self.stream.write_all(&frame)?;
            return parts.iter().try_for_each(|part| self.stream.write_all(part));
        }
        // What is short is sent at once, and read at once.
        parts.iter().for_each(|part| frame.extend_from_slice(part));
        self.stream.write_all(&frame)
    }
}

fn arguments(payload: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (count, mut rest) = payload.split_first_chunk()?;
    let count = u32::from_le_bytes(*count) as usize;
    let mut lens = Vec::new();
    for _ in 0..count {
        let (len, after) = rest.split_first_chunk()?;
        lens.push(u32::from_le_bytes(*len) as usize);
        rest = after;
    }
    let mut arguments = Vec::new();
    for len in lens {
        let (argument, after) = rest.split_at_checked(len)?;
        arguments.push(argument.to_vec());
        rest = after;
    }
    rest.is_empty().then_some(arguments)
}

fn told(payload: &[u8]) -> Option<Told> {
    let (id, rest) = payload.split_first_chunk()?;
    let (status, rest) = rest.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    let (content_type, body) = rest.split_at_checked(u16::from_le_bytes(*len) as usize)?;
    let content_type = String::from_utf8_lossy(content_type).into_owned();
    let (id, status) = (AskId::from_le_bytes(*id), u16::from_le_bytes(*status));
    Some(Told { id, status, content_type, body: body.to_vec() })
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_LEN_MAX)]
}
