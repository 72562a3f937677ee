// SPDX-License-Identifier: Apache-2.0
//! A process that puts, names and collects is killed, again and again: what it
//! said was stored must be there.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use objects::{Handle, TreeBuilder};
use store::{Collection, Store};

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

/// The process that is killed: `store-child HOME ROUND`.
pub(crate) fn child() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(2);
    let home = PathBuf::from(arguments.next().context("no home")?);
    let round: u64 = arguments.next().context("no round")?.parse()?;
    let store = open(&home)?;
    let collection = Collection { kept: Collection::KEPT_MIN, is_trial: false, dropping: None };
    let mut output = std::io::stdout().lock();
    for step in 0..u64::from(u32::MAX) {
        let number = (round << 32) | step;
        store.put_blob(&bytes(number))?;
        if step % 3 == 0 {
            store.set_label(&format!("label/{number}"), store.put_tree(tree(number).view())?)?;
        }
        if step % 16 == round % 16 {
            store.collect(collection, &Vec::new)?;
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
    for (_, handle) in store.labels()? {
        lost += u64::from(!is_whole(&store, handle)?);
    }
    report.add("lost_or_corrupt_after_kills", lost as f64, "", "objects and labels", KILLS as usize);
    report.note(format!("{objects} objects were acknowledged before {KILLS} kills"));
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

fn is_whole(store: &Store, handle: Handle) -> anyhow::Result<bool> {
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
