// SPDX-License-Identifier: Apache-2.0
//! A program that runs: all that its calls look at and change, and what comes of it.

use objects::{Handle, TreeBuilder};
use store::Object;

use super::clock::Clock;
use super::contents::Buffer;
use super::descriptors::{Descriptor, Descriptors, Listing, Target};
use super::errno::{Errno, Result};
use super::files::{Files, Kind, NodeId};
use super::means::Means;
use super::options::Options;
use super::random::Random;
use super::rights;

/// Bytes of the end of stderr that a failure repeats.
const TAIL_BYTES: usize = 2048;

/// What one run of a program owns.
pub(crate) struct Process {
    pub(crate) arguments: Vec<Box<[u8]>>,
    pub(crate) environment: Vec<Box<[u8]>>,
    pub(crate) files: Files,
    pub(crate) descriptors: Descriptors,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    /// What it ended with, once it said so.
    pub(crate) exit: Option<u32>,
    stdin: Handle,
    /// Once it was read.
    stdin_data: Option<Object>,
    stdout: Buffer,
    stderr: Buffer,
    /// Directories that are part of the result, in order.
    kept: Vec<NodeId>,
}

impl Process {
    /// A program that is told this, before it runs.
    pub(crate) fn new(options: Options, means: &mut Means<'_>) -> Result<Self> {
        let clock = Clock::new(options.time);
        means.now = clock.time_of_day();
        let mut files = Files::default();
        let mut descriptors = Descriptors::default();
        descriptors.insert(Descriptor::stream(Target::Input { at: 0 }, rights::INPUT))?;
        descriptors.insert(Descriptor::stream(Target::Output, rights::OUTPUT))?;
        descriptors.insert(Descriptor::stream(Target::Errors, rights::OUTPUT))?;
        let mut kept = Vec::new();
        for mount in options.mounts {
            let root = files.root(mount.tree, mount.is_read_only, means)?;
            if !mount.is_read_only {
                kept.push(root);
            }
            files.acquire(root);
            descriptors.insert(Descriptor::preopened(root, mount.path))?;
        }
        Ok(Self {
            arguments: options.arguments,
            environment: options.environment,
            files,
            descriptors,
            clock,
            random: Random::new(&options.seed),
            exit: None,
            stdin: options.stdin,
            stdin_data: None,
            stdout: Buffer::default(),
            stderr: Buffer::default(),
            kept,
        })
    }

    /// What comes of it: `[status, stdout, stderr, directory…]`.
    pub(crate) fn finish(&mut self, means: &mut Means<'_>) -> Handle {
        let mut tree = TreeBuilder::with_capacity(3 + self.kept.len());
        tree.push(Handle::u64(self.exit.unwrap_or(0).into()));
        for part in self.results(means) {
            tree.push(part);
        }
        means.store.keep_tree(tree.view())
    }

    /// `stdout, stderr, directory…`.
    pub(crate) fn results(&mut self, means: &mut Means<'_>) -> Vec<Handle> {
        means.now = self.clock.time_of_day();
        let mut parts = Vec::with_capacity(2 + self.kept.len());
        for stream in [&mut self.stdout, &mut self.stderr] {
            parts.push(means.store.keep_blob_vec(stream.take(means)));
        }
        for &root in &self.kept {
            parts.push(self.files.seal(root, means));
        }
        parts
    }

    /// The end of what it wrote to stderr, for a failure to repeat.
    pub(crate) fn last_words(&self) -> Option<String> {
        let bytes = self.stderr.as_slice();
        let tail = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        let text = String::from_utf8_lossy(tail);
        let text = if tail.len() < bytes.len() {
            text.split_once('\n').map_or(&*text, |(_, rest)| rest)
        } else {
            &*text
        };
        let text = text.trim_end();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Bytes of stdin from a position on.
    pub(crate) fn stdin_left(&self, at: u64) -> u64 {
        self.stdin.size().saturating_sub(at)
    }

    /// Reads stdin from a position.
    pub(crate) fn read_stdin(&mut self, at: u64, into: &mut [u8], means: &Means<'_>) -> Result<usize> {
        if at >= self.stdin.size() || into.is_empty() {
            return Ok(0);
        }
        let object = match &self.stdin_data {
            Some(object) => object,
            None => self.stdin_data.insert(means.object(self.stdin)?),
        };
        let rest = usize::try_from(at).ok().and_then(|at| object.bytes().get(at..)).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    /// Writes to a stream.
    pub(crate) fn print(&mut self, is_errors: bool, bytes: &[u8], means: &mut Means<'_>) -> Result<()> {
        let stream = if is_errors { &mut self.stderr } else { &mut self.stdout };
        stream.write(stream.len(), bytes, means)
    }

    /// Opens a descriptor on a file.
    pub(crate) fn open(&mut self, node: NodeId, rights: u64, inheriting: u64, flags: u16) -> Result<u32> {
        let (target, mask) = match self.files.kind(node) {
            Kind::File => (Target::File { node, at: 0 }, rights::FILE),
            Kind::Directory => {
                let listing = Listing::default();
                (Target::Directory { node, preopened: None, listing }, rights::DIRECTORY)
            }
            Kind::Link => return Err(Errno::Loop.into()),
        };
        let descriptor = Descriptor { target, rights: rights & mask, inheriting, flags };
        let number = self.descriptors.insert(descriptor)?;
        self.files.acquire(node);
        Ok(number)
    }

    /// What goes with a descriptor that is no more.
    pub(crate) fn close(&mut self, descriptor: Descriptor, means: &mut Means<'_>) {
        if let Some(node) = descriptor.node() {
            self.files.release(node, means);
        }
        if let Target::Directory { listing, .. } = descriptor.target {
            means.refund(listing.paid);
        }
    }
}
