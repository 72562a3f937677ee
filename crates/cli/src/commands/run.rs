// SPDX-License-Identifier: Apache-2.0
//! `sinew run`: runs a whole program (`docs/spec/programs.md`) as if it were one of
//! this machine's: its streams, its exit code, and, if asked, its files.

pub(super) mod application;
pub(super) mod directories;
pub(super) mod ended;
pub(super) mod options;
pub(super) mod placing;
mod snapshot;
mod write_back;

use clap::Args;

use super::eval::ask;
use crate::exit::{Code, Stop};
use crate::node_api::Node;
use crate::output::Output;
use crate::progress::Progress;
use crate::upload::Uplink;
use ended::Ended;
use options::Options;

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
    #[command(flatten)]
    options: Options,
    /// When it has returned, keep its memory under this label, for others to go on --from
    #[arg(long, value_name = "LABEL")]
    snapshot: Option<String>,
    /// When it has ended, write what it changed in each --dir to this machine
    #[arg(long)]
    write_back: bool,
    /// Tell the progress, also where stderr is no terminal
    #[arg(long)]
    progress: bool,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let mounts = arguments.options.mounts()?;
    if arguments.write_back && arguments.snapshot.is_some() {
        return Err(Stop::new(Code::Usage, "--write-back and --snapshot do not go together")
            .suggest("the directories of a snapshot are in it: `sinew get`")
            .into());
    }
    if arguments.write_back && !mounts.iter().any(directories::Mount::is_written_back) {
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
    let answer = match ask(bundle, &arguments.options.wishes(), node, output, arguments.progress).await {
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
