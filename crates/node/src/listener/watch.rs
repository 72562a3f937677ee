// SPDX-License-Identifier: Apache-2.0
//! What a connection waits for, and since when.
//!
//! Bytes pass through [`Observed`], requests and answers through [`Busy`] and
//! [`Answer`]; each notes in the connection's [`Watch`] what has changed, and
//! whoever serves the connection looks there now and then. So no timer is
//! armed for each byte.
//!
//! With HTTP/1.1 the bytes of a connection tell whom it waits for. With HTTP/2
//! they do not: a client may take no byte of one answer and send pings all the
//! while. There an answer's body tells it, which is asked for its next piece
//! only when the client has room for it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::Body;
use hyper::body::{Bytes, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::config::Patience;

/// Whom a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The client may send a request, or not.
    Idle,
    /// The client has begun to send a request's head, or has just connected.
    Head,
    /// A request is being answered. Silence is fine then: the client waits
    /// for us, and the gateway watches the request's body.
    Busy,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// When the phase began; while idle, when the last bytes were written.
    since: Instant,
    /// Since when the client has taken none of the bytes that wait for it.
    blocked: Option<Instant>,
    /// Requests on one connection may overlap: HTTP/2.
    is_multiplexed: bool,
    /// Requests under way.
    busy: usize,
    /// Requests so far; the name of the next.
    begun: u64,
    /// Requests that were taken back before they were answered.
    taken_back: u64,
    /// With HTTP/2: answers whose client has to take something, since when.
    untaken: Vec<(u64, Instant)>,
}

/// So many requests a client may take back without a reason; beyond that it
/// has to let half of them be answered.
const TAKEN_BACK_MAX: u64 = 128;

/// With HTTP/2, what the library holds of an answer is what the client has
/// room for, and no more than this.
const PIECE_BYTES: usize = 32 << 10;

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Watch {
    state: Mutex<State>,
    misuse: Notify,
}

impl Watch {
    /// A client has connected, and ought to send a request.
    pub(super) fn new() -> Self {
        let state = State {
            phase: Phase::Head,
            since: Instant::now(),
            blocked: None,
            is_multiplexed: false,
            busy: 0,
            begun: 0,
            taken_back: 0,
            untaken: Vec::new(),
        };
        Self { state: Mutex::new(state), misuse: Notify::new() }
    }

    /// HTTP/2 is spoken from here on.
    pub(super) fn is_multiplexed(&self) {
        let mut state = self.state.lock();
        state.is_multiplexed = true;
        state.phase = Phase::Idle;
        state.since = Instant::now();
    }

    /// A request's head has arrived. Its answer is under way until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        let mut state = self.state.lock();
        state.phase = Phase::Busy;
        state.busy += 1;
        state.begun += 1;
        Busy { watch: Arc::clone(self), number: state.begun, is_answered: false }
    }

    /// Waits until the client has taken back too much of what it asked for:
    /// each time something was begun for it.
    pub(super) async fn misused(&self) {
        self.misuse.notified().await;
    }

    /// Why the connection has to be cut off, if it has to.
    pub(super) fn overdue(&self, patience: &Patience) -> Option<&'static str> {
        let state = self.state.lock();
        let (since, limit, reason) = match (state.blocked, state.phase) {
            // First of all, because bytes of an earlier answer may still wait
            // when the next request has begun, or none will.
            (Some(since), _) => (since, patience.answer, "answer-not-taken"),
            (None, Phase::Head) => (state.since, patience.head, "head-timeout"),
            (None, Phase::Idle) => (state.since, patience.idle, "idle"),
            (None, Phase::Busy) => {
                let (_, since) = state.untaken.iter().min_by_key(|(_, since)| *since)?;
                (*since, patience.answer, "answer-not-taken")
            }
        };
        (since.elapsed() >= limit).then_some(reason)
    }

    fn has_read(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Idle && !state.is_multiplexed {
            state.phase = Phase::Head;
            state.since = Instant::now();
        }
    }

    fn has_written(&self) {
        let mut state = self.state.lock();
        state.blocked = None;
        if state.phase == Phase::Idle && !state.is_multiplexed {
            state.since = Instant::now();
        }
    }

    fn cannot_write(&self) {
        self.state.lock().blocked.get_or_insert_with(Instant::now);
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Busy {
    watch: Arc<Watch>,
    number: u64,
    is_answered: bool,
}

impl Busy {
    /// Whether it is the client's turn, who has to take what there is.
    fn is_clients_turn(&self, is: bool) {
        let mut state = self.watch.state.lock();
        if !state.is_multiplexed {
            return;
        }
        state.untaken.retain(|(number, _)| *number != self.number);
        if is {
            state.untaken.push((self.number, Instant::now()));
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.is_clients_turn(false);
        let mut state = self.watch.state.lock();
        state.taken_back += u64::from(!self.is_answered);
        if state.is_multiplexed && state.taken_back > TAKEN_BACK_MAX && state.taken_back > state.begun / 2 {
            self.watch.misuse.notify_one();
        }
        state.busy -= 1;
        if state.busy == 0 {
            state.phase = Phase::Idle;
            state.since = Instant::now();
        }
    }
}

/// An answer's body. The request is answered when it has been handed over.
#[derive(Debug)]
pub(super) struct Answer {
    body: Body,
    /// What is left of a frame that is given in pieces.
    rest: Bytes,
    is_in_pieces: bool,
    busy: Busy,
}

impl Answer {
    pub(super) fn new(body: Body, mut busy: Busy) -> Self {
        busy.is_answered = true;
        busy.is_clients_turn(true);
        let is_in_pieces = busy.watch.state.lock().is_multiplexed;
        Self { body, rest: Bytes::new(), is_in_pieces, busy }
    }

    /// The next piece of a frame.
    fn piece(&mut self, mut bytes: Bytes) -> Frame<Bytes> {
        if self.is_in_pieces && bytes.len() > PIECE_BYTES {
            self.rest = bytes.split_off(PIECE_BYTES);
        }
        Frame::data(bytes)
    }
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.is_in_pieces {
            return Pin::new(&mut self.body).poll_frame(context);
        }
        let rest = std::mem::take(&mut self.rest);
        let frame = match rest.is_empty() {
            true => Pin::new(&mut self.body).poll_frame(context),
            false => Poll::Ready(Some(Ok(Frame::data(rest)))),
        };
        self.busy.is_clients_turn(frame.is_ready());
        frame.map_ok(|frame| match frame.into_data() {
            Ok(bytes) => self.piece(bytes),
            Err(frame) => frame,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

/// A connection whose bytes are noted in a watch.
#[derive(Debug)]
pub(super) struct Observed<S> {
    stream: S,
    watch: Arc<Watch>,
}

impl<S> Observed<S> {
    pub(super) fn new(stream: S, watch: Arc<Watch>) -> Self {
        Self { stream, watch }
    }

    fn note_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Pending => self.watch.cannot_write(),
            Poll::Ready(Ok(_)) => self.watch.has_written(),
            // The connection ends.
            Poll::Ready(Err(_)) => {}
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Observed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.watch.has_read();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Observed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.note_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
