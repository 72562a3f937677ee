// SPDX-License-Identifier: Apache-2.0
//! `store`: a million small objects and a hundred large ones are put, read,
//! found again by a node that was killed, and collected; and a process is killed
//! in the middle of its puts, hundreds of times.

mod kills;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, ensure};
use objects::{BundleRecord, Handle, TreeBuilder};
use store::{Collection, Options, Store};

use crate::figures::{Report, median};

pub(crate) use kills::child;

const SMALL: u64 = 1_000_000;
const LARGE: u64 = 100;
const LARGE_BYTES: usize = 4 << 20;
/// Objects that are put together, as a bundle brings them.
const TOGETHER: u64 = 1000;
const READS: u64 = 100_000;
const STARTS: usize = 5;
const DAY: Duration = Duration::from_secs(24 * 3600);

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    idle(report)?;
    let folder = tempfile::tempdir()?;
    let home = folder.path().join("home");
    put(report, &home)?;
    read(report, &home)?;
    start(report, &home)?;
    collect(report, &home)?;
    kills::run(report)
}

fn open(home: &Path) -> anyhow::Result<Store> {
    let home = Some(home.to_owned());
    Ok(Store::open(Options { home, memory_bytes: 256 << 20, relations_bytes: 16 << 20 })?)
}

/// A small object: 40 to 999 bytes, 520 on average.
fn small(number: u64) -> Vec<u8> {
    let len = 40 + (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 960;
    let mut bytes = vec![number as u8; len as usize];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn large(number: u64) -> Vec<u8> {
    let mut bytes = vec![number as u8; LARGE_BYTES];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn put(report: &mut Report, home: &Path) -> anyhow::Result<()> {
    let store = open(home)?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    let mut peer = File::create(home.with_file_name("bare"))?;
    let mut roots = TreeBuilder::new();
    for first in (0..SMALL).step_by(TOGETHER as usize) {
        let objects: Vec<Vec<u8>> = (first..first + TOGETHER).map(small).collect();
        let records: Vec<_> = objects.iter().map(|bytes| BundleRecord::Blob(bytes)).collect();
        let begun = Instant::now();
        let handles = store.put_many(&records)?;
        ours.push(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        peer.write_all(&objects.concat())?;
        peer.sync_data()?;
        bare.push(begun.elapsed().as_secs_f64());
        let tree: TreeBuilder = handles.into_iter().collect();
        let tree = store.put_tree(tree.view())?;
        // Every second thousand gets a name.
        if (first / TOGETHER).is_multiple_of(2) {
            roots.push(tree);
        }
    }
    store.set_label("kept", store.put_tree(roots.view())?)?;
    let begun = Instant::now();
    for number in 0..LARGE {
        store.put_blob(&large(number))?;
    }
    let large_s = begun.elapsed().as_secs_f64();
    let n = ours.len();
    let rate = TOGETHER as f64 / median(ours.clone());
    report.add("small_put_per_s", rate, "1/s", "a thousand together, each time synced", n);
    let ratio = median(ours) / median(bare);
    report.add("put_over_bare_write", ratio, "x", "one write and one sync of the same bytes", n);
    report.add("large_put_mib_per_s", large_mib() / large_s, "MiB/s", "4 MiB each, synced", LARGE as usize);
    Ok(())
}

fn read(report: &mut Report, home: &Path) -> anyhow::Result<()> {
    let store = open(home)?;
    let mut times = Vec::new();
    let mut number = 1_u64;
    for _ in 0..READS {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let wanted = small((number >> 20) % SMALL);
        let handle = Handle::blob(&wanted);
        let begun = Instant::now();
        let object = store.get(handle)?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
        ensure!(object.as_deref() == Some(&wanted[..]), "{handle} is not what was put");
    }
    let n = times.len();
    report.add("small_get_us", median(times), "us", "one of a million by chance, from the disk, verified", n);
    let mut read_s = 0.0;
    for number in 0..LARGE {
        let wanted = large(number);
        let handle = Handle::blob(&wanted);
        let begun = Instant::now();
        let object = store.get(handle)?;
        read_s += begun.elapsed().as_secs_f64();
        ensure!(object.as_deref() == Some(&wanted[..]), "{handle} is not what was put");
    }
    let rate = large_mib() / read_s;
    report.add("large_get_mib_per_s", rate, "MiB/s", "4 MiB each, from the disk, verified", LARGE as usize);
    Ok(())
}

/// All large objects together.
fn large_mib() -> f64 {
    ((LARGE as usize * LARGE_BYTES) >> 20) as f64
}

/// A node on this home, until it says that it is ready.
fn node(home: &Path) -> anyhow::Result<(Child, f64)> {
    let sinew = std::env::current_exe()?.with_file_name("sinew");
    ensure!(sinew.exists(), "{} is missing; run it by `cargo xtask bench store`", sinew.display());
    #[expect(clippy::disallowed_methods, reason = "a node of its own is what is measured")]
    let mut command = Command::new(sinew);
    command.args(["up", "-o", "json", "--listen", "off", "--home"]).arg(home);
    let begun = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
    let took = begun.elapsed().as_secs_f64();
    ensure!(line.contains("\"ready\""), "the node does not start: {line}");
    Ok((child, took))
}

fn start(report: &mut Report, home: &Path) -> anyhow::Result<()> {
    let (mut times, mut resident) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let (mut child, took) = node(home)?;
        let mib = memory_mib(child.id(), "VmRSS");
        child.kill()?;
        child.wait()?;
        times.push(took);
        resident.push(mib?);
    }
    report.add(
        "ready_after_restart_s",
        median(times),
        "s",
        "a million objects, the node killed before",
        STARTS,
    );
    report.add("ready_rss_mib", median(resident), "MiB", "node up, with a million objects", STARTS);
    Ok(())
}

/// A figure of a process's memory, as the kernel calls it.
fn memory_mib(process: u32, name: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let kib = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = kib.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
    Ok(kib.with_context(|| format!("the kernel does not tell {name}"))? / 1024.0)
}

/// What a node without anything takes, after a while.
fn idle(report: &mut Report) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (mut child, _) = node(folder.path())?;
    std::thread::sleep(Duration::from_secs(2));
    let mib = memory_mib(child.id(), "VmRSS");
    child.kill()?;
    child.wait()?;
    report.add("idle_rss_mib", mib?, "MiB", "node up, empty store", 1);
    Ok(())
}

fn collect(report: &mut Report, home: &Path) -> anyhow::Result<()> {
    age(&home.join("packs"))?;
    age(&home.join("objects"))?;
    let store = open(home)?;
    let before = store.stats();
    let resident = memory_mib(std::process::id(), "VmRSS")?;
    // From now on the most that it takes is told anew.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let begun = Instant::now();
    let collected = store.collect(Collection { kept: DAY, is_trial: false, dropping: None }, &Vec::new)?;
    let took = begun.elapsed().as_secs_f64();
    let grown = memory_mib(std::process::id(), "VmHWM")? - resident;
    // The trees of the second thousands, and all that is large.
    let expected = SMALL / 2 + SMALL / TOGETHER / 2 + LARGE;
    ensure!(collected.objects == expected, "{} objects went, not {expected}", collected.objects);
    let kept = store.label("kept")?.context("the label is gone")?;
    let roots = store.get(kept)?.context("what has a name is gone")?;
    for tree in roots.as_tree().iter() {
        let tree = store.get(tree)?.context("a tree is gone")?;
        for blob in tree.as_tree().iter() {
            ensure!(store.contains(blob)?, "{blob} is gone");
        }
    }
    let freed = before.disk_bytes.saturating_sub(store.stats().disk_bytes);
    report.add("collection_s", took, "s", "a million objects, of which half go", 1);
    report.add("collection_mib", grown, "MiB", "by which the process grew at most meanwhile", 1);
    let share = freed as f64 / (collected.bytes as f64);
    report.add("collected_share_freed", share, "x", "bytes by which the home is smaller / of what went", 1);
    Ok(())
}

/// Makes files two days old.
#[expect(clippy::disallowed_methods, reason = "the age of files is in wall time")]
pub(crate) fn age(folder: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        if path.is_dir() {
            age(&path)?;
        } else {
            File::options().write(true).open(path)?.set_modified(SystemTime::now() - 2 * DAY)?;
        }
    }
    Ok(())
}
