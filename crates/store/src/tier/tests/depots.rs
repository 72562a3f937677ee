// SPDX-License-Identifier: Apache-2.0
//! A depot in memory that fails as a test wants it to.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::Object;
use crate::tier::{Depot, DepotError, LISTED_MAX};

/// What happens in the middle of a call, and of which.
struct Hook {
    call: u64,
    act: Box<dyn FnOnce() + Send>,
}

/// What was put, and how it fares.
#[derive(Default)]
pub(super) struct TestDepot {
    pub(super) names: Mutex<BTreeMap<String, Vec<u8>>>,
    /// So many calls succeed yet; below 0: all.
    pub(super) left: AtomicI64,
    pub(super) is_limited: AtomicBool,
    /// A put that fails has been done all the same.
    pub(super) does_all_the_same: AtomicBool,
    /// One bit of what is read is another one.
    pub(super) flips: AtomicBool,
    /// The last byte of what is read is missing.
    pub(super) cuts: AtomicBool,
    /// Calls take so many milliseconds.
    pub(super) stalls_ms: AtomicU64,
    pub(super) calls: AtomicU64,
    pub(super) bytes_out: AtomicU64,
    hook: Mutex<Option<Hook>>,
    /// What has one of these in its name is not taken.
    pub(super) refuses: Mutex<Vec<String>>,
    /// What has one of these in its name is not taken before that is over.
    pub(super) holds: Mutex<Vec<String>>,
}

impl TestDepot {
    pub(super) fn fail_after(&self, calls: i64) {
        self.left.store(calls, Ordering::SeqCst);
        self.is_limited.store(true, Ordering::SeqCst);
    }

    pub(super) fn heal(&self) {
        self.is_limited.store(false, Ordering::SeqCst);
    }

    /// In the middle of the call with this number from now on, this happens.
    pub(super) fn hook(&self, call: u64, act: impl FnOnce() + Send + 'static) {
        let call = self.calls.load(Ordering::SeqCst) + call;
        *self.hook.lock() = Some(Hook { call, act: Box::new(act) });
    }

    pub(super) fn unhook(&self) {
        *self.hook.lock() = None;
    }

    fn call(&self) -> Result<(), DepotError> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let hook = self.hook.lock().take_if(|hook| hook.call == call);
        if let Some(hook) = hook {
            (hook.act)();
        }
        let stalls_ms = self.stalls_ms.load(Ordering::SeqCst);
        if stalls_ms > 0 {
            std::thread::sleep(Duration::from_millis(stalls_ms));
        }
        if self.is_limited.load(Ordering::SeqCst) && self.left.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Err(DepotError("it does not answer".to_owned()));
        }
        Ok(())
    }
}

impl Depot for TestDepot {
    fn name(&self) -> String {
        "test".to_owned()
    }

    fn put(&self, name: &str, bytes: &Object) -> Result<(), DepotError> {
        let is_in = |parts: &Mutex<Vec<String>>| parts.lock().iter().any(|part| name.contains(part));
        while is_in(&self.holds) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if is_in(&self.refuses) {
            return Err(DepotError("it is too large".to_owned()));
        }
        let called = self.call();
        if called.is_ok() || self.does_all_the_same.load(Ordering::SeqCst) {
            self.names.lock().insert(name.to_owned(), bytes.to_vec());
        }
        called
    }

    fn get(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>, DepotError> {
        self.call()?;
        let names = self.names.lock();
        let Some(bytes) = names.get(name) else { return Ok(None) };
        let end = (range.end as usize).min(bytes.len());
        let mut bytes = bytes[(range.start as usize).min(end)..end].to_vec();
        if self.flips.load(Ordering::SeqCst) && !bytes.is_empty() {
            let at = bytes.len() / 2;
            bytes[at] ^= 4;
        }
        if self.cuts.load(Ordering::SeqCst) {
            bytes.pop();
        }
        self.bytes_out.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        Ok(Some(bytes))
    }

    fn list(&self, begin: &str, after: &str) -> Result<Vec<String>, DepotError> {
        self.call()?;
        let names = self.names.lock();
        let found = names.keys().filter(|name| name.starts_with(begin) && name.as_str() > after);
        Ok(found.take(LISTED_MAX).cloned().collect())
    }

    fn remove(&self, name: &str) -> Result<(), DepotError> {
        self.call()?;
        self.names.lock().remove(name);
        Ok(())
    }
}
