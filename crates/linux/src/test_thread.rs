// SPDX-License-Identifier: Apache-2.0
//! For tests: what a thread gives up, it gives up for itself only.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

/// Runs a test on a thread that ends with it.
pub(crate) fn on_own_thread(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(test).join().unwrap());
}

/// Tests of what only root may do have nothing to test otherwise; the suite of
/// `sandbox` covers user namespaces.
pub(crate) fn is_root() -> bool {
    let needed = 1u64 << 21;
    crate::capabilities().unwrap() & needed != 0
}
