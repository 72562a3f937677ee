// SPDX-License-Identifier: Apache-2.0
//! Requests to functions, and what they print, as they come.

use std::time::Duration;

use serde_json::json;

use super::session::places;
use crate::address::Address;
use crate::commands::logs::{Entry, Shown, told};
use crate::function_api::LogsWanted;
use crate::node_api::Node;
use crate::output::Output;

/// How often the node is asked.
const POLL: Duration = Duration::from_millis(100);
/// How long a node that does not answer is left alone.
const PAUSE: Duration = Duration::from_secs(2);

/// The node's journal, from a moment on.
pub(super) struct Requests {
    node: Node,
    shown: Shown,
}

impl Requests {
    pub(super) async fn since_now(address: Address) -> anyhow::Result<Self> {
        let mut node = Node::new(address);
        let shown = Shown::since_now(&mut node).await?;
        Ok(Self { node, shown })
    }

    /// Shows what comes, for as long as there is somebody to show it to.
    pub(super) async fn follow(&mut self, output: &Output) -> anyhow::Result<()> {
        loop {
            tokio::time::sleep(POLL).await;
            let Ok(entries) = self.shown.more(&mut self.node, &LogsWanted::default()).await else {
                // What is being deployed says better what is wrong with the node.
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            for entry in entries {
                show(entry, output)?;
            }
        }
    }
}

fn show(mut entry: Entry, output: &Output) -> anyhow::Result<()> {
    match &mut entry {
        Entry::Ended { record, .. } if output.is_json() => {
            return output.json(&json!({"event": "request", "request": record}));
        }
        Entry::Running { running, .. } if output.is_json() => {
            return output.json(&json!({"event": "output", "request": running}));
        }
        Entry::Ended { record, .. } => {
            if let Some(failure) = record["failure"].as_str() {
                record["failure"] = places(failure).into();
            }
        }
        Entry::Running { .. } => {}
    }
    output.line(&told(&entry, false))
}
