// SPDX-License-Identifier: Apache-2.0
//! `fib(add, n)`: Fibonacci's number `n`, by way of the procedure `add`.
//!
//! Written as if it cost exponential time: two calls of itself, each asked
//! for strictly, and a call of `add` that gets both results. Memoisation by
//! the platform makes it linear. Numbers have 8 bits, as `add` has them: from
//! n = 14 on, the result is modulo 256.
#![cfg_attr(target_arch = "wasm32", no_std)]

use sinew_guest::{Call, Handle, codelet, fail, number};

fn fib(call: Call) -> Handle {
    let [add, n] = call.arguments();
    let n = n.read_u64(0);
    if n < 2 {
        return number(n, 1);
    }
    if n > 255 {
        fail("n is over 255");
    }
    let before = |distance| call.apply(call.procedure(), [add, number(n - distance, 1)]).strict();
    call.apply(add, [before(1), before(2)])
}

codelet!(fib);
