// SPDX-License-Identifier: Apache-2.0
//! The only wrapper of kernel calls.
//!
//! Safe functions over what the node needs of Linux and the standard library
//! does not give: file mappings, CPU clocks, a cheap clock, hints for the cache,
//! CPU affinity, memory figures, a heap in huge pages; and what confines other processes: pidfds,
//! namespaces, mounts, control groups, credentials, filters for system calls.
//! Errors are [`std::io::Error`] with the kernel's own code inside; whoever
//! calls knows the path or purpose and adds it.

mod calls;
mod cgroup;
mod cpu;
mod credentials;
mod execution;
mod heap;
mod landlock;
mod mapping;
mod message;
mod mounts;
mod namespaces;
mod network;
mod pidfd;
mod prefetch;
mod syscall_filter;
#[cfg(test)]
mod test_thread;
mod ticks;
mod usage;

pub use calls::call_number;
pub use cgroup::{Cgroup, CgroupLimits, CgroupUsage, Controller, Hierarchies};
pub use cpu::{available_cpus, current_cpu, lower_priority, pin_to_cpu};
pub use credentials::{
    ProcessLimits, become_user, capabilities, drop_bounding_set, forbid_dumping, forbid_new_privileges,
    keep_capabilities, set_process_limits,
};
pub use execution::{close_on_exec_from, fix_addresses, keep_on_exec, keep_only_as_stdin, memory_file};
pub use heap::{prefer_huge_pages, warm_heap};
pub use landlock::{landlock_version, restrict_files};
pub use mapping::Mapping;
pub use message::{
    MESSAGE_FDS_MAX, MESSAGE_LEN_MAX, end_messages, limit_sending, message_pair, receive_message,
    send_message,
};
pub use mounts::{
    Restrictions, attach, change_directory, change_root, copy_tree, detach, file_system_size,
    make_mounts_private, new_file_system, new_memory_files, restrict,
};
pub use namespaces::{
    Namespaces, attach_in, enter, leave_session_keyring, map_own_user, own_user, set_host_name, unshare,
};
pub use network::bring_up_loopback;
pub use pidfd::{
    Exit, Forked, child_events, drain_events, fork, kill_process, leave_session, open_process, reap_any,
    reset_signals, wait_either, wait_process, wait_readable,
};
pub use prefetch::{prefetch, prefetch_to_write};
pub use syscall_filter::{Argument, Rule, SyscallFilter, Verdict, has_syscall_filters};
pub use ticks::{Ticks, monotonic_ns};
pub use usage::{
    disk_free_bytes, files_max, peak_rss_bytes, process_cpu_ns, thread_cpu_ns, total_memory_bytes,
};
