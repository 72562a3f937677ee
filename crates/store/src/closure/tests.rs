// SPDX-License-Identifier: Apache-2.0
//! What `persist` makes durable.
#![allow(clippy::unwrap_used)]

use objects::{Handle, TreeBuilder};
use tempfile::{TempDir, tempdir};

use super::Closure;
use crate::memory::{CLOSURE_DURABLE, DURABLE, READ};
use crate::{Options, Store};

struct Fixture {
    folder: TempDir,
    store: Option<Store>,
}

impl Fixture {
    fn new() -> Self {
        let mut fixture = Self { folder: tempdir().unwrap(), store: None };
        fixture.reopen();
        fixture
    }

    fn reopen(&mut self) {
        self.store = None;
        let home = Some(self.folder.path().to_owned());
        let options = Options { home, memory_bytes: 1 << 30, relations_bytes: 1 << 20 };
        self.store = Some(Store::open(options).unwrap());
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn is_durable(&self, key: Handle) -> bool {
        self.store().disk().unwrap().contains(key.plain_tree()).unwrap()
    }

    fn state(&self, key: Handle) -> u8 {
        self.store().memory.state(key.plain_tree()).unwrap_or_default()
    }
}

fn tree(entries: &[Handle]) -> TreeBuilder {
    entries.iter().copied().collect()
}

fn bytes(number: u8) -> [u8; 40] {
    [number; 40]
}

#[test]
fn everything_reachable_through_every_kind_of_handle_is_written() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let leaves: Vec<_> = (0..6).map(|number| store.keep_blob(&bytes(number))).collect();
    let definition = store.keep_tree(tree(&[leaves[0], leaves[1]]).view());
    let selection = store.keep_tree(tree(&[leaves[2], Handle::u64(0)]).view());
    let large = store.keep_blob_vec(vec![9; 100_000]);
    let root = store.keep_tree(
        tree(&[
            definition.application().unwrap(),
            selection.selection().and_then(Handle::strict).unwrap(),
            leaves[3].lowered().unwrap(),
            leaves[4].identification().and_then(Handle::shallow).unwrap(),
            large,
            Handle::u64(7),
        ])
        .view(),
    );
    let bystander = leaves[5];
    store.persist(root.application().unwrap()).unwrap();
    for key in [root, definition, selection, large, leaves[0], leaves[1], leaves[2], leaves[3], leaves[4]] {
        assert!(fixture.is_durable(key), "{key}");
    }
    assert!(!fixture.is_durable(bystander));
    assert!(fixture.state(root) & CLOSURE_DURABLE != 0 && fixture.state(leaves[0]) & DURABLE != 0);
    let commits = store.stats().disk_objects;
    store.persist(root).unwrap();
    assert_eq!(store.stats().disk_objects, commits);
}

#[test]
fn a_tree_with_missing_parts_is_written_but_not_called_complete() {
    let mut fixture = Fixture::new();
    let missing = Handle::blob(&bytes(1));
    let whole = fixture.store().keep_tree(tree(&[Handle::u64(1)]).view());
    let torn = fixture.store().keep_tree(tree(&[missing]).view());
    let root = fixture.store().keep_tree(tree(&[whole, torn]).view());
    fixture.store().persist(root).unwrap();
    assert!(fixture.is_durable(root) && fixture.is_durable(torn) && fixture.is_durable(whole));
    assert_eq!(fixture.state(root) & CLOSURE_DURABLE, 0);
    assert_ne!(fixture.state(whole) & CLOSURE_DURABLE, 0, "of this one all is there");
    // Once the part arrives, the next walk takes it along.
    fixture.store().keep_blob(&bytes(1));
    fixture.store().persist(root).unwrap();
    assert!(fixture.is_durable(missing));
    assert_ne!(fixture.state(root) & CLOSURE_DURABLE, 0);
    fixture.reopen();
    assert_eq!(fixture.store().get(missing).unwrap().unwrap().bytes(), bytes(1));
}

#[test]
fn a_derived_part_below_a_tree_that_was_put_is_found() {
    let fixture = Fixture::new();
    let leaf = fixture.store().keep_blob(&bytes(1));
    let inner = fixture.store().put_tree(tree(&[leaf]).view()).unwrap();
    let root = fixture.store().put_tree(tree(&[inner]).view()).unwrap();
    assert!(!fixture.is_durable(leaf), "a put stores one object");
    fixture.store().persist(root).unwrap();
    assert!(fixture.is_durable(leaf));
}

#[test]
fn trees_on_disk_are_walked_after_a_restart() {
    let mut fixture = Fixture::new();
    let leaf = Handle::blob(&bytes(1));
    let root = fixture.store().put_tree(tree(&[leaf]).view()).unwrap();
    fixture.reopen();
    fixture.store().keep_blob(&bytes(1));
    fixture.store().persist(root).unwrap();
    assert!(fixture.is_durable(leaf));
}

#[test]
fn a_chain_as_deep_as_one_likes_needs_no_stack() {
    let mut fixture = Fixture::new();
    let mut top = fixture.store().keep_blob(&bytes(1));
    for _ in 0..100_000 {
        top = fixture.store().keep_tree(tree(&[top, top]).view());
    }
    fixture.store().persist(top).unwrap();
    fixture.reopen();
    let mut depth = 0;
    let mut key = top;
    while key.names_tree() && depth < 200 {
        key = fixture.store().get(key).unwrap().unwrap().as_tree().get(0).unwrap();
        depth += 1;
    }
    assert_eq!(fixture.store().stats().disk_objects, 100_001, "shared parts are written once");
}

#[test]
fn literals_and_absent_objects_persist_trivially() {
    let fixture = Fixture::new();
    fixture.store().persist(Handle::u64(1)).unwrap();
    fixture.store().persist(Handle::blob(&bytes(9))).unwrap();
    assert_eq!(fixture.store().stats().disk_objects, 0);
}

#[test]
fn a_relation_is_written_without_reading_what_its_computation_did_not_touch() {
    let mut fixture = Fixture::new();
    let store = fixture.store();
    let branch =
        |number: u8| store.put_tree(tree(&[store.put_blob(&bytes(number)).unwrap()]).view()).unwrap();
    let branches: Vec<Handle> = (0..20).map(branch).collect();
    let root = store.put_tree(tree(&branches).view()).unwrap();
    fixture.reopen();
    let store = fixture.store();
    // One path of the tree was looked at; and something was made beside it.
    store.get(root).unwrap().unwrap();
    store.get(branches[3]).unwrap().unwrap();
    let made = store.keep_blob(&bytes(99));
    let limits = Handle::literal(b"").unwrap();
    let reference = root.lowered().unwrap();
    let call = store.keep_tree(tree(&[limits, limits, reference, made.lowered().unwrap()]).view());
    let result = store.keep_tree(tree(&[reference, made]).view());
    let reads = store.stats().disk_reads;
    let record = crate::Record { result, rule: crate::Rule::Apply, nanos: 1 << 30, fuel: 0 };
    store.relations().insert(call.application().unwrap(), record);
    store.flush_relations().unwrap();
    assert_eq!(store.stats().disk_reads, reads);
    assert!(fixture.is_durable(result) && fixture.is_durable(call) && fixture.is_durable(made));
    assert_eq!(fixture.state(root) & CLOSURE_DURABLE, 0, "nobody has looked at all of it");
    assert_eq!(fixture.state(result) & CLOSURE_DURABLE, 0);
    // A label wants to know it all.
    fixture.store().set_label("result", result).unwrap();
    assert_ne!(fixture.state(result) & CLOSURE_DURABLE, 0);
    fixture.reopen();
    let known = fixture.store().relations().get(call.application().unwrap());
    assert_eq!(known.map(|record| record.result), Some(result));
}

/// A relation that names a large node by a ref costs the same however many entries the node has.
#[test]
fn what_came_from_the_disk_is_not_looked_through_for_a_relation() {
    let mut fixture = Fixture::new();
    let children: Vec<_> = (0..64).map(|number| fixture.store().put_blob(&bytes(number)).unwrap()).collect();
    let refs: Vec<_> = children.iter().map(|child| child.lowered().unwrap()).collect();
    let node = fixture.store().put_tree(tree(&refs).view()).unwrap();
    let passed = |fixture: &Fixture| {
        let store = fixture.store();
        let mut closure = Closure::brief(&store.memory, store.disk().unwrap());
        assert!(closure.walk(node.lowered().unwrap()).unwrap());
        closure.passed.len()
    };
    assert_eq!(passed(&fixture), 65, "what was put is looked through: it may name what only memory has");
    fixture.reopen();
    assert_eq!(passed(&fixture), 1, "on the disk only");
    fixture.store().get(node).unwrap().unwrap();
    assert!(fixture.state(node) & READ != 0);
    assert_eq!(passed(&fixture), 1, "and read from there");
    fixture.store().memory.expel(node);
    assert_eq!(fixture.state(node) & READ, 0, "it is nothing of the disk's any more");
}
