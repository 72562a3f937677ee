// SPDX-License-Identifier: Apache-2.0
//! A process that puts, names, computes and collects is killed, again and again: what it
//! said was stored must be there. Every second collection also drops what was computed;
//! what has a name is then there, or can be made again of what is.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use objects::{Handle, TreeBuilder};
use store::{Collection, Dropping, Record, Rule, Store};

use super::{age, open, small};
use crate::figures::Report;

const KILLS: u64 = 500;
/// Objects of which one in so many is large.
const LARGE_EVERY: u64 = 50;

fn bytes(number: u64) -> Vec<u8> {
    match number % LARGE_EVERY {
        7 => vec![number as u8; 66_000 + (number % 1000) as usize],
        _ => small(number),
    }
}

/// A tree with an object, which has a name.
fn tree(number: u64) -> TreeBuilder {
    [Handle::blob(&bytes(number)), Handle::u64(number)].into_iter().collect()
}

/// What the application of this tree gives; no procedure is run here.
fn output(application: Handle) -> Vec<u8> {
    let seed = application.definition();
    let len = if seed.hash_bytes()[0].is_multiple_of(8) { 70_000 } else { 5_000 };
    seed.as_bytes().iter().copied().cycle().take(len).collect()
}

/// Computes something, as an evaluator would, and names it.
fn compute(store: &Store, number: u64) -> anyhow::Result<()> {
    let procedure = store.keep_blob(b"(a module that makes a blob of its arguments)");
    let tree: TreeBuilder = [Handle::blob(b""), procedure, Handle::u64(number)].into_iter().collect();
    let application = store.keep_tree(tree.view()).application().context("no application")?;
    let result = store.keep_blob(&output(application));
    store.relations().insert(application, Record { result, rule: Rule::Apply, nanos: 60_000, fuel: 0 });
    store.set_label(&format!("made/{number}"), result)?;
    Ok(())
}

/// Everything that was computed may be dropped.
const ALL: Dropping = Dropping { bytes_min: 0, nanos_per_kib: u64::MAX };

/// The process that is killed: `store-child HOME ROUND`.
pub(crate) fn child() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(2);
    let home = PathBuf::from(arguments.next().context("no home")?);
    let round: u64 = arguments.next().context("no round")?.parse()?;
    let store = open(&home)?;
    let mut output = std::io::stdout().lock();
    for step in 0..u64::from(u32::MAX) {
        let number = (round << 32) | step;
        store.put_blob(&bytes(number))?;
        if step % 3 == 0 {
            store.set_label(&format!("label/{number}"), store.put_tree(tree(number).view())?)?;
        }
        if step % 5 == 0 {
            compute(&store, number)?;
        }
        if step % 16 == round % 16 {
            let dropping = round.is_multiple_of(2).then_some(ALL);
            store.collect(Collection { kept: Collection::KEPT_MIN, is_trial: false, dropping }, &Vec::new)?;
        }
        writeln!(output, "{step}")?;
        output.flush()?;
    }
    Ok(())
}

pub(super) fn run(report: &mut Report) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut lost = 0;
    let mut objects = 0;
    for round in 0..KILLS {
        let last = kill_one(folder.path(), round)?;
        objects += last + 1;
        let store = open(folder.path())?;
        lost += check(&store, round, last)?;
        // Only what has a name is to be there after the next collections.
        age(&folder.path().join("packs"))?;
        age(&folder.path().join("objects"))?;
    }
    let store = open(folder.path())?;
    let mut made_again = 0;
    for (label, handle) in store.labels()? {
        lost += match label.starts_with("made/") {
            true => u64::from(!can_be_had(&store, handle, &mut made_again)?),
            false => u64::from(!is_whole(&store, handle)?),
        };
    }
    ensure!(made_again > 0, "nothing was dropped");
    report.add("lost_or_corrupt_after_kills", lost as f64, "", "objects and labels", KILLS as usize);
    report.note(format!(
        "{objects} objects were acknowledged before {KILLS} kills; {made_again} were dropped and can be made again"
    ));
    Ok(())
}

/// The last step that was acknowledged.
fn kill_one(home: &Path, round: u64) -> anyhow::Result<u64> {
    #[expect(clippy::disallowed_methods, reason = "a process of its own is what is killed")]
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("store-child").arg(home).arg(round.to_string());
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let mut last = 0;
    for _ in 0..1 + round * 7 % 40 {
        last = lines.next().context("the process ended by itself")??.parse()?;
    }
    std::thread::sleep(Duration::from_micros(round * 137 % 5000));
    child.kill()?;
    child.wait()?;
    // What it had said before it was killed. The last line may be cut off.
    for line in lines.map_while(Result::ok) {
        last = line.parse().map_or(last, |step: u64| step.max(last));
    }
    Ok(last)
}

/// How much of what was acknowledged is not there, or not as it was.
fn check(store: &Store, round: u64, last: u64) -> anyhow::Result<u64> {
    let mut lost = 0;
    for number in (0..=last).map(|step| (round << 32) | step) {
        let expected = bytes(number);
        let found = store.get(Handle::blob(&expected))?;
        lost += u64::from(found.as_deref() != Some(&expected[..]));
        if number % (1 << 32) % 3 == 0 {
            let named = store.label(&format!("label/{number}"))?;
            lost += u64::from(named != Some(tree(number).view().handle()));
        }
    }
    Ok(lost + store.stats().corrupt)
}

/// Whether what was computed is here, or all that it is made of.
fn can_be_had(store: &Store, handle: Handle, made_again: &mut u64) -> anyhow::Result<bool> {
    if store.get(handle)?.is_some() {
        return Ok(true);
    }
    let Some(recipe) = store.recipe(handle)? else { return Ok(false) };
    *made_again += 1;
    let gives_it = Handle::blob(&output(recipe.application)) == handle;
    Ok(gives_it && is_whole(store, recipe.application.definition())?)
}

fn is_whole(store: &Store, handle: Handle) -> anyhow::Result<bool> {
    if handle.literal_bytes().is_some() {
        return Ok(true);
    }
    let Some(object) = store.get(handle)? else { return Ok(false) };
    if !handle.names_tree() {
        return Ok(true);
    }
    for entry in object.as_tree().iter() {
        if !is_whole(store, entry)? {
            return Ok(false);
        }
    }
    Ok(true)
}
