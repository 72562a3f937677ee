// SPDX-License-Identifier: Apache-2.0
//! `sinew label`: lists, reads, sets and deletes names of handles.

use clap::Args;
use objects::Handle;
use serde_json::json;

use crate::exit::{Code, Stop};
use crate::node_api::{Level, Node};
use crate::output::Output;

/// Which label, and what about it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sinew label                  lists all\n  \
    sinew label corpus           prints its handle\n  sinew label corpus tree-…    sets it\n  \
    sinew label corpus --delete  removes the name, not the data")]
pub(crate) struct Arguments {
    /// The label's name
    name: Option<String>,
    /// What it shall point at: a handle, or another label
    #[arg(conflicts_with = "delete")]
    handle: Option<String>,
    /// Answer when it is kept so far, with all that it names
    #[arg(long, value_name = "LEVEL", value_enum, requires = "handle")]
    until: Option<Level>,
    /// Remove the label
    #[arg(long, requires = "name")]
    delete: bool,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let Some(name) = &arguments.name else { return list(node, output).await };
    if arguments.delete {
        node.remove_label(name).await?;
        return if output.is_json() { output.json(&json!({"name": name, "deleted": true})) } else { Ok(()) };
    }
    let handle = match &arguments.handle {
        Some(target) => {
            let handle = node.resolve(target).await?;
            node.until = arguments.until;
            node.set_label(name, handle).await?;
            handle
        }
        None if name.parse::<Handle>().is_ok() => {
            return Err(Stop::new(Code::Usage, "that is a handle, not a label's name")
                .suggest(format!("sinew label NAME {name}"))
                .into());
        }
        None => node.resolve(name).await?,
    };
    if output.is_json() {
        return output.json(&json!({"name": name, "handle": handle.to_string()}));
    }
    output.line(&handle.to_string())
}

async fn list(node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let labels = node.labels().await?;
    if output.is_json() {
        for (name, handle) in labels {
            output.json(&json!({"name": name, "handle": handle.to_string()}))?;
        }
        return Ok(());
    }
    if labels.is_empty() && output.is_watched() {
        output.say("there are no labels; `sinew label NAME HANDLE` makes one");
        return Ok(());
    }
    let rows: Vec<_> = labels.into_iter().map(|(name, handle)| vec![name, handle.to_string()]).collect();
    output.table(&["NAME", "HANDLE"], &[], &rows)
}
