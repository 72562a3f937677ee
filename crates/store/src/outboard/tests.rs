// SPDX-License-Identifier: Apache-2.0
//! Outboards of every shape, and what becomes of damage in them.
#![allow(clippy::unwrap_used)]

use std::io;
use std::ops::Range;

use blake3::hazmat::ChainingValue;
use objects::Handle;
use proptest::prelude::*;

use super::*;

const GROUP: usize = GROUP_BYTES as usize;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251 + at / GROUP) as u8).collect()
}

/// A tree's bytes, which are handles.
fn entries(count: usize) -> Vec<u8> {
    (0..count as u64).flat_map(|number| *Handle::u64(number).as_bytes()).collect()
}

/// The outboard of an object whose bytes come in pieces, and its hash.
fn grow(key: Handle, bytes: &[u8], piece: usize) -> (blake3::Hash, Vec<u8>) {
    let mut grower = Grower::new(key.names_tree());
    let mut values: Vec<ChainingValue> = Vec::new();
    for piece in bytes.chunks(piece) {
        grower.update(piece);
        values.extend(grower.take_values());
    }
    let (hash, rest) = grower.finish();
    values.extend(rest);
    let outboard = std::cell::RefCell::new(values.as_flattened().to_vec());
    let read = |offset: u64, into: &mut [u8]| read_at(&outboard.borrow(), offset, into);
    let write = |more: &[u8]| {
        outboard.borrow_mut().extend_from_slice(more);
        Ok(())
    };
    upper_levels(key, read, write).unwrap();
    (hash, outboard.into_inner())
}

fn read_at(outboard: &[u8], offset: u64, into: &mut [u8]) -> io::Result<()> {
    let end = offset as usize + into.len();
    let found = outboard.get(offset as usize..end).ok_or(io::ErrorKind::UnexpectedEof)?;
    into.copy_from_slice(found);
    Ok(())
}

fn values(key: Handle, outboard: &[u8], groups: Range<u64>) -> io::Result<Vec<ChainingValue>> {
    group_values(key, groups, |offset, into| read_at(outboard, offset, into))
}

/// What the groups' values are to be.
fn direct(key: Handle, bytes: &[u8], groups: Range<u64>) -> Vec<ChainingValue> {
    let numbered = (0..).zip(bytes.chunks(GROUP)).filter(|(group, _)| groups.contains(group));
    numbered.map(|(group, bytes)| group_value(key, group, bytes)).collect()
}

#[test]
fn the_hash_is_the_objects_name_for_every_length_around_groups() {
    for groups in [0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 33] {
        for len in [groups * GROUP, groups * GROUP + 1, groups * GROUP + 1024, (groups + 1) * GROUP - 1] {
            let bytes = bytes(len);
            let key = Handle::blob(&bytes);
            for piece in [1000, GROUP, 5 * GROUP + 3] {
                let (hash, outboard) = grow(key, &bytes, piece);
                assert_eq!(hash, blake3::hash(&bytes), "{len} bytes in pieces of {piece}");
                if len > GROUP {
                    assert_eq!(outboard.len() as u64, outboard_len(len as u64), "{len} bytes");
                }
            }
        }
    }
    for count in [512, 513, 1024, 1025, 5000] {
        let entries = entries(count);
        let key = Handle::tree(&entries).unwrap();
        let (hash, _) = grow(key, &entries, 4096);
        assert_eq!(hash.as_bytes()[..24], key.hash_bytes()[..], "{count} entries");
    }
}

#[test]
fn an_outboard_is_small_and_so_is_what_a_part_needs_of_it() {
    let len = 10 << 30;
    assert!(outboard_len(len) * 250 < len, "0.4 %");
    // Of what was never written: only how much would be read is looked at.
    let mut read = 0;
    let key = Handle::blob_from_hash(&[7; 32], len).unwrap();
    let refused = group_values(key, 1000..1001, |_, into| {
        read += into.len();
        Ok(())
    });
    assert_eq!((refused.unwrap_err().kind(), read), (io::ErrorKind::InvalidData, 64), "it ends at the root");
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = bytes(11 * GROUP + 77);
    let key = Handle::blob(&bytes);
    let (_, outboard) = grow(key, &bytes, GROUP);
    assert_eq!(values(key, &outboard, 0..12).unwrap(), direct(key, &bytes, 0..12));
    for at in 0..outboard.len() {
        let mut damaged = outboard.clone();
        damaged[at] ^= 1 << (at % 8);
        let error = values(key, &damaged, 0..12).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "byte {at}");
    }
    assert!(values(key, &outboard[..outboard.len() - 1], 0..12).is_err(), "cut short");
    let other = Handle::blob(&bytes[1..]);
    assert!(values(other, &outboard, 0..12).is_err(), "of another object");
}

proptest! {
    #[test]
    fn values_are_those_of_the_groups(
        len in GROUP + 1..40 * GROUP,
        is_tree: bool,
        first: prop::sample::Index,
        count: prop::sample::Index,
        flip: Option<(prop::sample::Index, u8)>,
    ) {
        let bytes = if is_tree { entries(len / 32) } else { bytes(len) };
        prop_assume!(bytes.len() > GROUP);
        let key = if is_tree { Handle::tree(&bytes).unwrap() } else { Handle::blob(&bytes) };
        let (_, mut outboard) = grow(key, &bytes, 3 * GROUP);
        let all = bytes.len().div_ceil(GROUP);
        let first = first.index(all);
        let groups = first as u64..(first + 1 + count.index(all - first)) as u64;
        let right = direct(key, &bytes, groups.clone());
        prop_assert_eq!(&values(key, &outboard, groups.clone()).unwrap(), &right);
        if let Some((at, bits)) = flip {
            let at = at.index(outboard.len());
            outboard[at] ^= bits;
            // Damage that is not met does no harm, and none is believed.
            if let Ok(found) = values(key, &outboard, groups) {
                prop_assert_eq!(found, right);
            }
        }
    }

    #[test]
    fn whatever_is_in_an_outboard_is_not_believed(
        outboard in prop::collection::vec(any::<u8>(), 0..2000),
        len in 31_u64..1 << 22,
        hash: [u8; 32],
        groups: Range<u64>,
    ) {
        let key = Handle::blob_from_hash(&hash, len).unwrap();
        let all = len.div_ceil(GROUP_BYTES);
        let groups = groups.start % all..(groups.start % all + 1 + groups.end % 3).min(all);
        if len > GROUP_BYTES {
            prop_assert!(values(key, &outboard, groups).is_err());
        }
    }
}
