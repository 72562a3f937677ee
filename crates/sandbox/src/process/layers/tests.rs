// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use objects::TreeBuilder;

use super::*;

struct World {
    store: Arc<Store>,
    layers: Layers,
    _folder: tempfile::TempDir,
}

fn world(bytes_max: u64) -> World {
    let folder = tempfile::tempdir().unwrap();
    let options = store::Options { home: None, memory_bytes: 1 << 26, relations_bytes: 1 << 20 };
    let store = Arc::new(Store::open(options).unwrap());
    let layers = Layers::open(folder.path().join("layers"), store.clone(), bytes_max).unwrap();
    World { store, layers, _folder: folder }
}

impl World {
    fn blob(&self, bytes: &[u8]) -> Handle {
        self.store.keep_blob(bytes)
    }

    fn folder(&self, names: &[u8], children: &[Handle]) -> Handle {
        let mut tree = TreeBuilder::new();
        tree.push(self.blob(names));
        children.iter().for_each(|child| _ = tree.push(*child));
        self.store.keep_tree(tree.view())
    }

    fn one_file(&self, bytes: &[u8]) -> Handle {
        self.folder(b"f a\n", &[self.blob(bytes)])
    }
}

#[test]
fn directories_are_written_as_they_are() {
    let world = world(1 << 20);
    let inner = world.folder(b"f \xff b\n", &[world.blob(b"deep")]);
    let empty = world.folder(b"", &[]);
    let (text, program) = (world.blob(&[b'x'; 5000]), world.blob(b"#!/bin/sh\n"));
    let tree = world.folder(b"f a.txt\nd empty\nd inner\nx run\n", &[text, empty, inner, program]);
    let layer = world.layers.get(tree).unwrap();
    let at = |name: &str| layer.path().join(name);
    assert_eq!(fs::read(at("a.txt")).unwrap(), [b'x'; 5000]);
    assert_eq!(fs::read(at("inner").join(OsStr::from_bytes(b"\xff b"))).unwrap(), b"deep");
    assert_eq!(fs::read_dir(at("empty")).unwrap().count(), 0);
    let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("a.txt"), mode("run"), mode("inner"), mode("")), (0o444, 0o555, 0o755, 0o755));
    assert_eq!(layer.bytes(), 5000 + 4096 + 4096, "a small file takes a block");
    let again = world.layers.get(tree).unwrap();
    assert!(Arc::ptr_eq(&layer, &again));
}

#[test]
fn what_is_no_directory_is_refused_and_leaves_nothing() {
    let world = world(1 << 20);
    let blob = world.blob(b"x");
    let sub = world.folder(b"", &[]);
    for (names, children) in [
        (&b"f ../x\n"[..], &[blob][..]),
        (b"f ..\n", &[blob]),
        (b"f .\n", &[blob]),
        (b"d ..\n", &[sub]),
        (b"f /etc/passwd\n", &[blob]),
        (b"f a\0\n", &[blob]),
        (b"f \n", &[blob]),
        (b"l a\n", &[blob]),
        (b"f a", &[blob]),
        (b"f a\n\nf b\n", &[blob, blob]),
        (b"f b\nf a\n", &[blob, blob]),
        (b"f a\nd a\n", &[blob, sub]),
        (b"f a\n", &[]),
        (b"f a\n", &[blob, blob]),
        (b"f a\n", &[sub]),
        (b"d a\n", &[blob]),
        (b"", &[blob]),
    ] {
        let refused = world.layers.get(world.folder(names, children)).unwrap_err();
        assert_eq!(refused.code, FailureCode::BadProcedure, "{names:?}: {refused}");
    }
    let long = [b"f ".as_slice(), &[b'n'; NAME_LEN_MAX + 1], b"\n"].concat();
    assert!(world.layers.get(world.folder(&long, &[blob])).is_err());
    assert!(world.layers.get(blob).is_err(), "a blob");
    let empty = world.store.keep_tree(TreeBuilder::new().view());
    assert!(world.layers.get(empty).is_err(), "an empty tree");
    assert_eq!(fs::read_dir(&world.layers.root).unwrap().count(), 0);
}

#[test]
fn directories_have_bounds() {
    let world = world(1 << 20);
    let mut deep = world.folder(b"", &[]);
    for _ in 0..=DEPTH_MAX {
        deep = world.folder(b"d a\n", &[deep]);
    }
    assert!(world.layers.get(deep).unwrap_err().detail.contains("levels"));
    // A directory that holds one and the same many times is small as a tree:
    // what counts is what would be written. 20^4 entries are too many.
    let names: Vec<u8> = (b'a'..=b't').flat_map(|name| [b'd', b' ', name, b'\n']).collect();
    let mut wide = world.folder(b"", &[]);
    for _ in 0..4 {
        wide = world.folder(&names, &[wide; 20]);
    }
    assert!(world.layers.get(wide).unwrap_err().detail.contains("entries"));
    // Not even fetched: its handle says how large it is.
    let hash = [1; 32];
    let huge = world.folder(b"f a\n", &[Handle::blob_from_hash(&hash, BYTES_MAX + 1).unwrap()]);
    assert!(world.layers.get(huge).unwrap_err().detail.contains("bytes"));
    let absent = world.folder(b"f a\n", &[Handle::blob_from_hash(&hash, 1000).unwrap()]);
    assert_eq!(world.layers.get(absent).unwrap_err().code, FailureCode::MissingData);
    assert_eq!(fs::read_dir(&world.layers.root).unwrap().count(), 0);
}

#[test]
fn unused_layers_make_room_and_used_ones_stay() {
    let world = world(2 * 4096);
    let trees: Vec<Handle> = (0..4).map(|number| world.one_file(&[number; 100])).collect();
    let held = world.layers.get(trees[0]).unwrap();
    let path = |tree: Handle| world.layers.root.join(tree.to_string());
    for tree in &trees[1..] {
        world.layers.get(*tree).unwrap();
    }
    let there: Vec<bool> = trees.iter().map(|tree| path(*tree).exists()).collect();
    assert_eq!(there, [true, false, false, true], "the held one, and the last");
    drop(held);
    world.layers.get(trees[1]).unwrap();
    assert!(!path(trees[0]).exists());
}

#[test]
fn many_ask_for_one_layer_and_it_is_written_once() {
    let world = world(1 << 20);
    let tree = world.one_file(&[7; 100_000]);
    let layers: Vec<Arc<Layer>> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(|| world.layers.get(tree).unwrap())).collect();
        asking.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    assert!(layers.iter().all(|layer| Arc::ptr_eq(layer, &layers[0])));
    let root = world.layers.root.clone();
    drop(world);
    assert!(!root.exists(), "layers end with the node");
}

#[test]
fn what_was_left_behind_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("layers");
    fs::create_dir_all(root.join("forged")).unwrap();
    let options = store::Options { home: None, memory_bytes: 1 << 20, relations_bytes: 1 << 20 };
    let layers = Layers::open(root.clone(), Arc::new(Store::open(options).unwrap()), 1).unwrap();
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o700);
    drop(layers);
}
