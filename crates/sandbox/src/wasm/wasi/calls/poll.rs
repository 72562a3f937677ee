// SPDX-License-Identifier: Apache-2.0
//! Waiting for descriptors and clocks. Descriptors are always ready, so that nothing is
//! waited for but clocks; and of those the time that they show goes on at once.

use super::Turn;
use crate::wasm::wasi::descriptors::Target;
use crate::wasm::wasi::errno::{Errno, Result, Stop};
use crate::wasm::wasi::rights;

/// Subscriptions in one call, at most.
const SUBSCRIPTIONS_MAX: usize = 4096;
const SUBSCRIPTION_BYTES: usize = 48;
const EVENT_BYTES: usize = 32;
const CLOCK: u8 = 0;
const FD_READ: u8 = 1;
const FD_WRITE: u8 = 2;
const REALTIME: u32 = 0;
const CLOCK_LAST: u32 = 3;
/// Of a clock: the time is one of the clock's, not one from now.
const ABSOLUTE: u16 = 1;

/// What is asked for, and what came of it.
struct Event {
    user_data: u64,
    kind: u8,
    error: u16,
    bytes: u64,
}

/// A clock that is waited for, until so much time has passed.
struct Alarm {
    user_data: u64,
    in_nanos: u64,
}

/// `poll_oneoff`.
pub(super) fn poll(
    turn: &mut Turn<'_>,
    subscriptions: i32,
    events: i32,
    count: i32,
    done: i32,
) -> Result<()> {
    let count = count as u32 as usize;
    if count == 0 || count > SUBSCRIPTIONS_MAX {
        return Err(Errno::Invalid.into());
    }
    let asked = turn.memory.bytes(subscriptions, count * SUBSCRIPTION_BYTES)?.to_vec();
    turn.memory.check(events, count * EVENT_BYTES)?;
    turn.memory.check(done, size_of::<u32>())?;
    let mut happened = Vec::new();
    let mut alarms = Vec::new();
    for subscription in asked.as_chunks::<SUBSCRIPTION_BYTES>().0 {
        let user_data = number(subscription, 0, 8);
        match subscription[8] {
            CLOCK => match alarm(turn, subscription) {
                Ok(in_nanos) => alarms.push(Alarm { user_data, in_nanos }),
                Err(error) => happened.push(Event { user_data, kind: CLOCK, error: error as u16, bytes: 0 }),
            },
            kind @ (FD_READ | FD_WRITE) => {
                let fd = number(subscription, 16, 4) as i32;
                let (error, bytes) = match ready(turn, fd, kind == FD_READ) {
                    Ok(bytes) => (0, bytes),
                    Err(Stop::Refused(errno)) => (errno as u16, 0),
                    Err(ended) => return Err(ended),
                };
                happened.push(Event { user_data, kind, error, bytes });
            }
            _ => return Err(Errno::Invalid.into()),
        }
    }
    if happened.is_empty() {
        let first = alarms.iter().map(|alarm| alarm.in_nanos).min().unwrap_or(0);
        turn.process.clock.pass(first);
        alarms.iter_mut().for_each(|alarm| alarm.in_nanos -= first);
    }
    let rung = alarms.into_iter().filter(|alarm| alarm.in_nanos == 0);
    happened.extend(rung.map(|Alarm { user_data, .. }| Event { user_data, kind: CLOCK, error: 0, bytes: 0 }));
    let mut bytes = Vec::with_capacity(happened.len() * EVENT_BYTES);
    happened.iter().for_each(|event| bytes.extend_from_slice(&encoded(event)));
    turn.memory.put(events, &bytes)?;
    Ok(turn.memory.put_u32(done, happened.len() as u32)?)
}

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let mut word = [0; 8];
    word[..len].copy_from_slice(&bytes[at..at + len]);
    u64::from_le_bytes(word)
}

/// In how many nanoseconds a clock is where the subscription wants it.
fn alarm(turn: &Turn<'_>, subscription: &[u8]) -> std::result::Result<u64, Errno> {
    let clock = number(subscription, 16, 4) as u32;
    let until = number(subscription, 24, 8);
    let flags = number(subscription, 40, 2) as u16;
    let now = match clock {
        REALTIME => turn.process.clock.time_of_day(),
        1..=CLOCK_LAST => turn.process.clock.elapsed(),
        _ => return Err(Errno::Invalid),
    };
    match flags {
        0 => Ok(until),
        ABSOLUTE => Ok(until.saturating_sub(now)),
        _ => Err(Errno::Invalid),
    }
}

/// Bytes that can be read or written without waiting.
fn ready(turn: &Turn<'_>, fd: i32, is_read: bool) -> Result<u64> {
    let descriptor = turn.process.descriptors.get(fd)?;
    descriptor.allow(rights::POLL_FD_READWRITE)?;
    Ok(match descriptor.target {
        Target::Input { at } if is_read => turn.process.stdin_left(at),
        Target::File { node, at } if is_read => turn.process.files.status(node).size.saturating_sub(at),
        Target::Input { .. } => return Err(Errno::BadDescriptor.into()),
        Target::Output | Target::Errors if is_read => return Err(Errno::BadDescriptor.into()),
        _ => 0,
    })
}

fn encoded(event: &Event) -> [u8; EVENT_BYTES] {
    let mut bytes = [0; EVENT_BYTES];
    bytes[..8].copy_from_slice(&event.user_data.to_le_bytes());
    bytes[8..10].copy_from_slice(&event.error.to_le_bytes());
    bytes[10] = event.kind;
    bytes[16..24].copy_from_slice(&event.bytes.to_le_bytes());
    bytes
}
