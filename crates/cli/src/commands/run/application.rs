// SPDX-License-Identifier: Apache-2.0
//! A command line as the application of a program (`docs/spec/programs.md`, section 2).

use std::path::Path;

use anyhow::Context as _;
use objects::{Handle, Limits, TreeBuilder};

use super::Arguments;
use super::directories::Mount;
use crate::commands::put::stdin;
use crate::exit::{Code, Stop};
use crate::upload::Uplink;

/// The goal: the program's result, and nothing of what is in it.
pub(super) async fn build(
    arguments: &Arguments,
    mounts: &[Mount],
    given: &[Handle],
    uplink: &mut Uplink<'_>,
) -> anyhow::Result<Handle> {
    let limits =
        Limits { memory_bytes: arguments.memory, fuel: arguments.fuel.unwrap_or(0), ..Limits::default() };
    let mut entries = vec![limits.handle().context("the memory is over 2^48 bytes")?];
    entries.push(program(&arguments.program, uplink).await?);
    for argument in std::iter::once(name_of(&arguments.program)).chain(arguments.arguments.iter().cloned()) {
        words(&mut entries, "arg", argument.into_bytes(), uplink).await?;
    }
    for variable in &arguments.environment {
        words(&mut entries, "env", variable_of(variable)?.into_bytes(), uplink).await?;
    }
    for (mount, tree) in mounts.iter().zip(given) {
        let word = if mount.is_read_only { "lib" } else { "dir" };
        words(&mut entries, word, mount.guest.clone().into_bytes(), uplink).await?;
        // As a ref it is read when the program looks into it, and not brought before.
        entries.push(tree.lowered().unwrap_or(*tree));
    }
    if let Some(path) = &arguments.stdin {
        let handle = match path == Path::new("-") {
            true => uplink.stream(stdin()?, None).await?,
            false => uplink.file(path).await?,
        };
        entries.extend([uplink.blob(b"stdin".to_vec()).await?, handle]);
    }
    if let Some(seed) = &arguments.seed {
        words(&mut entries, "seed", seed.clone().into_bytes(), uplink).await?;
    }
    if let Some(time) = arguments.time {
        entries.extend([uplink.blob(b"time".to_vec()).await?, Handle::u64(time)]);
    }
    for entry in &arguments.entries {
        let (name, given) = entry_of(entry)?;
        let Some((allocate, text)) = given else {
            words(&mut entries, "entry", name.as_bytes().to_vec(), uplink).await?;
            continue;
        };
        words(&mut entries, "call", name.as_bytes().to_vec(), uplink).await?;
        entries.push(uplink.blob(allocate.as_bytes().to_vec()).await?);
        entries.push(uplink.blob(text.as_bytes().to_vec()).await?);
    }
    if let Some(from) = &arguments.from {
        let snapshot = uplink.node.resolve(from).await?;
        // As a ref: the node maps it, and need not bring it to each application.
        let snapshot = snapshot.lowered().unwrap_or(snapshot);
        entries.extend([uplink.blob(b"from".to_vec()).await?, snapshot]);
    }
    if arguments.snapshot.is_some() {
        entries.push(uplink.blob(b"snapshot".to_vec()).await?);
    }
    let tree: TreeBuilder = entries.into_iter().collect();
    let application = uplink.tree(&tree).await?.application().context("a tree can be applied")?;
    application.shallow().context("an application can be evaluated")
}

async fn words(
    entries: &mut Vec<Handle>,
    word: &str,
    value: Vec<u8>,
    uplink: &mut Uplink<'_>,
) -> anyhow::Result<()> {
    entries.push(uplink.blob(word.as_bytes().to_vec()).await?);
    entries.push(uplink.blob(value).await?);
    Ok(())
}

/// A module: a file, or what a label or handle names.
async fn program(text: &str, uplink: &mut Uplink<'_>) -> anyhow::Result<Handle> {
    let is_stored = text.starts_with('#') || text.parse::<Handle>().is_ok();
    match is_stored {
        true => uplink.node.resolve(text).await,
        false => uplink.file(text.as_ref()).await,
    }
}

/// What a program is told that it is called: the file's name, without its ending.
fn name_of(program: &str) -> String {
    let name = Path::new(program).file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_else(|| program.to_owned());
    name.strip_suffix(".wasm").map_or_else(|| name.clone(), str::to_owned)
}

/// An entry's name, and its allocator with the text.
type Entry<'a> = (&'a str, Option<(&'a str, &'a str)>);

/// `NAME`, or `NAME:ALLOCATOR=TEXT`.
pub(super) fn entry_of(entry: &str) -> Result<Entry<'_>, Stop> {
    let Some((name, given)) = entry.split_once(':') else { return Ok((entry, None)) };
    match given.split_once('=') {
        Some((allocate, text)) => Ok((name, Some((allocate, text)))),
        None => Err(Stop::new(Code::Usage, format!("{entry:?} is not like NAME:ALLOCATOR=TEXT"))
            .suggest("--entry run, or --entry 'turn:host_alloc=print(6 * 7)'")),
    }
}

fn variable_of(text: &str) -> Result<String, Stop> {
    if text.contains('=') {
        return Ok(text.to_owned());
    }
    let value = std::env::var(text).map_err(|_| {
        let stop = Stop::new(Code::Usage, format!("the variable {text} is not set here"));
        stop.suggest(format!("--env {text}=VALUE sets it for the program"))
    })?;
    Ok(format!("{text}={value}"))
}
