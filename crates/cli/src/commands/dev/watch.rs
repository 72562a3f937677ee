// SPDX-License-Identifier: Apache-2.0
//! What of a directory changes.
//!
//! Each directory below the manifest's is watched on its own, but those that
//! hold nothing that anybody edits: of version control, of installed packages,
//! of caches, and what the root's `.gitignore` names. Editors write in steps,
//! so changes are collected until nothing more comes for a moment.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use notify::event::{AccessKind, AccessMode, EventKind, MetadataKind, ModifyKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

use crate::deployment::read_text;
use crate::directory::unreadable;
use crate::manifest::{Build, Selection, Verdict};
use crate::output::Output;

/// Nothing more within this: the editor has written all of it.
const QUIET: Duration = Duration::from_millis(10);
/// Something that changes all the time does not put the reload off for longer.
const QUIET_WAIT_MAX: Duration = Duration::from_millis(200);
/// Directories that are watched, at most.
const DIRECTORIES_MAX: usize = 8192;
/// Paths that are told apart; beyond that, everything may have changed.
const PATHS_MAX: usize = 4096;
/// Of a `.gitignore`.
const IGNORED_BYTES_MAX: u64 = 1 << 20;
/// Directories in which nobody edits code by hand.
const NOT_WATCHED: &str =
    "node_modules/\nvenv/\n.tox/\n.idea/\n.vscode/\n.cache/\n*.swp\n*.swx\n*~\n4913\n.#*\n";

/// What changed, and since when that is known.
#[derive(Debug, Clone)]
pub(super) struct Changes {
    pub(super) since: Instant,
    /// Relative to the manifest; `None`: anything.
    paths: Option<HashSet<String>>,
}

impl Changes {
    /// Anything may be different.
    pub(super) fn everything() -> Self {
        Self { since: Instant::now(), paths: None }
    }

    /// No file is different.
    pub(super) fn none() -> Self {
        Self { since: Instant::now(), paths: Some(HashSet::new()) }
    }

    /// Whether a build has to be run again. One that does not say what it
    /// reads, reads everything but what it writes.
    pub(super) fn concern(&self, build: &Build) -> bool {
        let Some(paths) = &self.paths else { return true };
        let written =
            build.output.as_deref().map(|output| output.trim_start_matches("./").trim_end_matches('/'));
        let is_written = |path: &str| {
            written.is_some_and(|written| {
                path.strip_prefix(written).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        let is_watched =
            |path: &str| build.watch.is_empty() || build.watch.iter().any(|glob| glob.matches(path, false));
        paths.iter().any(|path| !is_written(path) && is_watched(path))
    }
}

/// What the system told since it was last asked.
#[derive(Default)]
struct Told {
    paths: HashSet<PathBuf>,
    is_more: bool,
    since: Option<Instant>,
    last: Option<Instant>,
}

struct Inbox {
    told: std::sync::Mutex<Told>,
    arrived: Notify,
}

/// A directory that is watched.
pub(super) struct Watch {
    root: PathBuf,
    ignored: Selection,
    watcher: RecommendedWatcher,
    watched: HashSet<PathBuf>,
    inbox: Arc<Inbox>,
    is_over: bool,
    /// Files that this program itself prints into: device and inode.
    printed: Vec<(u64, u64)>,
}

impl Watch {
    pub(super) fn new(root: &Path) -> anyhow::Result<Self> {
        let root = root.canonicalize().map_err(|error| unreadable(root, error))?;
        let inbox = Arc::new(Inbox { told: std::sync::Mutex::default(), arrived: Notify::new() });
        let telling = inbox.clone();
        let watcher = notify::recommended_watcher(move |event| telling.take(event));
        let watcher = watcher.context("the system watches no files (fs.inotify.max_user_instances)")?;
        let ignored = ignored(&root);
        let (watched, printed) = (HashSet::new(), printed());
        let mut watch = Self { root, ignored, watcher, watched, inbox, is_over: false, printed };
        watch.look();
        Ok(watch)
    }

    /// The next changes of files that somebody may edit.
    pub(super) async fn changes(&mut self, output: &Output) -> anyhow::Result<Changes> {
        loop {
            let told = self.settled().await;
            let since = told.since.unwrap_or_else(Instant::now);
            let relative =
                |path: &PathBuf| Some(path.strip_prefix(&self.root).ok()?.to_string_lossy().into_owned());
            let paths: HashSet<String> =
                told.paths.iter().filter_map(relative).filter(|path| self.is_edited(path)).collect();
            if paths.is_empty() && !told.is_more {
                continue;
            }
            if paths.contains(".gitignore") {
                self.ignored = ignored(&self.root);
            }
            self.look();
            if std::mem::take(&mut self.is_over) {
                output.say(&format!(
                    "only {} directories are watched; a .gitignore may name those that are not edited",
                    self.watched.len()
                ));
            }
            return Ok(Changes { since, paths: (!told.is_more).then_some(paths) });
        }
    }

    /// What was told until nothing more came for a moment.
    async fn settled(&self) -> Told {
        loop {
            let (since, last) = {
                let told = self.inbox.lock();
                (told.since, told.last)
            };
            let (Some(since), Some(last)) = (since, last) else {
                self.inbox.arrived.notified().await;
                continue;
            };
            let until = (last + QUIET).min(since + QUIET_WAIT_MAX);
            if Instant::now() >= until {
                return std::mem::take(&mut *self.inbox.lock());
            }
            tokio::time::sleep_until(until.into()).await;
        }
    }

    /// Whether neither a file nor a directory above it is left out.
    fn is_edited(&self, path: &str) -> bool {
        let own = std::fs::metadata(self.root.join(path)).map(|found| (found.dev(), found.ino()));
        if own.is_ok_and(|own| self.printed.contains(&own)) {
            return false;
        }
        let above = path.match_indices('/').map(|(at, _)| (&path[..at], true));
        let is_taken = |(path, is_directory)| self.ignored.verdict(path, is_directory) != Verdict::LeftOut;
        // What is gone may have been a directory.
        above.chain([(path, false)]).all(is_taken) && is_taken((path, true))
    }

    /// Watches the directories that are not watched yet.
    fn look(&mut self) {
        let mut waiting = vec![(self.root.clone(), String::new())];
        let mut found = HashSet::new();
        while let Some((path, relative)) = waiting.pop() {
            if found.len() >= DIRECTORIES_MAX {
                self.is_over = true;
                break;
            }
            // One that cannot be watched, or is gone already, is none of ours.
            if !self.watched.contains(&path)
                && let Err(error) = self.watcher.watch(&path, RecursiveMode::NonRecursive)
            {
                tracing::debug!(path = %path.display(), %error, "a directory is not watched");
                self.is_over |= matches!(error.kind, notify::ErrorKind::MaxFilesWatch);
                continue;
            }
            for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let relative = format!("{relative}{}", entry.file_name().to_string_lossy());
                    if self.ignored.verdict(&relative, true) != Verdict::LeftOut {
                        waiting.push((entry.path(), relative + "/"));
                    }
                }
            }
            found.insert(path);
        }
        for gone in self.watched.difference(&found) {
            // The system has forgotten those that were removed.
            _ = self.watcher.unwatch(gone);
        }
        self.watched = found;
    }
}

impl Inbox {
    fn lock(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn take(&self, event: notify::Result<Event>) {
        let mut told = self.lock();
        match event {
            Ok(event) if event.need_rescan() => told.is_more = true,
            Ok(event) if is_change(event.kind) => {
                told.paths.extend(event.paths);
                if told.paths.len() > PATHS_MAX {
                    told.paths.clear();
                    told.is_more = true;
                }
            }
            Ok(_) => return,
            Err(_) => told.is_more = true,
        }
        let now = Instant::now();
        told.since.get_or_insert(now);
        told.last = Some(now);
        drop(told);
        self.arrived.notify_one();
    }
}

/// Where standard output and error go: what is told of a change must not be one.
fn printed() -> Vec<(u64, u64)> {
    let streams = [io::stdout().as_fd().try_clone_to_owned(), io::stderr().as_fd().try_clone_to_owned()];
    let files = streams.into_iter().filter_map(|stream| File::from(stream.ok()?).metadata().ok());
    files.filter(Metadata::is_file).map(|file| (file.dev(), file.ino())).collect()
}

/// Whether an event says that something is different. That a file is read is none.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        EventKind::Modify(ModifyKind::Metadata(MetadataKind::AccessTime)) => false,
        _ => true,
    }
}

/// What nobody edits: what is no code, what the root's `.gitignore` says, and more.
fn ignored(root: &Path) -> Selection {
    let own = read_text(&root.join(".gitignore"), IGNORED_BYTES_MAX).unwrap_or_default();
    // The manifest is no code, but edited.
    let with = |own: &str| {
        Selection::new(&[], &[], &format!("!/sinew.toml\n!/.sinewignore\n!.gitignore\n{NOT_WATCHED}{own}"))
    };
    with(&own).or_else(|_| with("")).unwrap_or_default()
}

#[cfg(test)]
mod tests;
