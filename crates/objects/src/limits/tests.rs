// SPDX-License-Identifier: Apache-2.0
//! Limits: 25 bytes, or none.

#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::tests::strategies::any_handle;
use crate::tests::vectors::{handle, limits, list, vectors};

#[test]
fn limits_agree_with_the_vectors() {
    for vector in list(&vectors()["limits"]["valid"]) {
        let handle = handle(&vector["handle"]);
        let limits = limits(vector);
        assert_eq!(Limits::from_handle(handle), Ok(limits), "{handle}");
        if handle.size() != 0 {
            assert_eq!(limits.handle(), Some(handle));
        }
    }
}

#[test]
fn other_handles_are_no_limits() {
    for vector in list(&vectors()["limits"]["invalid"]) {
        let refused = matches!(Limits::from_handle(handle(&vector["handle"])), Err(Error::BadApplication(_)));
        assert!(refused, "{}", vector["why"]);
    }
}

#[test]
fn saying_the_defaults_is_another_handle_than_saying_nothing() {
    let empty = Handle::blob(b"");
    assert_eq!(Limits::from_handle(empty), Ok(Limits::default()));
    assert_ne!(Limits::default().handle(), Some(empty));
}

#[test]
fn fields_over_48_bits_cannot_be_said() {
    let over = 1 << 48;
    assert!(Limits { memory_bytes: over, ..Limits::default() }.handle().is_none());
    assert!(Limits { output_size_hint: over, ..Limits::default() }.handle().is_none());
    assert!(Limits { memory_bytes: over - 1, fuel: u64::MAX, ..Limits::default() }.handle().is_some());
}

proptest! {
    #[test]
    fn every_limit_comes_back(
        memory_bytes in 0..1u64 << 48, fuel in any::<u64>(),
        output_size_hint in 0..1u64 << 48, fan_out_hint in any::<u32>(),
    ) {
        let limits = Limits { memory_bytes, fuel, output_size_hint, fan_out_hint };
        let handle = limits.handle().unwrap();
        prop_assert!(Handle::from_bytes(*handle.as_bytes()).is_ok());
        prop_assert_eq!(Limits::from_handle(handle), Ok(limits));
    }

    #[test]
    fn a_literal_of_form_1_is_the_only_one_with_its_meaning(rest in vec(any::<u8>(), LIMITS_LEN - 1)) {
        let handle = Handle::blob(&[&[1][..], &rest].concat());
        prop_assert_eq!(Limits::from_handle(handle).unwrap().handle(), Some(handle));
    }

    #[test]
    fn arbitrary_handles_never_panic(handle in any_handle()) {
        if let Ok(limits) = Limits::from_handle(handle) {
            prop_assert!(handle.is_object() && [0, LIMITS_LEN as u64].contains(&handle.size()));
            prop_assert!(limits.handle().is_some());
        }
    }
}
