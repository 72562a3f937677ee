// SPDX-License-Identifier: Apache-2.0
//! What a node reads from its disk: the parts that are selected and what lies on a
//! path, and nothing beside them.

use std::path::Path;
use std::sync::Arc;

use objects::{Handle, Limits, Part, Selection, TreeBuilder};
use tempfile::tempdir;

use super::{apply, codelet, evaluate, start};
use crate::Node;

/// descend(digits, keys, node): looks for the first digit among the node's keys, which
/// are sorted, and goes on with the other digits in the child of the first key that is
/// not less. A node is [keys, child…]; it comes as a ref, its keys as an object.
const DESCEND: &str = r#"(module
  (import "sinew_v1" "size" (func $size (param i32) (result i64)))
  (import "sinew_v1" "read" (func $read (param i32 i64 i32 i32) (result i32)))
  (import "sinew_v1" "blob" (func $blob (param i32 i32) (result i32)))
  (import "sinew_v1" "tree" (func $tree (param i32 i32) (result i32)))
  (import "sinew_v1" "application" (func $application (param i32) (result i32)))
  (import "sinew_v1" "selection" (func $selection (param i32 i64) (result i32)))
  (import "sinew_v1" "strict" (func $strict (param i32) (result i32)))
  (import "sinew_v1" "shallow" (func $shallow (param i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "apply") (param i32) (result i32)
    (local $digits i32) (local $keys i32) (local $at i32) (local $child i32)
    (local.set $digits (call $read (i32.const 3) (i64.const 0) (i32.const 0) (i32.const 100)))
    (local.set $keys (call $read (i32.const 4) (i64.const 0) (i32.const 1024) (i32.const 1024)))
    (block $found
      (loop $next
        (br_if $found (i32.ge_u (local.get $at) (local.get $keys)))
        (br_if $found (i32.ge_u (i32.load8_u (i32.add (i32.const 1024) (local.get $at)))
                                (i32.load8_u (i32.const 0))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $next)))
    (local.set $child
      (call $selection (i32.const 5) (i64.extend_i32_u (i32.add (local.get $at) (i32.const 1)))))
    (if (i32.eq (local.get $digits) (i32.const 1)) (then (return (local.get $child))))
    (i32.store (i32.const 4096) (i32.const 1))
    (i32.store (i32.const 4100) (i32.const 2))
    (i32.store (i32.const 4104)
      (call $blob (i32.const 1) (i32.sub (local.get $digits) (i32.const 1))))
    (i32.store (i32.const 4108)
      (call $strict (call $selection (local.get $child) (i64.const 0))))
    (i32.store (i32.const 4112) (call $shallow (local.get $child)))
    (call $application (call $tree (i32.const 4096) (i32.const 5)))))"#;

const ARITY: u8 = 32;
const VALUE_BYTES: usize = 500;

pub(super) fn tree(node: &Node, entries: &[Handle]) -> Handle {
    let tree: TreeBuilder = entries.iter().copied().collect();
    node.store().put_tree(tree.view()).unwrap()
}

fn select(node: &Node, target: Handle, part: Part) -> Handle {
    let selection = Selection { target, part }.to_tree();
    node.store().put_tree(selection.view()).unwrap().selection().unwrap()
}

/// Objects and bytes that were read from the disk while this was done.
fn reads_of<T>(node: &Node, act: impl FnOnce() -> T) -> (T, u64, u64) {
    let before = node.store().stats();
    let done = act();
    let after = node.store().stats();
    (done, after.disk_reads - before.disk_reads, after.disk_read_bytes - before.disk_read_bytes)
}

fn value(path: [u8; 3]) -> Vec<u8> {
    let text = format!("value of {path:?}");
    text.bytes().cycle().take(VALUE_BYTES).collect()
}

/// A search tree of three levels with 32,768 values, in a home that nobody has open.
fn plant(home: &Path) -> Handle {
    let node = start(Some(home));
    let keys = |level: u8| -> Vec<u8> { (0..ARITY).map(|key| key * 7 + level).collect() };
    let branch = |level: u8, child: &dyn Fn(u8) -> Handle| {
        let keys = node.store().put_blob(&[keys(level), vec![level; 40]].concat()).unwrap();
        let children = (0..ARITY).map(child);
        tree(&node, &[keys].into_iter().chain(children).collect::<Vec<_>>())
    };
    let root = branch(0, &|a| {
        branch(1, &|b| {
            let values: Vec<Vec<u8>> = (0..ARITY).map(|c| value([a, b, c])).collect();
            let records: Vec<_> = values.iter().map(|value| objects::BundleRecord::Blob(value)).collect();
            let values = node.store().put_many(&records).unwrap();
            branch(2, &|c| values[usize::from(c)])
        })
    });
    node.shut_down();
    root
}

#[test]
fn a_search_tree_is_read_along_the_path_and_nowhere_else() {
    let folder = tempdir().unwrap();
    let root = plant(folder.path());
    let node = start(Some(folder.path()));
    let descend = codelet(&node, DESCEND);
    let look_up = |path: [u8; 3]| {
        let digits: Vec<u8> = (0..).zip(path).map(|(level, digit): (u8, u8)| digit * 7 + level).collect();
        let keys = select(&node, root.lowered().unwrap(), Part::Element(0)).strict().unwrap();
        let arguments = [Handle::blob(&digits), keys, root.lowered().unwrap()];
        let goal = apply(&node, Limits::default(), descend, &arguments).strict().unwrap();
        evaluate(&node, goal)
    };
    let node_bytes = (1 + u64::from(ARITY)) * 32;
    let keys_bytes = u64::from(ARITY) + 40;
    let (found, objects, bytes) = reads_of(&node, || look_up([3, 0, 31]));
    assert_eq!((found.result, found.applied), (Handle::blob(&value([3, 0, 31])), 3));
    // Of each of three levels the node and its keys, and the value.
    assert_eq!((objects, bytes), (7, 3 * (node_bytes + keys_bytes) + VALUE_BYTES as u64));
    // A neighbour has the first two levels in common with it.
    let (found, objects, bytes) = reads_of(&node, || look_up([3, 0, 30]));
    assert_eq!(found.result, Handle::blob(&value([3, 0, 30])));
    assert_eq!((objects, bytes), (1, VALUE_BYTES as u64));
    // Levels have their keys in common.
    let (found, objects, bytes) = reads_of(&node, || look_up([31, 31, 0]));
    assert_eq!(found.result, Handle::blob(&value([31, 31, 0])));
    assert_eq!((objects, bytes), (3, 2 * node_bytes + VALUE_BYTES as u64));
}

/// A codelet of this platform as users have it.
fn built(node: &Node, name: &str) -> Handle {
    let path = format!("{}/../../target/guests/{name}.wasm", env!("CARGO_MANIFEST_DIR"));
    let bytes =
        std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}: run `cargo xtask guests`"));
    node.store().put_blob(&bytes).unwrap()
}

/// A directory as `sinew put --tree` makes it, and the bytes of its tree and info.
fn directory(node: &Node, children: &[(&str, Handle)]) -> (Handle, u64) {
    let kind = |child: &Handle| if child.names_tree() { 'd' } else { 'f' };
    let info: String = children.iter().map(|(name, child)| format!("{} {name}\n", kind(child))).collect();
    let info = node.store().put_blob(info.as_bytes()).unwrap();
    assert!(info.literal_bytes().is_none(), "what is in its handle is not read");
    let entries: Vec<Handle> = [info].into_iter().chain(children.iter().map(|(_, child)| *child)).collect();
    (tree(node, &entries), entries.len() as u64 * 32 + info.size())
}

#[test]
fn a_file_is_found_below_directories_without_anything_beside_its_path() {
    const FILE_BYTES: usize = 300_000;
    let folder = tempdir().unwrap();
    let (root, path_bytes, file) = {
        let node = start(Some(folder.path()));
        // In packs, as files, and as files with outboards.
        let blob = |number: u8, len: usize| node.store().put_blob(&vec![number; len]).unwrap();
        let file = blob(1, FILE_BYTES);
        let siblings = [5000, 400_000, 3 << 20].map(|len| blob(2, len));
        let [short, long, longest] = siblings;
        let (aunt, _) = directory(&node, &[("file beside it", longest), ("another file", blob(3, 200_000))]);
        let (inner, inner_bytes) =
            directory(&node, &[("a short one", short), ("file", file), ("z, a long one", long)]);
        let middle = [("an aunt of the file", aunt), ("inner", inner), ("the longest one", longest)];
        let (middle, middle_bytes) = directory(&node, &middle);
        let (root, root_bytes) =
            directory(&node, &[("long one above", long), ("middle", middle), ("short one", short)]);
        node.shut_down();
        (root, [root_bytes, middle_bytes, inner_bytes], file)
    };
    let node = start(Some(folder.path()));
    let get_file = built(&node, "get-file");
    let info = select(&node, root.lowered().unwrap(), Part::Element(0)).strict().unwrap();
    let arguments = [Handle::blob(b"middle/inner/file"), info, root.lowered().unwrap()];
    let thunk = apply(&node, Limits::default(), get_file, &arguments);
    // Who only wants to know which one it is does not have the file read either.
    let (found, objects, bytes) = reads_of(&node, || evaluate(&node, thunk.shallow().unwrap()));
    assert_eq!((found.result, found.applied), (file.lowered().unwrap(), 3));
    assert_eq!((objects, bytes), (6, path_bytes.iter().sum()), "of each directory its tree and its info");
    let (found, objects, bytes) = reads_of(&node, || evaluate(&node, thunk.strict().unwrap()));
    assert_eq!((found.result, objects, bytes), (file, 1, FILE_BYTES as u64));
}

/// A node of a search tree as `sinew put --keys` makes it, and the bytes of its tree and keys.
fn search_node(node: &Node, level: u32, children: &[(String, Handle)]) -> (Handle, u64) {
    let end = children.iter().scan(0, |end, (key, _)| {
        *end += key.len() as u32;
        Some(*end)
    });
    let numbers = [level, children.len() as u32, 0].into_iter().chain(end);
    let keys = numbers.flat_map(u32::to_le_bytes).chain(children.iter().flat_map(|(key, _)| key.bytes()));
    let keys = node.store().put_blob(&keys.collect::<Vec<u8>>()).unwrap();
    let entries: Vec<Handle> = [keys].into_iter().chain(children.iter().map(|(_, child)| *child)).collect();
    (tree(node, &entries), entries.len() as u64 * 32 + keys.size())
}

/// A tree of three levels with 4,096 values, and the bytes of a node of each.
fn plant_keys(node: &Node) -> (Handle, [u64; 3]) {
    const ARITY: u8 = 16;
    let mut sizes = [0; 3];
    let key = |path: [u8; 3]| format!("key {:02} {:02} {:02}", path[0], path[1], path[2]);
    let mut roots = Vec::new();
    for a in 0..ARITY {
        let mut branches = Vec::new();
        for b in 0..ARITY {
            let values: Vec<Vec<u8>> = (0..ARITY).map(|c| value([a, b, c])).collect();
            let records: Vec<_> = values.iter().map(|value| objects::BundleRecord::Blob(value)).collect();
            let values = node.store().put_many(&records).unwrap();
            let children: Vec<_> = (0..ARITY).map(|c| key([a, b, c])).zip(values).collect();
            let (leaf, bytes) = search_node(node, 0, &children);
            (sizes[0], _) = (bytes, branches.push((key([a, b, 0]), leaf)));
        }
        let (branch, bytes) = search_node(node, 1, &branches);
        (sizes[1], _) = (bytes, roots.push((key([a, 0, 0]), branch)));
    }
    let (root, bytes) = search_node(node, 2, &roots);
    sizes[2] = bytes;
    (root, sizes)
}

#[test]
fn of_a_search_tree_in_the_durable_tier_the_path_is_moved_and_little_more() {
    let folder = tempdir().unwrap();
    let attach = |node: &Node| {
        let depot = store::FolderDepot::open(&folder.path().join("depot")).unwrap();
        node.store().attach_tier(Arc::new(depot), store::TierOptions::default()).unwrap();
        // It began without a tier, and so without those that read one.
        drop(node.fetcher.start().unwrap());
    };
    let patience = std::time::Duration::from_secs(60);
    let (root, sizes) = {
        let node = start(Some(&folder.path().join("lost")));
        attach(&node);
        let planted = plant_keys(&node);
        node.store().tier_until(store::Awaited::All { labels: true }, patience).unwrap();
        node.shut_down();
        planted
    };
    let node = start(Some(&folder.path().join("home")));
    attach(&node);
    node.store().take_tier().unwrap();
    let find_key = built(&node, "find-key");
    let look_up = |path: [u8; 3]| {
        let key = format!("key {:02} {:02} {:02}", path[0], path[1], path[2]);
        let keys = select(&node, root.lowered().unwrap(), Part::Element(0)).strict().unwrap();
        let arguments = [Handle::blob(key.as_bytes()), keys, root.lowered().unwrap()];
        evaluate(&node, apply(&node, Limits::default(), find_key, &arguments).strict().unwrap())
    };
    let moved = || node.store().tier_status().unwrap().unwrap().read_bytes;
    for (path, expected) in
        [([3, 0, 15], sizes.iter().sum()), ([3, 0, 14], 0), ([15, 1, 0], sizes[0] + sizes[1])]
    {
        let before = moved();
        assert_eq!(look_up(path).result, Handle::blob(&value(path)));
        let (moved, expected) = (moved() - before, expected + VALUE_BYTES as u64);
        assert!(moved >= expected && moved * 10 <= expected * 11, "{path:?}: {moved} bytes for {expected}");
    }
}

/// What a part of a few bytes may cost: two groups, and a path through the outboard.
const PART_BYTES_MAX: u64 = (32 << 10) + 4096;

#[test]
fn selecting_a_kilobyte_of_a_large_blob_reads_kilobytes() {
    let folder = tempdir().unwrap();
    let bytes: Vec<u8> = (0..96_u32 << 20 >> 2).flat_map(u32::to_le_bytes).collect();
    let large = {
        let node = start(Some(folder.path()));
        let mut writer = node.store().blob_writer().unwrap();
        bytes.chunks(1 << 20).for_each(|piece| writer.write(piece).unwrap());
        writer.finish().unwrap()
    };
    let node = start(Some(folder.path()));
    let range = |begin: u64| Part::Range { begin, end: begin + 1024 };
    for begin in [0, 50_000_001, bytes.len() as u64 - 1024] {
        let goal = select(&node, large.lowered().unwrap(), range(begin)).strict().unwrap();
        let (found, objects, read) = reads_of(&node, || evaluate(&node, goal));
        assert_eq!(found.result, Handle::blob(&bytes[begin as usize..begin as usize + 1024]));
        assert!(objects == 1 && read <= PART_BYTES_MAX, "{objects} objects, {read} bytes from {begin}");
    }
    // The part of a part, and a byte.
    let outer = select(&node, large, Part::Range { begin: 1 << 20, end: 2 << 20 });
    let inner = select(&node, outer, Part::Element(5)).strict().unwrap();
    let found = evaluate(&node, inner);
    assert_eq!(found.result, Handle::blob(&bytes[(1 << 20) + 5..(1 << 20) + 6]));
    // What is not there is told without reading anything.
    let beyond = select(&node, large, range(bytes.len() as u64)).strict().unwrap();
    let (found, _, read) = reads_of(&node, || evaluate(&node, beyond));
    assert_eq!((found.failure.unwrap().code, read), (objects::FailureCode::OutOfRange, 0));
}

#[test]
fn an_entry_of_a_large_tree_is_read_with_its_group() {
    let folder = tempdir().unwrap();
    let count = 1 << 18;
    let large = {
        let node = start(Some(folder.path()));
        tree(&node, &(0..count).map(Handle::u64).collect::<Vec<_>>())
    };
    let node = start(Some(folder.path()));
    let goal = select(&node, large, Part::Element(200_000)).strict().unwrap();
    let (found, _, read) = reads_of(&node, || evaluate(&node, goal));
    assert_eq!(found.result, Handle::u64(200_000));
    assert!(read <= PART_BYTES_MAX, "{read} bytes");
    let part = Part::Range { begin: 1000, end: 1003 };
    let goal = select(&node, large, part).shallow().unwrap();
    let (found, _, read) = reads_of(&node, || evaluate(&node, goal));
    let expected: TreeBuilder = (1000..1003).map(Handle::u64).collect();
    assert_eq!(found.result, expected.view().handle().lowered().unwrap());
    assert!(read <= PART_BYTES_MAX, "{read} bytes");
    // Who selects all over an object comes to read all of it, once.
    let (_, _, read) = reads_of(&node, || {
        for index in 0..2000 {
            let goal = select(&node, large, Part::Element(index * 131)).strict().unwrap();
            assert_eq!(evaluate(&node, goal).result, Handle::u64(index * 131));
        }
    });
    assert!(read <= 3 * count * 32, "{read} bytes");
}

#[test]
fn a_part_of_what_is_not_here_is_missing_and_damage_is_told() {
    let folder = tempdir().unwrap();
    let bytes = vec![5; 3 << 20];
    let large = {
        let node = start(Some(folder.path()));
        node.store().put_blob(&bytes).unwrap()
    };
    let file = folder.path().join(format!("objects/{:02x}/{large}", large.hash_bytes()[0]));
    let mut damaged = bytes.clone();
    damaged[2_000_000] ^= 1;
    std::fs::write(&file, &damaged).unwrap();
    let node: Arc<Node> = start(Some(folder.path()));
    let part = |begin| select(&node, large, Part::Range { begin, end: begin + 100 }).strict().unwrap();
    assert_eq!(evaluate(&node, part(0)).result, Handle::blob(&[5; 100]), "the damage is elsewhere");
    let ended = evaluate(&node, part(1_999_990));
    let failure = ended.failure.unwrap();
    assert_eq!(failure.code, objects::FailureCode::MissingData);
    let detail = node.store().get(failure.detail).unwrap().unwrap();
    let detail = String::from_utf8_lossy(&detail);
    assert!(
        detail.contains(&format!("{large} is corrupt on disk")) && detail.contains("quarantine"),
        "{detail}"
    );
    assert_eq!(node.store().stats().corrupt, 1);
    // It was not remembered.
    node.store().put_blob(&bytes).unwrap();
    assert_eq!(evaluate(&node, part(1_999_990)).result, Handle::blob(&[5; 100]));
}
