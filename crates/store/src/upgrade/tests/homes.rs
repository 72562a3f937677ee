// SPDX-License-Identifier: Apache-2.0
//! Homes that versions of this crate have really written: whatever comes later brings them
//! up to date, and has all that is in them.
//!
//! Before a new FORMAT is begun, the last code of the old one writes its home:
//! `STORE_HOME_TO_KEEP=golden/home-N.tar.gz cargo test -p store writes_a_home`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use objects::TreeBuilder;

use super::*;
use crate::recipes::tests::{age, application, apply, collect, open as open_small, output};
use crate::{Check, Collection, Dropping, Watch, fsck};

const TO_KEEP: &str = "STORE_HOME_TO_KEEP";

/// What is in it: of every kind of object, label and row.
struct Contents {
    blobs: Vec<Vec<u8>>,
    tree: TreeBuilder,
}

fn contents() -> Contents {
    let lens = (0..40).map(|number| 40 + number * number * 11).chain([100_000, (1 << 20) + 12_345]);
    let bytes = |(number, len): (usize, usize)| (0..len).map(|at| (at / 509 + number * 3) as u8).collect();
    let blobs: Vec<Vec<u8>> = lens.enumerate().map(bytes).collect();
    let names = blobs.iter().map(|bytes| Handle::blob(bytes));
    let tree = names.chain((0..2500).map(Handle::u64)).collect();
    Contents { blobs, tree }
}

/// An application whose result is remembered, and one whose result was dropped.
fn makers(store: &Store) -> [Handle; 2] {
    let input = Handle::blob(&contents().blobs[7]);
    [1, 2].map(|number| application(store, &[input, Handle::u64(number)]))
}

/// Not a test of its own: writes a file of this crate, if it is told which.
#[test]
fn writes_a_home() {
    let Some(archive) = std::env::var_os(TO_KEEP) else { return };
    let Contents { blobs, tree } = contents();
    let folder = tempdir().unwrap();
    let home = folder.path().join("home");
    let store = open_small(&home);
    for blob in &blobs {
        store.put_blob(blob).unwrap();
    }
    let tree = store.put_tree(tree.view()).unwrap();
    store.set_label("all/of-it", tree.lowered().unwrap()).unwrap();
    let [remembered, dropped] = makers(&store);
    store.set_label("result", apply(&store, dropped, 60_000)).unwrap();
    store.flush_relations().unwrap();
    drop(store);
    age(&home);
    let store = open_small(&home);
    assert_eq!(collect(&store, Some(Dropping { bytes_min: 0, nanos_per_kib: u64::MAX })).dropped, 1);
    // A collection would forget it.
    apply(&store, remembered, 70_000);
    store.flush_relations().unwrap();
    drop(store);
    let archive = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/upgrade").join(archive);
    let mut tar = Command::new("tar");
    tar.args(["--exclude=home/lock", "--sort=name", "--owner=0", "--group=0", "-czf"]).arg(archive);
    assert!(tar.arg("-C").arg(folder.path()).arg("home").status().unwrap().success());
}

/// The home that a version has written.
fn unpacked(archive: &str) -> TempDir {
    let folder = tempdir().unwrap();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/upgrade/golden").join(archive);
    let mut tar = Command::new("tar");
    assert!(tar.arg("-xzf").arg(path).arg("-C").arg(folder.path()).status().unwrap().success());
    folder
}

fn check_all(home: &Path) {
    let Contents { blobs, tree } = contents();
    let store = open_small(home);
    let [remembered, dropped] = makers(&store);
    let result = Handle::blob(&output(dropped));
    let root = tree.view().handle();
    let labels = [("all/of-it".to_owned(), root.lowered().unwrap()), ("result".to_owned(), result)];
    assert_eq!(store.labels().unwrap(), labels);
    let record = store.relations().get(remembered).unwrap();
    assert_eq!((record.result, record.nanos), (Handle::blob(&output(remembered)), 70_000));
    // Nobody has put it, and its recipe is what keeps its input.
    let recipe = store.recipe(result).unwrap().unwrap();
    assert_eq!((recipe.application, recipe.nanos), (dropped, 60_000));
    assert!(!store.is_promised(result).unwrap() && !store.contains(result).unwrap());
    drop(store);
    age(home);
    let store = open_small(home);
    store
        .collect(Collection { kept: Duration::from_secs(3600), is_trial: false, dropping: None }, &Vec::new)
        .unwrap();
    for blob in &blobs {
        assert_eq!(store.get(Handle::blob(blob)).unwrap().unwrap().bytes(), blob);
    }
    assert_eq!(store.get(root).unwrap().unwrap().bytes(), tree.view().as_bytes());
    assert!(store.contains(dropped.definition()).unwrap());
    store.put_blob(&vec![9; 77_777]).unwrap();
    drop(store);
    let mut found = Vec::new();
    let (mut progress, mut tell) = (|_, _| true, |finding| found.push(finding));
    let checked = fsck(home, &Check::default(), &mut Watch { progress: &mut progress, found: &mut tell });
    assert!(checked.unwrap().is_clean() && found.is_empty(), "{found:?}");
}

#[test]
fn a_home_of_format_2_is_upgraded_with_all_that_is_in_it() {
    let folder = unpacked("home-2.tar.gz");
    let home = folder.path().join("home");
    assert_eq!(fs::read_to_string(home.join("FORMAT")).unwrap(), "sinew-store 2\n");
    assert!(matches!(open(&home), Err(Error::OldFormat { .. })));
    assert_eq!(upgrade(&home, |_, _| {}).unwrap(), Some(Upgraded::default()));
    assert_eq!(fs::read_to_string(home.join("FORMAT")).unwrap(), "sinew-store 3\n");
    assert_eq!(upgrade(&home, |_, _| {}).unwrap(), None);
    check_all(&home);
}
