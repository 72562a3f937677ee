// SPDX-License-Identifier: Apache-2.0
//! The inputs of an application: all that its procedure could read, through
//! trees, but not behind refs or thunks.
//!
//! Whoever has found an input local *holds* its data from then on until the
//! application has ended, and the host does not evict what is held. A *worker*
//! holds what the application that it runs needs, and beyond that, up to its
//! own share, what it is likely to need again: the procedure used last, and
//! trees with everything below. A *job* that has to wait holds each of its
//! inputs itself; the scheduler counts those bytes and bounds them.

use std::collections::HashSet;
use std::ops::Deref;

use objects::{Application, Handle, PROCEDURE_INDEX, TreeView};

use crate::host::Host;

/// What holding an object costs beside its bytes: its names in a set and in
/// lists, and its place in the host's table.
const OBJECT_COST_BYTES: u64 = 128;
/// Objects that one worker holds in case they are needed again.
const KEPT_MAX: usize = 1 << 16;
/// An input of this size is worth waiting for others that need it too: to read it
/// takes longer than all that an application costs the node besides.
const LARGE_BYTES_MIN: u64 = 1 << 20;
/// Inputs asked for at once, per application.
const FETCHES_MAX: usize = 256;

/// Whether a procedure could read the entry, and it is not in its own handle.
#[inline]
fn is_stored(entry: Handle) -> bool {
    entry.is_object() && entry.literal_bytes().is_none()
}

fn cost_bytes(object: Handle) -> u64 {
    let len = if object.names_tree() {
        object.size().saturating_mul(size_of::<Handle>() as u64)
    } else {
        object.size()
    };
    len.saturating_add(OBJECT_COST_BYTES)
}

/// What a worker holds.
#[derive(Debug)]
pub(crate) struct Inputs<D> {
    /// The worker's share, in bytes.
    max_bytes: u64,
    /// The procedure that was used last.
    last: Option<Handle>,
    last_data: Option<D>,
    /// Objects that are held beyond one application. Of a tree, everything
    /// below is among them.
    kept: HashSet<Handle>,
    kept_data: Vec<D>,
    kept_bytes: u64,
    /// Blobs for the application that runs next.
    current: Vec<D>,
}

/// What one walk over inputs has found.
#[derive(Debug)]
struct Found<D> {
    objects: HashSet<Handle>,
    data: Vec<D>,
    bytes: u64,
    procedure: Option<D>,
}

/// Why a worker cannot hold the inputs of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unheld {
    /// Something is not local.
    Absent,
    /// They exceed what is left of the worker's share.
    TooMany,
}

impl<D: Deref<Target = [u8]>> Inputs<D> {
    /// A worker that holds nothing, and up to `max_bytes` later.
    pub(crate) fn new(max_bytes: u64) -> Self {
        Self {
            max_bytes,
            last: None,
            last_data: None,
            kept: HashSet::new(),
            kept_data: Vec::new(),
            kept_bytes: 0,
            current: Vec::new(),
        }
    }

    /// Whether nothing needs to be looked up to know that all is local.
    #[inline]
    pub(crate) fn are_obviously_local(&self, tree: TreeView<'_>) -> bool {
        tree.iter().all(|entry| !is_stored(entry) || self.last == Some(entry))
    }

    /// Holds the inputs until [`Inputs::let_go`], if all are local and fit the
    /// worker's share. What is kept from before makes room for them.
    pub(crate) fn hold<H: Host<Data = D>>(&mut self, host: &mut H, application: &Application<'_>) -> bool {
        let found = self.find(host, application).or_else(|unheld| match unheld {
            Unheld::TooMany => {
                self.forget();
                self.find(host, application)
            }
            Unheld::Absent => Err(unheld),
        });
        let Ok(found) = found else {
            self.let_go();
            return false;
        };
        self.kept.extend(found.objects);
        self.kept_data.extend(found.data);
        self.kept_bytes += found.bytes;
        if found.procedure.is_some() {
            self.last = Some(application.procedure);
            self.last_data = found.procedure;
        }
        true
    }

    fn find<H: Host<Data = D>>(
        &mut self,
        host: &mut H,
        application: &Application<'_>,
    ) -> Result<Found<D>, Unheld> {
        self.let_go();
        let mut found = Found { objects: HashSet::new(), data: Vec::new(), bytes: 0, procedure: None };
        let last_bytes = self.last.map_or(0, cost_bytes);
        let mut left = self.max_bytes.saturating_sub(self.kept_bytes).saturating_sub(last_bytes);
        let mut take = |object| {
            left = left.checked_sub(cost_bytes(object)).ok_or(Unheld::TooMany)?;
            host.local(object).ok_or(Unheld::Absent)
        };
        let mut pending = Vec::new();
        for entry in application.tree.iter().filter(|&entry| is_stored(entry) && self.last != Some(entry)) {
            if entry.names_tree() {
                pending.push(entry.plain_tree());
            } else if entry == application.procedure {
                found.procedure = Some(take(entry)?);
            } else {
                self.current.push(take(entry)?);
            }
        }
        while let Some(object) = pending.pop() {
            if self.kept.contains(&object) || !found.objects.insert(object) {
                continue;
            }
            if self.kept.len() + found.objects.len() > KEPT_MAX {
                return Err(Unheld::TooMany);
            }
            let data = take(object)?;
            if object.names_tree() {
                let entries = TreeView::from_checked(&data).iter().filter(|&entry| is_stored(entry));
                pending.extend(entries.map(Handle::plain_tree));
            }
            found.bytes += cost_bytes(object);
            found.data.push(data);
        }
        Ok(found)
    }

    /// The application has ended.
    #[inline]
    pub(crate) fn let_go(&mut self) {
        self.current.clear();
    }

    /// Lets go of everything.
    pub(crate) fn forget(&mut self) {
        *self = Self::new(self.max_bytes);
    }
}

/// What a job holds of the inputs of its next application.
#[derive(Debug)]
pub(crate) struct Held<D> {
    /// The application's tree.
    definition: Handle,
    /// Of the definition and of every input that was found local.
    data: Vec<D>,
    /// Every input that is known of.
    known: HashSet<Handle>,
    /// Those among them that were not found local yet.
    pending: Vec<Handle>,
    /// What all known ones cost.
    bytes: u64,
    /// Not counted as shared: applications of one procedure all have it.
    procedure: Option<Handle>,
    /// The largest input besides, if it is large.
    largest: Option<Handle>,
}

impl<D: Deref<Target = [u8]> + Clone> Held<D> {
    /// The definition is held, and its entries are known.
    pub(crate) fn new(definition: Handle, data: &D) -> Self {
        let mut held = Self {
            definition,
            data: Vec::new(),
            known: HashSet::new(),
            pending: Vec::new(),
            bytes: cost_bytes(definition),
            procedure: TreeView::from_checked(data).get(PROCEDURE_INDEX),
            largest: None,
        };
        held.add(definition, data.clone());
        held
    }

    fn add(&mut self, object: Handle, data: D) {
        if object.names_tree() {
            for entry in TreeView::from_checked(&data).iter().filter(|&entry| is_stored(entry)) {
                let input = entry.plain_tree();
                if self.known.insert(input) {
                    self.bytes = self.bytes.saturating_add(cost_bytes(input));
                    self.note_size(input);
                    self.pending.push(input);
                }
            }
        }
        self.data.push(data);
    }

    fn note_size(&mut self, input: Handle) {
        let size = cost_bytes(input);
        let least = self.largest.map_or(LARGE_BYTES_MIN, cost_bytes);
        if size >= least && self.procedure != Some(input) {
            self.largest = Some(input);
        }
    }

    /// The largest input known so far, if it is large.
    pub(crate) fn largest(&self) -> Option<Handle> {
        self.largest
    }

    /// Whether these are the inputs of the application of `definition`.
    pub(crate) fn are_of(&self, definition: Handle) -> bool {
        self.definition == definition
    }

    /// Whether all inputs are held.
    pub(crate) fn are_complete(&self) -> bool {
        self.pending.is_empty()
    }

    /// What the definition and all inputs known so far cost together.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds what is local by now, and returns up to [`FETCHES_MAX`] inputs
    /// that are not. Stops when more than `max_bytes` are known to be wanted.
    pub(crate) fn gather<H: Host<Data = D>>(&mut self, host: &mut H, max_bytes: u64) -> Vec<Handle> {
        let mut missing = Vec::new();
        while missing.len() < FETCHES_MAX
            && self.bytes <= max_bytes
            && let Some(object) = self.pending.pop()
        {
            match host.local(object) {
                Some(data) => self.add(object, data),
                None => missing.push(object),
            }
        }
        self.pending.extend(&missing);
        missing
    }
}
