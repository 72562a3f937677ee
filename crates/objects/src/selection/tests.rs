// SPDX-License-Identifier: Apache-2.0
//! Selections: a target, and one or two eight-byte indices.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::tests::strategies::{any_handle, any_tree_bytes};
use crate::tests::vectors::{bytes, handle, list, number, vectors};

#[test]
fn selections_agree_with_the_vectors() {
    for vector in list(&vectors()["selections"]["valid"]) {
        let content = bytes(&vector["tree"]);
        let tree = TreeView::from_bytes(&content).unwrap();
        let part = match vector.get("index") {
            Some(index) => Part::Element(number(index)),
            None => Part::Range { begin: number(&vector["begin"]), end: number(&vector["end"]) },
        };
        let expected = Selection { target: handle(&vector["target"]), part };
        assert_eq!(Selection::from_tree(tree), Ok(expected));
        assert_eq!(expected.to_tree().view(), tree);
    }
}

#[test]
fn other_trees_are_no_selections() {
    for vector in list(&vectors()["selections"]["invalid"]) {
        let content = bytes(&vector["tree"]);
        let read = Selection::from_tree(TreeView::from_bytes(&content).unwrap());
        assert!(matches!(read, Err(Error::BadSelection(_))), "{}", vector["why"]);
    }
}

proptest! {
    #[test]
    fn every_selection_comes_back(target in any_handle(), begin in any::<u64>(), end in any::<u64>()) {
        for part in [Part::Element(begin), Part::Range { begin, end }] {
            let selection = Selection { target, part };
            prop_assert_eq!(Selection::from_tree(selection.to_tree().view()), Ok(selection));
        }
    }

    #[test]
    fn arbitrary_trees_never_panic_and_selections_are_canonical(content in any_tree_bytes()) {
        let Ok(tree) = TreeView::from_bytes(&content) else { return Ok(()) };
        if let Ok(selection) = Selection::from_tree(tree) {
            let again = selection.to_tree();
            prop_assert_eq!(again.view(), tree);
        }
    }
}
