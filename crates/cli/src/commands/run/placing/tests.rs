// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;

use super::*;

#[test]
fn no_link_is_followed_on_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("outside")).unwrap();
    fs::write(path("outside/file"), "text").unwrap();
    symlink("outside", path("link")).unwrap();
    directory(&path("link")).unwrap();
    assert!(fs::symlink_metadata(path("link")).unwrap().is_dir(), "a directory of its own took its place");
    symlink("outside", path("gone")).unwrap();
    remove(&path("gone"), b'd').unwrap();
    assert!(!path("gone").exists() && path("outside/file").exists());
    // What is another kind of thing by now is not ours to remove.
    remove(&path("outside"), b'f').unwrap();
    assert!(path("outside/file").exists());
    remove(&path("nothing"), b'f').unwrap();
}

#[test]
fn names_of_a_tree_stay_within_it() {
    for wrong in [&b""[..], b".", b"..", b"a/b", b"/etc", b"a\0"] {
        assert!(!is_name(wrong), "{wrong:?}");
    }
    assert!(is_name(b"..a") && is_name("\u{e9}".as_bytes()));
}
