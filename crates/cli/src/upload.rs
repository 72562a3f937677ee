// SPDX-License-Identifier: Apache-2.0
//! Files and directories on their way to a node.
//!
//! Small objects are collected and sent in bundles; a file over 1 MiB is
//! streamed on its own, and only if the node does not have it yet.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// Files up to this long travel in bundles.
pub(crate) const BUNDLED_BYTES_MAX: u64 = 1 << 20;
/// A bundle is sent when its objects have this many bytes.
const BUNDLE_BYTES: usize = 16 << 20;
const HASH_CHUNK_BYTES: usize = 1 << 20;

/// Objects that are collected, and the node they go to.
pub(crate) struct Uplink<'a> {
    pub(crate) node: &'a mut Node,
    /// Not sent yet.
    pub(crate) objects: Objects,
    pub(crate) progress: Progress,
    output: &'a Output,
}

impl<'a> Uplink<'a> {
    pub(crate) fn new(node: &'a mut Node, output: &'a Output, progress: Progress) -> Self {
        Self { node, objects: Objects::default(), progress, output }
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
        self.reserve(tree.view().as_bytes().len()).await?;
        Ok(self.objects.tree(tree.view()))
    }

    /// A file's contents.
    pub(crate) async fn file(&mut self, path: &Path) -> anyhow::Result<Handle> {
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

    /// A planned tree.
    pub(crate) async fn planned(&mut self, plan: &Plan) -> anyhow::Result<Handle> {
        for skipped in &plan.skipped {
            self.output.say(&format!("left out: {} is neither a file nor a directory", skipped.display()));
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
            };
            tree.push(handle);
        }
        self.tree(&tree).await
    }
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
