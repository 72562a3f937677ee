// SPDX-License-Identifier: Apache-2.0
//! What was dropped and is in the durable tier too comes the way that takes less, and if
//! that fails the other way. How fast the tier is, is what it was said to be: nothing was read of it yet.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use gateway::{Backend as _, ComesBy};
use objects::{FailureCode, Handle, Limits, Part, Selection};
use store::{
    Awaited, Collection, Depot, DepotError, Dropping, FolderDepot, Object, Recipe, TierOptions, TierStatus,
};
use tempfile::{TempDir, tempdir};

use super::{apply, codelet, evaluate};
use crate::backend::NodeBackend;
use crate::recomputing::{WHOLE, Way, way};
use crate::{Error, Node, Options};

/// fill(length, rounds, seed, …): so many bytes, written so often; what else it is given it does not read.
const FILL: &str = r#"(module
  (import "sinew_v1" "read_u64" (func $read_u64 (param i32 i64) (result i64)))
  (import "sinew_v1" "blob" (func $blob (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "apply") (param i32) (result i32)
    (local $len i32) (local $rounds i64) (local $x i64) (local $at i32)
    (local.set $len (i32.wrap_i64 (call $read_u64 (i32.const 3) (i64.const 0))))
    (local.set $rounds (call $read_u64 (i32.const 4) (i64.const 0)))
    (local.set $x (call $read_u64 (i32.const 5) (i64.const 0)))
    (drop (memory.grow (i32.div_u (local.get $len) (i32.const 65536))))
    (loop $again
      (local.set $at (i32.const 0))
      (loop $next
        (local.set $x (i64.add (i64.mul (local.get $x) (i64.const 6364136223846793005)) (i64.const 1442695040888963407)))
        (i64.store (local.get $at) (local.get $x))
        (br_if $next (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 8))) (local.get $len))))
      (local.set $rounds (i64.sub (local.get $rounds) (i64.const 1)))
      (br_if $again (i64.gt_s (local.get $rounds) (i64.const 0))))
    (call $blob (i32.const 0) (local.get $len))))"#;

const PATIENCE: Duration = Duration::from_secs(120);
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const MEMORY_BYTES: u64 = 1 << 30;

/// How fast the tier is said to be: what an answer takes, and bytes in a second.
type Speed = (Duration, u64);
const SLOW: Speed = (Duration::from_secs(3600), 1 << 30);
const FAST: Speed = (Duration::from_nanos(1), 1 << 50);

/// A speed at which so many bytes take so many nanoseconds.
fn speed(bytes: u64, nanos: u64) -> Speed {
    (Duration::from_nanos(1), (u128::from(bytes) * 1_000_000_000 / u128::from(nanos.max(1))) as u64)
}

struct Bucket {
    folder: FolderDepot,
    is_broken: AtomicBool,
}

impl Depot for Bucket {
    fn name(&self) -> String {
        "a bucket".to_owned()
    }

    fn put(&self, name: &str, bytes: &Object) -> Result<(), DepotError> {
        self.folder.put(name, bytes)
    }

    fn get(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>, DepotError> {
        // Whose tier it is can be read all the same.
        if self.is_broken.load(Ordering::SeqCst) && name != "FORMAT" {
            return Err(DepotError("it is broken".to_owned()));
        }
        self.folder.get(name, range)
    }

    fn list(&self, begin: &str, after: &str) -> Result<Vec<String>, DepotError> {
        self.folder.list(begin, after)
    }

    fn remove(&self, name: &str) -> Result<(), DepotError> {
        self.folder.remove(name)
    }
}

/// A home and its bucket.
struct House {
    home: TempDir,
    bucket: Arc<Bucket>,
    _folder: TempDir,
}

impl House {
    fn new() -> Self {
        let folder = tempdir().unwrap();
        let bucket = Bucket { folder: FolderDepot::open(folder.path()).unwrap(), is_broken: false.into() };
        Self { home: tempdir().unwrap(), bucket: Arc::new(bucket), _folder: folder }
    }

    fn start(&self, speed: Speed) -> Arc<Node> {
        self.start_within(speed, MEMORY_BYTES)
    }

    fn start_within(&self, (latency, bytes_per_second): Speed, memory_bytes: u64) -> Arc<Node> {
        let options = Options {
            home: Some(self.home.path().to_owned()),
            workers: Some(2),
            memory_bytes: Some(memory_bytes),
            ..Options::default()
        };
        let linger = Duration::from_millis(5);
        let tier = TierOptions { linger, latency, bytes_per_second, ..TierOptions::default() };
        let attach = |store: &store::Store| store.attach_tier(Arc::clone(&self.bucket) as _, tier);
        Node::start_with(&options, crate::loops::Loops::current(), |store, _| {
            attach(store).map_err(Error::Store)
        })
        .unwrap()
    }

    /// What applications give has names, is in the bucket, and is dropped; how each is made.
    fn plant(&self, thunks: impl FnOnce(&Arc<Node>) -> Vec<Handle>) -> Vec<(Handle, Recipe)> {
        let node = self.start(FAST);
        let objects: Vec<Handle> =
            thunks(&node).into_iter().map(|thunk| evaluate(&node, thunk).result).collect();
        let store = node.store();
        for object in &objects {
            store.set_label(&format!("result/{object}"), *object).unwrap();
        }
        store.tier_until(Awaited::All { labels: true }, PATIENCE).unwrap();
        drop(node);
        age(&self.home.path().join("packs"));
        age(&self.home.path().join("objects"));
        let node = self.start(FAST);
        let store = node.store();
        let dropping = Some(Dropping { bytes_min: 0, nanos_per_kib: u64::MAX });
        let collection = Collection { kept: Collection::KEPT_MIN, is_trial: false, dropping };
        let collected = store.collect(collection, &Vec::new).unwrap();
        assert_eq!(collected.dropped, objects.len() as u64);
        // Recipes stand beside labels.
        store.set_label("last", Handle::u64(1)).unwrap();
        store.tier_until(Awaited::Labels(Vec::new()), PATIENCE).unwrap();
        let recipe = |object: &Handle| (*object, store.recipe(*object).unwrap().unwrap());
        let recipes = objects.iter().map(recipe).collect();
        drop(node);
        recipes
    }

    /// One of these.
    fn plant_one(&self, length: u64, rounds: u64) -> (Handle, Recipe) {
        self.plant(|node| vec![fill(node, Limits::default(), length, rounds, 1, &[])])[0]
    }

    /// An object leaves the disk, and stays in the bucket. The node must not run.
    fn remove(&self, object: Handle) {
        let folder = self.home.path().join(format!("objects/{:02x}", object.hash_bytes()[0]));
        std::fs::remove_file(folder.join(object.to_string())).unwrap();
    }
}

/// All files below a folder are old.
fn age(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            age(&path);
        } else {
            let file = File::options().write(true).open(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(24 * 3600)).unwrap();
        }
    }
}

fn fill(node: &Arc<Node>, limits: Limits, length: u64, rounds: u64, seed: u64, unread: &[Handle]) -> Handle {
    let told = [length, rounds, seed].map(Handle::u64);
    apply(node, limits, codelet(node, FILL), &[&told[..], unread].concat())
}

fn status(node: &Node) -> TierStatus {
    node.store().tier_status().unwrap().unwrap()
}

/// Who asks for an object has it; how many applications ran, and how many objects were brought.
fn come(node: &Arc<Node>, object: Handle) -> (u64, u64) {
    let before = status(node).brought;
    let ended = evaluate(node, object.identification().unwrap().strict().unwrap());
    assert_eq!((ended.result, ended.failure), (object, None));
    assert!(node.store().get_here(object).unwrap().is_some());
    (ended.applied, status(node).brought - before)
}

/// How it is said to come.
fn said(node: &Arc<Node>, object: Handle) -> ComesBy {
    NodeBackend(Arc::clone(node)).explain(object).unwrap().transfer.unwrap().comes_by
}

#[test]
fn it_is_made_again_where_the_tier_is_slow_and_brought_where_it_is_fast() {
    let house = House::new();
    let seeds = [1, 2];
    let planted =
        house.plant(|node| seeds.map(|seed| fill(node, Limits::default(), 256 * KIB, 4, seed, &[])).to_vec());
    let node = house.start(SLOW);
    let (object, recipe) = planted[0];
    assert_eq!(said(&node, object), ComesBy::Recipe { nanos: recipe.own_nanos });
    assert!(NodeBackend(Arc::clone(&node)).get(object).unwrap().is_none(), "the door has it made");
    assert_eq!(come(&node, object), (1, 0));
    assert_eq!(status(&node).reads, 0);
    assert_eq!(said(&node, object), ComesBy::Nothing);
    drop(node);
    let node = house.start(FAST);
    let object = planted[1].0;
    assert_eq!(said(&node, object), ComesBy::Tier);
    assert_eq!(come(&node, object), (0, 1));
}

#[test]
fn what_its_recipe_needs_and_is_far_counts() {
    let house = House::new();
    let mut input = Handle::u64(0);
    let planted = house.plant(|node| {
        let mut writer = node.store().blob_writer().unwrap();
        (0..64_u8).for_each(|piece| writer.write(&vec![piece; MIB as usize]).unwrap());
        input = writer.finish().unwrap();
        node.store().set_label("input", input).unwrap();
        let one = fill(node, Limits::default(), 64 * KIB, 4, 1, &[input]);
        let made = evaluate(node, one).result;
        // What needs the input also by way of another one, which is brought then.
        let others = [[made, input], [input, made]];
        let others = (2..).zip(others).map(|(seed, unread)| (seed, unread.to_vec()));
        let others = others.map(|(seed, unread)| fill(node, Limits::default(), 256 * KIB, 4, seed, &unread));
        [one].into_iter().chain(others).collect()
    });
    // To bring one takes longer than all their recipes do, four times as long for most, without the input.
    let speed = speed(256 * KIB, 4 * planted.iter().map(|(_, recipe)| recipe.own_nanos).sum::<u64>());
    let node = house.start(speed);
    for (object, _) in &planted {
        assert!(matches!(said(&node, *object), ComesBy::Recipe { .. }));
    }
    drop(node);
    house.remove(input);
    let node = house.start(speed);
    for (object, _) in &planted {
        assert_eq!(said(&node, *object), ComesBy::Tier);
    }
    assert_eq!(come(&node, planted[2].0), (0, 1));
    assert_eq!(status(&node).read_bytes, 256 * KIB);
}

#[test]
fn of_a_part_only_the_part_counts() {
    const LENGTH: u64 = 8 * MIB;
    let part = 5_000_000..5_000_000 + KIB;
    let house = House::new();
    let (object, recipe) = house.plant_one(LENGTH, 32);
    // All of it would be made again.
    let speed = speed(LENGTH, 8 * recipe.nanos);
    let node = house.start(speed);
    assert_eq!(said(&node, object), ComesBy::Recipe { nanos: recipe.own_nanos });
    let selection = Selection { target: object, part: Part::Range { begin: part.start, end: part.end } };
    let thunk = node.store().put_tree(selection.to_tree().view()).unwrap().selection().unwrap();
    let ended = evaluate(&node, thunk);
    let told = status(&node);
    assert_eq!((ended.failure, ended.applied, told.brought, told.parts), (None, 0, 0, 1));
    assert!(told.read_bytes < 256 * KIB, "{} bytes came", told.read_bytes);
    drop(node);
    // So it is at the door.
    let node = house.start(speed);
    let bytes = NodeBackend(Arc::clone(&node)).get_range(object, part.clone()).unwrap().unwrap();
    assert_eq!((Handle::blob(&bytes), status(&node).parts), (ended.result, 1));
    assert!(status(&node).read_bytes < 256 * KIB);
    // They are the bytes that making it again gives.
    drop(node);
    let node = house.start(SLOW);
    assert_eq!(come(&node, object), (1, 0));
    assert_eq!(node.store().read_range(object, part).unwrap().unwrap(), bytes);
}

#[test]
fn what_the_tier_does_not_give_is_made_again() {
    let house = House::new();
    let (object, _) = house.plant_one(256 * KIB, 4);
    let node = house.start(FAST);
    house.bucket.is_broken.store(true, Ordering::SeqCst);
    assert_eq!(come(&node, object), (1, 0));
}

#[test]
fn what_cannot_be_made_again_is_brought() {
    let house = House::new();
    let limits = Limits { memory_bytes: 300 * MIB, ..Limits::default() };
    let (object, _) = house.plant(|node| vec![fill(node, limits, 2 * MIB, 1, 1, &[])])[0];
    // Its application has no room any more.
    let memory_bytes = 256 * MIB;
    let node = house.start_within(SLOW, memory_bytes);
    assert!(matches!(said(&node, object), ComesBy::Recipe { .. }));
    assert_eq!(come(&node, object), (0, 1));
    drop(node);
    house.remove(object);
    // Of a part that is wanted only that comes.
    let node = house.start_within(SLOW, memory_bytes);
    let selection = Selection { target: object, part: Part::Range { begin: 77, end: 177 } };
    let thunk = node.store().put_tree(selection.to_tree().view()).unwrap().selection().unwrap();
    let ended = evaluate(&node, thunk);
    let told = status(&node);
    assert_eq!((ended.failure, told.parts, told.brought), (None, 1, 0));
    // In neither way: that is the failure that tells most.
    house.bucket.is_broken.store(true, Ordering::SeqCst);
    let ended = evaluate(&node, object.identification().unwrap().strict().unwrap());
    assert_eq!(ended.failure.unwrap().code, FailureCode::Resources);
}

#[test]
fn what_a_recipe_needs_is_not_known_where_its_application_is_damaged() {
    let house = House::new();
    let (object, recipe) = house.plant_one(256 * KIB, 4);
    let name = recipe.application.definition();
    let mut found = 0;
    for entry in std::fs::read_dir(house.home.path().join("packs")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(Handle::LEN).position(|window| window == name.as_bytes());
        if let Some(at) = at {
            bytes[at + Handle::LEN + 3] ^= 4;
            std::fs::write(path, bytes).unwrap();
            found += 1;
        }
    }
    assert_eq!(found, 1);
    let node = house.start(SLOW);
    assert_eq!(said(&node, object), ComesBy::Tier);
    assert_eq!(node.store().stats().corrupt, 1);
    assert_eq!(come(&node, object), (0, 1));
}

#[test]
fn what_recipes_need_is_counted_once_and_up_to_a_bound() {
    let house = House::new();
    let mut inner = Handle::u64(0);
    let planted = house.plant(|node| {
        inner = evaluate(node, fill(node, Limits::default(), 256 * KIB, 4, 1, &[])).result;
        let many: Vec<Handle> = (0..300).map(Handle::u64).collect();
        let many = super::partial::tree(node, &many);
        let again = fill(node, Limits::default(), 256 * KIB, 4, 1, &[]);
        let twice = fill(node, Limits::default(), 256 * KIB, 4, 2, &[inner, inner]);
        let crowd = fill(node, Limits::default(), 256 * KIB, 4, 3, &[many]);
        vec![again, twice, crowd]
    });
    let [(first, by_first), (twice, by_twice), (crowd, _)] = planted[..] else { panic!("{planted:?}") };
    assert_eq!(first, inner);
    let node = house.start(SLOW);
    let found = |object| way(node.store(), object, WHOLE).unwrap();
    let nanos = by_first.own_nanos + by_twice.own_nanos;
    assert_eq!(found(twice), Way::Recipe { recipe: by_twice, nanos, is_far: true });
    // Nobody looks through more than 256 objects for it.
    assert!(matches!(found(crowd), Way::Tier { .. }));
    assert_eq!(come(&node, twice), (2, 0));
    assert!(matches!(found(Handle::blob(&[9; 100])), Way::Nowhere));
}
