// SPDX-License-Identifier: Apache-2.0
//! Handles: what a codelet holds, reads, combines and returns.
//!
//! Lengths and indices are `u64` as on the wire; a slice's length always
//! fits, since linear memory has 32-bit addresses.

use crate::abi;

/// What a handle names, as far as a codelet may know. Which thunk or encode
/// it is cannot be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Bytes that can be read.
    Blob,
    /// Entries that can be read.
    Tree,
    /// A blob whose size is all that can be seen.
    BlobRef,
    /// A tree whose number of entries is all that can be seen.
    TreeRef,
    /// Something deferred.
    Thunk,
    /// A request for the result of a thunk.
    Encode,
    /// Why a computation has no result: a tree `[code, application, detail]`.
    Failure,
    /// What only later versions of the ABI know.
    Unknown,
}

/// A name that this call was given or has made.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Handle(i32);

impl Handle {
    /// The handle behind a raw index; a wrong one fails when it is used.
    #[inline(always)]
    pub const fn from_index(index: i32) -> Self {
        Self(index)
    }

    /// The raw index.
    #[inline(always)]
    pub const fn index(self) -> i32 {
        self.0
    }

    /// What it names.
    #[inline]
    pub fn kind(self) -> Kind {
        match abi::kind(self.0) {
            0 => Kind::Blob,
            1 => Kind::Tree,
            2 => Kind::BlobRef,
            3 => Kind::TreeRef,
            4 => Kind::Thunk,
            5 => Kind::Encode,
            6 => Kind::Failure,
            _ => Kind::Unknown,
        }
    }

    /// Bytes of a blob, or entries of a tree; of an object or a ref.
    #[inline]
    pub fn size(self) -> u64 {
        abi::size(self.0) as u64
    }

    /// Whether both name the same thing in the same way.
    #[inline]
    pub fn is_same(self, other: Self) -> bool {
        abi::equal(self.0, other.0) != 0
    }

    /// Up to eight bytes of a blob from `offset` on, as a little-endian number.
    #[inline]
    pub fn read_u64(self, offset: u64) -> u64 {
        abi::read_u64(self.0, offset as i64) as u64
    }

    /// Copies a blob's bytes from `offset` on, as many as there are and fit.
    /// Returns how many; an offset past the end fails the call.
    #[inline]
    pub fn read(self, offset: u64, target: &mut [u8]) -> usize {
        // SAFETY: the node writes at most `len` bytes, all within the slice.
        unsafe { abi::read(self.0, offset as i64, target.as_mut_ptr(), target.len() as i32) as usize }
    }

    /// Entry `index` of a tree.
    #[inline]
    pub fn entry(self, index: u64) -> Self {
        Self(abi::entry(self.0, index as i64))
    }

    /// The deferred call that a tree `[limits, procedure, argument…]` describes.
    #[inline]
    pub fn application(self) -> Self {
        Self(abi::application(self.0))
    }

    /// The deferred identity of an object or ref; its strict encode asks for the data.
    #[inline]
    pub fn identification(self) -> Self {
        Self(abi::identification(self.0))
    }

    /// Deferred: entry `index` of a tree or byte `index` of a blob. The target
    /// may be anything, thunks and refs included.
    #[inline]
    pub fn selection(self, index: u64) -> Self {
        Self(abi::selection(self.0, index as i64))
    }

    /// Deferred: the entries or bytes `begin..end`.
    #[inline]
    pub fn selection_range(self, begin: u64, end: u64) -> Self {
        Self(abi::selection_range(self.0, begin as i64, end as i64))
    }

    /// The request for a thunk's complete result, as an object.
    #[inline]
    pub fn strict(self) -> Self {
        Self(abi::strict(self.0))
    }

    /// The request for a thunk's first value, as a ref.
    #[inline]
    pub fn shallow(self) -> Self {
        Self(abi::shallow(self.0))
    }

    /// The ref to an object: names it without bringing its data along.
    #[inline]
    pub fn lower(self) -> Self {
        Self(abi::lower(self.0))
    }

    /// Whatever this is, as something that brings its complete data to the
    /// application in which it stands: refs and thunks strictly encoded, the
    /// rest as it is.
    #[inline]
    pub fn complete(self) -> Self {
        match self.kind() {
            Kind::BlobRef | Kind::TreeRef => self.identification().strict(),
            Kind::Thunk => self.strict(),
            _ => self,
        }
    }
}

/// A new blob.
#[inline]
pub fn blob(bytes: &[u8]) -> Handle {
    // SAFETY: the node reads exactly the slice's bytes.
    Handle(unsafe { abi::blob(bytes.as_ptr(), bytes.len() as i32) })
}

/// A new blob of the `len` ≤ 8 low bytes of `value`, little-endian.
#[inline]
pub fn number(value: u64, len: usize) -> Handle {
    Handle(abi::blob_u64(value as i64, len as i32))
}

/// A new tree.
#[inline]
pub fn tree(entries: &[Handle]) -> Handle {
    // SAFETY: the node reads exactly the slice; `Handle` is a transparent `i32`.
    Handle(unsafe { abi::tree(entries.as_ptr().cast(), entries.len() as i32) })
}

/// Ends the call with the failure `guest` and this text.
#[cold]
pub fn fail(text: &str) -> ! {
    abi::fail(blob(text.as_bytes()).0);
    // The node does not come back from `fail`.
    #[cfg(target_arch = "wasm32")]
    core::arch::wasm32::unreachable();
    #[cfg(not(target_arch = "wasm32"))]
    unreachable!("outside of a sandbox, `fail` panics");
}
