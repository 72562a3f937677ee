// SPDX-License-Identifier: Apache-2.0
//! A line between two processes: a fifo for requests, and one for answers.
//!
//! Whoever makes a line uses neither end of it. It hands the ends out, sees
//! whether the line is in use, and closes it. What it sees is the word of those
//! who use it: good for deciding how long to wait, and for nothing else.
//!
//! In the first page of the answers stands one word more than a fifo has, at
//! [`SERVING_AT`]: the number of the request that is being served, by whoever
//! serves; 0 while there is none.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use linux::SharedMemory;

use crate::fifo::{self, Error};

/// Where the number of the request stands that is served.
pub const SERVING_AT: usize = 320;

/// A line, as whoever made it has it.
#[derive(Debug)]
pub struct Line {
    requests: SharedMemory,
    answers: SharedMemory,
}

/// The descriptors by which both sides open it.
#[derive(Debug)]
pub struct Ends {
    /// The fifo of requests.
    pub requests: OwnedFd,
    /// The fifo of answers.
    pub answers: OwnedFd,
}

impl Line {
    /// A new line, each of whose fifos takes `capacity` bytes.
    ///
    /// # Errors
    /// As of [`fifo::create`].
    pub fn create(capacity: usize) -> Result<(Self, Ends), Error> {
        let (requests, requests_fd) = fifo::memory(capacity)?;
        let (answers, answers_fd) = fifo::memory(capacity)?;
        Ok((Self { requests, answers }, Ends { requests: requests_fd, answers: answers_fd }))
    }

    /// Takes no more requests. One that is served gets its answer.
    pub fn shut(&self) {
        fifo::close(&self.requests);
    }

    /// Takes and gives nothing more: whoever serves has gone.
    pub fn end(&self) {
        fifo::close(&self.requests);
        fifo::close(&self.answers);
    }

    /// The number of the request that is served; 0 if none is.
    pub fn serving(&self) -> u32 {
        self.answers.word32(SERVING_AT).load(Ordering::Acquire)
    }

    /// Grows with each request.
    pub fn asked(&self) -> u64 {
        fifo::written(&self.requests)
    }

    /// Whether a request waits to be taken.
    pub fn has_more(&self) -> bool {
        fifo::has_more(&self.requests)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::{Duration, Instant};

    use super::*;
    use crate::fifo::{Reader, Writer};

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn what_is_served_when_a_line_is_shut_gets_its_answer() {
        let (line, ends) = Line::create(4096).unwrap();
        let mut asks = Writer::open(&ends.requests).unwrap();
        let mut hears = Reader::open(&ends.answers).unwrap();
        let mut takes = Reader::open(&ends.requests).unwrap();
        let mut answers = Writer::open(&ends.answers).unwrap();
        let mut message = Vec::new();
        assert!(!line.has_more() && line.serving() == 0);
        asks.send(b"question", soon()).unwrap();
        assert!(line.has_more());
        takes.receive(&mut message, soon()).unwrap();
        assert!(!line.has_more() && message == b"question");
        line.shut();
        assert!(matches!(asks.send(b"another", soon()), Err(Error::Closed)));
        assert!(matches!(takes.receive(&mut message, soon()), Err(Error::Closed)));
        answers.send(b"answer", soon()).unwrap();
        line.end();
        hears.receive(&mut message, soon()).unwrap();
        assert_eq!(message, b"answer", "what was written before it was closed counts");
        assert!(matches!(hears.receive(&mut message, soon()), Err(Error::Closed)));
    }
}
