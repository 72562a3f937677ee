// SPDX-License-Identifier: Apache-2.0
//! Which version of HTTP a client speaks that has not said so before: those
//! who know that we speak HTTP/2 begin with a preface that is no request.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use super::Version;

/// RFC 9113, 3.4.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Reads as much as tells the version, and gives the stream back as it was.
///
/// # Errors
/// If the stream ends, or breaks, before that.
pub(super) async fn told<S: AsyncRead + Unpin>(mut stream: S) -> io::Result<(Rewound<S>, Version)> {
    let mut first = [0; PREFACE.len()];
    let mut len = 0;
    loop {
        let read = stream.read(&mut first[len..]).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        len += read;
        let version = match PREFACE.strip_prefix(&first[..len]) {
            Some([]) => Version::Two,
            Some(_) => continue,
            None => Version::One,
        };
        return Ok((Rewound { first, next: 0, len, stream }, version));
    }
}

/// A stream of which the first bytes were read, and can be read again.
#[derive(Debug)]
pub(super) struct Rewound<S> {
    first: [u8; PREFACE.len()],
    next: usize,
    len: usize,
    stream: S,
}

impl<S> Rewound<S> {
    /// Of which nothing was read.
    pub(super) fn new(stream: S) -> Self {
        Self { first: [0; PREFACE.len()], next: 0, len: 0, stream }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.next == self.len {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let end = self.len.min(self.next + buffer.remaining());
        buffer.put_slice(&self.first[self.next..end]);
        self.next = end;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    async fn of(pieces: &[&[u8]]) -> (Version, Vec<u8>) {
        let mut joined: Box<dyn AsyncRead + Unpin> = Box::new(tokio::io::empty());
        for piece in pieces {
            joined = Box::new(joined.chain(*piece));
        }
        let (mut stream, version) = told(joined).await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        (version, all)
    }

    #[tokio::test]
    async fn the_first_bytes_tell_and_are_read_again() {
        let whole = [&PREFACE[..], b"frames"].concat();
        for cut in 1..PREFACE.len() {
            let (version, all) = of(&[&whole[..cut], &whole[cut..]]).await;
            assert_eq!((version, &all[..]), (Version::Two, &whole[..]), "cut at {cut}");
        }
        for request in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nXX", b"P", b"\n"] {
            let request = [request, b" and more"].concat();
            assert_eq!(of(&[&request]).await, (Version::One, request));
        }
        assert!(told(&b"PRI * HT"[..]).await.is_err() && told(&b""[..]).await.is_err());
    }
}
