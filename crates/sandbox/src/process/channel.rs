// SPDX-License-Identifier: Apache-2.0
//! The wire between the node and one instance, and the distrust on it.
//!
//! A stream socketpair whose other end is descriptor 3 of the instance. All
//! that goes over it is frames, integers little-endian:
//!
//! ```text
//!  0        4      5      9
//!  ├ length ┼ kind ┼ turn ┼ payload of that length
//!
//!  1 hello       ←  "SNWP", version u16, pid u32       the first frame
//!  2 load        →  result max u64, log max u64, calls at once u16,
//!                   name length u16, name, source
//!  3 loaded      ←                                      or 6 raised
//!  4 call        →  count u32, that many lengths u32, the arguments
//!  5 result      ←  the bytes                           or 6, or 7
//!  6 raised      ←  type, message, traceback: each length u32 and UTF-8
//!  7 bad result  ←  why, UTF-8
//!  8 log         ←  stream u8 (1 out, 2 err), the bytes  any time
//!  9 unconfined  ←  why there is no instance, UTF-8     instead of 1
//! 10 ask         ←  id u32, name length u16, name, type length u16, type,
//!                   body: a call of another function, during a call
//! 11 told        →  id u32, status u16, type length u16, type, body
//! 12 piece       ←  the next bytes of the result, at least one; the first piece
//!                   has the result's head whole. An empty 5 ends the result
//! 13 room        →  bytes u32 of pieces that may come besides
//! 14 left        →  nothing: nobody waits for the result any more
//! 15 body        →  the next bytes of the call's body; none: that was all
//! 16 body lost   →  nothing: no more of the body will come, though that was not all
//! 17 wants       ←  bytes u32 of the body that were taken: as many more may come
//! 18 serve       →  timeout in ms u64, version u64, length u16 of each of both
//!                   names, the function's own name and the caller's; with the
//!                   descriptors to read from, to write to and of the bell: a call
//!                   whose requests come over a line
//! 19 line        →  id u32, name: a line to the function of this name; with
//!                   the same descriptors
//! 20 served      ←  reports of requests that came over the call's line
//! 21 serving     ←  what the request was told that is being served there; nothing: it
//!                   is over, and what it asked for is not wanted any more
//! 22 waited      ←  µs u64 in which the call waited for answers on lines
//! 23 ask again   ←  id u32 of a line, and an ask that was begun on it
//! 24 dropped     ←  id u32 of a line: the call of this turn does not wait for what is
//!                   under way on it
//! 25 outbox      ←  length u64 of the result, which is in the call's outbox
//! 26 mapped      ←  the same for one that others map where it is
//! 27 leaving     ←  nothing: the instance ends, and has begun no call that it has not
//!                   answered; those that it was sent are begun in another one
//! 28 phases      ←  µs u64 of taking the arguments, of the function, and of giving the
//!                   result; of each type that was pickled: count u32, length u8, name
//! 29 turns       →  nothing: with the descriptor of the word in which both say which
//!                   turns have begun, and which are recalled (`xpu::turns`). From now on a
//!                   call is begun there first; one that was recalled is dropped
//! 30 keeps       ←  nothing: the outbox of the call of this turn is as it was. The next call
//!                   may have it without its being sent, if no other one was under way
//! 31 said        ←  nothing: it has said where it is, as the signal had asked
//! 32 within      →  instead of 11: id u32, number u32, version u64, timeout in ms u64, name
//!                   length u16, name, handler: the function is called within the instance
//! 33 within over →  nothing: what 32 said holds no longer
//! 34 ask within  ←  an ask by a function that was called so, or of one whose call has ended
//! 35 served within ← number u32 of 32, and reports of calls of it
//! 36 alone       ←  nothing: what was sent to follow the call of this turn is not begun
//! 37 prints      →  nothing: with the descriptor for standard output and error, where what
//!                   is written past the language's own streams is read from
//! ```
//!
//! Of 34 and 35 more is said in `within.rs`, and in `followers.rs` of what follows a call.
//!
//! Lines, and what a report is, are described in `docs/spec/lines.md`.
//!
//! A *turn* names a call from its beginning to its answer. Turns are given out
//! by the node, never twice; turn 0 is whatever happens outside of calls. The
//! id of an ask is the instance's choice, and may come again after its answer.
//!
//! At first a call may send pieces of [`STREAM_WINDOW`] bytes, and then as many
//! more as the node says. So a slow reader slows the function down, and fills no
//! memory of the node. The body of a request may come in the same way, of a call whose
//! head says `"body": "stream"` and whose third argument is empty.
//!
//! The function runs in the process at the other end and can write to the
//! descriptor itself. So every length is checked against what its kind may
//! have before anything is allocated, memory grows with what has arrived and
//! not with what was announced, each wait ends at the caller's deadline, and
//! a frame out of turn is a [`Broken::Lie`], after which the instance dies.
//!
//! Nothing here blocks but [`Channel::answer`], which waits by `poll`: what
//! arrives is taken with one system call for many frames, and what cannot be
//! written at once is kept until the other end has read.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use adapter::frame::{
    ASK_BODY_MAX, ASK_NAME_MAX, ASK_TYPE_MAX, BODY, BODY_LOST, CALL, LEFT, LINE, LOAD, OVERDUE, PRINTS, ROOM,
    SERVE, TOLD, TURNS, VERSION, WITHIN, WITHIN_OVER,
};
pub(crate) use adapter::frame::{AskId, OUTSIDE, STREAM_WINDOW, Turn};
use linux::Spool;
use rmmap::Lease;

use super::target::Target;
use super::within::{self, AskWithin};
use crate::line::{Line, LineReport, LineTerms};
use crate::nested::{NestedAnswer, NestedCall};
use crate::printed::Printed;
use crate::spent::Phases;
use crate::within::Within;
use decode::Head;
pub(super) use decode::{asked, raised};

mod decode;

/// The longest source of a function.
pub(crate) const SOURCE_LEN_MAX: usize = 16 << 20;
/// What an instance may log beside a call's budget: the note that something
/// was dropped, and what threads wrote between two calls.
const LOG_SLACK_BYTES: u64 = 64 << 10;
/// What is kept of what a function printed while it was loaded.
const LOAD_LOG_KEPT: usize = 16 << 10;
/// How often what is printed past the streams is looked at while a function is loaded.
const LOOKS_EVERY: Duration = Duration::from_millis(10);
const LOG_PIECE_MAX: usize = (32 << 10) + 1;
/// What is read at once of a frame whose length is only a promise.
const READ_PIECE: usize = 1 << 20;
/// What is taken of one instance before others are looked after.
const TAKEN_AT_ONCE: usize = 4 << 20;
/// What is read at once while no long frame is under way.
const BUFFER_LEN: usize = 64 << 10;

/// Descriptors of arguments of one call, of which a message takes one more.
const CALL_FDS_MAX: usize = linux::MESSAGE_FDS_MAX - 1;
/// In the place of an argument's length: it is what the next descriptor has.
const IN_DESCRIPTOR: u32 = u32::MAX;
/// In the number of arguments: the last descriptor is where a long result may be put, and behind the lengths is
/// at which address it lies; 0 if that does not matter.
pub(super) const WITH_OUTBOX: u32 = 1 << 31;
/// Besides: it is the one that the instance has kept, and there is no descriptor.
pub(super) const WITH_KEPT: u32 = 1 << 30;
/// Besides: the last argument is what follows the call (`followers.rs`).
const WITH_FOLLOWERS: u32 = 1 << 29;
/// Frames with descriptors that wait to be written.
const ATTACHED_MAX: usize = 4;

const HEADER_LEN: usize = 9;
const HELLO_LEN: usize = 10;
/// Id and the two lengths of an ask.
pub(super) const ASK_HEAD_LEN: usize = 8;
pub(super) const ASK_LEN_MAX: usize = ASK_HEAD_LEN + ASK_NAME_MAX + ASK_TYPE_MAX + ASK_BODY_MAX;

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

/// An argument of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Argument<'a> {
    pub(crate) bytes: &'a [u8],
    /// It need not be sent, but can be handed over.
    pub(crate) descriptor: Option<BorrowedFd<'a>>,
}

impl<'a> Argument<'a> {
    #[cfg(test)]
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, descriptor: None }
    }
}

/// How a call ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Result(Vec<u8>),
    /// A result of so many bytes is in the call's outbox.
    Outbox(u64),
    /// The same, to be mapped at its addresses.
    Mapped(u64),
    Raised(Raised),
    BadResult(String),
}

/// What an instance says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Hello {
        version: u16,
        /// Its process, as it is numbered where it is.
        pid: u32,
    },
    Loaded,
    Leaving,
    Said,
    Answer(Turn, Answer),
    Piece(Turn, Vec<u8>),
    Wants(Turn, u32),
    /// To standard error, if not to standard output.
    Log(Turn, bool, Vec<u8>),
    Ask(Turn, AskId, NestedCall),
    /// The same, of one that was begun on the line of this number.
    AskAgain(Turn, u32, AskId, NestedCall),
    AskWithin(Turn, Box<AskWithin>),
    Served(Turn, Vec<LineReport>),
    /// By the number under which it was told of the function.
    ServedWithin(u32, Vec<LineReport>),
    Serving(Turn, Vec<u8>),
    Waited(Turn, Duration),
    Phases(Turn, Phases),
    Keeps(Turn),
    Alone(Turn),
    /// Of the call of this turn, and the line of this number.
    Dropped(Turn, u32),
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

impl Bounds {
    /// What may come as the log of one call, or between calls.
    pub(crate) fn log_let_in(&self) -> u64 {
        self.log_bytes_max.saturating_add(LOG_SLACK_BYTES)
    }
}

/// The node's end.
pub(crate) struct Channel {
    stream: UnixStream,
    bounds: Bounds,
    incoming: Incoming,
    /// What waits until it can be written, from `written` on.
    outgoing: Vec<u8>,
    written: usize,
    /// Descriptors that go with it: with the byte at this place of it.
    attached: VecDeque<(usize, Vec<OwnedFd>)>,
    /// What was logged while no call ran, and not taken.
    log: Printed,
    /// Bytes that may still be taken before others are looked after.
    may_take: usize,
}

/// What has arrived and is not yet a frame.
#[derive(Default)]
struct Incoming {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// A frame whose payload has not come whole.
    long: Option<(Head, Vec<u8>)>,
    /// The last read got all that there was.
    is_drained: bool,
}

impl Channel {
    pub(crate) fn new(stream: UnixStream, bounds: Bounds) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (incoming, outgoing, log) = (Incoming::default(), Vec::new(), Printed::default());
        let attached = VecDeque::new();
        Ok(Self { stream, bounds, incoming, outgoing, written: 0, attached, log, may_take: TAKEN_AT_ONCE })
    }

    /// The descriptor, to be watched.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Waits for the first frame, and returns the number of the process.
    pub(crate) fn greet(&mut self, deadline: Instant) -> Result<u32, Broken> {
        match self.answer(deadline)? {
            Frame::Hello { version: VERSION, pid } => Ok(pid),
            Frame::Unconfined(why) => Err(Broken::Unconfined(why)),
            Frame::Hello { .. } => Err(Broken::Lie("a hello of another version")),
            _ => Err(Broken::Lie("no hello")),
        }
    }

    /// Has a function loaded, which may be called so many times at once.
    pub(crate) fn load(
        &mut self,
        name: &str,
        source: &[u8],
        calls_at_once: u16,
        spool: Option<&mut Spool>,
        deadline: Instant,
    ) -> Result<Result<(), Raised>, Broken> {
        let mut head = Vec::with_capacity(64);
        head.extend(self.bounds.result_bytes_max.to_le_bytes());
        head.extend(self.bounds.log_bytes_max.to_le_bytes());
        head.extend(calls_at_once.to_le_bytes());
        head.extend((name.len() as u16).to_le_bytes());
        head.extend(name.as_bytes());
        self.queue(LOAD, OUTSIDE, &[&head, source])?;
        self.flush()?;
        let answer = self.answer_beside(spool, deadline);
        // Loading has a budget of its own.
        self.log = self.log.end(LOAD_LOG_KEPT);
        let answer = answer?;
        match answer {
            Frame::Loaded => Ok(Ok(())),
            Frame::Answer(OUTSIDE, Answer::Raised(raised)) => Ok(Err(raised)),
            _ => Err(Broken::Lie("an answer that is none to loading")),
        }
    }

    /// Queues a call; [`Channel::flush`] sends it. With followers, the last argument is these.
    pub(crate) fn call(
        &mut self,
        turn: Turn,
        arguments: &[Argument<'_>],
        target: Option<&Target>,
        has_followers: bool,
    ) -> Result<(), Broken> {
        // Requests have three; a step of a workflow may be given the results of thousands.
        let (mut few, mut many) = ([0; 64], Vec::new());
        let head_len = 4 + 4 * arguments.len() + if target.is_some() { 8 } else { 0 };
        let head = match few.get_mut(..head_len) {
            Some(head) => head,
            None => {
                many.resize(head_len, 0);
                many.as_mut_slice()
            }
        };
        let mut descriptors = Vec::new();
        let mut parts: Vec<&[u8]> = Vec::with_capacity(1 + arguments.len());
        parts.push(&[]);
        let mut words = Vec::with_capacity(1 + arguments.len());
        let followers = if has_followers { WITH_FOLLOWERS } else { 0 };
        words.push(arguments.len() as u32 | followers | target.map_or(0, Target::flags));
        for argument in arguments {
            match argument.descriptor {
                Some(descriptor) if descriptors.len() < CALL_FDS_MAX => {
                    descriptors.push(descriptor);
                    words.push(IN_DESCRIPTOR);
                }
                _ => {
                    parts.push(argument.bytes);
                    words.push(argument.bytes.len() as u32);
                }
            }
        }
        if let Some(target) = target {
            if !target.is_kept {
                descriptors.push(target.outbox.fd());
            }
            let base = target.lease.as_ref().map_or(0, Lease::begin);
            words.extend([base as u32, (base >> 32) as u32]);
        }
        for (at, word) in head.chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        parts[0] = head;
        if descriptors.is_empty() {
            return self.queue(CALL, turn, &parts);
        }
        let owned = descriptors.iter().map(BorrowedFd::try_clone_to_owned);
        let owned = owned.collect::<io::Result<Vec<_>>>();
        let owned = owned.map_err(|_| Broken::Lie("there are no descriptors left for a call"))?;
        self.queue_with(CALL, turn, &parts, owned)
    }

    /// Queues the answer to an ask; [`Channel::flush`] sends it.
    pub(crate) fn tell(&mut self, turn: Turn, id: AskId, answer: NestedAnswer<'_>) -> Result<(), Broken> {
        let NestedAnswer { status, content_type, body } = answer;
        let content_type = &content_type.as_bytes()[..content_type.floor_char_boundary(ASK_TYPE_MAX)];
        let mut head = Vec::with_capacity(8 + content_type.len());
        head.extend(id.to_le_bytes());
        head.extend(status.to_le_bytes());
        head.extend((content_type.len() as u16).to_le_bytes());
        head.extend(content_type);
        self.queue(TOLD, turn, &[&head, body])
    }

    /// Queues that a function is to be called within the instance that asks for it; [`Channel::flush`] sends it.
    pub(crate) fn within(
        &mut self,
        turn: Turn,
        id: AskId,
        number: u32,
        within: &Within,
    ) -> Result<(), Broken> {
        self.queue(WITHIN, turn, &[&within::told(id, number, within)])
    }

    /// Queues that this holds no longer, of all functions; [`Channel::flush`] sends it.
    pub(crate) fn within_over(&mut self) -> Result<(), Broken> {
        self.queue(WITHIN_OVER, OUTSIDE, &[])
    }

    /// Queues that so many more bytes of a result may come; [`Channel::flush`]
    /// sends it.
    pub(crate) fn room(&mut self, turn: Turn, bytes: u32) -> Result<(), Broken> {
        self.queue(ROOM, turn, &[&bytes.to_le_bytes()])
    }

    /// Queues that nobody waits for a result; [`Channel::flush`] sends it.
    pub(crate) fn left(&mut self, turn: Turn) -> Result<(), Broken> {
        self.queue(LEFT, turn, &[])
    }

    /// Queues the same of a call that is to be ended; [`Channel::flush`] sends it.
    pub(crate) fn overdue(&mut self, turn: Turn) -> Result<(), Broken> {
        self.queue(LEFT, turn, &[&[OVERDUE]])
    }

    /// Queues the next bytes of a call's body, at least one; [`Channel::flush`] sends it.
    pub(crate) fn body(&mut self, turn: Turn, bytes: &[u8]) -> Result<(), Broken> {
        self.queue(BODY, turn, &[bytes])
    }

    /// Queues that a body has ended, as it should or not; [`Channel::flush`] sends it.
    pub(crate) fn end_body(&mut self, turn: Turn, is_whole: bool) -> Result<(), Broken> {
        self.queue(if is_whole { BODY } else { BODY_LOST }, turn, &[])
    }

    /// Queues a call whose requests come over a line; [`Channel::flush`] sends it.
    pub(crate) fn serve(&mut self, turn: Turn, line: &Line) -> Result<(), Broken> {
        let fds = line.descriptors(true).map_err(|_| Broken::Closed)?;
        let LineTerms { caller, function, version, timeout } = line.terms();
        let mut head = Vec::with_capacity(20 + function.len() + caller.len());
        head.extend((timeout.as_millis() as u64).to_le_bytes());
        head.extend(version.to_le_bytes());
        head.extend((function.len() as u16).to_le_bytes());
        head.extend((caller.len() as u16).to_le_bytes());
        head.extend(function.as_bytes());
        head.extend(caller.as_bytes());
        self.queue_with(SERVE, turn, &[&head], fds)
    }

    /// Queues that there is a line to a function; [`Channel::flush`] sends it. Whoever does not read
    /// is given no more descriptors than a few.
    pub(crate) fn line(&mut self, line: &Line) -> Result<(), Broken> {
        if self.attached.len() >= ATTACHED_MAX {
            return Err(Broken::Closed);
        }
        let fds = line.descriptors(false).map_err(|_| Broken::Closed)?;
        let (id, name) = (line.id().to_le_bytes(), line.terms().function.as_bytes());
        self.queue_with(LINE, OUTSIDE, &[&id, name], fds)
    }

    /// Queues the word by which calls in line are recalled; [`Channel::flush`] sends it.
    pub(crate) fn turns(&mut self, word: OwnedFd) -> Result<(), Broken> {
        self.queue_with(TURNS, OUTSIDE, &[], vec![word])
    }

    /// Queues where standard output and error go; [`Channel::flush`] sends it.
    pub(crate) fn prints(&mut self, spool: OwnedFd) -> Result<(), Broken> {
        self.queue_with(PRINTS, OUTSIDE, &[], vec![spool])
    }

    /// What was logged while no call ran.
    pub(crate) fn take_log(&mut self) -> Printed {
        std::mem::take(&mut self.log)
    }

    /// Keeps what was logged while no call runs, for the next one: a little, so
    /// that nobody is kept busy by reading it.
    pub(crate) fn keep_idle_log(&mut self, is_error: bool, bytes: &[u8]) -> Result<(), Broken> {
        self.keep_log(is_error, bytes, LOG_SLACK_BYTES)
    }

    /// The same of what was taken from here and is no call's now; what is too much is lost.
    pub(crate) fn keep_idle_logs(&mut self, printed: &Printed) {
        if (self.log.len() + printed.len()) as u64 <= LOG_SLACK_BYTES {
            self.log.append(printed);
        }
    }

    fn keep_log(&mut self, is_error: bool, bytes: &[u8], most: u64) -> Result<(), Broken> {
        if (self.log.len() + bytes.len()) as u64 > most {
            return Err(Broken::Lie("more log than it is allowed to send"));
        }
        self.log.add(is_error, bytes, Instant::now());
        Ok(())
    }

    /// The same, left where it is.
    pub(crate) fn log(&self) -> &Printed {
        &self.log
    }

    /// Waits for the next frame that is no log line.
    fn answer(&mut self, deadline: Instant) -> Result<Frame, Broken> {
        self.answer_beside(None, deadline)
    }

    /// The same, and takes what is printed past the language's streams meanwhile: whoever prints much waits for that.
    fn answer_beside(&mut self, mut spool: Option<&mut Spool>, deadline: Instant) -> Result<Frame, Broken> {
        loop {
            if let Some(taken) = spool.as_mut().and_then(|spool| spool.take().ok())
                && !taken.is_empty()
            {
                self.log.add(true, &taken, Instant::now());
                self.log = self.log.end(LOAD_LOG_KEPT);
            }
            match self.read()? {
                Some(Frame::Log(_, is_error, bytes)) => {
                    self.keep_log(is_error, &bytes, self.bounds.log_let_in())?;
                }
                Some(frame) => return Ok(frame),
                None if spool.is_some() => {
                    let soon = Instant::now() + LOOKS_EVERY;
                    match self.wait(deadline.min(soon)) {
                        Err(Broken::Late) if soon < deadline => {}
                        waited => waited?,
                    }
                }
                None => self.wait(deadline)?,
            }
        }
    }

    /// Waits until something can be read, or written if something waits.
    pub(crate) fn wait(&mut self, deadline: Instant) -> Result<(), Broken> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Broken::Late);
        }
        let is_writing = !self.flush()?;
        linux::wait_ready(&self.stream, is_writing, left).map_err(|_| Broken::Closed)?;
        self.may_read();
        Ok(())
    }

    /// Something may have come since [`Channel::read`] found nothing.
    pub(crate) fn may_read(&mut self) {
        self.incoming.is_drained = false;
        self.may_take = TAKEN_AT_ONCE;
    }

    /// More may be there than [`Channel::read`] has taken: others come first.
    pub(crate) fn has_more(&self) -> bool {
        !self.incoming.is_drained && self.may_take == 0
    }

    /// The next frame, if one has come whole and not too much was taken.
    pub(crate) fn read(&mut self) -> Result<Option<Frame>, Broken> {
        loop {
            if let Some((head, payload)) = self.incoming.next(self.bounds)? {
                return head.decode(payload).map(Some);
            }
            if self.incoming.is_drained || self.may_take == 0 || !self.receive()? {
                return Ok(None);
            }
        }
    }

    /// Takes what has arrived; false if that is nothing.
    fn receive(&mut self) -> Result<bool, Broken> {
        let space = self.incoming.space();
        let wanted = space.len();
        match self.stream.read(space) {
            Ok(0) => Err(Broken::Closed),
            Ok(read) => {
                self.incoming.took(read, wanted);
                self.may_take = self.may_take.saturating_sub(read);
                Ok(true)
            }
            Err(error) => {
                self.incoming.took(0, wanted);
                match error.kind() {
                    io::ErrorKind::Interrupted => {
                        self.incoming.is_drained = false;
                        Ok(true)
                    }
                    io::ErrorKind::WouldBlock => Ok(false),
                    _ => Err(Broken::Closed),
                }
            }
        }
    }

    /// Queues a frame that descriptors go with.
    fn queue_with(&mut self, kind: u8, turn: Turn, parts: &[&[u8]], fds: Vec<OwnedFd>) -> Result<(), Broken> {
        self.make_space();
        self.attached.push_back((self.outgoing.len(), fds));
        self.queue(kind, turn, parts)
    }

    fn queue(&mut self, kind: u8, turn: Turn, parts: &[&[u8]]) -> Result<(), Broken> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let Ok(len) = u32::try_from(len) else { return Err(Broken::Lie("our own frame is too long")) };
        self.make_space();
        self.outgoing.extend(len.to_le_bytes());
        self.outgoing.push(kind);
        self.outgoing.extend(turn.to_le_bytes());
        parts.iter().for_each(|part| self.outgoing.extend_from_slice(part));
        Ok(())
    }

    /// Who reads on and on, but never all, keeps no more than twice what is unread.
    fn make_space(&mut self) {
        if self.written > self.outgoing.len() / 2 {
            self.outgoing.drain(..self.written);
            self.attached.iter_mut().for_each(|(at, _)| *at -= self.written);
            self.written = 0;
        }
    }

    /// Whether something that is queued could not be written yet.
    pub(crate) fn is_sending(&self) -> bool {
        self.written < self.outgoing.len()
    }

    /// Bytes that are queued and could not be written yet.
    pub(crate) fn unsent_len(&self) -> usize {
        self.outgoing.len() - self.written
    }

    /// Writes what is queued, as far as the other end has room; whether that
    /// was all of it.
    pub(crate) fn flush(&mut self) -> Result<bool, Broken> {
        while self.written < self.outgoing.len() {
            match self.write() {
                Ok(written) => self.written += written,
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => return Ok(false),
                    _ => return Err(Broken::Closed),
                },
            }
        }
        self.written = 0;
        self.attached.clear();
        if self.outgoing.capacity() > BUFFER_LEN {
            self.outgoing = Vec::new();
        } else {
            self.outgoing.clear();
        }
        Ok(true)
    }
}

impl Channel {
    /// Writes what is next: as far as the next descriptors, or with them.
    fn write(&mut self) -> io::Result<usize> {
        let waiting = &self.outgoing[self.written..];
        match self.attached.front() {
            None => self.stream.write(waiting),
            Some((at, _)) if *at > self.written => self.stream.write(&waiting[..*at - self.written]),
            Some((_, fds)) => {
                let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
                let end = self.attached.get(1).map_or(waiting.len(), |(next, _)| *next - self.written);
                let sent = linux::send_part(&self.stream, &waiting[..end], &fds)?;
                self.attached.pop_front();
                Ok(sent)
            }
        }
    }
}

impl Incoming {
    /// Where the next bytes belong.
    fn space(&mut self) -> &mut [u8] {
        if let Some((head, payload)) = &mut self.long {
            let have = payload.len();
            payload.resize(head.len.min(have + READ_PIECE), 0);
            return &mut payload[have..];
        }
        if self.buffer.is_empty() {
            self.buffer = vec![0; BUFFER_LEN];
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        &mut self.buffer[self.end..]
    }

    /// So many bytes came into the space.
    fn took(&mut self, read: usize, wanted: usize) {
        self.is_drained = read < wanted;
        match &mut self.long {
            Some((_, payload)) => payload.truncate(payload.len() - (wanted - read)),
            None => self.end += read,
        }
    }

    /// The next frame that is whole.
    fn next(&mut self, bounds: Bounds) -> Result<Option<(Head, Vec<u8>)>, Broken> {
        if let Some((head, payload)) = &self.long
            && payload.len() < head.len
        {
            return Ok(None);
        }
        if let Some(whole) = self.long.take() {
            return Ok(Some(whole));
        }
        let here = &self.buffer[self.start..self.end];
        let Some((header, rest)) = here.split_first_chunk() else { return Ok(None) };
        let head = Head::checked(*header, bounds)?;
        self.start += HEADER_LEN + head.len.min(rest.len());
        if let Some(payload) = rest.get(..head.len) {
            return Ok(Some((head, payload.to_vec())));
        }
        let mut payload = Vec::with_capacity(head.len.min(READ_PIECE));
        payload.extend_from_slice(rest);
        self.long = Some((head, payload));
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
