// SPDX-License-Identifier: Apache-2.0
//! Failures: three entries, a known code, and the mark on the handle.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::tests::strategies::{any_handle, any_tree_bytes};
use crate::tests::vectors::{bytes, handle, list, string, vectors};

#[test]
fn codes_agree_with_the_vectors() {
    let expected: Vec<_> = list(&vectors()["failures"]["codes"])
        .iter()
        .map(|vector| (string(&vector["code"]), vector["deterministic"].as_bool().unwrap()))
        .collect();
    let codes: Vec<_> =
        FailureCode::ALL.iter().map(|code| (code.as_str(), code.is_deterministic())).collect();
    assert_eq!(codes, expected);
    for code in FailureCode::ALL {
        assert_eq!(code.to_string().parse(), Ok(code));
    }
}

#[test]
fn failures_agree_with_the_vectors() {
    for vector in list(&vectors()["failures"]["valid"]) {
        let content = bytes(&vector["tree"]);
        let tree = TreeView::from_bytes(&content).unwrap();
        let expected = Failure {
            code: string(&vector["code"]).parse().unwrap(),
            application: handle(&vector["application"]),
            detail: handle(&vector["detail"]),
        };
        assert_eq!(Failure::from_tree(tree), Ok(expected));
        let (marked, again) = expected.to_tree();
        assert_eq!(marked, handle(&vector["handle"]));
        assert_eq!(again.view(), tree);
        assert_eq!(marked.plain_tree(), tree.handle());
    }
}

#[test]
fn other_trees_are_no_failures() {
    for vector in list(&vectors()["failures"]["invalid"]) {
        let content = bytes(&vector["tree"]);
        let read = Failure::from_tree(TreeView::from_bytes(&content).unwrap());
        assert!(matches!(read, Err(Error::BadFailure(_))), "{}: {read:?}", vector["why"]);
    }
}

proptest! {
    #[test]
    fn every_failure_comes_back(
        code in select(&FailureCode::ALL[..]), application in any_handle(), detail in any_handle(),
    ) {
        let failure = Failure { code, application, detail };
        let (marked, tree) = failure.to_tree();
        prop_assert_eq!(marked.kind(), Kind::Failure);
        prop_assert!(Handle::from_bytes(*marked.as_bytes()).is_ok());
        let read = Failure::from_tree(tree.view());
        prop_assert_eq!(read.is_ok(), detail.kind() == Kind::Blob);
        prop_assert!(read.is_err() || read == Ok(failure));
    }

    #[test]
    fn arbitrary_trees_never_panic_and_failures_are_canonical(
        content in any_tree_bytes(), code in any_handle(), rest in (any_handle(), any_handle()),
    ) {
        let three: TreeBuilder = [code, rest.0, rest.1].into_iter().collect();
        for tree in [TreeView::from_bytes(&content).ok(), Some(three.view())].into_iter().flatten() {
            if let Ok(failure) = Failure::from_tree(tree) {
                let (_, again) = failure.to_tree();
                prop_assert_eq!(again.view(), tree);
            }
        }
    }
}
