// SPDX-License-Identifier: Apache-2.0
//! Strategies that make handles of every kind, and bytes that are nearly one.
//!
//! Handles are put together from raw bytes, not by the conversions under test.

use proptest::array::{uniform24, uniform32};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::{BLOB_SIZE_MAX, Handle, TREE_ENTRIES_MAX};

/// A valid handle of any kind.
pub(crate) fn any_handle() -> impl Strategy<Value = Handle> {
    prop_oneof![literals(), blobs(), trees(), failures()]
}

/// 32 bytes: valid, valid but for one bit or byte, or arbitrary.
pub(crate) fn any_handle_bytes() -> impl Strategy<Value = [u8; Handle::LEN]> {
    let flipped = (any_handle(), 0..256usize).prop_map(|(handle, bit)| {
        let mut bytes = *handle.as_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    });
    let retagged = (any_handle(), any::<u16>()).prop_map(|(handle, tag)| {
        let mut bytes = *handle.as_bytes();
        bytes[30..].copy_from_slice(&tag.to_le_bytes());
        bytes
    });
    let valid = any_handle().prop_map(|handle| *handle.as_bytes());
    prop_oneof![valid, flipped, retagged, uniform32(any::<u8>())]
}

/// The bytes of something that may be a tree: some handles, sometimes broken.
pub(crate) fn any_tree_bytes() -> impl Strategy<Value = Vec<u8>> {
    let entries = |entry: BoxedStrategy<[u8; Handle::LEN]>| vec(entry, 0..8).prop_map(|all| all.concat());
    let valid = entries(any_handle().prop_map(|handle| *handle.as_bytes()).boxed());
    let broken = entries(any_handle_bytes().boxed());
    prop_oneof![valid, broken, vec(any::<u8>(), 0..200)]
}

/// The entries of a small tree.
pub(crate) fn any_entries() -> impl Strategy<Value = Vec<Handle>> {
    vec(any_handle(), 0..8)
}

fn literals() -> impl Strategy<Value = Handle> {
    let tags = select(vec![0, 0x10, 0x30, 0x50]);
    (vec(any::<u8>(), 0..=30), tags).prop_map(|(content, tag)| {
        let mut bytes = [0; Handle::LEN];
        bytes[..content.len()].copy_from_slice(&content);
        let tag = tag | 0x80 | (content.len() as u16) << 8;
        bytes[30..].copy_from_slice(&tag.to_le_bytes());
        Handle::from_bytes(bytes).unwrap()
    })
}

fn blobs() -> impl Strategy<Value = Handle> {
    let sizes = prop_oneof![Just(31), Just(BLOB_SIZE_MAX), 31..=BLOB_SIZE_MAX];
    hashed(sizes, vec![0, 0x04, 0x10, 0x30, 0x50])
}

fn trees() -> impl Strategy<Value = Handle> {
    let sizes = prop_oneof![0..5u64, Just(TREE_ENTRIES_MAX), 0..=TREE_ENTRIES_MAX];
    hashed(sizes, vec![0x01, 0x05, 0x09, 0x11, 0x19, 0x29, 0x31, 0x39, 0x49, 0x51, 0x59])
}

fn failures() -> impl Strategy<Value = Handle> {
    hashed(Just(3), vec![0x03])
}

fn hashed(sizes: impl Strategy<Value = u64>, tags: Vec<u16>) -> impl Strategy<Value = Handle> {
    (uniform24(any::<u8>()), sizes, select(tags)).prop_map(|(hash, size, tag)| {
        let mut bytes = [0; Handle::LEN];
        bytes[..24].copy_from_slice(&hash);
        bytes[24..30].copy_from_slice(&size.to_le_bytes()[..6]);
        bytes[30..].copy_from_slice(&tag.to_le_bytes());
        Handle::from_bytes(bytes).unwrap()
    })
}
