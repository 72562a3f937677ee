// SPDX-License-Identifier: Apache-2.0
//! What a follower of logs has shown, so that nothing is shown twice or left out.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::function_api::{Logs, LogsWanted};
use crate::node_api::Node;

/// Records of one answer of the node.
const PAGE: usize = 1000;

/// Something to be shown.
#[derive(Debug)]
pub(in crate::commands) enum Entry {
    /// A request that runs has printed lines.
    Running {
        /// Whose they are, and these lines.
        running: Value,
        /// What was shown last was of the same.
        is_continued: bool,
    },
    /// A request has ended.
    Ended {
        /// With all its lines.
        record: Value,
        /// So many of which were shown while it ran.
        known_lines: usize,
    },
}

/// How far a follower is.
#[derive(Debug)]
pub(in crate::commands) struct Shown {
    with_running: bool,
    last: u64,
    /// Lines that were shown of requests that run, by their spans.
    lines: BTreeMap<String, usize>,
    /// The request that runs and was shown last.
    open: Option<String>,
    /// The last answer was too long for all that was wanted.
    is_cut: bool,
}

impl Shown {
    /// Nothing yet. `with_running`: what requests print is shown while they run.
    pub(in crate::commands) fn new(with_running: bool) -> Self {
        Self { with_running, last: 0, lines: BTreeMap::new(), open: None, is_cut: false }
    }

    /// Nothing, and what there is already is not to be.
    pub(in crate::commands) async fn since_now(node: &mut Node) -> anyhow::Result<Self> {
        let logs = node.logs(&LogsWanted { limit: 1, ..LogsWanted::default() }).await?;
        Ok(Self { last: logs.last, ..Self::new(true) })
    }

    /// The newest requests that are wanted.
    pub(in crate::commands) async fn first(
        &mut self,
        node: &mut Node,
        wanted: &LogsWanted<'_>,
    ) -> anyhow::Result<Vec<Entry>> {
        let wanted = LogsWanted { lines: true, running: self.running(), ..wanted.clone() };
        let logs = node.logs(&wanted).await?;
        Ok(self.take(logs))
    }

    /// What has come since.
    pub(in crate::commands) async fn more(
        &mut self,
        node: &mut Node,
        wanted: &LogsWanted<'_>,
    ) -> anyhow::Result<Vec<Entry>> {
        self.first(node, &LogsWanted { after: self.last, limit: PAGE, ..wanted.clone() }).await
    }

    /// Whether something older was left out, for there was too much.
    pub(in crate::commands) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// What is known of requests that run, as the node is asked.
    fn running(&self) -> Option<String> {
        let pairs = self.lines.iter().map(|(span, lines)| format!("{span}:{lines}"));
        self.with_running.then(|| pairs.collect::<Vec<_>>().join(","))
    }

    fn take(&mut self, logs: Logs) -> Vec<Entry> {
        // A node that was started again with its clock set back counts from before.
        self.last = if logs.last < self.last { 0 } else { logs.last };
        self.is_cut = logs.is_cut;
        let mut entries = Vec::with_capacity(logs.running.len() + logs.records.len());
        for running in logs.running {
            let Some(span) = running["span"].as_str().map(str::to_owned) else { continue };
            let new = running["lines"].as_array().map_or(0, Vec::len);
            if self.lines.len() >= PAGE {
                // Of so many none is followed by a reader.
                self.lines.clear();
            }
            *self.lines.entry(span.clone()).or_default() += new;
            let is_continued = self.open.as_deref() == Some(span.as_str());
            self.open = Some(span);
            entries.push(Entry::Running { running, is_continued });
        }
        for record in logs.records {
            let known_lines = record["span"].as_str().and_then(|span| self.lines.remove(span)).unwrap_or(0);
            self.open = None;
            entries.push(Entry::Ended { record, known_lines });
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn running(span: &str, lines: usize) -> Value {
        json!({"span": span, "lines": vec![json!({"text": "x"}); lines]})
    }

    #[test]
    fn what_was_shown_while_it_ran_is_not_shown_again_at_its_end() {
        let mut shown = Shown::new(true);
        assert_eq!(shown.running().as_deref(), Some(""));
        let logs =
            Logs { records: vec![], running: vec![running("a", 2), running("b", 1)], last: 5, is_cut: false };
        assert_eq!(shown.take(logs).len(), 2);
        let logs = Logs { records: vec![], running: vec![running("b", 3)], last: 5, is_cut: false };
        let entries = shown.take(logs);
        assert!(matches!(&entries[..], [Entry::Running { is_continued: true, .. }]));
        assert_eq!(shown.running().as_deref(), Some("a:2,b:4"));
        let logs = Logs {
            records: vec![json!({"span": "b"}), json!({})],
            running: vec![running("a", 1)],
            last: 7,
            is_cut: false,
        };
        let entries = shown.take(logs);
        let known = |entry: &Entry| match entry {
            Entry::Running { is_continued, .. } => (*is_continued, None),
            Entry::Ended { known_lines, .. } => (false, Some(*known_lines)),
        };
        assert_eq!(
            entries.iter().map(known).collect::<Vec<_>>(),
            [(false, None), (false, Some(4)), (false, Some(0))]
        );
        assert_eq!((shown.running().as_deref(), shown.last), (Some("a:3"), 7));
        assert_eq!(Shown::new(false).running(), None);
    }
}
