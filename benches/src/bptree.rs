// SPDX-License-Identifier: Apache-2.0
//! `bptree`: keys are looked up in search trees of 6 million keys of some 22 bytes, of
//! several arities, as in section 5.4 of the Fix paper.
//!
//! `sinew put --keys` plants the trees; the codelet `find-key` looks up, a node of the
//! tree an application. A set is ten keys by chance, one after another, by a process
//! that has just opened the home: nothing is in its memory and nothing remembered. The
//! peer is Ray in both of its styles, whose workers are up, and which has in its memory
//! what lies on the paths (it could not hold 6 million references).

mod look_up;
mod peer;
mod titles;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use objects::{Handle, TreeBuilder};
use store::Store;

use crate::figures::{Report, median};
use crate::page_cache;
use look_up::Told;
use peer::{Data, Ray, STYLES, Took};
use titles::Titles;

pub(crate) use look_up::child;

const ENTRIES: usize = 6_000_000;
const QUERIES: usize = 10;
/// A tree that is one node is made by this bench: `sinew put` makes none with more than a million children.
const WHOLE: usize = 1 << 24;
const ARITIES: [usize; 5] = [WHOLE, 1 << 12, 1 << 10, 1 << 8, 1 << 6];
const SETS: usize = 16;
/// Added to the seeds of sets that are looked up where the kernel has nothing of the files.
const COLD: u64 = 1 << 40;
/// Sets in trees of nodes from this arity on, what is on the paths of which Ray takes up to a minute to hold, and
/// in that of one node a minute more to look keys up in.
const LARGE: usize = 1 << 10;
const SETS_LARGE: usize = 3;

pub(crate) const OPTIONS: &[&str] = &["entries", "arities", "sets"];

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let entries = report.options.number("entries", ENTRIES as u64)? as usize;
    ensure!(entries >= 100, "--entries is 100 at least");
    let asked = report.options.words("arities").iter().map(|word| word.parse()).collect::<Result<_, _>>();
    let mut arities: Vec<usize> = asked.context("--arities are numbers")?;
    if arities.is_empty() {
        arities = ARITIES.to_vec();
    }
    let folder = tempfile::tempdir()?;
    let titles = Titles::make(entries);
    let lines = folder.path().join("titles.tsv");
    titles.write(&lines)?;
    report.note(format!("{entries} keys of {:.1} bytes on average", titles.average_len()));
    let home = folder.path().join("home");
    let warming = look_up::Warming::plant(&home, folder.path())?;
    let mut roots = Vec::new();
    for &arity in &arities {
        roots.push(plant(&home, &titles, &lines, arity)?);
    }
    let mut worst = 0_f64;
    for (&arity, &root) in arities.iter().zip(&roots) {
        let usual = if arity >= LARGE { SETS_LARGE } else { SETS };
        let sets = report.options.number("sets", usual as u64)? as usize;
        let grown = Grown { home: &home, titles: &titles, lines: &lines, arity, root, warming: &warming };
        worst = worst.max(measure(report, &grown, sets)?);
    }
    let meaning = "bytes of the nodes on the paths, keys included; the worst of the arities";
    report.add("bytes_read_over_path_bytes", worst, "x", meaning, SETS);
    Ok(())
}

/// A tree that was planted.
struct Grown<'a> {
    home: &'a Path,
    titles: &'a Titles,
    lines: &'a Path,
    arity: usize,
    root: Handle,
    warming: &'a look_up::Warming,
}

/// How many bytes were read for each on the paths.
fn measure(report: &mut Report, grown: &Grown<'_>, sets: usize) -> anyhow::Result<f64> {
    let arity = grown.arity;
    let mut ray = report.peer("Ray", || Ray::start(grown.lines, arity));
    let (mut ours, mut from_disk) = (Vec::new(), Vec::new());
    let mut theirs: [Vec<Took>; STYLES.len()] = Default::default();
    // The first set warms Ray up; ours is a new process each time.
    for set in 0..=sets {
        let queries = grown.titles.choose(QUERIES, (arity + set) as u64);
        // The kernel drops what nobody has read for a while, as it likes. Other keys: what took long is remembered.
        page_cache::forget(grown.home)?;
        let others = grown.titles.choose(QUERIES, (arity + set) as u64 + COLD);
        let cold = look_up::in_a_process(grown, &others)?;
        page_cache::fill(grown.home)?;
        let told = look_up::in_a_process(grown, &queries)?;
        let path = path_bytes(grown, &queries)?;
        if set > 0 {
            ours.push((told, path));
            from_disk.push(cold.wall_us);
        }
        if let Some(waiting) = &mut ray
            && !ask(waiting, set, &queries, &mut theirs)?
        {
            let limit = peer::PLANTING_LIMIT.as_secs();
            report.note(format!("Ray did not come to hold nodes of {arity} children within {limit} s"));
            ray = None;
        }
    }
    let each = |figure: fn(&(Told, u64)) -> f64| median(ours.iter().map(figure).collect());
    let ours_us = each(|(told, _)| told.wall_us);
    report.add(
        &format!("set_us_{arity}"),
        ours_us,
        "us",
        "ten keys, nothing in memory, files in the kernel's cache",
        sets,
    );
    let meaning = "ten others, where the kernel had nothing of the home's files before the node began";
    report.add(&format!("disk_us_{arity}"), median(from_disk), "us", meaning, sets);
    report.add(&format!("again_us_{arity}"), each(|(told, _)| told.again_us), "us", "ten others, then", sets);
    let queued = each(|(told, _)| told.queued_us);
    report.add(&format!("queued_us_{arity}"), queued, "us", "ten others, each handed to a worker", sets);
    let cpu = each(|(told, _)| told.cpu_us);
    report.add(&format!("set_cpu_us_{arity}"), cpu, "us", "CPU of the process for the first ten", sets);
    let read = each(|(told, _)| told.read_bytes as f64);
    report.add(&format!("set_read_kib_{arity}"), read / 1024.0, "KiB", "read from files for them", sets);
    let share = each(|(told, path)| told.read_bytes as f64 / *path as f64);
    report.add(
        &format!("bytes_read_over_path_bytes_{arity}"),
        share,
        "x",
        "bytes of the nodes on the paths",
        sets,
    );
    let memory = each(|(told, _)| told.memory_kib as f64);
    report.add(&format!("set_memory_kib_{arity}"), memory, "KiB", "by which the process grew at most", sets);
    compare(report, arity, ours_us, &theirs);
    Ok(share)
}

/// Has Ray look a set up in each of its styles. Whether it holds what it is asked for.
fn ask(
    ray: &mut Ray,
    set: usize,
    queries: &[usize],
    theirs: &mut [Vec<Took>; STYLES.len()],
) -> anyhow::Result<bool> {
    for (style, times) in STYLES.into_iter().zip(theirs) {
        // A style that took too long would take so again.
        if times.iter().any(|took| took.whole.is_none()) {
            continue;
        }
        let Some(took) = ray.look_up(style, queries)? else { return Ok(false) };
        if set > 0 || took.whole.is_none() {
            times.push(took);
        }
    }
    Ok(true)
}

/// What Ray took, and how many times less we did.
fn compare(report: &mut Report, arity: usize, ours_us: f64, theirs: &[Vec<Took>; STYLES.len()]) {
    let mut fastest: Option<Took> = None;
    for (style, times) in STYLES.into_iter().zip(theirs) {
        let us = median(times.iter().map(|took| took.us).collect());
        let (took, meaning) = match times.iter().find(|took| took.whole.is_none()) {
            Some(least) => (*least, "Ray, at least: it was not waited for any longer"),
            None if times.is_empty() => continue,
            None => (Took { us, ..times[0] }, "Ray, the same ten keys, all in its memory"),
        };
        report.add(&format!("ray_{style}_us_{arity}"), took.us, "us", meaning, times.len());
        let known: Vec<Data> = times.iter().filter_map(|took| took.whole).collect();
        if !known.is_empty() {
            let each = |figure: fn(&Data) -> f64| median(known.iter().map(figure).collect());
            let read = each(|data| data.read_kib);
            let meaning = "of the nodes on the paths, as Ray keeps them";
            report.add(&format!("ray_{style}_read_kib_{arity}"), read, "KiB", meaning, known.len());
            let memory = each(|data| data.memory_kib);
            let meaning = "by which Ray's workers grew at most";
            report.add(&format!("ray_{style}_memory_kib_{arity}"), memory, "KiB", meaning, known.len());
        }
        if fastest.is_none_or(|fastest| took.us < fastest.us) {
            fastest = Some(took);
        }
    }
    let Some(took) = fastest else { return };
    let meaning =
        if took.whole.is_some() { "Ray's faster style" } else { "at least: Ray was not waited for" };
    report.add(&format!("times_faster_than_ray_{arity}"), took.us / ours_us, "x", meaning, theirs[0].len());
}

/// A node on the home, which takes what `sinew put --keys` sends it.
fn plant(home: &Path, titles: &Titles, lines: &Path, arity: usize) -> anyhow::Result<Handle> {
    eprintln!("  planting the tree of arity {arity}");
    if arity >= WHOLE {
        return plant_one_node(home, titles);
    }
    put_keys(home, lines, arity)
}

/// Has `sinew put --keys` make a tree.
fn put_keys(home: &Path, lines: &Path, arity: usize) -> anyhow::Result<Handle> {
    let node = Serving::start(home)?;
    let mut command = sinew()?;
    command
        .args(["--node"])
        .arg(home.join("node.sock"))
        .args(["put", "--keys", &arity.to_string()])
        .arg(lines);
    let put = command.output()?;
    ensure!(put.status.success(), "sinew put --keys: {}", String::from_utf8_lossy(&put.stderr));
    drop(node);
    Ok(String::from_utf8(put.stdout)?.trim().parse()?)
}

fn open(home: &Path) -> anyhow::Result<Store> {
    let home = Some(home.to_owned());
    Ok(Store::open(store::Options { home, memory_bytes: 1 << 30, relations_bytes: 16 << 20 })?)
}

fn plant_one_node(home: &Path, titles: &Titles) -> anyhow::Result<Handle> {
    let store = open(home)?;
    let (mut keys, mut bytes) = (vec![0_u32, titles.len() as u32, 0], Vec::new());
    let mut tree = TreeBuilder::with_capacity(1 + titles.len());
    for title in titles.iter() {
        bytes.extend_from_slice(title);
        keys.push(bytes.len() as u32);
    }
    let keys: Vec<u8> = keys.into_iter().flat_map(u32::to_le_bytes).chain(bytes).collect();
    tree.push(store.put_blob(&keys)?);
    (0..titles.len()).for_each(|index| _ = tree.push(Handle::blob(&titles::value(index))));
    Ok(store.put_tree(tree.view())?)
}

/// The bytes of all nodes, keys included, on the paths to keys.
fn path_bytes(grown: &Grown<'_>, queries: &[usize]) -> anyhow::Result<u64> {
    let store = open(grown.home)?;
    let levels = (1..).find(|levels| grown.arity.pow(*levels) >= grown.titles.len()).context("no levels")?;
    let mut seen = BTreeSet::new();
    for &query in queries {
        let mut node = grown.root;
        for level in (0..levels).rev() {
            let object = store.get(node)?.context("a node is missing")?;
            let entries = object.as_tree();
            seen.insert(node);
            seen.insert(entries.get(0).context("a node without keys")?);
            let at = query / grown.arity.pow(level) % grown.arity;
            node = entries.get(1 + at).context("a child is missing")?;
        }
        ensure!(node == Handle::blob(&titles::value(query)), "the path to key {query} leads elsewhere");
    }
    Ok(seen.iter().map(|handle| if handle.names_tree() { handle.size() * 32 } else { handle.size() }).sum())
}

fn sinew() -> anyhow::Result<Command> {
    let sinew: PathBuf = std::env::current_exe()?.with_file_name("sinew");
    ensure!(sinew.exists(), "{} is missing; run it by `cargo xtask bench bptree`", sinew.display());
    #[expect(clippy::disallowed_methods, reason = "the node and its client are programs of their own")]
    Ok(Command::new(sinew))
}

/// A node that ends when it is dropped.
struct Serving(Child);

impl Serving {
    fn start(home: &Path) -> anyhow::Result<Self> {
        use std::io::BufRead as _;
        let mut command = sinew()?;
        command.args(["up", "-o", "json", "--listen", "off", "--home"]).arg(home);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        if !line.contains("\"ready\"") {
            bail!("the node does not start: {line}");
        }
        Ok(Self(child))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // What was put is synced.
        _ = self.0.kill();
        _ = self.0.wait();
        _ = std::io::stderr().flush();
    }
}
