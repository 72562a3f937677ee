// SPDX-License-Identifier: Apache-2.0
//! Directory trees that are put together from handles: what applications are given, and what
//! all of them made.

use std::collections::BTreeMap;

use objects::{Handle, TreeBuilder};

use crate::expression::Objects;

/// A bundle is closed when its objects have this many bytes.
const BUNDLE_BYTES: usize = 16 << 20;

/// A file or a link, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leaf {
    /// `f`, `x` or `l`, as in a directory's list.
    pub(super) kind: u8,
    pub(super) handle: Handle,
    /// The place of the mapped file that it comes from.
    pub(super) owner: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Child {
    Leaf(Leaf),
    Folder(Folder),
}

/// A directory in the making.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Folder {
    children: BTreeMap<Vec<u8>, Child>,
}

/// A path is taken already, by something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    /// Whose it is.
    pub(super) by: usize,
}

impl Folder {
    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// Puts a file at a path. The same file at the same path is no conflict.
    pub(super) fn insert(&mut self, path: &[u8], leaf: Leaf) -> Result<(), Taken> {
        let parts = parts(path);
        let Some((name, above)) = parts.split_last() else { return Ok(()) };
        let folder = self.at(above)?;
        match folder.children.get(*name) {
            None => {
                folder.children.insert(name.to_vec(), Child::Leaf(leaf));
                Ok(())
            }
            Some(Child::Leaf(there)) if there.kind == leaf.kind && there.handle == leaf.handle => Ok(()),
            Some(Child::Leaf(there)) => Err(Taken { by: there.owner }),
            Some(Child::Folder(there)) => Err(Taken { by: there.owner().unwrap_or(leaf.owner) }),
        }
    }

    /// Makes a directory.
    pub(super) fn insert_folder(&mut self, path: &[u8]) -> Result<(), Taken> {
        self.at(&parts(path)).map(|_| ())
    }

    /// The directory of that path, which is made.
    fn at(&mut self, parts: &[&[u8]]) -> Result<&mut Self, Taken> {
        let mut folder = self;
        for part in parts {
            let child = folder.children.entry(part.to_vec());
            match child.or_insert_with(|| Child::Folder(Self::default())) {
                Child::Folder(next) => folder = next,
                Child::Leaf(there) => return Err(Taken { by: there.owner }),
            }
        }
        Ok(folder)
    }

    /// Whose the first file in it is.
    fn owner(&self) -> Option<usize> {
        self.children.values().find_map(|child| match child {
            Child::Leaf(leaf) => Some(leaf.owner),
            Child::Folder(folder) => folder.owner(),
        })
    }

    /// The tree of it, whose objects go into the bundles.
    pub(super) fn seal(&self, bundles: &mut Bundles) -> Sealed {
        let mut children = BTreeMap::new();
        for (name, child) in &self.children {
            let sealed = match child {
                Child::Leaf(leaf) => SealedChild { kind: leaf.kind, handle: leaf.handle, folder: None },
                Child::Folder(folder) => {
                    let folder = folder.seal(bundles);
                    SealedChild { kind: b'd', handle: folder.handle, folder: Some(folder) }
                }
            };
            children.insert(name.clone(), sealed);
        }
        let list = children.iter().map(|(name, child)| (child.kind, &name[..], child.handle));
        let handle = directory(list, bundles.open());
        Sealed { handle, children }
    }
}

#[derive(Debug)]
struct SealedChild {
    kind: u8,
    handle: Handle,
    folder: Option<Sealed>,
}

/// A directory whose handle is known, with those of all that is in it.
#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) handle: Handle,
    children: BTreeMap<Vec<u8>, SealedChild>,
}

impl Sealed {
    /// The tree with one file more. Only the directories on the way to it are other ones.
    pub(super) fn with(&self, path: &[u8], kind: u8, handle: Handle, objects: &mut Objects) -> Handle {
        let parts = parts(path);
        let mut folders = vec![Some(self)];
        for part in &parts {
            let above = folders.last().copied().flatten();
            let child = above.and_then(|folder| folder.children.get(*part));
            folders.push(child.and_then(|child| child.folder.as_ref()));
        }
        let mut inner = (kind, handle);
        for (part, folder) in parts.iter().zip(&folders).rev() {
            let beside = folder.iter().flat_map(|folder| &folder.children);
            let mut children: BTreeMap<&[u8], (u8, Handle)> =
                beside.map(|(name, child)| (&name[..], (child.kind, child.handle))).collect();
            children.insert(part, inner);
            let list = children.into_iter().map(|(name, (kind, handle))| (kind, name, handle));
            inner = (b'd', directory(list, objects));
        }
        inner.1
    }
}

/// Directories in each other with nothing else in them, the outermost first, and the one that is
/// empty last.
pub(super) fn nested(path: &[u8], objects: &mut Objects) -> Vec<Handle> {
    let mut inner = directory(std::iter::empty(), objects);
    let mut handles = vec![inner];
    for part in parts(path).iter().rev() {
        inner = directory(std::iter::once((b'd', *part, inner)), objects);
        handles.push(inner);
    }
    handles.reverse();
    handles
}

/// The names in a path.
pub(super) fn parts(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect()
}

/// A directory of these children, which come sorted by name.
fn directory<'a>(children: impl Iterator<Item = (u8, &'a [u8], Handle)>, objects: &mut Objects) -> Handle {
    let (mut names, mut handles) = (Vec::new(), Vec::new());
    for (kind, name, handle) in children {
        names.extend_from_slice(&[kind, b' ']);
        names.extend_from_slice(name);
        names.push(b'\n');
        handles.push(handle);
    }
    let tree: TreeBuilder = std::iter::once(objects.blob(&names)).chain(handles).collect();
    objects.tree(tree.view())
}

/// Objects in bundles that a node takes.
#[derive(Debug, Default)]
pub(super) struct Bundles {
    full: Vec<Vec<u8>>,
    open: Objects,
}

impl Bundles {
    fn open(&mut self) -> &mut Objects {
        if self.open.bytes() > BUNDLE_BYTES {
            self.full.push(std::mem::take(&mut self.open).finish());
        }
        &mut self.open
    }

    /// All of them, in an order in which each object comes after what it names.
    pub(super) fn finish(mut self) -> Vec<Vec<u8>> {
        if !self.open.is_empty() {
            self.full.push(self.open.finish());
        }
        self.full
    }
}

#[cfg(test)]
mod tests;
