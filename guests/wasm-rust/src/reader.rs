// SPDX-License-Identifier: Apache-2.0
//! Large blobs, read piece by piece: the codelet's memory stays small, and
//! the piece is still in the first-level cache when it is looked at.

use crate::handle::Handle;

/// Bytes of the one large buffer. 32 KiB fit into the first-level cache and,
/// beside the stack, into one page of linear memory.
pub const PIECE_LEN: usize = 32 << 10;

/// A position in a blob.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    blob: Handle,
    offset: u64,
    size: u64,
}

impl Reader {
    /// Begins at the blob's first byte.
    pub fn new(blob: Handle) -> Self {
        Self { blob, offset: 0, size: blob.size() }
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> u64 {
        self.size - self.offset
    }

    /// Fills `target` from the front, as far as the blob reaches. Returns how
    /// many bytes that were; 0 only at the end or for an empty target.
    pub fn read(&mut self, target: &mut [u8]) -> usize {
        if self.remaining() == 0 || target.is_empty() {
            return 0;
        }
        let count = self.blob.read(self.offset, target);
        self.offset += count as u64;
        count
    }
}

/// Lends the codelet's one large buffer, aligned to 16 bytes and zeroed the
/// first time. Within `function`, asking again fails the call; so does asking
/// outside of a sandbox.
#[cfg(target_arch = "wasm32")]
pub fn with_piece<R>(function: impl FnOnce(&mut [u8; PIECE_LEN]) -> R) -> R {
    use core::cell::{Cell, UnsafeCell};

    #[repr(align(16))]
    struct Piece {
        bytes: UnsafeCell<[u8; PIECE_LEN]>,
        is_lent: Cell<bool>,
    }
    // SAFETY: a codelet has one thread.
    unsafe impl Sync for Piece {}
    static PIECE: Piece = Piece { bytes: UnsafeCell::new([0; PIECE_LEN]), is_lent: Cell::new(false) };

    if PIECE.is_lent.replace(true) {
        crate::fail("the piece is lent already");
    }
    // SAFETY: the flag was clear, so this is the only reference; it ends with
    // the call of `function`, before the flag is cleared.
    let result = function(unsafe { &mut *PIECE.bytes.get() });
    PIECE.is_lent.set(false);
    result
}

/// Lends the codelet's one large buffer, which exists only in a sandbox.
#[cfg(not(target_arch = "wasm32"))]
pub fn with_piece<R>(_function: impl FnOnce(&mut [u8; PIECE_LEN]) -> R) -> R {
    crate::fail("there is no piece outside of a sandbox")
}
