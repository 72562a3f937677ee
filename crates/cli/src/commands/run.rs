// SPDX-License-Identifier: Apache-2.0
//! `sinew run`: runs a whole program (`docs/spec/programs.md`) as if it were one of
//! this machine's: its streams, its exit code, and, if asked, its files.

mod application;
mod directories;
mod ended;
mod snapshot;
mod write_back;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;

use super::eval::ask;
use crate::exit::{Code, Stop};
use crate::node_api::{Node, Wishes};
use crate::output::Output;
use crate::progress::Progress;
use crate::quantity::{parse_bytes, parse_duration};
use crate::upload::Uplink;
use directories::Mount;
use ended::Ended;

/// Memory of a program that nobody says anything of.
const MEMORY: &str = "256MiB";

/// What to run, and what it sees.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sinew run hello.wasm\n  \
    sinew run micropython.wasm -- -c 'print(6 * 7)'\n  \
    sinew run jq.wasm --stdin data.json -- .items\n  \
    sinew run python.wasm --entry 'turn:host_alloc=import pandas' --snapshot pandas\n  \
    sinew run python.wasm --from '#pandas' --entry 'turn:host_alloc=print(pandas.__version__)'\n  \
    sinew run convert.wasm --dir photos=/in:ro --dir out=/out --write-back -- /in/a.png /out/a.jpg\n\
    The program is a WebAssembly module for WASI preview 1, which sees its arguments, --env, --dir, --stdin,\n\
    --seed and --time, and nothing else: no network, no clock, no file of this machine. It works on a copy of\n\
    each --dir, and what it changes is lost but for --write-back, which leaves files that did not change alone.\n\
    The same program with the same inputs is not run twice: the second time its result is remembered (-v tells).\n\
    Exit code: the program's own; 134 if it trapped; else as of all commands.")]
pub(crate) struct Arguments {
    /// A file, or a handle or #LABEL of a stored module
    #[arg(value_name = "PROGRAM")]
    program: String,
    /// What the program finds in its argument list
    #[arg(last = true, value_name = "ARGS")]
    arguments: Vec<String>,
    /// A directory that it finds at GUEST (default: the same path); with :ro it cannot write there. HOST may be a handle or #LABEL of a tree
    #[arg(long = "dir", value_name = "HOST[=GUEST][:ro]")]
    directories: Vec<String>,
    /// A variable of its environment; NAME alone has the value that it has here
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    environment: Vec<String>,
    /// What it reads from stdin; - is ours [default: nothing]
    #[arg(long, value_name = "FILE|-")]
    stdin: Option<PathBuf>,
    /// Instructions that it may execute [default: not counted]
    #[arg(long, value_name = "N")]
    fuel: Option<u64>,
    /// Memory that it may use, files that it writes included
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = MEMORY)]
    memory: u64,
    /// What its random numbers are made from
    #[arg(long, value_name = "TEXT")]
    seed: Option<String>,
    /// When it begins, in seconds since 1970, or now [default: 2000-01-01]
    #[arg(long, value_name = "SECONDS|now", value_parser = parse_time)]
    time: Option<u64>,
    /// A function that it exports and that is called, with TEXT where ALLOCATOR makes room for it; several are called one after the other [default: _start, or else run]
    #[arg(long = "entry", value_name = "NAME[:ALLOCATOR=TEXT]")]
    entries: Vec<String>,
    /// Go on from a snapshot: a handle or #LABEL
    #[arg(long, value_name = "SNAPSHOT")]
    from: Option<String>,
    /// When it has returned, keep its memory under this label, for others to go on --from
    #[arg(long, value_name = "LABEL")]
    snapshot: Option<String>,
    /// Give up after this long, like 500ms or 10s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    deadline: Option<Duration>,
    /// When it has ended, write what it changed in each --dir to this machine
    #[arg(long)]
    write_back: bool,
    /// Tell the progress, also where stderr is no terminal
    #[arg(long)]
    progress: bool,
}

/// Nanoseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "the user asks for the time of day")]
fn parse_time(text: &str) -> Result<u64, String> {
    let time = match text {
        "now" => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok(),
        _ => text.parse::<u64>().ok().map(Duration::from_secs),
    };
    let nanos = time.and_then(|time| u64::try_from(time.as_nanos()).ok());
    nanos.ok_or_else(|| "a time is written as seconds since 1970, or now".to_owned())
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let mounts: Vec<Mount> =
        arguments.directories.iter().map(|text| Mount::parse(text)).collect::<Result<_, _>>()?;
    if arguments.write_back && arguments.snapshot.is_some() {
        return Err(Stop::new(Code::Usage, "--write-back and --snapshot do not go together")
            .suggest("the directories of a snapshot are in it: `sinew get`")
            .into());
    }
    if arguments.write_back && !mounts.iter().any(Mount::is_written_back) {
        return Err(Stop::new(Code::Usage, "--write-back has nothing to write to")
            .suggest("give it a directory of this machine: --dir DIR=/data --write-back")
            .into());
    }
    let progress = Progress::bytes(output, "uploading", None, arguments.progress);
    let mut uplink = Uplink::new(node, output, progress);
    let mut given = Vec::new();
    for mount in &mounts {
        given.push(mount.upload(&mut uplink).await?);
    }
    let goal = application::build(arguments, &mounts, &given, &mut uplink).await?;
    let bundle = std::mem::take(&mut uplink.objects).with_goal(goal);
    let deadline_ms =
        arguments.deadline.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1));
    let wishes = Wishes { deadline_ms, priority: None };
    let answer = match ask(bundle, &wishes, node, output, arguments.progress).await {
        Ok(answer) => answer,
        Err(error) => return Err(ended::failed(error)),
    };
    if output.is_verbose() {
        output.say(&ended::cost(&answer));
    }
    if let Some(label) = &arguments.snapshot {
        return snapshot::keep(&answer, label, node, output).await;
    }
    let ended = Ended::read(&answer, node).await?;
    let kept = mounts.iter().zip(given).filter(|(mount, _)| !mount.is_read_only);
    let directories: Vec<_> = kept.zip(&ended.directories).collect();
    if arguments.write_back {
        for ((mount, given), result) in &directories {
            if let Some(path) = mount.host_path() {
                write_back::write(path, *given, **result, node, output).await?;
            }
        }
    }
    if output.is_json() {
        let told = directories.iter().map(|((mount, given), result)| (&*mount.guest, *given, **result));
        ended.json(&answer, told, node, output).await?;
    } else {
        ended.print(node).await?;
    }
    ended.exit()
}

#[cfg(test)]
mod tests;
