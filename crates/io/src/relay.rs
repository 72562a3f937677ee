// SPDX-License-Identifier: Apache-2.0
//! Passing bytes both ways between two connections, within limits.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// How often it is looked whether the limits hold.
const LOOK: Duration = Duration::from_millis(500);

/// Limits of one connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Without a byte either way it ends.
    pub(crate) idle: Duration,
    /// Both ways together.
    pub(crate) bytes_max: u64,
}

/// A stream of which is counted what is read: of this connection, and of all.
struct Counted<'a> {
    stream: TcpStream,
    here: &'a AtomicU64,
    all: &'a AtomicU64,
}

impl AsyncRead for Counted<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let read = (buffer.filled().len() - before) as u64;
        self.here.fetch_add(read, Ordering::Relaxed);
        self.all.fetch_add(read, Ordering::Relaxed);
        polled
    }
}

impl AsyncWrite for Counted<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Passes bytes until both sides have ended, or a limit is reached. `sent` and
/// `received` grow by what comes from `inside`, and from `outside`.
pub(crate) async fn relay(
    inside: TcpStream,
    outside: TcpStream,
    limits: Limits,
    sent: &AtomicU64,
    received: &AtomicU64,
) {
    let here = AtomicU64::new(0);
    let mut inside = Counted { stream: inside, here: &here, all: sent };
    let mut outside = Counted { stream: outside, here: &here, all: received };
    tokio::select! {
        // However a side ended, the other one sees its connection close.
        _ = copy_bidirectional(&mut inside, &mut outside) => {}
        () = watch(&here, limits) => {}
    }
}

/// Returns when a limit is reached.
async fn watch(passed: &AtomicU64, limits: Limits) {
    let (mut before, mut since) = (0, Instant::now());
    loop {
        tokio::time::sleep(LOOK.min(limits.idle)).await;
        let now = passed.load(Ordering::Relaxed);
        if now != before {
            (before, since) = (now, Instant::now());
        }
        if since.elapsed() >= limits.idle || now > limits.bytes_max {
            return;
        }
    }
}
