// SPDX-License-Identifier: Apache-2.0
//! A process is killed in the middle of backups and restores, again and again, and
//! the disk under a backup fills up: a point that is there is whole, and what is no
//! point and no home is not taken for one.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use objects::{Handle, TreeBuilder};
use tempfile::tempdir;

use crate::{Backup, BackupFolder, Check, Error, Options, Restore, Store, Watch, fsck, fsck_backup};

const FOLDER_VARIABLE: &str = "STORE_BACKUP_TEST_FOLDER";
const ACT_VARIABLE: &str = "STORE_BACKUP_TEST_ACT";
const DISK_VARIABLE: &str = "STORE_BACKUP_TEST_DISK";
const KILLS: u64 = 30;
const LABELS: u64 = 60;

fn open(home: &Path) -> Store {
    let home = Some(home.to_owned());
    Store::open(Options { home, memory_bytes: 1 << 20, relations_bytes: 1 << 16 }).unwrap()
}

fn bytes(number: u64) -> Vec<u8> {
    let len = if number % 10 == 3 { 70_000 } else { 40 + number % 3000 };
    let mut bytes = vec![number as u8; len as usize];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Names a tree of many objects, of which the round makes some new.
fn name(store: &Store, label: u64, round: u64) {
    let inner = |part: u64| {
        let blobs: TreeBuilder =
            (0..4).map(|at| store.put_blob(&bytes(label << 16 | part << 8 | at)).unwrap()).collect();
        store.keep_tree(blobs.view())
    };
    let tree: TreeBuilder = [inner(0), inner(1), inner(100 + round)].into_iter().collect();
    store.set_label(&format!("l/{label}"), store.keep_tree(tree.view())).unwrap();
}

fn is_whole(store: &Store, handle: Handle) -> bool {
    let Some(object) = store.get(handle).unwrap() else { return false };
    !handle.plain_tree().names_tree() || object.as_tree().iter().all(|entry| is_whole(store, entry))
}

/// Not a test of its own: the process that is killed. It says when it begins and ends.
#[test]
fn child_that_backs_up_or_restores() {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from) else { return };
    let act = std::env::var(ACT_VARIABLE).unwrap();
    let (home, backup) = (folder.join("home"), folder.join("backup"));
    let say = |text: &str| std::io::stdout().lock().write_all(format!("{text}\n").as_bytes()).unwrap();
    if let Some(point) = act.strip_prefix("backup ") {
        let store = open(&home);
        say("begun");
        let point = Backup { point: point.to_owned(), files: Vec::new() };
        store.backup(&backup, &point, &mut |_, _| true).unwrap();
    } else {
        say("begun");
        let from = BackupFolder::open(&backup).unwrap();
        let point = from.points().unwrap()[0].name.clone();
        from.restore(&point, &folder.join("restored"), &Restore::default(), &mut |_, _| true).unwrap();
    }
    say("ended");
    thread::sleep(Duration::from_secs(60));
}

/// Runs the child and kills it some time after it has begun. Whether it had ended.
fn kill_one(folder: &Path, act: &str, delay: Duration) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "tests::backed_up::child_that_backs_up_or_restores",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(FOLDER_VARIABLE, folder)
        .env(ACT_VARIABLE, act)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while !lines.next().expect("it says when it begins").unwrap().ends_with("begun") {}
    thread::sleep(delay);
    child.kill().unwrap();
    child.wait().unwrap();
    lines.any(|line| line.is_ok_and(|line| line.ends_with("ended")))
}

fn assert_sound(backup: &Path, round: u64) {
    let mut findings = Vec::new();
    let mut found = |finding| findings.push(finding);
    let mut watch = Watch { progress: &mut |_, _| true, found: &mut found };
    match fsck_backup(backup, &Check::default(), &mut watch) {
        Ok(checked) => assert!(checked.is_clean(), "after kill {round}: {findings:?}"),
        // It was killed before there was anything.
        Err(Error::NoBackup { .. }) => {}
        Err(error) => panic!("after kill {round}: {error}"),
    }
}

#[test]
fn backups_survive_kills() {
    let folder = tempdir().unwrap();
    let (mut ended, mut broken) = (0, 0);
    for round in 0..KILLS {
        let store = open(&folder.path().join("home"));
        (0..LABELS).filter(|label| (label + round) % 3 == 0).for_each(|label| name(&store, label, round));
        drop(store);
        // From the first writes to after the end.
        let delay = Duration::from_micros(round * round * 331);
        match kill_one(folder.path(), &format!("backup p{round}"), delay) {
            true => ended += 1,
            false => broken += 1,
        }
        assert_sound(&folder.path().join("backup"), round);
    }
    assert!(ended > 0 && broken > 0, "{ended} ended, {broken} were broken off");
    let backup = folder.path().join("backup");
    let points = BackupFolder::open(&backup).unwrap().points().unwrap();
    assert!(points.len() >= ended, "{points:?}");
    for point in points.iter().step_by(3) {
        let to = folder.path().join(&point.name);
        BackupFolder::open(&backup)
            .unwrap()
            .restore(&point.name, &to, &Restore::default(), &mut |_, _| true)
            .unwrap();
        let store = open(&to);
        assert!(store.labels().unwrap().iter().all(|(_, handle)| is_whole(&store, *handle)));
    }
}

#[test]
fn restores_survive_kills() {
    let folder = tempdir().unwrap();
    let store = open(&folder.path().join("home"));
    (0..LABELS).for_each(|label| name(&store, label, label % 7));
    let point = Backup { point: "p".to_owned(), files: Vec::new() };
    store.backup(&folder.path().join("backup"), &point, &mut |_, _| true).unwrap();
    let labels = store.labels().unwrap();
    let restored = folder.path().join("restored");
    let (mut ended, mut broken) = (0, 0);
    for round in 0..KILLS {
        let has_ended = kill_one(folder.path(), "restore", Duration::from_micros(round * round * 293));
        let options =
            Options { home: Some(restored.clone()), memory_bytes: 1 << 20, relations_bytes: 1 << 16 };
        let format = std::fs::read_to_string(restored.join("FORMAT")).unwrap_or_default();
        if !has_ended && !format.starts_with("sinew-store") {
            broken += 1;
            if restored.join("FORMAT").exists() {
                assert!(matches!(Store::open(options), Err(Error::Unfinished { .. })), "round {round}");
            }
            continue;
        }
        ended += u64::from(has_ended);
        let mut watch = Watch { progress: &mut |_, _| true, found: &mut |_| {} };
        assert!(fsck(&restored, &Check::default(), &mut watch).unwrap().is_clean());
        assert_eq!(Store::open(options).unwrap().labels().unwrap(), labels, "round {round}");
        std::fs::remove_dir_all(&restored).unwrap();
    }
    assert!(ended > 0 && broken > 0, "{ended} ended, {broken} were broken off");
}

/// Not a test of its own: runs inside a small file system.
#[test]
fn child_that_fills_the_disk() {
    let Some(disk) = std::env::var_os(DISK_VARIABLE).map(PathBuf::from) else { return };
    let home = tempdir().unwrap();
    let store = open(home.path());
    let backup = disk.join("backup");
    let point = |name: &str| Backup { point: name.to_owned(), files: Vec::new() };
    (0..20).for_each(|label| name(&store, label, 0));
    store.backup(&backup, &point("first"), &mut |_, _| true).unwrap();
    let large: Vec<_> = (0..12).map(|number| store.put_blob(&vec![number; 3 << 20]).unwrap()).collect();
    for (number, blob) in large.iter().enumerate() {
        store.set_label(&format!("large/{number}"), *blob).unwrap();
    }
    let error = store.backup(&backup, &point("second"), &mut |_, _| true).unwrap_err();
    assert!(error.to_string().contains("No space left on device"), "{error}");
    let points = BackupFolder::open(&backup).unwrap().points().unwrap();
    assert_eq!(points.iter().map(|point| point.name.as_str()).collect::<Vec<_>>(), ["first"]);
    assert_sound(&backup, 0);
    let to = disk.join("restored");
    let from = BackupFolder::open(&backup).unwrap();
    if from.restore("first", &to, &Restore::default(), &mut |_, _| true).is_err() {
        let options = Options { home: Some(to.clone()), memory_bytes: 1 << 20, relations_bytes: 1 << 16 };
        assert!(Store::open(options).is_err(), "half a home is none");
    }
    println!("the child went through");
}

#[test]
fn a_full_disk_ends_a_backup_and_hurts_no_point() {
    const SCRIPT: &str = "mount -t tmpfs -o size=24m sinew-test \"$0\" && exec \"$@\"";
    let folder = tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", SCRIPT])
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "tests::backed_up::child_that_fills_the_disk", "--nocapture"])
        .env(DISK_VARIABLE, folder.path())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => return println!("skipped: unshare cannot be run: {error}"),
    };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if text.contains("unshare: ") || text.contains("mount: ") {
        return println!("skipped: no file system can be mounted here: {text}");
    }
    assert!(output.status.success() && text.contains("the child went through"), "{text}");
}
