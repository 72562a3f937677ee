// SPDX-License-Identifier: Apache-2.0
//! What a command line says of a program's world, whether one is run or many are.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::Args;
use objects::{Handle, Limits};

use super::directories::Mount;
use crate::exit::{Code, Stop};
use crate::node_api::Wishes;
use crate::quantity::{parse_bytes, parse_duration};

/// Memory of a program that nobody says anything of.
const MEMORY: &str = "256MiB";

/// What a program sees besides its arguments, and its limits.
#[derive(Debug, Args)]
pub(in crate::commands) struct Options {
    /// A directory that it finds at GUEST (default: the same path); with :ro it cannot write there. HOST may be a handle or #LABEL of a tree
    #[arg(long = "dir", value_name = "HOST[=GUEST][:ro]")]
    directories: Vec<String>,
    /// A variable of its environment; NAME alone has the value that it has here
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    environment: Vec<String>,
    /// What it reads from stdin; - is ours [default: nothing]
    #[arg(long, value_name = "FILE|-")]
    pub(in crate::commands) stdin: Option<PathBuf>,
    /// Instructions that it may execute [default: not counted]
    #[arg(long, value_name = "N")]
    fuel: Option<u64>,
    /// Memory that it may use, files that it writes included
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = MEMORY)]
    memory: u64,
    /// What its random numbers are made from
    #[arg(long, value_name = "TEXT")]
    pub(in crate::commands) seed: Option<String>,
    /// When it begins, in seconds since 1970, or now [default: 2000-01-01]
    #[arg(long, value_name = "SECONDS|now", value_parser = parse_time)]
    pub(in crate::commands) time: Option<u64>,
    /// A function that it exports and that is called, with TEXT where ALLOCATOR makes room for it; several are called one after the other [default: _start, or else run]
    #[arg(long = "entry", value_name = "NAME[:ALLOCATOR=TEXT]")]
    pub(in crate::commands) entries: Vec<String>,
    /// Go on from a snapshot: a handle or #LABEL
    #[arg(long, value_name = "SNAPSHOT")]
    pub(in crate::commands) from: Option<String>,
    /// Give up after this long, like 500ms or 10s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    deadline: Option<Duration>,
}

impl Options {
    /// The directories of `--dir`.
    pub(in crate::commands) fn mounts(&self) -> Result<Vec<Mount>, Stop> {
        self.directories.iter().map(|text| Mount::parse(text)).collect()
    }

    /// The variables, each `NAME=VALUE`.
    pub(in crate::commands) fn variables(&self) -> Result<Vec<String>, Stop> {
        self.environment.iter().map(|text| variable_of(text)).collect()
    }

    pub(in crate::commands) fn limits(&self) -> anyhow::Result<Handle> {
        let limits = Limits { memory_bytes: self.memory, fuel: self.fuel.unwrap_or(0), ..Limits::default() };
        limits.handle().context("the memory is over 2^48 bytes")
    }

    pub(in crate::commands) fn wishes(&self) -> Wishes {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        Wishes { deadline_ms: self.deadline.map(milliseconds), ..Wishes::default() }
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

/// Nanoseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "the user asks for the time of day")]
pub(super) fn parse_time(text: &str) -> Result<u64, String> {
    let time = match text {
        "now" => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok(),
        _ => text.parse::<u64>().ok().map(Duration::from_secs),
    };
    let nanos = time.and_then(|time| u64::try_from(time.as_nanos()).ok());
    nanos.ok_or_else(|| "a time is written as seconds since 1970, or now".to_owned())
}
