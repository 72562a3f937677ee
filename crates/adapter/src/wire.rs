// SPDX-License-Identifier: Apache-2.0
//! The instance's end of the wire to the node. The node's end, and the frames,
//! are in `sandbox/src/process/channel.rs`.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::frame::{
    ASK, AskId, BAD_RESULT, HELLO, LOAD, LOADED, LOG, OUTSIDE, RAISED, RESULT, TEXT_LEN_MAX, Turn, VERSION,
};

/// What is sent together, and copied for that.
const SHORT: usize = 32 << 10;
/// What is read at once.
const PIECE: usize = 64 << 10;
/// Bytes of a buffer that are kept when nothing is in it.
const KEPT: usize = 256 << 10;
/// Bytes of a frame before its payload.
const HEADER: usize = 9;

/// What the node says.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    /// The call that it is about.
    pub(crate) turn: Turn,
    pub(crate) payload: Vec<u8>,
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
    /// What has come of frames that were not taken.
    received: Vec<u8>,
    /// Where the next one of them begins.
    at: usize,
    /// Frames that are sent together.
    unsent: Vec<u8>,
    result_max: u64,
    log_max: u64,
    calls_at_once: u16,
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Channel {
    /// Says hello.
    pub(crate) fn open(stream: UnixStream) -> io::Result<Self> {
        let mut channel = Self {
            stream,
            received: Vec::new(),
            at: 0,
            unsent: Vec::new(),
            result_max: 0,
            log_max: 0,
            calls_at_once: 1,
        };
        let mut hello = b"SNWP".to_vec();
        hello.extend(VERSION.to_le_bytes());
        hello.extend(std::process::id().to_le_bytes());
        channel.send(HELLO, OUTSIDE, &[&hello])?;
        channel.flush()?;
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

    /// Whether the node has several calls run at the same time.
    pub(crate) fn serves_several(&self) -> bool {
        self.calls_at_once > 1
    }

    /// Waits for the function, and takes nothing that comes behind it; `None` when the node has closed the channel.
    pub(crate) fn load(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut header = [0; HEADER];
        match self.stream.read_exact(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        // The node sends what it was asked for; it would not profit from a lie.
        let mut payload = vec![0; payload_len(&header)];
        self.stream.read_exact(&mut payload)?;
        let loading = if header[4] == LOAD { self.loading(&payload) } else { None };
        loading.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The source; the bounds are noted.
    fn loading(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        let (result_max, rest) = payload.split_first_chunk()?;
        let (log_max, rest) = rest.split_first_chunk()?;
        let (calls_at_once, rest) = rest.split_first_chunk()?;
        let (name_len, rest) = rest.split_first_chunk()?;
        self.result_max = u64::from_le_bytes(*result_max);
        self.log_max = u64::from_le_bytes(*log_max);
        self.calls_at_once = u16::from_le_bytes(*calls_at_once);
        rest.get(u16::from_le_bytes(*name_len) as usize..).map(<[u8]>::to_vec)
    }

    /// Takes what has come, without waiting; false if the node has closed the channel.
    pub(crate) fn receive(&mut self) -> io::Result<bool> {
        self.received.drain(..std::mem::take(&mut self.at));
        self.received.reserve(PIECE);
        match recv(&self.stream, spare_capacity(&mut self.received), RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Ok(false),
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// The next frame, if all of it has come.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let come = &self.received[self.at..];
        let header = come.first_chunk::<HEADER>()?;
        let payload = come.get(HEADER..HEADER + payload_len(header))?.to_vec();
        let &[_, _, _, _, kind, turn @ ..] = header;
        self.at += HEADER + payload.len();
        if self.at == self.received.len() {
            (self.at, self.received) = (0, emptied(std::mem::take(&mut self.received)));
        }
        Some(Frame { kind, turn: u32::from_le_bytes(turn), payload })
    }

    /// Asks for another function, for a call.
    pub(crate) fn ask(
        &mut self,
        turn: Turn,
        id: AskId,
        name: &str,
        content_type: &str,
        body: &[u8],
    ) -> io::Result<()> {
        let mut head = id.to_le_bytes().to_vec();
        for text in [name, content_type] {
            head.extend((text.len() as u16).to_le_bytes());
            head.extend(text.as_bytes());
        }
        self.send(ASK, turn, &[&head, body])
    }

    pub(crate) fn loaded(&mut self) -> io::Result<()> {
        self.send(LOADED, OUTSIDE, &[])
    }

    pub(crate) fn result(&mut self, turn: Turn, bytes: &[u8]) -> io::Result<()> {
        self.send(RESULT, turn, &[bytes])
    }

    pub(crate) fn bad_result(&mut self, turn: Turn, why: &str) -> io::Result<()> {
        self.send(BAD_RESULT, turn, &[cut(why).as_bytes()])
    }

    pub(crate) fn raise(&mut self, turn: Turn, kind: &str, message: &str, trace: &str) -> io::Result<()> {
        let mut payload = Vec::new();
        for text in [kind, message, trace].map(cut) {
            payload.extend((text.len() as u32).to_le_bytes());
            payload.extend(text.as_bytes());
        }
        self.send(RAISED, turn, &[&payload])
    }

    /// Says what was printed for a call: by the program (1), or a note about it (2).
    pub(crate) fn log(&mut self, turn: Turn, kind: u8, bytes: &[u8]) -> io::Result<()> {
        self.send(LOG, turn, &[&[kind], bytes])
    }

    pub(crate) fn send(&mut self, kind: u8, turn: Turn, parts: &[&[u8]]) -> io::Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let len = u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut frame = len.to_le_bytes().to_vec();
        frame.push(kind);
        frame.extend(turn.to_le_bytes());
        self.unsent.extend_from_slice(&frame);
        if len as usize > SHORT {
            self.flush()?;
            return parts.iter().try_for_each(|part| self.stream.write_all(part));
        }
        parts.iter().for_each(|part| self.unsent.extend_from_slice(part));
        if self.unsent.len() > SHORT { self.flush() } else { Ok(()) }
    }

    /// Sends what is there to be sent: before anything is waited for. What comes about together is read at once.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        let sent = self.stream.write_all(&self.unsent);
        self.unsent = emptied(std::mem::take(&mut self.unsent));
        sent
    }
}

/// A buffer without what is in it, and without its memory if that is much.
fn emptied(mut buffer: Vec<u8>) -> Vec<u8> {
    buffer.clear();
    if buffer.capacity() > KEPT { Vec::new() } else { buffer }
}

fn payload_len(header: &[u8; HEADER]) -> usize {
    let [a, b, c, d, ..] = *header;
    u32::from_le_bytes([a, b, c, d]) as usize
}

/// What a call is given: request, head and body.
pub(crate) fn arguments(payload: &[u8]) -> Option<Vec<Vec<u8>>> {
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

/// What a call of another function was told.
pub(crate) fn told(payload: &[u8]) -> Option<Told> {
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
