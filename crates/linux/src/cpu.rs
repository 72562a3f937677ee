// SPDX-License-Identifier: Apache-2.0
//! Which CPUs this process may use, and binding a thread to one of them.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// The CPUs that the calling thread may run on, ascending.
///
/// # Errors
/// What the kernel says; in practice only when it has more CPUs than a
/// `cpu_set_t` can name (1,024).
pub fn available_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Binds the calling thread, and threads that it starts later, to one CPU.
///
/// # Errors
/// `InvalidInput` if the CPU does not exist or is not granted to the process.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such cpu"));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Lets the calling thread give way to others: its niceness grows by
/// `niceness`, of at most 19, which it cannot take back.
///
/// # Errors
/// What the kernel says; in practice only for a negative number.
pub fn lower_priority(niceness: i32) -> io::Result<()> {
    rustix::process::nice(niceness)?;
    Ok(())
}

/// How much the calling thread gives way to others: its niceness, from -20 to
/// 19.
///
/// # Errors
/// What the kernel says; in practice none.
pub fn niceness() -> io::Result<i32> {
    Ok(rustix::process::getpriority_process(None)?)
}

/// Sets the calling thread's niceness; below what it is only with the right to.
///
/// # Errors
/// `PermissionDenied` without CAP_SYS_NICE.
pub fn set_niceness(niceness: i32) -> io::Result<()> {
    Ok(rustix::process::setpriority_process(None, niceness)?)
}

/// The CPU that the calling thread runs on at this moment.
pub fn current_cpu() -> usize {
    sched_getcpu()
}

/// What processors did since the machine was started, in the kernel's ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessorTime {
    /// Nothing; waiting for a disk included.
    pub idle: u64,
    /// Anything, and nothing.
    pub all: u64,
}

/// What the CPUs that the calling thread may run on did. `None` where the kernel
/// does not tell (`/proc/stat`).
pub fn processor_time() -> Option<ProcessorTime> {
    time_of(&std::fs::read_to_string("/proc/stat").ok()?, &available_cpus().ok()?)
}

fn time_of(text: &str, cpus: &[usize]) -> Option<ProcessorTime> {
    let mut sum = ProcessorTime { idle: 0, all: 0 };
    for line in text.lines().filter_map(|line| line.strip_prefix("cpu")) {
        let mut words = line.split_ascii_whitespace();
        // The line of all has no number.
        let number = words.next().filter(|_| !line.starts_with(' ')).and_then(|word| word.parse().ok());
        if !number.is_some_and(|number| cpus.contains(&number)) {
            continue;
        }
        // user nice system idle iowait irq softirq steal; guests are in the first two.
        let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
        let (&idle, &waits) = (ticks.get(3)?, ticks.get(4)?);
        sum.idle = sum.idle.saturating_add(idle).saturating_add(waits);
        sum.all = ticks.iter().fold(sum.all, |all, each| all.saturating_add(*each));
    }
    (sum.all > 0).then_some(sum)
}

#[cfg(test)]
mod tests;
