// SPDX-License-Identifier: Apache-2.0
//! What an instance tells of the requests that came to it over a line
//! (`docs/spec/lines.md`). Nothing of it is believed but that the instance says so.

use std::time::Duration;

use adapter::frame::REPORTS_MAX;

use crate::line::LineReport;

/// Everything of a report before the request's id.
const HEAD_LEN: usize = 72;
const ID_LEN_MAX: usize = u8::MAX as usize;
/// Bytes of a frame of reports.
pub(super) const BYTES_MAX: usize = REPORTS_MAX * (HEAD_LEN + ID_LEN_MAX);

/// Reads a frame of reports, for whoever feeds it anything at all; whether it is one.
#[doc(hidden)]
pub fn is_reports(bytes: &[u8]) -> bool {
    read(bytes).is_some_and(|reports| !reports.is_empty() && reports.len() <= REPORTS_MAX)
}

/// At least one report, and at most [`REPORTS_MAX`].
pub(super) fn read(mut rest: &[u8]) -> Option<Vec<LineReport>> {
    let mut reports = Vec::with_capacity(1);
    while !rest.is_empty() {
        if reports.len() == REPORTS_MAX {
            return None;
        }
        let (head, after) = rest.split_first_chunk::<HEAD_LEN>()?;
        let (report, id_len) = read_head(head)?;
        let (id, after) = after.split_at_checked(id_len)?;
        let request_id = str::from_utf8(id).ok()?.to_owned();
        reports.push(LineReport { request_id, ..report });
        rest = after;
    }
    (!reports.is_empty()).then_some(reports)
}

/// A report without its request's id, and how long that is.
fn read_head(head: &[u8; HEAD_LEN]) -> Option<(LineReport, usize)> {
    let mut rest: &[u8] = head;
    let mut bytes = |count| {
        let (taken, after) = rest.split_at_checked(count)?;
        rest = after;
        Some(taken)
    };
    let mut word = || Some(u32::from_le_bytes(bytes(4)?.try_into().ok()?));
    let (running, waiting, ended_ago) = (word()?, word()?, word()?);
    let (received_bytes, sent_bytes) = (word()?, word()?);
    let status = u16::from_le_bytes(bytes(2)?.try_into().ok()?);
    if !(200..=599).contains(&status) {
        return None;
    }
    let mut long = || Some(u64::from_be_bytes(bytes(8)?.try_into().ok()?));
    let (parent, span) = (long()?, long()?);
    let (trace, seal) = (bytes(16)?.try_into().ok()?, bytes(16)?.try_into().ok()?);
    let [flags, id_len] = bytes(2)?.try_into().ok()?;
    let micros = |us: u32| Duration::from_micros(us.into());
    let report = LineReport {
        running: micros(running),
        waiting: micros(waiting.min(running)),
        ended_ago: micros(ended_ago),
        status,
        received_bytes,
        sent_bytes,
        parent,
        span,
        trace,
        flags,
        seal,
        request_id: String::new(),
    };
    Some((report, id_len.into()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn report(id: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [70_u32, 20, 5, 11, 12] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(201_u16.to_le_bytes());
        bytes.extend(3_u64.to_be_bytes());
        bytes.extend(4_u64.to_be_bytes());
        bytes.extend([7; 16]);
        bytes.extend([9; 16]);
        bytes.extend([1, id.len() as u8]);
        bytes.extend(id.as_bytes());
        bytes
    }

    #[test]
    fn reports_are_read_as_they_are_written() {
        let read = read(&[report("a-request"), report("")].concat()).unwrap();
        let first = LineReport {
            running: Duration::from_micros(70),
            waiting: Duration::from_micros(20),
            ended_ago: Duration::from_micros(5),
            status: 201,
            received_bytes: 11,
            sent_bytes: 12,
            parent: 3,
            span: 4,
            trace: [7; 16],
            flags: 1,
            seal: [9; 16],
            request_id: "a-request".to_owned(),
        };
        assert_eq!(read, [first.clone(), LineReport { request_id: String::new(), ..first }]);
    }

    #[test]
    fn a_status_that_no_answer_has_is_refused() {
        for (status, is_one) in [(199, false), (200, true), (599, true), (600, false), (0, false)] {
            let mut bytes = report("id");
            bytes[20..22].copy_from_slice(&u16::to_le_bytes(status));
            assert_eq!(read(&bytes).is_some(), is_one, "{status}");
        }
    }

    #[test]
    fn what_is_no_report_is_refused() {
        let whole = report("id");
        for len in 0..whole.len() {
            assert_eq!(read(&whole[..len]), None, "{len} bytes");
        }
        assert_eq!(read(&vec![report("id"); REPORTS_MAX + 1].concat()), None, "too many");
        let mut binary = report("id");
        *binary.last_mut().unwrap() = 0xff;
        assert_eq!(read(&binary), None, "no text");
    }

    proptest! {
        #[test]
        fn anything_is_reports_or_none(bytes in prop::collection::vec(any::<u8>(), 0..2 * BYTES_MAX)) {
            if let Some(reports) = read(&bytes) {
                let length: usize = reports.iter().map(|report| HEAD_LEN + report.request_id.len()).sum();
                prop_assert_eq!(length, bytes.len());
            }
        }
    }
}
