// SPDX-License-Identifier: Apache-2.0
//! Communication between processes and processing units.
//!
//! [`fifo`] carries messages between two processes of one machine through
//! memory that they share, and [`line`] requests and their answers. By [`turns`] what one was given
//! to do is taken back, as far as it has not begun it.
//!
//! Invariant: nothing that the other side does can make this one read or write
//! out of bounds, panic, or wait beyond its deadline.

pub mod fifo;
pub mod line;
pub mod turns;
