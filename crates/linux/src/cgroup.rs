// SPDX-License-Identifier: Apache-2.0
//! Control groups, of version 1 (each controller in a tree of its own) and of
//! version 2 (one tree), behind one type.
//!
//! Groups are made below the one that this process is in: what limits the
//! process limits them too. On version 2 a group with processes can have no others
//! below that limit anything; `unified` tells where they are made then.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

mod apart;
mod gauges;
mod unified;
pub use gauges::Gauges;

/// A `cpu` period: how long a group may be held up for having used its share.
const CPU_PERIOD_US: u64 = 100_000;
/// How often groups are looked at that come and go meanwhile.
const KEPT_LOOKS: usize = 3;
/// Nothing that we read from a control file is longer.
const CONTROL_LEN_MAX: u64 = 64 << 10;

/// What groups can be made here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchies {
    version: u8,
    /// Controller and the folder in which groups are made; on version 2 the
    /// same folder for all.
    parents: Vec<(Controller, PathBuf)>,
}

/// What a group can limit or count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Bytes of memory.
    Memory,
    /// Number of processes and threads.
    Processes,
    /// Share of processor time.
    Cpu,
    /// Processor time used; part of `Cpu` on version 2.
    CpuTime,
    /// Bytes read from and written to disks.
    Disk,
}

impl Controller {
    const VERSION_1: [(Self, &'static str); 5] = [
        (Self::Memory, "memory"),
        (Self::Processes, "pids"),
        (Self::Cpu, "cpu"),
        (Self::CpuTime, "cpuacct"),
        (Self::Disk, "blkio"),
    ];
    const VERSION_2: [(Self, &'static str); 4] =
        [(Self::Memory, "memory"), (Self::Processes, "pids"), (Self::Cpu, "cpu"), (Self::Disk, "io")];
}

impl Hierarchies {
    /// Looks at what is mounted, and which of it this process may use, or could if it
    /// asked for it ([`claim`](Self::claim)).
    ///
    /// # Errors
    /// What reading `/proc/self` says.
    pub fn discover() -> io::Result<Self> {
        Self::find(false)
    }

    /// The same, made so that groups can be made: on version 2 controllers are handed
    /// down. This process may come to be in a group below its own, in which it has as much of the
    /// processors as one group made here for each of them.
    ///
    /// # Errors
    /// What reading `/proc/self` says.
    pub fn claim() -> io::Result<Self> {
        Self::find(true)
    }

    fn find(is_to_change: bool) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let mut parents = Vec::new();
        for (controller, name) in Controller::VERSION_1 {
            let Some(parent) = version_1_parent(&mounts, &own, name) else { continue };
            if is_writable(&parent) {
                parents.push((controller, parent));
            }
        }
        if !parents.is_empty() {
            let found = Self { version: 1, parents };
            if is_to_change {
                apart::go(found.parent(Controller::Cpu));
            }
            return Ok(found);
        }
        match version_2_parent(&mounts, &own) {
            Some((point, own)) => Ok(unified::find(&point, &own, is_to_change)),
            None => Ok(Self { version: 0, parents }),
        }
    }

    /// Removes empty groups that processes which are gone have left behind:
    /// those whose names are `prefix`, a process's number, and anything, with
    /// `-` between. Returns how many folders were removed.
    pub fn sweep(&self, prefix: &str) -> usize {
        let mut removed = 0;
        for (_, parent) in &self.parents {
            for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let rest = name.to_str().and_then(|name| name.strip_prefix(prefix)?.strip_prefix('-'));
                let Some((owner, _)) = rest.and_then(|rest| rest.split_once('-')) else { continue };
                let is_gone =
                    owner.parse::<u32>().is_ok_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
                if !is_gone {
                    continue;
                }
                for inner in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                    removed += usize::from(fs::remove_dir(inner.path()).is_ok());
                }
                removed += usize::from(fs::remove_dir(entry.path()).is_ok());
            }
        }
        removed
    }

    /// Groups below this one, which is of these: what it limits, it limits for all
    /// of them together. No process may be in it itself.
    #[must_use]
    pub fn below(&self, group: &Cgroup) -> Self {
        if self.version != 1 {
            return group
                .folders
                .first()
                .map_or_else(|| self.clone(), |(_, folder)| unified::below(folder, true));
        }
        let parent = |(controller, usual): &(Controller, PathBuf)| {
            let own = group.folder(*controller).map(Path::to_owned);
            (*controller, own.unwrap_or_else(|| usual.clone()))
        };
        Self { version: 1, parents: self.parents.iter().map(parent).collect() }
    }

    /// Of control groups; 0 if there are none to be used.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Whether groups made here have it.
    pub fn has(&self, controller: Controller) -> bool {
        self.parent(controller).is_some()
    }

    fn parent(&self, controller: Controller) -> Option<&Path> {
        self.parents.iter().find(|(other, _)| *other == controller).map(|(_, parent)| parent.as_path())
    }
}

/// Where a version 1 controller's groups below our own are, if it is mounted.
fn version_1_parent(mounts: &str, own: &str, name: &str) -> Option<PathBuf> {
    let has = |list: &str| list.split(',').any(|part| part == name);
    let path = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        has(controllers).then_some(path)
    })?;
    let (root, point) = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let is_it = after.next() == Some("cgroup") && has(after.nth(1)?);
        let mut before = before.split(' ').skip(3);
        is_it.then_some((before.next()?, before.next()?))
    })?;
    Some(below(point, root, apart::around(path)))
}

/// Where version 2 is mounted, and the folder of this process's group.
fn version_2_parent(mounts: &str, own: &str) -> Option<(PathBuf, PathBuf)> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (root, point) = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        after.starts_with("cgroup2 ").then_some((before.next()?, before.next()?))
    })?;
    Some((PathBuf::from(point), below(point, root, path)))
}

/// In a container, our path may begin outside of what is mounted.
pub(crate) fn below(point: &str, root: &str, path: &str) -> PathBuf {
    let inside = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
    let full = Path::new(point).join(inside.trim_start_matches('/'));
    if full.is_dir() { full } else { PathBuf::from(point) }
}

fn is_writable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

/// What a group may use. What is `None`, or cannot be limited here, is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CgroupLimits {
    /// Bytes of memory, kernel memory and files in memory included.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u32>,
    /// Hundredths of one processor.
    pub cpu_percent: Option<u32>,
    /// Bytes a second that are read from each disk; and as many written.
    pub disk_bytes_per_s: Option<u64>,
}

/// What a group uses and used. A figure that nobody keeps here is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CgroupUsage {
    /// Bytes of memory now.
    pub memory_bytes: u64,
    /// The most bytes of memory ever.
    pub memory_peak_bytes: u64,
    /// Processes that were killed for want of memory.
    pub oom_kills: u64,
    /// Processor time.
    pub cpu_ns: u64,
    /// Processes and threads now.
    pub processes: u64,
}

/// A control group. Dropping it removes it if it is empty.
#[derive(Debug)]
pub struct Cgroup {
    version: u8,
    folders: Vec<(Controller, PathBuf)>,
    joins: Vec<File>,
    gauges: Gauges,
}

impl Cgroup {
    /// Makes a group of this name, which must be new, with limits.
    ///
    /// # Errors
    /// `AlreadyExists`, and what making folders and writing limits says;
    /// nothing is left behind then.
    pub fn create(hierarchies: &Hierarchies, name: &str, limits: &CgroupLimits) -> io::Result<Self> {
        let is_plain = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
        if !is_plain {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a name for a control group"));
        }
        let mut group = Self {
            version: hierarchies.version,
            folders: Vec::new(),
            joins: Vec::new(),
            gauges: Gauges::default(),
        };
        for (controller, parent) in &hierarchies.parents {
            // Most groups do not limit it, and one tree less is joined sooner.
            if *controller == Controller::Disk && limits.disk_bytes_per_s.is_none() {
                continue;
            }
            let folder = parent.join(name);
            // Controllers of version 1 may be mounted together.
            if !group.folders.iter().any(|(_, other)| *other == folder) {
                fs::create_dir(&folder)?;
            }
            group.folders.push((*controller, folder));
        }
        group.limit(limits)?;
        let mut last = None;
        for (_, folder) in &group.folders {
            if last == Some(folder) {
                continue;
            }
            // A write to `cgroup.procs` of version 1 waits for all processors, for milliseconds.
            let file = if group.version == 1 { "tasks" } else { "cgroup.procs" };
            group.joins.push(OpenOptions::new().write(true).open(folder.join(file))?);
            last = Some(folder);
        }
        let memory = group.folder(Controller::Memory);
        group.gauges = match group.version {
            1 => Gauges::of_version_1(group.folder(Controller::CpuTime), memory),
            _ => Gauges::of_version_2(group.folder(Controller::Cpu), memory),
        };
        Ok(group)
    }

    /// What can be read of it at little cost.
    pub fn gauges(&self) -> &Gauges {
        &self.gauges
    }

    fn limit(&self, limits: &CgroupLimits) -> io::Result<()> {
        let v1 = self.version == 1;
        if let (Some(folder), Some(bytes)) = (self.folder(Controller::Memory), limits.memory_bytes) {
            write(folder, if v1 { "memory.limit_in_bytes" } else { "memory.max" }, &bytes.to_string())?;
            if v1 {
                // Swap and kernel memory are counted apart where the kernel can.
                write_if_there(folder, "memory.memsw.limit_in_bytes", &bytes.to_string())?;
                write_if_there(folder, "memory.kmem.limit_in_bytes", &bytes.to_string())?;
                write_if_there(folder, "memory.swappiness", "0")?;
            } else {
                write_if_there(folder, "memory.swap.max", "0")?;
            }
        }
        if let (Some(folder), Some(most)) = (self.folder(Controller::Processes), limits.processes) {
            write(folder, "pids.max", &most.to_string())?;
        }
        if let (Some(folder), Some(percent)) = (self.folder(Controller::Cpu), limits.cpu_percent) {
            let quota = u64::from(percent.max(1)) * CPU_PERIOD_US / 100;
            if v1 {
                write(folder, "cpu.cfs_period_us", &CPU_PERIOD_US.to_string())?;
                write(folder, "cpu.cfs_quota_us", &quota.to_string())?;
            } else {
                write(folder, "cpu.max", &format!("{quota} {CPU_PERIOD_US}"))?;
            }
        }
        if let (Some(folder), Some(rate)) = (self.folder(Controller::Disk), limits.disk_bytes_per_s) {
            for disk in disks(Path::new("/sys/block"))? {
                if v1 {
                    write(folder, "blkio.throttle.read_bps_device", &format!("{disk} {rate}"))?;
                    write(folder, "blkio.throttle.write_bps_device", &format!("{disk} {rate}"))?;
                } else {
                    write(folder, "io.max", &format!("{disk} rbps={rate} wbps={rate}"))?;
                }
            }
        }
        Ok(())
    }

    /// Lets what is in the group have all processor time, so that what is
    /// being killed comes to its end.
    pub fn lift_cpu_limit(&self) {
        if let Some(folder) = self.folder(Controller::Cpu) {
            let (file, none) =
                if self.version == 1 { ("cpu.cfs_quota_us", "-1") } else { ("cpu.max", "max") };
            // Without it the end comes later, no more.
            let _ = write(folder, file, none);
        }
    }

    /// The processes in it, without those of groups below it.
    ///
    /// # Errors
    /// What reading says.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        let any = || self.folders.first().map(|(_, folder)| folder.as_path());
        let Some(folder) = self.folder(Controller::Processes).or_else(any) else { return Ok(Vec::new()) };
        let told = read(folder, "cgroup.procs")?;
        Ok(told.lines().filter_map(|line| line.trim().parse().ok()).collect())
    }

    /// Files such that who writes `0` into each is in the group.
    pub fn joins(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.joins.iter().map(File::as_fd)
    }

    /// What the group uses and used.
    ///
    /// # Errors
    /// What reading says; `NotFound` once it is removed.
    pub fn usage(&self) -> io::Result<CgroupUsage> {
        let mut usage = CgroupUsage::default();
        let v1 = self.version == 1;
        if let Some(folder) = self.folder(Controller::Memory) {
            let [now, peak, events] = if v1 {
                ["memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"]
            } else {
                ["memory.current", "memory.peak", "memory.events"]
            };
            usage.memory_bytes = number(&read(folder, now)?);
            // Older kernels do not keep a peak on version 2.
            usage.memory_peak_bytes = read(folder, peak).map_or(usage.memory_bytes, |text| number(&text));
            usage.oom_kills = field(&read(folder, events)?, "oom_kill");
        }
        if let Some(folder) = self.folder(Controller::Processes) {
            usage.processes = number(&read(folder, "pids.current")?);
        }
        if let Some(folder) = self.folder(Controller::CpuTime) {
            usage.cpu_ns = number(&read(folder, "cpuacct.usage")?);
        } else if let Some(folder) = self.folder(Controller::Cpu).filter(|_| !v1) {
            usage.cpu_ns = field(&read(folder, "cpu.stat")?, "usage_usec") * 1000;
        }
        Ok(usage)
    }

    /// Bytes of memory, without what the kernel can give up, that are charged to no group which is below
    /// this one: what those that were below it and are gone have left to others. What shrinks or ends while it
    /// is looked at may count; it is looked at again where groups came or went.
    ///
    /// # Errors
    /// What reading says; `Unsupported` where memory is not counted.
    pub fn kept_bytes(&self) -> io::Result<u64> {
        let folder = self.folder(Controller::Memory).ok_or(io::ErrorKind::Unsupported)?;
        let mut least = u64::MAX;
        for _ in 0..KEPT_LOOKS {
            let before = groups_in(folder)?;
            let mut kept = self.held_bytes(folder)?;
            for group in &before {
                match self.held_bytes(group) {
                    Ok(bytes) => kept = kept.saturating_sub(bytes),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            least = least.min(kept);
            if groups_in(folder)? == before {
                break;
            }
        }
        Ok(least)
    }

    /// All that a group and those below it have, but for files on disks, which the kernel gives up: memory,
    /// what was sent and not received, and what the kernel keeps of them.
    fn held_bytes(&self, folder: &Path) -> io::Result<u64> {
        let stat = read(folder, "memory.stat")?;
        let [usage, file, shared, given_up] = if self.version == 1 {
            // The figures without a prefix are of the group alone.
            ["memory.usage_in_bytes", "total_cache", "total_shmem", ""]
        } else {
            ["memory.current", "file", "shmem", "slab_reclaimable"]
        };
        let usage = number(&read(folder, usage)?);
        let files = field(&stat, file).saturating_sub(field(&stat, shared));
        Ok(usage.saturating_sub(files).saturating_sub(field(&stat, given_up)))
    }

    /// Removes the group, trying until `patience` is over: what was killed
    /// may still be leaving.
    ///
    /// # Errors
    /// `ResourceBusy` if something is still in it.
    pub fn remove(&self, patience: Duration) -> io::Result<()> {
        let deadline = Instant::now() + patience;
        let mut pause = Duration::from_micros(200);
        for (_, folder) in &self.folders {
            loop {
                match fs::remove_dir(folder) {
                    Ok(()) => break,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                    Err(error) if Instant::now() > deadline => return Err(error),
                    Err(_) => std::thread::sleep(pause),
                }
                pause = (pause * 2).min(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    fn folder(&self, wanted: Controller) -> Option<&Path> {
        self.folders.iter().find(|(controller, _)| *controller == wanted).map(|(_, folder)| folder.as_path())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = self.remove(Duration::ZERO);
    }
}

/// The groups below one.
fn groups_in(folder: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.insert(entry.path());
        }
    }
    Ok(found)
}

/// The numbers of the disks that have something on them.
fn disks(listed: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(listed)? {
        let folder = entry?.path();
        if number(&read(&folder, "size")?) > 0 {
            found.push(read(&folder, "dev")?.trim().to_owned());
        }
    }
    Ok(found)
}

fn write(folder: &Path, file: &str, text: &str) -> io::Result<()> {
    fs::write(folder.join(file), text)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot write {text} to {file}: {error}")))
}

/// For what a kernel may lack, or have and no longer take.
fn write_if_there(folder: &Path, file: &str, text: &str) -> io::Result<()> {
    match write(folder, file, text) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Unsupported) => Ok(()),
        Err(_) if !folder.join(file).exists() => Ok(()),
        other => other,
    }
}

fn read(folder: &Path, file: &str) -> io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    File::open(folder.join(file))?.take(CONTROL_LEN_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or(0)
}

/// The number behind a word at the beginning of a line.
fn field(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(word, _)| *word == name).map_or(0, |(_, value)| number(value))
}

#[cfg(test)]
mod tests;
