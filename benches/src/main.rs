// SPDX-License-Identifier: Apache-2.0
//! Promised figures: `cargo xtask bench NAME [--json] [--without-peers] [OPTION…]`.
//!
//! One file per bench. A figure is one JSON object a line on standard output
//! with `--json`, as soon as it is known, else a table. Peers run in the same invocation, alternating
//! with ours, and medians are reported: absolute times of a shared machine
//! mean little. A peer that cannot run is an error, after all was printed,
//! unless those that must be installed are left out.
#![allow(clippy::unwrap_used, reason = "a bench that cannot go on stops")]

mod apps;
mod bare;
mod batching;
mod bptree;
mod call;
mod chain;
mod coldstart;
mod compile;
mod count_string;
mod density;
mod dev_loop;
mod external_io;
mod figures;
mod hostile;
mod invoke;
mod native_memory;
mod options;
mod page_cache;
mod python;
mod python_peer;
mod ray;
mod recompute;
mod relay;
mod sandboxed_python_density;
mod soak;
mod storing;
mod tail;
mod transfer;
mod warm;
mod workflow_node;
mod workflows;

use figures::Report;
use options::Options;

/// A bench's name and what runs it.
type Bench = (&'static str, fn(&mut Report) -> anyhow::Result<()>);

const BENCHES: [Bench; 23] = [
    ("invoke", invoke::run),
    ("chain", chain::run),
    ("count-string", count_string::run),
    ("coldstart", coldstart::run),
    ("density", density::run),
    ("apps", apps::run),
    ("hostile", hostile::run),
    ("warm", warm::run),
    ("tail", tail::run),
    ("call", call::run),
    ("loop", dev_loop::run),
    ("soak", soak::run),
    ("store", storing::run),
    ("recompute", recompute::run),
    ("external-io", external_io::run),
    ("bptree", bptree::run),
    ("batching", batching::run),
    ("python", python::run),
    ("sandboxed-python-density", sandboxed_python_density::run),
    ("compile", compile::run),
    ("workflows", workflows::run),
    ("transfer", transfer::run),
    ("native-memory", native_memory::run),
];

/// What some benches can be asked for: `--name` or `--name=value`.
const OPTIONS: [(&str, &[&str]); 5] = [
    ("bptree", bptree::OPTIONS),
    ("soak", soak::OPTIONS),
    ("transfer", transfer::OPTIONS),
    ("warm", warm::OPTIONS),
    ("workflows", workflows::OPTIONS),
];

// As `sinew` does.
#[global_allocator]
static HEAP: linux::Heap = linux::HEAP;

fn main() -> anyhow::Result<()> {
    // A container's init is this program too; it starts no thread.
    if std::env::args().nth(1).is_some_and(|first| first == "sandbox-init") {
        let code = sandbox::process::init::main();
        anyhow::ensure!(code == std::process::ExitCode::SUCCESS, "the container ended badly");
        return Ok(());
    }
    // As `sinew up` does.
    linux::keep_freed_memory();
    linux::take_small_pages();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    if arguments.first().is_some_and(|name| name == "invoke-child") {
        return invoke::child();
    }
    if arguments.first().is_some_and(|name| name == "bptree-child") {
        return bptree::child();
    }
    if arguments.first().is_some_and(|name| name == "batching-child") {
        return batching::child();
    }
    if arguments.first().is_some_and(|name| name == "store-child") {
        return storing::child();
    }
    if arguments.first().is_some_and(|name| name == "snapshots-child") {
        return sandboxed_python_density::child();
    }
    if arguments.first().is_some_and(|name| name == "invoke-loop") {
        return invoke::profile();
    }
    if arguments.first().is_some_and(|name| name == "invoke-full-loop") {
        return invoke::profile_full();
    }
    let name = arguments.iter().find(|argument| !argument.starts_with('-'));
    let Some(name) = name else {
        anyhow::bail!("which bench? one of {:?}", BENCHES.map(|(name, _)| name));
    };
    let Some((name, run)) = BENCHES.iter().find(|(known, _)| known == name) else {
        anyhow::bail!("no bench is called {name}; there are {:?}", BENCHES.map(|(name, _)| name));
    };
    let with_peers = !arguments.iter().any(|argument| argument == "--without-peers");
    let known = OPTIONS.iter().find(|(of, _)| of == name).map_or(&[][..], |(_, known)| *known);
    let mut report = Report::new(name, json, with_peers, Options::of(&arguments, known)?);
    let done = run(&mut report);
    // What was measured before something went wrong is worth having.
    report.print();
    done?;
    report.complete()
}
