// SPDX-License-Identifier: Apache-2.0
//! Applications: limits, procedure, arguments; and how currying unfolds.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::tests::strategies::{any_entries, any_handle, any_tree_bytes};
use crate::tests::vectors::{bytes, handle, handles, limits, list, vectors};

#[test]
fn applications_agree_with_the_vectors() {
    for vector in list(&vectors()["applications"]["valid"]) {
        let content = bytes(&vector["tree"]);
        let application = Application::from_tree(TreeView::from_bytes(&content).unwrap()).unwrap();
        assert_eq!(application.limits, limits(&vector["limits"]));
        assert_eq!(application.procedure, handle(&vector["procedure"]));
        let arguments: Vec<_> = application.arguments().collect();
        assert_eq!(arguments, handles(&vector["arguments"]));
    }
}

#[test]
fn other_trees_are_no_applications() {
    for vector in list(&vectors()["applications"]["invalid"]) {
        let content = bytes(&vector["tree"]);
        let read = Application::from_tree(TreeView::from_bytes(&content).unwrap());
        assert!(matches!(read, Err(Error::BadApplication(_))), "{}", vector["why"]);
    }
}

#[test]
fn currying_agrees_with_the_vectors() {
    for vector in list(&vectors()["applications"]["curried"]) {
        let (outer, inner) = (bytes(&vector["tree"]), bytes(&vector["procedure"]));
        let application = Application::from_tree(TreeView::from_bytes(&outer).unwrap()).unwrap();
        let uncurried = application.uncurried(TreeView::from_bytes(&inner).unwrap());
        match &vector["uncurried"] {
            Value::Null => assert!(matches!(uncurried, Err(Error::BadApplication(_)))),
            expected => assert_eq!(uncurried.unwrap().into_bytes(), bytes(expected)),
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_trees_never_panic(content in any_tree_bytes()) {
        let Ok(tree) = TreeView::from_bytes(&content) else { return Ok(()) };
        if let Ok(application) = Application::from_tree(tree) {
            prop_assert_eq!(application.arguments().len() + ARGUMENTS_START, tree.len());
            prop_assert!(application.procedure.is_object());
        }
    }

    #[test]
    fn the_layout_is_judged_by_the_first_two_entries(
        first in any_handle(), procedure in any_handle(), arguments in any_entries(),
    ) {
        let entries = [first, procedure].into_iter().chain(arguments.iter().copied());
        let tree: TreeBuilder = entries.collect();
        let fits = Limits::from_handle(first).is_ok() && matches!(procedure.kind(), Kind::Blob | Kind::Tree);
        prop_assert_eq!(Application::from_tree(tree.view()).is_ok(), fits);
    }

    #[test]
    fn bound_arguments_come_first(bound in any_entries(), procedure in any_handle(), own in any_entries()) {
        let curried: TreeBuilder = [procedure].into_iter().chain(bound.iter().copied()).collect();
        let head = [Handle::blob(b""), curried.view().handle()];
        let tree: TreeBuilder = head.into_iter().chain(own.iter().copied()).collect();
        let application = Application::from_tree(tree.view()).unwrap();
        let uncurried = application.uncurried(curried.view()).unwrap();
        let expected: Vec<_> = [head[0], procedure].into_iter().chain(bound).chain(own).collect();
        prop_assert_eq!(uncurried.view().iter().collect::<Vec<_>>(), expected);
        prop_assert!(TreeView::from_bytes(&uncurried.into_bytes()).is_ok());
    }
}
