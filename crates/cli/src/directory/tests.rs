// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

#[test]
fn a_tree_of_files_in_the_order_of_their_names() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    std::fs::create_dir_all(path("b/deep/er")).unwrap();
    std::fs::write(path("c.txt"), "ccc").unwrap();
    std::fs::write(path("a.txt"), "a").unwrap();
    std::fs::write(path("b/x"), "xx").unwrap();
    std::fs::set_permissions(path("b/x"), std::fs::Permissions::from_mode(0o755)).unwrap();
    symlink(path("a.txt"), path("link")).unwrap();
    symlink(path("b"), path("loop")).unwrap();
    symlink(path("nowhere"), path("z-broken")).unwrap();
    let plan = plan(root.path(), None).unwrap();
    assert_eq!(plan.folders[0].names(), b"f a.txt\nd b\nf c.txt\nf link\n");
    assert_eq!(plan.bytes, 1 + 3 + 2 + 1);
    assert_eq!(plan.skipped, [path("loop"), path("z-broken")]);
    assert_eq!(plan.folders.len(), 4);
    assert_eq!((plan.entries, plan.levels), (7, 4));
    assert!(plan.folders.iter().any(|folder| folder.names() == b"d deep\nx x\n"));
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
    assert!(plan(root.path(), None).unwrap_err().to_string().contains("line break"));
    let error = plan(&root.path().join("none"), None).unwrap_err();
    assert_eq!(error.downcast_ref::<Stop>().unwrap().code, Code::NotFound);
}

#[test]
fn what_is_not_selected_is_left_out_with_its_empty_directories() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    for name in ["main.py", "lib/a.py", "lib/__pycache__/a.pyc", "tests/deep/a.py", ".git/config"] {
        std::fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        std::fs::write(path(name), "x").unwrap();
    }
    let selection = Selection::new(&[], &[], "tests/**").unwrap();
    let plan = plan(root.path(), Some(&selection)).unwrap();
    assert_eq!(plan.folders[0].names(), b"d lib\nf main.py\n");
    assert_eq!((plan.bytes, plan.entries), (2, 3));
    assert_eq!(plan_of_file(&path("main.py")).unwrap().folders[0].names(), b"f main.py\n");
}

#[test]
fn code_has_no_secrets_and_no_links_out_of_it() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join("source").join(name);
    fs::create_dir(root.path().join("source")).unwrap();
    for (name, text) in [
        ("main.py", "1"),
        (".env.local", "KEY=1"),
        ("ca.pem", "-----BEGIN CERTIFICATE-----\n"),
        ("server.pem", "-----BEGIN RSA PRIVATE KEY-----\n"),
        ("test.key", "-----BEGIN PRIVATE KEY-----\n"),
    ] {
        fs::write(path(name), text).unwrap();
    }
    symlink("main.py", path("inside.py")).unwrap();
    let selection = Selection::new(&[], &[], "!test.key\n").unwrap();
    let planned = plan(&path(""), Some(&selection)).unwrap();
    let names: Vec<&str> =
        planned.folders[0].children.iter().map(|(name, _)| name.to_str().unwrap()).collect();
    assert_eq!(names, ["ca.pem", "inside.py", "main.py", "test.key"]);
    let mut secrets = planned.secrets;
    secrets.sort();
    assert_eq!(secrets, [path(".env.local"), path("server.pem")]);
    // All of a directory that is put as it is.
    assert_eq!(plan(&path(""), None).unwrap().entries, 6);
    fs::write(root.path().join("outside"), "secret").unwrap();
    symlink("../outside", path("link")).unwrap();
    let error = plan(&path(""), Some(&selection)).unwrap_err();
    assert!(error.to_string().contains("leaves the source"), "{error}");
    let without = Selection::new(&[], &[], "link\n").unwrap();
    assert!(plan(&path(""), Some(&without)).is_ok());
}
