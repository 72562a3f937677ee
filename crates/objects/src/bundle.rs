// SPDX-License-Identifier: Apache-2.0
//! Objects and a goal in one message, so that a client far away pays one
//! round trip for a computation of any size.
//!
//! ```text
//! bundle = "SNB1" record*
//! record = tag length payload       tag: 1 byte; length: u64, little-endian
//!   tag 0  a blob:  length bytes
//!   tag 1  a tree:  length bytes, a multiple of 32
//!   tag 2  a goal:  length 32, the handle to evaluate; at most one, last
//! ```

use crate::{Error, Handle, TreeView};

/// The first four bytes of a bundle.
pub const BUNDLE_MAGIC: [u8; 4] = *b"SNB1";
const HEADER_LEN: usize = 9;
const TAG_BLOB: u8 = 0;
const TAG_TREE: u8 = 1;
const TAG_GOAL: u8 = 2;

/// One record of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BundleRecord<'a> {
    /// Bytes to be stored as a blob.
    Blob(&'a [u8]),
    /// Entries, each well-formed, to be stored as a tree.
    Tree(TreeView<'a>),
    /// What to evaluate once all is stored.
    Goal(Handle),
}

/// Reads a bundle record by record. Fused after the first error.
#[derive(Debug, Clone)]
pub struct BundleReader<'a> {
    rest: &'a [u8],
}

impl<'a> BundleReader<'a> {
    /// Begins to read a bundle that is whole in memory.
    ///
    /// # Errors
    /// [`Error::BadBundle`] if the first bytes are not [`BUNDLE_MAGIC`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        match bytes.strip_prefix(&BUNDLE_MAGIC) {
            Some(rest) => Ok(Self { rest }),
            None => Err(Error::BadBundle("it does not begin with SNB1")),
        }
    }

    fn record(&mut self) -> Result<BundleRecord<'a>, Error> {
        let early = Error::BadBundle("it ends within a record");
        let (header, rest) = self.rest.split_first_chunk::<HEADER_LEN>().ok_or(early.clone())?;
        let [tag, length @ ..] = *header;
        let length = usize::try_from(u64::from_le_bytes(length)).map_err(|_| early.clone())?;
        let (payload, rest) = rest.split_at_checked(length).ok_or(early)?;
        self.rest = rest;
        match tag {
            TAG_BLOB => Ok(BundleRecord::Blob(payload)),
            TAG_TREE => Ok(BundleRecord::Tree(TreeView::from_bytes(payload)?)),
            TAG_GOAL if !self.rest.is_empty() => Err(Error::BadBundle("records follow the goal")),
            TAG_GOAL => {
                let goal = payload.try_into().map_err(|_| Error::BadBundle("the goal is no handle"))?;
                Ok(BundleRecord::Goal(Handle::from_bytes(goal)?))
            }
            _ => Err(Error::BadBundle("a record has an unknown tag")),
        }
    }
}

impl<'a> Iterator for BundleReader<'a> {
    type Item = Result<BundleRecord<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let record = self.record();
        if record.is_err() {
            self.rest = &[];
        }
        Some(record)
    }
}

/// Writes a bundle into memory.
#[derive(Debug, Clone)]
pub struct BundleWriter {
    bytes: Vec<u8>,
}

impl Default for BundleWriter {
    fn default() -> Self {
        Self { bytes: BUNDLE_MAGIC.to_vec() }
    }
}

impl BundleWriter {
    /// An empty bundle.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a blob and returns its handle. A literal needs no record and gets none.
    pub fn blob(&mut self, bytes: &[u8]) -> Handle {
        let handle = Handle::blob(bytes);
        if handle.literal_bytes().is_none() {
            self.record(TAG_BLOB, bytes);
        }
        handle
    }

    /// Appends a tree and returns its handle.
    pub fn tree(&mut self, tree: TreeView<'_>) -> Handle {
        self.record(TAG_TREE, tree.as_bytes());
        tree.handle()
    }

    /// Ends the bundle with what is to be evaluated.
    pub fn goal(mut self, goal: Handle) -> Vec<u8> {
        self.record(TAG_GOAL, goal.as_bytes());
        self.bytes
    }

    /// Ends the bundle without a goal.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn record(&mut self, tag: u8, payload: &[u8]) {
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(payload);
    }
}

#[cfg(test)]
mod tests;
