// SPDX-License-Identifier: Apache-2.0
//! All that is read of an application of a program, and no program: for tests and fuzzing of
//! what is decoded from outside, in this crate and in others.

use objects::{Handle, Limits, TreeView};
use store::Store;

use super::errno::{Result, Stop};
use super::files::{Kind, NodeId};
use super::means::{Means, malformed};
use super::options::{Entry, Options};
use super::process::Process;
use super::snapshot::Snapshot;
use crate::Fault;
use crate::wasm::table::Budget;

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rehearsal {
    /// Words that say the same, in an order of their own.
    pub words: Vec<Handle>,
    /// Files, links and directories that a program could find.
    pub found: usize,
    /// The directories that would be in the result, of which nothing was changed.
    pub kept: Vec<Handle>,
    /// The state of the snapshot that it goes on from, written again.
    pub state: Option<Handle>,
}

/// Reads the words of an application, the description of its snapshot, all its directories, and where their links
/// lead; nothing is run.
///
/// # Errors
/// As the application would fail, if its program looked at everything.
pub fn rehearse(
    application: TreeView<'_>,
    store: &Store,
    limits: Limits,
) -> std::result::Result<Rehearsal, Fault> {
    let mut budget = Budget::new(limits.memory_bytes, 0);
    let mut means = Means { store, budget: &mut budget, now: 0 };
    let read = |means: &mut Means<'_>| -> Result<Rehearsal> {
        let options = Options::read(application, means)?;
        let words = words(&options, store);
        let module = application.get(1).ok_or_else(|| malformed("it has no procedure"))?;
        let from = options.from.map(|tree| Snapshot::read(tree, module, means)).transpose()?;
        let mut process = Process::new(options, means)?;
        if let Some(from) = &from {
            from.go_on(&mut process)?;
        }
        let found = look(&mut process, means)?;
        let kept = process.results(means).split_off(2);
        Ok(Rehearsal { words, found, kept, state: from.map(|from| store.keep_blob_vec(from.encode())) })
    };
    read(&mut means).map_err(|stop: Stop| stop.into())
}

/// Looks into all directories, and follows all links.
fn look(process: &mut Process, means: &mut Means<'_>) -> Result<usize> {
    let roots: Vec<NodeId> =
        process.descriptors.open().filter_map(|(_, descriptor)| descriptor.node()).collect();
    let mut found = 0;
    for root in roots {
        let mut waiting = vec![root];
        while let Some(directory) = waiting.pop() {
            for line in process.files.list(directory, means)? {
                found += 1;
                let node = process.files.existing(directory, &line.name, false, means)?;
                match line.kind {
                    Kind::Directory => waiting.push(node),
                    Kind::File => _ = process.files.read(node, 0, &mut [0; 16], means)?,
                    Kind::Link => {
                        let target = process.files.target(node, means)?;
                        match process.files.existing(directory, &target, true, means) {
                            Err(Stop::Ended(fault)) => return Err(Stop::Ended(fault)),
                            // It leads nowhere, out of the directory, or in circles.
                            Ok(_) | Err(Stop::Refused(_)) => {}
                        }
                    }
                }
            }
        }
    }
    Ok(found)
}

fn words(options: &Options, store: &Store) -> Vec<Handle> {
    let blob = |bytes: &[u8]| store.keep_blob(bytes);
    let mut words = Vec::new();
    for argument in &options.arguments {
        words.extend([blob(b"arg"), blob(argument)]);
    }
    for variable in &options.environment {
        words.extend([blob(b"env"), blob(variable)]);
    }
    for mount in &options.mounts {
        let word: &[u8] = if mount.is_read_only { b"lib" } else { b"dir" };
        words.extend([blob(word), blob(&mount.path), mount.tree]);
    }
    words.extend([blob(b"stdin"), options.stdin, blob(b"seed"), blob(&options.seed)]);
    words.extend([blob(b"time"), Handle::u64(options.time)]);
    for Entry { name, given } in &options.entries {
        match given {
            None => words.extend([blob(b"entry"), blob(name)]),
            Some(given) => words.extend([blob(b"call"), blob(name), blob(&given.allocate), given.bytes]),
        }
    }
    words.extend(options.from.map(|from| [blob(b"from"), from]).into_iter().flatten());
    words.extend(options.is_captured.then(|| blob(b"snapshot")));
    words
}
