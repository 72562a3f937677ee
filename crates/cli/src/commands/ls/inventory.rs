// SPDX-License-Identifier: Apache-2.0
//! `sinew ls` without a handle: what the node has stored.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use hyper::Request;
use hyper::body::Bytes;
use objects::Handle;
use serde_json::Value;

use crate::client::whole;
use crate::node_api::Node;
use crate::output::Output;
use crate::progress::Progress;
use crate::quantity::{grouped, human_bytes, parse_bytes};

/// Objects that people are shown unless they ask for more.
const SHOWN: usize = 100;
/// Objects that the node is asked for at once, as many as it gives.
const PAGE: usize = 10_000;

/// Which of what is stored to list.
#[derive(Debug, Args)]
pub(crate) struct Wish {
    /// Of what is stored: only what comes behind this one
    #[arg(long, value_name = "HANDLE", conflicts_with_all = ["object", "largest"])]
    after: Option<Handle>,
    /// At most so many; 100 unless the output is JSON
    #[arg(long, value_name = "NUMBER", conflicts_with = "object")]
    limit: Option<NonZeroUsize>,
    /// Only blobs, or only trees
    #[arg(long, conflicts_with = "object")]
    kind: Option<Kind>,
    /// Only what has so many bytes
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, conflicts_with = "object")]
    min_bytes: Option<u64>,
    /// The largest ones, the largest first, instead of those whose handles are the first
    #[arg(long, conflicts_with = "object")]
    largest: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Blob,
    Tree,
}

/// Objects and bytes, by kind and place.
type Totals = BTreeMap<(String, String), (u64, u64)>;

/// All that is sought, page by page.
struct Pages<'a> {
    node: &'a mut Node,
    wish: &'a Wish,
    next: Option<String>,
    has_ended: bool,
}

impl<'a> Pages<'a> {
    fn new(node: &'a mut Node, wish: &'a Wish) -> Self {
        let next = wish.after.map(|after| after.to_string());
        Self { node, wish, next, has_ended: false }
    }

    /// Some more objects, at most so many; `None`: there are no more.
    async fn more(&mut self, most: usize) -> anyhow::Result<Option<Vec<Value>>> {
        if self.has_ended {
            return Ok(None);
        }
        let Wish { kind, min_bytes, .. } = self.wish;
        let kind = kind.map_or("", |kind| if kind == Kind::Blob { "&kind=blob" } else { "&kind=tree" });
        let after = self.next.as_ref().map(|next| format!("&after={next}")).unwrap_or_default();
        let (limit, min_bytes) = (most.min(PAGE), min_bytes.unwrap_or_default());
        let path = format!("/v1/objects?limit={limit}&min_bytes={min_bytes}{kind}{after}");
        let mut page = self.node.json(Request::get(path), whole(Bytes::new())).await?;
        self.next = page["next"].as_str().map(str::to_owned);
        self.has_ended = self.next.is_none();
        let Value::Array(objects) = page["objects"].take() else {
            anyhow::bail!("the node's answer has no objects");
        };
        Ok(Some(objects))
    }
}

fn bytes_of(object: &Value) -> u64 {
    object["bytes"].as_u64().unwrap_or_default()
}

pub(crate) async fn run(wish: &Wish, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let mut pages = Pages::new(node, wish);
    if output.is_json() && !wish.largest {
        return stream(&mut pages, output).await;
    }
    let limit = wish.limit.map_or(SHOWN, NonZeroUsize::get);
    let mut progress = Progress::time(output, "looking through what is stored");
    let (mut shown, mut last, mut totals) = (Vec::new(), None, Totals::new());
    let mut largest = BTreeMap::new();
    while let Some(objects) = pages.more(PAGE).await? {
        for object in objects {
            count(&mut totals, &object);
            if wish.largest {
                let handle = object["handle"].as_str().context("an object has no handle")?;
                largest.insert((bytes_of(&object), handle.to_owned()), object);
                if largest.len() > limit {
                    largest.pop_first();
                }
            } else if shown.len() < limit {
                last = object["handle"].as_str().map(str::to_owned);
                shown.push(object);
            }
        }
    }
    progress.end();
    shown.extend(largest.into_values().rev());
    if output.is_json() {
        return shown.iter().try_for_each(|object| output.json(object));
    }
    tell(&shown, &totals, output)?;
    let all: u64 = totals.values().map(|(objects, _)| objects).sum();
    if all > shown.len() as u64 {
        let (some, all) = (grouped(shown.len() as u64), grouped(all));
        output.say(&match last {
            Some(last) => format!("{some} of {all} are shown; the next ones: --after {last}"),
            None => format!("the {some} largest of {all} are shown; --limit NUMBER shows more"),
        });
    }
    Ok(())
}

/// A line for each, as they come.
async fn stream(pages: &mut Pages<'_>, output: &Output) -> anyhow::Result<()> {
    let mut left = pages.wish.limit.map_or(usize::MAX, NonZeroUsize::get);
    while left > 0
        && let Some(objects) = pages.more(left).await?
    {
        left -= objects.len();
        objects.iter().try_for_each(|object| output.json(object))?;
    }
    Ok(())
}

fn count(totals: &mut Totals, object: &Value) {
    let text = |name: &str| object[name].as_str().unwrap_or("-").to_owned();
    let (objects, bytes) = totals.entry((text("kind"), text("place"))).or_default();
    *objects += 1;
    *bytes += bytes_of(object);
}

/// The objects, and behind them how many there are in all.
fn tell(shown: &[Value], totals: &Totals, output: &Output) -> anyhow::Result<()> {
    if shown.is_empty() {
        return output.line("nothing is stored");
    }
    let rows: Vec<_> = shown.iter().map(row).collect();
    output.table(&["HANDLE", "KIND", "BYTES", "PLACE", "PROMISED"], &[2], &rows)?;
    let counted = |objects: u64, bytes: u64| [grouped(objects), human_bytes(bytes)];
    let rows = totals.iter().map(|((kind, place), (objects, bytes))| {
        [kind.clone(), place.clone()].into_iter().chain(counted(*objects, *bytes)).collect()
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    let sum = totals.values().fold((0, 0), |sum, (objects, bytes)| (sum.0 + objects, sum.1 + bytes));
    rows.push(["all".to_owned(), String::new()].into_iter().chain(counted(sum.0, sum.1)).collect());
    output.line("")?;
    output.table(&["KIND", "PLACE", "OBJECTS", "BYTES"], &[2, 3], &rows)
}

fn row(object: &Value) -> Vec<String> {
    let text = |name: &str| object[name].as_str().unwrap_or("-").to_owned();
    let place = match (text("place"), object["tiered"] == true) {
        (place, true) if place != "tier" => format!("{place}, tier"),
        (place, _) => place,
    };
    let promised = if object["promised"] == true { "yes" } else { "no" };
    vec![text("handle"), text("kind"), human_bytes(bytes_of(object)), place, promised.to_owned()]
}
