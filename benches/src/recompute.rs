// SPDX-License-Identifier: Apache-2.0
//! `recompute`: ten thousand objects are computed, dropped, and read through a node that
//! has to make each of them again.
//!
//! They are of 4 to 128 KiB, alone or parts of trees, in chains of up to ten, of which each link is an
//! input of the next. All are read twice by a client over HTTP: from the disk of a node that
//! has just begun, which is the peer, and after they were dropped, by another one. Every byte is
//! compared with what an independent loop here says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use node::{Node, Options as NodeOptions};
use objects::{Handle, Limits, TreeBuilder};
use store::{Collected, Collection, Dropping, Options, Store};

use crate::figures::{Report, median};
use crate::storing::age;
use crate::warm::servers::{Server, free_address, sinew};

const OBJECTS: u64 = 10_000;
/// Links of the longest chains.
const DEPTH_MAX: u64 = 10;
const SIZES: [u64; 4] = [4 << 10, 16 << 10, 64 << 10, 128 << 10];
/// What each application writes: what takes less than 50 µs is not remembered over an end of the node.
const WRITTEN_BYTES: u64 = 8 << 20;
/// Objects that are read alone.
const ALONE: usize = 25;
const DAY: Duration = Duration::from_secs(24 * 3600);
const FILL: &str = include_str!("../wat/fill.wat");

/// An object, and what is needed to know its bytes without asking anybody.
struct Made {
    object: Handle,
    hash: blake3::Hash,
}

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let home = folder.path().join("home");
    let made = make(&home)?;
    age_all(&home)?;
    let (from_disk, wrong_before) = read_all(&home, folder.path(), &made)?;
    ensure!(wrong_before == 0, "{wrong_before} objects were wrong before anything was dropped");
    age_all(&home)?;
    let dropped = drop_all(&home)?;
    let (again, wrong) = read_all(&home, folder.path(), &made)?;
    age_all(&home)?;
    drop_all(&home)?;
    let first = alone(&home, folder.path(), &made, 0)?;
    let last = alone(&home, folder.path(), &made, DEPTH_MAX - 1)?;
    let n = made.len();
    report.add("wrong", wrong as f64, "", "of what was dropped, read byte by byte", n);
    report.add("dropped", dropped.dropped as f64, "", "all of them", n);
    report.add("first_link_alone_us", median(first), "us", "all that its node is asked for, one made", ALONE);
    report.add("last_link_alone_us", median(last), "us", "the same, ten made, one for the other", ALONE);
    let (again_mean, from_disk_mean) = (mean(&again), mean(&from_disk));
    report.add("recomputed_mean_us", again_mean, "us", "all of them, in an order by chance", n);
    report.add("from_disk_mean_us", from_disk_mean, "us", "peer: the same from the disk", n);
    let (again, from_disk) = (median(again), median(from_disk));
    report.add("recomputed_us", again, "us", "one object over HTTP, made again with what it needs", n);
    report.add("from_disk_us", from_disk, "us", "peer: the same objects read from the disk", n);
    report.add("recomputed_over_from_disk", again / from_disk, "x", "the same run", n);
    let mib = dropped.dropped_bytes >> 20;
    let took = dropped.dropped_nanos as f64 / 1e9;
    report.note(format!("{mib} MiB were dropped, whose making took {took:.1} s"));
    ensure!(dropped.dropped == OBJECTS, "{} objects were dropped, not {OBJECTS}", dropped.dropped);
    Ok(())
}

fn age_all(home: &Path) -> anyhow::Result<()> {
    age(&home.join("packs"))?;
    age(&home.join("objects"))
}

fn content(seed: u64, len: u64, before: &[u8], rounds: u64) -> Vec<u8> {
    let first = before.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let mut x = seed.wrapping_mul(3).wrapping_add(first);
    let mut bytes = vec![0; len as usize];
    for _ in 0..rounds {
        for place in bytes.as_chunks_mut::<8>().0 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *place = x.to_le_bytes();
        }
    }
    bytes
}

/// Has a node compute all of them, and names them.
fn make(home: &Path) -> anyhow::Result<Vec<Made>> {
    let node = Node::start(&NodeOptions { home: Some(home.to_owned()), ..NodeOptions::default() })?;
    let store = node.store();
    let fill = store.put_blob(&wat::parse_str(FILL)?)?;
    let limits = Limits { memory_bytes: 4 << 20, ..Limits::default() }.handle().context("no limits")?;
    let mut made: Vec<Made> = Vec::new();
    let mut names = TreeBuilder::new();
    let mut before = (Handle::u64(0), Vec::new());
    for number in 0..OBJECTS {
        if number % DEPTH_MAX == 0 {
            before = (Handle::u64(0), Vec::new());
        }
        let len = SIZES[(number / 3) as usize % SIZES.len()];
        let rounds = WRITTEN_BYTES / len;
        let numbers = [number + 1, len].map(Handle::u64);
        let is_part = number % 7 == 0;
        let mut entries = vec![limits, fill, numbers[0], numbers[1], before.0, Handle::u64(rounds)];
        entries.extend(is_part.then(|| Handle::u64(1)));
        let tree: TreeBuilder = entries.into_iter().collect();
        let application = store.keep_tree(tree.view()).application().context("no application")?;
        let goal = application.strict().context("no goal")?;
        let result = node.evaluate_blocking(goal).context("the node takes no request")?;
        let bytes = content(number + 1, len, &before.1, rounds);
        let object = Handle::blob(&bytes);
        let named = if is_part {
            [object, object].into_iter().collect::<TreeBuilder>().view().handle()
        } else {
            object
        };
        ensure!(result == named, "{number} gave {result}, not {named}");
        names.push(result);
        made.push(Made { object, hash: blake3::hash(&bytes) });
        before = (object, bytes);
    }
    store.flush_relations()?;
    let names = store.keep_tree(names.view());
    store.set_label("all", names)?;
    node.shut_down();
    Ok(made)
}

fn drop_all(home: &Path) -> anyhow::Result<Collected> {
    let options = Options { home: Some(home.to_owned()), memory_bytes: 256 << 20, relations_bytes: 64 << 20 };
    let store = Store::open(options)?;
    let dropping = Some(Dropping { bytes_min: 0, nanos_per_kib: u64::MAX });
    Ok(store.collect(Collection { kept: DAY, is_trial: false, dropping }, &Vec::new)?)
}

/// Reads every object through a node that has just begun, in an order that has nothing to do with
/// how they were made. What each took in microseconds, and how many were wrong.
fn read_all(home: &Path, folder: &Path, made: &[Made]) -> anyhow::Result<(Vec<f64>, u64)> {
    let address = free_address()?;
    #[expect(clippy::disallowed_methods, reason = "the node runs as its users run it")]
    let mut up = Command::new(sinew()?);
    up.arg("up").arg("--home").arg(home).args(["--listen", &address.to_string()]);
    let _node = Server::start(&mut up, address, &folder.join("node.log"))?;
    let mut stream = BufReader::new(TcpStream::connect(address)?);
    let (mut times, mut wrong) = (Vec::new(), 0);
    for step in 0..made.len() {
        let Made { object, hash } = &made[step * 7919 % made.len()];
        let begun = Instant::now();
        let (status, body) = get(&mut stream, *object)?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
        wrong += u64::from(status != 200 || blake3::hash(&body) != *hash);
    }
    Ok((times, wrong))
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

/// What one object takes of which nothing is in memory, the link of a chain: each is read by a
/// node that has just begun and is asked for nothing else.
fn alone(home: &Path, folder: &Path, made: &[Made], link: u64) -> anyhow::Result<Vec<f64>> {
    let mut times = Vec::new();
    for chain in 0..ALONE as u64 {
        // Of all sizes; first and last links of different chains, so that none is there by another.
        let apart = OBJECTS / DEPTH_MAX / ALONE as u64;
        let number = (chain * apart + link * apart / DEPTH_MAX) * DEPTH_MAX + link;
        let one = made.get(number as usize..).and_then(|made| made.get(..1)).context("no such object")?;
        let (took, wrong) = read_all(home, folder, one)?;
        ensure!(wrong == 0, "{} was made again wrong", one[0].object);
        times.extend(took);
    }
    Ok(times)
}

/// One request on a connection that stays open.
fn get(stream: &mut BufReader<TcpStream>, object: Handle) -> anyhow::Result<(u16, Vec<u8>)> {
    let request = format!("GET /v1/objects/{object} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.get_mut().write_all(request.as_bytes())?;
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no status")?;
    let mut len = 0;
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        if line.trim_end().is_empty() {
            break;
        }
        let header = line.to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            len = value.trim().parse()?;
        }
    }
    let mut body = vec![0; len];
    stream.read_exact(&mut body)?;
    Ok((status, body))
}
