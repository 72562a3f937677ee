// SPDX-License-Identifier: Apache-2.0
//! Files and directories on their way to a node.
//!
//! Small objects are collected and sent in bundles; a file over 1 MiB is
//! streamed on its own, and only if the node does not have it yet.

use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use objects::{Handle, TreeBuilder};
use tokio::io::AsyncReadExt as _;

use crate::client::{streamed, whole};
use crate::directory::{Child, Folder, Plan, plan, unreadable};
use crate::exit::{Code, Stop};
use crate::expression::Objects;
use crate::node_api::Node;
use crate::output::Output;
use crate::progress::Progress;
use crate::python::Python;

/// Files up to this long travel in bundles.
pub(crate) const BUNDLED_BYTES_MAX: u64 = 1 << 20;
/// A bundle is sent when its objects have this many bytes.
const BUNDLE_BYTES: usize = 16 << 20;
const HASH_CHUNK_BYTES: usize = 1 << 20;
/// A file that was changed more recently than this may change again without
/// its time telling.
const SETTLED: Duration = Duration::from_millis(100);
/// Objects and files that are remembered, at most.
const REMEMBERED_MAX: usize = 1 << 20;

/// What a node was sent already, for a command that sends the same things
/// again and again.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    sent: HashSet<Handle>,
    /// What people were told once.
    told: HashSet<String>,
    files: HashMap<PathBuf, (Stamp, Handle)>,
}

/// What changes when a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    len: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// `None` for what changed just now.
    #[expect(clippy::disallowed_methods, reason = "a file's times are times of day")]
    fn of(metadata: &Metadata) -> Option<Self> {
        let age = SystemTime::now().duration_since(metadata.modified().ok()?).ok()?;
        (age > SETTLED).then(|| Self {
            len: metadata.len(),
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

impl Remembered {
    /// Whether it is to be sent: not if it was before.
    fn is_new(&mut self, handle: Handle) -> bool {
        if self.sent.len() >= REMEMBERED_MAX {
            self.sent.clear();
        }
        self.sent.insert(handle)
    }

    fn file(&self, path: &Path, stamp: Stamp) -> Option<Handle> {
        self.files.get(path).filter(|(known, _)| *known == stamp).map(|&(_, handle)| handle)
    }

    fn remember(&mut self, path: &Path, stamp: Stamp, handle: Handle) {
        if self.files.len() >= REMEMBERED_MAX {
            self.files.clear();
        }
        self.files.insert(path.to_owned(), (stamp, handle));
    }
}

/// Objects that are collected, and the node they go to.
pub(crate) struct Uplink<'a> {
    pub(crate) node: &'a mut Node,
    /// Not sent yet.
    pub(crate) objects: Objects,
    pub(crate) progress: Progress,
    output: &'a Output,
    remembered: Option<&'a mut Remembered>,
    python: Option<Python>,
}

impl<'a> Uplink<'a> {
    pub(crate) fn new(node: &'a mut Node, output: &'a Output, progress: Progress) -> Self {
        Self { node, objects: Objects::default(), progress, output, remembered: None, python: None }
    }

    /// What installs and compiles for the node's Python. The inner error: there is no Python here.
    pub(crate) async fn python(&mut self) -> anyhow::Result<Result<Python, Stop>> {
        if let Some(known) = &self.python {
            return Ok(Ok(known.clone()));
        }
        let found = Python::of(self.node.python().await?);
        self.python = found.as_ref().ok().cloned();
        Ok(found)
    }

    /// Sends only what is not remembered. After an error nothing may be.
    pub(crate) fn remembering(self, remembered: &'a mut Remembered) -> Self {
        Self { remembered: Some(remembered), ..self }
    }

    /// A message for people.
    pub(crate) fn say(&self, message: &str) {
        self.output.say(message);
    }

    /// The same, once for as long as it is remembered what was sent.
    pub(crate) fn say_once(&mut self, message: &str) {
        let is_new =
            self.remembered.as_mut().is_none_or(|remembered| remembered.told.insert(message.to_owned()));
        if is_new {
            self.say(message);
        }
    }

    /// Whether the node has an object; it was sent before, or is asked for.
    pub(crate) async fn has(&mut self, handle: Handle) -> anyhow::Result<bool> {
        let is_sent = self.remembered.as_ref().is_some_and(|remembered| remembered.sent.contains(&handle));
        Ok(is_sent || self.node.has(handle).await?)
    }

    /// Whether the same things are sent again and again.
    pub(crate) fn is_remembering(&self) -> bool {
        self.remembered.is_some()
    }

    /// What a file's contents are named, without sending them.
    pub(crate) fn handle_of(&self, path: &Path) -> anyhow::Result<Handle> {
        let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, error))?;
        let known = self.remembered.as_ref().and_then(|known| known.file(path, Stamp::of(&metadata)?));
        match known {
            Some(handle) => Ok(handle),
            None => Ok(Handle::blob(&std::fs::read(path).map_err(|error| unreadable(path, error))?)),
        }
    }

    fn is_new(&mut self, handle: Handle) -> bool {
        self.remembered.as_mut().is_none_or(|remembered| remembered.is_new(handle))
    }

    /// Sends what was collected.
    pub(crate) async fn flush(&mut self) -> anyhow::Result<()> {
        if !self.objects.is_empty() {
            let bundle = std::mem::take(&mut self.objects).finish();
            self.node.put_bundle(bundle).await?;
        }
        Ok(())
    }

    /// Makes room for `bytes` more.
    async fn reserve(&mut self, bytes: usize) -> anyhow::Result<()> {
        if self.objects.bytes() + bytes > BUNDLE_BYTES { self.flush().await } else { Ok(()) }
    }

    /// A blob that is in memory.
    pub(crate) async fn blob(&mut self, bytes: Vec<u8>) -> anyhow::Result<Handle> {
        let len = bytes.len() as u64;
        if self.remembered.is_some() {
            let handle = Handle::blob(&bytes);
            if !self.is_new(handle) {
                return Ok(handle);
            }
        }
        let handle = if len > BUNDLED_BYTES_MAX {
            self.node.put_blob(whole(bytes)).await?
        } else {
            self.reserve(bytes.len()).await?;
            self.objects.blob(&bytes)
        };
        self.progress.advance(len, self.output);
        Ok(handle)
    }

    /// A tree of handles.
    pub(crate) async fn tree(&mut self, tree: &TreeBuilder) -> anyhow::Result<Handle> {
        if self.remembered.is_some() {
            let handle = tree.view().handle();
            if !self.is_new(handle) {
                return Ok(handle);
            }
        }
        self.reserve(tree.view().as_bytes().len()).await?;
        Ok(self.objects.tree(tree.view()))
    }

    /// A file's contents.
    pub(crate) async fn file(&mut self, path: &Path) -> anyhow::Result<Handle> {
        if self.remembered.is_none() {
            return self.read_file(path).await;
        }
        let stamp = std::fs::metadata(path).ok().filter(Metadata::is_file).as_ref().and_then(Stamp::of);
        if let (Some(remembered), Some(stamp)) = (&self.remembered, stamp)
            && let Some(handle) = remembered.file(path, stamp)
        {
            return Ok(handle);
        }
        let handle = self.read_file(path).await?;
        if let (Some(remembered), Some(stamp)) = (&mut self.remembered, stamp) {
            remembered.remember(path, stamp, handle);
        }
        Ok(handle)
    }

    async fn read_file(&mut self, path: &Path) -> anyhow::Result<Handle> {
        let opened = tokio::fs::File::open(path).await.map_err(|error| unreadable(path, error))?;
        let metadata = opened.metadata().await.map_err(|error| unreadable(path, error))?;
        if metadata.is_dir() {
            let message = format!("{} is a directory", path.display());
            let advice = "put it as a tree: `sinew put --tree DIR`, or @@DIR in an expression";
            return Err(Stop::new(Code::Usage, message).suggest(advice).into());
        }
        if !metadata.is_file() || metadata.len() <= BUNDLED_BYTES_MAX {
            // Pipes and the like have no length; they stream if they are long.
            return self.small_or_pipe(opened, path).await;
        }
        let handle = hash(opened, metadata.len()).await.with_context(|| path.display().to_string())?;
        if self.node.has(handle).await? {
            self.progress.advance(metadata.len(), self.output);
            return Ok(handle);
        }
        let again = tokio::fs::File::open(path).await.map_err(|error| unreadable(path, error))?;
        let stored = self.stream(again, Some(metadata.len())).await?;
        if stored != handle {
            let message = format!("{} changed while it was read", path.display());
            return Err(Stop::new(Code::Failed, message).suggest("repeat the command").into());
        }
        Ok(stored)
    }

    async fn small_or_pipe(&mut self, file: tokio::fs::File, path: &Path) -> anyhow::Result<Handle> {
        let mut bytes = Vec::new();
        let mut limited = file.take(BUNDLED_BYTES_MAX + 1);
        limited.read_to_end(&mut bytes).await.map_err(|error| unreadable(path, error))?;
        if bytes.len() as u64 <= BUNDLED_BYTES_MAX {
            return self.blob(bytes).await;
        }
        let beginning = std::io::Cursor::new(bytes);
        self.stream(beginning.chain(limited.into_inner()), None).await
    }

    /// Whatever a reader gives, as a blob.
    pub(crate) async fn stream(
        &mut self,
        reader: impl tokio::io::AsyncRead + Send + 'static,
        len: Option<u64>,
    ) -> anyhow::Result<Handle> {
        let sent = Arc::new(AtomicU64::new(0));
        let count = sent.clone();
        let body = streamed(reader, len, move |bytes| {
            count.fetch_add(bytes, Ordering::Relaxed);
        });
        let mut told = 0;
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(100));
        let stored = self.node.put_blob(body);
        tokio::pin!(stored);
        let handle = loop {
            tokio::select! {
                handle = &mut stored => break handle?,
                _ = ticks.tick() => {
                    let now = sent.load(Ordering::Relaxed);
                    self.progress.advance(now - told, self.output);
                    told = now;
                }
            }
        };
        self.progress.advance(sent.load(Ordering::Relaxed) - told, self.output);
        Ok(handle)
    }

    /// A directory as a tree (see `directory.rs`).
    pub(crate) async fn directory(&mut self, path: &Path) -> anyhow::Result<Handle> {
        let plan = plan(path, None)?;
        self.planned(&plan).await
    }

    /// A planned tree, of which nothing is sent if the node has it.
    pub(crate) async fn planned_once(&mut self, plan: &Plan) -> anyhow::Result<Handle> {
        let mut made: HashMap<usize, Handle> = HashMap::new();
        for (at, folder) in plan.folders.iter().enumerate().rev() {
            let mut tree = TreeBuilder::with_capacity(1 + folder.children.len());
            tree.push(Handle::blob(&folder.names()));
            for (_, child) in &folder.children {
                tree.push(match child {
                    Child::File { path, .. } => named(path).await?,
                    Child::Folder(at) => *made.get(at).context("a folder comes after its parent")?,
                    Child::Link(target) => Handle::blob(target.as_bytes()),
                });
            }
            made.insert(at, tree.view().handle());
        }
        let root = made.remove(&0).context("a directory has a root")?;
        if self.has(root).await? { Ok(root) } else { self.planned(plan).await }
    }

    /// A planned tree.
    pub(crate) async fn planned(&mut self, plan: &Plan) -> anyhow::Result<Handle> {
        for skipped in &plan.skipped {
            self.output
                .say(&format!("left out: {} is no file and no directory of its own", skipped.display()));
        }
        for secret in &plan.secrets {
            let path = secret.display();
            self.output.say(&format!(
                "left out: {path} looks like a secret (a line !NAME in .sinewignore takes it)"
            ));
        }
        let mut made: HashMap<usize, Handle> = HashMap::new();
        // Folders come before the folders in them: from the last to the first
        // every child is made before its parent.
        for (at, folder) in plan.folders.iter().enumerate().rev() {
            let tree = self.folder(folder, &made).await?;
            made.insert(at, tree);
        }
        made.remove(&0).context("a directory has a root")
    }

    async fn folder(&mut self, folder: &Folder, made: &HashMap<usize, Handle>) -> anyhow::Result<Handle> {
        let mut tree = TreeBuilder::with_capacity(1 + folder.children.len());
        tree.push(self.blob(folder.names()).await?);
        for (_, child) in &folder.children {
            let handle = match child {
                Child::File { path, .. } => self.file(path).await?,
                Child::Folder(at) => *made.get(at).context("a folder comes after its parent")?,
                Child::Link(target) => self.blob(target.as_bytes().to_vec()).await?,
            };
            tree.push(handle);
        }
        self.tree(&tree).await
    }
}

/// The handle of a file, which is not sent.
pub(crate) async fn named(path: &Path) -> anyhow::Result<Handle> {
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, error))?;
    if metadata.len() <= BUNDLED_BYTES_MAX {
        return Ok(Handle::blob(&std::fs::read(path).map_err(|error| unreadable(path, error))?));
    }
    let file = tokio::fs::File::open(path).await.map_err(|error| unreadable(path, error))?;
    hash(file, metadata.len()).await.with_context(|| path.display().to_string())
}

/// The handle of a file's contents, without holding them.
async fn hash(mut file: tokio::fs::File, len: u64) -> anyhow::Result<Handle> {
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; HASH_CHUNK_BYTES];
    let mut hashed = 0;
    loop {
        let read = file.read(&mut chunk).await?;
        if read == 0 {
            break;
        }
        hasher.update(&chunk[..read]);
        hashed += read as u64;
    }
    anyhow::ensure!(hashed == len, "the file changed while it was read");
    Handle::blob_from_hash(hasher.finalize().as_bytes(), len).context("the file is too long for a blob")
}
