// SPDX-License-Identifier: Apache-2.0
//! What a container may use, and what it used.

use linux::{CgroupLimits, CgroupUsage, ProcessLimits};

/// The most that a container may use. All of it is enforced by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Memory: of its processes, of the kernel for them, and of its `/tmp`.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub processes: u32,
    /// Processor time, in hundredths of one processor.
    pub cpu_percent: u32,
    /// Open files of each process.
    pub files: u64,
    /// Bytes a second that are read from each disk; and as many written.
    pub disk_bytes_per_s: Option<u64>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { memory_bytes: 256 << 20, processes: 64, cpu_percent: 100, files: 256, disk_bytes_per_s: None }
    }
}

impl Bounds {
    pub(super) fn of_group(&self) -> CgroupLimits {
        CgroupLimits {
            memory_bytes: Some(self.memory_bytes),
            processes: Some(self.processes),
            cpu_percent: Some(self.cpu_percent),
            disk_bytes_per_s: self.disk_bytes_per_s,
        }
    }

    /// Without a control group for memory, the kernel holds each process by
    /// itself to the limit that the group would have.
    pub(super) fn of_process(&self, tmp_bytes: u64, has_memory_group: bool) -> ProcessLimits {
        ProcessLimits {
            files: Some(self.files),
            processes: Some(u64::from(self.processes)),
            file_bytes: Some(tmp_bytes),
            core_bytes: Some(0),
            queue_bytes: Some(0),
            locked_bytes: Some(64 << 10),
            data_bytes: (!has_memory_group).then_some(self.memory_bytes),
        }
    }
}

/// What a container uses and used. Where the machine has no control groups,
/// all of it is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Memory now.
    pub memory_bytes: u64,
    /// The most memory ever.
    pub memory_peak_bytes: u64,
    /// Processes killed because there was no memory left.
    pub oom_kills: u64,
    /// Processor time.
    pub cpu_ns: u64,
    /// Processes and threads now.
    pub processes: u64,
}

impl From<CgroupUsage> for Usage {
    fn from(usage: CgroupUsage) -> Self {
        let CgroupUsage { memory_bytes, memory_peak_bytes, oom_kills, cpu_ns, processes } = usage;
        Self { memory_bytes, memory_peak_bytes, oom_kills, cpu_ns, processes }
    }
}

/// Defences that are switched off. For tests only: a test that an attack is
/// stopped shows, with exactly that defence off, that it would be seen.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Weakness(pub(super) u32);

impl Weakness {
    /// Everything holds.
    pub const NONE: Self = Self(0);
    /// No filter of system calls.
    pub const ANY_CALL: Self = Self(1);
    /// Code runs as root with all capabilities.
    pub const ROOT: Self = Self(1 << 1);
    /// No control groups.
    pub const NO_GROUP: Self = Self(1 << 2);
    /// No limits of processes.
    pub const NO_LIMITS: Self = Self(1 << 3);
    /// The whole of /proc, to be written.
    pub const WHOLE_PROC: Self = Self(1 << 4);
    /// The host's network.
    pub const HOST_NETWORK: Self = Self(1 << 5);
    /// What is bound can be written.
    pub const WRITABLE: Self = Self(1 << 6);
    /// `/tmp` has no quota.
    pub const NO_QUOTA: Self = Self(1 << 7);
    /// Executing a file may give rights.
    pub const NEW_PRIVILEGES: Self = Self(1 << 8);
    /// The old root stays, at `/old`.
    pub const OLD_ROOT: Self = Self(1 << 9);
    /// Devices can be opened in `/tmp`.
    pub const DEVICES: Self = Self(1 << 10);
    /// The host's processes are seen, and can be reached.
    pub const HOST_PROCESSES: Self = Self(1 << 11);
    /// No Landlock.
    pub const NO_LANDLOCK: Self = Self(1 << 12);
    /// Set-user-id bits mean something in binds.
    pub const SETUID: Self = Self(1 << 13);
    /// A template in a realm may become any user of it.
    pub const ANY_USER: Self = Self(1 << 14);
    /// Who makes a container can be looked at by others of its user.
    pub const SEEN: Self = Self(1 << 15);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}
