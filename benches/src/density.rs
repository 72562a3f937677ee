// SPDX-License-Identifier: Apache-2.0
//! Memory of idle Python functions with numpy and pandas: instances forked
//! from a template, the template included, against interpreters started cold.
//!
//! What counts is the proportional set size: a page that n processes share is
//! 1/n of a page to each.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use sandbox::{Invoked, Sandbox as _};

use crate::coldstart::{Node, environment};
use crate::figures::Report;

const FEW: usize = 16;
const MANY: usize = 200;
/// So much memory is left to the machine.
const SPARE_BYTES: u64 = 1 << 30;

const SOURCE: &str = "import numpy, pandas\ndef apply():\n    return b'ok'\n";
const SCRIPT: &str = "import sys, numpy, pandas\nprint('ok', flush=True)\nsys.stdin.read()\n";

/// Proportional set size of processes, in bytes.
fn pss(pids: &[u32]) -> anyhow::Result<f64> {
    let mut total = 0.0;
    for pid in pids {
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).context("no Pss")?;
        total += line.trim().trim_end_matches(" kB").trim().parse::<f64>()? * 1024.0;
    }
    Ok(total)
}

/// A process and all that descend from it.
fn with_descendants(root: u32) -> anyhow::Result<Vec<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        if let Some(parent) = parent.and_then(|parent| parent.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut next) = (vec![root], 0);
    while let Some(pid) = found.get(next).copied() {
        found.extend(children.get(&pid).into_iter().flatten());
        next += 1;
    }
    Ok(found)
}

/// Bytes of one instance, its part of the template and its init included.
fn forked(node: &Node, count: usize) -> anyhow::Result<f64> {
    let (spec, call) = node.call(SOURCE)?;
    let ids: Result<Vec<_>, _> = node.functions.create(&vec![spec; count]).into_iter().collect();
    let ids = ids?;
    for id in &ids {
        node.functions.start(&[*id]).pop().context("no answer")??;
        let Invoked::Done(outcome) = node.functions.invoke(*id, call.clone())?;
        ensure!(outcome.result.is_ok(), "the function failed");
    }
    let template = with_descendants(node.functions.template_pid()?)?;
    ensure!(template.len() == count + 1, "{} processes instead of {}", template.len(), count + 1);
    let own = std::process::id();
    let mut all = with_descendants(own)?;
    all.retain(|pid| *pid != own);
    let total = pss(&all)?;
    node.functions.kill(&ids);
    node.functions.delete(&ids);
    Ok(total / count as f64)
}

#[expect(clippy::disallowed_methods, reason = "cold interpreters are the peer")]
fn cold(python: &std::path::Path, count: usize) -> anyhow::Result<f64> {
    use std::io::Read as _;
    let mut children: Vec<Child> = Vec::new();
    let mut started = || -> anyhow::Result<f64> {
        for _ in 0..count {
            let command = &mut Command::new(python);
            let child = command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            children.push(child);
            let output = children.last_mut().and_then(|child| child.stdout.as_mut());
            output.context("no output")?.read_exact(&mut [0; 3])?;
        }
        pss(&children.iter().map(Child::id).collect::<Vec<_>>())
    };
    let total = started();
    for child in &mut children {
        child.kill()?;
        child.wait()?;
    }
    Ok(total? / count as f64)
}

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let python = environment()?;
    let cold = cold(&python, FEW)?;
    report.add("pss_cold_mib", cold / (1 << 20) as f64, "MiB", "each of the cold-started", FEW);
    let node = Node::contained(&python, 0)?;
    let few = forked(&node, FEW)?;
    report.add("pss_forked_16_mib", few / (1 << 20) as f64, "MiB", "template and inits included", FEW);
    let free = linux::total_memory_bytes()?.saturating_sub(SPARE_BYTES);
    let many = MANY.min((free as f64 / few) as usize);
    let each = forked(&node, many)?;
    report.add("pss_forked_many_mib", each / (1 << 20) as f64, "MiB", "template and inits included", many);
    report.add("pss_over_cold_started", each / cold, "x", "all forked / all cold, each", many);
    Ok(())
}
