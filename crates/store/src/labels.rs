// SPDX-License-Identifier: Apache-2.0
//! Labels: names that people give to handles, and the labels of a store
//! without a disk. Those of a store with one are in its index.

use std::collections::BTreeMap;

use objects::Handle;
use parking_lot::Mutex;

use crate::Error;

/// The longest name, in characters, which are bytes.
pub const LABEL_LEN_MAX: usize = 128;
/// The most labels of one store.
pub const LABELS_MAX: u64 = 1 << 20;

/// Refuses what cannot be a label.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let bad = |reason| Err(Error::BadLabel { name: name.chars().take(LABEL_LEN_MAX).collect(), reason });
    if name.is_empty() {
        return bad("it is empty");
    }
    if name.len() > LABEL_LEN_MAX {
        return bad("it has over 128 characters");
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/' | b'-');
    if !name.bytes().all(allowed) {
        return bad("only A-Z a-z 0-9 . _ / - are allowed");
    }
    // Whoever normalises paths could neither read nor remove it.
    if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return bad("a part between slashes is empty, . or ..");
    }
    if name.parse::<Handle>().is_ok() {
        return bad("it reads as a handle");
    }
    Ok(())
}

/// Labels that live as long as the process.
#[derive(Default)]
pub(crate) struct MemoryLabels(Mutex<BTreeMap<String, Handle>>);

impl MemoryLabels {
    pub(crate) fn set(&self, name: &str, handle: Handle) -> Result<(), Error> {
        let mut labels = self.0.lock();
        if labels.len() as u64 >= LABELS_MAX && !labels.contains_key(name) {
            return Err(Error::TooManyLabels);
        }
        labels.insert(name.to_owned(), handle);
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> Option<Handle> {
        self.0.lock().get(name).copied()
    }

    pub(crate) fn remove(&self, name: &str) -> bool {
        self.0.lock().remove(name).is_some()
    }

    pub(crate) fn all(&self) -> Vec<(String, Handle)> {
        self.0.lock().iter().map(|(name, &handle)| (name.clone(), handle)).collect()
    }
}

#[cfg(test)]
mod tests;
