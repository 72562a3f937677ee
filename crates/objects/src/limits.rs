// SPDX-License-Identifier: Apache-2.0
//! What an application may use, and what it is expected to make.
//!
//! Entry 0 of an application: a literal of 25 bytes, or the empty literal,
//! which means [`Limits::default`].
//!
//! ```text
//!  0       1           7        15            21          25
//!  ├ form ─┼─ memory ──┼─ fuel ─┼ output size ┼─ fan-out ─┤
//! ```

use crate::{Error, Handle};

/// Bytes of the encoded form.
pub const LIMITS_LEN: usize = 25;
/// Memory of an application that does not say.
pub const MEMORY_DEFAULT_BYTES: u64 = 64 << 20;

const FORM: u8 = 1;
const U48_MAX: u64 = (1 << 48) - 1;

/// Resource limits and hints. They are part of what an application *is*: the
/// same call under other limits is another application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Most bytes of linear memory, tables and newly created objects together;
    /// below 2^48.
    pub memory_bytes: u64,
    /// Most Wasm instructions, as the engine counts them; 0: uncounted.
    pub fuel: u64,
    /// Expected size of the result in bytes, for placement; 0: unknown. Below 2^48.
    pub output_size_hint: u64,
    /// Expected number of further applications, for placement; 0: unknown.
    pub fan_out_hint: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_bytes: MEMORY_DEFAULT_BYTES, fuel: 0, output_size_hint: 0, fan_out_hint: 0 }
    }
}

impl Limits {
    /// The literal that states these limits; `None` if a field is over 48 bits.
    pub fn handle(&self) -> Option<Handle> {
        if self.memory_bytes > U48_MAX || self.output_size_hint > U48_MAX {
            return None;
        }
        let mut bytes = [0; LIMITS_LEN];
        bytes[0] = FORM;
        bytes[1..7].copy_from_slice(&self.memory_bytes.to_le_bytes()[..6]);
        bytes[7..15].copy_from_slice(&self.fuel.to_le_bytes());
        bytes[15..21].copy_from_slice(&self.output_size_hint.to_le_bytes()[..6]);
        bytes[21..25].copy_from_slice(&self.fan_out_hint.to_le_bytes());
        Handle::literal(&bytes)
    }

    /// Reads entry 0 of an application.
    ///
    /// # Errors
    /// [`Error::BadApplication`] unless it is the empty literal or 25 bytes of form 1.
    #[inline]
    pub fn from_handle(handle: Handle) -> Result<Self, Error> {
        if !handle.is_object() {
            return Err(Error::BadApplication("the limits are not a literal"));
        }
        let bytes = handle.literal_bytes().ok_or(Error::BadApplication("the limits are not a literal"))?;
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let bytes: &[u8; LIMITS_LEN] =
            bytes.try_into().map_err(|_| Error::BadApplication("the limits do not have 25 bytes"))?;
        if bytes[0] != FORM {
            return Err(Error::BadApplication("the limits have an unknown form"));
        }
        let number = |range: std::ops::Range<usize>| {
            let mut wide = [0; 8];
            wide[..range.len()].copy_from_slice(&bytes[range]);
            u64::from_le_bytes(wide)
        };
        Ok(Self {
            memory_bytes: number(1..7),
            fuel: number(7..15),
            output_size_hint: number(15..21),
            fan_out_hint: number(21..25) as u32,
        })
    }
}

#[cfg(test)]
mod tests;
