// SPDX-License-Identifier: Apache-2.0
//! `sinew rollback`: lets an earlier version of a function serve again.

use clap::Args;
use serde_json::json;

use super::deploy::url_of;
use crate::node_api::Node;
use crate::output::Output;

/// Which function, and which version.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sinew rollback hello         to the version before\n  \
    sinew rollback hello --to 3  to version 3; `sinew describe hello` lists them")]
pub(crate) struct Arguments {
    /// The function
    name: String,
    /// The version that shall serve [default: the one before]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    to: Option<u64>,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let name = &arguments.name;
    let deployed = node.roll_back(name, arguments.to).await?;
    let url = url_of(name, node).await;
    if output.is_json() {
        return output.json(&json!({
            "name": name, "version": deployed.version, "deployment": deployed.deployment,
            "changed": deployed.changed, "url": url,
        }));
    }
    let what = if deployed.changed { "rolled back" } else { "unchanged" };
    output.line(&format!("{name}  version {}  {what}  {url}", deployed.version))
}
