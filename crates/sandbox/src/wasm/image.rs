// SPDX-License-Identifier: Apache-2.0
//! The initial contents of a small linear memory, to be restored cheaply.
//!
//! The image is taken of a fresh instance before any guest code ran in it.
//! Ranges that are zero are wiped, the others copied back. Every byte of the
//! memory is covered by exactly one run, so restoring leaves nothing behind.

use std::ops::Range;

/// Zero ranges shorter than this are copied along with their neighbours.
const ZERO_RUN_MIN: usize = 256;

#[derive(Debug, PartialEq, Eq)]
enum Run {
    Zero(Range<usize>),
    Data(Range<usize>, Box<[u8]>),
}

/// What a memory looked like before the guest first ran.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Image {
    len: usize,
    runs: Vec<Run>,
}

impl Image {
    /// Takes the image of a memory.
    pub(crate) fn of(memory: &[u8]) -> Self {
        let mut runs = Vec::new();
        let mut start = 0;
        while start < memory.len() {
            let zeros = leading_zeros(&memory[start..]);
            if zeros >= ZERO_RUN_MIN || start + zeros == memory.len() {
                runs.push(Run::Zero(start..start + zeros));
                start += zeros;
                continue;
            }
            let end = data_end(memory, start);
            runs.push(Run::Data(start..end, memory[start..end].into()));
            start = end;
        }
        Self { len: memory.len(), runs }
    }

    /// Restores `memory`; `false`, with nothing done, if its size changed.
    #[inline]
    #[must_use]
    pub(crate) fn restore(&self, memory: &mut [u8]) -> bool {
        if memory.len() != self.len {
            return false;
        }
        for run in &self.runs {
            match run {
                Run::Zero(range) => memory[range.clone()].fill(0),
                Run::Data(range, bytes) => memory[range.clone()].copy_from_slice(bytes),
            }
        }
        true
    }
}

/// Most of a memory is zero, and is compared a block at a time.
fn leading_zeros(bytes: &[u8]) -> usize {
    const BLOCK: [u8; 1024] = [0; 1024];
    let blocks = bytes.chunks_exact(BLOCK.len()).take_while(|block| *block == BLOCK).count();
    let rest = &bytes[blocks * BLOCK.len()..];
    blocks * BLOCK.len() + rest.iter().position(|&byte| byte != 0).unwrap_or(rest.len())
}

/// Where the data that begins at `start` is followed by a long run of zeros.
fn data_end(memory: &[u8], start: usize) -> usize {
    let mut at = start;
    while at < memory.len() {
        let zeros = leading_zeros(&memory[at..]);
        if zeros >= ZERO_RUN_MIN || at + zeros == memory.len() {
            break;
        }
        at += zeros + 1;
    }
    at
}

#[cfg(test)]
mod tests;
