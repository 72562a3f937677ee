// SPDX-License-Identifier: Apache-2.0
//! What became of the last requests to functions, with what they printed.
//!
//! Two rings in memory, bounded in records and bytes: one of requests that printed something or
//! failed, and one of all others, so that a function that is asked very often pushes nobody's
//! failure out. The oldest go first. The first kind is written to files besides (`archive.rs`),
//! from where older ones are read, also those from before the node was started.
//!
//! Records are numbered by the time at which their requests ended, in microseconds since 1970, or by the
//! next number: so a reader goes on where it stopped, also after a restart.

mod archive;
mod backwards;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

pub(crate) use archive::Archive;
pub use archive::ArchiveOptions;

use crate::invocation::Span;
use crate::printed::{Line, Log};
use crate::usage::Usage;

/// Records of either kind that are kept in memory.
const RECORDS_MAX: usize = 10_000;
/// Bytes of those that printed something or failed.
const TOLD_BYTES_MAX: usize = 32 << 20;
/// Bytes of the others.
const QUIET_BYTES_MAX: usize = 8 << 20;
/// Bytes of one record's log; of a longer one the end is kept.
const LOG_MAX: usize = 256 << 10;
/// Records that are looked through at once.
const LOOKED_AT: usize = 256;
/// What a record takes besides its texts.
const RECORD_BYTES: usize = 384;

/// One request to a function.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Record {
    /// Its number; that of the next one is higher.
    pub(crate) sequence: u64,
    /// Names it among those of its request; none of what can make no calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) span: Option<Span>,
    /// The one that called it, if that was a function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<Span>,
    /// When it began, in microseconds since 1970.
    pub(crate) begun_us: u64,
    /// When it ended, in milliseconds since 1970.
    pub(crate) time_ms: u64,
    pub(crate) request_id: String,
    /// Whose it was, if it came with a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    pub(crate) function: String,
    pub(crate) version: u64,
    pub(crate) status: u16,
    /// `warm`, `prewarmed`, `forked`, `cold`, `memo` if nothing had to run, `none` if nothing
    /// could.
    pub(crate) start: &'static str,
    pub(crate) total_us: u64,
    pub(crate) queued_us: u64,
    pub(crate) starting_us: u64,
    /// What it took, and its price.
    pub(crate) usage: Usage,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
    /// What it printed.
    #[serde(skip)]
    pub(crate) log: Log,
}

/// A record as its readers get it.
#[derive(Debug, Serialize)]
pub(crate) struct Shown<'a> {
    #[serde(flatten)]
    pub(crate) record: &'a Record,
    pub(crate) log: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lines: Option<Vec<Line<'a>>>,
    /// Lines that were printed before those, and are told no more.
    #[serde(skip_serializing_if = "is_none")]
    pub(crate) lines_left_out: usize,
    /// In which prices are.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) currency: &'a str,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_none(number: &usize) -> bool {
    *number == 0
}

impl Record {
    /// The same, with no more of what it printed than is kept.
    pub(crate) fn fit_to_keep(mut self) -> Self {
        self.log.shorten(LOG_MAX);
        self
    }

    pub(crate) fn bytes(&self) -> usize {
        let failure = self.failure.as_ref().map_or(0, String::len);
        let tenant = self.tenant.as_ref().map_or(0, String::len);
        RECORD_BYTES + tenant + self.request_id.len() + self.function.len() + self.log.bytes() + failure
    }

    /// It says more than that it went well.
    fn is_told(&self) -> bool {
        self.has_failed() || !self.log.text.is_empty()
    }

    fn has_failed(&self) -> bool {
        has_failed(self.status, self.failure.is_some())
    }
}

/// Whether a request has failed by its status, and by whether something is known of why.
fn has_failed(status: u16, has_reason: bool) -> bool {
    status >= 500 || has_reason
}

/// Which records a reader wants.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// With its steps, if it is a workflow.
    pub(crate) function: Option<String>,
    pub(crate) request_id: Option<String>,
    /// Only those with a higher number.
    pub(crate) after: u64,
    /// Only those that failed.
    pub(crate) failed: bool,
    /// Only those that printed this, or failed with it.
    pub(crate) text: Option<String>,
    /// The newest so many.
    pub(crate) limit: usize,
}

impl Wanted {
    fn fits(&self, record: &Record) -> bool {
        let is_in = |text: &str| {
            let failure = record.failure.as_deref().unwrap_or_default();
            record.log.text.contains(text) || failure.contains(text)
        };
        self.function.as_deref().is_none_or(|function| is_of(&record.function, function))
            && self.request_id.as_deref().is_none_or(|id| record.request_id == id)
            && (!self.failed || record.has_failed())
            && self.text.as_deref().is_none_or(is_in)
    }
}

/// The last requests.
#[derive(Debug)]
pub(crate) struct Journal {
    told: Ring,
    quiet: Ring,
    last: u64,
    /// All those that are told and have this number or a higher one are here.
    complete_from: u64,
}

/// Records of one kind, the oldest first.
#[derive(Debug)]
struct Ring {
    records: VecDeque<Arc<Record>>,
    bytes: usize,
    bytes_max: usize,
}

impl Journal {
    /// Of a node that is started, whose records have higher numbers than this: the time, in microseconds since
    /// 1970, or what was given to one before.
    pub(crate) fn new(last: u64) -> Self {
        let ring = |bytes_max| Ring { records: VecDeque::new(), bytes: 0, bytes_max };
        Self {
            told: ring(TOLD_BYTES_MAX),
            quiet: ring(QUIET_BYTES_MAX),
            last,
            complete_from: last.saturating_add(1),
        }
    }

    /// Those that printed something or failed, or the others.
    fn ring(&self, is_told: bool) -> &Ring {
        if is_told { &self.told } else { &self.quiet }
    }

    /// Keeps a record of a request that ended then, in microseconds since 1970, and returns it if it is to be written
    /// down.
    pub(crate) fn add(&mut self, mut record: Record, ended_us: u64) -> Option<Arc<Record>> {
        self.last = ended_us.max(self.last.saturating_add(1));
        record.sequence = self.last;
        let (is_told, record) = (record.is_told(), Arc::new(record));
        if !is_told {
            self.quiet.add(record);
            return None;
        }
        if let Some(gone) = self.told.add(Arc::clone(&record)) {
            self.complete_from = gone.sequence.saturating_add(1);
        }
        Some(record)
    }
}

/// The records that are wanted, the oldest first; the number of the last one of all; and, if older ones may be
/// wanted as well, the number below which those have to be looked for elsewhere. What is looked through is so
/// without the lock that every request takes.
pub(crate) fn find(journal: &Mutex<Journal>, wanted: &Wanted) -> (Vec<Arc<Record>>, u64, Option<u64>) {
    let locked = || journal.lock().unwrap_or_else(PoisonError::into_inner);
    let last = locked().last;
    let mut found = Vec::new();
    for is_told in [true, false] {
        let (mut of_ring, mut below) = (Vec::new(), u64::MAX);
        while of_ring.len() < wanted.limit {
            let some = locked().ring(is_told).newest(below, LOOKED_AT);
            let Some(oldest) = some.last() else { break };
            below = oldest.sequence;
            let new = some.iter().take_while(|record| record.sequence > wanted.after);
            of_ring
                .extend(new.filter(|record| wanted.fits(record)).take(wanted.limit - of_ring.len()).cloned());
            if below <= wanted.after {
                break;
            }
        }
        found.append(&mut of_ring);
    }
    // What came meanwhile is for the next reader.
    found.retain(|record| record.sequence <= last);
    found.sort_unstable_by_key(|record| record.sequence);
    found.drain(..found.len().saturating_sub(wanted.limit));
    let complete_from = locked().complete_from;
    let is_enough =
        found.len() >= wanted.limit && found.first().is_none_or(|oldest| oldest.sequence >= complete_from);
    let has_all = is_enough || wanted.after.saturating_add(1) >= complete_from;
    (found, last, (!has_all).then_some(complete_from))
}

impl Ring {
    /// So many of the newest ones that are below a number, the newest first.
    fn newest(&self, below: u64, count: usize) -> Vec<Arc<Record>> {
        let end = self.records.partition_point(|record| record.sequence < below);
        self.records.range(..end).rev().take(count).cloned().collect()
    }

    /// Keeps it, and returns the last one that had to go for it.
    fn add(&mut self, record: Arc<Record>) -> Option<Arc<Record>> {
        self.bytes += record.bytes();
        self.records.push_back(record);
        let mut gone = None;
        while self.records.len() > RECORDS_MAX || self.bytes > self.bytes_max {
            let Some(oldest) = self.records.pop_front() else { break };
            self.bytes -= oldest.bytes();
            gone = Some(oldest);
        }
        gone
    }
}

/// Whether a record is a function's, or that of a step of it.
pub(crate) fn is_of(name: &str, function: &str) -> bool {
    let rest = name.strip_prefix(function);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
