// SPDX-License-Identifier: Apache-2.0
//! How many threads libraries are to have.
//!
//! Most that compute in parallel start a thread for each processor of the machine, whatever their container may have
//! of them. Those threads take turns on what there is, wait awake for each other, and use up the time of all.

use std::sync::LazyLock;

/// Of the node. To ask reads files of the control group.
pub(super) static PROCESSORS: LazyLock<u32> = LazyLock::new(|| {
    let found = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(found).unwrap_or(u32::MAX)
});

/// Asked for by OpenMP and Arrow, and by `OpenBLAS` and MKL where their own variables say nothing.
const BY_MOST: &str = "OMP_NUM_THREADS";
/// Those of the runtimes' libraries that do not ask for it: what is in Rust, libvips (`sharp`).
const IN_PYTHON: [&str; 2] = ["RAYON_NUM_THREADS", "POLARS_MAX_THREADS"];
const IN_NODE: [&str; 2] = ["RAYON_NUM_THREADS", "VIPS_CONCURRENCY"];
/// Arrow's allocator has a thread that tidies up, from when it is loaded on.
const ARROW: (&str, &str) = ("JE_ARROW_MALLOC_CONF", "background_thread:false");
/// A function may have 64 threads and processes, and two libraries (`numpy` and `scipy` bring one each) start as many.
const THREADS_MAX: u32 = 24;

/// What a runtime's functions are told that may have so many hundredths of a processor, of so many processors.
///
/// Go counts processors itself, but does not see the container's control group. Executables are told what it would choose
/// by that: as many as there are parts of, and two at least, but no more than the machine has.
pub(super) fn variables(runtime: &str, cpu_percent: u32, processors: u32) -> Vec<(&'static str, String)> {
    let whole = (cpu_percent / 100).min(processors).clamp(1, THREADS_MAX).to_string();
    let begun = cpu_percent.div_ceil(100).max(2).min(processors).max(1).to_string();
    let mut all = vec![(BY_MOST, whole.clone())];
    match runtime {
        "python" => {
            all.extend(IN_PYTHON.map(|name| (name, whole.clone())));
            all.push((ARROW.0, ARROW.1.to_owned()));
        }
        "node" => all.extend(IN_NODE.map(|name| (name, whole.clone()))),
        _ => all.push(("GOMAXPROCS", begun)),
    }
    all
}
