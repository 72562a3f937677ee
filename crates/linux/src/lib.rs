// SPDX-License-Identifier: Apache-2.0
//! The only wrapper of kernel calls.
//!
//! Safe functions over what the node needs of Linux and the standard library
//! does not give: file mappings, CPU clocks, a cheap clock, hints for the cache,
//! CPU affinity, memory figures, a heap in huge pages; and what confines other processes: pidfds,
//! namespaces, mounts, control groups, credentials, filters for system calls.
//! Errors are [`std::io::Error`] with the kernel's own code inside; whoever
//! calls knows the path or purpose and adds it.

mod cached_read;
mod calls;
mod cgroup;
mod chosen_group;
mod cpu;
mod credentials;
mod execution;
mod heap;
mod landlock;
mod mapping;
mod memory_image;
mod message;
mod mounts;
mod namespaces;
mod network;
mod outbox;
mod pidfd;
mod places;
mod prefetch;
mod shared_memory;
mod spool;
mod syscall_filter;
mod syscall_profile;
#[cfg(test)]
mod test_thread;
mod ticks;
mod usage;

pub use cached_read::read_cached;
pub use calls::call_number;
pub use cgroup::{Cgroup, CgroupLimits, CgroupUsage, Controller, Gauges, Hierarchies};
pub use chosen_group::{ChosenGroup, GroupSetting};
pub use cpu::{
    ProcessorTime, available_cpus, current_cpu, lower_priority, niceness, pin_to_cpu, processor_time,
    set_niceness,
};
pub use credentials::{
    HeldCapabilities, ProcessLimits, become_user, become_user_with, capabilities, drop_bounding_set,
    forbid_dumping, forbid_new_privileges, has_resource_limit, hold_capabilities, keep_capabilities,
    limit_bounding_set, set_process_limits, set_resource_limit,
};
pub use execution::{close_on_exec_from, fix_addresses, keep_only_as_stdin, memory_file};
pub use heap::{HEAP, Heap, SMALL_HEAP, keep_freed_memory, take_huge_pages, take_small_pages, warm_heap};
pub use landlock::{landlock_version, restrict_files};
pub use mapping::Mapping;
pub use memory_image::{AlikeImageWriter, KeptCopy, MemoryImage, MemoryImageWriter};
pub use message::{
    MESSAGE_FDS_MAX, MESSAGE_LEN_MAX, end_messages, limit_sending, message_pair, receive_message,
    refuse_descriptors, ring, send_message, send_part,
};
pub use mounts::{
    MountFlags, Propagation, Restrictions, attach, change_directory, change_mount, change_root, copy_mount,
    copy_tree, detach, file_system_size, make_mounts_private, new_file_system, new_memory_files, new_mount,
    propagate, restrict,
};
pub use namespaces::{
    Namespaces, UserRange, attach_in, enter, enter_file, host_name, leave_session_keyring, limit_inotify,
    map_own_user, own_namespaces, own_user, set_host_name, unshare, unshare_users,
};
pub use network::bring_up_loopback;
pub use outbox::{Lent, Outbox, Sealed};
pub use pidfd::{
    Exit, Forked, ask_to_end, child_events, drain_events, fork, kill_group, kill_process, leave_session,
    open_process, own_number, own_process, process_number, reap_any, reap_group, reset_signals, send_signal,
    wait_either, wait_process, wait_readable, wait_ready,
};
pub use places::{DeviceKind, hold_named_pipe, make_device, make_named_pipe, open_named_pipe, set_file_mask};
pub use prefetch::{prefetch, prefetch_to_write};
pub use shared_memory::{SHARED_MEMORY_MAX, SharedMemory, wait_while, wake_one};
pub use spool::Spool;
pub use syscall_filter::{Argument, Rule, SyscallFilter, Verdict, has_syscall_filters};
pub use syscall_profile::{ArgumentTest, Comparison, ProfileAnswer, ProfileRule};
pub use ticks::{Ticks, monotonic_ns};
pub use usage::{
    anonymous_bytes, cpu_ns_of, disk_free_bytes, disk_total_bytes, files_max, peak_rss_bytes, process_cpu_ns,
    thread_cpu_ns, total_memory_bytes,
};
