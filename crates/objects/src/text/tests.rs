// SPDX-License-Identifier: Apache-2.0
//! The text form: one text for each handle, and nothing else is one.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::tests::strategies::{any_handle, any_handle_bytes};
use crate::tests::vectors::{handle, list, string, vectors};

const TEXT_LEN_MAX: usize = 83;

/// Texts that follow the grammar, or nearly do.
fn any_text() -> impl Strategy<Value = String> {
    let word = "(strict-|shallow-|ident-|app-|sel-|lit-|blob-|tree-|blobref-|treeref-|failure-)";
    let hash = "([0-9a-f]{48}|[0-9a-fA-F]{46,50})";
    let size = "(0|3|30|31|67108864|67108865|281474976710655|281474976710656|[0-9]{1,20})";
    let hashed = proptest::string::string_regex(&format!("{word}{{1,3}}{hash}-{size}")).unwrap();
    let literal = proptest::string::string_regex("(strict-|shallow-)?(ident-)?lit-[0-9a-f]{0,62}").unwrap();
    let mutated = (any_handle(), 0..TEXT_LEN_MAX, any::<char>(), 0..3).prop_map(|(handle, at, new, how)| {
        let mut text: Vec<char> = handle.to_string().chars().collect();
        let at = at % text.len();
        match how {
            0 => text[at] = new,
            1 => text.insert(at, new),
            _ => drop(text.remove(at)),
        }
        text.into_iter().collect()
    });
    prop_oneof![hashed, literal, mutated, ".*"]
}

#[test]
fn texts_agree_with_the_vectors() {
    for vector in list(&vectors()["handles"]) {
        let handle = handle(&vector["bytes"]);
        let text = string(&vector["text"]);
        assert_eq!(handle.to_string(), text, "{}", vector["name"]);
        assert_eq!(format!("{handle:?}"), text, "{}", vector["name"]);
        assert_eq!(text.parse(), Ok(handle), "{}", vector["name"]);
    }
}

#[test]
fn other_texts_are_refused() {
    for vector in list(&vectors()["invalid_texts"]) {
        let parsed = string(&vector["text"]).parse::<Handle>();
        assert!(parsed.is_err(), "{}: {} is read as {parsed:?}", vector["why"], vector["text"]);
    }
}

#[test]
fn the_longest_text_is_as_long_as_the_specification_says() {
    let blob = Handle::blob_from_hash(&[0xff; 32], crate::BLOB_SIZE_MAX).unwrap();
    let longest = blob.identification().unwrap().shallow().unwrap();
    assert_eq!(longest.to_string().len(), TEXT_LEN_MAX);
}

proptest! {
    #[test]
    fn every_handle_comes_back(handle in any_handle()) {
        let text = handle.to_string();
        prop_assert_eq!(text.parse(), Ok(handle));
        prop_assert!(text.len() <= TEXT_LEN_MAX);
        let plain = |byte: u8| byte == b'-' || byte.is_ascii_lowercase() || byte.is_ascii_digit();
        prop_assert!(text.bytes().all(plain));
    }

    #[test]
    fn a_text_that_parses_is_the_one_of_its_handle(text in any_text()) {
        if let Ok(handle) = text.parse::<Handle>() {
            prop_assert_eq!(handle.to_string(), text);
        }
    }

    #[test]
    fn different_bytes_have_different_texts(left in any_handle(), right in any_handle_bytes()) {
        if let Ok(right) = Handle::from_bytes(right) {
            prop_assert_eq!(left == right, left.to_string() == right.to_string());
        }
    }

    #[test]
    fn a_change_of_one_bit_changes_the_text(handle in any_handle(), bit in 0..256usize) {
        let mut bytes = *handle.as_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(other) = Handle::from_bytes(bytes) {
            prop_assert_ne!(handle.to_string(), other.to_string());
        }
    }
}
