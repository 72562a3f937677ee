// SPDX-License-Identifier: Apache-2.0
//! A line between two processes: a fifo for requests, and one for answers.
//!
//! Whoever makes a line uses neither end of it. It hands the ends out, sees
//! whether the line is in use, and closes it. What it sees is the word of those
//! who use it: good for deciding how long to wait, and for nothing else.
//!
//! In the first page of the answers stands one word more than a fifo has, at
//! [`SERVING_AT`]: which request is being served, counted by whoever
//! serves; 0 while there is none.
//!
//! Who waits in an event loop cannot sleep by a futex. Each side has one end of a
//! connection for it, its *bell*: who finds that the other one sleeps by it ([`BY_BELL`] in the
//! word that says so) sends a byte there. A bell says only that there may be something.
//! It is no event descriptor, for to write to one can be made to wait by whoever
//! else has it.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use linux::SharedMemory;

use crate::fifo::{self, Error};

/// Where it stands which request is served.
pub const SERVING_AT: usize = 320;
/// Who reads sleeps until its bell rings, and not by the futex.
pub const BY_BELL: u32 = 2;

/// A line, as whoever made it has it.
#[derive(Debug)]
pub struct Line {
    requests: SharedMemory,
    answers: SharedMemory,
    /// Of who calls and of who serves, until the line has ended.
    bells: Mutex<Option<[OwnedFd; 2]>>,
}

/// The descriptors by which both sides open it.
#[derive(Debug)]
pub struct Ends {
    /// The fifo of requests.
    pub requests: OwnedFd,
    /// The fifo of answers.
    pub answers: OwnedFd,
    /// The bell of who calls.
    pub caller: OwnedFd,
    /// The bell of who serves.
    pub callee: OwnedFd,
}

impl Line {
    /// A new line, each of whose fifos takes `capacity` bytes.
    ///
    /// # Errors
    /// As of [`fifo::create`].
    pub fn create(capacity: usize) -> Result<(Self, Ends), Error> {
        let (caller, callee) = linux::message_pair()?;
        for bell in [&caller, &callee] {
            // Kernels before 6.16 cannot. There a function can hold up those that call it
            // or that it calls, by a descriptor that takes long to close, and nobody else.
            _ = linux::refuse_descriptors(bell);
        }
        let (requests, requests_fd) = fifo::memory(capacity)?;
        let (answers, answers_fd) = fifo::memory(capacity)?;
        let bells = Mutex::new(Some([caller.try_clone()?, callee.try_clone()?]));
        let ends = Ends { requests: requests_fd, answers: answers_fd, caller, callee };
        Ok((Self { requests, answers, bells }, ends))
    }

    /// Takes no more requests. One that is served gets its answer.
    pub fn shut(&self) {
        fifo::close(&self.requests);
        self.ring(|bells| bells.as_ref().into_iter().flatten().for_each(linux::ring));
    }

    /// Takes and gives nothing more: whoever serves has gone.
    pub fn end(&self) {
        fifo::close(&self.requests);
        fifo::close(&self.answers);
        self.ring(|bells| bells.take().iter().flatten().for_each(linux::ring));
    }

    fn ring(&self, how: impl FnOnce(&mut Option<[OwnedFd; 2]>)) {
        how(&mut self.bells.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Which request is served, counted from 1; 0 if none is.
    pub fn serving(&self) -> u32 {
        self.answers.word32(SERVING_AT).load(Ordering::Acquire)
    }

    /// Grows with each request.
    pub fn asked(&self) -> u64 {
        fifo::written(&self.requests)
    }

    /// Changes with each message that is written or taken, of requests and of answers.
    pub fn pulse(&self) -> u64 {
        fifo::pulse(&self.requests).wrapping_add(fifo::pulse(&self.answers))
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

    /// Whether a bell has rung, or its other end is closed.
    fn rings(bell: &OwnedFd) -> bool {
        linux::wait_ready(bell, false, Duration::from_millis(1)).unwrap()
    }

    #[test]
    fn both_bells_ring_when_a_line_is_shut_and_when_it_ends() {
        let (line, ends) = Line::create(4096).unwrap();
        assert!(!rings(&ends.caller) && !rings(&ends.callee));
        line.shut();
        assert!(rings(&ends.caller) && rings(&ends.callee));
        // Nothing waits where nobody listens.
        (0..10_000).for_each(|_| line.shut());
        drop(ends.callee);
        line.shut();
        line.end();
        line.end();
        assert!(rings(&ends.caller));
    }

    #[test]
    fn each_message_is_seen_when_it_is_written_and_when_it_is_taken() {
        let (line, ends) = Line::create(4096).unwrap();
        let mut asks = Writer::open(&ends.requests).unwrap();
        let mut takes = Reader::open(&ends.requests).unwrap();
        let mut answers = Writer::open(&ends.answers).unwrap();
        let mut hears = Reader::open(&ends.answers).unwrap();
        let (mut seen, mut message) = (vec![line.pulse()], Vec::new());
        for _ in 0..2000 {
            asks.send(b"ask", soon()).unwrap();
            seen.push(line.pulse());
            takes.receive(&mut message, soon()).unwrap();
            seen.push(line.pulse());
            answers.send(b"answer", soon()).unwrap();
            seen.push(line.pulse());
            hears.receive(&mut message, soon()).unwrap();
            seen.push(line.pulse());
        }
        assert!(seen.is_sorted_by(|one, next| one < next));
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
