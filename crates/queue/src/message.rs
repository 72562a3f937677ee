// SPDX-License-Identifier: Apache-2.0
//! What goes into a queue, and what it tells.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A message's name. Those given later are greater, as UUIDs of version 7 are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Id(pub u128);

impl fmt::Display for Id {
    /// As a UUID is written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        write!(f, "{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

impl std::str::FromStr for Id {
    type Err = ();

    /// Only what [`Id`]'s own text form is.
    fn from_str(text: &str) -> Result<Self, ()> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_like = |(at, byte): (usize, u8)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => is_digit(byte),
        };
        if text.len() != 36 || !text.bytes().enumerate().all(is_like) {
            return Err(());
        }
        u128::from_str_radix(&text.replace('-', ""), 16).map(Self).map_err(drop)
    }
}

/// A key that a message of the same lane must not share for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dedup {
    /// The key.
    pub key: String,
    /// For how long, in milliseconds.
    pub window_ms: u64,
}

/// What is pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its name, which nobody else has.
    pub id: Id,
    /// Its lane.
    pub lane: String,
    /// For whoever makes the attempts.
    pub head: Vec<u8>,
    /// The same, and possibly long.
    pub body: Vec<u8>,
    /// Not before.
    pub due_ms: u64,
    /// Against duplicates.
    pub dedup: Option<Dedup>,
    /// A name and a number to remember under it.
    pub mark: Option<(String, u64)>,
}

impl Message {
    /// What it counts for.
    pub(crate) fn bytes(&self) -> u64 {
        (self.head.len() + self.body.len()) as u64
    }
}

/// Head and body of a message.
pub type Payload = (Vec<u8>, Vec<u8>);

/// Key and value of what is written down about a message.
pub type Note = (Vec<u8>, Vec<u8>);

/// What became of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// It is kept.
    New,
    /// It is not: this one, with the same key, was there before.
    Duplicate(Id),
}

/// Where a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Until it is due, and there is room for it.
    Waiting,
    /// An attempt is under way.
    Running,
    /// Nothing remains to be done.
    Succeeded,
    /// Nothing more is tried.
    Dead,
}

/// What is known of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Its name.
    pub id: Id,
    /// Its lane.
    pub lane: String,
    /// Where it is.
    pub state: State,
    /// When it was pushed.
    pub created_ms: u64,
    /// Of one that waits: when it is due.
    pub due_ms: u64,
    /// Of one that has ended: when.
    pub ended_ms: u64,
    /// Attempts that were begun.
    pub attempts: u32,
    /// Why the last attempt that failed did; empty before.
    pub reason: String,
    /// Head and body.
    pub bytes: u64,
}

/// A message, for an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// Its name.
    pub id: Id,
    /// Its lane.
    pub lane: String,
    /// Which attempt this is, from 1 on.
    pub attempt: u32,
    /// When it was pushed, or last redriven.
    pub created_ms: u64,
    /// As it was pushed.
    pub head: Vec<u8>,
    /// As it was pushed.
    pub body: Vec<u8>,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Well, with an outcome to be kept for a while.
    Succeeded(Vec<u8>),
    /// It is to be tried again.
    Retry {
        /// Not before.
        due_ms: u64,
        /// Why, for people.
        reason: String,
        /// Whether this attempt counts.
        counts: bool,
    },
    /// It is not to be tried any more.
    Dead {
        /// Why, for people.
        reason: String,
    },
}

/// How much there is of one lane.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneStats {
    /// Which.
    pub lane: String,
    /// Messages that wait.
    pub waiting: usize,
    /// Attempts under way.
    pub running: usize,
    /// Dead letters.
    pub dead: usize,
    /// When the message was pushed that waits for longest.
    pub oldest_ms: Option<u64>,
}

/// How much there is of everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// By lane, of those that have any messages.
    pub lanes: Vec<LaneStats>,
    /// Bytes of messages that wait, run or are dead.
    pub bytes: u64,
    /// Outcomes that are kept.
    pub outcomes: usize,
    /// Messages pushed since the queue was opened.
    pub pushed: u64,
    /// Those of them that were there before.
    pub duplicates: u64,
    /// Attempts after the first since then.
    pub retries: u64,
    /// Messages that died since then.
    pub died: u64,
    /// Dead letters that were kept for too long and are gone.
    pub expired: u64,
}
