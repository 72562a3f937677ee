// SPDX-License-Identifier: Apache-2.0
//! What an instance tells of the requests that came to it over a line: reports,
//! or none. Nothing may panic; what are reports can be told twice, and what has
//! one byte more or less than reports is none.

use sandbox::process::is_reports;

/// Reports in one frame.
const REPORTS_MAX: usize = 32;

/// One input.
pub fn run(bytes: &[u8]) {
    if !is_reports(bytes) {
        return;
    }
    assert!(!is_reports(&bytes[..bytes.len() - 1]), "half a report is none");
    assert!(!is_reports(&[bytes, &[0]].concat()), "a report and a byte are none");
    assert!(!is_reports(&bytes.repeat(REPORTS_MAX + 1)), "more than a frame may have");
}
