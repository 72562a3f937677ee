// SPDX-License-Identifier: Apache-2.0
//! `sinew gc`: has the node take away what nobody needs.

use std::time::Duration;

use clap::Args;
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use serde_json::json;

use crate::client::whole;
use crate::node_api::Node;
use crate::output::Output;
use crate::progress::Progress;
use crate::quantity::{grouped, human_bytes, parse_duration};

/// What to keep.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sinew gc --dry-run      tells what would go\n  sinew gc                takes it away\n  \
    sinew gc --keep 1h      also what was put or made since yesterday\n\n\
    Kept is what a label names (every version of a function has one), and what was put, made or asked for\n\
    within --keep, with all that these name. A node also does this by itself, every six hours."
)]
pub(crate) struct Arguments {
    /// Keep what is younger, named or not: 1h at least; a day unless the node's file says otherwise
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    keep: Option<Duration>,
    /// Only tell what would go
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let what = if arguments.dry_run { "looking for what nobody needs" } else { "collecting" };
    let mut progress = Progress::time(output, what);
    let body = json!({"kept_s": arguments.keep.map(|keep| keep.as_secs()), "dry_run": arguments.dry_run})
        .to_string();
    let request = Request::post("/v1/collect").header(CONTENT_TYPE, "application/json");
    let told = node.json(request, whole(body)).await?;
    progress.end();
    if output.is_json() {
        return output.json(&told);
    }
    let number = |field: &str| told[field].as_u64().unwrap_or_default();
    let counted = |objects: &str, bytes: &str| {
        format!("{} objects, {}", grouped(number(objects)), human_bytes(number(bytes)))
    };
    let kept = counted("kept_objects", "kept_bytes");
    let gone = counted("objects", "bytes");
    if arguments.dry_run {
        return output.line(&format!("would go: {gone}\nwould stay: {kept}"));
    }
    output.line(&format!(
        "went: {gone} ({} less on disk), and {} remembered results\nstay: {kept}",
        human_bytes(number("freed_bytes")),
        grouped(number("relations")),
    ))
}
