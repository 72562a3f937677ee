// SPDX-License-Identifier: Apache-2.0
//! Instances that outlive a call: which are kept, for how long, and which are
//! made before they are needed.
//!
//! [`Policy`] decides, without a clock, a thread or a sandbox: events go in
//! and decisions come out. [`Fleet`] carries its decisions out over any
//! [`Sandbox`](crate::Sandbox) and serves calls.
//!
//! Words: an *instance* is one sandbox with a function loaded. It is *warm*
//! for a call if it has served before, *pre-warmed* if it was made ahead of
//! it, and *cold* if the call had to wait for it to be made.
//!
//! Invariants: no instance is made while what all are charged, with it, is
//! more than the budget; an instance runs one call at a time, or as many as its
//! function allows, of its own function; whoever waits gets an instance or an error, in bounded time as
//! long as calls and starts end; a decision depends on the events alone.

mod arrivals;
mod decision;
mod error;
mod eviction;
mod fleet;
mod function;
mod policy;

pub use decision::{
    Decision, Found, FunctionId, FunctionStats, InstanceId, PolicyOptions, RefuseReason, Settings, Stats,
    StopReason, Ticket,
};
pub use error::Error;
pub use fleet::{
    Cancel, Fleet, FleetOptions, Function, FunctionReport, Hear, Report, Start, StartKind, Told, Unheard,
};
pub use function::Counts;
pub use policy::Policy;
