// SPDX-License-Identifier: Apache-2.0
//! What became of the last requests to functions, with what they printed.
//!
//! A ring in memory, bounded in records and bytes: the oldest go first. Records
//! are numbered, so that a reader goes on where it stopped, and notices when
//! it was too slow.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;

use crate::invocation::Span;
use crate::usage::Usage;

/// Records that are kept.
const RECORDS_MAX: usize = 10_000;
/// Bytes of all that is kept.
const BYTES_MAX: usize = 32 << 20;
/// Bytes of one record's log; of a longer one the end is kept.
const LOG_MAX: usize = 256 << 10;
/// What a record takes besides its texts.
const RECORD_BYTES: usize = 384;

/// One request to a function.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Record {
    /// Its number; the next one's is one more.
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
    pub(crate) log: String,
}

impl Record {
    fn bytes(&self) -> usize {
        let failure = self.failure.as_ref().map_or(0, String::len);
        let tenant = self.tenant.as_ref().map_or(0, String::len);
        RECORD_BYTES + tenant + self.request_id.len() + self.function.len() + self.log.len() + failure
    }
}

/// Which records a reader wants.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted<'a> {
    /// With its steps, if it is a workflow.
    pub(crate) function: Option<&'a str>,
    pub(crate) request_id: Option<&'a str>,
    /// Only those with a higher number.
    pub(crate) after: u64,
    /// The newest so many.
    pub(crate) limit: usize,
}

/// The last requests.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    records: VecDeque<Arc<Record>>,
    bytes: usize,
    last: u64,
}

impl Journal {
    /// Keeps a record, under the next number.
    pub(crate) fn add(&mut self, mut record: Record) {
        self.last += 1;
        record.sequence = self.last;
        if record.log.len() > LOG_MAX {
            let start = record.log.ceil_char_boundary(record.log.len() - LOG_MAX);
            record.log.replace_range(..start, "…");
        }
        self.bytes += record.bytes();
        self.records.push_back(Arc::new(record));
        while self.records.len() > RECORDS_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.records.pop_front() else { break };
            self.bytes -= oldest.bytes();
        }
    }

    /// The records that are wanted, the oldest first.
    pub(crate) fn find(&self, wanted: &Wanted<'_>) -> Vec<Arc<Record>> {
        let newest_first = self.records.iter().rev().take_while(|record| record.sequence > wanted.after);
        let fits = newest_first.filter(|record| {
            wanted.function.is_none_or(|function| is_of(record, function))
                && wanted.request_id.is_none_or(|id| record.request_id == id)
        });
        let mut found: Vec<Arc<Record>> = fits.take(wanted.limit).cloned().collect();
        found.reverse();
        found
    }

    /// The number of the last record; 0 before the first.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }
}

/// Whether a record is a function's, or that of a step of it.
fn is_of(record: &Record, function: &str) -> bool {
    let rest = record.function.strip_prefix(function);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(function: &str, log: &str) -> Record {
        Record {
            begun_us: 1,
            time_ms: 1,
            request_id: format!("{function}-id"),
            function: function.to_owned(),
            version: 1,
            status: 200,
            start: "warm",
            total_us: 1,
            log: log.to_owned(),
            ..Record::default()
        }
    }

    fn numbers(journal: &Journal, wanted: &Wanted<'_>) -> Vec<u64> {
        journal.find(wanted).iter().map(|record| record.sequence).collect()
    }

    #[test]
    fn readers_find_what_they_want_and_go_on() {
        let mut journal = Journal::default();
        for name in ["a", "b", "a", "b", "a"] {
            journal.add(record(name, ""));
        }
        let all = Wanted { limit: 100, ..Wanted::default() };
        assert_eq!(numbers(&journal, &all), [1, 2, 3, 4, 5]);
        assert_eq!(numbers(&journal, &Wanted { function: Some("a"), ..all.clone() }), [1, 3, 5]);
        assert_eq!(numbers(&journal, &Wanted { request_id: Some("b-id"), after: 2, ..all.clone() }), [4]);
        assert_eq!(numbers(&journal, &Wanted { limit: 2, ..all.clone() }), [4, 5], "the newest");
        assert_eq!(numbers(&journal, &Wanted { after: journal.last(), ..all }), [0; 0]);
    }

    #[test]
    fn the_oldest_go_by_number_and_by_bytes() {
        let mut journal = Journal::default();
        for _ in 0..RECORDS_MAX + 5 {
            journal.add(record("a", ""));
        }
        assert_eq!(journal.records.len(), RECORDS_MAX);
        let long = "x".repeat(2 * LOG_MAX);
        for _ in 0..1000 {
            journal.add(record("b", &long));
        }
        assert!(journal.bytes <= BYTES_MAX && journal.records.len() > BYTES_MAX / LOG_MAX / 2);
        let counted: usize = journal.records.iter().map(|record| record.bytes()).sum();
        assert_eq!(counted, journal.bytes);
    }

    #[test]
    fn of_a_long_log_the_end_is_kept() {
        let mut journal = Journal::default();
        let log = format!("begin{}end", "é".repeat(LOG_MAX));
        journal.add(record("a", &log));
        let kept = &journal.find(&Wanted { limit: 1, ..Wanted::default() })[0].log;
        assert!(kept.starts_with('…') && kept.ends_with("end") && kept.len() <= LOG_MAX + 3);
    }
}
