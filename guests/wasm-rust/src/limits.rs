// SPDX-License-Identifier: Apache-2.0
//! Limits of applications that a codelet makes: a literal of 25 bytes, laid
//! out as `docs/spec` says, or the empty literal, which means the defaults.

use crate::handle::{Handle, blob};

const LEN: usize = 25;
const FORM: u8 = 1;
const MEMORY_DEFAULT_BYTES: u64 = 64 << 20;

/// What an application may use, and what it is expected to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of memory, tables and new objects together; below 2^48.
    pub memory_bytes: u64,
    /// Most Wasm instructions; 0: uncounted.
    pub fuel: u64,
    /// Expected size of the result in bytes; 0: unknown. Below 2^48.
    pub output_size_hint: u64,
    /// Expected number of further applications; 0: unknown.
    pub fan_out_hint: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_bytes: MEMORY_DEFAULT_BYTES, fuel: 0, output_size_hint: 0, fan_out_hint: 0 }
    }
}

impl Limits {
    /// Reads entry 0 of an application, which the node has checked.
    pub fn read(handle: Handle) -> Self {
        if handle.size() == 0 {
            return Self::default();
        }
        let low_48 = |offset| handle.read_u64(offset) & ((1 << 48) - 1);
        Self {
            memory_bytes: low_48(1),
            fuel: handle.read_u64(7),
            output_size_hint: low_48(15),
            fan_out_hint: handle.read_u64(21) as u32,
        }
    }

    /// The literal that states these limits. Bits over 48 are cut off.
    pub fn handle(&self) -> Handle {
        blob(&self.encoded())
    }

    fn encoded(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[0] = FORM;
        bytes[1..7].copy_from_slice(&self.memory_bytes.to_le_bytes()[..6]);
        bytes[7..15].copy_from_slice(&self.fuel.to_le_bytes());
        bytes[15..21].copy_from_slice(&self.output_size_hint.to_le_bytes()[..6]);
        bytes[21..25].copy_from_slice(&self.fan_out_hint.to_le_bytes());
        bytes
    }
}
