// SPDX-License-Identifier: Apache-2.0
//! What the process and its threads have used, and what the machine has.
//!
//! Reading the thread's clock costs a few hundred nanoseconds: time batches,
//! not single operations.

use std::fs;
use std::io;
use std::path::Path;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Ticks per second of the times in `/proc`; part of the kernel's interface
/// on every architecture that Sinew runs on.
const PROC_TICKS_PER_SECOND: u64 = 100;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// Where `utime` and `stime` stand in `/proc/PID/stat`, counted from the first
/// field behind the program's name.
const OWN_TIMES_AT: usize = 11;
/// Where `cutime` and `cstime` stand in `/proc/self/stat`, counted from the
/// first field behind the program's name.
const CHILDREN_TIMES_AT: usize = 13;

/// CPU time of the calling thread, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// CPU time of the process, all its threads, and the children that it waited
/// for, in nanoseconds. The children's part has a resolution of 10 ms.
///
/// # Errors
/// `/proc` is not mounted or has another form.
pub fn process_cpu_ns() -> io::Result<u64> {
    let children_ticks = ticks_from(&fs::read_to_string("/proc/self/stat")?, CHILDREN_TIMES_AT)?;
    let children_ns = children_ticks * (NANOS_PER_SECOND / PROC_TICKS_PER_SECOND);
    Ok(nanos(clock_gettime(ClockId::ProcessCPUTime)) + children_ns)
}

/// CPU time of another process and all its threads, in nanoseconds, in steps
/// of 10 ms.
///
/// # Errors
/// There is no such process, or `/proc` is not mounted or has another form.
pub fn cpu_ns_of(pid: u32) -> io::Result<u64> {
    let ticks = ticks_from(&fs::read_to_string(format!("/proc/{pid}/stat"))?, OWN_TIMES_AT)?;
    Ok(ticks * (NANOS_PER_SECOND / PROC_TICKS_PER_SECOND))
}

/// Memory of the machine, in bytes. A container's own limit is not looked at.
///
/// # Errors
/// `/proc` is not mounted or has another form.
pub fn total_memory_bytes() -> io::Result<u64> {
    kib_field(&fs::read_to_string("/proc/meminfo")?, "MemTotal:")
}

/// The most memory that was resident for this process at once, in bytes.
///
/// # Errors
/// `/proc` is not mounted or has another form.
pub fn peak_rss_bytes() -> io::Result<u64> {
    kib_field(&fs::read_to_string("/proc/self/status")?, "VmHWM:")
}

/// Memory of a process that is no file's, in bytes: also what it shares with
/// processes that were forked from it.
///
/// # Errors
/// There is no such process, or it is another user's.
pub fn anonymous_bytes(pid: u32) -> io::Result<u64> {
    kib_field(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?, "Anonymous:")
}

/// Space that an unprivileged user may still fill where `path` lies, in bytes.
///
/// # Errors
/// `path` does not exist, or its file system does not tell.
pub fn disk_free_bytes(path: &Path) -> io::Result<u64> {
    let figures = rustix::fs::statvfs(path)?;
    Ok(figures.f_bavail.saturating_mul(figures.f_frsize))
}

/// Space on the disk that `path` lies on, used or not, in bytes.
///
/// # Errors
/// As [`disk_free_bytes`].
pub fn disk_total_bytes(path: &Path) -> io::Result<u64> {
    let figures = rustix::fs::statvfs(path)?;
    Ok(figures.f_blocks.saturating_mul(figures.f_frsize))
}

/// Files, sockets included, that this process may have open at the same time;
/// `None` if there is no limit.
pub fn files_max() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

fn nanos(time: Timespec) -> u64 {
    // CPU clocks start at zero and never run backwards.
    time.tv_sec as u64 * NANOS_PER_SECOND + time.tv_nsec as u64
}

/// User and system ticks that begin at a field. The program's name may hold
/// blanks and brackets, so fields are counted behind its last bracket.
fn ticks_from(stat: &str, field: usize) -> io::Result<u64> {
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
    let mut ticks = fields.split_ascii_whitespace().skip(field).map(str::parse::<u64>);
    match (ticks.next(), ticks.next()) {
        (Some(Ok(user)), Some(Ok(system))) => Ok(user + system),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "/proc/self/stat has an unknown form")),
    }
}

/// A line `name   123 kB`, in bytes.
fn kib_field(text: &str, name: &str) -> io::Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|value| value.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok());
    kib.map(|kib| kib * 1024)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc has no number for {name}")))
}

#[cfg(test)]
mod tests;
