// SPDX-License-Identifier: Apache-2.0
//! One file, directory or link.

use std::collections::BTreeMap;

use objects::Handle;
use store::Object;

use crate::wasm::wasi::contents::Buffer;
use crate::wasm::wasi::errno::{Errno, Result};
use crate::wasm::wasi::means::Means;

/// Names a node, as long as something leads to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(pub(super) u32);

/// Kinds of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Link,
}

/// In nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) accessed: u64,
    pub(crate) modified: u64,
    /// Of anything but the contents, too.
    pub(crate) changed: u64,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) body: Body,
    /// The entry of its directory's tree that it was read from.
    pub(super) given: Option<Handle>,
    pub(super) number: u64,
    /// Names that lead to it.
    pub(super) links: u32,
    /// Descriptors that do.
    pub(super) opens: u32,
    pub(super) is_executable: bool,
    pub(super) is_read_only: bool,
    /// Of a directory: the one that it is in.
    pub(super) parent: NodeId,
    pub(super) times: Times,
}

#[derive(Debug)]
pub(super) enum Body {
    File(Stored),
    Directory(Directory),
    Link(Link),
}

/// The contents of a file.
#[derive(Debug)]
pub(super) enum Stored {
    /// As the application has it; the data while it is open and was read.
    Given {
        blob: Handle,
        object: Option<Object>,
    },
    Written(Buffer),
}

#[derive(Debug)]
pub(super) enum Directory {
    /// Nobody has looked into it.
    Unread(Handle),
    Read {
        names: BTreeMap<Box<[u8]>, NodeId>,
        /// Whether its names, or what they lead to, are not those of the tree.
        is_changed: bool,
    },
}

#[derive(Debug)]
pub(super) enum Link {
    Given(Handle),
    Made(Box<[u8]>),
}

impl Node {
    pub(super) fn kind(&self) -> Kind {
        match self.body {
            Body::File(_) => Kind::File,
            Body::Directory(_) => Kind::Directory,
            Body::Link(_) => Kind::Link,
        }
    }

    /// The names in a directory that was looked into.
    pub(super) fn names(&self) -> Option<&BTreeMap<Box<[u8]>, NodeId>> {
        match &self.body {
            Body::Directory(Directory::Read { names, .. }) => Some(names),
            _ => None,
        }
    }

    /// A file's bytes in memory, copied from its blob if need be: the first `len` of them.
    pub(super) fn own(&mut self, len: u64, means: &mut Means<'_>) -> Result<&mut Buffer> {
        let Body::File(stored) = &mut self.body else { return Err(Errno::IsDirectory.into()) };
        if let Stored::Given { blob, object } = stored {
            let buffer = match object.take() {
                _ if len == 0 || blob.size() == 0 => Buffer::default(),
                object => {
                    let object = object.map_or_else(|| means.object(*blob), Ok)?;
                    let kept = usize::try_from(len).unwrap_or(usize::MAX).min(object.len());
                    Buffer::of(&object[..kept], means)?
                }
            };
            *stored = Stored::Written(buffer);
        }
        match stored {
            Stored::Written(buffer) => Ok(buffer),
            Stored::Given { .. } => unreachable!("it was copied above"),
        }
    }

    /// Its contents changed.
    pub(super) fn touch(&mut self, now: u64) {
        self.times.modified = now;
        self.times.changed = now;
    }
}
