// SPDX-License-Identifier: Apache-2.0
//! What is read of a group again and again: its files stay open, and a reading
//! is one system call without a path.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::{field, number};

/// The first line of a control file, which is all that is read here.
const LINE_LEN_MAX: usize = 64;
const NANOS_PER_MICRO: u64 = 1000;

/// A group's gauges; those that nobody keeps here show nothing.
#[derive(Debug, Default)]
pub struct Gauges {
    cpu: Option<(File, CpuUnit)>,
    memory_peak: Option<File>,
}

/// How a control file tells processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CpuUnit {
    /// One number, in nanoseconds (version 1).
    Nanos,
    /// A field, in microseconds (version 2).
    UsageMicros,
}

impl Gauges {
    /// Those of version 1, in the folders of `cpuacct` and `memory`.
    pub(super) fn of_version_1(cpu: Option<&Path>, memory: Option<&Path>) -> Self {
        Self {
            cpu: cpu.and_then(|folder| open(folder, "cpuacct.usage")).map(|file| (file, CpuUnit::Nanos)),
            memory_peak: memory.and_then(|folder| open(folder, "memory.max_usage_in_bytes")),
        }
    }

    /// Those of version 2, in the folders in which `cpu` and `memory` are on.
    pub(super) fn of_version_2(cpu: Option<&Path>, memory: Option<&Path>) -> Self {
        Self {
            cpu: cpu.and_then(|folder| open(folder, "cpu.stat")).map(|file| (file, CpuUnit::UsageMicros)),
            // Older kernels do not keep a peak on version 2.
            memory_peak: memory.and_then(|folder| open(folder, "memory.peak")),
        }
    }

    /// Processor time of all that ever was in the group, in nanoseconds.
    pub fn cpu_ns(&self) -> Option<u64> {
        let (file, unit) = self.cpu.as_ref()?;
        let line = line(file)?;
        Some(match unit {
            CpuUnit::Nanos => number(&line),
            CpuUnit::UsageMicros => field(&line, "usage_usec") * NANOS_PER_MICRO,
        })
    }

    /// The most memory that the group ever had, in bytes.
    pub fn memory_peak_bytes(&self) -> Option<u64> {
        line(self.memory_peak.as_ref()?).map(|line| number(&line))
    }
}

/// Without it there is no such figure, and nothing else is lost.
fn open(folder: &Path, name: &str) -> Option<File> {
    File::open(folder.join(name)).ok()
}

fn line(file: &File) -> Option<String> {
    let mut bytes = [0; LINE_LEN_MAX];
    let len = file.read_at(&mut bytes, 0).ok()?;
    let line = bytes.get(..len)?.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}
