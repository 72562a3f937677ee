// SPDX-License-Identifier: Apache-2.0
//! Where an instance puts a long result.

use std::io;

use linux::Outbox;
use objects::FailureCode;
use rmmap::{Lease, Plan, Value};

use super::channel::{WITH_KEPT, WITH_OUTBOX};
use super::instance::Made;
use crate::Fault;

/// What a call may be lent to put a long result there.
#[derive(Debug, Clone)]
pub(crate) struct TargetTerms {
    /// As much as the instance may have of memory.
    pub(crate) bytes: u64,
    /// From which it has addresses, if values are mapped.
    pub(crate) plan: Option<Plan>,
}

/// Where a long result may be put, and where in memory it lies there; there are no addresses where values
/// are sent.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) outbox: Outbox,
    pub(crate) lease: Option<Lease>,
    /// The instance has it already: the call before was lent it, and has left it as it was.
    pub(crate) is_kept: bool,
}

impl TargetTerms {
    /// What a call is lent; nothing if there are no descriptors left, and then its result is sent.
    pub(crate) fn target(&self) -> Option<Target> {
        // Half of it is for small objects, and half for large ones: what is not written to takes nothing.
        let lease = self.plan.as_ref().and_then(|plan| plan.lease(self.bytes.checked_mul(2)?));
        let len = lease.as_ref().map_or(self.bytes, Lease::len);
        let outbox: io::Result<Outbox> = Outbox::create(len);
        Some(Target { outbox: outbox.ok()?, lease, is_kept: false })
    }

    /// What the next call is lent of what one has left as it was. Without addresses it is of no use where there
    /// could be some, and addresses are not for those who wait where there are few.
    pub(crate) fn kept(&self, target: Target) -> Option<Target> {
        let is_fit = self.plan.as_ref().is_none_or(|plan| target.lease.is_some() && plan.has_plenty());
        is_fit.then_some(Target { is_kept: true, ..target })
    }
}

impl Target {
    /// The result of so many bytes that was put there, which nobody changes any more.
    pub(super) fn sealed(self, len: u64) -> Result<Made, Fault> {
        self.outbox.seal(len).map(Made::Sealed).map_err(|error| bad("in shared memory", &error))
    }

    /// The same of one that others map at its addresses; `None` if there are none.
    pub(super) fn mapped(self, len: u64) -> Option<Result<Made, Fault>> {
        let lease = self.lease?;
        let lent = self.outbox.lend(len).map_err(|error| bad("that is to be mapped", &error));
        Some(lent.map(|memory| Made::Mapped(Box::new(Value::new(memory, lease)))))
    }

    /// What the number of a call's arguments says of it.
    pub(super) fn flags(&self) -> u32 {
        WITH_OUTBOX | if self.is_kept { WITH_KEPT } else { 0 }
    }
}

fn bad(which: &str, error: &io::Error) -> Fault {
    Fault::new(FailureCode::BadResult, format!("the result {which} is none: {error}"))
}
