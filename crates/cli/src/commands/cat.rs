// SPDX-License-Identifier: Apache-2.0
//! `sinew cat`: a blob as it is; a failure as a sentence.

use clap::Args;
use objects::{Failure, Handle, TreeView};

use super::get::{PartialRange, copy, not_data, parse_range};
use crate::exit::{Code, Stop};
use crate::node_api::Node;
use crate::output::Output;

/// The most bytes of a failure's detail that are printed.
const DETAIL_BYTES_MAX: usize = 64 << 10;

/// What to print.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Handles, or names of labels
    #[arg(value_name = "HANDLE|LABEL", required = true)]
    objects: Vec<String>,
    /// Only these bytes, like 0..100, 100.. or ..100
    #[arg(long, value_name = "A..B", value_parser = parse_range)]
    range: Option<PartialRange>,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    for object in &arguments.objects {
        let handle = node.resolve(object).await?;
        if handle.is_failure() {
            output.line(&failure_text(handle, node).await?)?;
        } else if !handle.is_value() {
            return Err(not_data(handle).into());
        } else if handle.names_tree() {
            let stop = Stop::new(Code::Usage, format!("{handle} is a tree"));
            return Err(stop.suggest(format!("sinew ls {handle}")).into());
        } else {
            copy(handle, arguments.range.as_ref(), node, &mut std::io::stdout().lock(), None).await?;
        }
    }
    Ok(())
}

/// What a failure says.
pub(crate) async fn failure_text(handle: Handle, node: &mut Node) -> anyhow::Result<String> {
    let entries = node.read_whole(handle, 3 * Handle::LEN).await?;
    let failure = Failure::from_tree(TreeView::from_bytes(&entries)?)?;
    let detail = node.read_whole(failure.detail, DETAIL_BYTES_MAX).await?;
    let detail = String::from_utf8_lossy(&detail);
    Ok(format!("failure {}: {detail}\n  in {}", failure.code, failure.application))
}
