// SPDX-License-Identifier: Apache-2.0
//! What is told of each file, in the order of the files, and of all of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::job::Finished;
use crate::commands::get::copy;
use crate::commands::run::ended::{Ended, cost, stream};
use crate::exit::{self, Code, Stop};
use crate::node_api::Node;
use crate::output::Output;
use crate::progress::{Progress, Tally};
use crate::quantity::{grouped, human_time};

/// Failures that the last message repeats.
const REPEATED_MAX: usize = 10;

/// What came of a file, or why nothing did.
pub(super) type Outcome = anyhow::Result<Finished>;

/// The files in order, and what is known of them so far.
pub(super) struct Report<'a> {
    files: &'a [PathBuf],
    output: &'a Output,
    /// What programs print goes into files.
    is_stdout_kept: bool,
    /// What ended before its turn.
    waiting: BTreeMap<usize, Outcome>,
    next: usize,
    pub(super) tally: Tally,
    /// The first ones, each a line.
    failures: Vec<String>,
}

impl<'a> Report<'a> {
    pub(super) fn new(files: &'a [PathBuf], is_stdout_kept: bool, output: &'a Output) -> Self {
        let tally = Tally { all: files.len() as u64, ..Tally::default() };
        Self { files, output, is_stdout_kept, waiting: BTreeMap::new(), next: 0, tally, failures: Vec::new() }
    }

    pub(super) fn output(&self) -> &'a Output {
        self.output
    }

    /// A file has ended; tells what is due by now.
    pub(super) async fn take(
        &mut self,
        at: usize,
        outcome: Outcome,
        progress: &mut Progress,
        node: &mut Node,
    ) -> anyhow::Result<()> {
        self.tally.done += 1;
        match &outcome {
            Ok(finished) if finished.ended.status == 0 => {
                let is_remembered = finished.answer["memo_hit"].as_bool() == Some(true);
                self.tally.remembered += u64::from(is_remembered);
            }
            _ => self.tally.failed += 1,
        }
        progress.tally(self.tally, self.output);
        self.waiting.insert(at, outcome);
        while let Some(outcome) = self.waiting.remove(&self.next) {
            let file = &self.files[self.next];
            self.next += 1;
            self.tell(file, outcome, progress, node).await?;
        }
        Ok(())
    }

    async fn tell(
        &mut self,
        file: &Path,
        outcome: Outcome,
        progress: &mut Progress,
        node: &mut Node,
    ) -> anyhow::Result<()> {
        if self.output.is_json() {
            let line = match &outcome {
                Ok(finished) => told(file, finished, node).await?,
                Err(error) => {
                    let error: Value = serde_json::from_str(&exit::json(error))?;
                    json!({"file": file.to_string_lossy(), "error": error["error"]})
                }
            };
            self.output.json(&line)?;
        } else if let Ok(finished) = &outcome {
            let Ended { stdout, stderr, status, .. } = finished.ended;
            // Of a program that failed nothing is kept.
            let is_printed = !self.is_stdout_kept || status != 0;
            if stderr.size() > 0 || is_printed && stdout.size() > 0 {
                progress.aside();
            }
            copy(stderr, None, node, &mut std::io::stderr().lock(), None).await?;
            if is_printed {
                copy(stdout, None, node, &mut std::io::stdout().lock(), None).await?;
            }
            if self.output.is_verbose() {
                progress.aside();
                self.output.say(&format!("{}: {}", file.display(), cost(&finished.answer)));
            }
        }
        let why = match &outcome {
            Ok(finished) if finished.ended.status == 0 => return Ok(()),
            Ok(finished) => format!("exit code {}", finished.ended.status),
            Err(error) => format!("{error:#}"),
        };
        let line = format!("{}: {why}", file.display());
        if !self.output.is_json() {
            progress.aside();
            self.output.say(&format!("failed: {line}"));
        }
        if self.failures.len() < REPEATED_MAX {
            self.failures.push(line.lines().next().unwrap_or_default().to_owned());
        }
        Ok(())
    }

    /// The last line.
    pub(super) fn summary(&self, took: Duration) -> String {
        let Tally { all, failed, remembered, .. } = self.tally;
        let ok = all - failed;
        let failed = if failed > 0 { format!(", {} failed", grouped(failed)) } else { String::new() };
        let run = grouped(ok - remembered);
        let files = if all == 1 { "file" } else { "files" };
        let (all, ok, remembered) = (grouped(all), grouped(ok), grouped(remembered));
        format!("{all} {files}: {ok} ok ({run} run, {remembered} remembered){failed} in {}", human_time(took))
    }

    /// The same for programs.
    pub(super) fn summary_json(&self, took: Duration) -> Value {
        let Tally { all, failed, remembered, .. } = self.tally;
        let run = all - failed - remembered;
        json!({"files": all, "ok": all - failed, "run": run, "remembered": remembered, "failed": failed,
            "wall_ns": u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)})
    }

    /// The error of a command of which some files failed.
    pub(super) fn failure(&self) -> Option<Stop> {
        let Tally { all, failed, .. } = self.tally;
        if failed == 0 {
            return None;
        }
        let mut message = format!("{} of {} files failed", grouped(failed), grouped(all));
        for line in &self.failures {
            message.push_str(&format!("\n  {line}"));
        }
        let more = failed - self.failures.len() as u64;
        if more > 0 {
            message.push_str(&format!("\n  and {} more", grouped(more)));
        }
        Some(
            Stop::new(Code::Failure, message)
                .suggest("mend these and repeat the command: what is done is remembered"),
        )
    }
}

/// One file, for programs.
async fn told(file: &Path, finished: &Finished, node: &mut Node) -> anyhow::Result<Value> {
    let Finished { ended, answer, made } = finished;
    let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let outputs: Vec<Value> = made
        .iter()
        .map(|made| json!({"path": text(&made.path), "handle": made.handle.to_string()}))
        .collect();
    Ok(json!({
        "file": file.to_string_lossy(),
        "status": ended.status,
        "stdout": stream(ended.stdout, node).await?,
        "stderr": stream(ended.stderr, node).await?,
        "outputs": outputs,
        "result": ended.result.to_string(),
        "memo_hit": answer["memo_hit"],
        "applied": answer["applied"],
        "wall_ns": answer["wall_ns"],
    }))
}

#[cfg(test)]
mod tests;
