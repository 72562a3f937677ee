// SPDX-License-Identifier: Apache-2.0
//! Codelets in Rust: a safe, small layer over the imports of `sinew_v1`.
//!
//! A codelet is one pure function from an application to a handle. It reads
//! what its arguments hold, makes new blobs, trees and thunks, and returns a
//! handle; it cannot wait, and cannot see anything that it was not given.
//!
//! A *handle* here is an index into a table that the node keeps for this one
//! call. Misuse (the bytes of a thunk, an entry past the end) ends the call
//! with the failure `bad-handle`, so nothing here returns a `Result`.
//!
//! ```text
//! #![no_std]
//! use sinew_guest::{Call, Handle, codelet, number};
//!
//! fn add(call: Call) -> Handle {
//!     let [a, b] = call.arguments();
//!     number(a.read_u64(0).wrapping_add(b.read_u64(0)), 8)
//! }
//! codelet!(add);
//! ```
#![no_std]

mod abi;
mod call;
mod handle;
mod limits;
mod reader;

pub use call::Call;
pub use handle::{Handle, Kind, blob, fail, number, tree};
pub use limits::Limits;
pub use reader::{PIECE_LEN, Reader, with_piece};

/// Exports `function`, a `fn(Call) -> Handle`, as the module's `apply`, and
/// turns panics into failures that carry the message where it is constant.
///
/// Outside of Wasm it does nothing, so that a codelet's logic can be tested
/// on the machine that builds it.
#[macro_export]
macro_rules! codelet {
    ($function:path) => {
        /// The codelet's entry; the node calls it once.
        #[cfg(target_arch = "wasm32")]
        #[unsafe(no_mangle)]
        pub extern "C" fn apply(application: i32) -> i32 {
            let function: fn($crate::Call) -> $crate::Handle = $function;
            function($crate::Call::from_index(application)).index()
        }

        #[cfg(target_arch = "wasm32")]
        #[panic_handler]
        fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
            $crate::fail(info.message().as_str().unwrap_or("the codelet panicked"))
        }

        #[cfg(not(target_arch = "wasm32"))]
        const _: fn($crate::Call) -> $crate::Handle = $function;
    };
}
