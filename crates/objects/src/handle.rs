// SPDX-License-Identifier: Apache-2.0
//! The 32-byte handle.
//!
//! ```text
//!  0                      24          30    32
//!  ├──── BLAKE3, 192 bits ─┼─ size, 48 ┼ meta┤   data over 30 bytes, trees
//!  ├──── the blob itself, zero padded ─┼ meta┤   literals: blobs ≤ 30 bytes
//!
//!  meta, 16 bits, little-endian:
//!   0     content: 0 blob, 1 tree
//!   1     failure (a tree only)
//!   2     ref: type and size may be seen, bytes may not
//!   3–4   thunk: 0 none, 1 application, 2 identification, 3 selection
//!   5–6   encode: 0 none, 1 strict, 2 shallow
//!   7     literal
//!   8–12  length of a literal
//!   13–15 zero
//! ```
//!
//! Thunks and encodes are the handle of their definition under another tag:
//! making one hashes nothing and stores nothing.

use std::cmp::Ordering;
use std::fmt;

use crate::Error;
use crate::tree;

/// Bytes of the truncated BLAKE3 hash.
pub const HASH_LEN: usize = 24;
/// The longest blob that lives in its handle. Shorter ones always do.
pub const LITERAL_LEN_MAX: usize = 30;
/// The longest blob, in bytes: what the size field holds.
pub const BLOB_SIZE_MAX: u64 = (1 << 48) - 1;
/// The most entries of one tree (2 GiB of handles).
pub const TREE_ENTRIES_MAX: u64 = 1 << 26;

const META_AT: usize = 30;
/// Where the metadata stands in the last word.
const META_SHIFT: u32 = 48;
const TREE: u16 = 1;
const FAILURE: u16 = 1 << 1;
const REF: u16 = 1 << 2;
const THUNK_SHIFT: u32 = 3;
const THUNK: u16 = 0b11 << THUNK_SHIFT;
const ENCODE_SHIFT: u32 = 5;
const ENCODE: u16 = 0b11 << ENCODE_SHIFT;
const LITERAL: u16 = 1 << 7;
const LITERAL_LEN_SHIFT: u32 = 8;
const LITERAL_LEN: u16 = 0b1_1111 << LITERAL_LEN_SHIFT;
const UNUSED: u16 = 0b111 << 13;

const APPLICATION: u16 = 1 << THUNK_SHIFT;
const IDENTIFICATION: u16 = 2 << THUNK_SHIFT;
const SELECTION: u16 = 3 << THUNK_SHIFT;
const STRICT: u16 = 1 << ENCODE_SHIFT;
const SHALLOW: u16 = 2 << ENCODE_SHIFT;

/// What a handle names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Bytes that the holder may read.
    Blob,
    /// A sequence of handles that the holder may read.
    Tree,
    /// A blob of which the holder may learn only that it is one, and its size.
    BlobRef,
    /// A tree of which the holder may learn only that it is one, and its size.
    TreeRef,
    /// Why a computation has no result: a tree `[code, application, detail]`.
    Failure,
    /// A deferred call of a procedure.
    Application,
    /// The deferred identity function; asks for the data behind a ref.
    Identification,
    /// A deferred element, or range of elements, of some data.
    Selection,
    /// A request: the thunk evaluated as far as possible, as an object.
    Strict,
    /// A request: the thunk evaluated to its first value, as a ref.
    Shallow,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Blob,
        Self::Tree,
        Self::BlobRef,
        Self::TreeRef,
        Self::Failure,
        Self::Application,
        Self::Identification,
        Self::Selection,
        Self::Strict,
        Self::Shallow,
    ];

    /// The one lower-case word for the kind. Programs match on it: it is part
    /// of the HTTP API and of what the command line prints. For values it is
    /// also the first word of the handle's text form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blob => "blob",
            Self::Tree => "tree",
            Self::BlobRef => "blobref",
            Self::TreeRef => "treeref",
            Self::Failure => "failure",
            Self::Application => "application",
            Self::Identification => "identification",
            Self::Selection => "selection",
            Self::Strict => "strict",
            Self::Shallow => "shallow",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A 32-byte name; see the module's drawing. Every value of this type is
/// well-formed: [`Handle::from_bytes`] is the only way in from outside.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle([u64; 4]);

// The words are the bytes in little-endian order, on every machine that Sinew
// runs on: most operations then touch one whole word, and a processor can hand
// a word just written to whoever reads it next (parts of words it cannot).
#[cfg(target_endian = "big")]
compile_error!("sinew runs on little-endian machines");

impl PartialOrd for Handle {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Handle {
    /// By their bytes.
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Handle {
    /// Bytes of a handle.
    pub const LEN: usize = 32;

    /// Checks 32 bytes from outside.
    ///
    /// # Errors
    /// [`Error::BadHandle`] names the first rule that the bytes break.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Result<Self, Error> {
        let handle = Self::from_raw(bytes);
        handle.check()?;
        Ok(handle)
    }

    /// For bytes that [`Handle::from_bytes`] accepted before they were stored.
    #[inline]
    pub(crate) fn from_checked(bytes: [u8; Self::LEN]) -> Self {
        debug_assert!(Self::from_raw(bytes).check().is_ok());
        Self::from_raw(bytes)
    }

    /// The handle's bytes, as stored in trees and sent on wires.
    #[inline]
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        bytemuck::must_cast_ref(&self.0)
    }

    /// The handle's bytes as little-endian words, for hash tables.
    #[inline]
    pub const fn words(&self) -> [u64; 4] {
        self.0
    }

    #[inline]
    fn from_raw(bytes: [u8; Self::LEN]) -> Self {
        Self(bytemuck::must_cast(bytes))
    }

    /// The object handle of a blob: a literal up to 30 bytes, else its hash.
    ///
    /// # Panics
    /// Never: a slice is shorter than [`BLOB_SIZE_MAX`] on every machine.
    pub fn blob(bytes: &[u8]) -> Self {
        if let Some(literal) = Self::literal(bytes) {
            return literal;
        }
        let hash = blake3::hash(bytes);
        Self::hashed(hash.as_bytes(), bytes.len() as u64, 0)
    }

    /// The object handle of a blob whose full BLAKE3 hash was computed while
    /// the bytes streamed by. `None` if the length calls for a literal or is
    /// over [`BLOB_SIZE_MAX`].
    pub fn blob_from_hash(hash: &[u8; 32], len: u64) -> Option<Self> {
        let hashable = len > LITERAL_LEN_MAX as u64 && len <= BLOB_SIZE_MAX;
        hashable.then(|| Self::hashed(hash, len, 0))
    }

    /// A literal; `None` over 30 bytes.
    #[inline]
    pub fn literal(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > LITERAL_LEN_MAX {
            return None;
        }
        let mut raw = [0; Self::LEN];
        raw[..bytes.len()].copy_from_slice(bytes);
        let meta = LITERAL | ((bytes.len() as u16) << LITERAL_LEN_SHIFT);
        Some(Self::from_raw(raw).with_meta(meta))
    }

    /// The eight-byte little-endian literal that the specification uses for
    /// indices and counts.
    #[inline]
    pub fn u64(value: u64) -> Self {
        Self::word(value, size_of::<u64>() as u16)
    }

    /// The literal of the first `len` little-endian bytes of `value`; `None` over 8.
    #[inline]
    pub fn low_bytes(value: u64, len: usize) -> Option<Self> {
        let unused_bits = 8 * size_of::<u64>().checked_sub(len)? as u32;
        // A shift by all 64 bits leaves nothing, which the operator cannot say.
        let kept = u64::MAX.checked_shr(unused_bits).unwrap_or(0);
        Some(Self::word(value & kept, len as u16))
    }

    #[inline]
    fn word(value: u64, len: u16) -> Self {
        Self([value, 0, 0, 0]).with_meta(LITERAL | (len << LITERAL_LEN_SHIFT))
    }

    /// The first eight bytes of a literal as a little-endian number, as if zeros
    /// followed a shorter one; `None` if the handle is no literal's object.
    #[inline]
    pub fn literal_word(&self) -> Option<u64> {
        (self.meta() & (LITERAL | THUNK | ENCODE) == LITERAL).then_some(self.0[0])
    }

    /// The object handle of the tree with these concatenated entries.
    ///
    /// # Errors
    /// [`Error::BadTree`] if the length is no multiple of 32, is over
    /// [`TREE_ENTRIES_MAX`], or an entry is no handle.
    pub fn tree(entries: &[u8]) -> Result<Self, Error> {
        Ok(tree::TreeView::from_bytes(entries)?.handle())
    }

    #[inline]
    pub(crate) fn hashed(hash: &[u8; 32], size: u64, meta: u16) -> Self {
        let [a, b, c, _] = bytemuck::must_cast::<[u8; 32], [u64; 4]>(*hash);
        debug_assert!(size >> META_SHIFT == 0);
        Self([a, b, c, size | (u64::from(meta) << META_SHIFT)])
    }

    #[inline]
    pub(crate) fn hashed_tree(hash: &[u8; 32], entries: u64) -> Self {
        Self::hashed(hash, entries, TREE)
    }

    #[inline]
    fn meta(&self) -> u16 {
        (self.0[3] >> META_SHIFT) as u16
    }

    #[inline]
    fn with_meta(mut self, meta: u16) -> Self {
        self.0[3] = (self.0[3] & ((1 << META_SHIFT) - 1)) | (u64::from(meta) << META_SHIFT);
        self
    }

    fn check(&self) -> Result<(), Error> {
        let meta = self.meta();
        let is_tree = meta & TREE != 0;
        let thunk = meta & THUNK;
        let bad = |why| Err(Error::BadHandle(why));
        if meta & UNUSED != 0 {
            return bad("reserved bits of the metadata are set");
        }
        if meta & ENCODE == ENCODE {
            return bad("the encode is neither strict nor shallow");
        }
        if meta & ENCODE != 0 && thunk == 0 {
            return bad("an encode of something that is no thunk");
        }
        if thunk != 0 && meta & (REF | FAILURE) != 0 {
            return bad("a thunk cannot be a ref or a failure");
        }
        if (thunk == APPLICATION || thunk == SELECTION) && !is_tree {
            return bad("an application or selection is not defined by a tree");
        }
        if meta & FAILURE != 0 && (!is_tree || meta & REF != 0 || self.raw_size() != 3) {
            return bad("a failure is not a readable tree of three entries");
        }
        if meta & LITERAL != 0 {
            return self.check_literal(meta);
        }
        if meta & LITERAL_LEN != 0 {
            return bad("a literal length without a literal");
        }
        if !is_tree && self.raw_size() <= LITERAL_LEN_MAX as u64 {
            return bad("a short blob is not a literal");
        }
        if is_tree && self.raw_size() > TREE_ENTRIES_MAX {
            return bad("a tree with too many entries");
        }
        Ok(())
    }

    fn check_literal(&self, meta: u16) -> Result<(), Error> {
        let len = usize::from((meta & LITERAL_LEN) >> LITERAL_LEN_SHIFT);
        if meta & (TREE | REF) != 0 {
            return Err(Error::BadHandle("a literal that is a tree or a ref"));
        }
        if len > LITERAL_LEN_MAX {
            return Err(Error::BadHandle("a literal of over 30 bytes"));
        }
        if self.as_bytes()[len..META_AT].iter().any(|&byte| byte != 0) {
            return Err(Error::BadHandle("a literal that is not zero padded"));
        }
        Ok(())
    }

    #[inline]
    fn raw_size(&self) -> u64 {
        self.0[3] & ((1 << META_SHIFT) - 1)
    }

    /// What the handle names.
    #[inline]
    pub fn kind(&self) -> Kind {
        let meta = self.meta();
        match (meta & ENCODE, meta & THUNK) {
            (STRICT, _) => Kind::Strict,
            (SHALLOW, _) => Kind::Shallow,
            (_, APPLICATION) => Kind::Application,
            (_, IDENTIFICATION) => Kind::Identification,
            (_, SELECTION) => Kind::Selection,
            _ => match meta & (TREE | FAILURE | REF) {
                0 => Kind::Blob,
                TREE => Kind::Tree,
                REF => Kind::BlobRef,
                meta if meta == TREE | REF => Kind::TreeRef,
                _ => Kind::Failure,
            },
        }
    }

    /// Bytes of the blob, or entries of the tree, that the handle (or the
    /// definition of its thunk) names.
    #[inline]
    pub fn size(&self) -> u64 {
        match self.literal_len() {
            Some(len) => len as u64,
            None => self.raw_size(),
        }
    }

    #[inline]
    fn literal_len(&self) -> Option<usize> {
        let meta = self.meta();
        (meta & LITERAL != 0).then(|| usize::from((meta & LITERAL_LEN) >> LITERAL_LEN_SHIFT))
    }

    /// The blob of a literal, also of a literal inside an identification.
    #[inline]
    pub fn literal_bytes(&self) -> Option<&[u8]> {
        self.literal_len().map(|len| &self.as_bytes()[..len])
    }

    /// The truncated hash; for a literal the first 24 of its padded bytes.
    #[inline]
    pub fn hash_bytes(&self) -> &[u8; HASH_LEN] {
        match self.as_bytes().first_chunk() {
            Some(hash) => hash,
            None => unreachable!("32 bytes begin with 24"),
        }
    }

    /// An object, a ref or a failure: evaluation has nothing left to do at the top.
    #[inline]
    pub fn is_value(&self) -> bool {
        self.meta() & (THUNK | ENCODE) == 0
    }

    /// Blob or tree whose bytes the holder may read. Failures count: they can be read.
    #[inline]
    pub fn is_object(&self) -> bool {
        self.meta() & (THUNK | ENCODE | REF) == 0
    }

    /// A computation that nobody asked for yet.
    #[inline]
    pub fn is_thunk(&self) -> bool {
        self.meta() & THUNK != 0 && self.meta() & ENCODE == 0
    }

    /// A request to evaluate a thunk.
    #[inline]
    pub fn is_encode(&self) -> bool {
        self.meta() & ENCODE != 0
    }

    /// Why a computation has no result.
    #[inline]
    pub fn is_failure(&self) -> bool {
        self.meta() & FAILURE != 0
    }

    /// The handle, or its thunk's definition, names a tree.
    #[inline]
    pub fn names_tree(&self) -> bool {
        self.meta() & TREE != 0
    }

    /// The value as a ref. Literals and failures stay what they are; `None`
    /// for a thunk or encode.
    #[inline]
    pub fn lowered(self) -> Option<Self> {
        let meta = self.meta();
        if meta & (THUNK | ENCODE) != 0 {
            return None;
        }
        Some(if meta & (LITERAL | FAILURE) != 0 { self } else { self.with_meta(meta | REF) })
    }

    /// The value as an object; `None` for a thunk or encode. Only the
    /// evaluator may hand the result to a guest: it must bring the data.
    #[inline]
    pub fn lifted(self) -> Option<Self> {
        let meta = self.meta();
        (meta & (THUNK | ENCODE) == 0).then(|| self.with_meta(meta & !REF))
    }

    /// The deferred call that this tree describes; `None` unless a tree or its ref.
    #[inline]
    pub fn application(self) -> Option<Self> {
        self.tagged_tree(APPLICATION)
    }

    /// The deferred selection that this tree describes; `None` unless a tree or its ref.
    #[inline]
    pub fn selection(self) -> Option<Self> {
        self.tagged_tree(SELECTION)
    }

    /// The deferred identity of a blob or tree, object or ref; `None` for
    /// thunks, encodes and failures.
    #[inline]
    pub fn identification(self) -> Option<Self> {
        let meta = self.meta();
        (meta & (THUNK | ENCODE | FAILURE) == 0).then(|| self.with_meta((meta & !REF) | IDENTIFICATION))
    }

    #[inline]
    fn tagged_tree(self, thunk: u16) -> Option<Self> {
        let meta = self.meta();
        let is_tree = meta & TREE != 0 && meta & (THUNK | ENCODE | FAILURE) == 0;
        is_tree.then(|| self.with_meta((meta & !REF) | thunk))
    }

    /// The request for the thunk's complete result; `None` unless a thunk.
    #[inline]
    pub fn strict(self) -> Option<Self> {
        self.is_thunk().then(|| self.with_meta(self.meta() | STRICT))
    }

    /// The request for the thunk's first value, as a ref; `None` unless a thunk.
    #[inline]
    pub fn shallow(self) -> Option<Self> {
        self.is_thunk().then(|| self.with_meta(self.meta() | SHALLOW))
    }

    /// The thunk that an encode asks for; a thunk is returned as it is.
    #[inline]
    pub fn thunk(self) -> Option<Self> {
        let meta = self.meta();
        (meta & THUNK != 0).then(|| self.with_meta(meta & !ENCODE))
    }

    /// The data, as an object, that a thunk or encode re-tags; a value is
    /// returned as its object.
    #[inline]
    pub fn definition(self) -> Self {
        self.with_meta(self.meta() & !(THUNK | ENCODE | REF))
    }

    /// The tree that a failure is, as an ordinary tree, to be loaded and read.
    #[inline]
    pub fn plain_tree(self) -> Self {
        self.with_meta(self.meta() & !(THUNK | ENCODE | REF | FAILURE))
    }

    /// Marks a tree `[code, application, detail]` as a failure. Crate-private:
    /// only [`crate::Failure`] knows that the tree has this shape.
    pub(crate) fn failure(self) -> Option<Self> {
        (self.kind() == Kind::Tree && self.size() == 3).then(|| self.with_meta(self.meta() | FAILURE))
    }
}

#[cfg(test)]
mod tests;
