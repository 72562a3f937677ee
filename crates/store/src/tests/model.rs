// SPDX-License-Identifier: Apache-2.0
//! Random operations against a map that knows what must be there.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use objects::{Handle, TreeBuilder};
use proptest::prelude::*;
use tempfile::{TempDir, tempdir, tempdir_in};

use crate::{Options, Store};

#[derive(Clone, Debug)]
enum Step {
    Put(u8, usize),
    PutTree(Vec<u8>),
    Keep(u8, usize),
    Stream(u8, usize, usize),
    Get(usize),
    SetLabel(u8, usize),
    RemoveLabel(u8),
    Persist(usize),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![8 => 0usize..200, 3 => 200usize..5000, 1 => 60_000usize..70_000, 1 => 70_000usize..200_000];
    prop_oneof![
        4 => (any::<u8>(), len.clone()).prop_map(|(fill, len)| Step::Put(fill, len)),
        2 => prop::collection::vec(any::<u8>(), 0..6).prop_map(Step::PutTree),
        4 => (any::<u8>(), len.clone()).prop_map(|(fill, len)| Step::Keep(fill, len)),
        2 => (any::<u8>(), len, 1usize..90_000).prop_map(|(fill, len, piece)| Step::Stream(fill, len, piece)),
        6 => any::<usize>().prop_map(Step::Get),
        2 => (0u8..4, any::<usize>()).prop_map(|(name, which)| Step::SetLabel(name, which)),
        1 => (0u8..4).prop_map(Step::RemoveLabel),
        1 => any::<usize>().prop_map(Step::Persist),
        1 => Just(Step::Reopen),
    ]
}

/// What must be in the store.
#[derive(Default)]
struct Model {
    /// Every object ever made, in order, to choose from.
    made: Vec<Handle>,
    /// Content, and whether it must survive.
    objects: HashMap<Handle, (Vec<u8>, bool)>,
    labels: BTreeMap<String, Handle>,
}

impl Model {
    fn add(&mut self, handle: Handle, bytes: Vec<u8>, is_durable: bool) {
        self.made.push(handle);
        let entry = self.objects.entry(handle).or_insert((bytes, false));
        entry.1 |= is_durable;
    }

    fn choose(&self, which: usize) -> Option<Handle> {
        self.made.get(which.checked_rem(self.made.len())?).copied()
    }

    fn persist(&mut self, handle: Handle) {
        let Some((bytes, is_durable)) = self.objects.get_mut(&handle) else { return };
        *is_durable = true;
        if handle.names_tree() {
            let entries: Vec<_> = objects::TreeView::from_bytes(bytes).unwrap().iter().collect();
            entries.into_iter().for_each(|entry| self.persist(entry.plain_tree()));
        }
    }

    fn reopen(&mut self) {
        self.objects.retain(|_, (_, is_durable)| *is_durable);
    }
}

/// In memory where possible: this test is about answers, not about syncs.
fn folder() -> TempDir {
    tempdir_in("/dev/shm").or_else(|_| tempdir()).unwrap()
}

/// A small memory budget, so that eviction takes part.
fn open(home: &Path) -> Store {
    Store::open(Options { home: Some(home.to_owned()), memory_bytes: 200_000, relations_bytes: 1 << 16 })
        .unwrap()
}

fn run(store: &Store, model: &mut Model, step: Step) {
    match step {
        Step::Put(fill, len) => {
            let bytes = vec![fill; len];
            model.add(store.put_blob(&bytes).unwrap(), bytes, true);
        }
        Step::PutTree(which) => {
            let entries: TreeBuilder = which.iter().filter_map(|at| model.choose(usize::from(*at))).collect();
            model.add(store.put_tree(entries.view()).unwrap(), entries.into_bytes(), true);
        }
        Step::Keep(fill, len) => {
            let bytes = vec![fill; len];
            model.add(store.keep_blob(&bytes), bytes, false);
        }
        Step::Stream(fill, len, piece) => {
            let bytes = vec![fill; len];
            let mut writer = store.blob_writer().unwrap();
            bytes.chunks(piece).for_each(|piece| writer.write(piece).unwrap());
            model.add(writer.finish().unwrap(), bytes, true);
        }
        Step::Get(which) => {
            if let Some(handle) = model.choose(which) {
                check(store, model, handle);
            }
        }
        Step::SetLabel(name, which) => {
            let Some(handle) = model.choose(which) else { return };
            let name = format!("label/{name}");
            store.set_label(&name, handle).unwrap();
            model.persist(handle);
            model.labels.insert(name, handle);
        }
        Step::RemoveLabel(name) => {
            let name = format!("label/{name}");
            assert_eq!(store.remove_label(&name).unwrap(), model.labels.remove(&name).is_some());
        }
        Step::Persist(which) => {
            let Some(handle) = model.choose(which) else { return };
            store.persist(handle).unwrap();
            model.persist(handle);
        }
        Step::Reopen => unreachable!("handled by the caller"),
    }
}

/// What must be there is; what may be there is right.
fn check(store: &Store, model: &Model, handle: Handle) {
    let found = store.get(handle).unwrap();
    assert_eq!(store.contains(handle).unwrap(), found.is_some());
    match (found, model.objects.get(&handle)) {
        (Some(object), Some((bytes, _))) => assert_eq!(object.bytes(), bytes),
        (Some(object), None) if handle.names_tree() => assert_eq!(Handle::tree(&object), Ok(handle)),
        (Some(object), None) => assert_eq!(Handle::blob(&object), handle),
        (None, known) => assert!(known.is_none(), "{handle} is lost"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_agrees_with_a_map(steps in prop::collection::vec(step(), 1..60)) {
        let folder = folder();
        let mut store = Some(open(folder.path()));
        let mut model = Model::default();
        for step in steps {
            if matches!(step, Step::Reopen) {
                store = None;
                model.reopen();
                store = Some(store.unwrap_or_else(|| open(folder.path())));
            } else {
                run(store.as_ref().unwrap(), &mut model, step);
            }
        }
        let store = store.unwrap();
        for handle in &model.made {
            check(&store, &model, *handle);
        }
        let labels: Vec<_> = model.labels.into_iter().collect();
        prop_assert_eq!(store.labels().unwrap(), labels);
    }
}
