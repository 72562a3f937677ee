// SPDX-License-Identifier: Apache-2.0
//! A program's memory. Every address and length in it comes from the program.

use std::ops::Range;

use super::errno::Errno;

/// Ranges in one list, at most, as elsewhere.
const VECTORS_MAX: u32 = 1024;
/// Bytes that one call moves, at most; a program goes on with the rest. So a call has an
/// end in time, and whoever stops the program is heard.
pub(crate) const TRANSFER_MAX: usize = 64 << 20;
/// Bytes of a path, at most.
pub(crate) const PATH_MAX: usize = 4096;
/// Bytes of one range in a list: an address and a length.
const VECTOR_BYTES: u32 = 8;

type Result<T> = std::result::Result<T, Errno>;

/// The linear memory; empty if the program has none.
pub(crate) struct Memory<'a>(pub(crate) &'a mut [u8]);

impl Memory<'_> {
    /// The range that an address and a length name.
    fn span(&self, address: i32, len: usize) -> Result<Range<usize>> {
        let start = address as u32 as usize;
        let end = start.checked_add(len).filter(|end| *end <= self.0.len());
        Ok(start..end.ok_or(Errno::Fault)?)
    }

    /// Bytes to be read.
    pub(crate) fn bytes(&self, address: i32, len: usize) -> Result<&[u8]> {
        Ok(&self.0[self.span(address, len)?])
    }

    /// Bytes to be written.
    pub(crate) fn bytes_mut(&mut self, address: i32, len: usize) -> Result<&mut [u8]> {
        let span = self.span(address, len)?;
        Ok(&mut self.0[span])
    }

    /// Writes bytes.
    pub(crate) fn put(&mut self, address: i32, bytes: &[u8]) -> Result<()> {
        self.bytes_mut(address, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Writes a number.
    pub(crate) fn put_u32(&mut self, address: i32, value: u32) -> Result<()> {
        self.put(address, &value.to_le_bytes())
    }

    /// Writes a number.
    pub(crate) fn put_u64(&mut self, address: i32, value: u64) -> Result<()> {
        self.put(address, &value.to_le_bytes())
    }

    /// Whether `len` bytes may be written there: asked before anything is done that could not be
    /// told of otherwise.
    pub(crate) fn check(&self, address: i32, len: usize) -> Result<()> {
        self.span(address, len).map(drop)
    }

    /// A path.
    pub(crate) fn path(&self, address: i32, len: i32) -> Result<Vec<u8>> {
        let len = len as u32 as usize;
        if len > PATH_MAX {
            return Err(Errno::NameTooLong);
        }
        let path = self.bytes(address, len)?;
        if path.contains(&0) {
            return Err(Errno::Invalid);
        }
        Ok(path.to_vec())
    }

    /// A list of ranges, cut to what one call moves.
    pub(crate) fn vectors(&self, address: i32, count: i32) -> Result<Vec<Range<usize>>> {
        let count = count as u32;
        if count > VECTORS_MAX {
            return Err(Errno::Invalid);
        }
        let list = self.bytes(address, (count * VECTOR_BYTES) as usize)?;
        let (words, _) = list.as_chunks::<4>();
        let mut left = TRANSFER_MAX;
        let mut spans = Vec::with_capacity(words.len() / 2);
        for pair in words.chunks_exact(2) {
            let len = u32::from_le_bytes(pair[1]) as usize;
            if len == 0 {
                continue;
            }
            let span = self.span(u32::from_le_bytes(pair[0]).cast_signed(), len)?;
            let taken = span.len().min(left);
            left -= taken;
            spans.push(span.start..span.start + taken);
        }
        Ok(spans)
    }
}
