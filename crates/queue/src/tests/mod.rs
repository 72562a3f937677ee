// SPDX-License-Identifier: Apache-2.0
//! What every driver promises, and what the disk may do to it.
#![allow(clippy::unwrap_used)]

mod contract;
mod crash;
mod power;

use crate::{Claimed, Dedup, Id, Message, Queue};

/// A message that says its number.
fn message(number: u64, lane: &str) -> Message {
    Message {
        id: Id(u128::from(number)),
        lane: lane.to_owned(),
        head: format!("head {number}").into_bytes(),
        body: vec![number as u8; (number as usize * 131) % 6000],
        due_ms: 0,
        dedup: None,
        mark: None,
    }
}

fn keyed(number: u64, lane: &str, key: &str, window_ms: u64) -> Message {
    Message { dedup: Some(Dedup { key: key.to_owned(), window_ms }), ..message(number, lane) }
}

fn is_like(claimed: &Claimed, message: &Message) -> bool {
    (&claimed.head, &claimed.body, &claimed.lane) == (&message.head, &message.body, &message.lane)
}

/// The next message, whatever is under way.
fn claim(queue: &dyn Queue, now_ms: u64) -> Option<Claimed> {
    queue.claim(now_ms, &|_| usize::MAX).unwrap()
}
