// SPDX-License-Identifier: Apache-2.0
//! The peer of `count-string`: its codelet in a plain wasmtime loop.
//!
//! One instance per thread, never reset; handles are positions in a fixed
//! table; the engine has the same settings as the node's.

use wasmtime::{
    Caller, Config, Engine, Error, Extern, Instance, Linker, Memory, Module, Result, Store, TypedFunc,
};

/// The application's tree: limits, procedure, needle, shard.
const APPLICATION: i32 = 0;
const ENTRIES: i64 = 4;
const NEEDLE: i32 = 3;
const SHARD: i32 = 4;
const RESULT: i32 = 5;

/// The compiled codelet.
pub(crate) struct Bare {
    engine: Engine,
    module: Module,
}

/// Inputs and result of the running call.
#[derive(Default)]
struct Call {
    shard: &'static [u8],
    needle: &'static [u8],
    result: Vec<u8>,
    memory: Option<Memory>,
}

impl Call {
    fn blob(&self, handle: i32) -> &[u8] {
        match handle {
            SHARD => self.shard,
            NEEDLE => self.needle,
            _ => &[],
        }
    }
}

/// One thread's instance.
pub(crate) struct BareInstance {
    store: Store<Call>,
    apply: TypedFunc<i32, i32>,
}

impl Bare {
    pub(crate) fn new(wasm: &[u8]) -> Result<Self> {
        let mut config = Config::new();
        config.epoch_interruption(true).cranelift_nan_canonicalization(true);
        config.wasm_custom_page_sizes(true);
        let engine = Engine::new(&config)?;
        let module = Module::new(&engine, wasm)?;
        Ok(Self { engine, module })
    }

    pub(crate) fn instance(&self) -> Result<BareInstance> {
        let mut store = Store::new(&self.engine, Call::default());
        store.set_epoch_deadline(1);
        let mut linker = Linker::<Call>::new(&self.engine);
        linker.func_wrap("sinew_v1", "size", |call: Caller<'_, Call>, handle: i32| {
            if handle == APPLICATION { ENTRIES } else { call.data().blob(handle).len() as i64 }
        })?;
        linker.func_wrap("sinew_v1", "read", read)?;
        linker.func_wrap("sinew_v1", "blob", |mut call: Caller<'_, Call>, at: i32, len: i32| {
            let memory = call.data().memory.ok_or_else(no_memory)?;
            let (bytes, data) = memory.data_and_store_mut(&mut call);
            let range = at as u32 as usize..at as u32 as usize + len as u32 as usize;
            data.result = bytes.get(range).ok_or_else(out_of_bounds)?.to_vec();
            Result::<i32>::Ok(RESULT)
        })?;
        linker.define_unknown_imports_as_traps(&self.module)?;
        let instance: Instance = linker.instantiate(&mut store, &self.module)?;
        store.data_mut().memory = instance.get_export(&mut store, "memory").and_then(Extern::into_memory);
        let apply = instance.get_typed_func(&mut store, "apply")?;
        Ok(BareInstance { store, apply })
    }
}

fn read(mut call: Caller<'_, Call>, handle: i32, offset: i64, at: i32, len: i32) -> Result<i32> {
    let memory = call.data().memory.ok_or_else(no_memory)?;
    let (bytes, data) = memory.data_and_store_mut(&mut call);
    let blob = data.blob(handle).get(offset as usize..).ok_or_else(out_of_bounds)?;
    let len = blob.len().min(len as u32 as usize);
    let at = at as u32 as usize;
    bytes.get_mut(at..at + len).ok_or_else(out_of_bounds)?.copy_from_slice(&blob[..len]);
    Ok(len as i32)
}

impl BareInstance {
    /// Counts in one shard.
    pub(crate) fn call(&mut self, shard: &'static [u8], needle: &'static [u8]) -> Result<&[u8]> {
        let data = self.store.data_mut();
        data.shard = shard;
        data.needle = needle;
        let result = self.apply.call(&mut self.store, 0)?;
        if result != RESULT {
            return Err(Error::msg("the codelet returned another handle"));
        }
        Ok(&self.store.data().result)
    }
}

fn no_memory() -> Error {
    Error::msg("the codelet exports no memory")
}

fn out_of_bounds() -> Error {
    Error::msg("the codelet reads or writes out of bounds")
}
