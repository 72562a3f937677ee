// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::process::Command;

use super::*;

const LIMITS: CgroupLimits = CgroupLimits {
    memory_bytes: Some(64 << 20),
    processes: Some(7),
    cpu_percent: Some(50),
    disk_bytes_per_s: Some(1 << 20),
};

/// A folder that looks like a group of version 2.
struct Fake(PathBuf);

impl Fake {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sinew-cgroup-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("cgroup.controllers"), "cpu memory pids io").unwrap();
        fs::write(folder.join("cgroup.subtree_control"), "cpu memory pids").unwrap();
        Self(folder)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn version_2_gets_its_own_files() {
    let fake = Fake::new("files");
    // A plain folder accepts one line only, the last one written.
    fs::write(fake.0.join("cgroup.subtree_control"), "+cpu memory pids cpu").unwrap();
    let group = Cgroup {
        version: 2,
        folders: vec![
            (Controller::Memory, fake.0.clone()),
            (Controller::Processes, fake.0.clone()),
            (Controller::Cpu, fake.0.clone()),
            (Controller::Disk, fake.0.clone()),
        ],
        joins: Vec::new(),
        gauges: Gauges::default(),
    };
    group.limit(&LIMITS).unwrap();
    let text = |file: &str| fs::read_to_string(fake.0.join(file)).unwrap();
    assert_eq!(text("memory.max"), (64 << 20).to_string());
    assert_eq!((text("pids.max"), text("cpu.max")), ("7".to_owned(), "50000 100000".to_owned()));
    if let Some(last) = disks(Path::new("/sys/block")).unwrap().last() {
        assert_eq!(text("io.max"), format!("{last} rbps=1048576 wbps=1048576"));
    }
    for (file, content) in [
        ("memory.current", "4096\n"),
        ("memory.peak", "8192\n"),
        ("memory.events", "low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\n"),
        ("pids.current", "2\n"),
        ("cpu.stat", "usage_usec 12\nuser_usec 10\n"),
    ] {
        fs::write(fake.0.join(file), content).unwrap();
    }
    let usage = group.usage().unwrap();
    let expected = CgroupUsage {
        memory_bytes: 4096,
        memory_peak_bytes: 8192,
        oom_kills: 1,
        cpu_ns: 12_000,
        processes: 2,
    };
    assert_eq!(usage, expected);
    fs::remove_file(fake.0.join("memory.peak")).unwrap();
    assert_eq!(group.usage().unwrap().memory_peak_bytes, 4096, "an older kernel");
    group.lift_cpu_limit();
    assert_eq!(text("cpu.max"), "max");
}

/// In both versions: what all have, less what each has that is there, and no files on disks.
#[test]
fn what_is_kept_is_charged_to_nobody_that_is_there() {
    for (version, usage, stat, given_up) in [
        (
            1,
            "memory.usage_in_bytes",
            "cache 1\nrss 7\nshmem 1\ntotal_cache FILE\ntotal_rss 7\ntotal_shmem SHARED\n",
            0,
        ),
        (2, "memory.current", "anon 7\nfile FILE\nshmem SHARED\nslab_reclaimable 100\n", 100),
    ] {
        let fake = Fake::new(&format!("kept-{version}"));
        let has = |folder: &Path, bytes: u64, file: u64, shared: u64| {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join(usage), format!("{bytes}\n")).unwrap();
            let stat = stat.replace("FILE", &file.to_string()).replace("SHARED", &shared.to_string());
            fs::write(folder.join("memory.stat"), stat).unwrap();
        };
        let group = Cgroup {
            version,
            folders: vec![(Controller::Memory, fake.0.clone())],
            joins: Vec::new(),
            gauges: Gauges::default(),
        };
        has(&fake.0, 10_000, 3000, 1000);
        assert_eq!(group.kept_bytes().unwrap(), 8000 - given_up);
        has(&fake.0.join("one"), 2000, 500, 0);
        has(&fake.0.join("other"), 3000, 500, 500);
        assert_eq!(group.kept_bytes().unwrap(), 8000 - 1500 - 3000 + given_up);
        // One that has gone while it was looked at has nothing; there is no less than nothing.
        fs::remove_file(fake.0.join("one").join(usage)).unwrap();
        assert_eq!(group.kept_bytes().unwrap(), 8000 - 3000);
        has(&fake.0.join("other"), 20_000, 0, 0);
        assert_eq!(group.kept_bytes().unwrap(), 0);
        let uncounted = Cgroup { version, folders: Vec::new(), joins: Vec::new(), gauges: Gauges::default() };
        assert_eq!(uncounted.kept_bytes().unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}

#[test]
fn paths_are_found_in_what_the_kernel_says() {
    let mounts = "30 25 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
                  31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                  32 30 0:28 / /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw\n";
    let own = "4:cpu,cpuacct:/no/such/group\n0::/no/such/session\n";
    let found = version_1_parent(mounts, own, "cpuacct").unwrap();
    assert_eq!(found, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
    assert_eq!(version_1_parent(mounts, own, "memory"), None);
    let point = PathBuf::from("/sys/fs/cgroup/unified");
    assert_eq!(version_2_parent(mounts, own).unwrap(), (point.clone(), point));
    assert_eq!(below("/usr", "/outer", "/outer/bin"), Path::new("/usr/bin"));
}

#[test]
fn a_group_holds_what_joined_it_and_is_removed() {
    let hierarchies = Hierarchies::claim().unwrap();
    if !hierarchies.has(Controller::Processes) || hierarchies.version() == 0 {
        return;
    }
    let name = format!("sinew-linux-{}-a", std::process::id());
    let group = Cgroup::create(&hierarchies, &name, &LIMITS).unwrap();
    assert!(Cgroup::create(&hierarchies, &name, &LIMITS).is_err(), "a name is used once");
    let folder = group.folder(Controller::Processes).unwrap().to_owned();
    assert_eq!(fs::read_to_string(folder.join("pids.max")).unwrap(), "7\n");
    let mut child = Command::new("sleep").arg("100").spawn().unwrap();
    let file = if hierarchies.version() == 1 { "tasks" } else { "cgroup.procs" };
    fs::write(folder.join(file), child.id().to_string()).unwrap();
    assert_eq!(group.usage().unwrap().processes, 1);
    assert_eq!(group.processes().unwrap(), [child.id()]);
    assert!(group.remove(Duration::from_millis(20)).is_err(), "it is not empty");
    child.kill().unwrap();
    child.wait().unwrap();
    group.remove(Duration::from_secs(5)).unwrap();
    assert!(!folder.exists());
}

#[test]
fn what_the_dead_left_is_swept_and_the_living_are_not() {
    let fake = Fake::new("sweep");
    let parents = vec![(Controller::Memory, fake.0.clone())];
    let hierarchies = Hierarchies { version: 2, parents };
    let own = std::process::id();
    // No process has the greatest number.
    let [dead, living, other] = ["x-4194999-1".to_owned(), format!("x-{own}-1"), "y-4194999-1".to_owned()];
    for name in [&dead, &living, &other] {
        fs::create_dir(fake.0.join(name)).unwrap();
    }
    assert_eq!(hierarchies.sweep("x"), 1);
    assert_eq!([&dead, &living, &other].map(|name| fake.0.join(name).exists()), [false, true, true]);
}

#[test]
fn names_stay_where_they_are() {
    let hierarchies = Hierarchies { version: 2, parents: Vec::new() };
    for name in ["", "../up", "a/b", ".hidden"] {
        assert!(Cgroup::create(&hierarchies, name, &LIMITS).is_err(), "{name}");
    }
}

#[test]
fn gauges_of_both_versions_tell_time_and_peak_and_nothing_of_what_is_not_there() {
    let fake = Fake::new("gauges");
    let write = |name: &str, text: &str| fs::write(fake.0.join(name), text).unwrap();
    write("cpuacct.usage", "1234567\n");
    write("memory.max_usage_in_bytes", "4096\n");
    write("cpu.stat", "usage_usec 89\nuser_usec 70\nsystem_usec 19\n");
    let here = Some(fake.0.as_path());
    let first = Gauges::of_version_1(here, here);
    assert_eq!((first.cpu_ns(), first.memory_peak_bytes()), (Some(1_234_567), Some(4096)));
    // The file is read anew each time.
    write("cpuacct.usage", "2000000\n");
    assert_eq!(first.cpu_ns(), Some(2_000_000));
    let second = Gauges::of_version_2(here, here);
    assert_eq!((second.cpu_ns(), second.memory_peak_bytes()), (Some(89_000), None));
    let none = Gauges::of_version_1(None, None);
    assert_eq!((none.cpu_ns(), none.memory_peak_bytes()), (None, None));
}
