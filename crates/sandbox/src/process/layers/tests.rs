// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::{Duration, Instant, UNIX_EPOCH};

use objects::{FailureCode, TreeBuilder};

use super::written::{BYTES_MAX, DEPTH_MAX, NAME_LEN_MAX, PATH_LEN_MAX};
use super::*;

struct World {
    store: Arc<Store>,
    layers: Layers,
    folder: tempfile::TempDir,
}

fn new_store() -> Arc<Store> {
    let options = store::Options { home: None, memory_bytes: 1 << 26, relations_bytes: 1 << 20 };
    Arc::new(Store::open(options).unwrap())
}

fn world(bytes_max: u64) -> World {
    World::at(tempfile::tempdir().unwrap(), bytes_max)
}

impl World {
    fn at(folder: tempfile::TempDir, bytes_max: u64) -> Self {
        Self::with(folder, new_store(), bytes_max)
    }

    fn with(folder: tempfile::TempDir, store: Arc<Store>, bytes_max: u64) -> Self {
        let layers = Layers::open(&folder.path().join("layers"), store.clone(), bytes_max).unwrap();
        Self { store, layers, folder }
    }

    /// The node ends, and another one begins.
    fn again(self, bytes_max: u64) -> Self {
        let Self { layers, folder, store } = self;
        drop(layers);
        Self::with(folder, store, bytes_max)
    }

    /// Where a layer is that is there.
    fn path(&self, tree: Handle) -> Option<PathBuf> {
        let is_its =
            |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&tree.to_string());
        names(&self.layers.root).unwrap().into_iter().find(is_its)
    }

    /// Waits until so many layers are there and nothing else is.
    fn has(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(300);
        while fs::read_dir(&self.layers.root).unwrap().count() != count {
            assert!(Instant::now() < deadline, "{:?}", names(&self.layers.root));
            std::thread::sleep(Duration::from_millis(5));
        }
        let names = names(&self.layers.root).unwrap();
        let is_layer = |path: &PathBuf| path.file_name().unwrap().as_bytes().starts_with(b"tree-");
        assert!(names.iter().all(is_layer), "{names:?}");
    }

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
    let mut deep = world.folder(b"", &[]);
    let name = [b"d ".as_slice(), &[b'n'; NAME_LEN_MAX], b"\n"].concat();
    for _ in 0..=PATH_LEN_MAX / NAME_LEN_MAX {
        deep = world.folder(&name, &[deep]);
    }
    assert!(world.layers.get(deep).unwrap_err().detail.contains("a path"));
    let long = [b"f ".as_slice(), &[b'n'; NAME_LEN_MAX + 1], b"\n"].concat();
    assert!(world.layers.get(world.folder(&long, &[blob])).is_err());
    assert!(world.layers.get(blob).is_err(), "a blob");
    let empty = world.store.keep_tree(TreeBuilder::new().view());
    assert!(world.layers.get(empty).is_err(), "an empty tree");
    world.has(0);
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
    world.has(0);
}

#[test]
fn unused_layers_make_room_and_used_ones_stay() {
    let world = world(2 * 4096);
    let trees: Vec<Handle> = (0..4).map(|number| world.one_file(&[number; 100])).collect();
    let held = world.layers.get(trees[0]).unwrap();
    for tree in &trees[1..] {
        world.layers.get(*tree).unwrap();
    }
    world.has(2);
    let there: Vec<bool> = trees.iter().map(|tree| world.path(*tree).is_some()).collect();
    assert_eq!(there, [true, false, false, true], "the held one, and the last");
    drop(held);
    world.layers.get(trees[1]).unwrap();
    world.has(2);
    assert_eq!(world.path(trees[0]), None);
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
}

#[test]
fn layers_outlive_the_node() {
    let world = world(1 << 20);
    let inner = world.folder(b"f b\n", &[world.blob(b"deep")]);
    let empty = world.folder(b"", &[]);
    let program = world.blob(&[b'p'; 9000]);
    let tree = world.folder(b"d empty\nd inner\nx run\n", &[empty, inner, program]);
    let other = world.one_file(b"other");
    let made = world.layers.get(tree).unwrap();
    world.layers.get(other).unwrap();
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    let file = made.path().join("inner/b");
    let written = number(&file);
    let world = world.again(1 << 20);
    let found = world.layers.get(tree).unwrap();
    assert_eq!((found.path(), found.bytes(), number(&file)), (made.path(), made.bytes(), written));
    assert!(Arc::ptr_eq(&found, &world.layers.get(tree).unwrap()));
    world.layers.get(other).unwrap();
    world.has(2);
    // What is found counts as well, and goes in the order in which it was made; before what somebody has asked for.
    drop(found);
    let world = world.again(made.bytes() + 4095);
    world.has(1);
    assert_eq!((world.path(tree), world.path(other).is_some()), (None, true));
    let third = world.one_file(b"third");
    world.layers.get(third).unwrap();
    let world = world.again(2 * 4096);
    world.layers.get(other).unwrap();
    world.layers.get(world.one_file(b"fourth")).unwrap();
    world.has(2);
    assert_eq!((world.path(third), world.path(other).is_some()), (None, true));
}

#[test]
fn what_nobody_has_any_more_is_removed_at_the_start() {
    let world = world(1 << 20);
    let tree = world.one_file(b"deleted");
    let path = world.layers.get(tree).unwrap().path().to_owned();
    let World { layers, folder, .. } = world;
    drop(layers);
    let world = World::at(folder, 1 << 20);
    world.has(0);
    assert!(!path.exists());
    assert_eq!(world.layers.get(tree).unwrap_err().code, FailureCode::MissingData);
}

#[test]
fn a_removal_is_broken_off_and_gone_on_with() {
    let world = world(1 << 20);
    let root = world.layers.root.clone();
    // One of more than there is place for is removed by whoever adds it.
    for at in 0..40 {
        fs::create_dir_all(root.join(format!("new-{at}/a/b"))).unwrap();
        (0..50).for_each(|file| fs::write(root.join(format!("new-{at}/a/{file}")), b"").unwrap());
    }
    world.layers.leaving.add((0..40).map(|at| root.join(format!("new-{at}"))).collect());
    let World { layers, folder, store } = world;
    drop(layers);
    let left = names(&root).unwrap().len();
    assert!(left < 40 && left > 0, "{left}: the end waits for no removal");
    World::with(folder, store, 1 << 20).has(0);
}

/// What is done to a layer.
type Harm<'a> = &'a dyn Fn(&Path);

#[test]
fn a_layer_that_is_not_as_it_was_written_is_made_again() {
    let then = UNIX_EPOCH + Duration::from_secs(1);
    let write = |path: &Path, bytes: &[u8], time| {
        _ = fs::set_permissions(path, Permissions::from_mode(0o644));
        fs::write(path, bytes).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(time).unwrap();
        file.set_permissions(Permissions::from_mode(0o444)).unwrap();
    };
    let harms: [(&str, Harm<'_>); 13] = [
        ("shorter", &|path| write(&path.join("a"), &[b'x'; 5000], then)),
        ("longer", &|path| write(&path.join("a"), &[b'x'; 7000], then)),
        ("written to", &|path| write(&path.join("a"), &[b'y'; 6000], then + Duration::from_secs(1))),
        ("emptied", &|path| write(&path.join("d/b"), b"", then)),
        ("renamed", &|path| fs::rename(path.join("d/b"), path.join("d/c")).unwrap()),
        ("moved", &|path| fs::rename(path.join("d/b"), path.join("b")).unwrap()),
        ("without what was empty", &|path| fs::remove_dir(path.join("e")).unwrap()),
        ("a program", &|path| fs::set_permissions(path.join("d/b"), Permissions::from_mode(0o555)).unwrap()),
        ("removed", &|path| fs::remove_file(path.join("d/b")).unwrap()),
        ("one more", &|path| write(&path.join("d/c"), b"", then)),
        ("a link", &|path| {
            fs::rename(path.join("a"), path.join("d/a")).unwrap();
            symlink("d/a", path.join("a")).unwrap();
        }),
        ("mode", &|path| fs::set_permissions(path.join("a"), Permissions::from_mode(0o4555)).unwrap()),
        ("closed", &|path| fs::set_permissions(path.join("d"), Permissions::from_mode(0o700)).unwrap()),
    ];
    for (harm, does) in harms {
        let world = world(1 << 20);
        let files = |world: &World| {
            let inner = world.folder(b"f b\n", &[world.blob(b"b")]);
            let empty = world.folder(b"", &[]);
            world.folder(b"f a\nd d\nd e\n", &[world.blob(&[b'x'; 6000]), inner, empty])
        };
        let tree = files(&world);
        let path = world.layers.get(tree).unwrap().path().to_owned();
        does(&path);
        let world = world.again(1 << 20);
        let layer = world.layers.get(tree).unwrap();
        assert_ne!(layer.path(), path, "{harm}");
        assert_eq!(fs::read(layer.path().join("a")).unwrap(), [b'x'; 6000], "{harm}");
        assert!(is_whole(layer.path(), layer.listing), "{harm}");
        world.has(1);
    }
}

#[test]
fn what_was_left_behind_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("layers");
    let boot = fs::read_to_string(BOOT_ID).unwrap();
    let current = root.join(format!("1-{}", boot.trim()));
    let before = world(1 << 20);
    let (tree, store) = (before.one_file(b"here"), before.store.clone());
    // Of another start of the machine, of another version, in the way of what is made, forged.
    for other in ["1-00000000-0000-0000-0000-000000000000", "forged", "tree-0123-64"] {
        fs::create_dir_all(root.join(other).join(format!("{tree}.4096.00.1"))).unwrap();
    }
    for other in
        ["new-1", "new-2", "new-3", "old-1", "old-2", "new-18446744073709551615", ".4096.0.1", "x.4096.0.1"]
    {
        fs::create_dir_all(current.join(other).join("full")).unwrap();
    }
    for says in
        ["4095.0.1", "4096.0.1", "4096.x.2", "-1.0.3", "18446744073709551616.0.4", "", "1.1", "1.1.1.1"]
    {
        fs::create_dir_all(current.join(format!("{tree}.{says}"))).unwrap();
    }
    fs::write(root.join("file"), b"").unwrap();
    fs::write(current.join("file"), b"").unwrap();
    for path in [&root, &current] {
        fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
    }
    let world = World::with(folder, store, 1 << 20);
    let layer = world.layers.get(tree).unwrap();
    assert_eq!(fs::read(layer.path().join("a")).unwrap(), b"here");
    world.has(1);
    assert_eq!((names(&root).unwrap(), layer.path().parent()), (vec![current.clone()], Some(&*current)));
    // Others might have written what lies in a folder that they may write to.
    let path = layer.path().to_owned();
    fs::set_permissions(&root, Permissions::from_mode(0o770)).unwrap();
    let world = world.again(1 << 20);
    assert!(!path.exists());
    assert_eq!(fs::metadata(&root).unwrap().mode() & 0o777, 0o700);
    world.has(0);
}

#[test]
fn layers_of_a_node_that_keeps_nothing_end_with_it() {
    let world = world(1 << 20);
    let root = world.folder.path().join("temporary");
    fs::create_dir_all(root.join("before")).unwrap();
    let layers = Layers::temporary(&root, world.store.clone(), 1 << 20).unwrap();
    assert!(!root.join("before").exists());
    let layer = layers.get(world.one_file(b"x")).unwrap();
    assert!(layer.path().starts_with(&root));
    drop(layers);
    assert!(!root.exists());
}
