// SPDX-License-Identifier: Apache-2.0
//! Work on all of a home: done by the node, which sends lines about it, or by this
//! process in a home that no node uses. Commands do not see which.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::client::whole;
use crate::commands::eval::Lines;
use crate::exit::{Code, Stop};
use crate::node_api::{JSON, Node};
use crate::output::Output;
use crate::progress::Progress;

/// Lines that wait to be printed.
const LINES_MAX: usize = 64;

/// Work that was begun.
pub(crate) enum Job {
    Local(Receiver<anyhow::Result<Value>>),
    Remote(Lines),
}

/// Where work of this process says how far it is.
pub(crate) struct Teller(Sender<anyhow::Result<Value>>);

impl Teller {
    /// Whether somebody still waits.
    pub(crate) fn progress(&self, done: u64, all: Option<u64>) -> bool {
        // Whoever is slow misses some of it.
        _ = self.0.try_send(Ok(json!({"event": "progress", "done": done, "all": all})));
        !self.0.is_closed()
    }

    pub(crate) fn found(&self, finding: &node::Finding) {
        let mut line = node::told::finding(finding);
        line["event"] = "finding".into();
        _ = self.0.blocking_send(Ok(line));
    }
}

impl Job {
    /// In this process, on a thread that may block.
    pub(crate) fn local(work: impl FnOnce(&Teller) -> anyhow::Result<Value> + Send + 'static) -> Self {
        let (sender, lines) = channel(LINES_MAX);
        let working = move || {
            let teller = Teller(sender);
            let end = work(&teller).map(|mut value| {
                value["event"] = "result".into();
                value
            });
            _ = teller.0.blocking_send(end);
        };
        // Its end is its last line; without one, following it tells.
        drop(tokio::task::spawn_blocking(working));
        Self::Local(lines)
    }

    /// In the node.
    pub(crate) async fn remote(node: &mut Node, path: &str, body: &Value) -> anyhow::Result<Self> {
        let request = Request::post(path).header(CONTENT_TYPE, JSON);
        let answer = node.send(request, whole(body.to_string())).await?;
        Ok(Self::Remote(Lines::of(answer.into_body())))
    }

    async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        match self {
            Self::Local(lines) => lines.recv().await.transpose(),
            Self::Remote(lines) => {
                let Some(line) = lines.next().await? else { return Ok(None) };
                serde_json::from_slice(&line).map(Some).context("a line of the node's answer is not JSON")
            }
        }
    }

    /// Shows how far it is, hands out what is found, and gives the result.
    pub(crate) async fn follow(
        mut self,
        what: &str,
        output: &Output,
        mut found: impl FnMut(&Value, &Progress) -> anyhow::Result<()>,
    ) -> anyhow::Result<Value> {
        let mut progress: Option<Progress> = None;
        let mut shown = 0;
        while let Some(line) = self.next().await? {
            let all = line["all"].as_u64();
            let progress = progress.get_or_insert_with(|| Progress::bytes(output, what, all, false));
            match line["event"].as_str() {
                Some("progress") => {
                    let done = line["done"].as_u64().unwrap_or_default();
                    match all {
                        Some(all) => progress.reach(done, all),
                        None => progress.advance(done.saturating_sub(shown), output),
                    }
                    shown = shown.max(done);
                }
                Some("finding") => found(&line, progress)?,
                Some("result") => {
                    progress.end();
                    return Ok(line);
                }
                Some("failure") => {
                    let status = line["status"].as_u64().and_then(|status| u16::try_from(status).ok());
                    return Err(Stop::from_problem(status.unwrap_or(0), line).into());
                }
                _ => tracing::debug!(%line, "an event of an unknown kind"),
            }
        }
        Err(Stop::new(Code::Failed, "it ended without a word about what came of it")
            .suggest("repeat the command; what is done stays done")
            .into())
    }
}

/// A path as another process finds it.
pub(crate) fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{} is no path", path.display()))
}
