// SPDX-License-Identifier: Apache-2.0
//! A program's random numbers: a stream that its seed determines.

use blake3::{Hasher, OutputReader};

/// No other use of the hash gives these bytes.
const CONTEXT: &str = "sinew 2026 random numbers of a program";

/// The stream.
pub(crate) struct Random(OutputReader);

impl Random {
    /// The stream of a seed.
    pub(crate) fn new(seed: &[u8]) -> Self {
        let mut hasher = Hasher::new_derive_key(CONTEXT);
        hasher.update(seed);
        Self(hasher.finalize_xof())
    }

    /// How many bytes were drawn so far.
    pub(crate) fn drawn(&self) -> u64 {
        self.0.position()
    }

    /// As if so many bytes had been drawn.
    pub(crate) fn skip_to(&mut self, drawn: u64) {
        self.0.set_position(drawn);
    }

    /// The next bytes.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}
