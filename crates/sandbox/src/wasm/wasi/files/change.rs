// SPDX-License-Identifier: Apache-2.0
//! Making, naming and removing files.

use std::collections::BTreeMap;

use super::node::{Body, Directory, Kind, Link, NodeId, Stored};
use super::path::Place;
use super::{Files, NODE_BYTES};
use crate::wasm::wasi::contents::Buffer;
use crate::wasm::wasi::errno::{Errno, Result};
use crate::wasm::wasi::guest::PATH_MAX;
use crate::wasm::wasi::means::Means;

impl Files {
    /// An empty file of a name that is free.
    pub(crate) fn create(&mut self, parent: NodeId, name: &[u8], means: &mut Means<'_>) -> Result<NodeId> {
        self.make(parent, name, Body::File(Stored::Written(Buffer::default())), means)
    }

    /// An empty directory.
    pub(crate) fn make_directory(&mut self, base: NodeId, path: &[u8], means: &mut Means<'_>) -> Result<()> {
        let (parent, name) = self.free_place(base, path, true, means)?;
        let body = Body::Directory(Directory::Read { names: BTreeMap::new(), is_changed: true });
        self.make(parent, &name, body, means).map(drop)
    }

    /// A link that leads to `target`, whatever is there.
    pub(crate) fn make_link(
        &mut self,
        target: &[u8],
        base: NodeId,
        path: &[u8],
        means: &mut Means<'_>,
    ) -> Result<()> {
        if target.starts_with(b"/") {
            // It would lead out of any directory.
            return Err(Errno::NotPermitted.into());
        }
        if target.is_empty() || target.len() > PATH_MAX {
            return Err(if target.is_empty() { Errno::NoEntry } else { Errno::NameTooLong }.into());
        }
        let (parent, name) = self.free_place(base, path, false, means)?;
        means.charge("a link", target.len() as u64)?;
        self.make(parent, &name, Body::Link(Link::Made(target.into())), means).map(drop)
    }

    /// One more name of a file.
    pub(crate) fn add_name(
        &mut self,
        file: NodeId,
        base: NodeId,
        path: &[u8],
        means: &mut Means<'_>,
    ) -> Result<()> {
        let (parent, name) = self.free_place(base, path, false, means)?;
        if self.kind(file) == Kind::Directory {
            return Err(Errno::NotPermitted.into());
        }
        if self.is_read_only(file) || self.is_read_only(parent) {
            return Err(Errno::ReadOnly.into());
        }
        means.charge("a name", NODE_BYTES + name.len() as u64)?;
        self.insert(parent, &name, file, means);
        let node = self.node_mut(file);
        node.links += 1;
        node.times.changed = means.now;
        Ok(())
    }

    /// Takes a file's name, or a link, away.
    pub(crate) fn unlink(&mut self, base: NodeId, path: &[u8], means: &mut Means<'_>) -> Result<()> {
        let (parent, name, node, has_slash) = self.taken_place(base, path, means)?;
        match self.kind(node) {
            Kind::Directory => return Err(Errno::IsDirectory.into()),
            _ if has_slash => return Err(Errno::NotDirectory.into()),
            _ => {}
        }
        self.remove(parent, &name, means)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(
        &mut self,
        base: NodeId,
        path: &[u8],
        means: &mut Means<'_>,
    ) -> Result<()> {
        let (parent, name, node, _) = self.taken_place(base, path, means)?;
        if self.kind(node) != Kind::Directory {
            return Err(Errno::NotDirectory.into());
        }
        self.expect_empty(node, means)?;
        self.remove(parent, &name, means)
    }

    /// Moves a file, in place of what has the new name.
    pub(crate) fn rename(
        &mut self,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        means: &mut Means<'_>,
    ) -> Result<()> {
        let (old_parent, old_name, node, old_slash) = self.taken_place(from.0, from.1, means)?;
        let Place::Entry { parent, name, node: replaced, has_slash } = self.find_name(to.0, to.1, means)?
        else {
            return Err(Errno::Busy.into());
        };
        let is_directory = self.kind(node) == Kind::Directory;
        if !is_directory && (old_slash || has_slash) {
            return Err(Errno::NotDirectory.into());
        }
        if self.is_read_only(node) || self.is_read_only(old_parent) || self.is_read_only(parent) {
            return Err(Errno::ReadOnly.into());
        }
        if replaced == Some(node) {
            return Ok(());
        }
        if is_directory && self.is_within(parent, node) {
            return Err(Errno::Invalid.into());
        }
        if let Some(replaced) = replaced {
            match (is_directory, self.kind(replaced) == Kind::Directory) {
                (true, true) => self.expect_empty(replaced, means)?,
                (true, false) => return Err(Errno::NotDirectory.into()),
                (false, true) => return Err(Errno::IsDirectory.into()),
                (false, false) => {}
            }
        }
        // Paid for before anything is taken apart.
        means.charge("a name", name.len() as u64)?;
        if replaced.is_some() {
            self.remove(parent, &name, means)?;
        }
        // The node keeps its one link on the way.
        if let Some(names) = self.names_mut(old_parent, means.now) {
            names.remove(&old_name);
        }
        means.refund(old_name.len() as u64);
        self.insert(parent, &name, node, means);
        let now = means.now;
        let moved = self.node_mut(node);
        moved.times.changed = now;
        if is_directory {
            moved.parent = parent;
        }
        Ok(())
    }

    /// Frees a node that nothing leads to any more.
    pub(super) fn drop_unused(&mut self, id: NodeId, means: &mut Means<'_>) {
        let node = self.node_mut(id);
        if node.links > 0 || node.opens > 0 {
            return;
        }
        match &mut node.body {
            Body::File(Stored::Written(buffer)) => drop(buffer.take(means)),
            Body::Link(Link::Made(target)) => means.refund(target.len() as u64),
            _ => {}
        }
        means.refund(NODE_BYTES);
        self.nodes[id.0 as usize] = None;
        self.free.push(id);
    }

    /// The directory and the name of something new.
    fn free_place(
        &mut self,
        base: NodeId,
        path: &[u8],
        may_have_slash: bool,
        means: &mut Means<'_>,
    ) -> Result<(NodeId, Box<[u8]>)> {
        match self.find_name(base, path, means)? {
            Place::Here(_) | Place::Entry { node: Some(_), .. } => Err(Errno::Exists.into()),
            Place::Entry { has_slash: true, .. } if !may_have_slash => Err(Errno::NoEntry.into()),
            Place::Entry { parent, name, .. } => Ok((parent, name)),
        }
    }

    /// The directory and the name of what is there.
    fn taken_place(
        &mut self,
        base: NodeId,
        path: &[u8],
        means: &mut Means<'_>,
    ) -> Result<(NodeId, Box<[u8]>, NodeId, bool)> {
        match self.find_name(base, path, means)? {
            // `.` and the like: it has a name, but not this one.
            Place::Here(_) => Err(Errno::Invalid.into()),
            Place::Entry { node: None, .. } => Err(Errno::NoEntry.into()),
            Place::Entry { parent, name, node: Some(node), has_slash } => Ok((parent, name, node, has_slash)),
        }
    }

    /// Like [`Files::find`], but what the last name leads to is not followed, also where a slash
    /// comes after it: it is the name that matters.
    fn find_name(&mut self, base: NodeId, path: &[u8], means: &mut Means<'_>) -> Result<Place> {
        let bare = without_slashes(path);
        if bare.len() == path.len() || bare.is_empty() {
            return self.find(base, path, false, means);
        }
        Ok(match self.find(base, bare, false, means)? {
            Place::Entry { parent, name, node, .. } => Place::Entry { parent, name, node, has_slash: true },
            here => here,
        })
    }

    fn make(&mut self, parent: NodeId, name: &[u8], body: Body, means: &mut Means<'_>) -> Result<NodeId> {
        if self.is_read_only(parent) {
            return Err(Errno::ReadOnly.into());
        }
        // A directory that was removed while it was open takes nothing more.
        if self.node(parent).links == 0 {
            return Err(Errno::NoEntry.into());
        }
        means.charge("a name", name.len() as u64)?;
        let id = self.add(body, None, means)?;
        let node = self.node_mut(id);
        (node.links, node.parent) = (1, parent);
        self.insert(parent, name, id, means);
        Ok(id)
    }

    fn insert(&mut self, parent: NodeId, name: &[u8], node: NodeId, means: &Means<'_>) {
        if let Some(names) = self.names_mut(parent, means.now) {
            names.insert(name.into(), node);
        }
    }

    /// Takes a name away, and what it led to if nothing else does.
    fn remove(&mut self, parent: NodeId, name: &[u8], means: &mut Means<'_>) -> Result<()> {
        if self.is_read_only(parent) {
            return Err(Errno::ReadOnly.into());
        }
        let removed = self.names_mut(parent, means.now).and_then(|names| names.remove(name));
        let Some(id) = removed else { return Err(Errno::NoEntry.into()) };
        means.refund(name.len() as u64);
        let node = self.node_mut(id);
        if node.links > 1 {
            // The cost of a further name: see `add_name`.
            means.refund(NODE_BYTES);
        }
        node.links -= 1;
        node.times.changed = means.now;
        if node.links == 0 {
            // The directory that it was in may go before a descriptor on it does.
            node.parent = id;
        }
        self.drop_unused(id, means);
        Ok(())
    }

    /// The names of a directory that was looked into, which are about to change.
    fn names_mut(&mut self, id: NodeId, now: u64) -> Option<&mut BTreeMap<Box<[u8]>, NodeId>> {
        let node = self.node_mut(id);
        node.touch(now);
        match &mut node.body {
            Body::Directory(Directory::Read { names, is_changed }) => {
                *is_changed = true;
                Some(names)
            }
            _ => None,
        }
    }

    fn expect_empty(&mut self, id: NodeId, means: &mut Means<'_>) -> Result<()> {
        self.look_into(id, means)?;
        match self.node(id).names().is_some_and(BTreeMap::is_empty) {
            true => Ok(()),
            false => Err(Errno::NotEmpty.into()),
        }
    }

    /// Whether a directory is another one, or somewhere in it.
    fn is_within(&self, mut directory: NodeId, outer: NodeId) -> bool {
        loop {
            let parent = self.parent(directory);
            if directory == outer || parent == directory {
                return directory == outer;
            }
            directory = parent;
        }
    }
}

/// A path without the slashes at its end.
fn without_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    &path[..end]
}
