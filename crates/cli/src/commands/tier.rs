// SPDX-License-Identifier: Apache-2.0
//! `sinew tier`: how the durable tier fares, waiting for it, and taking one over.

use std::time::Duration;

use clap::Args;
use hyper::Request;
use hyper::body::Bytes;
use serde_json::Value;

use crate::client::whole;
use crate::node_api::Node;
use crate::output::Output;
use crate::progress::Progress;
use crate::quantity::{grouped, human_bytes, human_time, parse_duration};

/// What to do with it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sinew tier              tells what is there, what waits, and what goes wrong\n  \
    sinew tier --flush      waits until all that was put and labelled is there\n  \
    sinew tier --take       has this node go on with a tier that another home owned\n\n\
    A node has one if its file names it: [tier], url = \"s3://BUCKET/PREFIX\", with the bucket below [s3.BUCKET],\n\
    write = true. One home sends to it. A new home that takes it has its labels at once; bytes come when they\n\
    are read. The home that owned it before sends nothing any more."
)]
pub(crate) struct Arguments {
    /// Wait until everything is there that is on the disk now, labels too
    #[arg(long)]
    flush: bool,
    /// Wait for so long at most; as the node's file says unless given
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "flush")]
    patience: Option<Duration>,
    /// Take the tier over from the home that owns it, and learn what is there
    #[arg(long, conflicts_with = "flush")]
    take: bool,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    if arguments.take {
        return take(node, output).await;
    }
    let told = if arguments.flush {
        let mut progress = Progress::time(output, "waiting for the durable tier");
        let told = node.flush_tier(true, arguments.patience.map(|patience| patience.as_secs().max(1))).await;
        progress.end();
        told?
    } else {
        node.json(Request::get("/v1/tier"), whole(Bytes::new())).await?
    };
    if output.is_json() { output.json(&told) } else { output.line(&lines(&told).join("\n")) }
}

async fn take(node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let mut progress = Progress::time(output, "taking the durable tier");
    let told = node.json(Request::post("/v1/tier/take"), whole(Bytes::new())).await;
    progress.end();
    let told = told?;
    if output.is_json() {
        return output.json(&told);
    }
    let number = |field: &str| grouped(told[field].as_u64().unwrap_or_default());
    output.line(&format!(
        "taken: {} labels and {} objects are new here",
        number("labels"),
        number("objects")
    ))?;
    if told["replaced_labels"].as_u64().unwrap_or_default() > 0 {
        let replaced = number("replaced_labels");
        output.line(&format!("{replaced} labels meant something else here: that is now before-take/NAME"))?;
    }
    if told["damaged_packs"].as_u64().unwrap_or_default() > 0 {
        let damaged = number("damaged_packs");
        output.line(&format!("damaged: {damaged} packs there; what is in them does not come"))?;
    }
    Ok(())
}

fn lines(told: &Value) -> Vec<String> {
    let number = |field: &str| told[field].as_u64().unwrap_or_default();
    let objects = grouped(number("objects"));
    let mut lines = vec![format!("{}: {objects} objects", told["url"].as_str().unwrap_or_default())];
    let waiting = number("waiting_bytes") + number("waiting_large");
    let labels = match (told["labels_wait"].as_bool(), number("labels")) {
        (Some(true), _) => "labels wait",
        (_, 0) => "no labels yet",
        _ => "labels are there",
    };
    lines.push(match waiting {
        0 => format!("nothing waits; {labels}"),
        _ => format!(
            "waiting: {} of small objects at most, and {} large ones; {labels}",
            human_bytes(number("waiting_bytes")),
            grouped(number("waiting_large"))
        ),
    });
    let sent = (grouped(number("sent")), human_bytes(number("sent_bytes")));
    let read = (grouped(number("reads")), human_bytes(number("read_bytes")));
    lines.push(format!(
        "since the node began: sent {} objects, {}; {} reads, {}",
        sent.0, sent.1, read.0, read.1
    ));
    let latency = human_time(Duration::from_nanos(number("latency_nanos")));
    lines.push(format!(
        "an answer takes {latency}, and {} come in a second",
        human_bytes(number("bytes_per_second"))
    ));
    if number("gaps") > 0 {
        lines.push(format!(
            "{} objects that labels name are nowhere: `sinew fsck` names them",
            number("gaps")
        ));
    }
    if let Some(trouble) = told["trouble"].as_str() {
        let what = if told["refused"].as_bool() == Some(true) { "nothing is sent" } else { "going wrong" };
        lines.push(format!("{what}: {trouble}"));
    }
    lines
}
