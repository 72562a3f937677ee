// SPDX-License-Identifier: Apache-2.0
//! What comes of a program: `[status, stdout, stderr, directory…]`.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use objects::Handle;
use serde_json::{Value, json};

use crate::commands::get::copy;
use crate::exit::{Code, Exited, Stop};
use crate::node_api::Node;
use crate::output::Output;
use crate::quantity::{grouped, human_time};

/// Entries of a result, at most: three, and the directories.
const ENTRIES_MAX: u64 = 128;
/// The longest text that is repeated in JSON.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// A program's result.
#[derive(Debug)]
pub(in crate::commands) struct Ended {
    pub(in crate::commands) result: Handle,
    pub(in crate::commands) status: u64,
    pub(in crate::commands) stdout: Handle,
    pub(in crate::commands) stderr: Handle,
    pub(in crate::commands) directories: Vec<Handle>,
}

impl Ended {
    /// Reads the result that an evaluation's answer names.
    pub(in crate::commands) async fn read(answer: &Value, node: &mut Node) -> anyhow::Result<Self> {
        let result = answer["result"].as_str().context("the node's answer has no result")?;
        let result: Handle = result.parse().context("the node's answer has a bad result")?;
        let not_a_program = || {
            let stop = Stop::new(Code::Failed, format!("{result} is no program's result"));
            stop.suggest("codelets are applied with `sinew eval`")
        };
        if !result.is_value() || !result.names_tree() {
            return Err(not_a_program().into());
        }
        let entries = node.entries(result, 0, ENTRIES_MAX).await?;
        let [status, stdout, stderr, directories @ ..] = &entries[..] else {
            return Err(not_a_program().into());
        };
        let status =
            status.literal_bytes().and_then(|bytes| bytes.first_chunk()).ok_or_else(not_a_program)?;
        Ok(Self {
            result,
            status: u64::from_le_bytes(*status),
            stdout: *stdout,
            stderr: *stderr,
            directories: directories.to_vec(),
        })
    }

    /// Both streams, each to its own.
    pub(in crate::commands) async fn print(&self, node: &mut Node) -> anyhow::Result<()> {
        copy(self.stderr, None, node, &mut std::io::stderr().lock(), None).await?;
        copy(self.stdout, None, node, &mut std::io::stdout().lock(), None).await
    }

    /// All of it as one line.
    pub(super) async fn json(
        &self,
        answer: &Value,
        directories: impl Iterator<Item = (&str, Handle, Handle)>,
        node: &mut Node,
        output: &Output,
    ) -> anyhow::Result<()> {
        let directories: Vec<Value> = directories
            .map(|(path, given, handle)| {
                let changed = given.definition() != handle.definition();
                json!({"path": path, "handle": handle.to_string(), "changed": changed})
            })
            .collect();
        let line = json!({
            "status": self.status,
            "stdout": stream(self.stdout, node).await?,
            "stderr": stream(self.stderr, node).await?,
            "directories": directories,
            "result": self.result.to_string(),
            "memo_hit": answer["memo_hit"],
            "applied": answer["applied"],
            "wall_ns": answer["wall_ns"],
        });
        output.json(&line)
    }

    /// The program's exit code is the command's.
    pub(super) fn exit(&self) -> anyhow::Result<()> {
        match self.status {
            0 => Ok(()),
            // What a parent sees of it; but never success.
            status => Err(Exited(u8::try_from(status & 0xff).unwrap_or(1).max(1)).into()),
        }
    }
}

/// A stream, with its text if that is text and not long.
pub(in crate::commands) async fn stream(stream: Handle, node: &mut Node) -> anyhow::Result<Value> {
    let mut told = json!({"handle": stream.to_string(), "size": stream.size()});
    if stream.size() <= TEXT_BYTES_MAX {
        let bytes = node.read_whole(stream, usize::try_from(stream.size())?).await?;
        if let Ok(text) = str::from_utf8(&bytes) {
            told["text"] = text.into();
        }
    }
    Ok(told)
}

/// An error whose exit code is that of a process which was ended by a signal, if the program trapped.
pub(in crate::commands) fn failed(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<Stop>() {
        Ok(mut stop) => {
            let failure = stop.problem.as_ref().and_then(|problem| problem["failure"]["code"].as_str());
            let (code, advice) = match failure {
                Some("trap" | "stack") => (Code::Aborted, None),
                Some("fuel") => (stop.code, Some("grant more: --fuel N, or leave it out")),
                Some("memory") => (stop.code, Some("grant more: --memory 1GiB")),
                Some("resources") => (
                    stop.code,
                    Some(
                        "ask for less: --memory 256MiB; or start the node with more: sinew up --memory 8GiB",
                    ),
                ),
                Some("bad-procedure") => (stop.code, Some("compile it for wasm32-wasip1 (WASI preview 1)")),
                _ => (stop.code, None),
            };
            stop.code = code;
            stop.suggestion = advice.map(str::to_owned).or(stop.suggestion);
            stop.into()
        }
        Err(error) => error,
    }
}

/// What it took, for people.
pub(in crate::commands) fn cost(answer: &Value) -> String {
    let number = |name: &str| answer[name].as_u64().unwrap_or(0);
    let time = human_time(Duration::from_nanos(number("wall_ns")));
    match answer["memo_hit"].as_bool() {
        Some(true) => format!("the result was remembered: nothing had to be run, {time}"),
        _ => format!("{} run, {time}", grouped(number("applied"))),
    }
}

/// The names in a directory tree, with their kinds and what they lead to.
pub(in crate::commands) async fn children(
    tree: Handle,
    node: &mut Node,
) -> anyhow::Result<Vec<(u8, Vec<u8>, Handle)>> {
    let mut entries = Vec::new();
    crate::commands::get::for_entries(tree, 0..tree.size(), node, |_, entry| {
        entries.push(entry);
        Ok(())
    })
    .await?;
    let list = entries.first().copied().context("a directory has a list of names")?;
    let list = node.read_whole(list, usize::try_from(list.size())?).await?;
    let lines: Vec<&[u8]> = list.split(|byte| *byte == b'\n').filter(|line| line.len() > 2).collect();
    ensure!(lines.len() + 1 == entries.len(), "{tree} is no directory");
    let children = lines.into_iter().zip(&entries[1..]);
    Ok(children.map(|(line, entry)| (line[0], line[2..].to_vec(), *entry)).collect())
}
