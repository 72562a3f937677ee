// SPDX-License-Identifier: Apache-2.0
//! The handle against the vectors and against the rules of section 2 and 5.

#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::tests::strategies::{any_handle, any_handle_bytes};
use crate::tests::vectors::{
    bytes, handle, list, number, optional_handle, raw_handle, sample, string, vectors,
};

/// The rules of the specification, by what [`Handle::from_bytes`] says of them.
const RULES: [(&str, &str); 12] = [
    ("H1", "reserved bits of the metadata are set"),
    ("H2", "the encode is neither strict nor shallow"),
    ("H3", "an encode of something that is no thunk"),
    ("H4", "a thunk cannot be a ref or a failure"),
    ("H5", "an application or selection is not defined by a tree"),
    ("H6", "a failure is not a readable tree of three entries"),
    ("H7", "a literal that is a tree or a ref"),
    ("H8", "a literal of over 30 bytes"),
    ("H9", "a literal that is not zero padded"),
    ("H10", "a literal length without a literal"),
    ("H11", "a short blob is not a literal"),
    ("H12", "a tree with too many entries"),
];

fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Blob => "blob",
        Kind::Tree => "tree",
        Kind::BlobRef => "blob ref",
        Kind::TreeRef => "tree ref",
        Kind::Failure => "failure",
        Kind::Application => "application",
        Kind::Identification => "identification",
        Kind::Selection => "selection",
        Kind::Strict => "strict",
        Kind::Shallow => "shallow",
    }
}

/// Every public conversion, by its name in the vectors.
fn conversions(handle: Handle) -> [(&'static str, Option<Handle>); 10] {
    [
        ("lowered", handle.lowered()),
        ("lifted", handle.lifted()),
        ("application", handle.application()),
        ("identification", handle.identification()),
        ("selection", handle.selection()),
        ("strict", handle.strict()),
        ("shallow", handle.shallow()),
        ("thunk", handle.thunk()),
        ("definition", Some(handle.definition())),
        ("plain_tree", Some(handle.plain_tree())),
    ]
}

fn is_valid(bytes: [u8; Handle::LEN]) -> bool {
    Handle::from_bytes(bytes).is_ok()
}

#[test]
fn kinds_have_distinct_names_which_begin_the_text_of_values() {
    let names: std::collections::HashSet<_> = Kind::ALL.into_iter().map(Kind::name).collect();
    assert_eq!(names.len(), Kind::ALL.len());
    for vector in list(&vectors()["handles"]) {
        let handle = handle(&vector["bytes"]);
        // The vectors put a blank into the refs' names.
        let word = vector["kind"].as_str().unwrap().replace(' ', "");
        assert_eq!((handle.kind().name(), handle.kind().to_string()), (word.as_str(), word.clone()));
        if handle.is_value() && handle.literal_bytes().is_none() {
            assert_eq!(handle.to_string().split('-').next(), Some(handle.kind().name()));
        }
    }
}

#[test]
fn handles_agree_with_the_vectors() {
    let mut kinds = std::collections::HashSet::new();
    for vector in list(&vectors()["handles"]) {
        let name = &vector["name"];
        let handle = handle(&vector["bytes"]);
        kinds.insert(handle.kind());
        assert_eq!(kind_word(handle.kind()), vector["kind"], "{name}");
        assert_eq!(handle.size(), number(&vector["size"]), "{name}");
        let literal = (!vector["literal"].is_null()).then(|| bytes(&vector["literal"]));
        assert_eq!(handle.literal_bytes(), literal.as_deref(), "{name}");
        for (conversion, result) in conversions(handle) {
            let expected = vector.get(conversion).unwrap_or_else(|| panic!("{conversion} is no key"));
            assert_eq!(result, optional_handle(expected), "{conversion} of {name}");
        }
    }
    assert_eq!(kinds.len(), 10, "the vectors contain every kind");
}

#[test]
fn invalid_bytes_are_refused_for_a_rule_that_they_break() {
    let mut seen = std::collections::HashSet::new();
    for vector in list(&vectors()["invalid_handles"]) {
        let Err(Error::BadHandle(why)) = Handle::from_bytes(raw_handle(&vector["bytes"])) else {
            panic!("{} is accepted", vector["why"]);
        };
        let (rule, _) = RULES.iter().find(|(_, text)| *text == why).unwrap();
        seen.insert(*rule);
        let broken = list(&vector["rules"]);
        assert!(broken.iter().any(|name| name == rule), "{}: {rule} is not in {broken:?}", vector["why"]);
    }
    assert_eq!(seen.len(), RULES.len(), "each rule is the reason once: {seen:?}");
}

#[test]
fn of_all_tags_exactly_the_listed_ones_are_valid() {
    for sweep in list(&vectors()["tag_sweep"]) {
        let mut raw = [0; Handle::LEN];
        raw[..META_AT].copy_from_slice(&bytes(&sweep["body"]));
        let valid: Vec<u64> = (0..=u16::MAX)
            .filter(|tag| {
                raw[META_AT..].copy_from_slice(&tag.to_le_bytes());
                is_valid(raw)
            })
            .map(u64::from)
            .collect();
        let expected: Vec<u64> = list(&sweep["valid_tags"]).iter().map(number).collect();
        assert_eq!(valid, expected, "after {}", sweep["body"]);
    }
}

#[test]
fn blobs_agree_with_the_vectors() {
    let blobs = &vectors()["blobs"];
    assert_eq!(string(&blobs["formula"]), "byte i of the blob is i modulo 251");
    for case in list(&blobs["cases"]) {
        let content = sample(number(&case["length"]) as usize);
        let expected = handle(&case["handle"]);
        assert_eq!(Handle::blob(&content), expected, "{} bytes", content.len());
        assert_eq!(expected.size(), content.len() as u64);
        let streamed = Handle::blob_from_hash(blake3::hash(&content).as_bytes(), content.len() as u64);
        let hashed = Some(expected).filter(|_| content.len() > LITERAL_LEN_MAX);
        assert_eq!(streamed, hashed, "{} bytes", content.len());
    }
}

#[test]
fn a_streamed_blob_is_within_the_size_field() {
    assert!(Handle::blob_from_hash(&[7; 32], 30).is_none());
    assert!(Handle::blob_from_hash(&[7; 32], BLOB_SIZE_MAX + 1).is_none());
    let largest = Handle::blob_from_hash(&[7; 32], BLOB_SIZE_MAX).unwrap();
    assert!(is_valid(*largest.as_bytes()));
    assert_eq!(largest.size(), BLOB_SIZE_MAX);
}

#[test]
fn only_short_blobs_are_literals() {
    assert!(Handle::literal(&[1; LITERAL_LEN_MAX]).is_some());
    assert!(Handle::literal(&[1; LITERAL_LEN_MAX + 1]).is_none());
    assert_ne!(Handle::blob(b""), Handle::blob(b"\0"), "the length tells padding from content");
}

#[test]
fn words_and_literals_are_two_ways_to_the_same_handle() {
    let value = 0x8877_6655_4433_2211_u64;
    for len in 0..=8 {
        let handle = Handle::low_bytes(value, len).unwrap();
        assert_eq!(Some(handle), Handle::literal(&value.to_le_bytes()[..len]), "{len} bytes");
        let kept = (0..len).fold(0, |kept, index| kept | value & 0xff << (8 * index));
        assert_eq!(handle.literal_word(), Some(kept), "{len} bytes");
    }
    assert!(Handle::low_bytes(value, 9).is_none());
    assert!(Handle::low_bytes(value, usize::MAX).is_none());
    assert_eq!(Handle::literal(&[7; LITERAL_LEN_MAX]).unwrap().literal_word(), Some(0x0707_0707_0707_0707));
    assert!(Handle::blob(&[7; LITERAL_LEN_MAX + 1]).literal_word().is_none());
    assert!(Handle::u64(7).identification().unwrap().literal_word().is_none(), "a thunk is no blob");
}

#[test]
fn only_trees_of_three_entries_can_be_marked_as_failures() {
    let entry = Handle::u64(1);
    for count in 0..6usize {
        let tree: tree::TreeBuilder = std::iter::repeat_n(entry, count).collect();
        let tree = tree.view().handle();
        assert_eq!(tree.failure().is_some(), count == 3);
        assert!(tree.lowered().unwrap().failure().is_none());
        assert!(tree.application().unwrap().failure().is_none());
    }
    assert!(Handle::blob(b"abc").failure().is_none());
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_valid_ones_come_back(raw in any_handle_bytes()) {
        if let Ok(handle) = Handle::from_bytes(raw) {
            prop_assert_eq!(handle.as_bytes(), &raw);
            prop_assert!(handle.size() <= BLOB_SIZE_MAX);
            prop_assert_eq!(&handle.hash_bytes()[..], &raw[..HASH_LEN]);
        }
    }

    #[test]
    fn each_conversion_gives_a_valid_handle(handle in any_handle()) {
        for (name, result) in conversions(handle) {
            if let Some(result) = result {
                prop_assert!(is_valid(*result.as_bytes()), "{} of {}", name, handle);
                prop_assert_eq!(result.size(), handle.size(), "{} keeps the size", name);
                prop_assert_eq!(result.hash_bytes(), handle.hash_bytes(), "{} keeps the hash", name);
            }
        }
    }

    #[test]
    fn a_handle_is_a_value_a_thunk_or_an_encode(handle in any_handle()) {
        let roles = [handle.is_value(), handle.is_thunk(), handle.is_encode()];
        prop_assert_eq!(roles.iter().filter(|&&role| role).count(), 1);
        let kind = handle.kind();
        prop_assert_eq!(handle.is_encode(), matches!(kind, Kind::Strict | Kind::Shallow));
        let thunks = [Kind::Application, Kind::Identification, Kind::Selection];
        prop_assert_eq!(handle.is_thunk(), thunks.contains(&kind));
        prop_assert_eq!(handle.is_object(), [Kind::Blob, Kind::Tree, Kind::Failure].contains(&kind));
        prop_assert_eq!(handle.is_failure(), kind == Kind::Failure);
        prop_assert_eq!(handle.thunk().is_some(), !handle.is_value());
    }

    #[test]
    fn conversions_can_be_undone(handle in any_handle()) {
        for thunk in [handle.application(), handle.selection(), handle.identification()] {
            let Some(thunk) = thunk else { continue };
            prop_assert_eq!(Some(thunk.definition()), handle.lifted());
            prop_assert_eq!(thunk.strict().unwrap().thunk(), Some(thunk));
            prop_assert_eq!(thunk.shallow().unwrap().thunk(), Some(thunk));
            prop_assert_ne!(thunk.shallow(), thunk.strict());
        }
        if let Some(lowered) = handle.lowered() {
            prop_assert_eq!(lowered.lifted(), handle.lifted());
            prop_assert_eq!(lowered.lowered(), Some(lowered));
            prop_assert_eq!(lowered.identification(), handle.identification());
        }
        prop_assert_eq!(handle.definition().definition(), handle.definition());
        prop_assert!(handle.definition().is_object());
        prop_assert!(!handle.plain_tree().is_failure());
    }

    #[test]
    fn blobs_have_one_handle_each(left in vec(any::<u8>(), 0..40), right in vec(any::<u8>(), 0..40)) {
        prop_assert_eq!(left == right, Handle::blob(&left) == Handle::blob(&right));
        let handle = Handle::blob(&left);
        prop_assert!(is_valid(*handle.as_bytes()));
        prop_assert_eq!(handle.kind(), Kind::Blob);
        let literal = (left.len() <= LITERAL_LEN_MAX).then_some(&left[..]);
        prop_assert_eq!(handle.literal_bytes(), literal);
    }

    #[test]
    fn numbers_are_eight_byte_literals(value in any::<u64>()) {
        prop_assert_eq!(Handle::u64(value), Handle::blob(&value.to_le_bytes()));
    }
}
