// SPDX-License-Identifier: Apache-2.0
//! Values that processes map where others made them, instead of receiving them
//! (RMMAP; `docs/spec/memory-map.md`).
//!
//! The [`Plan`] says where: whoever fills a segment is lent addresses that no living
//! value has. What is in segments, and how it is written, is the business of those that
//! fill and map them (`guests/heap`); the node never looks into one.

mod plan;
mod value;

pub use plan::{Lease, Plan};
pub use value::{TICKET_BYTES, Value};
