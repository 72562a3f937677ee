// SPDX-License-Identifier: Apache-2.0
//! A process that makes groups is in one of its own, as far as processors go.
//!
//! In the root group the kernel may take it for one with all that was begun from the same terminal
//! (`sched_autogroup`, on unless it is switched off), which together weighs as much as one group that it
//! makes: the more of those want to run, the less it has. Worse, the weight of such an entity changes all
//! the time, and groups beside it that could run were seen to wait for 100 to 1,300 ms (Linux 6.18, two
//! processors; `docs/decisions/0090`).

use std::fs;
use std::path::Path;

/// What a group weighs for which nothing is said, on versions 1 and 2.
const USUAL_SHARES: usize = 1024;
const USUAL_WEIGHT: usize = 100;
/// As much as so many groups at most: what is not of this process has its share of a large machine, too.
const PROCESSORS_MAX: usize = 16;

/// Goes into a group below this one of version 1. Who may not stays where it is.
pub(super) fn go(parent: Option<&Path>) {
    let Some(parent) = parent else { return };
    sweep(parent);
    // In the form of all others, so that what is left of it is swept.
    let own = parent.join(format!("sinew-{}-node", std::process::id()));
    // One of the same number, that ended, may have left it.
    if !own.is_dir() && fs::create_dir(&own).is_err() {
        return;
    }
    weigh(&own, "cpu.shares", USUAL_SHARES);
    if fs::write(own.join("cgroup.procs"), std::process::id().to_string()).is_err() {
        let _ = fs::remove_dir(&own);
    }
}

/// Has a group of version 2 weigh as much as this process's group should.
pub(super) fn weigh_as_all(group: &Path) {
    weigh(group, "cpu.weight", USUAL_WEIGHT);
}

/// Removes the groups of those that are gone: nobody can leave its own behind and take it away.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let owner = entry.file_name().to_str().and_then(owner);
        if owner.is_some_and(|owner| !Path::new(&format!("/proc/{owner}")).exists()) {
            // One of which some process is left, as from another namespace, stays.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The number of the process whose own group has this name.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix("sinew-")?.strip_suffix("-node")?.parse().ok()
}

/// As one group for each processor.
fn weigh(group: &Path, file: &str, usual: usize) {
    // Without it, it weighs as much as one of the others.
    let _ = fs::write(group.join(file), (usual * processors()).to_string());
}

fn processors() -> usize {
    crate::available_cpus().map_or(1, |cpus| cpus.len()).min(PROCESSORS_MAX)
}

/// The path of a group, without the last part if that was made by [`go`], by this process or by one
/// that has begun it.
pub(super) fn around(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", name)) if owner(name).is_some() => "/",
        Some((before, name)) if owner(name).is_some() => before,
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::{Controller, Hierarchies};
    use super::*;

    #[test]
    fn a_group_of_ones_own_is_not_where_others_are_made() {
        for (path, outside) in [
            ("/sinew-12-node", "/"),
            ("/service/sinew-12-node", "/service"),
            ("/service/sinew-12-3", "/service/sinew-12-3"),
            ("/sinew-node", "/sinew-node"),
            ("/", "/"),
        ] {
            assert_eq!(around(path), outside, "{path}");
        }
    }

    #[test]
    fn who_makes_groups_of_version_1_has_one_that_weighs_as_much_as_one_for_each_processor() {
        let found = Hierarchies::claim().unwrap();
        let Some(parent) = found.parent(Controller::Cpu).filter(|_| found.version() == 1) else { return };
        assert_eq!(Hierarchies::claim().unwrap(), found, "again, from inside of it");
        let name = format!("sinew-{}-node", std::process::id());
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        assert!(own.lines().any(|line| line.ends_with(&format!("/{name}"))), "{own}");
        let shares = fs::read_to_string(parent.join(&name).join("cpu.shares")).unwrap();
        assert_eq!(shares.trim().parse::<usize>().unwrap(), 1024 * processors());
    }

    #[test]
    fn groups_of_those_that_are_gone_are_swept() {
        let folder = std::env::temp_dir().join(format!("sinew-apart-{}", std::process::id()));
        // No process has the greatest number.
        let names =
            ["sinew-4194999-node".to_owned(), format!("sinew-{}-node", std::process::id()), "x".to_owned()];
        names.iter().for_each(|name| fs::create_dir_all(folder.join(name)).unwrap());
        sweep(&folder);
        let left = names.iter().map(|name| folder.join(name).exists());
        assert_eq!(left.collect::<Vec<_>>(), [false, true, true]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
