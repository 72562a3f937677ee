// SPDX-License-Identifier: Apache-2.0
//! Tests of the store as a whole: against a model, killed, empty, on a full disk.

mod backed_up;
mod collected;
mod crash;
mod dropped;
mod empty;
pub(crate) mod faulty;
mod full_disk;
mod model;
mod power;
mod spilled;
mod tier_collected;
mod tiered;
pub(crate) mod witness;
