// SPDX-License-Identifier: Apache-2.0
//! Clocks that run with work, and the parsing of `/proc`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::{
    CHILDREN_TIMES_AT, OWN_TIMES_AT, cpu_ns_of, kib_field, peak_rss_bytes, process_cpu_ns, thread_cpu_ns,
    ticks_from, total_memory_bytes,
};

fn spin(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        black_box(0);
    }
}

#[test]
fn what_a_process_has_that_is_no_files_is_counted() {
    let bytes = super::anonymous_bytes(std::process::id()).unwrap();
    assert!((64 << 10..4 << 30).contains(&bytes), "{bytes}");
    let kept = std::hint::black_box(vec![1_u8; 64 << 20]);
    let more = super::anonymous_bytes(std::process::id()).unwrap();
    assert!(more >= bytes + (48 << 20), "{bytes} {more} {}", kept.len());
    assert!(super::anonymous_bytes(0).is_err());
}

#[test]
fn the_threads_clock_counts_its_own_work_and_no_sleep() {
    let before = thread_cpu_ns();
    std::thread::sleep(Duration::from_millis(30));
    std::thread::spawn(|| spin(Duration::from_millis(30))).join().unwrap();
    let idle = thread_cpu_ns() - before;
    assert!(idle < 20_000_000, "{idle} ns while another thread worked");
    let process_before = process_cpu_ns().unwrap();
    let before = thread_cpu_ns();
    while thread_cpu_ns() - before < 5_000_000 {}
    assert!(process_cpu_ns().unwrap() - process_before >= 5_000_000);
}

#[test]
fn ticks_stand_behind_any_program_name() {
    let stat = "17 (a) b (c)) S 1 17 17 0 -1 4194560 1 2 3 4 50 60 700 8000 20 0 1 0 9";
    assert_eq!(ticks_from(stat, CHILDREN_TIMES_AT).unwrap(), 8_700);
    assert_eq!(ticks_from(stat, OWN_TIMES_AT).unwrap(), 110);
    assert!(ticks_from("17 (x) S 1 2", CHILDREN_TIMES_AT).is_err());
    assert!(ticks_from("", OWN_TIMES_AT).is_err());
}

#[test]
fn the_time_of_a_process_is_that_of_all_its_threads() {
    let before = cpu_ns_of(std::process::id()).unwrap();
    std::thread::spawn(|| {
        let begun = thread_cpu_ns();
        while thread_cpu_ns() - begun < 60_000_000 {}
    })
    .join()
    .unwrap();
    assert!(cpu_ns_of(std::process::id()).unwrap() - before >= 50_000_000);
    assert!(cpu_ns_of(u32::MAX).is_err());
}

#[test]
fn kib_fields_are_read_exactly() {
    let text = "VmPeak:\t 9 kB\nVmHWM:\t   1234 kB\n";
    assert_eq!(kib_field(text, "VmHWM:").unwrap(), 1234 * 1024);
    assert!(kib_field(text, "VmRSS:").is_err());
    assert!(kib_field("VmHWM: lots", "VmHWM:").is_err());
}

#[test]
fn memory_figures_follow_what_the_process_does() {
    let before = peak_rss_bytes().unwrap();
    let block = black_box(vec![1u8; 64 << 20]);
    let after = peak_rss_bytes().unwrap();
    assert!(after - before > 32 << 20 || before > 64 << 20, "{before} {after} {}", block.len());
    assert!(total_memory_bytes().unwrap() > after);
}
