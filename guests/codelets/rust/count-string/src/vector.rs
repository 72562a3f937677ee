// SPDX-License-Identifier: Apache-2.0
//! Sixteen bytes at once: Wasm's 128-bit vectors, and elsewhere plain arrays
//! that do the same, so that the counting can be tested natively.
//!
//! A comparison gives 0xff in the lanes where it holds, else 0.

/// Bytes of a vector.
pub(crate) const LANES: usize = 16;

pub(crate) use lanes::Bytes;

#[cfg(target_arch = "wasm32")]
mod lanes {
    use core::arch::wasm32::{
        i8x16_bitmask, i8x16_eq, i8x16_shuffle, i8x16_splat, i8x16_sub, i16x8_extadd_pairwise_u8x16,
        i32x4_add, i32x4_extadd_pairwise_u16x8, i32x4_extract_lane, u8x16_lt, v128, v128_and, v128_andnot,
        v128_any_true, v128_load, v128_or,
    };

    use super::LANES;

    /// Sixteen bytes.
    #[derive(Clone, Copy)]
    pub(crate) struct Bytes(v128);

    #[rustfmt::skip]
    impl Bytes {
        #[inline(always)]
        pub(crate) fn load(bytes: &[u8; LANES]) -> Self {
            // SAFETY: sixteen bytes are readable; the load may be unaligned.
            Self(unsafe { v128_load(bytes.as_ptr().cast()) })
        }
        #[inline(always)]
        pub(crate) fn splat(byte: u8) -> Self { Self(i8x16_splat(byte as i8)) }
        #[inline(always)]
        pub(crate) fn equals(self, other: Self) -> Self { Self(i8x16_eq(self.0, other.0)) }
        #[inline(always)]
        pub(crate) fn is_below(self, bound: Self) -> Self { Self(u8x16_lt(self.0, bound.0)) }
        #[inline(always)]
        pub(crate) fn minus(self, other: Self) -> Self { Self(i8x16_sub(self.0, other.0)) }
        #[inline(always)]
        pub(crate) fn and(self, other: Self) -> Self { Self(v128_and(self.0, other.0)) }
        #[inline(always)]
        pub(crate) fn and_not(self, other: Self) -> Self { Self(v128_andnot(self.0, other.0)) }
        #[inline(always)]
        pub(crate) fn or(self, other: Self) -> Self { Self(v128_or(self.0, other.0)) }
        /// The last lane of `before`, then all but the last of `self`.
        #[inline(always)]
        pub(crate) fn shifted_in(self, before: Self) -> Self {
            Self(i8x16_shuffle::<15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30>(before.0, self.0))
        }
        #[inline(always)]
        pub(crate) fn any(self) -> bool { v128_any_true(self.0) }
        /// Bit `i` is the highest of lane `i`.
        #[inline(always)]
        pub(crate) fn bits(self) -> u32 { u32::from(i8x16_bitmask(self.0)) }
        /// The sum of all lanes.
        #[inline(always)]
        pub(crate) fn sum(self) -> u64 {
            let sums = i32x4_extadd_pairwise_u16x8(i16x8_extadd_pairwise_u8x16(self.0));
            let sums = i32x4_add(sums, i8x16_shuffle::<8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7>(sums, sums));
            i32x4_extract_lane::<0>(sums) as u64 + i32x4_extract_lane::<1>(sums) as u64
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod lanes {
    use super::LANES;

    /// Sixteen bytes.
    #[derive(Clone, Copy)]
    pub(crate) struct Bytes([u8; LANES]);

    #[rustfmt::skip]
    impl Bytes {
        fn zip(self, other: Self, function: impl Fn(u8, u8) -> u8) -> Self {
            Self(std::array::from_fn(|lane| function(self.0[lane], other.0[lane])))
        }
        pub(crate) fn load(bytes: &[u8; LANES]) -> Self { Self(*bytes) }
        pub(crate) fn splat(byte: u8) -> Self { Self([byte; LANES]) }
        pub(crate) fn equals(self, other: Self) -> Self { self.zip(other, |a, b| if a == b { 0xff } else { 0 }) }
        pub(crate) fn is_below(self, bound: Self) -> Self { self.zip(bound, |a, b| if a < b { 0xff } else { 0 }) }
        pub(crate) fn minus(self, other: Self) -> Self { self.zip(other, u8::wrapping_sub) }
        pub(crate) fn and(self, other: Self) -> Self { self.zip(other, |a, b| a & b) }
        pub(crate) fn and_not(self, other: Self) -> Self { self.zip(other, |a, b| a & !b) }
        pub(crate) fn or(self, other: Self) -> Self { self.zip(other, |a, b| a | b) }
        /// The last lane of `before`, then all but the last of `self`.
        pub(crate) fn shifted_in(self, before: Self) -> Self {
            Self(std::array::from_fn(|lane| if lane == 0 { before.0[LANES - 1] } else { self.0[lane - 1] }))
        }
        pub(crate) fn any(self) -> bool { self.0 != [0; LANES] }
        /// Bit `i` is the highest of lane `i`.
        pub(crate) fn bits(self) -> u32 {
            self.0.iter().rev().fold(0, |bits, &byte| (bits << 1) | u32::from(byte >> 7))
        }
        /// The sum of all lanes.
        pub(crate) fn sum(self) -> u64 { self.0.iter().map(|&byte| u64::from(byte)).sum() }
    }
}
