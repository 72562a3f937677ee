// SPDX-License-Identifier: Apache-2.0
//! The only wrapper of kernel calls.
//!
//! Safe functions over what the node needs of Linux and the standard library
//! does not give: file mappings, CPU clocks, a cheap clock, CPU affinity, memory
//! figures, a heap in huge pages.
//! Errors are [`std::io::Error`] with the kernel's own code inside; whoever
//! calls knows the path or purpose and adds it.

mod cpu;
mod heap;
mod mapping;
mod packet;
mod ticks;
mod usage;

pub use cpu::{available_cpus, current_cpu, pin_to_cpu};
pub use heap::{prefer_huge_pages, warm_heap};
pub use mapping::Mapping;
pub use packet::{PACKET_FDS_MAX, Packets};
pub use ticks::Ticks;
pub use usage::{
    disk_free_bytes, files_max, peak_rss_bytes, process_cpu_ns, thread_cpu_ns, total_memory_bytes,
};
