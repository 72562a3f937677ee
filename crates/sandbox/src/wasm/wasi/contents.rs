// SPDX-License-Identifier: Apache-2.0
//! Bytes that a program wrote, paid for before they are kept.

use objects::FailureCode;

use super::errno::{Errno, Result, Stop};
use super::means::Means;
use crate::Fault;

/// Bytes of a file, at most: no blob is longer.
const LEN_MAX: u64 = objects::BLOB_SIZE_MAX;

/// A growing vector whose capacity is charged.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// What was charged: at least the vector's length.
    paid: u64,
}

impl Buffer {
    /// A copy.
    pub(crate) fn of(bytes: &[u8], means: &mut Means<'_>) -> Result<Self> {
        let mut buffer = Self::default();
        buffer.write(0, bytes, means)?;
        Ok(buffer)
    }

    /// The bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// Their number.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Writes at an offset; a gap before it is filled with zeros.
    pub(crate) fn write(&mut self, at: u64, data: &[u8], means: &mut Means<'_>) -> Result<()> {
        let end = at.checked_add(data.len() as u64).filter(|end| *end <= LEN_MAX);
        let end = end.ok_or(Errno::FileTooBig)?;
        if data.is_empty() {
            return Ok(());
        }
        self.reserve(end, means)?;
        // It fits: `end` bytes were reserved.
        let (at, end) = (at as usize, end as usize);
        if at >= self.bytes.len() {
            self.bytes.resize(at, 0);
            self.bytes.extend_from_slice(data);
        } else {
            let overlap = data.len().min(self.bytes.len() - at);
            self.bytes[at..at + overlap].copy_from_slice(&data[..overlap]);
            self.bytes.extend_from_slice(&data[overlap..]);
        }
        debug_assert!(self.bytes.len() >= end);
        Ok(())
    }

    /// Cuts, or fills up with zeros.
    pub(crate) fn resize(&mut self, len: u64, means: &mut Means<'_>) -> Result<()> {
        if len > LEN_MAX {
            return Err(Errno::FileTooBig.into());
        }
        if len > self.len() {
            self.reserve(len, means)?;
            self.bytes.resize(len as usize, 0);
            return Ok(());
        }
        self.bytes.truncate(len as usize);
        // What is cut to a fraction is given back; a file that is written anew keeps its room.
        if len < self.paid / 4 {
            self.bytes.shrink_to_fit();
            means.refund(self.paid - len);
            self.paid = len;
        }
        Ok(())
    }

    /// Pays for `len` bytes in all, and for half as much again where that is to be had, so
    /// that many small writes do not copy what is there again and again.
    fn reserve(&mut self, len: u64, means: &mut Means<'_>) -> Result<()> {
        if len <= self.paid {
            return Ok(());
        }
        let ample = len.max(self.paid + self.paid / 2);
        let wanted = if ample - self.paid <= means.budget.left() { ample } else { len };
        means.charge("a file or stream that it writes", wanted - self.paid)?;
        self.paid = wanted;
        let more = usize::try_from(wanted).map_err(|_| Errno::FileTooBig)? - self.bytes.len();
        self.bytes.try_reserve_exact(more).map_err(|_| {
            let why = format!("the node has no {wanted} bytes for a file that the program writes");
            Stop::Ended(Fault::new(FailureCode::Resources, why))
        })
    }

    /// Gives the bytes away, and their memory back.
    pub(crate) fn take(&mut self, means: &mut Means<'_>) -> Vec<u8> {
        means.refund(std::mem::take(&mut self.paid));
        std::mem::take(&mut self.bytes)
    }
}
