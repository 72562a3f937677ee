// SPDX-License-Identifier: Apache-2.0
//! Who compiles modules, and how many at a time.
//!
//! Megabytes of code take seconds to compile, so no worker does it: whoever
//! needs a module that is not ready waits for a [`Lane`], as for data.
//!
//! ```text
//!            ┌ quick: from the disk; small ones are compiled ┐
//!  wanted ──▶┤                                               ├──▶ ready
//!            └ large, one at a time: what is over a MiB      ┘
//! ```
//!
//! So a large module is never in a small one's way, and the memory that
//! compiling takes, some thirty times a module's size, is taken once. The
//! threads of both lanes give way to all others, workers above all.

use std::collections::VecDeque;

use objects::Handle;
use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::Error;

/// A module, and whether its code counts fuel.
pub(crate) type Key = (Handle, bool);

/// Modules with more bytes are compiled one at a time.
const LARGE_BYTES: u64 = 1 << 20;
/// How much less of a busy processor compiling gets than a worker: about a third.
const NICENESS: i32 = 5;
/// A line as long as this is looked through for those that nobody waits for.
const PURGE_MIN: usize = 64;

/// The two lanes.
pub(crate) struct Compiler {
    pub(crate) quick: Lane,
    pub(crate) large: Lane,
}

/// Modules in line, and the threads that take them from it.
pub(crate) struct Lane {
    line: Mutex<Line>,
    threads: ThreadPool,
    at_once_max: usize,
}

struct Line {
    keys: VecDeque<Key>,
    at_once: usize,
    purge_at: usize,
}

impl Compiler {
    /// Starts the threads: as many as workers in each lane.
    pub(crate) fn start(workers: usize) -> Result<Self, Error> {
        let quick = Lane::start("sinew-load", workers, workers)?;
        Ok(Self { quick, large: Lane::start("sinew-compile", workers, 1)? })
    }
}

/// Whether a module is one of those that are compiled one at a time.
pub(crate) fn is_large(procedure: Handle) -> bool {
    procedure.size() > LARGE_BYTES
}

impl Lane {
    fn start(name: &'static str, threads: usize, at_once_max: usize) -> Result<Self, Error> {
        let builder = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(move |number| format!("{name}-{number}"))
            // Refused only where there is nothing lower; then it shares alike.
            .start_handler(|_| _ = linux::lower_priority(NICENESS));
        let threads = builder.build().map_err(|error| Error::Engine(error.to_string()))?;
        let line = Line { keys: VecDeque::new(), at_once: 0, purge_at: PURGE_MIN };
        Ok(Self { line: Mutex::new(line), threads, at_once_max })
    }

    /// Puts a module in line. `is_wanted` says of those in a long line whether
    /// anybody still waits for them. `work` is called by a thread of the lane
    /// if not enough of them are at work, and must call [`Lane::next`] until
    /// there is none.
    pub(crate) fn submit(
        &self,
        key: Key,
        is_wanted: impl Fn(Key) -> bool,
        work: impl FnOnce() + Send + 'static,
    ) {
        let mut line = self.line.lock();
        if line.keys.len() >= line.purge_at {
            line.keys.retain(|&key| is_wanted(key));
            line.purge_at = PURGE_MIN.max(2 * line.keys.len());
        }
        line.keys.push_back(key);
        if line.at_once < self.at_once_max {
            line.at_once += 1;
            drop(line);
            self.threads.spawn(work);
        }
    }

    /// The first in line; `None`: the caller's work is over.
    pub(crate) fn next(&self) -> Option<Key> {
        let mut line = self.line.lock();
        let next = line.keys.pop_front();
        if next.is_none() {
            line.at_once -= 1;
        }
        next
    }
}
