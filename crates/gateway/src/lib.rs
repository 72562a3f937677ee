// SPDX-License-Identifier: Apache-2.0
//! The HTTP door of a node.
//!
//! Requests become calls of a [`Backend`]; its answers become status codes.
//! This is the only crate with status codes and request JSON, and it knows no
//! evaluator, sandbox or disk. Every answer that is not a success is an RFC
//! 9457 problem that says which component failed, why, and what to do next.
//!
//! Invariants: no body is held in memory beyond [`Options`]' limits; nothing
//! is stored of a body that did not arrive whole; an evaluation whose client
//! left is dropped; blocking calls never run on the event loop. A request
//! passes `front.rs` (whether it is for a function, checks), `envelope.rs` (id,
//! metrics, panics), `door.rs` (who may knock), `keys.rs` (who may do what),
//! `admission.rs` (limits), then one file of `routes/`. Calls that are made later wait in a queue
//! (`deferred.rs`) and go the same way as the others from there.

mod admission;
mod ahead;
mod backend;
mod behind;
mod body;
mod client;
mod cloud_event;
mod connections;
mod counts;
mod deferred;
mod door;
mod envelope;
mod exports;
mod front;
mod functions;
mod invocation;
mod journal;
mod keys;
mod metrics;
mod nested;
mod openapi;
mod options;
mod printed;
mod problem;
mod range;
mod receipts;
mod recent;
mod request_id;
mod router;
mod routes;
mod tenants;
mod text;
mod traces;
mod unique;
pub mod upkeep;
mod usage;
mod workflows;

pub use ahead::BODY_AHEAD_BYTES;
pub use backend::{
    Backend, Beginning, Begun, CollectRequest, CollectedHere, Collections, ComesBy, Derivation,
    EXPLAIN_STEPS_MAX, EvaluateRequest, Evaluated, Evaluation, Explanation, Gauge, LastCollection, Noted,
    NotedStep, Pieces, Place, Priority, Progress, Recording, Signing, Transfer,
};
pub use client::{Network, Peer, TrustedProxies};
pub use connections::{Connections, Open};
pub use counts::Counts;
pub use deferred::{Callbacks, Sending, Unsent};
pub use door::Door;
pub use exports::{Export, ExportError, Exported, Exporter, Exporting};
pub use front::Front;
pub use functions::{
    CallReport, Deployed, Details, EgressCounts, Follower, Following, FunctionError, Functions, Instances,
    Intake, Interpreter, NotDeployed, Origin, Phases, RouteError, Routed, Served, StepSettings, Tool,
    VersionCounts,
};
pub use invocation::{LineCall, LineEnd, LineOffer};
pub use journal::ArchiveOptions;
pub use keys::{Access, KEY_PREFIX, KeyError, KeyInfo, Keys, Scope};
pub use nested::{NestedCall, NestedCalls, NestedEnd, NestedRequest, is_order};
pub use options::Options;
pub use printed::{Piece, Printed, Printing, SoFar};
pub use router::{Gateway, router};
pub use tenants::Quota;
pub use traces::{Collector, TraceOptions};
pub use usage::{Rates, Spent};
pub use workflows::Declaration;

/// The media type of a bundle of objects.
pub const BUNDLE_MEDIA_TYPE: &str = "application/vnd.sinew.bundle";

#[cfg(test)]
mod tests;
