// SPDX-License-Identifier: Apache-2.0
//! How many threads libraries are to have.
//!
//! Most that compute in parallel start a thread for each processor of the machine, whatever their container may have
//! of them. Those threads take turns on what there is, wait awake for each other, and use up the time of all.

/// Variables that libraries ask for: OpenMP and Arrow, `OpenBLAS`, MKL, Numba, those in Rust, libvips (`sharp`).
const BY_LIBRARIES: [&str; 7] = [
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "VIPS_CONCURRENCY",
];
/// Arrow's allocator has a thread that tidies up, from when it is loaded on.
const ARROW: (&str, &str) = ("JE_ARROW_MALLOC_CONF", "background_thread:false");

/// What they are told where a function may have so many hundredths of a processor.
///
/// Go counts processors itself, but does not see the container's control group. It is told what it would choose by
/// that: as many as there are parts of, and two at least.
pub(super) fn variables(cpu_percent: u32) -> impl Iterator<Item = (&'static str, String)> {
    let (whole, begun) = ((cpu_percent / 100).max(1), cpu_percent.div_ceil(100).max(2));
    let libraries = BY_LIBRARIES.into_iter().map(move |name| (name, whole.to_string()));
    libraries.chain([("GOMAXPROCS", begun.to_string()), (ARROW.0, ARROW.1.to_owned())])
}
