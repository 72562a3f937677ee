// SPDX-License-Identifier: Apache-2.0
//! `sinew ls`: a tree's entries, one a line; or what is stored.

mod inventory;

use clap::Args;
use objects::Handle;
use serde_json::json;

use super::get::{for_entries, not_data};
use crate::node_api::Node;
use crate::output::{Output, entry_row};

/// What to list.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sinew ls docs      the entries of the tree that a label names\n  sinew ls           what is stored, with totals\n  \
    sinew ls --largest --limit 20      what takes the most room\n  sinew ls --kind tree --min-bytes 1MiB\n  \
    sinew ls -o json      all that is stored, a line for each\n\n\
    Of what is stored is told where it is (memory: and not on the disk; tier: in the durable tier only; dropped: it is\n\
    made again when somebody reads it), and whether somebody was promised that it stays. It takes the owner's socket,\n\
    or an admin's key."
)]
pub(crate) struct Arguments {
    /// A handle, or the name of a label; without one, what is stored is listed
    #[arg(value_name = "HANDLE|LABEL")]
    object: Option<String>,
    #[command(flatten)]
    stored: inventory::Wish,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let Some(object) = &arguments.object else {
        return inventory::run(&arguments.stored, node, output).await;
    };
    let handle = node.resolve(object).await?;
    if !handle.is_value() {
        return Err(not_data(handle).into());
    }
    list(handle, node, output).await
}

/// A tree's entries; anything else is listed as itself.
pub(crate) async fn list(handle: Handle, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let mut entries = Vec::new();
    if handle.names_tree() {
        let collect = |_, entry| {
            entries.push(entry);
            Ok(())
        };
        for_entries(handle, 0..handle.size(), node, collect).await?;
    } else {
        entries.push(handle);
    }
    let numbered = (0..).zip(entries);
    if output.is_json() {
        for (index, entry) in numbered {
            let kind = entry.kind().name();
            let line =
                json!({"index": index, "kind": kind, "size": entry.size(), "handle": entry.to_string()});
            output.json(&line)?;
        }
        return Ok(());
    }
    let rows: Vec<_> = numbered.map(|(index, entry)| entry_row(index, entry)).collect();
    output.table(&["INDEX", "KIND", "SIZE", "HANDLE"], &[0, 2], &rows)
}
