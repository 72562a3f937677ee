// SPDX-License-Identifier: Apache-2.0
//! Cuts a stream of lines into shards of bounded size, at line ends.
//!
//! A line that is longer than a shard is cut at white space, so that no word
//! is ever in two shards; only a word that is longer than a shard is cut where
//! the shard is full: a shard is never over its size.

use std::io::{self, Read};

/// Shards of at most `size` bytes.
pub(crate) struct Shards<R> {
    reader: R,
    size: usize,
    /// Read, but of the next shard.
    rest: Vec<u8>,
    ended: bool,
}

impl<R: Read> Shards<R> {
    pub(crate) fn new(reader: R, size: usize) -> Self {
        Self { reader, size: size.max(1), rest: Vec::new(), ended: false }
    }

    fn next_shard(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut shard = std::mem::take(&mut self.rest);
        if !self.ended {
            let wanted = (self.size - shard.len()) as u64;
            let read = self.reader.by_ref().take(wanted).read_to_end(&mut shard)? as u64;
            self.ended = read < wanted;
        }
        if shard.is_empty() {
            return Ok(None);
        }
        if !self.ended {
            let after = |is_border: fn(&u8) -> bool| shard.iter().rposition(is_border).map(|at| at + 1);
            let cut = after(|byte| *byte == b'\n').or_else(|| after(u8::is_ascii_whitespace));
            self.rest = shard.split_off(cut.unwrap_or(shard.len()));
        }
        Ok(Some(shard))
    }
}

impl<R: Read> Shards<R> {
    /// The next shards, together at least a mebibyte unless they end before:
    /// handing over each small one alone takes longer than reading it.
    pub(crate) fn batch(&mut self) -> io::Result<Vec<Vec<u8>>> {
        const BATCH_BYTES: usize = 1 << 20;
        let mut batch = Vec::new();
        let mut bytes = 0;
        while bytes < BATCH_BYTES
            && let Some(shard) = self.next().transpose()?
        {
            bytes += shard.len();
            batch.push(shard);
        }
        Ok(batch)
    }
}

impl<R: Read> Iterator for Shards<R> {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        let shard = self.next_shard();
        if shard.is_err() {
            self.ended = true;
        }
        shard.transpose()
    }
}

#[cfg(test)]
mod tests;
