// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;

use super::*;

#[test]
fn a_tree_of_files_in_the_order_of_their_names() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    std::fs::create_dir_all(path("b/deep/er")).unwrap();
    std::fs::write(path("c.txt"), "ccc").unwrap();
    std::fs::write(path("a.txt"), "a").unwrap();
    std::fs::write(path("b/x"), "xx").unwrap();
    symlink(path("a.txt"), path("link")).unwrap();
    symlink(path("b"), path("loop")).unwrap();
    symlink(path("nowhere"), path("z-broken")).unwrap();
    let plan = plan(root.path()).unwrap();
    assert_eq!(plan.folders[0].names(), b"f a.txt\nd b\nf c.txt\nf link\n");
    assert_eq!(plan.bytes, 1 + 3 + 2 + 1);
    assert_eq!(plan.skipped, [path("loop"), path("z-broken")]);
    assert_eq!(plan.folders.len(), 4);
    // Every folder comes before the folders in it.
    for (at, folder) in plan.folders.iter().enumerate() {
        for (_, child) in &folder.children {
            assert!(!matches!(child, Child::Folder(inner) if *inner <= at));
        }
    }
}

#[test]
fn names_with_line_breaks_and_missing_directories_are_errors() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("a\nf b"), "").unwrap();
    assert!(plan(root.path()).unwrap_err().to_string().contains("line break"));
    let error = plan(&root.path().join("none")).unwrap_err();
    assert_eq!(error.downcast_ref::<Stop>().unwrap().code, Code::NotFound);
}
