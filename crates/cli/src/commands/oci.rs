// SPDX-License-Identifier: Apache-2.0
//! `sinew oci`: runs OCI bundles, by the command line that container engines
//! know from other runtimes. It needs no node.
//!
//! What is known of a container lies below `--root`, in a folder of its name:
//! the pipes of `node::bundle`, and the record that `state` is printed from.

mod config;
mod fields;
mod linux;
mod record;
mod seccomp;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use node::bundle::{self, Status};

use crate::output::Output;
use record::Record;

const ROOT_DEFAULT: &str = "/run/sinew-oci";
const CONFIG_LEN_MAX: u64 = 4 << 20;
const ID_LEN_MAX: usize = 255;

/// Where containers are kept, and what to do.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where containers are kept
    #[arg(long, value_name = "DIR", default_value = ROOT_DEFAULT)]
    root: PathBuf,
    #[command(subcommand)]
    operation: Operation,
}

/// The operations of the runtime specification.
#[derive(Debug, Subcommand)]
enum Operation {
    /// Make a container of a bundle, without running its program
    Create {
        /// The folder with config.json
        #[arg(short, long, value_name = "DIR", default_value = ".")]
        bundle: PathBuf,
        /// Write the number of the container's process there
        #[arg(long, value_name = "FILE")]
        pid_file: Option<PathBuf>,
        id: String,
    },
    /// Run the program of a created container
    Start { id: String },
    /// Print a container's state
    State { id: String },
    /// Send a container's process a signal
    Kill {
        id: String,
        /// A number, or a name as TERM or SIGTERM
        #[arg(default_value = "TERM")]
        signal: String,
    },
    /// Take away what is left of a stopped container
    Delete {
        /// Kill it first if it runs
        #[arg(short, long)]
        force: bool,
        id: String,
    },
}

pub(crate) fn run(arguments: &Arguments, output: &Output) -> anyhow::Result<()> {
    let place = |id: &str| -> anyhow::Result<PathBuf> {
        check_id(id)?;
        Ok(arguments.root.join(id))
    };
    match &arguments.operation {
        Operation::Create { bundle, pid_file, id } => create(bundle, pid_file.as_deref(), &place(id)?, id),
        Operation::Start { id } => {
            let (folder, record) = open(&place(id)?, id)?;
            Ok(bundle::start(&folder, record.process)?)
        }
        Operation::State { id } => {
            let (folder, record) = open(&place(id)?, id)?;
            output.line(&record.state(bundle::status(&folder, record.process)))?;
            Ok(())
        }
        Operation::Kill { id, signal } => {
            let (folder, record) = open(&place(id)?, id)?;
            Ok(bundle::kill(&folder, record.process, signal_number(signal)?)?)
        }
        Operation::Delete { force, id } => delete(&place(id)?, id, *force),
    }
}

/// Names are those of folders.
fn check_id(id: &str) -> anyhow::Result<()> {
    let is_plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-+.".contains(&byte));
    if id.is_empty() || id.len() > ID_LEN_MAX || !is_plain || id.starts_with('.') {
        bail!("`{id}` is no name for a container: letters, digits, and `_-+.` within");
    }
    Ok(())
}

fn create(bundle: &Path, pid_file: Option<&Path>, folder: &Path, id: &str) -> anyhow::Result<()> {
    let bundle = bundle.canonicalize().with_context(|| format!("the bundle {}", bundle.display()))?;
    let file = bundle.join("config.json");
    let named = || file.display().to_string();
    if fs::metadata(&file).with_context(named)?.len() > CONFIG_LEN_MAX {
        bail!("{}: larger than {CONFIG_LEN_MAX} bytes", file.display());
    }
    let config =
        config::read(&fs::read_to_string(&file).with_context(named)?, &bundle, id).with_context(named)?;
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    let above = folder.parent().unwrap_or(folder);
    builder.recursive(true).create(above).with_context(|| format!("cannot make {}", above.display()))?;
    builder.recursive(false).create(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => anyhow::anyhow!("there is a container `{id}` already"),
        _ => anyhow::Error::from(error).context(format!("cannot make {}", folder.display())),
    })?;
    let control_group = config.bundle.control_group.clone();
    let made = bundle::create(&config.bundle, folder).map_err(anyhow::Error::from).and_then(|process| {
        let record = Record {
            id: id.to_owned(),
            version: config.version,
            bundle,
            annotations: config.annotations,
            control_group,
            process,
        };
        let kept = record.write(folder).and_then(|()| match pid_file {
            Some(path) => Ok(bundle::pid_file(path, process)?),
            None => Ok(()),
        });
        // A container that nobody can find must not live on.
        kept.inspect_err(|_| end(folder, &record))
    });
    made.inspect_err(|_| {
        let _ = fs::remove_dir_all(folder);
    })
}

/// Ends a container and takes it away, as far as that goes.
fn end(folder: &Path, record: &Record) {
    const SIGKILL: i32 = 9;
    const TRIES: u32 = 500;
    let _ = bundle::kill(folder, record.process, SIGKILL);
    for _ in 0..TRIES {
        if bundle::status(folder, record.process) == Status::Stopped {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn open(folder: &Path, id: &str) -> anyhow::Result<(PathBuf, Record)> {
    if !folder.is_dir() {
        bail!("there is no container `{id}`");
    }
    Ok((folder.to_owned(), Record::read(folder).with_context(|| format!("the record of `{id}`"))?))
}

fn delete(folder: &Path, id: &str, force: bool) -> anyhow::Result<()> {
    if force && !folder.exists() {
        return Ok(());
    }
    let (folder, record) = open(folder, id)?;
    if force {
        end(&folder, &record);
    }
    Ok(bundle::remove(&folder, record.process, &record.control_group)?)
}

/// Names in the order of their numbers, from 1.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

fn signal_number(text: &str) -> anyhow::Result<i32> {
    if let Ok(number @ 1..=64) = text.parse() {
        return Ok(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    match SIGNALS.iter().zip(1..).find(|(known, _)| **known == name) {
        Some((_, number)) => Ok(number),
        None => bail!("there is no signal `{text}`"),
    }
}

#[cfg(test)]
mod tests;
