// SPDX-License-Identifier: Apache-2.0
//! What a container could leave behind on the host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::world::CGROUP_NAME;

/// What belongs to this test on the machine, at one moment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// Descendants of this process, and processes of its containers' users.
    pub(crate) processes: BTreeSet<u32>,
    pub(crate) groups: BTreeSet<String>,
    mounts: usize,
    fds: usize,
}

impl Host {
    pub(crate) fn look() -> Self {
        let mut groups = BTreeSet::new();
        groups_of(std::process::id(), &mut groups);
        Self {
            processes: processes(),
            groups,
            mounts: fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count(),
            fds: fs::read_dir("/proc/self/fd").unwrap().count(),
        }
    }

    /// What it is when it changes no more: a neighbour that has ended just now is not counted.
    pub(crate) fn at_rest() -> Self {
        let began = Instant::now();
        let (mut now, mut same) = (Self::look(), 0);
        while same < 5 && began.elapsed() < LEAVING {
            std::thread::sleep(Duration::from_millis(20));
            let then = std::mem::replace(&mut now, Self::look());
            same = if now == then { same + 1 } else { 0 };
        }
        now
    }

    /// What is not in the world any more may take a moment to leave its tables.
    pub(crate) fn assert_unchanged(&self) {
        let began = Instant::now();
        let mut now = Self::look();
        while now != *self && began.elapsed() < LEAVING {
            std::thread::sleep(Duration::from_millis(20));
            now = Self::look();
        }
        assert_eq!(now, *self, "something was left behind");
    }
}

/// A container that was being made when nobody wanted it any more ends by itself; without
/// control groups, and on a busy machine, later than others.
const LEAVING: Duration = Duration::from_secs(30);

/// The first user of this process's containers; they have 4096 in all.
pub(crate) fn first_user() -> u32 {
    0x7000_0000 + ((std::process::id() & 0xffff) << 12)
}

fn processes() -> BTreeSet<u32> {
    use std::os::unix::fs::MetadataExt as _;
    let mut parents = BTreeMap::new();
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        parents.insert(pid, parent.unwrap_or(0));
        let user = entry.metadata().map_or(0, |metadata| metadata.uid());
        if (first_user()..first_user() + 4096).contains(&user) {
            found.insert(pid);
        }
    }
    for pid in parents.keys() {
        let mut at = *pid;
        while let Some(parent) = parents.get(&at).copied().filter(|parent| *parent != 0) {
            if parent == std::process::id() {
                found.insert(*pid);
            }
            at = parent;
        }
    }
    found
}

/// Control groups that a process made.
pub(crate) fn groups_of(pid: u32, groups: &mut BTreeSet<String>) {
    groups_below(Path::new("/sys/fs/cgroup"), 5, &format!("{CGROUP_NAME}-{pid}-"), groups);
}

fn groups_below(folder: &Path, depth: usize, prefix: &str, groups: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(prefix) {
            groups.insert(entry.path().display().to_string());
        } else if depth > 0 {
            groups_below(&entry.path(), depth - 1, prefix, groups);
        }
    }
}
