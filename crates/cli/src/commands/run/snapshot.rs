// SPDX-License-Identifier: Apache-2.0
//! `--snapshot LABEL`: a program that has started is kept.

use anyhow::Context as _;
use objects::Handle;
use serde_json::{Value, json};

use crate::commands::get::copy;
use crate::node_api::Node;
use crate::output::Output;

/// Where the streams stand in a snapshot.
const STREAMS: std::ops::Range<u64> = 4..6;

/// Points the label at the snapshot, and prints what the program said.
pub(super) async fn keep(
    answer: &Value,
    label: &str,
    node: &mut Node,
    output: &Output,
) -> anyhow::Result<()> {
    let result = answer["result"].as_str().context("the node's answer has no result")?;
    let result: Handle = result.parse().context("the node's answer has a bad result")?;
    let streams = node.entries(result, STREAMS.start, STREAMS.end - STREAMS.start).await?;
    let [stdout, stderr] = streams[..] else { anyhow::bail!("{result} is no snapshot") };
    node.set_label(label, result).await?;
    if output.is_json() {
        return output.json(&json!({"snapshot": result.to_string(), "label": label,
            "memo_hit": answer["memo_hit"], "applied": answer["applied"], "wall_ns": answer["wall_ns"]}));
    }
    copy(stderr, None, node, &mut std::io::stderr().lock(), None).await?;
    copy(stdout, None, node, &mut std::io::stdout().lock(), None).await
}
