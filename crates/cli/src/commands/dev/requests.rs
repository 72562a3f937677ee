// SPDX-License-Identifier: Apache-2.0
//! Requests to functions, and what they printed, as they come.

use std::time::Duration;

use serde_json::{Value, json};

use super::session::places;
use crate::address::Address;
use crate::commands::logs::told;
use crate::node_api::Node;
use crate::output::Output;

/// How often the node is asked.
const POLL: Duration = Duration::from_millis(100);
/// How long a node that does not answer is left alone.
const PAUSE: Duration = Duration::from_secs(2);
/// Records of one answer.
const PAGE: usize = 1000;

/// The node's journal, from a moment on.
pub(super) struct Requests {
    node: Node,
    last: u64,
}

impl Requests {
    pub(super) async fn since_now(address: Address) -> anyhow::Result<Self> {
        let mut node = Node::new(address);
        let (_, last) = node.calls(None, None, 0, 1).await?;
        Ok(Self { node, last })
    }

    /// Shows what comes, for as long as there is somebody to show it to.
    pub(super) async fn follow(&mut self, output: &Output) -> anyhow::Result<()> {
        loop {
            tokio::time::sleep(POLL).await;
            let Ok((records, now)) = self.node.calls(None, None, self.last, PAGE).await else {
                // What is being deployed says better what is wrong with the node.
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            for record in &records {
                show(record, output)?;
            }
            // A node that was started again counts from the beginning.
            self.last = if now < self.last { 0 } else { now };
        }
    }
}

fn show(record: &Value, output: &Output) -> anyhow::Result<()> {
    if output.is_json() {
        return output.json(&json!({"event": "request", "request": record}));
    }
    let mut record = record.clone();
    if let Some(failure) = record["failure"].as_str() {
        record["failure"] = places(failure).into();
    }
    output.line(&told(&record))
}
