// SPDX-License-Identifier: Apache-2.0
//! Ray as a peer: the same trees, of which it has what lies on the paths.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::titles;
use crate::python_peer::Peer;
use crate::ray::environment;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/bptree_peer.py");
pub(super) const STYLES: [&str; 2] = ["blocking", "passing"];
/// How long a set is waited for. With nodes of millions of children Ray takes longer, and all
/// that is told then is that it does.
const LIMIT: Duration = Duration::from_secs(120);
/// How long the nodes on its paths may take to be put into Ray's memory.
pub(super) const PLANTING_LIMIT: Duration = Duration::from_secs(300);

/// A local Ray that has read the keys.
pub(super) struct Ray {
    lines: PathBuf,
    arity: usize,
    /// None: it was ended because it took too long.
    peer: Option<Peer>,
}

/// What a set took.
#[derive(Clone, Copy)]
pub(super) struct Took {
    pub(super) us: f64,
    /// None: it was not waited for any longer.
    pub(super) whole: Option<Data>,
}

/// The data of a set.
#[derive(Clone, Copy)]
pub(super) struct Data {
    /// Of the nodes on the paths, keys included, as Ray keeps them.
    pub(super) read_kib: f64,
    /// By which its workers grew at most.
    pub(super) memory_kib: f64,
}

impl Ray {
    pub(super) fn start(lines: &Path, arity: usize) -> anyhow::Result<Self> {
        let mut ray = Self { lines: lines.to_owned(), arity, peer: None };
        ray.peer()?;
        Ok(ray)
    }

    #[expect(clippy::disallowed_methods, reason = "the peer is a program of its own")]
    fn peer(&mut self) -> anyhow::Result<&mut Peer> {
        if self.peer.is_none() {
            let python = environment()?;
            eprintln!("  Ray: arity {}", self.arity);
            let mut command = Command::new(python);
            command.arg(SCRIPT).arg(&self.lines).arg(self.arity.to_string());
            self.peer = Some(Peer::start(&mut command)?.0);
        }
        self.peer.as_mut().context("Ray did not start")
    }

    /// How long it takes to look up these keys one after another. None: it did not even
    /// come to hold what lies on the paths.
    pub(super) fn look_up(&mut self, style: &str, queries: &[usize]) -> anyhow::Result<Option<Took>> {
        let mut line = style.to_owned();
        queries.iter().for_each(|query| _ = write!(line, " {query}"));
        let peer = self.peer()?;
        peer.send(&line)?;
        // What lies on the paths is made first.
        if peer.told_within(PLANTING_LIMIT)?.is_none() {
            self.peer = None;
            return Ok(None);
        }
        let Some(told) = peer.told_within(LIMIT)? else {
            self.peer = None;
            return Ok(Some(Took { us: LIMIT.as_secs_f64() * 1e6, whole: None }));
        };
        let found = told["found"].as_array().context("it found nothing")?;
        for (found, &query) in found.iter().zip(queries) {
            let expected = String::from_utf8(titles::value(query))?;
            ensure!(found.as_str() == Some(&expected), "Ray: key {query} gave {found}");
        }
        let number = |name: &str| told[name].as_f64().with_context(|| format!("it tells no {name}"));
        let data = Data { read_kib: number("read_kib")?, memory_kib: number("memory_kib")? };
        Ok(Some(Took { us: number("wall_us")?, whole: Some(data) }))
    }
}
