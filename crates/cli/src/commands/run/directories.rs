// SPDX-License-Identifier: Apache-2.0
//! `--dir HOST[=GUEST][:ro]`: directories on their way to a program.

use std::path::{Path, PathBuf};

use objects::Handle;

use crate::directory::plan_with_links;
use crate::exit::{Code, Stop};
use crate::upload::Uplink;

const READ_ONLY: &str = ":ro";

/// A directory that a program gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands) struct Mount {
    host: Host,
    /// Where the program finds it.
    pub(in crate::commands) guest: String,
    pub(in crate::commands) is_read_only: bool,
}

/// Where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Path(PathBuf),
    /// A handle or a label.
    Stored(String),
}

impl Mount {
    /// Reads `HOST[=GUEST][:ro]`.
    pub(in crate::commands) fn parse(text: &str) -> Result<Self, Stop> {
        let (rest, is_read_only) = match text.strip_suffix(READ_ONLY) {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let (host, guest) = rest.split_once('=').unwrap_or((rest, rest));
        if host.is_empty() || guest.is_empty() {
            let stop = Stop::new(Code::Usage, format!("{text:?} is not like HOST=GUEST"));
            return Err(stop.suggest("--dir data=/data, or --dir . for the directory here"));
        }
        let is_stored = host.starts_with('#') || host.parse::<Handle>().is_ok();
        if is_stored && !rest.contains('=') {
            let stop = Stop::new(Code::Usage, format!("the program needs a path for {host}"));
            return Err(stop.suggest(format!("--dir {host}=/data")));
        }
        let host = if is_stored { Host::Stored(host.to_owned()) } else { Host::Path(host.into()) };
        Ok(Self { host, guest: guest.to_owned(), is_read_only })
    }

    /// Where it lies on this machine, if it does.
    pub(in crate::commands) fn host_path(&self) -> Option<&Path> {
        match &self.host {
            Host::Path(path) if !self.is_read_only => Some(path),
            _ => None,
        }
    }

    /// Whether what the program changes in it can be written to this machine.
    pub(in crate::commands) fn is_written_back(&self) -> bool {
        self.host_path().is_some()
    }

    /// The tree, which is on the node afterwards or waits in the uplink.
    pub(in crate::commands) async fn upload(&self, uplink: &mut Uplink<'_>) -> anyhow::Result<Handle> {
        let tree = match &self.host {
            Host::Path(path) => return uplink.planned_once(&plan_with_links(path)?).await,
            Host::Stored(text) => uplink.node.resolve(text).await?,
        };
        if !tree.is_value() || !tree.names_tree() {
            let stop = Stop::new(Code::Usage, format!("{tree} is no directory"));
            return Err(stop.suggest("`sinew put --tree DIR` stores one").into());
        }
        Ok(tree)
    }
}
