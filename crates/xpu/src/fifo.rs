// SPDX-License-Identifier: Apache-2.0
//! Messages from one process to another, through a ring in shared memory.
//!
//! ```text
//!  0       64      128             192             256      4096
//!  ├ tail  ┼ head  ┼ reader sleeps ┼ writer sleeps ┼ closed ┼ capacity bytes
//!
//!  message:  length u32, little-endian ┼ so many bytes      wraps at the end
//! ```
//!
//! *Tail* is how many bytes were ever written, *head* how many were read; one
//! process writes the one, one the other. Positions that are one's own are
//! kept outside of the ring and only told there. What the peer tells is
//! checked before it is used: more bytes than the ring has, or a message that
//! is longer than what was written, is [`Error::Broken`], and stays so.
//!
//! Who finds nothing to do looks a few times more, then says that it sleeps,
//! looks once again, and sleeps in the kernel (a futex) until it is woken or
//! its deadline is over. As long as both sides have work there is no system
//! call. A peer that does not wake costs the deadline, no more.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Instant;

use linux::SharedMemory;

/// Where the ring begins.
const RING_AT: usize = 4096;
const TAIL_AT: usize = 0;
const HEAD_AT: usize = 64;
const READER_SLEEPS_AT: usize = 128;
const WRITER_SLEEPS_AT: usize = 192;
const CLOSED_AT: usize = 256;
const LENGTH_LEN: u64 = 4;
/// The shortest and the longest ring.
const CAPACITY_MIN: usize = 4096;
const CAPACITY_MAX: usize = 256 << 20;

/// Why no message was sent or received.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The deadline passed.
    #[error("fifo: the other side did nothing until the deadline")]
    Late,
    /// The other side has closed it, and nothing is left to be received.
    #[error("fifo: the other side has closed it")]
    Closed,
    /// The other side broke the rules; nothing more can be done with it.
    #[error("fifo: the other side broke the rules: {0}")]
    Broken(&'static str),
    /// A message that will never fit.
    #[error("fifo: a message has {len} bytes, and the fifo takes at most {most}")]
    TooLong {
        /// The message's.
        len: usize,
        /// The ring's, less a length.
        most: usize,
    },
    /// The memory cannot be had, or is no fifo.
    #[error("fifo: its memory cannot be used: {0}")]
    Memory(#[from] io::Error),
}

/// What both ends have.
struct End {
    memory: SharedMemory,
    capacity: u64,
    /// How often it looks again before it sleeps.
    looks: u32,
    broken: Option<&'static str>,
}

/// The end that messages are put into.
pub struct Writer {
    end: End,
    tail: u64,
}

/// The end that messages come out of.
pub struct Reader {
    end: End,
    head: u64,
}

/// A new fifo: its writer's end here, and the descriptor by which another
/// process opens the reader's. `capacity` bytes of messages and their lengths
/// may lie in it, a power of two from 4 KiB to 256 MiB.
///
/// # Errors
/// [`Error::Memory`].
pub fn create(capacity: usize) -> Result<(Writer, OwnedFd), Error> {
    let (end, fd) = End::create(capacity)?;
    Ok((Writer { end, tail: 0 }, fd))
}

/// The same with the reader's end here, and the writer's elsewhere.
///
/// # Errors
/// [`Error::Memory`].
pub fn create_reader(capacity: usize) -> Result<(Reader, OwnedFd), Error> {
    let (end, fd) = End::create(capacity)?;
    Ok((Reader { end, head: 0 }, fd))
}

impl End {
    fn create(capacity: usize) -> Result<(Self, OwnedFd), Error> {
        let (memory, fd) = memory(capacity)?;
        Ok((Self::new(memory), fd))
    }

    fn open(fd: impl AsFd) -> Result<Self, Error> {
        let memory = SharedMemory::open(fd)?;
        if !memory.len().checked_sub(RING_AT).is_some_and(is_capacity) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its length is that of no fifo").into());
        }
        Ok(Self::new(memory))
    }

    fn new(memory: SharedMemory) -> Self {
        let capacity = (memory.len() - RING_AT) as u64;
        // One processor: the other side does nothing while this one looks.
        let looks =
            if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) { 64 } else { 0 };
        Self { memory, capacity, looks, broken: None }
    }

    fn check(&self) -> Result<(), Error> {
        self.broken.map_or(Ok(()), |why| Err(Error::Broken(why)))
    }

    fn broken(&mut self, why: &'static str) -> Error {
        self.broken = Some(why);
        Error::Broken(why)
    }

    fn is_closed(&self) -> bool {
        self.memory.word32(CLOSED_AT).load(Ordering::Acquire) != 0
    }

    /// Nothing more comes from this side.
    fn close(&self) {
        close(&self.memory);
    }

    /// Wakes the other side if it sleeps. What it sleeps for was told before.
    fn wake(&self, sleeps_at: usize) {
        let sleeps = self.memory.word32(sleeps_at);
        fence(Ordering::SeqCst);
        if sleeps.load(Ordering::Relaxed) != 0 && sleeps.swap(0, Ordering::SeqCst) != 0 {
            linux::wake_one(sleeps);
        }
    }

    /// Waits until a position is not `seen` any more, the fifo is closed, or
    /// there may be another reason to look.
    fn wait(&self, position_at: usize, seen: u64, sleeps_at: usize, deadline: Instant) -> Result<(), Error> {
        let has_moved =
            || self.memory.word64(position_at).load(Ordering::Acquire) != seen || self.is_closed();
        for _ in 0..self.looks {
            if has_moved() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::Late);
        }
        let sleeps: &AtomicU32 = self.memory.word32(sleeps_at);
        sleeps.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !has_moved() {
            linux::wait_while(sleeps, 1, left)?;
        }
        sleeps.store(0, Ordering::SeqCst);
        Ok(())
    }

    /// Copies out of the ring from a position, around its end.
    fn copy_out(&self, position: u64, into: &mut [u8]) {
        let at = (position % self.capacity) as usize;
        let first = into.len().min(self.capacity as usize - at);
        let (before, after) = into.split_at_mut(first);
        self.memory.read(RING_AT + at, before);
        self.memory.read(RING_AT, after);
    }

    fn copy_in(&self, position: u64, bytes: &[u8]) {
        let at = (position % self.capacity) as usize;
        let (before, after) = bytes.split_at(bytes.len().min(self.capacity as usize - at));
        self.memory.write(RING_AT + at, before);
        self.memory.write(RING_AT, after);
    }
}

/// The memory of a fifo that nobody has opened yet.
pub(crate) fn memory(capacity: usize) -> Result<(SharedMemory, OwnedFd), Error> {
    if !is_capacity(capacity) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "its capacity is out of bounds").into());
    }
    Ok(SharedMemory::create("sinew-fifo", RING_AT + capacity)?)
}

/// Closes a fifo for both of its sides.
pub(crate) fn close(memory: &SharedMemory) {
    memory.word32(CLOSED_AT).store(1, Ordering::Release);
    for at in [READER_SLEEPS_AT, WRITER_SLEEPS_AT] {
        memory.word32(at).store(0, Ordering::SeqCst);
        linux::wake_one(memory.word32(at));
    }
}

/// Bytes that were ever written, by the word of who writes.
pub(crate) fn written(memory: &SharedMemory) -> u64 {
    memory.word64(TAIL_AT).load(Ordering::Acquire)
}

/// Grows with all that is written and read, by the word of both sides.
pub(crate) fn pulse(memory: &SharedMemory) -> u64 {
    let position = |at| memory.word64(at).load(Ordering::Relaxed);
    position(TAIL_AT).wrapping_add(position(HEAD_AT))
}

/// Whether something was written that was not read, by the word of both sides.
pub(crate) fn has_more(memory: &SharedMemory) -> bool {
    let position = |at| memory.word64(at).load(Ordering::Acquire);
    position(TAIL_AT) != position(HEAD_AT)
}

fn is_capacity(bytes: usize) -> bool {
    bytes.is_power_of_two() && (CAPACITY_MIN..=CAPACITY_MAX).contains(&bytes)
}

impl Writer {
    /// The writer's end of a fifo that another process has made.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn open(fd: impl AsFd) -> Result<Self, Error> {
        Ok(Self { end: End::open(fd)?, tail: 0 })
    }

    /// The longest message.
    pub fn message_max(&self) -> usize {
        (self.end.capacity - LENGTH_LEN) as usize
    }

    /// Puts a message in; waits for room until the deadline.
    ///
    /// # Errors
    /// All of [`Error`]; nothing was sent then.
    pub fn send(&mut self, message: &[u8], deadline: Instant) -> Result<(), Error> {
        self.end.check()?;
        if message.len() > self.message_max() {
            return Err(Error::TooLong { len: message.len(), most: self.message_max() });
        }
        let wanted = LENGTH_LEN + message.len() as u64;
        loop {
            if self.end.is_closed() {
                return Err(Error::Closed);
            }
            let head = self.end.memory.word64(HEAD_AT).load(Ordering::Acquire);
            let used = self.tail.wrapping_sub(head);
            if used > self.end.capacity {
                return Err(self.end.broken("it has read more than was written"));
            }
            if self.end.capacity - used >= wanted {
                break;
            }
            self.end.wait(HEAD_AT, head, WRITER_SLEEPS_AT, deadline)?;
        }
        self.end.copy_in(self.tail, &(message.len() as u32).to_le_bytes());
        self.end.copy_in(self.tail.wrapping_add(LENGTH_LEN), message);
        self.tail = self.tail.wrapping_add(wanted);
        self.end.memory.word64(TAIL_AT).store(self.tail, Ordering::Release);
        self.end.wake(READER_SLEEPS_AT);
        Ok(())
    }
}

impl Reader {
    /// The reader's end of a fifo that another process has made.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn open(fd: impl AsFd) -> Result<Self, Error> {
        Ok(Self { end: End::open(fd)?, head: 0 })
    }

    /// Takes the next message out, in place of what `into` had; waits for one
    /// until the deadline.
    ///
    /// # Errors
    /// [`Error::Late`], [`Error::Closed`], [`Error::Broken`].
    pub fn receive(&mut self, into: &mut Vec<u8>, deadline: Instant) -> Result<(), Error> {
        self.end.check()?;
        let filled = loop {
            // Before the position: what was written before it was closed counts.
            let is_closed = self.end.is_closed();
            let tail = self.end.memory.word64(TAIL_AT).load(Ordering::Acquire);
            let filled = tail.wrapping_sub(self.head);
            if filled > self.end.capacity {
                return Err(self.end.broken("it has written more than there is room for"));
            }
            if filled > 0 {
                break filled;
            }
            if is_closed {
                return Err(Error::Closed);
            }
            self.end.wait(TAIL_AT, tail, READER_SLEEPS_AT, deadline)?;
        };
        let mut length = [0; LENGTH_LEN as usize];
        if filled < LENGTH_LEN {
            return Err(self.end.broken("half a length"));
        }
        self.end.copy_out(self.head, &mut length);
        let len = u64::from(u32::from_le_bytes(length));
        if len > filled - LENGTH_LEN {
            return Err(self.end.broken("a message that is longer than what was written"));
        }
        into.clear();
        into.resize(len as usize, 0);
        self.end.copy_out(self.head.wrapping_add(LENGTH_LEN), into);
        self.head = self.head.wrapping_add(LENGTH_LEN + len);
        self.end.memory.word64(HEAD_AT).store(self.head, Ordering::Release);
        self.end.wake(WRITER_SLEEPS_AT);
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end.close();
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.end.close();
    }
}

#[cfg(test)]
mod tests;
