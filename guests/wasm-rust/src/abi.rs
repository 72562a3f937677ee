// SPDX-License-Identifier: Apache-2.0
//! The imports of module `sinew_v1`, as `docs/spec/abi.md` lists them.
//!
//! Only what takes a pointer is unsafe: every other misuse ends the call on
//! the node's side. Outside of Wasm they exist, so that guests can be checked
//! and documented there, and panic.

#[cfg(target_arch = "wasm32")]
#[link(wasm_import_module = "sinew_v1")]
unsafe extern "C" {
    pub(crate) safe fn kind(handle: i32) -> i32;
    pub(crate) safe fn size(handle: i32) -> i64;
    pub(crate) safe fn equal(a: i32, b: i32) -> i32;
    pub(crate) fn read(handle: i32, offset: i64, target: *mut u8, len: i32) -> i32;
    pub(crate) safe fn read_u64(handle: i32, offset: i64) -> i64;
    pub(crate) safe fn entry(handle: i32, index: i64) -> i32;
    pub(crate) fn blob(bytes: *const u8, len: i32) -> i32;
    pub(crate) safe fn blob_u64(value: i64, len: i32) -> i32;
    pub(crate) fn tree(handles: *const i32, count: i32) -> i32;
    pub(crate) safe fn application(tree: i32) -> i32;
    pub(crate) safe fn identification(value: i32) -> i32;
    pub(crate) safe fn selection(target: i32, index: i64) -> i32;
    pub(crate) safe fn selection_range(target: i32, begin: i64, end: i64) -> i32;
    pub(crate) safe fn strict(thunk: i32) -> i32;
    pub(crate) safe fn shallow(thunk: i32) -> i32;
    pub(crate) safe fn lower(value: i32) -> i32;
    pub(crate) safe fn fail(detail: i32);
}

#[cfg(not(target_arch = "wasm32"))]
mod outside {
    macro_rules! outside {
        ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
            $(pub(crate) fn $name($(_: $argument),*) -> $result {
                panic!(concat!("sinew_v1.", stringify!($name), " exists only in a sandbox"))
            })*
        };
    }

    outside! {
        kind(i32) -> i32;
        size(i32) -> i64;
        equal(i32, i32) -> i32;
        read_u64(i32, i64) -> i64;
        entry(i32, i64) -> i32;
        blob_u64(i64, i32) -> i32;
        application(i32) -> i32;
        identification(i32) -> i32;
        selection(i32, i64) -> i32;
        selection_range(i32, i64, i64) -> i32;
        strict(i32) -> i32;
        shallow(i32) -> i32;
        lower(i32) -> i32;
        fail(i32) -> ();
    }

    macro_rules! outside_with_pointers {
        ($($name:ident($($argument:ty),*);)*) => {
            $(pub(crate) unsafe fn $name($(_: $argument),*) -> i32 {
                panic!(concat!("sinew_v1.", stringify!($name), " exists only in a sandbox"))
            })*
        };
    }

    outside_with_pointers! {
        read(i32, i64, *mut u8, i32);
        blob(*const u8, i32);
        tree(*const i32, i32);
    }
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) use outside::*;
