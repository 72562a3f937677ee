// SPDX-License-Identifier: Apache-2.0
//! How applications ran, for the requests that they ran for.

use std::collections::VecDeque;

use foldhash::HashMap;
use gateway::CallReport;
use objects::Handle;

/// Reports that wait for their request.
const REPORTS_MAX: usize = 4096;
/// Bytes of what they say was printed.
const REPORTS_BYTES_MAX: usize = 16 << 20;

/// How applications ran, until somebody asks. Those that nobody asks about go
/// when there are too many.
#[derive(Default)]
pub(super) struct Reports {
    by_application: HashMap<Handle, (u64, CallReport)>,
    order: VecDeque<(u64, Handle)>,
    bytes: usize,
    last: u64,
}

impl Reports {
    pub(super) fn keep(&mut self, application: Handle, report: CallReport) {
        self.take(application);
        self.last += 1;
        self.bytes += bytes_of(&report);
        self.order.push_back((self.last, application));
        self.by_application.insert(application, (self.last, report));
        while self.order.len() > REPORTS_MAX || self.bytes > REPORTS_BYTES_MAX {
            let Some((number, oldest)) = self.order.pop_front() else { break };
            // It may have been taken, and another one kept since.
            if self.by_application.get(&oldest).is_some_and(|(kept, _)| *kept == number) {
                self.take(oldest);
            }
        }
    }

    pub(super) fn take(&mut self, application: Handle) -> Option<CallReport> {
        let (_, report) = self.by_application.remove(&application)?;
        self.bytes -= bytes_of(&report);
        Some(report)
    }
}

/// What a report takes besides a place.
fn bytes_of(report: &CallReport) -> usize {
    report.log.bytes.len() + report.log.pieces.len() * size_of::<gateway::Piece>()
}

/// What an instance's call took, in words of the gateway.
pub(super) fn told(spent: &sandbox::Spent) -> gateway::Spent {
    // What it stood in line is told with the rest of its wait.
    let sandbox::Spent {
        in_line: _,
        running,
        waiting,
        held,
        cpu,
        is_cpu_own,
        cpu_between,
        memory_peak_bytes,
    } = *spent;
    gateway::Spent { running, waiting, held, cpu, is_cpu_own, cpu_between, memory_peak_bytes, fuel: 0 }
}

/// What was printed, in words of the gateway.
pub(super) fn printed(printed: sandbox::Printed) -> gateway::Printed {
    let (bytes, pieces) = printed.into_parts();
    let told = |piece: sandbox::Piece| {
        let sandbox::Piece { len, at, is_error } = piece;
        gateway::Piece { len, at, is_error }
    };
    gateway::Printed { bytes, pieces: pieces.into_iter().map(told).collect() }
}

/// How much of it there is.
pub(super) fn so_far(printed: &sandbox::Printed) -> gateway::SoFar {
    gateway::SoFar { lines: printed.lines(), bytes: printed.len() }
}

/// The same of a call that runs.
pub(super) fn printing(printing: sandbox::Printing) -> gateway::Printing {
    let sandbox::Printing { since, printed } = printing;
    gateway::Printing { since, printed: self::printed(printed) }
}

/// How a step says that its time went, in words of the gateway.
pub(super) fn phases(phases: sandbox::Phases) -> Box<gateway::Phases> {
    let sandbox::Phases { taking, running, giving, pickled } = phases;
    Box::new(gateway::Phases { taking, running, giving, pickled })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(bytes: usize) -> CallReport {
        let log = gateway::Printed { bytes: vec![0; bytes], ..gateway::Printed::default() };
        CallReport { log, ..CallReport::default() }
    }

    fn name(number: u64) -> Handle {
        Handle::u64(number)
    }

    #[test]
    fn a_report_is_told_once_and_the_oldest_go() {
        let mut reports = Reports::default();
        for number in 0..REPORTS_MAX as u64 + 10 {
            reports.keep(name(number), report(1));
        }
        assert!(reports.take(name(9)).is_none() && reports.take(name(10)).is_some());
        assert!(reports.take(name(10)).is_none(), "once");
        reports.keep(name(20_000), report(REPORTS_BYTES_MAX));
        assert_eq!((reports.by_application.len(), reports.bytes), (1, REPORTS_BYTES_MAX));
        assert!(reports.take(name(20_000)).is_some() && reports.bytes == 0);
    }

    #[test]
    fn an_old_report_of_the_same_application_takes_no_new_one_along() {
        let mut reports = Reports::default();
        reports.keep(name(1), report(1));
        reports.take(name(1));
        reports.keep(name(1), report(2));
        for number in 2..REPORTS_MAX as u64 + 1 {
            reports.keep(name(number), report(0));
        }
        assert_eq!(reports.take(name(1)).map(|report| report.log.bytes.len()), Some(2));
    }
}
