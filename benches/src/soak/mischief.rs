// SPDX-License-Identifier: Apache-2.0
//! Kills of instances, as the kernel makes them when memory is short.

use std::collections::HashMap;
use std::process::Command;

use super::world::World;

/// The processes below this one.
pub(super) fn descendants(root: u32) -> Vec<u32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in pids {
        if let Some(parent) = field(pid, "PPid:").and_then(|text| text.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(one) = open.pop() {
        let below = children.remove(&one).unwrap_or_default();
        found.extend(&below);
        open.extend(below);
    }
    found
}

fn field(pid: u32, name: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name)).map(|text| text.trim().to_owned())
}

/// Kills one of the processes that are in a container, but for its first one.
#[expect(clippy::disallowed_methods, reason = "it is killed as operators do")]
pub(super) fn kill_an_instance(world: &World) -> anyhow::Result<()> {
    let Some(node) = world.node_pid() else { return Ok(()) };
    let inside = descendants(node).into_iter().filter(|pid| {
        let numbers = field(*pid, "NSpid:").unwrap_or_default();
        numbers.split_whitespace().nth(1).is_some_and(|number| number != "1")
    });
    let inside: Vec<u32> = inside.collect();
    let killed = world.counts().killed as usize;
    if let Some(pid) = inside.get(killed % inside.len().max(1)) {
        Command::new("kill")
            .args(["-KILL", &pid.to_string()])
            .stderr(std::process::Stdio::null())
            .status()?;
        world.count(|counts| counts.killed += 1);
    }
    Ok(())
}
