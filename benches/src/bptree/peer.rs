// SPDX-License-Identifier: Apache-2.0
//! Ray as a peer: the same trees, of which it has what lies on the paths.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::titles;
use crate::python_peer::Peer;
use crate::ray::environment;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/bptree_peer.py");

/// A local Ray that has read the keys.
pub(super) struct Ray(Peer);

impl Ray {
    #[expect(clippy::disallowed_methods, reason = "the peer is a program of its own")]
    pub(super) fn start(lines: &Path, arity: usize) -> anyhow::Result<Self> {
        let python = environment()?;
        eprintln!("  Ray: arity {arity}");
        let (peer, _) = Peer::start(Command::new(python).arg(SCRIPT).arg(lines).arg(arity.to_string()))?;
        Ok(Self(peer))
    }

    /// How long it takes to look up these keys one after another, in microseconds.
    pub(super) fn look_up(&mut self, style: &str, queries: &[usize]) -> anyhow::Result<f64> {
        let mut line = style.to_owned();
        queries.iter().for_each(|query| _ = write!(line, " {query}"));
        let told = self.0.ask(&line)?;
        let found = told["found"].as_array().context("it found nothing")?;
        for (found, &query) in found.iter().zip(queries) {
            let expected = String::from_utf8(titles::value(query))?;
            ensure!(found.as_str() == Some(&expected), "Ray: key {query} gave {found}");
        }
        told["wall_us"].as_f64().context("it tells no time")
    }
}
