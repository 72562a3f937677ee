// SPDX-License-Identifier: Apache-2.0
//! The bytes of one local object, shared by everyone who looks at them.

use std::fmt;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use linux::{Mapping, Sealed};
use objects::TreeView;

/// Vectors from this length are shared as they are; shorter ones are copied
/// into one allocation together with their count.
const SHARE_VEC_BYTES: usize = 4096;

/// Immutable bytes; cloning shares them. They hash to the handle under which
/// they were found.
#[derive(Clone)]
pub struct Object(Bytes);

#[derive(Clone)]
enum Bytes {
    Heap(Arc<[u8]>),
    Vec(Arc<Vec<u8>>),
    Mapped(Arc<Mapping>),
    /// Memory that processes share.
    Sealed(Arc<Sealed>),
    /// Bytes that stand for memory, which only processes look at.
    Lent(Arc<(Vec<u8>, LentMemory)>),
}

/// Memory that a blob stands for.
pub type LentMemory = Box<dyn AsFd + Send + Sync>;

impl Object {
    /// Copies bytes.
    #[inline]
    pub(crate) fn copy_of(bytes: &[u8]) -> Self {
        Self(Bytes::Heap(Arc::from(bytes)))
    }

    /// Takes bytes over.
    pub(crate) fn from_vec(bytes: Vec<u8>) -> Self {
        if bytes.len() < SHARE_VEC_BYTES {
            return Self::copy_of(&bytes);
        }
        let mut bytes = bytes;
        bytes.shrink_to_fit();
        Self(Bytes::Vec(Arc::new(bytes)))
    }

    pub(crate) fn mapped(mapping: Mapping) -> Self {
        Self(Bytes::Mapped(Arc::new(mapping)))
    }

    pub(crate) fn sealed(memory: Sealed) -> Self {
        Self(Bytes::Sealed(Arc::new(memory)))
    }

    pub(crate) fn lent(bytes: Vec<u8>, memory: LentMemory) -> Self {
        Self(Bytes::Lent(Arc::new((bytes, memory))))
    }

    /// By which another process may map the bytes, or what they stand for, instead of being sent them.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            Bytes::Sealed(memory) => Some(memory.fd()),
            Bytes::Lent(lent) => Some(lent.1.as_fd()),
            Bytes::Heap(_) | Bytes::Vec(_) | Bytes::Mapped(_) => None,
        }
    }

    /// Whether the bytes are the page cache's, so that they cost no memory of
    /// the process.
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.0, Bytes::Mapped(_))
    }

    /// Whether somebody else shares these bytes: dropping this one frees
    /// nothing then. Exact as long as nobody can share this one meanwhile.
    pub(crate) fn is_held(&self) -> bool {
        let owners = match &self.0 {
            Bytes::Heap(bytes) => Arc::strong_count(bytes),
            Bytes::Vec(bytes) => Arc::strong_count(bytes),
            Bytes::Mapped(mapping) => Arc::strong_count(mapping),
            Bytes::Sealed(memory) => Arc::strong_count(memory),
            Bytes::Lent(lent) => Arc::strong_count(lent),
        };
        owners > 1
    }

    /// The blob, or the concatenated entries of the tree.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::Heap(bytes) => bytes,
            Bytes::Vec(bytes) => bytes,
            Bytes::Mapped(mapping) => mapping,
            Bytes::Sealed(memory) => memory,
            Bytes::Lent(lent) => &lent.0,
        }
    }

    /// The entries. Only for objects found under the handle of a tree; a
    /// blob's bytes are not checked to be entries.
    #[inline]
    pub fn as_tree(&self) -> TreeView<'_> {
        TreeView::from_checked(self.bytes())
    }
}

impl Deref for Object {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes()
    }
}

impl AsRef<[u8]> for Object {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({} bytes)", self.len())
    }
}
