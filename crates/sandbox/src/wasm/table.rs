// SPDX-License-Identifier: Apache-2.0
//! The handles that a guest holds, and what it has used up.
//!
//! ```text
//!  index  0    the application tree
//!         1+i  entry i of it, read from the tree's own bytes
//!         …    handles made by this call, in order
//! ```
//!
//! A guest only ever has indices. Whatever it passes is looked up here, so a
//! number that it was not given names nothing.

use objects::{Handle, TreeView};
use store::Object;

/// What one handle costs of the memory limit, in bytes.
pub(crate) const HANDLE_BYTES: u64 = Handle::LEN as u64;

/// Made handles whose allocation is kept for the next call.
const KEPT_CAPACITY: usize = 1024;

/// The handle table of one call.
#[derive(Default)]
pub(crate) struct Table {
    /// `None` between calls.
    application: Option<(Handle, Object)>,
    /// Entries of the application tree.
    entries: usize,
    made: Vec<Handle>,
}

impl Table {
    /// The table for a new call.
    #[inline]
    pub(crate) fn begin(&mut self, handle: Handle, application: Object) {
        self.entries = application.bytes().len() / Handle::LEN;
        self.application = Some((handle, application));
    }

    /// Forgets everything.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.application = None;
        self.entries = 0;
        self.made.clear();
        if self.made.capacity() > KEPT_CAPACITY {
            self.made.shrink_to(KEPT_CAPACITY);
        }
    }

    /// The handle at an index from the guest; `None` outside the table.
    #[inline]
    pub(crate) fn get(&self, index: i32) -> Option<Handle> {
        let index = usize::try_from(index).ok()?;
        let (handle, application) = self.application.as_ref()?;
        if index == 0 {
            return Some(*handle);
        }
        let index = index - 1;
        if index < self.entries {
            let start = index * Handle::LEN;
            // A view of one entry: a debug build checks what it views.
            return TreeView::from_checked(application.bytes().get(start..start + Handle::LEN)?).get(0);
        }
        self.made.get(index - self.entries).copied()
    }

    /// The application tree.
    pub(crate) fn application(&self) -> Option<Object> {
        self.application.as_ref().map(|(_, application)| application.clone())
    }

    /// Entries of the application tree.
    #[inline]
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// Appends a handle and gives its index; `None` at 2^31 handles.
    #[inline]
    pub(crate) fn push(&mut self, handle: Handle) -> Option<i32> {
        let index = i32::try_from(1 + self.entries + self.made.len()).ok()?;
        self.made.push(handle);
        Some(index)
    }
}

/// Bytes of memory that a call may use, and has used.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    limit: u64,
    used: u64,
    /// A request was refused: a trap that follows is put down to it.
    pub(crate) denied: bool,
}

impl Budget {
    /// The budget of a new call, of which `used` is spent.
    #[inline]
    pub(crate) fn new(limit: u64, used: u64) -> Self {
        Self { limit, used, denied: false }
    }

    /// Spends `bytes`; `false`, with nothing spent, if they are not there.
    #[inline]
    #[must_use]
    pub(crate) fn charge(&mut self, bytes: u64) -> bool {
        match self.used.checked_add(bytes) {
            Some(used) if used <= self.limit => {
                self.used = used;
                true
            }
            _ => {
                self.denied = true;
                false
            }
        }
    }

    /// Gives back what was charged.
    pub(crate) fn refund(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.used, "more is given back than was charged");
        self.used = self.used.saturating_sub(bytes);
    }

    /// Bytes that are not spent.
    pub(crate) fn left(&self) -> u64 {
        self.limit - self.used
    }

    /// Bytes allowed.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }
}
