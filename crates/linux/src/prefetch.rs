// SPDX-License-Identifier: Apache-2.0
//! Telling the processor what will be needed soon.
//!
//! A look-up in a table that does not fit the cache is mostly waiting for one
//! cache line. Whoever knows the place earlier asks for it, and computes
//! something else meanwhile. It is a hint: nothing is read, nothing changes,
//! and a place that is none is ignored.
#![allow(unsafe_code)]

/// Asks for the cache line at an address, to be read. The address need not
/// point to anything.
#[inline]
pub fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: PREFETCHT0 reads no memory as far as a program can tell, and
    // faults at no address. It is part of SSE, which every x86-64 has.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Asks for the cache line at an address, to be written: nobody else keeps it.
/// The address need not point to anything.
#[inline]
pub fn prefetch_to_write(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as in `prefetch`. Processors without PREFETCHW do nothing: its
    // code is a no-op of theirs.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(std::ptr::without_provenance(address));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_changes_nothing_and_faults_nowhere() {
        let word = 7_u64;
        for address in [(&raw const word).addr(), 0, 1, usize::MAX, usize::MAX / 2] {
            prefetch(address);
            prefetch_to_write(address);
        }
        assert_eq!(word, 7);
    }
}
