// SPDX-License-Identifier: Apache-2.0
//! Every command that the examples show is run, and must print what they show.
//!
//! In a fenced block marked `console`, a line that begins with `$ ` is a
//! command for the shell, in the repository's folder; the lines below it are
//! what it prints on stdout. All of one file run on the same new node. Of the
//! project's own README, which shows long-running commands too, those that
//! evaluate are run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::node::Node;
use crate::progress::{note, step};
use crate::{guests, install, layout, process};

/// `cargo xtask examples`: with the binary of the development profile.
pub(crate) fn run() -> anyhow::Result<()> {
    install::guest_tools()?;
    guests::build()?;
    process::run(process::cargo().args(["build", "--quiet", "-p", "cli"]))?;
    check(&layout::target().join("debug/sinew"), &layout::target().join("examples-home"))
}

/// Runs what the examples show by this binary, each on a new node in this home.
/// The codelets must be built.
pub(crate) fn check(binary: &Path, home: &Path) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    let readme = layout::root().join("README.md");
    for file in files(&layout::root().join("examples"))?.into_iter().chain([readme.clone()]) {
        let name = file.strip_prefix(layout::root()).unwrap_or(&file).display().to_string();
        let mut commands = commands(&fs::read_to_string(&file)?).with_context(|| name.clone())?;
        if file == readme {
            commands.retain(|shown| shown.command.starts_with("sinew eval "));
            anyhow::ensure!(!commands.is_empty(), "{name} shows no evaluation");
        }
        if commands.is_empty() {
            continue;
        }
        let ran = step(&name, || {
            // Links between files would hide what one example needs from another.
            layout::remove(home)?;
            let node = Node::start(binary, home)?;
            commands.iter().try_for_each(|command| command.check(&node))
        });
        if let Err(error) = ran {
            note(format!("{error:#}"));
            failed.push(name);
        }
    }
    layout::remove(home)?;
    if !failed.is_empty() {
        bail!("not as shown: {}", failed.join(", "));
    }
    Ok(())
}

/// A command and what it shall print.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    command: String,
    output: String,
}

impl Shown {
    fn check(&self, node: &Node) -> anyhow::Result<()> {
        let mut shell = process::command("sh");
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let own = node.binary().parent().unwrap_or(Path::new("")).to_owned();
        let path = std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&folders)))?;
        shell.args(["-c", &self.command]).env("PATH", path).env("SINEW_HOME", node.home()).env("LC_ALL", "C");
        let printed = process::output(&mut shell)?;
        if printed != self.output {
            bail!("`{}` printed\n{printed}\ninstead of\n{}", self.command, self.output);
        }
        Ok(())
    }
}

/// The commands in a text, in order.
fn commands(text: &str) -> anyhow::Result<Vec<Shown>> {
    let mut shown: Vec<Shown> = Vec::new();
    let mut is_console = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_console = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| is_console) {
            shown.push(Shown { command: command.to_owned(), output: String::new() });
        } else if is_console {
            let last = shown.last_mut().context("output before the first command")?;
            if !last.output.is_empty() {
                last.output.push('\n');
            }
            last.output.push_str(line);
        }
    }
    Ok(shown)
}

/// All `README.md` of a folder and its folders, sorted.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let file = entry?.path().join("README.md");
        if file.is_file() {
            found.push(file);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests;
