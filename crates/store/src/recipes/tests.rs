// SPDX-License-Identifier: Apache-2.0
//! What is dropped, what never is, and what stays for its sake. Applications are not run
//! here: a test plays the evaluator, with a procedure that is written in Rust.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use objects::{Handle, TreeBuilder};
use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

use crate::packs::now;
use crate::{
    Backup, BackupFolder, Check, Checked, Collected, Collection, Dropping, Finding, Options, Recipe, Record,
    Restore, Rule, Store, Watch, fsck,
};

const HOUR: Duration = Duration::from_secs(3600);
const ALL: Dropping = Dropping { bytes_min: 0, nanos_per_kib: u64::MAX };

pub(crate) fn open(home: &Path) -> Store {
    let home = Some(home.to_owned());
    Store::open(Options { home, memory_bytes: 4 << 20, relations_bytes: 1 << 20 }).unwrap()
}

fn new() -> (TempDir, Store) {
    let folder = tempdir().unwrap();
    let store = open(folder.path());
    (folder, store)
}

/// A process that comes later, with nothing in memory, to a home that is five hours older.
fn reopen(folder: &TempDir, store: Store) -> Store {
    store.flush_relations().unwrap();
    drop(store);
    age(folder.path());
    open(folder.path())
}

pub(crate) fn age(home: &Path) {
    let list = |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let large = list(&home.join("objects")).filter(|path| path.is_dir()).flat_map(|folder| list(&folder));
    for path in list(&home.join("packs")).chain(large.collect::<Vec<_>>()) {
        File::options().write(true).open(path).unwrap().set_modified(now() - 5 * HOUR).unwrap();
    }
}

pub(crate) fn collect(store: &Store, dropping: Option<Dropping>) -> Collected {
    store.collect(Collection { kept: HOUR, is_trial: false, dropping }, &Vec::new).unwrap()
}

fn tree(store: &Store, entries: &[Handle]) -> Handle {
    store.keep_tree(entries.iter().copied().collect::<TreeBuilder>().view())
}

/// An application of the procedure of these tests to these.
pub(crate) fn application(store: &Store, arguments: &[Handle]) -> Handle {
    let limits = Handle::blob(b"");
    let procedure = store.keep_blob(b"(a module that makes a blob of its arguments)");
    let entries: Vec<Handle> = [limits, procedure].into_iter().chain(arguments.iter().copied()).collect();
    tree(store, &entries).application().unwrap()
}

/// What it gives: bytes that nothing else gives; of some, too many for a pack.
pub(crate) fn output(application: Handle) -> Vec<u8> {
    let seed = application.definition().hash_bytes()[0];
    let len = if seed.is_multiple_of(4) { 70_000 } else { 5_000 };
    application.as_bytes().iter().copied().cycle().take(len).collect()
}

/// Runs it as the evaluator would.
pub(crate) fn apply(store: &Store, application: Handle, nanos: u64) -> Handle {
    let result = store.keep_blob(&output(application));
    store.relations().insert(application, Record { result, rule: Rule::Apply, nanos, fuel: 0 });
    result
}

/// Reads an object as a node does: makes what was dropped, and what that needs.
fn read(store: &Store, object: Handle) -> Option<Vec<u8>> {
    let mut wanted = vec![object.plain_tree()];
    let mut steps = 0;
    while let Some(&key) = wanted.last() {
        steps += 1;
        assert!(steps < 100_000, "it does not end");
        if key.literal_bytes().is_some() || store.get(key).unwrap().is_some() {
            wanted.pop();
            continue;
        }
        let recipe = store.recipe(key).unwrap()?;
        let definition = store.get(recipe.application.definition()).unwrap()?;
        let lacking: Vec<Handle> = definition
            .as_tree()
            .iter()
            .filter(|entry| entry.literal_bytes().is_none())
            .filter(|entry| store.get(entry.plain_tree()).unwrap().is_none())
            .map(Handle::plain_tree)
            .collect();
        if lacking.is_empty() {
            store.keep_blob(&output(recipe.application));
        }
        wanted.extend(lacking);
    }
    Some(store.get(object.plain_tree()).unwrap().unwrap().to_vec())
}

#[test]
fn what_was_computed_goes_and_what_it_is_made_of_stays() {
    let (folder, store) = new();
    let input = store.put_blob(&[7; 3000]).unwrap();
    let maker = application(&store, &[input, Handle::u64(1)]);
    let result = apply(&store, maker, 60_000);
    let named = tree(&store, &[result, Handle::u64(2)]);
    store.flush_relations().unwrap();
    store.set_label("kept", named).unwrap();
    let store = reopen(&folder, store);
    let trial = Collection { kept: HOUR, is_trial: true, dropping: Some(ALL) };
    let trial = store.collect(trial, &Vec::new).unwrap();
    let expected = (1, output(maker).len() as u64, 60_000, 60_000);
    let told = |it: Collected| (it.dropped, it.dropped_bytes, it.dropped_nanos, it.dropped_nanos_max);
    assert_eq!(told(trial), expected);
    assert!(store.contains(result).unwrap());
    let done = collect(&store, Some(ALL));
    assert_eq!((told(done), done.kept_objects), (expected, trial.kept_objects));
    assert!(!store.contains(result).unwrap() && store.get(result).unwrap().is_none());
    let recipe = store.recipe(result).unwrap().unwrap();
    assert_eq!((recipe.application, recipe.nanos, recipe.depth), (maker, 60_000, 1));
    // Nobody names its input but it.
    let store = reopen(&folder, store);
    let again = collect(&store, Some(ALL));
    assert_eq!((again.objects, again.dropped), (0, 0));
    assert_eq!(read(&store, result).unwrap(), output(maker));
    // What somebody has asked for is remembered for one more collection.
    let store = reopen(&folder, store);
    assert!(store.remove_label("kept").unwrap());
    let mut store = store;
    for _ in 0..2 {
        collect(&store, None);
        store = reopen(&folder, store);
    }
    // It was dropped a moment ago, which is as good as written.
    assert!(store.recipe(result).unwrap().is_some() && store.contains(input).unwrap());
}

#[test]
fn what_was_put_is_never_dropped_whenever_that_was() {
    let (folder, store) = new();
    let maker = |number| application(&store, &[Handle::u64(number)]);
    let makers: Vec<Handle> = (0..6).map(maker).collect();
    // Before it was computed, after that, after it was written, by its name only, and in a stream.
    let before = store.put_blob(&output(makers[0])).unwrap();
    let results: Vec<Handle> = makers.iter().map(|maker| apply(&store, *maker, 60_000)).collect();
    assert_eq!(before, results[0]);
    store.put_blob(&output(makers[1])).unwrap();
    store.flush_relations().unwrap();
    store.put_blob(&output(makers[2])).unwrap();
    let mut writer = store.blob_writer().unwrap();
    writer.write(&output(makers[3])).unwrap();
    writer.finish().unwrap();
    let named = tree(&store, &results);
    store.set_label("kept", named).unwrap();
    let store = reopen(&folder, store);
    assert!(store.renew(results[4]).unwrap());
    let store = reopen(&folder, store);
    let promised: Vec<bool> = results.iter().map(|result| store.is_promised(*result).unwrap()).collect();
    assert_eq!(promised, [true, true, true, true, true, false]);
    assert_eq!(collect(&store, Some(ALL)).dropped, 1);
    let here: Vec<bool> = results.iter().map(|result| store.contains(*result).unwrap()).collect();
    assert_eq!(here, promised);
    // Whoever asks for the tree in order to rely on it is told that not all of it is here,
    assert!(!store.renew(named).unwrap());
    // and what is put after it was dropped stays.
    store.put_blob(&output(makers[5])).unwrap();
    assert!(store.renew(named).unwrap());
    let store = reopen(&folder, store);
    assert_eq!(collect(&store, Some(ALL)).dropped, 0);
    assert!(results.iter().all(|result| store.contains(*result).unwrap()));
    assert!(store.recipe(results[5]).unwrap().is_none());
}

#[test]
fn a_tree_is_relied_on_with_all_that_it_names_also_where_memory_says_so() {
    let (folder, store) = new();
    let makers: Vec<Handle> = (0..4).map(|number| application(&store, &[Handle::u64(number)])).collect();
    let results: Vec<Handle> = makers.iter().map(|maker| apply(&store, *maker, 60_000)).collect();
    let named = tree(&store, &results);
    store.flush_relations().unwrap();
    // Its closure is known to be on the disk from now on.
    store.set_label("kept", named).unwrap();
    assert!(store.renew(named).unwrap());
    let store = reopen(&folder, store);
    assert_eq!(collect(&store, Some(ALL)).dropped, 0);
}

#[test]
fn functions_fetches_and_what_is_too_dear_or_too_small_stay() {
    let (folder, store) = new();
    let applied = |arguments: &[Handle], procedure: &[u8], nanos| {
        let entries = [&[Handle::blob(b""), store.keep_blob(procedure)], arguments].concat();
        apply(&store, tree(&store, &entries).application().unwrap(), nanos)
    };
    let module: &[u8] = b"a module, which is longer than a literal may be";
    let kept = [
        applied(&[Handle::u64(1)], b"python3", 60_000),
        applied(&[Handle::u64(2)], b"sinew:fetch", 60_000),
        applied(&[Handle::u64(3)], module, 600_000_000),
        applied(
            &[Handle::u64(4), Handle::u64(5).identification().unwrap().strict().unwrap()],
            module,
            60_000,
        ),
    ];
    let small = store.keep_blob(&[9; 4000]);
    let maker = application(&store, &[Handle::u64(6)]);
    store.relations().insert(maker, Record { result: small, rule: Rule::Apply, nanos: 60_000, fuel: 0 });
    let named = tree(&store, &[&kept[..], &[small]].concat());
    store.flush_relations().unwrap();
    store.set_label("kept", named).unwrap();
    let store = reopen(&folder, store);
    let cheap = Dropping { bytes_min: 0, nanos_per_kib: 1_000_000 };
    let trial = Collection { kept: HOUR, is_trial: true, dropping: Some(cheap) };
    assert_eq!(store.collect(trial, &Vec::new).unwrap().dropped, 0);
    // Only the price keeps the third one.
    assert_eq!(collect(&store, Some(ALL)).dropped, 1);
    assert!(!store.contains(kept[2]).unwrap());
}

#[test]
fn what_would_only_stay_for_a_recipe_must_be_smaller() {
    let (folder, store) = new();
    // Kept for an evaluation, never put, and named by nobody.
    let big = store.keep_blob(&[3; 300_000]);
    let dear = application(&store, &[big]);
    let cheap = application(&store, &[Handle::u64(1)]);
    let results = [apply(&store, dear, 60_000), apply(&store, cheap, 60_000)];
    store.flush_relations().unwrap();
    let named = tree(&store, &results);
    store.set_label("kept", named).unwrap();
    let store = reopen(&folder, store);
    let done = collect(&store, Some(ALL));
    assert_eq!(done.dropped, 1);
    let here = [results[0], results[1], big].map(|object| store.contains(object).unwrap());
    assert_eq!(here, [true, false, false]);
}

#[test]
fn a_chain_of_a_thousand_goes_and_comes_back() {
    let (folder, store) = new();
    let mut last = Handle::u64(0);
    let mut links = Vec::new();
    for _ in 0..1000 {
        let maker = application(&store, &[last]);
        last = apply(&store, maker, 60_000);
        links.push((maker, last));
    }
    store.flush_relations().unwrap();
    let all: Vec<Handle> = links.iter().map(|(_, object)| *object).collect();
    store.set_label("all", tree(&store, &all)).unwrap();
    let store = reopen(&folder, store);
    let done = collect(&store, Some(ALL));
    assert_eq!((done.dropped, done.dropped_nanos_max), (1000, 60_000_000));
    assert_eq!(store.recipe(last).unwrap().unwrap().depth, 1000);
    assert_eq!(read(&store, last).unwrap(), output(links[999].0));
    // What was made again is young, and nobody has put it.
    let store = reopen(&folder, store);
    assert_eq!(collect(&store, None).relations, 0);
    assert_eq!(read(&store, links[500].1).unwrap(), output(links[500].0));
    // Some of it came to the disk again as results do, and can go again later.
    let (maker, object) = links[999];
    apply(&store, maker, 60_000);
    store.flush_relations().unwrap();
    assert!(store.contains(object).unwrap() && store.recipe(object).unwrap().is_none());
    let mut store = reopen(&folder, store);
    collect(&store, None);
    store = reopen(&folder, store);
    assert_eq!(collect(&store, Some(ALL)).dropped, 1);
    assert_eq!(read(&store, object).unwrap(), output(maker));
}

#[test]
fn two_that_make_each_other_do_not_both_go() {
    let (folder, store) = new();
    let (a, b) = (store.keep_blob(&[1; 5000]), store.keep_blob(&[2; 6000]));
    for (from, to) in [(a, b), (b, a)] {
        let record = Record { result: to, rule: Rule::Apply, nanos: 60_000, fuel: 0 };
        store.relations().insert(application(&store, &[from]), record);
    }
    // And one that says to make what it was given.
    let own = tree(&store, &[a, b]);
    let record = Record { result: own, rule: Rule::Apply, nanos: 60_000, fuel: 0 };
    store.relations().insert(application(&store, &[own]), record);
    store.flush_relations().unwrap();
    store.set_label("kept", own).unwrap();
    let store = reopen(&folder, store);
    assert_eq!(collect(&store, Some(ALL)).dropped, 1);
    let here = [a, b].map(|object| store.contains(object).unwrap());
    assert_ne!(here[0], here[1]);
    let store = reopen(&folder, store);
    assert_eq!(collect(&store, Some(ALL)).dropped, 0, "what its recipe needs stays");
}

#[test]
fn a_damaged_object_has_a_recipe_if_it_was_computed() {
    let (folder, store) = new();
    let maker = application(&store, &[Handle::u64(1)]);
    let part = store.keep_blob(&[5; 80_000]);
    let result = tree(&store, &[part, Handle::u64(8)]);
    store.relations().insert(maker, Record { result, rule: Rule::Apply, nanos: 60_000, fuel: 0 });
    store.flush_relations().unwrap();
    store.set_label("kept", result).unwrap();
    let put = store.put_blob(&[6; 90_000]).unwrap();
    let store = reopen(&folder, store);
    store.disk().unwrap().files().visit(|_, path| fs::write(path, [0; 70_000]).unwrap()).unwrap();
    for object in [part, put] {
        assert!(matches!(store.get(object), Err(crate::Error::Corrupt { handle, .. }) if handle == object));
    }
    assert_eq!(store.find_recipe(put).unwrap(), None);
    assert_eq!(store.find_recipe(part).unwrap().unwrap().application, maker);
    // From now on it is one that was dropped, also after a collection.
    let store = reopen(&folder, store);
    collect(&store, None);
    assert_eq!(store.recipe(part).unwrap().unwrap().application, maker);
    assert!(store.contains(maker.definition()).unwrap());
    assert_eq!(store.recipe(put).unwrap(), None);
}

#[test]
fn a_damaged_row_is_no_recipe() {
    let (folder, store) = new();
    let maker = application(&store, &[Handle::u64(1)]);
    let recipe = Recipe::new(maker, 1, 2, 3);
    let key = Handle::blob(&[1; 5000]);
    let batch = |recipes| crate::index::Batch { recipes, ..crate::index::Batch::default() };
    let disk = store.disk().unwrap();
    disk.committer().commit(batch(vec![(key, Some(recipe))])).unwrap();
    assert_eq!(store.recipe(key).unwrap(), Some(recipe));
    assert_eq!(store.stats().recipes, 1);
    let value = Recipe { application: key, ..recipe };
    disk.committer().commit(batch(vec![(key, Some(value))])).unwrap();
    assert_eq!(store.recipe(key).unwrap(), None, "it is no application");
    disk.committer().commit(batch(vec![(key, None)])).unwrap();
    assert_eq!(store.stats().recipes, 0);
    drop(store);
    drop(folder);
}

/// What happens to a store; numbers choose among what there is.
#[derive(Clone, Debug)]
enum Act {
    Put(u8),
    Make(Vec<u8>, u64),
    PutResult(u8),
    Label(u8, u8),
    Unlabel(u8),
    Collect(bool),
    Restart,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        2 => any::<u8>().prop_map(Act::Put),
        8 => (prop::collection::vec(any::<u8>(), 1..3), 0..200_000u64).prop_map(|(of, nanos)| Act::Make(of, nanos)),
        1 => any::<u8>().prop_map(Act::PutResult),
        4 => (any::<u8>(), 0..6u8).prop_map(|(of, name)| Act::Label(of, name)),
        1 => (0..6u8).prop_map(Act::Unlabel),
        4 => any::<bool>().prop_map(Act::Collect),
        3 => Just(Act::Restart),
    ];
    prop::collection::vec(act, 1..40)
}

/// What must hold whatever happened: everything that a label names reads as it was, and what
/// was put in the last hours is on the disk.
fn check(acts: Vec<Act>) {
    let (folder, mut store) = new();
    let mut objects: Vec<(Handle, Vec<u8>)> = vec![(store.put_blob(&[1; 5000]).unwrap(), vec![1; 5000])];
    let mut labels: HashMap<u8, (Handle, Vec<u8>)> = HashMap::new();
    let mut put: HashMap<Handle, bool> = HashMap::from([(objects[0].0, true)]);
    for act in acts {
        let pick = |number: u8| number as usize % objects.len();
        match act {
            Act::Put(number) => {
                let bytes = vec![number; 4500 + number as usize];
                objects.push((store.put_blob(&bytes).unwrap(), bytes));
                put.insert(objects[objects.len() - 1].0, true);
            }
            Act::Make(of, nanos) => {
                let inputs: Vec<Handle> = of.iter().map(|number| objects[pick(*number)].0).collect();
                if inputs.iter().all(|input| read(&store, *input).is_some()) {
                    let maker = application(&store, &inputs);
                    objects.push((apply(&store, maker, nanos), output(maker)));
                }
            }
            Act::PutResult(number) => {
                let (handle, bytes) = &objects[pick(number)];
                store.put_blob(bytes).unwrap();
                put.insert(*handle, true);
            }
            Act::Label(number, name) => {
                let object = objects[pick(number)].clone();
                if read(&store, object.0).is_some() {
                    store.set_label(&name.to_string(), object.0).unwrap();
                    labels.insert(name, object);
                }
            }
            Act::Unlabel(name) => {
                store.remove_label(&name.to_string()).unwrap();
                labels.remove(&name);
            }
            Act::Collect(drops) => {
                collect(&store, drops.then_some(ALL));
                let is_named = |object: &Handle| labels.values().any(|(named, _)| named == object);
                put.retain(|object, is_young| *is_young || is_named(object));
            }
            Act::Restart => {
                store = reopen(&folder, store);
                put.values_mut().for_each(|is_young| *is_young = false);
            }
        }
        for (handle, bytes) in labels.values() {
            assert_eq!(read(&store, *handle).as_ref(), Some(bytes), "{handle}");
        }
        for object in put.keys() {
            assert!(store.disk().unwrap().contains(*object).unwrap(), "{object} was put");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn whatever_is_dropped_all_reads_are_equal(acts in acts()) {
        check(acts);
    }
}

fn check_home(home: &Path) -> (Checked, Vec<Finding>) {
    let mut findings = Vec::new();
    let mut watch = Watch { progress: &mut |_, _| true, found: &mut |finding| findings.push(finding) };
    let checked = fsck(home, &Check::default(), &mut watch).unwrap();
    (checked, findings)
}

#[test]
fn checks_and_backups_take_a_recipe_for_what_it_makes() {
    let (folder, store) = new();
    let input = store.put_blob(&[7; 3000]).unwrap();
    let first = apply(&store, application(&store, &[input, Handle::u64(1)]), 60_000);
    let second = apply(&store, application(&store, &[first, Handle::u64(2)]), 60_000);
    let named = tree(&store, &[second, Handle::u64(2)]);
    store.flush_relations().unwrap();
    store.set_label("kept", named).unwrap();
    let store = reopen(&folder, store);
    assert_eq!(collect(&store, Some(ALL)).dropped, 2, "one is needed to make the other");
    let copies = tempdir().unwrap();
    let (backup, home) = (copies.path().join("backup"), copies.path().join("home"));
    let back_up = |store: &Store, point: &str| {
        let wish = Backup { point: point.to_owned(), files: Vec::new() };
        store.backup(&backup, &wish, &mut |_, _| true).unwrap()
    };
    let backed = back_up(&store, "one");
    assert_eq!((backed.missing, backed.labels), (0, 1));
    assert_eq!(back_up(&store, "two").objects, 0, "all of it is there");
    drop(store);
    let (checked, findings) = check_home(folder.path());
    assert_eq!((checked.hurt_labels, checked.losses), (0, 0), "{findings:?}");
    let whole = BackupFolder::open(&backup).unwrap();
    let restored = whole.restore("one", &home, &Restore::default(), &mut |_, _| true).unwrap();
    assert_eq!(restored.missing, 0);
    drop(whole);
    let (checked, findings) = check_home(&home);
    assert_eq!((checked.hurt_labels, checked.losses), (0, 0), "{findings:?}");
    let store = open(&home);
    assert_eq!(store.label("kept").unwrap(), Some(named));
    assert!(!store.contains(second).unwrap(), "it is not made for this");
    assert_eq!(read(&store, second).unwrap(), output(store.recipe(second).unwrap().unwrap().application));
    drop(store);
    // Where something of the recipe is lost, the label is hurt.
    let only_copy = tempdir().unwrap();
    let lost = only_copy.path().join("home");
    let whole = BackupFolder::open(&backup).unwrap();
    whole.restore("one", &lost, &Restore::default(), &mut |_, _| true).unwrap();
    for pack in fs::read_dir(lost.join("packs")).unwrap() {
        let path = pack.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.windows(3000).position(|window| window == [7; 3000]);
        if let Some(at) = at {
            bytes[at + 5] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    }
    let (checked, findings) = check_home(&lost);
    assert_eq!(checked.hurt_labels, 1, "{findings:?}");
}

/// Changes a byte of what is stored of this, wherever that is.
fn damage(home: &Path, bytes: &[u8]) {
    let list = |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let large = list(&home.join("objects")).filter(|path| path.is_dir()).flat_map(|folder| list(&folder));
    for path in list(&home.join("packs")).chain(large.collect::<Vec<_>>()) {
        let mut found = fs::read(&path).unwrap();
        if let Some(at) = found.windows(bytes.len()).position(|window| window == bytes) {
            found[at + 5] ^= 1;
            fs::write(&path, found).unwrap();
            return;
        }
    }
    panic!("it is nowhere");
}

#[test]
fn nothing_goes_whose_recipe_needs_what_is_damaged() {
    let (folder, store) = new();
    let inputs: Vec<Handle> = [7, 8].iter().map(|byte| store.put_blob(&[*byte; 3000]).unwrap()).collect();
    let results: Vec<Handle> =
        inputs.iter().map(|input| apply(&store, application(&store, &[*input]), 60_000)).collect();
    let named = tree(&store, &[&results[..], &inputs].concat());
    store.flush_relations().unwrap();
    store.set_label("kept", named).unwrap();
    drop(store);
    damage(folder.path(), &[7; 3000]);
    age(folder.path());
    let store = open(folder.path());
    assert_eq!(collect(&store, Some(ALL)).dropped, 1);
    assert!(store.contains(results[0]).unwrap(), "it could not be made again");
    assert!(!store.contains(results[1]).unwrap());
}

#[test]
fn a_repair_that_makes_the_index_anew_keeps_recipes() {
    let (folder, store) = new();
    let input = store.put_blob(&[7; 3000]).unwrap();
    let makers: Vec<Handle> =
        (0..12).map(|number| application(&store, &[input, Handle::u64(number)])).collect();
    let results: Vec<Handle> = makers.iter().map(|maker| apply(&store, *maker, 60_000)).collect();
    store.flush_relations().unwrap();
    store.set_label("kept", tree(&store, &results)).unwrap();
    let store = reopen(&folder, store);
    assert_eq!(collect(&store, Some(ALL)).dropped, 12);
    drop(store);
    let index = folder.path().join("index.redb");
    let whole = fs::read(&index).unwrap();
    let knows_all = || {
        let home = Some(folder.path().to_owned());
        let options = Options { home, memory_bytes: 4 << 20, relations_bytes: 1 << 20 };
        let Ok(store) = Store::open(options) else { return false };
        let recipes = results.iter().filter(|result| matches!(store.recipe(**result), Ok(Some(_)))).count();
        recipes == 12 && matches!(store.label("kept"), Ok(Some(_)))
    };
    let mut rebuilt = 0;
    for at in (4096..whole.len()).step_by(1000) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&index, &damaged).unwrap();
        let (_, findings) = check_home(folder.path());
        let is_unsound = findings.iter().any(|finding| finding.kind == "index");
        // The damage is where nobody reads these rows.
        if !is_unsound || !knows_all() {
            continue;
        }
        fs::write(&index, &damaged).unwrap();
        let repair = Check { repair: true, ..Check::default() };
        let mut watch = Watch { progress: &mut |_, _| true, found: &mut |_| {} };
        fsck(folder.path(), &repair, &mut watch).unwrap();
        assert!(knows_all(), "byte {at} was changed");
        rebuilt += 1;
        if rebuilt == 3 {
            return;
        }
    }
    panic!("no byte was found that makes the index unsound and hides nothing");
}
