// SPDX-License-Identifier: Apache-2.0
//! A tree with pointers from one native function to another one, as a step of a declared workflow: handed
//! over as the memory that it is; sent as an array of its records, and made again; and made and
//! looked at by one function, which hands nothing over. Less the last one's time, the time of the others is
//! what it costs that they are two. The three take turns.
//!
//! Two numbers each: a thousand records are looked for, or all are looked at.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;
use serde_json::json;

use crate::figures::{Report, median};
use crate::warm::servers::PEERS;
use crate::workflow_node::WorkflowNode;

const TURNS: usize = 15;
/// Records, of 32 bytes each as nodes of the tree, and 16 as they are sent.
const RECORDS: [u64; 3] = [1_000, 100_000, 1_000_000];
const WORKFLOWS: [&str; 3] = ["mapped", "sent", "together"];
const LIBRARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../guests/native");

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    build(folder.path())?;
    std::fs::write(folder.path().join("sinew.toml"), manifest())?;
    let python = PathBuf::from("python3");
    let node = WorkflowNode::start(folder.path(), &python, &[])?;
    for records in RECORDS {
        for all in [0, 1] {
            measure(report, &node, records, all)?;
        }
    }
    Ok(())
}

fn measure(report: &mut Report, node: &WorkflowNode, records: u64, all: u64) -> anyhow::Result<()> {
    let event = json!({ "records": records, "all": all });
    let mut times = [const { Vec::new() }; 3];
    for turn in 0..=TURNS {
        let mut results = Vec::new();
        for (times, workflow) in times.iter_mut().zip(WORKFLOWS) {
            let (wall_ns, result) = node.run(workflow, &event)?;
            // The first one makes instances.
            if turn > 0 {
                times.push(wall_ns / 1e6);
            }
            results.push(result);
        }
        ensure!(results.iter().all(|result| *result == results[0]), "they differ: {results:?}");
    }
    let [mapped, sent, together] = times;
    let beyond = |times: &[f64]| {
        let times = times.iter().zip(&together).map(|(time, together)| time - together);
        median(times.collect())
    };
    let (mapped_beyond, sent_beyond) = (beyond(&mapped), beyond(&sent));
    let what = if all == 0 { "looked_for" } else { "read" };
    let mib = records as f64 * 32.0 / f64::from(1 << 20);
    let name = |part: &str| format!("{part}_{records}_{what}_ms");
    let peer = format!("a run of two steps, {mib:.2} MiB of nodes, over one step that does both");
    report.add(&name("mapped"), mapped_beyond, "ms", &peer, TURNS);
    report.add(
        &name("sent"),
        sent_beyond,
        "ms",
        "peer: the records as the body, of which the tree is made again",
        TURNS,
    );
    report.add(&name("together"), median(together), "ms", "the run of the one step", TURNS);
    Ok(())
}

/// All functions are one program.
fn manifest() -> String {
    let function = |name: &str, values: &str| {
        format!(
            "[functions.{name}]\nruntime = \"executable\"\nmode = \"native\"\nhandler = \"native_memory\"\nmemory = \"512 MiB\"\n{values}"
        )
    };
    let mapping = ["make", "look"].map(|name| function(name, "values = \"map\"\n"));
    let others = ["alone", "send", "look-at-sent"].map(|name| function(name, ""));
    mapping.concat()
        + &others.concat()
        + r#"
[functions.mapped]
runtime = "workflow"
result = "{{ look }}"
[functions.mapped.steps.make]
[functions.mapped.steps.look]
with = { tree = "{{ make }}", records = "{{ event.records }}", all = "{{ event.all }}" }

[functions.sent]
runtime = "workflow"
result = "{{ look }}"
[functions.sent.steps.send]
[functions.sent.steps.look]
call = "look-at-sent"
with = "{{ send }}"

[functions.together]
runtime = "workflow"
[functions.together.steps.alone]
"#
}

#[expect(clippy::disallowed_methods, reason = "a C compiler")]
fn build(folder: &Path) -> anyhow::Result<()> {
    let source = format!("{PEERS}/native_memory.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-static", "-O2", "-I", LIBRARY, "-o"]).arg(folder.join("native_memory"));
    let built = compiler.arg(source).arg(format!("{LIBRARY}/sinew.c")).arg("-pthread").status()?;
    ensure!(built.success(), "cc cannot build the static program; apt-get install gcc libc6-dev");
    Ok(())
}
