// SPDX-License-Identifier: Apache-2.0
//! A process that opens the home, looks keys up, and tells what it took.

use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use evaluator::{Priority, Progress};
use node::{Node, Options};
use objects::{Handle, Limits, Part, Selection, TreeBuilder};
use serde_json::json;

use super::Grown;
use super::titles;

/// Sets of keys that a process looks up.
const SETS: usize = 3;

/// What a set took.
pub(super) struct Told {
    pub(super) wall_us: f64,
    pub(super) cpu_us: f64,
    pub(super) read_bytes: u64,
    pub(super) memory_kib: u64,
    /// The same for as many other keys, right after.
    pub(super) again_us: f64,
    /// And for as many others that are handed to a worker, one after another, and waited for.
    pub(super) queued_us: f64,
}

/// A small tree that a process looks up keys in before it is measured, as Ray does a set:
/// what a process does for the first time takes longer, whatever it is.
pub(super) struct Warming {
    root: Handle,
}

impl Warming {
    const KEYS: usize = 4096;
    const ARITY: usize = 64;
    /// Keys that are looked up in it.
    const SOUGHT: usize = 64;

    pub(super) fn plant(home: &Path, folder: &Path) -> anyhow::Result<Self> {
        let lines: String = (0..Self::KEYS).map(|at| format!("{}\twarm {at}\n", Self::key(at))).collect();
        let path = folder.join("warming.tsv");
        std::fs::write(&path, lines)?;
        Ok(Self { root: super::put_keys(home, &path, Self::ARITY)? })
    }

    fn key(at: usize) -> String {
        format!("a key of another tree {at:04}")
    }

    fn sought() -> impl Iterator<Item = String> {
        (0..Self::SOUGHT).map(|at| Self::key(at * (Self::KEYS / Self::SOUGHT)))
    }
}

/// `bptree-child HOME ROOT WARMING`: keys come on standard input. Of the trees there are the roots.
pub(super) fn in_a_process(grown: &Grown<'_>, queries: &[usize]) -> anyhow::Result<Told> {
    let Grown { home, root, titles, warming, .. } = grown;
    // The next keys are of no set.
    let apart =
        |part: usize| queries.iter().map(move |query| (query + titles.len() / 3 * part) % titles.len());
    let next: Vec<usize> = apart(1).chain(apart(2)).collect();
    #[expect(clippy::disallowed_methods, reason = "a process of its own has nothing in memory")]
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bptree-child"]).arg(home).args([root.to_string(), warming.root.to_string()]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("no input")?;
    for &query in queries.iter().chain(&next) {
        input.write_all(titles.get(query))?;
        input.write_all(b"\n")?;
    }
    drop(input);
    let ended = child.wait_with_output()?;
    ensure!(ended.status.success(), "the process that looks up ended badly");
    let told: serde_json::Value = serde_json::from_slice(&ended.stdout)?;
    for (found, &query) in
        told["found"].as_array().context("it found nothing")?.iter().zip(queries.iter().chain(&next))
    {
        let expected = Handle::blob(&titles::value(query)).to_string();
        ensure!(found.as_str() == Some(&expected), "key {query} gave {found} and not {expected}");
    }
    let number = |name: &str| told[name].as_f64().context("it tells too little");
    Ok(Told {
        wall_us: number("wall_us")?,
        cpu_us: number("cpu_us")?,
        read_bytes: number("read_bytes")? as u64,
        memory_kib: number("memory_kib")? as u64,
        again_us: number("again_us")?,
        queued_us: number("queued_us")?,
    })
}

pub(crate) fn child() -> anyhow::Result<()> {
    let (home, root, warming) = asked()?;
    let keys = std::io::stdin().lock().split(b'\n').collect::<Result<Vec<_>, _>>()?;
    let mut sets = keys.chunks(keys.len().div_ceil(SETS));
    let mut set = || sets.next().context("too few keys");
    let (first, next, queued) = (set()?, set()?, set()?);
    let options = Options { home: Some(home), workers: Some(1), ..Options::default() };
    let node = Node::start(&options)?;
    let (find, limits) = prepare(&node)?;
    let goal_in = |root: Handle, key: &[u8]| goal_in(&node, (find, limits), root, key);
    let goal = |key: &[u8]| goal_in(root, key);
    let (mut evaluator, mut executor) = node.private_worker();
    // As a worker does it, but on this thread. What the kernel had to fetch from a disk is
    // waited for as any other request.
    let mut evaluate = |goal: Handle| {
        let request = node.scheduler().private_request(goal, Priority::Normal);
        executor.begin(&request);
        let progress = evaluator.evaluate(&mut executor, &request, goal);
        executor.end();
        match progress {
            Progress::Finished(result) => Some(result),
            _ => node.evaluate_blocking(goal),
        }
    };
    warm_up(&node, find, limits, first, &mut evaluate)?;
    for key in Warming::sought() {
        let found = evaluate(goal_in(warming, key.as_bytes())?).context("the node is full")?;
        ensure!(!found.is_failure(), "a key of the small tree gave {found}");
    }
    // What of it is worth remembering is written now, and not beside what is measured.
    node.store().flush_relations()?;
    let mut found = Vec::new();
    // The process grows from here on.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let before = (node.store().stats().disk_read_bytes, linux::process_cpu_ns()?, resident("VmRSS")?);
    let begun = Instant::now();
    for key in first {
        found.push(evaluate(goal(key)?).context("the node is full")?);
    }
    let wall = begun.elapsed();
    let after = (node.store().stats().disk_read_bytes, linux::process_cpu_ns()?, resident("VmHWM")?);
    let begun = Instant::now();
    for key in next {
        found.push(evaluate(goal(key)?).context("the node is full")?);
    }
    let again = begun.elapsed();
    let begun = Instant::now();
    for key in queued {
        found.push(node.evaluate_blocking(goal(key)?).context("the node is full")?);
    }
    let handed = begun.elapsed();
    let found: Vec<String> = found.iter().map(Handle::to_string).collect();
    println!(
        "{}",
        json!({
            "found": found,
            "wall_us": wall.as_nanos() as f64 / 1e3,
            "again_us": again.as_nanos() as f64 / 1e3,
            "queued_us": handed.as_nanos() as f64 / 1e3,
            "read_bytes": after.0 - before.0,
            "cpu_us": (after.1 - before.1) as f64 / 1e3,
            "memory_kib": after.2.saturating_sub(before.2),
        })
    );
    node.shut_down();
    Ok(())
}

/// The home, and the roots of the trees.
fn asked() -> anyhow::Result<(PathBuf, Handle, Handle)> {
    let mut arguments = std::env::args().skip(2);
    let home = PathBuf::from(arguments.next().context("no home")?);
    let mut root = || -> anyhow::Result<Handle> {
        let root: Handle = arguments.next().context("no root")?.parse()?;
        root.lowered().context("a root is a tree")
    };
    Ok((home, root()?, root()?))
}

/// The codelet, compiled, and the limits of an application of it.
fn prepare(node: &Node) -> anyhow::Result<(Handle, Handle)> {
    let codelet = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/guests/find-key.wasm"));
    let find = node.store().keep_blob(&codelet.context("no codelets: run `make guests`")?);
    let limits = Limits { memory_bytes: 1 << 20, fuel: 1_000_000, ..Limits::default() };
    node.prepare(find, &limits).map_err(|fault| anyhow::anyhow!("{fault}"))?;
    Ok((find, limits.handle().context("limits")?))
}

/// The application of the codelet to a key and a tree.
fn goal_in(
    node: &Node,
    (find, limits): (Handle, Handle),
    root: Handle,
    key: &[u8],
) -> anyhow::Result<Handle> {
    let selection = Selection { target: root, part: Part::Element(0) }.to_tree();
    let keys = node.store().keep_tree(selection.view()).selection().and_then(Handle::strict);
    let key = node.store().keep_blob(key);
    let tree: TreeBuilder = [limits, find, key, keys.context("a selection")?, root].into_iter().collect();
    let thunk = node.store().keep_tree(tree.view()).application();
    thunk.and_then(Handle::strict).context("a tree can be applied")
}

/// What a node does once: the first pages of its tables, the first sandbox. Keys are looked
/// up in a tree of one key, in which they are not; others each time, for some of that is remembered.
fn warm_up(
    node: &Node,
    find: Handle,
    limits: Handle,
    set: &[Vec<u8>],
    evaluate: &mut impl FnMut(Handle) -> Option<Handle>,
) -> anyhow::Result<()> {
    const TIMES: u64 = 2000;
    let store = node.store();
    let of_set = Handle::blob(&set.concat());
    let keys = [0_u32, 1, 0, 1].map(u32::to_le_bytes).concat();
    let keys = store.keep_blob(&[&keys[..], b"k"].concat());
    let entries: TreeBuilder = [keys, Handle::u64(0)].into_iter().collect();
    let root = store.keep_tree(entries.view()).lowered().context("a root is a tree")?;
    for time in 0..TIMES {
        let key = store.keep_blob(format!("no such key: {time} of {of_set}").as_bytes());
        let tree: TreeBuilder = [limits, find, key, keys, root].into_iter().collect();
        let goal = store.keep_tree(tree.view()).application().and_then(Handle::strict);
        let goal = goal.context("a goal")?;
        let is_queued = time % 2 == 1;
        let result = if is_queued { node.evaluate_blocking(goal) } else { evaluate(goal) };
        let result = result.context("the node is full")?;
        ensure!(result.is_failure(), "a key that is not there was found: {result}");
    }
    Ok(())
}

/// A line of `/proc/self/status`, in KiB.
fn resident(name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().strip_suffix(" kB"));
    Ok(line.context("the kernel does not tell it")?.trim().parse()?)
}
