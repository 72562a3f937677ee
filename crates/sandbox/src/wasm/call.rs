// SPDX-License-Identifier: Apache-2.0
//! What one call owns: the data of its wasmtime store.
//!
//! The state outlives the call where the instance is reused; [`CallState::end`]
//! empties it. A fault that a host function meets is left here, and the error
//! it returns only unwinds the guest.

use std::fmt;
use std::sync::Arc;

use objects::{FailureCode, Handle, Kind, TreeBuilder};
use store::{Object, Store};
use wasmtime::{Memory, ResourceLimiter};

use super::engine::TABLE_ELEMENTS_MAX;
use super::interrupt::{Flags, Ticket};
use super::table::{Budget, HANDLE_BYTES, Table};
use super::wasi::Process;
use crate::{Call, Fault};

/// What one table element costs of the memory limit, in bytes.
pub(crate) const TABLE_ELEMENT_BYTES: u64 = 8;

/// Unwinds the guest; the reason is in [`CallState::fault`].
#[derive(Debug)]
struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call was stopped")
    }
}

impl std::error::Error for Stopped {}

/// What unwinds the guest, once the reason was left.
#[cold]
pub(crate) fn stopped() -> wasmtime::Error {
    wasmtime::Error::new(Stopped)
}

/// The data of a handle, wherever the store has it.
pub(crate) fn load(store: &Store, handle: Handle) -> Result<Object, Fault> {
    if let Some(object) = store.local(handle) {
        return Ok(object);
    }
    match store.get(handle) {
        Ok(Some(object)) => Ok(object),
        Ok(None) => Err(Fault::new(FailureCode::MissingData, handle.to_string())),
        // The store's own words name paths of this node.
        Err(_) => {
            let detail = format!("{handle}: its copy here is unreadable");
            Err(Fault::new(FailureCode::MissingData, detail))
        }
    }
}

/// Blob bytes in a handle or an object.
pub(crate) enum Bytes<'a> {
    Literal(Handle),
    Hashed(&'a [u8]),
}

impl Bytes<'_> {
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Literal(handle) => handle.literal_bytes().unwrap_or_default(),
            Self::Hashed(bytes) => bytes,
        }
    }
}

/// The state of the call that runs in an instance.
pub(crate) struct CallState {
    pub(crate) table: Table,
    pub(crate) budget: Budget,
    pub(crate) fault: Option<Fault>,
    pub(crate) ticket: Ticket,
    pub(crate) flags: Arc<Flags>,
    /// The memory that the guest exports, once it is known.
    pub(crate) memory: Option<Memory>,
    pub(crate) store: Arc<Store>,
    /// What a whole program has besides, while it runs.
    pub(crate) program: Option<Box<Process>>,
    /// Entries of the tree that is being made; kept for its allocation.
    pub(crate) entries: TreeBuilder,
    /// The last blob and the last tree read, so that reading one piece by
    /// piece finds it without a look-up in the store.
    blob: Option<(Handle, Object)>,
    tree: Option<(Handle, Object)>,
}

impl CallState {
    pub(crate) fn new(store: Arc<Store>, flags: Arc<Flags>) -> Self {
        Self {
            table: Table::default(),
            budget: Budget::default(),
            fault: None,
            ticket: Ticket(0),
            flags,
            memory: None,
            store,
            program: None,
            entries: TreeBuilder::new(),
            blob: None,
            tree: None,
        }
    }

    /// Takes up a call; `used` bytes of its memory limit are already spent.
    #[inline]
    pub(crate) fn begin(&mut self, call: Call, used: u64, ticket: Ticket) {
        self.budget = Budget::new(call.limits.memory_bytes, used);
        self.table.begin(call.handle, call.application);
        self.fault = None;
        self.ticket = ticket;
    }

    /// Forgets the call.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.table.end();
        self.blob = None;
        self.tree = None;
    }

    /// Ends the call with a fault.
    #[cold]
    pub(crate) fn stop(&mut self, fault: Fault) -> wasmtime::Error {
        self.fault = Some(fault);
        stopped()
    }

    /// Ends the call because of how `function` was called.
    #[cold]
    pub(crate) fn misuse(
        &mut self,
        code: FailureCode,
        function: &str,
        why: impl fmt::Display,
    ) -> wasmtime::Error {
        self.stop(Fault::new(code, format!("{function}: {why}")))
    }

    /// The handle at an index from the guest.
    #[inline]
    pub(crate) fn handle(&mut self, function: &str, index: i32) -> wasmtime::Result<Handle> {
        match self.table.get(index) {
            Some(handle) => Ok(handle),
            None => Err(self.misuse(
                FailureCode::BadHandle,
                function,
                format_args!("there is no handle {}", index as u32),
            )),
        }
    }

    /// Spends memory that `function` needs.
    #[inline]
    pub(crate) fn charge(&mut self, function: &str, bytes: u64) -> wasmtime::Result<()> {
        if self.budget.charge(bytes) {
            return Ok(());
        }
        let why = format!("{bytes} more bytes exceed the limit of {}", self.budget.limit());
        Err(self.misuse(FailureCode::Memory, function, why))
    }

    /// Gives the guest a handle that has been paid for.
    #[inline]
    pub(crate) fn push(&mut self, function: &str, handle: Handle) -> wasmtime::Result<i32> {
        match self.table.push(handle) {
            Some(index) => Ok(index),
            None => Err(self.misuse(FailureCode::Memory, function, "the handle table is full")),
        }
    }

    /// Pays for a handle and gives it to the guest.
    #[inline]
    pub(crate) fn give(&mut self, function: &str, handle: Handle) -> wasmtime::Result<i32> {
        self.charge(function, HANDLE_BYTES)?;
        self.push(function, handle)
    }

    /// The blob that a guest's handle names.
    #[inline]
    pub(crate) fn blob(&mut self, function: &str, index: i32) -> wasmtime::Result<Bytes<'_>> {
        let handle = self.handle(function, index)?;
        if handle.kind() != Kind::Blob {
            return Err(self.wrong_kind(function, index, handle, "a blob"));
        }
        if handle.literal_bytes().is_some() {
            return Ok(Bytes::Literal(handle));
        }
        if self.blob.as_ref().is_none_or(|(cached, _)| *cached != handle) {
            self.blob = Some((handle, self.load(handle)?));
        }
        // The line above leaves it filled.
        Ok(Bytes::Hashed(self.blob.as_ref().map_or(&[], |(_, object)| object.bytes())))
    }

    /// The bytes of the tree or failure that a guest's handle names.
    #[inline]
    pub(crate) fn tree(&mut self, handle: Handle) -> wasmtime::Result<&[u8]> {
        if self.tree.as_ref().is_none_or(|(cached, _)| *cached != handle) {
            self.tree = Some((handle, self.load(handle)?));
        }
        Ok(self.tree.as_ref().map_or(&[], |(_, object)| object.bytes()))
    }

    fn load(&mut self, handle: Handle) -> wasmtime::Result<Object> {
        load(&self.store, handle).map_err(|fault| self.stop(fault))
    }

    /// Ends the call because a handle is of a kind that `function` refuses.
    #[cold]
    pub(crate) fn wrong_kind(
        &mut self,
        function: &str,
        index: i32,
        handle: Handle,
        wanted: &str,
    ) -> wasmtime::Error {
        let found = match handle.kind() {
            Kind::Blob => "a blob",
            Kind::Tree => "a tree",
            Kind::BlobRef => "a ref of a blob",
            Kind::TreeRef => "a ref of a tree",
            Kind::Failure => "a failure",
            Kind::Application | Kind::Identification | Kind::Selection => "a thunk",
            Kind::Strict | Kind::Shallow => "an encode",
        };
        let why = format!("handle {index} is {found}, not {wanted}");
        self.misuse(FailureCode::BadHandle, function, why)
    }
}

/// Growth is charged; what was there at the start is charged when the
/// instance is made, or, for a reused one, when the call begins.
impl ResourceLimiter for CallState {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.budget.charge(desired.saturating_sub(current) as u64))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if desired as u64 > TABLE_ELEMENTS_MAX {
            return Ok(false);
        }
        Ok(self.budget.charge(desired.saturating_sub(current) as u64 * TABLE_ELEMENT_BYTES))
    }
}
