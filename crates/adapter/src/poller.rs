// SPDX-License-Identifier: Apache-2.0
//! What the adapter waits for: one `epoll` for all that it talks to.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFlags, Timespec};
use rustix::io::Errno;

use crate::frame::Turn;

/// Events that are taken at once.
const EVENTS: usize = 64;

/// Who something is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The node says something.
    Node,
    /// The program has printed something.
    Printed,
    /// Somebody calls another function.
    Callers,
    /// More of what a caller says, or room for what it is told.
    Caller(u32),
    /// More of an answer, or room for more of its request.
    Answer(Turn),
    /// Room for more of a program's standard input.
    Input(Turn),
    /// A program that runs for one request has ended.
    End(Turn),
    /// The server has ended.
    Server,
    /// Somebody comes to the runtime API.
    Runtime,
    /// More of what is said there, or room for what is told.
    RuntimeSays(u32),
}

impl Source {
    fn data(self) -> EventData {
        let (kind, number) = match self {
            Self::Node => (0, 0),
            Self::Printed => (1, 0),
            Self::Callers => (2, 0),
            Self::Caller(number) => (3, number),
            Self::Answer(turn) => (4, turn),
            Self::Input(turn) => (5, turn),
            Self::End(turn) => (6, turn),
            Self::Server => (7, 0),
            Self::Runtime => (8, 0),
            Self::RuntimeSays(number) => (9, number),
        };
        EventData::new_u64(kind << 32 | u64::from(number))
    }

    fn of(data: EventData) -> Option<Self> {
        let number = data.u64() as u32;
        Some(match data.u64() >> 32 {
            0 => Self::Node,
            1 => Self::Printed,
            2 => Self::Callers,
            3 => Self::Caller(number),
            4 => Self::Answer(number),
            5 => Self::Input(number),
            6 => Self::End(number),
            7 => Self::Server,
            8 => Self::Runtime,
            9 => Self::RuntimeSays(number),
            _ => return None,
        })
    }
}

/// Waits for all of them at once.
pub(crate) struct Poller {
    epoll: OwnedFd,
}

/// What is waited for at a descriptor, so that the kernel is told of changes only.
///
/// One of which nothing is waited for is not known to the kernel, which would tell its end over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted(PollFlags);

impl Default for Wanted {
    fn default() -> Self {
        Self(PollFlags::empty())
    }
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    /// Waits for this from now on, and for nothing else of the descriptor. What has closed it has to say so first, with
    /// no flags: a process that is being started has it still, and with it the kernel.
    pub(crate) fn want(
        &self,
        fd: impl AsFd,
        source: Source,
        known: &mut Wanted,
        flags: PollFlags,
    ) -> io::Result<()> {
        if known.0 == flags {
            return Ok(());
        }
        let mut events = EventFlags::empty();
        events.set(EventFlags::IN, flags.contains(PollFlags::IN));
        events.set(EventFlags::OUT, flags.contains(PollFlags::OUT));
        match (known.0.is_empty(), flags.is_empty()) {
            (true, _) => epoll::add(&self.epoll, fd, source.data(), events)?,
            (false, true) => epoll::delete(&self.epoll, fd)?,
            (false, false) => epoll::modify(&self.epoll, fd, source.data(), events)?,
        }
        known.0 = flags;
        Ok(())
    }

    /// Waits until something has happened, or for so long.
    pub(crate) fn wait(&self, patience: Option<Duration>) -> io::Result<Vec<Source>> {
        let timespec = patience.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        let mut events = Vec::with_capacity(EVENTS);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timespec.as_ref()) {
            Ok(_) => Ok(events.iter().filter_map(|event| Source::of(event.data)).collect()),
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}
