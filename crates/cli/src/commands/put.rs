// SPDX-License-Identifier: Apache-2.0
//! `sinew put`: files, stdin, directories, files cut into shards, keys with values as a
//! search tree; and names of data that stays where it is.

mod keys;
mod lazy;

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use clap::Args;
use objects::{Handle, TreeBuilder};
use serde_json::json;

use crate::directory::unreadable;
use crate::exit::{Code, Stop};
use crate::node_api::{Level, Node};
use crate::output::Output;
use crate::progress::Progress;
use crate::quantity::parse_bytes;
use crate::shards::Shards;
use crate::upload::Uplink;

/// A shard is held in memory.
const SHARD_BYTES_MAX: u64 = 1 << 30;

/// What to store, and how.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sinew put words.txt\n  echo hello | sinew put\n  \
    sinew put --tree src --label source\n  sinew put --until tier words.txt      answers when a bucket has it too\n  sinew put --shards 4MiB corpus.txt --label corpus\n  \
    LC_ALL=C sort capitals.tsv | sinew put --keys 256 --label capitals\n  \
    sinew put --lazy https://example.com/words.txt --digest sha256:9f86…")]
pub(crate) struct Arguments {
    /// Files; none, or -, is stdin
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Put directories as trees: a blob of names, then the children
    #[arg(long, conflicts_with = "shards")]
    tree: bool,
    /// Cut a file at line ends into blobs of up to this size, and make a tree of them
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    shards: Option<u64>,
    /// Make a search tree of sorted lines, each a key, a tab and a value: nodes have up to
    /// so many children, and looking a key up reads only the nodes on its path
    #[arg(long, value_name = "ARITY", value_parser = keys::parse_arity, conflicts_with_all = ["shards", "tree"])]
    keys: Option<u32>,
    #[command(flatten)]
    lazy: lazy::Lazy,
    /// Point this label at the (only) handle
    #[arg(long, value_name = "NAME")]
    label: Option<String>,
    /// Answer when it is kept so far: what the node's file says, `disk` unless it does
    #[arg(long, value_name = "LEVEL", value_enum)]
    until: Option<Level>,
    /// Tell the progress, also where stderr is no terminal
    #[arg(long)]
    progress: bool,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    node.until = arguments.until;
    if let Some(url) = arguments.lazy.urls.first() {
        let handle = lazy::put(&arguments.lazy, node, output).await?;
        if let Some(label) = &arguments.label {
            node.set_label(label, handle).await?;
        } else {
            node.wait_until(handle).await?;
        }
        return match output.is_json() {
            true => output.json(&json!({"url": url, "handle": handle.to_string()})),
            false => output.line(&handle.to_string()),
        };
    }
    let stdin = [PathBuf::from("-")];
    let files = if arguments.files.is_empty() { &stdin[..] } else { &arguments.files[..] };
    if arguments.label.is_some() && files.len() > 1 {
        return Err(Stop::new(Code::Usage, "--label names one handle, and there are several files").into());
    }
    for file in files {
        let handle = put(arguments, file, node, output).await?;
        if let Some(label) = &arguments.label {
            node.set_label(label, handle).await?;
        } else {
            node.wait_until(handle).await?;
        }
        if output.is_json() {
            output.json(&json!({
                "path": file.to_string_lossy(), "handle": handle.to_string(), "size": handle.size(),
            }))?;
        } else if files.len() > 1 {
            output.line(&format!("{handle}  {}", file.display()))?;
        } else {
            output.line(&handle.to_string())?;
        }
    }
    Ok(())
}

async fn put(arguments: &Arguments, file: &Path, node: &mut Node, output: &Output) -> anyhow::Result<Handle> {
    let is_stdin = file == Path::new("-");
    let total =
        if arguments.tree || is_stdin { None } else { std::fs::metadata(file).ok().map(|file| file.len()) };
    let progress = Progress::bytes(output, &file.display().to_string(), total, arguments.progress);
    let mut uplink = Uplink::new(node, output, progress);
    let handle = match (arguments.shards, arguments.keys, arguments.tree) {
        (_, Some(arity), _) => keys::put(&mut uplink, file, reader(file, is_stdin)?, arity).await?,
        (Some(size), ..) => shards(&mut uplink, file, is_stdin, size).await?,
        (None, None, true) if is_stdin => {
            return Err(Stop::new(Code::Usage, "--tree needs a directory")
                .suggest("sinew put --tree DIR")
                .into());
        }
        (None, None, true) => uplink.directory(file).await?,
        (None, None, false) if is_stdin => uplink.stream(stdin()?, None).await?,
        (None, None, false) => uplink.file(file).await?,
    };
    uplink.flush().await?;
    Ok(handle)
}

/// Stdin as a file: reads happen on a blocking thread, and Ctrl-C does not wait for them.
pub(crate) fn stdin() -> io::Result<tokio::fs::File> {
    let stdin = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(tokio::fs::File::from_std(File::from(stdin)))
}

fn reader(file: &Path, is_stdin: bool) -> anyhow::Result<Box<dyn io::BufRead + Send>> {
    Ok(match is_stdin {
        true => Box::new(io::BufReader::new(io::stdin())),
        false => Box::new(io::BufReader::new(File::open(file).map_err(|error| unreadable(file, error))?)),
    })
}

async fn shards(uplink: &mut Uplink<'_>, file: &Path, is_stdin: bool, size: u64) -> anyhow::Result<Handle> {
    if size == 0 || size > SHARD_BYTES_MAX {
        return Err(Stop::new(Code::Usage, "a shard has 1 byte to 1GiB").into());
    }
    let reader = reader(file, is_stdin)?;
    // At most 2^30: it fits.
    let mut shards = Shards::new(reader, size as usize);
    let mut tree = TreeBuilder::new();
    loop {
        // Reading stdin may take for ever; Ctrl-C shall not wait for it.
        let (rest, batch) = tokio::task::spawn_blocking(move || {
            let batch = shards.batch();
            (shards, batch)
        })
        .await?;
        shards = rest;
        let batch = batch.map_err(|error| unreadable(file, error))?;
        if batch.is_empty() {
            return uplink.tree(&tree).await;
        }
        for shard in batch {
            tree.push(uplink.blob(shard).await?);
        }
    }
}
