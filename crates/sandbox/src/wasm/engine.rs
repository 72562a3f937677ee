// SPDX-License-Identifier: Apache-2.0
//! The wasmtime engines: for codelets and for programs, one each that counts fuel and
//! one that does not.
//!
//! Everything that could make two runs of one application differ is off here:
//! threads, relaxed SIMD, the bits of NaNs. Interruption by epochs is on in
//! both; its checks cost a load per loop iteration and nothing per call.

use std::path::PathBuf;

use wasmparser::WasmFeatures;
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, Strategy,
};

use crate::Error;

/// The longest module, in bytes.
pub const MODULE_BYTES_MAX: u64 = 256 << 20;
/// The largest linear memory: all that 32-bit addresses reach.
pub const MEMORY_BYTES_MAX: u64 = 4 << 30;
/// The most tables of a module.
pub const TABLES_MAX: u32 = 4;
/// The most elements of one table.
pub const TABLE_ELEMENTS_MAX: u64 = 1 << 18;

/// Instances per engine; each reserves over 4 GiB of addresses, of which a
/// process has 128 TiB.
const INSTANCES_TOTAL_MAX: usize = 4096;
/// How much of a linear memory stays resident in its pool slot, to be wiped
/// by us instead of being given back to the kernel and faulted in again.
const MEMORY_RESIDENT_BYTES: usize = 2 << 20;
/// The bookkeeping of one instance; a bound, not a reservation.
const INSTANCE_BYTES_MAX: usize = 64 << 20;

/// The WebAssembly that codelets may use. Stated in `docs/spec/abi.md`.
/// `GC_TYPES` is off because `externref` has no use without host references.
pub(crate) const FEATURES: WasmFeatures = WasmFeatures::WASM2
    .union(WasmFeatures::TAIL_CALL)
    .union(WasmFeatures::EXTENDED_CONST)
    .union(WasmFeatures::CUSTOM_PAGE_SIZES)
    .difference(WasmFeatures::GC_TYPES);

/// The WebAssembly that programs may use: exceptions too, which compilers make of
/// `setjmp` and of C++'s, with the types that those need.
pub(crate) const PROGRAM_FEATURES: WasmFeatures =
    FEATURES.union(WasmFeatures::EXCEPTIONS).union(WasmFeatures::GC_TYPES);

/// Whom an engine is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guests {
    /// Instances come and go within microseconds, in a pool.
    Codelets,
    /// Each run has an instance of its own, with a heap for exceptions that it throws.
    Programs,
}

/// How codelets are run. Every number is a bound.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where compiled code is kept between runs of the program; `None`: nowhere.
    pub cache_dir: Option<PathBuf>,
    /// Bytes of compiled code on disk; the oldest goes first.
    pub cache_bytes_max: u64,
    /// Threads that will have an [`Invoker`](super::Invoker) each, and the
    /// invocations through [`Sandbox`](crate::Sandbox) at one time.
    pub workers: usize,
    /// Compiled modules in memory.
    pub modules_max: usize,
    /// Bytes of compiled code in memory.
    pub modules_bytes_max: u64,
    /// Bytes of memories from which programs go on; the least recently used goes first.
    pub images_bytes_max: u64,
    /// Live instances of one invoker.
    pub instances_max: usize,
    /// Sandboxes that may exist.
    pub sandboxes_max: usize,
    /// Stack of a guest, in bytes. The threads that invoke need 512 KiB more.
    pub stack_bytes: usize,
    /// The same of a whole program: what parses numbers by recursion needs more than a codelet.
    pub program_stack_bytes: usize,
    /// The negative control of the isolation tests: modules are treated as
    /// stateless whatever they are.
    #[cfg(test)]
    pub(crate) is_unsound: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_dir: None,
            cache_bytes_max: 4 << 30,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            modules_max: 1024,
            modules_bytes_max: 2 << 30,
            images_bytes_max: 1 << 30,
            instances_max: 64,
            sandboxes_max: 1 << 16,
            stack_bytes: 1 << 20,
            program_stack_bytes: 8 << 20,
            #[cfg(test)]
            is_unsound: false,
        }
    }
}

impl Options {
    /// Invokers that exist at once: the workers' own, and as many again that
    /// serve the `Sandbox` trait.
    fn invokers(&self) -> usize {
        self.workers.max(1) * 2
    }

    /// Instances that one invoker keeps, so that the pool suffices for all.
    pub(crate) fn instances_per_invoker(&self) -> usize {
        self.instances_max.clamp(1, (INSTANCES_TOTAL_MAX / self.invokers()).max(2) - 1)
    }

    /// Slots of the pool: one more per invoker, for an instance that is made
    /// while the others live.
    fn instances_total(&self) -> u32 {
        (self.invokers() * (self.instances_per_invoker() + 1)) as u32
    }
}

/// Makes the engine that counts fuel or the one that does not.
pub(crate) fn engine(options: &Options, guests: Guests, counted: bool) -> Result<Engine, Error> {
    let (features, allocation, stack_bytes) = match guests {
        Guests::Codelets => {
            (FEATURES, InstanceAllocationStrategy::Pooling(pool(options)), options.stack_bytes)
        }
        Guests::Programs => {
            (PROGRAM_FEATURES, InstanceAllocationStrategy::OnDemand, options.program_stack_bytes)
        }
    };
    let mut config = Config::new();
    config
        .strategy(Strategy::Cranelift)
        .cranelift_opt_level(OptLevel::Speed)
        .cranelift_nan_canonicalization(true)
        .wasm_features(WasmFeatures::all(), false)
        .wasm_features(features, true)
        .consume_fuel(counted)
        .epoch_interruption(true)
        .max_wasm_stack(stack_bytes)
        // Of asynchronous calls, of which there are none: it must not be less.
        .async_stack_size(stack_bytes.max(2 << 20))
        // Nobody sees a backtrace: addresses would differ between runs.
        .wasm_backtrace_max_frames(None)
        .native_unwind_info(false)
        .generate_address_map(false)
        .memory_reservation(MEMORY_BYTES_MAX)
        .allocation_strategy(allocation);
    Engine::new(&config).map_err(|error| Error::Engine(format!("{error:#}")))
}

fn pool(options: &Options) -> PoolingAllocationConfig {
    let instances = options.instances_total();
    let mut pool = PoolingAllocationConfig::new();
    pool.total_core_instances(instances)
        .total_memories(instances)
        .total_tables(instances * TABLES_MAX)
        .max_core_instance_size(INSTANCE_BYTES_MAX)
        .max_memories_per_module(1)
        .max_tables_per_module(TABLES_MAX)
        .table_elements(TABLE_ELEMENTS_MAX as usize)
        .max_memory_size(MEMORY_BYTES_MAX as usize)
        .linear_memory_keep_resident(MEMORY_RESIDENT_BYTES)
        .table_keep_resident(MEMORY_RESIDENT_BYTES)
        .pagemap_scan(Enabled::Auto);
    pool
}
