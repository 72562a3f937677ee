// SPDX-License-Identifier: Apache-2.0
//! `sinew get`: an object as it is, to stdout, to a file, or to a bucket.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Args;
use http_body_util::BodyExt;
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use objects::Handle;
use serde_json::json;

use crate::client::whole;
use crate::directory::unreadable;
use crate::exit::{Code, Stop};
use crate::node_api::Node;
use crate::output::Output;
use crate::progress::Progress;
use crate::quantity::{grouped, human_bytes};

/// Entries of a tree that are asked for at a time.
pub(crate) const PAGE_ENTRIES: u64 = 10_000;

/// What to get, and where to.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sinew get notes --to notes.txt\n  sinew get report --range ..100\n  \
    sinew get report --to s3://results/july.csv --content-type text/csv\n  sinew get site --to s3://results/site\n\n\
    To a bucket the node writes, with keys that only it knows; its file has to name the bucket, with write = true.\n\
    A directory becomes an object for each file. What is there already is not sent again.")]
pub(crate) struct Arguments {
    /// A handle, or the name of a label
    #[arg(value_name = "HANDLE|LABEL")]
    object: String,
    /// Only these bytes (or entries), like 0..100, 100.. or ..100
    #[arg(long, value_name = "A..B", value_parser = parse_range)]
    range: Option<PartialRange>,
    /// Write to this file, which appears only when it is whole; or to a bucket
    #[arg(long, value_name = "FILE|s3://BUCKET/KEY")]
    to: Option<PathBuf>,
    /// What a bucket is told that it is
    #[arg(long, value_name = "TYPE", requires = "to")]
    content_type: Option<String>,
}

/// A range whose ends may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartialRange {
    begin: u64,
    end: Option<u64>,
}

impl PartialRange {
    /// The range within an object of `size`.
    pub(crate) fn within(&self, size: u64) -> Result<Range<u64>, Stop> {
        let end = self.end.unwrap_or(size).min(size);
        if self.begin <= end {
            return Ok(self.begin..end);
        }
        Err(Stop::new(
            Code::Usage,
            format!("the range begins at {}, and the object ends at {size}", self.begin),
        ))
    }
}

/// Reads `a..b`, `a..`, `..b`.
pub(crate) fn parse_range(text: &str) -> Result<PartialRange, String> {
    let wrong = || "a range is written 0..100, 100.. or ..100".to_owned();
    let (begin, end) = text.split_once("..").ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let begin = if begin.is_empty() { 0 } else { number(begin)? };
    let end = if end.is_empty() { None } else { Some(number(end)?) };
    if end.is_some_and(|end| end < begin) {
        return Err("the range ends before it begins".to_owned());
    }
    Ok(PartialRange { begin, end })
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let handle = node.resolve(&arguments.object).await?;
    if !handle.is_value() {
        return Err(not_data(handle).into());
    }
    if let Some(url) = arguments.to.as_deref().and_then(bucket_url) {
        return to_bucket(handle, url, arguments, node, output).await;
    }
    if arguments.content_type.is_some() {
        return Err(Stop::new(Code::Usage, "--content-type is for buckets: --to s3://BUCKET/KEY").into());
    }
    match &arguments.to {
        None if output.is_json() && handle.names_tree() => {
            let range =
                arguments.range.as_ref().map_or(Ok(0..handle.size()), |range| range.within(handle.size()))?;
            for_entries(handle, range, node, |index, entry| {
                output.json(&json!({"index": index, "handle": entry.to_string()}))
            })
            .await
        }
        None => copy(handle, arguments.range.as_ref(), node, &mut io::stdout().lock(), None).await,
        Some(path) => to_file(handle, arguments, path, node, output).await,
    }
}

/// Why a computation cannot be read.
pub(crate) fn not_data(handle: Handle) -> Stop {
    let suggestion = format!("sinew eval {handle}");
    Stop::new(Code::Usage, format!("{handle} is a computation, not data")).suggest(suggestion)
}

/// The URL of an object in a bucket, if that is what a path is.
fn bucket_url(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.get(..5).is_some_and(|begin| begin.eq_ignore_ascii_case("s3://")))
}

async fn to_bucket(
    handle: Handle,
    url: &str,
    arguments: &Arguments,
    node: &mut Node,
    output: &Output,
) -> anyhow::Result<()> {
    if arguments.range.is_some() {
        return Err(Stop::new(Code::Usage, "a bucket is given all of an object, and no --range").into());
    }
    let mut progress = Progress::time(output, &format!("writing to {url}"));
    let mut wish = json!({"object": handle.to_string(), "url": url});
    if let Some(content_type) = &arguments.content_type {
        wish["content_type"] = json!(content_type);
    }
    let request = Request::post("/v1/export").header(CONTENT_TYPE, "application/json");
    let told = node.json(request, whole(wish.to_string())).await?;
    progress.end();
    if output.is_json() {
        return output.json(&told);
    }
    let number = |field: &str| told[field].as_u64().unwrap_or_default();
    let counted = |count: &str, bytes: &str| match number(count) {
        1 => format!("1 object, {}", human_bytes(number(bytes))),
        count => format!("{} objects, {}", grouped(count), human_bytes(number(bytes))),
    };
    let mut line = format!("written: {}", counted("written", "written_bytes"));
    if number("known") > 0 {
        line += &format!("; there already: {}", counted("known", "known_bytes"));
    }
    output.line(&line)
}

async fn to_file(
    handle: Handle,
    arguments: &Arguments,
    path: &Path,
    node: &mut Node,
    output: &Output,
) -> anyhow::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let mut file = File::create(&partial).map_err(|error| unreadable(&partial, error))?;
    let total = (!handle.names_tree() && arguments.range.is_none()).then(|| handle.size());
    let progress = Progress::bytes(output, &path.display().to_string(), total, false);
    let copied = copy(handle, arguments.range.as_ref(), node, &mut file, Some((progress, output))).await;
    let renamed =
        copied.and_then(|()| std::fs::rename(&partial, path).map_err(|error| unreadable(path, error)));
    if renamed.is_err() {
        // The reason is what matters; a file that is left over is only ugly.
        let _ = std::fs::remove_file(&partial);
    }
    renamed
}

/// Writes a blob's bytes, or a tree's handles line by line.
pub(crate) async fn copy<W: Write + ?Sized>(
    handle: Handle,
    range: Option<&PartialRange>,
    node: &mut Node,
    target: &mut W,
    mut progress: Option<(Progress, &Output)>,
) -> anyhow::Result<()> {
    let range = range.map_or(Ok(0..handle.size()), |range| range.within(handle.size()))?;
    if handle.names_tree() {
        for_entries(handle, range, node, |_, entry| Ok(writeln!(target, "{entry}")?)).await?;
        return Ok(target.flush()?);
    }
    if let Some(literal) = handle.literal_bytes() {
        // The range lies within at most 30 bytes.
        target.write_all(&literal[range.start as usize..range.end as usize])?;
        return Ok(target.flush()?);
    }
    let wanted = (range != (0..handle.size())).then_some(range.clone());
    if range.is_empty() {
        return Ok(());
    }
    let mut body = node.read(handle, wanted).await?;
    while let Some(frame) = body.frame().await {
        let Ok(bytes) = frame?.into_data() else { continue };
        target.write_all(&bytes)?;
        if let Some((progress, output)) = &mut progress {
            progress.advance(bytes.len() as u64, output);
        }
    }
    Ok(target.flush()?)
}

/// Visits a tree's entries, page by page.
pub(crate) async fn for_entries(
    tree: Handle,
    range: Range<u64>,
    node: &mut Node,
    mut visit: impl FnMut(u64, Handle) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let page = node.entries(tree, at, PAGE_ENTRIES.min(range.end - at)).await?;
        if page.is_empty() {
            break;
        }
        for entry in page {
            visit(at, entry)?;
            at += 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
