// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn leaf(text: &str, owner: usize) -> Leaf {
    Leaf { kind: b'f', handle: Handle::blob(text.as_bytes()), owner }
}

fn handle(folder: &Folder) -> Handle {
    folder.seal(&mut Bundles::default()).handle
}

#[test]
fn a_path_has_one_owner_unless_the_file_is_the_same() {
    let mut folder = Folder::default();
    folder.insert(b"x/a.o", leaf("one", 1)).unwrap();
    folder.insert(b"x/a.o", leaf("one", 2)).unwrap();
    assert_eq!(folder.insert(b"x/a.o", leaf("two", 3)), Err(Taken { by: 1 }));
    assert_eq!(folder.insert(b"x/a.o", Leaf { kind: b'x', ..leaf("one", 3) }), Err(Taken { by: 1 }));
    // A file where a directory is, and the other way round.
    assert_eq!(folder.insert(b"x", leaf("one", 4)), Err(Taken { by: 1 }));
    assert_eq!(folder.insert(b"x/a.o/b", leaf("one", 4)), Err(Taken { by: 1 }));
    assert_eq!(folder.insert_folder(b"x/a.o"), Err(Taken { by: 1 }));
    folder.insert_folder(b"x").unwrap();
    folder.insert(b"x/b.o", leaf("two", 5)).unwrap();
}

#[test]
fn a_directory_lists_its_children_by_name() {
    let mut folder = Folder::default();
    assert!(folder.is_empty());
    folder.insert(b"b", leaf("text of b", 0)).unwrap();
    folder.insert_folder(b"c").unwrap();
    folder.insert(b"a", Leaf { kind: b'x', ..leaf("text of a", 0) }).unwrap();
    let empty: TreeBuilder = [Handle::blob(b"")].into_iter().collect();
    let names = Handle::blob(b"x a\nf b\nd c\n");
    let entries = [names, Handle::blob(b"text of a"), Handle::blob(b"text of b"), empty.view().handle()];
    let expected: TreeBuilder = entries.into_iter().collect();
    assert_eq!(handle(&folder), expected.view().handle());
}

#[test]
fn directories_in_each_other_are_told_from_the_outermost() {
    let handles = nested(b"a/b", &mut Objects::default());
    let mut folder = Folder::default();
    folder.insert_folder(b"a/b").unwrap();
    assert_eq!((handles.len(), handles[0]), (3, handle(&folder)));
    assert_eq!(handles[2], handle(&Folder::default()));
}

proptest! {
    /// A file put into a sealed tree makes the tree that it would have been part of from the beginning.
    #[test]
    fn one_file_more_is_the_same_before_and_after(
        paths in prop::collection::btree_set("[ab](/[ab]){0,3}", 0..8), more in "[ab](/[ab]){0,3}",
    ) {
        let mut folder = Folder::default();
        for path in &paths {
            _ = folder.insert(path.as_bytes(), leaf(path, 0));
        }
        let sealed = folder.seal(&mut Bundles::default());
        let fits = folder.insert(more.as_bytes(), leaf("more", 1)).is_ok();
        prop_assume!(fits);
        let with = sealed.with(more.as_bytes(), b'f', Handle::blob(b"more"), &mut Objects::default());
        prop_assert_eq!(with, handle(&folder));
    }

    /// Every object of a tree is in its bundles, after those that it names.
    #[test]
    fn bundles_hold_the_whole_tree(paths in prop::collection::btree_set("[ab](/[abc]){0,3}", 1..12)) {
        let mut folder = Folder::default();
        for path in &paths {
            _ = folder.insert(path.as_bytes(), leaf(path, 0));
        }
        let mut bundles = Bundles::default();
        let root = folder.seal(&mut bundles).handle;
        let mut seen = std::collections::HashSet::new();
        for bundle in bundles.finish() {
            for record in objects::BundleReader::new(&bundle).unwrap() {
                match record.unwrap() {
                    objects::BundleRecord::Blob(bytes) => seen.insert(Handle::blob(bytes)),
                    objects::BundleRecord::Tree(tree) => {
                        let known = |entry: Handle| !entry.names_tree() || seen.contains(&entry);
                        prop_assert!(tree.iter().all(known));
                        seen.insert(tree.handle())
                    }
                    objects::BundleRecord::Goal(_) => false,
                };
            }
        }
        prop_assert!(seen.contains(&root));
    }
}
