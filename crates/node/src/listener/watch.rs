// SPDX-License-Identifier: Apache-2.0
//! What a connection waits for, and since when.
//!
//! Bytes pass through [`Observed`], requests and answers through [`Busy`] and
//! [`Answer`]; each notes in the connection's [`Watch`] what has changed, and
//! whoever serves the connection looks there now and then. So no timer is
//! armed for each byte, and nothing depends on when the HTTP library polls.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::Body;
use hyper::body::{Bytes, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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
}

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Watch(Mutex<State>);

impl Watch {
    /// A client has connected, and ought to send a request.
    pub(super) fn new() -> Self {
        Self(Mutex::new(State { phase: Phase::Head, since: Instant::now(), blocked: None }))
    }

    /// A request's head has arrived. Its answer is under way until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.0.lock().phase = Phase::Busy;
        Busy(Arc::clone(self))
    }

    /// Why the connection has to be cut off, if it has to.
    pub(super) fn overdue(&self, patience: &Patience) -> Option<&'static str> {
        let state = self.0.lock();
        let (since, limit, reason) = match (state.blocked, state.phase) {
            // First of all, because bytes of an earlier answer may still wait
            // when the next request has begun, or none will.
            (Some(since), _) => (since, patience.answer, "answer-not-taken"),
            (None, Phase::Head) => (state.since, patience.head, "head-timeout"),
            (None, Phase::Idle) => (state.since, patience.idle, "idle"),
            (None, Phase::Busy) => return None,
        };
        (since.elapsed() >= limit).then_some(reason)
    }

    fn has_read(&self) {
        let mut state = self.0.lock();
        if state.phase == Phase::Idle {
            state.phase = Phase::Head;
            state.since = Instant::now();
        }
    }

    fn has_written(&self) {
        let mut state = self.0.lock();
        state.blocked = None;
        if state.phase == Phase::Idle {
            state.since = Instant::now();
        }
    }

    fn cannot_write(&self) {
        self.0.lock().blocked.get_or_insert_with(Instant::now);
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Busy(Arc<Watch>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.phase = Phase::Idle;
        state.since = Instant::now();
    }
}

/// An answer's body. The request is answered when it has been handed over.
#[derive(Debug)]
pub(super) struct Answer {
    body: Body,
    _busy: Busy,
}

impl Answer {
    pub(super) fn new(body: Body, busy: Busy) -> Self {
        Self { body, _busy: busy }
    }
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
