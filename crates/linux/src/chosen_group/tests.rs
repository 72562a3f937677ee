// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use super::*;

const MOUNTS: &str = "\
30 20 0:1 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct
31 20 0:2 / /cg/memory rw - cgroup cgroup rw,memory
32 20 0:3 / /cg/unified rw - cgroup2 cgroup2 rw";
const OWN: &str = "2:cpu,cpuacct:/node\n1:memory:/node\n0::/";

fn folders(path: &str) -> Vec<PathBuf> {
    let group = ChosenGroup::among(MOUNTS, OWN, Path::new(path)).unwrap();
    group.folders.into_iter().map(|(_, folder)| folder).collect()
}

#[test]
fn a_path_is_one_in_each_tree() {
    assert_eq!(folders("/a/b"), [Path::new("/cg/cpu/a/b"), Path::new("/cg/memory/a/b")]);
    let group = ChosenGroup::among(MOUNTS, OWN, Path::new("/a")).unwrap();
    assert!(group.has("cpuacct") && group.has("memory") && !group.has("pids"));
    assert_eq!(group.version(), 1);
    let only_unified = "32 20 0:3 / /cg/unified rw - cgroup2 cgroup2 rw";
    assert_eq!(ChosenGroup::among(only_unified, "0::/", Path::new("/a")).unwrap().version(), 2);
    assert_eq!(ChosenGroup::among("", "", Path::new("/a")).unwrap().version(), 0);
}

#[test]
fn paths_lead_nowhere_else() {
    for path in ["", "/", "/a/../b", "..", "../a"] {
        assert!(ChosenGroup::among(MOUNTS, OWN, Path::new(path)).is_err(), "{path}");
    }
}

#[test]
fn a_group_is_made_joined_and_removed() {
    let name = format!("/sinew-chosen-{}", std::process::id());
    let group = ChosenGroup::at(Path::new(&name)).unwrap();
    if group.version() != 1 || !group.has("pids") || rustix::process::geteuid().as_raw() != 0 {
        eprintln!("skipped: takes root and control groups of version 1");
        return;
    }
    let setting = |value: &str| GroupSetting {
        controller: "pids",
        file: "pids.max".to_owned(),
        value: value.to_owned(),
    };
    group.make(&[setting("17")]).unwrap();
    let folder = group.folder_of("pids").unwrap().to_owned();
    assert_eq!(fs::read_to_string(folder.join("pids.max")).unwrap().trim(), "17");
    assert!(group.processes().is_empty());
    assert!(group.make(&[setting("many")]).is_err());
    let absent = GroupSetting { controller: "absent", ..setting("1") };
    assert_eq!(group.make(&[absent]).unwrap_err().kind(), io::ErrorKind::Unsupported);
    group.remove(Duration::from_secs(1)).unwrap();
    assert!(!folder.exists());
    group.remove(Duration::ZERO).unwrap();
}

/// The unified hierarchy of this machine, also where its controllers are bound
/// to version 1: what needs none of them is real there.
#[test]
fn a_group_of_version_2_holds_processes() {
    let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let unified: String = all.lines().filter(|line| line.contains(" - cgroup2 ")).take(1).collect();
    let name = format!("/sinew-unified-{}", std::process::id());
    let group = ChosenGroup::among(&unified, "0::/", Path::new(&name)).unwrap();
    if group.version() != 2 || rustix::process::geteuid().as_raw() != 0 {
        eprintln!("skipped: takes root and control groups of version 2");
        return;
    }
    group.make(&[]).unwrap();
    let folder = &group.folders[0].1;
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    fs::write(folder.join("cgroup.procs"), child.id().to_string()).unwrap();
    assert_eq!(group.processes(), [child.id()]);
    assert!(fs::read_to_string(folder.join("cgroup.events")).unwrap().contains("populated 1"));
    assert!(group.remove(Duration::ZERO).is_err(), "somebody is in it");
    fs::write(folder.join("cgroup.kill"), "1").unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(group.processes().is_empty());
    let absent = GroupSetting { controller: "absent", file: "absent.max".to_owned(), value: "1".to_owned() };
    assert_eq!(group.make(&[absent]).unwrap_err().kind(), io::ErrorKind::Unsupported);
    group.remove(Duration::from_secs(5)).unwrap();
    assert!(!folder.exists());
}
