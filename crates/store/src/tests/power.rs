// SPDX-License-Identifier: Apache-2.0
//! The power goes at any sync of a store that is put to, named in, collected, upgraded, backed
//! up or restored: what was acknowledged by then must be there and whole, whatever the disk
//! kept of what was not synced.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use objects::{BundleRecord, Handle, TreeBuilder};
use parking_lot::Mutex;
use tempfile::TempDir;

use super::dropped::can_be_had;
use super::witness::{Moment, Survives, Unsynced, Witness, in_memory};
use crate::recipes::tests::{age, application, apply, collect, open, output};
use crate::{Backup, BackupFolder, Check, Dropping, Finding, Harm, Record, Restore, Rule, Store, Watch};
use crate::{fsck, fsck_backup, upgrade};

const ALL: Dropping = Dropping { bytes_min: 0, nanos_per_kib: u64::MAX };

/// What was acknowledged so far.
#[derive(Clone, Default)]
struct Told {
    stored: BTreeMap<Handle, Vec<u8>>,
    /// What each may name: two things while it is being set.
    labels: BTreeMap<String, Vec<Option<Handle>>>,
    relations: Vec<(Handle, Handle)>,
    /// Also what was not acknowledged yet.
    begun: BTreeMap<Handle, Vec<u8>>,
}

/// Does things, and notes what it is told.
#[derive(Clone, Default)]
struct Client(Arc<Mutex<Told>>);

fn bytes(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

impl Client {
    fn put(&self, store: &Store, number: u64, len: usize) -> Handle {
        let bytes = bytes(number, len);
        self.0.lock().begun.insert(Handle::blob(&bytes), bytes.clone());
        let handle = store.put_blob(&bytes).unwrap();
        self.0.lock().stored.insert(handle, bytes);
        handle
    }

    /// Several small ones, with one sync.
    fn put_together(&self, store: &Store, numbers: std::ops::Range<u64>) {
        let all: Vec<Vec<u8>> = numbers.map(|number| bytes(number, 700 + number as usize * 13)).collect();
        let named = || all.iter().map(|bytes| (Handle::blob(bytes), bytes.clone()));
        self.0.lock().begun.extend(named());
        let records: Vec<_> = all.iter().map(|bytes| BundleRecord::Blob(bytes)).collect();
        store.put_many(&records).unwrap();
        self.0.lock().stored.extend(named());
    }

    fn stream(&self, store: &Store, number: u64, len: usize) -> Handle {
        let bytes = bytes(number, len);
        self.0.lock().begun.insert(Handle::blob(&bytes), bytes.clone());
        let mut writer = store.blob_writer().unwrap();
        bytes.chunks(50_000).for_each(|piece| writer.write(piece).unwrap());
        let handle = writer.finish().unwrap();
        self.0.lock().stored.insert(handle, bytes);
        handle
    }

    fn label(&self, store: &Store, name: &str, handle: Option<Handle>) {
        self.0.lock().labels.entry(name.to_owned()).or_insert_with(|| vec![None]).push(handle);
        match handle {
            Some(handle) => store.set_label(name, handle).unwrap(),
            None => assert!(store.remove_label(name).unwrap()),
        }
        self.0.lock().labels.insert(name.to_owned(), vec![handle]);
    }

    fn relate(&self, store: &Store, key: Handle, result: Handle) {
        store.relations().insert(key, Record { result, rule: Rule::Apply, nanos: 1 << 20, fuel: 0 });
        store.flush_relations().unwrap();
        self.0.lock().relations.push((key, result));
    }

    /// What has no name is about to be collected, and relations may be.
    fn lets_go(&self) {
        let mut told = self.0.lock();
        told.stored.clear();
        told.relations.clear();
    }

    fn told(&self) -> Told {
        self.0.lock().clone()
    }
}

fn tree(store: &Store, entries: &[Handle]) -> Handle {
    store.keep_tree(entries.iter().copied().collect::<TreeBuilder>().view())
}

/// What a check does not like, but for what may be so after a loss of power.
fn harm(folder: &Path, is_backup: bool, survives: Survives) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |finding: Finding| {
        // Outboards are not synced, nor is the header of a pack that has nothing yet.
        let is_expected = match finding.kind {
            "outboard" => survives != Survives::All,
            "pack" => finding.what.contains("header") && matches!(survives, Survives::Some(_)),
            _ => false,
        };
        findings.extend((finding.harm != Harm::None && !is_expected).then_some(finding));
    };
    let mut watch = Watch { progress: &mut |_, _| true, found: &mut found };
    let check = Check::default();
    if is_backup { fsck_backup(folder, &check, &mut watch) } else { fsck(folder, &check, &mut watch) }
        .unwrap();
    findings
}

/// Everything that was told is so in this home.
fn check(home: &Path, told: &Told, survives: Survives) {
    let is_new = told.stored.is_empty() && told.labels.is_empty();
    if !is_new || home.join("FORMAT").exists() {
        assert_eq!(harm(home, false, survives), [], "{survives:?}");
    }
    let store = open(home);
    for (handle, bytes) in &told.stored {
        let part = store.read_range(*handle, 20..30).unwrap();
        assert_eq!(part.as_deref(), Some(&bytes[20..30]), "{handle}, {survives:?}");
        let object = store.get(*handle).unwrap();
        assert_eq!(object.as_deref(), Some(bytes.as_slice()), "{handle}, {survives:?}");
    }
    for (name, may_name) in &told.labels {
        let named = store.label(name).unwrap();
        assert!(may_name.contains(&named), "{name} is {named:?}, not one of {may_name:?}, {survives:?}");
    }
    for (name, handle) in store.labels().unwrap() {
        assert!(can_be_had(&store, handle).is_some(), "{name} is not whole, {survives:?}");
    }
    for (key, result) in &told.relations {
        let record = store.relations().get(*key);
        assert_eq!(record.map(|record| record.result), Some(*result), "{survives:?}");
    }
    store.relations().results().into_iter().for_each(|result| {
        assert!(can_be_had(&store, result).is_some(), "{result} is remembered and not there, {survives:?}");
    });
    assert_eq!(store.stats().corrupt, 0, "{survives:?}");
    // It goes on, also with what the disk has kept in part.
    for bytes in told.begun.values() {
        store.put_blob(bytes).unwrap();
    }
    drop(store);
    let store = open(home);
    for (handle, bytes) in &told.begun {
        let object = store.get(*handle).unwrap();
        assert_eq!(object.as_deref(), Some(bytes.as_slice()), "{handle} was put again, {survives:?}");
    }
}

/// A process is killed, another one goes on with what was not synced, and then the power goes:
/// what the second was asked to store, or to name, must be there.
fn check_after_kill(moment: &Moment<'_>, told: &Told, names: bool) {
    let (folder, cut) = (in_memory(), Unsynced::new());
    let (killed, cut) = (folder.path().join("killed"), cut.path().join("cut"));
    let witness = moment.after_kill(&killed);
    let store = open(&killed.join("home"));
    let again = Client::default();
    // Whoever was not answered asks again, or finds that it is there and names it.
    for (number, (handle, bytes)) in told.begun.iter().enumerate() {
        if !names {
            store.put_blob(bytes).unwrap();
            again.0.lock().stored.insert(*handle, bytes.clone());
        } else if store.contains(*handle).unwrap() {
            again.label(&store, &format!("again-{number}"), Some(*handle));
        }
    }
    witness.lay_out(&cut, Survives::Nothing);
    witness.assert_nothing_failed();
    drop(store);
    check(&cut.join("home"), &again.told(), Survives::Nothing);
}

/// What of the unsynced survives, differently from one moment to the next.
fn kinds(number: usize) -> [Survives; 2] {
    let kinds = [Survives::Names, Survives::Some(number as u64), Survives::All];
    [Survives::Nothing, kinds[number % 3]]
}

/// Watches a folder, and checks what the client was told at each moment.
fn watch(folder: &Path, client: &Client) -> Arc<Witness> {
    let client = client.clone();
    Witness::of(folder, move |moment| {
        // First: what is acknowledged was synced before.
        let told = client.told();
        for survives in kinds(moment.number) {
            let folder = Unsynced::new();
            let cut = folder.path().join("cut");
            moment.lay_out(&cut, survives);
            check(&cut.join("home"), &told, survives);
        }
        let is_name = moment.path.parent().is_some_and(|parent| parent.ends_with("objects"));
        if is_name || moment.number % 3 == 2 {
            check_after_kill(moment, &told, is_name);
        }
    })
}

fn home_in(folder: &TempDir) -> PathBuf {
    folder.path().join("home")
}

#[test]
fn what_was_acknowledged_survives_a_loss_of_power_at_any_sync() {
    let folder = in_memory();
    let client = Client::default();
    let witness = watch(folder.path(), &client);
    let store = open(&home_in(&folder));
    let small = client.put(&store, 1, 900);
    client.put(&store, 2, 30_000);
    client.put_together(&store, 20..28);
    let large = client.put(&store, 3, 70_000);
    let partial = client.stream(&store, 4, (1 << 20) + 77);
    client.label(&store, "one", Some(small));
    let inner = tree(&store, &[store.keep_blob(&bytes(5, 2000)), store.keep_blob(&bytes(6, 80_000)), large]);
    let outer = tree(&store, &[inner, partial, Handle::u64(7)]);
    client.label(&store, "tree", Some(outer));
    client.relate(&store, outer.application().unwrap(), store.keep_blob(&bytes(8, 66_000)));
    client.label(&store, "one", Some(large));
    client.put(&store, 1, 900);
    client.put(&store, 3, 70_000);
    client.label(&store, "tree", None);
    client.stream(&store, 9, 100_000);
    client.relate(&store, inner.application().unwrap(), store.keep_blob(&bytes(10, 3000)));
    drop(store);
    let store = open(&home_in(&folder));
    client.put(&store, 11, 50_000);
    client.label(&store, "other", Some(client.put(&store, 12, 200_000)));
    drop(store);
    witness.assert_nothing_failed();
    assert!(witness.syncs() > 40, "{}", witness.syncs());
}

#[test]
fn what_is_written_in_part_is_written_again_when_it_is_put_again() {
    let folder = in_memory();
    let client = Client::default();
    let told = client.clone();
    let witness = Witness::of(folder.path(), move |moment| {
        if moment.path.extension().is_none_or(|extension| extension != "pack") {
            return;
        }
        for seed in 0..12 {
            let folder = Unsynced::new();
            let cut = folder.path().join("cut");
            moment.lay_out(&cut, Survives::Some(seed));
            check(&cut.join("home"), &told.told(), Survives::Some(seed));
        }
    });
    let store = open(&home_in(&folder));
    client.put(&store, 1, 900);
    client.put_together(&store, 20..40);
    witness.assert_nothing_failed();
}

#[test]
fn a_name_that_another_has_not_synced_yet_is_synced_before_it_is_relied_on() {
    let folder = in_memory();
    let witness = Witness::of(folder.path(), |_| {});
    let store = open(&home_in(&folder));
    let files = store.disk().unwrap().files();
    // Each is where a put is between the name and its sync.
    let begin = |number: u64| {
        let bytes = bytes(number, 70_000);
        let mut temp = files.temp_file().unwrap();
        temp.write_all(&bytes).unwrap();
        assert!(files.publish(temp, Handle::blob(&bytes)).unwrap());
        Handle::blob(&bytes)
    };
    let (named, result, renewed) = (begin(1), begin(2), begin(3));
    let client = Client::default();
    let is_there = |handle: Handle| {
        let cut = Unsynced::new();
        witness.lay_out(&cut.path().join("cut"), Survives::Nothing);
        check(&cut.path().join("cut/home"), &client.told(), Survives::Nothing);
        open(&cut.path().join("cut/home")).contains(handle).unwrap()
    };
    assert!(!is_there(named) && !is_there(result) && !is_there(renewed));
    assert!(store.renew(renewed).unwrap() && is_there(renewed) && is_there(named));
    let named = begin(4);
    client.label(&store, "name", Some(named));
    assert!(is_there(named));
    let result = begin(5);
    client.relate(&store, tree(&store, &[named]).application().unwrap(), result);
    assert!(is_there(result));
}

/// What was written so far was written five hours ago.
fn grow_old(store: &Store, home: &Path) {
    store.disk().unwrap().index().packs().roll();
    age(home);
}

/// Names a chain of what was computed.
fn compute(client: &Client, store: &Store, number: u64) -> Handle {
    let mut links = vec![Handle::u64(number)];
    for link in 0..5 {
        links.push(apply(store, application(store, &[links[link]]), 60_000));
    }
    let chain = tree(store, &links);
    client.label(store, &format!("chain-{number}"), Some(chain));
    links[1]
}

#[test]
fn collections_may_lose_power_at_any_sync() {
    let folder = in_memory();
    let home = home_in(&folder);
    let client = Client::default();
    let store = open(&home);
    for number in 0..30 {
        let handle = client.put(&store, number, if number % 5 == 3 { 66_000 } else { 2_000 });
        if number % 10 >= 8 || number == 3 {
            client.label(&store, &format!("named-{number}"), Some(handle));
        }
    }
    compute(&client, &store, 100);
    store.flush_relations().unwrap();
    drop(store);
    age(&home);
    let witness = watch(folder.path(), &client);
    let store = open(&home);
    client.lets_go();
    let before = store.disk().unwrap().index().packs().numbers();
    let collected = collect(&store, None);
    assert!(collected.objects > 10 && collected.freed_bytes > 100_000, "{collected:?}");
    let packs = store.disk().unwrap().index().packs().numbers();
    assert!(!packs.contains(&before[0]), "what is left was written anew");
    client.put(&store, 200, 3_000);
    client.label(&store, "named-3", None);
    let first = compute(&client, &store, 101);
    store.flush_relations().unwrap();
    client.put(&store, 201, 90_000);
    client.lets_go();
    drop(store);
    age(&home);
    let store = open(&home);
    let dropped = collect(&store, Some(ALL)).dropped;
    assert!(dropped > 2, "{dropped}");
    // Somebody puts one that was dropped.
    let again = output(application(&store, &[Handle::u64(101)]));
    assert_eq!(store.put_blob(&again).unwrap(), first);
    client.0.lock().stored.insert(first, again);
    client.label(&store, "chain-100", None);
    client.label(&store, "first", Some(first));
    grow_old(&store, &home);
    client.lets_go();
    assert!(collect(&store, Some(ALL)).objects > 2);
    client.put(&store, 202, 100);
    drop(store);
    witness.assert_nothing_failed();
    assert!(witness.syncs() > 30, "{}", witness.syncs());
}

#[test]
fn an_upgrade_may_lose_power_at_any_sync() {
    use crate::upgrade::tests::{check, home_before};
    let objects = 40;
    let folder = in_memory();
    home_before(objects, &home_in(&folder));
    let witness = Witness::of(folder.path(), move |moment| {
        for survives in kinds(moment.number) {
            let folder = Unsynced::new();
            let cut = folder.path().join("cut");
            moment.lay_out(&cut, survives);
            upgrade(&cut.join("home"), |_, _| {}).unwrap();
            check(&cut.join("home"), objects);
        }
    });
    upgrade(&home_in(&folder), |_, _| {}).unwrap().unwrap();
    witness.assert_nothing_failed();
    assert!(witness.syncs() > 5, "{}", witness.syncs());
    drop(witness);
    check(&home_in(&folder), objects);
}

fn restore(backup: &Path, point: &str, home: &Path) {
    let restore = Restore { partial: false, files: vec![("keys".to_owned(), b"keys".to_vec())] };
    BackupFolder::open(backup).unwrap().restore(point, home, &restore, &mut |_, _| true).unwrap();
}

#[test]
fn backups_and_restores_may_lose_power_at_any_sync() {
    let (folder, home) = (in_memory(), in_memory());
    let (backup, again) = (folder.path().join("backup"), folder.path().join("home"));
    let client = Client::default();
    let store = open(home.path());
    let point = |name: &str| {
        let backup_of = Backup { point: name.to_owned(), files: Vec::new() };
        store.backup(&backup, &backup_of, &mut |_, _| true).unwrap();
    };
    let points = Arc::new(Mutex::new(Vec::<(String, Told)>::new()));
    let seen = Arc::clone(&points);
    let witness = Witness::of(folder.path(), move |moment| {
        let points = seen.lock().clone();
        for survives in kinds(moment.number) {
            let folder = Unsynced::new();
            let cut = folder.path().join("cut");
            moment.lay_out(&cut, survives);
            for (point, told) in &points {
                assert_eq!(harm(&cut.join("backup"), true, survives), [], "{survives:?}");
                // One that was broken off goes on; one that has ended is a home.
                let home = cut.join("home");
                if !fs::read_to_string(home.join("FORMAT"))
                    .is_ok_and(|format| format.starts_with("sinew-store"))
                {
                    restore(&cut.join("backup"), point, &home);
                }
                check(&home, told, survives);
                fs::remove_dir_all(home).unwrap();
            }
        }
    });
    let take = |name: &str| {
        point(name);
        let told = Told { stored: BTreeMap::new(), relations: Vec::new(), ..client.told() };
        points.lock().push((name.to_owned(), told));
    };
    client.label(&store, "small", Some(client.put(&store, 1, 700)));
    client.label(&store, "large", Some(client.put(&store, 2, 70_000)));
    let tree = tree(&store, &[store.keep_blob(&bytes(3, 5000)), store.keep_blob(&bytes(4, 300_000))]);
    client.label(&store, "tree", Some(tree));
    take("one");
    client.label(&store, "small", Some(client.put(&store, 5, 800)));
    client.label(&store, "large", None);
    take("two");
    points.lock().remove(0);
    restore(&backup, "two", &again);
    witness.assert_nothing_failed();
    assert!(witness.syncs() > 30, "{}", witness.syncs());
    drop(witness);
    let (_, told) = points.lock().remove(0);
    check(&again, &told, Survives::All);
}
