// SPDX-License-Identifier: Apache-2.0
//! Packs as bytes: whole, cut off, and made up by an attacker.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn pack(objects: &[Vec<u8>]) -> (Vec<u8>, Vec<Handle>) {
    let mut pack = header(7).to_vec();
    let keys: Vec<Handle> = objects.iter().map(|bytes| Handle::blob(bytes)).collect();
    keys.iter().zip(objects).for_each(|(key, bytes)| push(&mut pack, *key, bytes));
    (pack, keys)
}

fn objects() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 31..200), 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_written_is_found_in_its_order(objects in objects()) {
        let (pack, keys) = pack(&objects);
        let mut records = Records::new(&pack, 0);
        for (key, bytes) in keys.iter().zip(&objects) {
            let found = records.next().unwrap();
            prop_assert_eq!((found.key, found.bytes), (*key, bytes.as_slice()));
            prop_assert!(found.is_sound());
            let at = found.unit as usize * UNIT as usize;
            prop_assert_eq!(&pack[at..at + Handle::LEN], key.as_bytes());
        }
        prop_assert_eq!(records.next(), None);
        prop_assert_eq!(records.at(), pack.len() as u64);
    }

    #[test]
    fn a_pack_that_was_cut_off_has_all_before_the_cut(objects in objects(), cut in any::<prop::sample::Index>()) {
        let (pack, _) = pack(&objects);
        let cut = cut.index(pack.len());
        let whole = Records::new(&pack, 0).take_while(|found| {
            found.unit as usize * UNIT as usize + Handle::LEN + found.bytes.len() <= cut
        });
        let found = Records::new(&pack[..cut], 0).filter(Found::is_sound);
        prop_assert_eq!(found.count(), whole.count());
    }

    #[test]
    fn rubbish_is_no_panic_and_nothing_unsound_is_taken_for_sound(
        bytes in prop::collection::vec(any::<u8>(), 0..500), from in 0u64..600,
    ) {
        for found in Records::new(&bytes, from) {
            prop_assert_eq!(found.is_sound(), hashes_to(found.bytes, found.key));
        }
        prop_assert_eq!(begun(&bytes), None);
    }

    #[test]
    fn a_flipped_bit_is_noticed(objects in objects(), bit in any::<prop::sample::Index>()) {
        let (mut pack, keys) = pack(&objects);
        let len = pack.len() - HEADER_LEN as usize;
        prop_assume!(len > 0);
        let bit = bit.index(len * 8);
        pack[HEADER_LEN as usize + bit / 8] ^= 1 << (bit % 8);
        // In the filling it changes nothing.
        let sound = Records::new(&pack, 0).filter(Found::is_sound);
        for found in sound {
            prop_assert!(keys.contains(&found.key));
        }
    }
}

#[test]
fn a_header_tells_when_the_pack_was_begun() {
    assert_eq!(begun(&header(12345)), Some(12345));
    assert_eq!(begun(b"sinew-pack 2\n"), None);
}

#[test]
fn literals_and_large_objects_are_no_records() {
    for key in [Handle::u64(3), Handle::blob(&vec![1; 70_000])] {
        let mut pack = header(7).to_vec();
        pack.extend_from_slice(key.as_bytes());
        pack.resize(100_000, 1);
        assert_eq!(Records::new(&pack, 0).next(), None);
    }
}
