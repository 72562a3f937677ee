// SPDX-License-Identifier: Apache-2.0
//! A command line as the application of a program (`docs/spec/programs.md`, section 2).

use std::path::Path;

use anyhow::Context as _;
use objects::{Handle, TreeBuilder};

use super::Arguments;
use super::directories::Mount;
use crate::commands::put::stdin;
use crate::exit::{Code, Stop};
use crate::expression::Objects;
use crate::upload::Uplink;

/// The application of a program in the making: words and their values.
pub(in crate::commands) struct Application<'a> {
    entries: Vec<Handle>,
    /// Where the values go that are no handles yet. They are as short as a command line.
    objects: &'a mut Objects,
}

impl<'a> Application<'a> {
    pub(in crate::commands) fn new(limits: Handle, program: Handle, objects: &'a mut Objects) -> Self {
        Self { entries: vec![limits, program], objects }
    }

    /// A word whose value is this text.
    pub(in crate::commands) fn text(&mut self, word: &str, text: &[u8]) {
        let value = self.objects.blob(text);
        self.value(word, value);
    }

    /// A word with a value.
    pub(in crate::commands) fn value(&mut self, word: &str, value: Handle) {
        self.word(word);
        self.entries.push(value);
    }

    /// A word without a value.
    pub(in crate::commands) fn word(&mut self, word: &str) {
        let word = self.objects.blob(word.as_bytes());
        self.entries.push(word);
    }

    /// A directory. As a ref it is read when the program looks into it, and not brought before.
    pub(in crate::commands) fn directory(&mut self, path: &[u8], tree: Handle, is_read_only: bool) {
        self.text(if is_read_only { "lib" } else { "dir" }, path);
        self.entries.push(tree.lowered().unwrap_or(tree));
    }

    /// An entry as `--entry` has it.
    pub(in crate::commands) fn entry(&mut self, entry: &[u8]) -> Result<(), Stop> {
        match entry_of(entry)? {
            (name, None) => self.text("entry", name),
            (name, Some((allocate, text))) => {
                self.text("call", name);
                for value in [allocate, text] {
                    let value = self.objects.blob(value);
                    self.entries.push(value);
                }
            }
        }
        Ok(())
    }

    /// A snapshot to go on from. As a ref: the node maps it, and need not bring it to each application.
    pub(in crate::commands) fn from(&mut self, snapshot: Handle) {
        self.value("from", snapshot.lowered().unwrap_or(snapshot));
    }

    /// The goal: the program's result, and nothing of what is in it.
    pub(in crate::commands) fn goal(self) -> anyhow::Result<Handle> {
        let tree: TreeBuilder = self.entries.into_iter().collect();
        let application = self.objects.tree(tree.view()).application().context("a tree can be applied")?;
        application.shallow().context("an application can be evaluated")
    }
}

/// What a command line asks for. What is not on the node waits in the uplink.
pub(super) async fn build(
    arguments: &Arguments,
    mounts: &[Mount],
    given: &[Handle],
    uplink: &mut Uplink<'_>,
) -> anyhow::Result<Handle> {
    let options = &arguments.options;
    let program = program(&arguments.program, uplink).await?;
    let input = match &options.stdin {
        Some(path) => Some(input(path, uplink).await?),
        None => None,
    };
    let snapshot = match &options.from {
        Some(from) => Some(uplink.node.resolve(from).await?),
        None => None,
    };
    let mut application = Application::new(options.limits()?, program, &mut uplink.objects);
    application.text("arg", name_of(&arguments.program).as_bytes());
    for argument in &arguments.arguments {
        application.text("arg", argument.as_bytes());
    }
    for variable in options.variables()? {
        application.text("env", variable.as_bytes());
    }
    for (mount, tree) in mounts.iter().zip(given) {
        application.directory(mount.guest.as_bytes(), *tree, mount.is_read_only);
    }
    if let Some(input) = input {
        application.value("stdin", input);
    }
    if let Some(seed) = &options.seed {
        application.text("seed", seed.as_bytes());
    }
    if let Some(time) = options.time {
        application.value("time", Handle::u64(time));
    }
    for entry in &options.entries {
        application.entry(entry.as_bytes())?;
    }
    if let Some(snapshot) = snapshot {
        application.from(snapshot);
    }
    if arguments.snapshot.is_some() {
        application.word("snapshot");
    }
    application.goal()
}

/// What a program reads from stdin.
pub(in crate::commands) async fn input(path: &Path, uplink: &mut Uplink<'_>) -> anyhow::Result<Handle> {
    match path == Path::new("-") {
        true => uplink.stream(stdin()?, None).await,
        false => uplink.file(path).await,
    }
}

/// A module: a file, or what a label or handle names.
pub(in crate::commands) async fn program(text: &str, uplink: &mut Uplink<'_>) -> anyhow::Result<Handle> {
    let is_stored = text.starts_with('#') || text.parse::<Handle>().is_ok();
    match is_stored {
        true => uplink.node.resolve(text).await,
        false => uplink.file(text.as_ref()).await,
    }
}

/// What a program is told that it is called: the file's name, without its ending.
pub(in crate::commands) fn name_of(program: &str) -> String {
    let name = Path::new(program).file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_else(|| program.to_owned());
    name.strip_suffix(".wasm").map_or_else(|| name.clone(), str::to_owned)
}

/// An entry's name, and its allocator with the text.
type Entry<'a> = (&'a [u8], Option<(&'a [u8], &'a [u8])>);

/// `NAME`, or `NAME:ALLOCATOR=TEXT`.
pub(super) fn entry_of(entry: &[u8]) -> Result<Entry<'_>, Stop> {
    let split = |text: &'_ [u8], at: u8| text.iter().position(|byte| *byte == at);
    let Some(colon) = split(entry, b':') else { return Ok((entry, None)) };
    let (name, given) = (&entry[..colon], &entry[colon + 1..]);
    match split(given, b'=') {
        Some(sign) => Ok((name, Some((&given[..sign], &given[sign + 1..])))),
        None => {
            let entry = String::from_utf8_lossy(entry);
            Err(Stop::new(Code::Usage, format!("{entry:?} is not like NAME:ALLOCATOR=TEXT"))
                .suggest("--entry run, or --entry 'turn:host_alloc=print(6 * 7)'"))
        }
    }
}
