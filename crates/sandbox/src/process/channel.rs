// SPDX-License-Identifier: Apache-2.0
//! The wire between the node and one instance, and the distrust on it.
//!
//! A stream socketpair whose other end is descriptor 3 of the instance. All
//! that goes over it is frames, integers little-endian:
//!
//! ```text
//!  0        4      5
//!  ├ length ┼ kind ┼ payload of that length
//!
//!  1 hello       ←  "SNWP", version u16, pid u32       the first frame
//!  2 load        →  result max u64, log max u64, name length u16, name, source
//!  3 loaded      ←                                      or 6 raised
//!  4 call        →  count u32, that many lengths u32, the arguments
//!  5 result      ←  the bytes                           or 6, or 7
//!  6 raised      ←  type, message, traceback: each length u32 and UTF-8
//!  7 bad result  ←  why, UTF-8
//!  8 log         ←  stream u8 (1 out, 2 err), the bytes  any time
//!  9 unconfined  ←  why there is no instance, UTF-8     instead of 1
//! ```
//!
//! The function runs in the process at the other end and can write to the
//! descriptor itself. So every length is checked against what its kind may
//! have before anything is allocated, memory grows with what has arrived and
//! not with what was announced, each wait ends at the caller's deadline, and
//! a frame out of turn is a [`Broken::Lie`], after which the instance dies.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Of this wire; the template says the same number.
pub(crate) const VERSION: u16 = 2;
/// Bytes of each of the texts of an exception.
pub(crate) const TEXT_LEN_MAX: usize = 4096;
/// The longest source of a function.
pub(crate) const SOURCE_LEN_MAX: usize = 16 << 20;
/// What an instance may log beside a call's budget: the note that something
/// was dropped, and what threads wrote between two calls.
const LOG_SLACK_BYTES: u64 = 64 << 10;
/// What is kept of what a function printed while it was loaded.
const LOAD_LOG_KEPT: usize = 16 << 10;
const LOG_PIECE_MAX: usize = (32 << 10) + 1;
/// What is read at once of a frame whose length is only a promise.
const READ_PIECE: usize = 1 << 20;

const HEADER_LEN: usize = 5;
const HELLO_LEN: usize = 10;
const HELLO: u8 = 1;
const LOAD: u8 = 2;
const LOADED: u8 = 3;
const CALL: u8 = 4;
const RESULT: u8 = 5;
const RAISED: u8 = 6;
const BAD_RESULT: u8 = 7;
const LOG: u8 = 8;
const UNCONFINED: u8 = 9;

/// Why nothing more can be done with an instance.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The other end is closed.
    Closed,
    /// The deadline passed.
    Late,
    /// What came is not what the protocol allows.
    Lie(&'static str),
    /// The process could not become an instance.
    Unconfined(String),
}

/// An exception of the function, as it described itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Raised {
    pub(crate) kind: String,
    pub(crate) message: String,
    pub(crate) traceback: String,
}

/// What an instance says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Hello { version: u16 },
    Loaded,
    Result(Vec<u8>),
    Raised(Raised),
    BadResult(String),
    Log { error: bool, bytes: Vec<u8> },
    Unconfined(String),
}

/// How much of each kind is let in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Of a result.
    pub(crate) result_bytes_max: u64,
    /// Of what one call logs.
    pub(crate) log_bytes_max: u64,
}

/// The node's end.
pub(crate) struct Channel {
    stream: UnixStream,
    bounds: Bounds,
    /// What was logged and not taken: by the call that runs, and before it since
    /// the last one.
    log: Vec<u8>,
}

impl Channel {
    pub(crate) fn new(stream: UnixStream, bounds: Bounds) -> Self {
        Self { stream, bounds, log: Vec::new() }
    }

    /// Waits for the first frame.
    pub(crate) fn greet(&mut self, deadline: Instant) -> Result<(), Broken> {
        match self.answer(deadline)? {
            Frame::Hello { version: VERSION } => Ok(()),
            Frame::Unconfined(why) => Err(Broken::Unconfined(why)),
            Frame::Hello { .. } => Err(Broken::Lie("a hello of another version")),
            _ => Err(Broken::Lie("no hello")),
        }
    }

    /// Has a function loaded.
    pub(crate) fn load(
        &mut self,
        name: &str,
        source: &[u8],
        deadline: Instant,
    ) -> Result<Result<(), Raised>, Broken> {
        let mut head = Vec::with_capacity(64);
        head.extend(self.bounds.result_bytes_max.to_le_bytes());
        head.extend(self.bounds.log_bytes_max.to_le_bytes());
        head.extend((name.len() as u16).to_le_bytes());
        head.extend(name.as_bytes());
        self.send(LOAD, &[&head, source], deadline)?;
        let answer = self.answer(deadline)?;
        // Loading has a budget of its own; the first call tells its end.
        let excess = self.log.len().saturating_sub(LOAD_LOG_KEPT);
        self.log.drain(..excess);
        match answer {
            Frame::Loaded => Ok(Ok(())),
            Frame::Raised(raised) => Ok(Err(raised)),
            _ => Err(Broken::Lie("an answer that is none to loading")),
        }
    }

    /// Calls the function and gives what it answers: a result, an exception
    /// or a bad result.
    pub(crate) fn call(&mut self, arguments: &[&[u8]], deadline: Instant) -> Result<Frame, Broken> {
        let mut head = Vec::with_capacity(4 + 4 * arguments.len());
        head.extend((arguments.len() as u32).to_le_bytes());
        for argument in arguments {
            head.extend((argument.len() as u32).to_le_bytes());
        }
        let mut parts = Vec::with_capacity(1 + arguments.len());
        parts.push(head.as_slice());
        parts.extend(arguments);
        self.send(CALL, &parts, deadline)?;
        match self.answer(deadline)? {
            answer @ (Frame::Result(_) | Frame::Raised(_) | Frame::BadResult(_)) => Ok(answer),
            _ => Err(Broken::Lie("an answer that is none to a call")),
        }
    }

    /// What was logged since it was last taken, both streams as they came.
    pub(crate) fn take_log(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.log)
    }

    /// What was logged and not taken.
    pub(crate) fn log(&self) -> &[u8] {
        &self.log
    }

    /// The next frame that is no log line.
    fn answer(&mut self, deadline: Instant) -> Result<Frame, Broken> {
        loop {
            let mut header = [0; HEADER_LEN];
            self.fill(&mut header, deadline)?;
            let (kind, len) = checked_header(header, self.bounds)?;
            let mut payload = Vec::with_capacity(len.min(READ_PIECE));
            while payload.len() < len {
                let have = payload.len();
                payload.resize(len.min(have + READ_PIECE), 0);
                self.fill(&mut payload[have..], deadline)?;
            }
            match decode(kind, payload)? {
                Frame::Log { bytes, .. } => {
                    let most = self.bounds.log_bytes_max.saturating_add(LOG_SLACK_BYTES);
                    if (self.log.len() + bytes.len()) as u64 > most {
                        return Err(Broken::Lie("more log than it is allowed to send"));
                    }
                    self.log.extend(bytes);
                }
                frame => return Ok(frame),
            }
        }
    }

    fn fill(&mut self, mut buffer: &mut [u8], deadline: Instant) -> Result<(), Broken> {
        while !buffer.is_empty() {
            self.stream.set_read_timeout(Some(remaining(deadline)?)).map_err(|_| Broken::Closed)?;
            match self.stream.read(buffer) {
                Ok(0) => return Err(Broken::Closed),
                Ok(read) => buffer = &mut buffer[read..],
                Err(error) => pass_over(&error)?,
            }
        }
        Ok(())
    }

    fn send(&mut self, kind: u8, parts: &[&[u8]], deadline: Instant) -> Result<(), Broken> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let Ok(len) = u32::try_from(len) else { return Err(Broken::Lie("our own frame is too long")) };
        let mut header = Vec::with_capacity(HEADER_LEN);
        header.extend(len.to_le_bytes());
        header.push(kind);
        for mut bytes in std::iter::once(header.as_slice()).chain(parts.iter().copied()) {
            while !bytes.is_empty() {
                self.stream.set_write_timeout(Some(remaining(deadline)?)).map_err(|_| Broken::Closed)?;
                match self.stream.write(bytes) {
                    Ok(written) => bytes = &bytes[written..],
                    Err(error) => pass_over(&error)?,
                }
            }
        }
        Ok(())
    }
}

/// Time left, at least a millisecond: zero would mean for ever.
fn remaining(deadline: Instant) -> Result<Duration, Broken> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Broken::Late) } else { Ok(left.max(Duration::from_millis(1))) }
}

/// Errors after which it is tried again, until the deadline.
fn pass_over(error: &io::Error) -> Result<(), Broken> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(()),
        _ => Err(Broken::Closed),
    }
}

/// Kind and length of a frame, if a frame of this kind may be so long.
fn checked_header(header: [u8; HEADER_LEN], bounds: Bounds) -> Result<(u8, usize), Broken> {
    let [a, b, c, d, kind] = header;
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    let fits = match kind {
        HELLO => len == HELLO_LEN,
        LOADED => len == 0,
        RESULT => len as u64 <= bounds.result_bytes_max,
        RAISED => len <= 3 * (4 + TEXT_LEN_MAX),
        BAD_RESULT | UNCONFINED => len <= TEXT_LEN_MAX,
        LOG => (1..=LOG_PIECE_MAX).contains(&len),
        _ => return Err(Broken::Lie("a frame of no known kind")),
    };
    if fits { Ok((kind, len)) } else { Err(Broken::Lie("a frame of a length that its kind does not have")) }
}

fn decode(kind: u8, payload: Vec<u8>) -> Result<Frame, Broken> {
    match kind {
        HELLO => match payload.as_slice() {
            [b'S', b'N', b'W', b'P', low, high, ..] => {
                Ok(Frame::Hello { version: u16::from_le_bytes([*low, *high]) })
            }
            _ => Err(Broken::Lie("a hello of something else")),
        },
        LOADED => Ok(Frame::Loaded),
        RESULT => Ok(Frame::Result(payload)),
        RAISED => {
            let mut rest = payload.as_slice();
            let mut text = || {
                let (len, after) = rest.split_first_chunk().ok_or(Broken::Lie("half an exception"))?;
                let len = u32::from_le_bytes(*len) as usize;
                let bytes = after.get(..len).filter(|bytes| bytes.len() <= TEXT_LEN_MAX);
                let bytes = bytes.ok_or(Broken::Lie("half an exception"))?;
                rest = &after[len..];
                Ok(String::from_utf8_lossy(bytes).into_owned())
            };
            Ok(Frame::Raised(Raised { kind: text()?, message: text()?, traceback: text()? }))
        }
        BAD_RESULT => Ok(Frame::BadResult(String::from_utf8_lossy(&payload).into_owned())),
        UNCONFINED => Ok(Frame::Unconfined(String::from_utf8_lossy(&payload).into_owned())),
        LOG => match payload.split_first() {
            Some((stream, bytes)) => Ok(Frame::Log { error: *stream == 2, bytes: bytes.to_vec() }),
            None => Err(Broken::Lie("an empty log line")),
        },
        _ => Err(Broken::Lie("a frame of no known kind")),
    }
}

#[cfg(test)]
mod tests;
