// SPDX-License-Identifier: Apache-2.0
//! What the program prints, and which call it is of.

use std::collections::HashMap;
use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::os::fd::{AsFd, BorrowedFd};

use crate::Mode;
use crate::frame::{OUTSIDE, Turn};
use crate::wire::Channel;

const STANDARD_OUTPUT: u8 = 1;
const STANDARD_ERROR: u8 = 2;
/// Bytes of one log frame.
const PIECE_MAX: usize = 32 << 10;
/// What is read at once, in pieces of those: more than a pipe holds.
const PIECES: usize = 4;
/// What may be logged between two calls.
const BETWEEN_CALLS: u64 = 32 << 10;
/// The last bytes of what was printed are told with a failure.
const TOLD: usize = 2048;
/// Bytes of a line whose end is waited for, to know which call it is of.
const LINE_MAX: usize = 8 << 10;
/// A shorter id of a request may be anything else, as a date.
const ID_MIN: usize = 16;

/// A pipe into which the program writes, and what of that is whose.
pub(crate) struct Logs {
    reader: PipeReader,
    writer: PipeWriter,
    calls: HashMap<Turn, Printed>,
    /// Requests of those, by their ids.
    named: HashMap<String, Turn>,
    /// What is of no call.
    others: Printed,
    /// As what it is told. A server's both streams are one pipe, so that its lines are in order.
    stream: u8,
    /// Bytes that may be sent of a call.
    most: u64,
    /// A line without its end.
    line: Vec<u8>,
    buffer: Vec<u8>,
}

/// What was printed for a call that runs.
#[derive(Default)]
struct Printed {
    /// Bytes that may be sent, and that might be in the beginning.
    left: u64,
    most: u64,
    last: Vec<u8>,
}

impl Printed {
    fn new(most: u64) -> Self {
        Self { left: most, most, last: Vec::new() }
    }
}

impl AsFd for Logs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

impl Logs {
    pub(crate) fn new(most: u64, mode: Mode) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&reader, true).map_err(io::Error::from)?;
        let (calls, named, others) = (HashMap::new(), HashMap::new(), Printed::new(most));
        let (line, buffer) = (Vec::new(), vec![0; PIECE_MAX]);
        let stream = if mode == Mode::Standard { STANDARD_ERROR } else { STANDARD_OUTPUT };
        Ok(Self { reader, writer, calls, named, others, stream, most, line, buffer })
    }

    /// For a program to write into.
    pub(crate) fn writer(&self) -> io::Result<PipeWriter> {
        self.writer.try_clone()
    }

    /// The end of what was printed for a call; or of what is of none.
    pub(crate) fn last(&self, turn: Turn) -> String {
        let printed = self.calls.get(&turn).unwrap_or(&self.others);
        String::from_utf8_lossy(&printed.last).into_owned()
    }

    /// The program starts anew: what was printed before is not why it does not.
    pub(crate) fn starts(&mut self) {
        self.others.last.clear();
    }

    /// The program is loaded. What it prints from now on is of no call.
    pub(crate) fn loaded(&mut self) {
        self.others = Printed::new(BETWEEN_CALLS.min(self.most));
    }

    /// A call begins.
    pub(crate) fn begin(&mut self, turn: Turn, request_id: &str) {
        if self.calls.is_empty() {
            self.others = Printed::new(self.most);
        }
        self.calls.insert(turn, Printed::new(self.most));
        // Clients choose ids.
        if request_id.len() >= ID_MIN && request_id.bytes().any(|byte| byte.is_ascii_digit()) {
            self.named.entry(request_id.to_owned()).or_insert(turn);
        }
    }

    /// A call ends: what is printed from now on is none of its.
    pub(crate) fn end(&mut self, turn: Turn, channel: &mut Channel) -> io::Result<()> {
        self.pass(channel)?;
        self.calls.remove(&turn);
        self.named.retain(|_, named| *named != turn);
        // Whose the rest of it is can be told without it.
        if self.calls.len() < 2 {
            let line = std::mem::take(&mut self.line);
            self.share_out(&line, channel)?;
        }
        if self.calls.is_empty() {
            self.loaded();
        }
        // Where some call always runs, there would never be more.
        self.others.left = self.others.left.max(BETWEEN_CALLS.min(self.most));
        Ok(())
    }

    /// Passes on what is there, without waiting.
    pub(crate) fn pass(&mut self, channel: &mut Channel) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let passed = self.pass_with(&mut buffer, channel);
        self.buffer = buffer;
        passed
    }

    fn pass_with(&mut self, buffer: &mut [u8], channel: &mut Channel) -> io::Result<()> {
        // All that a pipe holds; who goes on printing keeps nobody else waiting.
        for _ in 0..PIECES {
            match self.reader.read(buffer) {
                Ok(len) => self.share_out(&buffer[..len], channel)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends what was printed for the call that runs alone, or else for those that its lines name.
    fn share_out(&mut self, bytes: &[u8], channel: &mut Channel) -> io::Result<()> {
        if self.calls.len() < 2 {
            let turn = self.calls.keys().next().copied().unwrap_or(OUTSIDE);
            if !self.line.is_empty() {
                let line = std::mem::take(&mut self.line);
                self.send(turn, &line, channel)?;
            }
            return self.send(turn, bytes, channel);
        }
        self.line.extend(bytes);
        let lines = std::mem::take(&mut self.line);
        let mut end = lines.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        if lines.len() - end > LINE_MAX {
            end = lines.len();
        }
        let (mut from, mut to, mut whose) = (0, 0, None);
        for line in lines[..end].split_inclusive(|&byte| byte == b'\n') {
            let its = self.whose(line);
            if whose.is_some_and(|whose| whose != its) {
                self.send(whose.unwrap_or(OUTSIDE), &lines[from..to], channel)?;
                from = to;
            }
            (whose, to) = (Some(its), to + line.len());
        }
        self.send(whose.unwrap_or(OUTSIDE), &lines[from..to], channel)?;
        self.line.extend(&lines[end..]);
        Ok(())
    }

    /// The call whose id is in a line.
    fn whose(&self, line: &[u8]) -> Turn {
        let is_of_id = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        let words = line.split(|byte| !is_of_id(byte)).filter(|word| word.len() >= ID_MIN);
        let named = |word: &[u8]| {
            let word = std::str::from_utf8(word).ok()?;
            self.named.get(word).or_else(|| self.named.get(word.trim_matches('.'))).copied()
        };
        words.filter_map(named).next().unwrap_or(OUTSIDE)
    }

    /// Sends what a call has printed, as far as its budget goes.
    fn send(&mut self, turn: Turn, bytes: &[u8], channel: &mut Channel) -> io::Result<()> {
        let printed = self.calls.get_mut(&turn).unwrap_or(&mut self.others);
        let from = bytes.len().saturating_sub(TOLD);
        printed.last.extend(&bytes[from..]);
        let over = printed.last.len().saturating_sub(TOLD);
        printed.last.drain(..over);
        for piece in bytes.chunks(PIECE_MAX) {
            if printed.left == 0 {
                return Ok(());
            }
            let room = usize::try_from(printed.left).unwrap_or(usize::MAX).min(piece.len());
            printed.left -= room as u64;
            channel.log(turn, self.stream, &piece[..room])?;
            if printed.left == 0 {
                let note = format!("\n[output over {} bytes was dropped]\n", printed.most);
                channel.log(turn, STANDARD_ERROR, note.as_bytes())?;
            }
        }
        Ok(())
    }
}
