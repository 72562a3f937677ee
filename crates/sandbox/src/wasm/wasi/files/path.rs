// SPDX-License-Identifier: Apache-2.0
//! From paths to nodes, never out of the directory that a path begins in.

use super::Files;
use super::given::is_name;
use super::node::{Kind, NodeId};
use crate::wasm::wasi::errno::{Errno, Result};
use crate::wasm::wasi::guest::PATH_MAX;
use crate::wasm::wasi::means::Means;

/// Links that one path may lead through.
const LINKS_MAX: usize = 40;

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A directory that the path names by `.` or `..`, or the one it begins in.
    Here(NodeId),
    /// A name in a directory, whether or not there is a file of that name.
    Entry {
        parent: NodeId,
        name: Box<[u8]>,
        node: Option<NodeId>,
        /// The path ends with a slash: only a directory will do.
        has_slash: bool,
    },
}

/// What is left of a path, its next name last.
struct Rest {
    names: Vec<Box<[u8]>>,
    has_slash: bool,
    links: usize,
}

impl Rest {
    /// Puts a path before the rest.
    fn prepend(&mut self, path: &[u8]) -> Result<()> {
        if path.starts_with(b"/") {
            return Err(Errno::NotPermitted.into());
        }
        if path.is_empty() {
            return Err(Errno::NoEntry.into());
        }
        if self.names.is_empty() && path.ends_with(b"/") {
            self.has_slash = true;
        }
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        self.names.extend(names.rev().map(Box::from));
        Ok(())
    }
}

impl Files {
    /// Follows a path from a directory. Links on the way are followed, and one at its end if
    /// `follow` says so, or the path ends with a slash.
    ///
    /// # Errors
    /// [`Errno::NotPermitted`] for a path or a link that leads out of `base`.
    pub(crate) fn find(
        &mut self,
        base: NodeId,
        path: &[u8],
        follow: bool,
        means: &mut Means<'_>,
    ) -> Result<Place> {
        if path.len() > PATH_MAX {
            return Err(Errno::NameTooLong.into());
        }
        let mut rest = Rest { names: Vec::new(), has_slash: false, links: 0 };
        rest.prepend(path)?;
        // The way from the base: a link may go back on it, but not beyond.
        let mut way = vec![base];
        while let Some(name) = rest.names.pop() {
            let Some(&parent) = way.last() else { return Err(Errno::NotPermitted.into()) };
            match &*name {
                b"." => continue,
                b".." => {
                    way.pop();
                    if way.is_empty() {
                        return Err(Errno::NotPermitted.into());
                    }
                    continue;
                }
                name if name.len() > super::NAME_MAX => return Err(Errno::NameTooLong.into()),
                name if !is_name(name) => return Err(Errno::Invalid.into()),
                _ => {}
            }
            self.look_into(parent, means)?;
            let node = self.node(parent).names().and_then(|names| names.get(&name)).copied();
            let is_last = rest.names.is_empty();
            match node.map(|node| (node, self.kind(node))) {
                Some((node, Kind::Link)) if !is_last || follow || rest.has_slash => {
                    rest.links += 1;
                    if rest.links > LINKS_MAX {
                        return Err(Errno::Loop.into());
                    }
                    rest.prepend(&self.target(node, means)?)?;
                }
                _ if is_last => {
                    return Ok(Place::Entry { parent, name, node, has_slash: rest.has_slash });
                }
                Some((node, Kind::Directory)) => way.push(node),
                Some(_) => return Err(Errno::NotDirectory.into()),
                None => return Err(Errno::NoEntry.into()),
            }
        }
        way.last().map(|node| Place::Here(*node)).ok_or_else(|| Errno::NotPermitted.into())
    }

    /// The file that a path leads to.
    pub(crate) fn existing(
        &mut self,
        base: NodeId,
        path: &[u8],
        follow: bool,
        means: &mut Means<'_>,
    ) -> Result<NodeId> {
        match self.find(base, path, follow, means)? {
            Place::Here(node) => Ok(node),
            Place::Entry { node: None, .. } => Err(Errno::NoEntry.into()),
            Place::Entry { node: Some(node), has_slash, .. } => {
                if has_slash && self.kind(node) != Kind::Directory {
                    return Err(Errno::NotDirectory.into());
                }
                Ok(node)
            }
        }
    }
}
