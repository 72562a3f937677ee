// SPDX-License-Identifier: Apache-2.0
//! One file: its application is asked for, and what came of it is written here.
//!
//! The node is asked by name first. What it remembers it answers from that, and nothing is sent; only
//! what it does not know is sent along when it is asked again.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use objects::Handle;
use serde_json::Value;

use super::folder::{Folder, Leaf, parts};
use super::recipe::{Given, Recipe, StdinOf};
use crate::client::streamed;
use crate::commands::run::ended::{Ended, children, failed};
use crate::commands::run::placing;
use crate::directory::{is_executable, unreadable};
use crate::exit::{Code, Stop};
use crate::expression::Objects;
use crate::node_api::{Node, collect};
use crate::upload::{BUNDLED_BYTES_MAX, named};

/// The longest path that a program may make in its directory: as of files on this machine.
const PATH_BYTES_MAX: usize = 4096;
/// Files and directories that all programs together make, at most.
const OUTPUTS_MAX: usize = 4_000_000;
/// Conflicts that are told.
const CONFLICTS_MAX: usize = 20;
/// How long a node that is busy is asked again, and in between at most.
const PATIENCE: u32 = 60;
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Something that a program made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) path: Vec<u8>,
    /// `f`, `x`, `l`, or `d` for a directory with nothing in it.
    pub(super) kind: u8,
    pub(super) handle: Handle,
}

/// What came of one file.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) ended: Ended,
    pub(super) answer: Value,
    pub(super) made: Vec<Made>,
}

/// What all programs made, together.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    pub(super) folder: Folder,
    pub(super) count: usize,
    /// A path, and the two whose it is.
    pub(super) conflicts: Vec<(Vec<u8>, usize, usize)>,
    /// Those that are not told, too.
    pub(super) conflicting: u64,
}

impl Outputs {
    /// Takes what a program made, and gives back what is to be written.
    fn take(&mut self, made: &[Made], owner: usize) -> anyhow::Result<Vec<Made>> {
        self.count += made.len();
        ensure!(self.count <= OUTPUTS_MAX, "the programs made more than {OUTPUTS_MAX} files");
        let mut ours = Vec::with_capacity(made.len());
        for one in made {
            let taken = match one.kind {
                b'd' => self.folder.insert_folder(&one.path),
                kind => self.folder.insert(&one.path, Leaf { kind, handle: one.handle, owner }),
            };
            match taken {
                Ok(()) => ours.push(one.clone()),
                Err(taken) => {
                    self.conflicting += 1;
                    if self.conflicts.len() < CONFLICTS_MAX {
                        self.conflicts.push((one.path.clone(), taken.by, owner));
                    }
                }
            }
        }
        Ok(ours)
    }
}

/// What all jobs of one command share.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) recipe: Recipe,
    outputs: Mutex<Outputs>,
}

impl Course {
    pub(super) fn new(recipe: Recipe) -> Self {
        Self { recipe, outputs: Mutex::default() }
    }

    pub(super) fn outputs(&self) -> MutexGuard<'_, Outputs> {
        self.outputs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has the node evaluate a file's application, and writes what came of it.
pub(super) async fn run(
    course: Arc<Course>,
    path: PathBuf,
    owner: usize,
    node: &mut Node,
) -> anyhow::Result<Finished> {
    let recipe = &course.recipe;
    let name = path.as_os_str().as_bytes();
    let content = Content::read(&path).await?;
    let (stdin, beside) = match recipe.stdin_of(name) {
        None => (None, None),
        Some(StdinOf::Itself) => (Some(content.handle), None),
        Some(StdinOf::Other(path)) => {
            let content = Content::read(&path).await?;
            (Some(content.handle), Some(content))
        }
    };
    let mut objects = Objects::default();
    let given = Given { kind: content.kind, handle: content.handle, stdin };
    let wanted = recipe.application(name, given, &mut objects)?;
    let answer = match ask(recipe, wanted.goal, None, node).await {
        Err(error) if is_unknown(&error) => {
            for content in [Some(&content), beside.as_ref()].into_iter().flatten() {
                content.send(&mut objects, node).await?;
            }
            ask(recipe, wanted.goal, Some(objects.with_goal(wanted.goal)), node).await
        }
        answer => answer,
    };
    let answer = answer.map_err(failed)?;
    let ended = Ended::read(&answer, node).await?;
    let mut made = Vec::new();
    // What a program left that failed is of no use to anybody.
    if ended.status == 0 {
        if let Some(at) = recipe.place_of_out() {
            let out = ended.directories.get(at).context("the result lacks the directory of what was made")?;
            let parent = &name[..name.iter().rposition(|byte| *byte == b'/').unwrap_or(0)];
            made = list(*out, &wanted.out, parent, node).await?;
        }
        if let Some(path) = recipe.stdout_of(name) {
            made.push(printed(&path, &ended)?);
        }
        let ours = course.outputs().take(&made, owner)?;
        if let Some(target) = recipe.target() {
            place(&ours, target, node).await?;
        }
    }
    Ok(Finished { ended, answer, made })
}

/// What a program printed, as a file among those that it made.
fn printed(path: &[u8], ended: &Ended) -> anyhow::Result<Made> {
    let parts = parts(path);
    if parts.is_empty() || !parts.iter().all(|part| placing::is_name(part)) {
        let path = String::from_utf8_lossy(path);
        let stop = Stop::new(Code::Usage, format!("{path:?} is no path for what is printed"));
        return Err(stop.suggest("--stdout '{}.txt' is one, or '{/.}.txt'").into());
    }
    Ok(Made { path: parts.join(&b'/'), kind: b'f', handle: ended.stdout })
}

/// A file's contents, or only their handle where they are long.
struct Content {
    path: PathBuf,
    kind: u8,
    handle: Handle,
    bytes: Option<Vec<u8>>,
}

impl Content {
    async fn read(path: &Path) -> anyhow::Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, error))?;
        ensure!(metadata.is_file(), "{} is no file any more", path.display());
        let kind = if is_executable(&metadata) { b'x' } else { b'f' };
        let (handle, bytes) = if metadata.len() > BUNDLED_BYTES_MAX {
            (named(path).await?, None)
        } else {
            let bytes = std::fs::read(path).map_err(|error| unreadable(path, error))?;
            (Handle::blob(&bytes), Some(bytes))
        };
        Ok(Self { path: path.to_owned(), kind, handle, bytes })
    }

    /// Brings it to the node, or has it travel with what is collected.
    async fn send(&self, objects: &mut Objects, node: &mut Node) -> anyhow::Result<()> {
        if let Some(bytes) = &self.bytes {
            objects.blob(bytes);
            return Ok(());
        }
        if node.has(self.handle).await? {
            return Ok(());
        }
        let file = tokio::fs::File::open(&self.path).await.map_err(|error| unreadable(&self.path, error))?;
        let stored = node.put_blob(streamed(file, Some(self.handle.size()), |_| ())).await?;
        if stored != self.handle {
            let message = format!("{} changed while it was read", self.path.display());
            return Err(Stop::new(Code::Failed, message).suggest("repeat the command").into());
        }
        Ok(())
    }
}

/// Asks for a goal, by its name or with a bundle, and again where the node is busy.
async fn ask(
    recipe: &Recipe,
    goal: Handle,
    bundle: Option<Vec<u8>>,
    node: &mut Node,
) -> anyhow::Result<Value> {
    let mut pause = Duration::from_millis(50);
    for _ in 0..PATIENCE {
        let asked = match &bundle {
            None => node.evaluate_known(goal, &recipe.wishes).await,
            Some(bundle) => evaluate(bundle.clone(), recipe, node).await,
        };
        match asked {
            Err(error) if is_busy(&error) => tokio::time::sleep(pause).await,
            asked => return asked,
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
    let stop = Stop::new(Code::Failed, "the node was busy for minutes");
    Err(stop.suggest("repeat the command when others have ended: what was finished is remembered").into())
}

async fn evaluate(bundle: Vec<u8>, recipe: &Recipe, node: &mut Node) -> anyhow::Result<Value> {
    let answer = collect(node.evaluate(bundle, &recipe.wishes, "application/json").await?).await?;
    serde_json::from_slice(&answer).context("the node's answer is not JSON")
}

/// Whether the node lacks something that it needs to evaluate.
fn is_unknown(error: &anyhow::Error) -> bool {
    let problem = error.downcast_ref::<Stop>().and_then(|stop| stop.problem.as_ref());
    problem.is_some_and(|problem| problem["failure"]["code"] == "missing-data")
}

/// Whether it would be heard another time.
fn is_busy(error: &anyhow::Error) -> bool {
    let problem = error.downcast_ref::<Stop>().and_then(|stop| stop.problem.as_ref());
    problem
        .and_then(|problem| problem["type"].as_str())
        .is_some_and(|kind| kind.ends_with(":busy") || kind.ends_with(":over-quota"))
}

/// What is in a directory but was not given. `given` has the handles of the directories on the way
/// to `parent`.
async fn list(out: Handle, given: &[Handle], parent: &[u8], node: &mut Node) -> anyhow::Result<Vec<Made>> {
    let parent = parts(parent);
    let mut made = Vec::new();
    let mut waiting = vec![(Vec::new(), out)];
    while let Some((path, tree)) = waiting.pop() {
        let at = parts(&path);
        let was_given = parent.starts_with(&at) && given[at.len()].definition() == tree.definition();
        if was_given {
            continue;
        }
        let children = children(tree, node).await?;
        if children.is_empty() && !parent.starts_with(&at) {
            made.push(Made { path, kind: b'd', handle: tree });
            continue;
        }
        for (kind, name, handle) in children {
            ensure!(placing::is_name(&name), "the node's tree has a bad name");
            let mut path = path.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            ensure!(
                path.len() <= PATH_BYTES_MAX,
                "the program made a path of more than {PATH_BYTES_MAX} bytes"
            );
            ensure!(
                made.len() + waiting.len() < OUTPUTS_MAX,
                "the program made more than {OUTPUTS_MAX} files"
            );
            match kind {
                b'd' => waiting.push((path, handle)),
                kind => made.push(Made { path, kind, handle }),
            }
        }
    }
    made.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    Ok(made)
}

/// Writes what a program made below a directory. What is there already is left alone.
async fn place(made: &[Made], target: &Path, node: &mut Node) -> anyhow::Result<()> {
    for one in made {
        let parts = parts(&one.path);
        let mut path = target.to_owned();
        for (at, part) in parts.iter().enumerate() {
            path.push(std::ffi::OsStr::from_bytes(part));
            if at + 1 < parts.len() || one.kind == b'd' {
                placing::directory(&path)?;
            }
        }
        if one.kind != b'd' && !placing::is_there(&path, one.kind, one.handle).await {
            let placed = placing::file(&path, one.kind, one.handle, node).await;
            placed.with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
