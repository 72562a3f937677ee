// SPDX-License-Identifier: Apache-2.0
//! A program's files: directory trees that are read when they are looked into, and
//! what the program made and changed.
//!
//! ```text
//!  roots ──▶ nodes[…]   a file:      its blob as given ──write──▶ bytes in memory
//!                       a directory: its tree as given ──look───▶ names and nodes
//!                       a link:      where it leads
//! ```
//!
//! Nothing here knows of descriptors and of WebAssembly. A node lives as long as a name
//! or an open descriptor leads to it, and its cost is given back when it goes.

mod change;
mod given;
mod node;
mod path;
mod seal;

use objects::Handle;

use super::errno::{Errno, Result};
use super::means::Means;
use node::{Body, Directory, Link, Node, Stored};

pub(crate) use given::{is_blob, is_tree};
pub(crate) use node::{Kind, NodeId, Times};
pub(crate) use path::Place;

/// What a node costs of the memory limit, without its name.
pub(crate) const NODE_BYTES: u64 = 256;
/// Bytes of a name, at most.
const NAME_MAX: usize = 255;

/// What a program learns of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) kind: Kind,
    /// Different for each file of a program.
    pub(crate) number: u64,
    /// Names that lead to it.
    pub(crate) links: u64,
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) times: Times,
}

/// One line of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: Box<[u8]>,
    pub(crate) number: u64,
    pub(crate) kind: Kind,
}

/// All files of a program.
#[derive(Debug, Default)]
pub(crate) struct Files {
    nodes: Vec<Option<Node>>,
    free: Vec<NodeId>,
    last_number: u64,
}

impl Files {
    /// A directory of the application. Nothing of it is read.
    pub(crate) fn root(&mut self, tree: Handle, is_read_only: bool, means: &mut Means<'_>) -> Result<NodeId> {
        let body = Body::Directory(Directory::Unread(tree));
        let id = self.add(body, Some(tree), means)?;
        let node = self.node_mut(id);
        node.links = 1;
        node.is_read_only = is_read_only;
        node.parent = id;
        Ok(id)
    }

    /// What kind of file it is.
    pub(crate) fn kind(&self, id: NodeId) -> Kind {
        self.node(id).kind()
    }

    /// What is known of a file.
    pub(crate) fn status(&self, id: NodeId) -> Status {
        let node = self.node(id);
        let size = match &node.body {
            Body::File(Stored::Given { blob, .. }) => blob.size(),
            Body::File(Stored::Written(buffer)) => buffer.len(),
            Body::Link(Link::Given(blob)) => blob.size(),
            Body::Link(Link::Made(target)) => target.len() as u64,
            Body::Directory(_) => 0,
        };
        Status { kind: node.kind(), number: node.number, links: node.links.into(), size, times: node.times }
    }

    /// Whether nothing of it may be changed.
    pub(crate) fn is_read_only(&self, id: NodeId) -> bool {
        self.node(id).is_read_only
    }

    /// A descriptor is opened on it.
    pub(crate) fn acquire(&mut self, id: NodeId) {
        self.node_mut(id).opens += 1;
    }

    /// A descriptor on it is closed.
    pub(crate) fn release(&mut self, id: NodeId, means: &mut Means<'_>) {
        let node = self.node_mut(id);
        node.opens -= 1;
        if node.opens == 0
            && let Body::File(Stored::Given { object, .. }) = &mut node.body
        {
            *object = None;
        }
        self.drop_unused(id, means);
    }

    /// Reads bytes of a file from an offset; their number, 0 at its end.
    pub(crate) fn read(&mut self, id: NodeId, at: u64, into: &mut [u8], means: &Means<'_>) -> Result<usize> {
        let Body::File(stored) = &mut self.node_mut(id).body else { return Err(Errno::IsDirectory.into()) };
        let bytes = match stored {
            Stored::Written(buffer) => buffer.as_slice(),
            Stored::Given { blob, object } => {
                if at >= blob.size() || into.is_empty() {
                    return Ok(0);
                }
                match object {
                    Some(object) => object.bytes(),
                    None => object.insert(means.object(*blob)?).bytes(),
                }
            }
        };
        let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    /// Writes bytes to a file.
    pub(crate) fn write(&mut self, id: NodeId, at: u64, data: &[u8], means: &mut Means<'_>) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let node = self.writable(id)?;
        node.own(u64::MAX, means)?.write(at, data, means)?;
        node.touch(means.now);
        Ok(())
    }

    /// Cuts a file, or fills it up with zeros.
    pub(crate) fn resize(&mut self, id: NodeId, len: u64, means: &mut Means<'_>) -> Result<()> {
        let node = self.writable(id)?;
        node.own(len, means)?.resize(len, means)?;
        node.touch(means.now);
        Ok(())
    }

    /// Sets the times of a file that are given.
    pub(crate) fn set_times(
        &mut self,
        id: NodeId,
        accessed: Option<u64>,
        modified: Option<u64>,
        now: u64,
    ) -> Result<()> {
        let node = self.node_mut(id);
        if node.is_read_only {
            return Err(Errno::ReadOnly.into());
        }
        node.times.accessed = accessed.unwrap_or(node.times.accessed);
        node.times.modified = modified.unwrap_or(node.times.modified);
        node.times.changed = now;
        Ok(())
    }

    /// Where a link leads.
    pub(crate) fn target(&self, id: NodeId, means: &Means<'_>) -> Result<Box<[u8]>> {
        match &self.node(id).body {
            Body::Link(Link::Made(target)) => Ok(target.clone()),
            Body::Link(Link::Given(blob)) => Ok(means.object(*blob)?.bytes().into()),
            _ => Err(Errno::Invalid.into()),
        }
    }

    /// What is in a directory, sorted by name, without `.` and `..`.
    pub(crate) fn list(&mut self, id: NodeId, means: &mut Means<'_>) -> Result<Vec<Listed>> {
        self.look_into(id, means)?;
        let Some(names) = self.node(id).names() else { return Err(Errno::NotDirectory.into()) };
        let listed = names.iter().map(|(name, &child)| {
            let child = self.node(child);
            Listed { name: name.clone(), number: child.number, kind: child.kind() }
        });
        Ok(listed.collect())
    }

    /// The directory that a directory is in; a root is in itself.
    pub(crate) fn parent(&self, id: NodeId) -> NodeId {
        self.node(id).parent
    }

    fn writable(&mut self, id: NodeId) -> Result<&mut Node> {
        let node = self.node_mut(id);
        match node.is_read_only {
            true => Err(Errno::ReadOnly.into()),
            false => Ok(node),
        }
    }

    /// A new node, to which nothing leads.
    fn add(&mut self, body: Body, given: Option<Handle>, means: &mut Means<'_>) -> Result<NodeId> {
        means.charge("its files", NODE_BYTES)?;
        self.last_number += 1;
        let node = Node {
            body,
            given,
            number: self.last_number,
            links: 0,
            opens: 0,
            is_executable: false,
            is_read_only: false,
            parent: NodeId(0),
            times: Times { accessed: means.now, modified: means.now, changed: means.now },
        };
        if let Some(id) = self.free.pop() {
            self.nodes[id.0 as usize] = Some(node);
            return Ok(id);
        }
        // Each costs of a memory limit that no machine exceeds 2^40 with.
        let id = NodeId(u32::try_from(self.nodes.len()).map_err(|_| Errno::NotPermitted)?);
        self.nodes.push(Some(node));
        Ok(id)
    }

    fn node(&self, id: NodeId) -> &Node {
        let Some(Some(node)) = self.nodes.get(id.0 as usize) else {
            unreachable!("a name, a descriptor or a root keeps the node")
        };
        node
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        let Some(Some(node)) = self.nodes.get_mut(id.0 as usize) else {
            unreachable!("a name, a descriptor or a root keeps the node")
        };
        node
    }
}
