// SPDX-License-Identifier: Apache-2.0
//! Trees: their bytes, their hash, and that nothing else is one.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::tests::strategies::{any_entries, any_tree_bytes};
use crate::tests::vectors::{bytes, handle, list, number, vectors};

#[test]
fn trees_agree_with_the_vectors() {
    for vector in list(&vectors()["trees"]["valid"]) {
        let content = bytes(&vector["bytes"]);
        let tree = TreeView::from_bytes(&content).unwrap();
        assert_eq!(tree.len() as u64, number(&vector["entries"]), "{}", vector["name"]);
        assert_eq!(tree.handle(), handle(&vector["handle"]), "{}", vector["name"]);
        assert_eq!(Handle::tree(&content), Ok(tree.handle()), "{}", vector["name"]);
        let rebuilt: TreeBuilder = tree.iter().collect();
        assert_eq!(rebuilt.view(), tree, "{}", vector["name"]);
    }
}

#[test]
fn other_bytes_are_no_tree() {
    for vector in list(&vectors()["trees"]["invalid"]) {
        let content = bytes(&vector["bytes"]);
        let refused = matches!(TreeView::from_bytes(&content), Err(Error::BadTree(_)));
        assert!(refused, "{}", vector["why"]);
        assert!(Handle::tree(&content).is_err(), "{}", vector["why"]);
    }
}

#[test]
fn indices_far_out_of_range_are_no_entries() {
    let tree: TreeBuilder = [Handle::u64(0), Handle::u64(1)].into_iter().collect();
    for index in [2, 3, usize::MAX / Handle::LEN, usize::MAX / Handle::LEN + 1, usize::MAX] {
        assert_eq!(tree.view().get(index), None, "entry {index}");
        assert!(tree.view().range(0, index).is_none() || index == 2);
        assert!(tree.view().range(index, usize::MAX).is_none());
    }
    assert!(tree.view().range(2, 2).unwrap().is_empty(), "an empty range at the end is in range");
    assert!(tree.view().range(2, 1).is_none());
}

#[test]
fn a_builder_is_what_was_pushed() {
    let mut builder = TreeBuilder::with_capacity(2);
    assert!(builder.is_empty());
    builder.push(Handle::u64(1)).push(Handle::blob(b""));
    assert_eq!(builder.len(), 2);
    assert_eq!(builder.view().get(1), Some(Handle::blob(b"")));
    builder.clear();
    assert_eq!(builder.view().handle(), TreeBuilder::new().view().handle());
    assert_eq!(builder.into_bytes(), b"");
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(content in any_tree_bytes()) {
        let expected = content.len().is_multiple_of(Handle::LEN)
            && content.chunks(Handle::LEN).all(|entry| Handle::from_bytes(entry.try_into().unwrap()).is_ok());
        match TreeView::from_bytes(&content) {
            Ok(tree) => {
                prop_assert!(expected);
                prop_assert_eq!(tree.as_bytes(), &content[..]);
                prop_assert!(Handle::from_bytes(*tree.handle().as_bytes()).is_ok());
                prop_assert_eq!(tree.handle().size(), tree.len() as u64);
            }
            Err(_) => prop_assert!(!expected),
        }
    }

    #[test]
    fn a_blob_of_the_same_bytes_is_something_else(entries in any_entries()) {
        let tree: TreeBuilder = entries.into_iter().collect();
        let (blob, tree) = (Handle::blob(tree.view().as_bytes()), tree.view().handle());
        prop_assert_ne!(blob, tree);
        prop_assert_ne!(blob.hash_bytes(), tree.hash_bytes());
    }

    #[test]
    fn trees_have_one_handle_each(left in any_entries(), right in any_entries()) {
        let tree = |entries: &[Handle]| entries.iter().copied().collect::<TreeBuilder>().view().handle();
        prop_assert_eq!(left == right, tree(&left) == tree(&right));
    }

    #[test]
    fn ranges_and_entries_agree_with_a_slice(entries in any_entries(), begin in 0..10usize, end in 0..10usize) {
        let tree: TreeBuilder = entries.iter().copied().collect();
        let range = tree.view().range(begin, end).map(|part| part.iter().collect::<Vec<_>>());
        prop_assert_eq!(range.as_deref(), entries.get(begin..end));
        prop_assert_eq!(tree.view().get(begin), entries.get(begin).copied());
        let backwards: Vec<_> = tree.view().iter().rev().collect();
        prop_assert_eq!(backwards, entries.iter().rev().copied().collect::<Vec<_>>());
    }
}

#[test]
fn a_builder_begins_with_a_tree_and_replaces_entries() {
    let entries = [Handle::u64(1), Handle::blob(&[7; 40]), Handle::u64(3)];
    let tree: TreeBuilder = entries.into_iter().collect();
    let mut changed = TreeBuilder::from(tree.view());
    assert_eq!(changed.view(), tree.view());
    changed.set(1, Handle::u64(2));
    changed.set(3, Handle::u64(4));
    let wanted: TreeBuilder = [1, 2, 3].map(Handle::u64).into_iter().collect();
    assert_eq!(changed.view().handle(), wanted.view().handle());
    assert_ne!(changed.view().handle(), tree.view().handle());
}
