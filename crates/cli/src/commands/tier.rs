// SPDX-License-Identifier: Apache-2.0
//! `sinew tier`: how the durable tier fares, waiting for it, and taking one over.

use std::time::Duration;

use clap::Args;
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use serde_json::{Value, json};

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
    sinew tier --take       has this node go on with a tier that another home owned\n  \
    sinew tier --collect --dry-run      tells what would go there since nobody needs it; without --dry-run it goes\n\n\
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
    /// Take away there what no label names, what this home has not, and what is old enough; `sinew gc` does so too
    #[arg(long, conflicts_with_all = ["flush", "take"])]
    collect: bool,
    /// Keep there what was put within this time, named or not: 1h at least; as the node's file says unless given
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "collect")]
    keep: Option<Duration>,
    /// Only tell what would go
    #[arg(long, requires = "collect")]
    dry_run: bool,
    /// Take the tier over from the home that owns it, and learn what is there
    #[arg(long, conflicts_with = "flush")]
    take: bool,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    if arguments.take {
        return take(node, output).await;
    }
    if arguments.collect {
        return collect(arguments, node, output).await;
    }
    let told = if arguments.flush {
        let mut progress = Progress::time(output, "waiting for the durable tier");
        let told = node.flush_tier(arguments.patience.map(|patience| patience.as_secs().max(1))).await;
        progress.end();
        told?
    } else {
        node.json(Request::get("/v1/tier"), whole(Bytes::new())).await?
    };
    if output.is_json() { output.json(&told) } else { output.line(&lines(&told).join("\n")) }
}

async fn collect(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let mut progress = Progress::time(output, "looking in the durable tier for what nobody needs");
    let body = json!({"kept_s": arguments.keep.map(|keep| keep.as_secs()), "dry_run": arguments.dry_run});
    let request = Request::post("/v1/tier/collect").header(CONTENT_TYPE, "application/json");
    let told = node.json(request, whole(body.to_string())).await;
    progress.end();
    let told = told?;
    if output.is_json() { output.json(&told) } else { output.line(&collected(&told).join("\n")) }
}

/// What went in the tier, in words.
pub(crate) fn collected(told: &Value) -> Vec<String> {
    if let Some(why) = told["error"].as_str() {
        return vec![format!("nothing went in the durable tier: {why}")];
    }
    let number = |field: &str| told[field].as_u64().unwrap_or_default();
    let (objects, bytes) = (grouped(number("objects")), human_bytes(number("bytes")));
    let went = if told["dry_run"] == true { "would go" } else { "went" };
    let kept = grouped(number("kept_objects") + number("idle_objects"));
    let mut lines = vec![format!("in the durable tier {went}: {objects} objects, {bytes}; {kept} stay")];
    if number("packs") > 0 {
        let (packs, moved) = (grouped(number("packs")), human_bytes(number("moved_bytes")));
        lines.push(format!("of {packs} packs there that go, {moved} are needed and written anew"));
    }
    if number("damaged_packs") > 0 {
        let damaged = grouped(number("damaged_packs"));
        lines.push(format!("damaged: {damaged} packs there, which stay as they are"));
    }
    lines
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
    if told["absent_objects"].as_u64().unwrap_or_default() > 0 {
        let absent = number("absent_objects");
        output.line(&format!(
            "{absent} objects that this home had sent are not there any more: those that are here are sent again"
        ))?;
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
    if number("aside") > 0 {
        let aside = grouped(number("aside"));
        lines.push(format!("{aside} large ones were not taken, and are tried again; others go before them"));
    }
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
    if let Some(collection) = told["collection"].as_object() {
        let of = |field: &str| grouped(collection[field].as_u64().unwrap_or_default());
        lines.push(match collection["sweeping"].as_bool() {
            Some(true) => {
                format!("a collection takes away there what nobody needs: {} of {}", of("done"), of("all"))
            }
            _ => "a collection looks there for what nobody needs".to_owned(),
        });
    }
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
