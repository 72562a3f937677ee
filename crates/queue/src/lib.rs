// SPDX-License-Identifier: Apache-2.0
//! Calls that are made later: a durable queue.
//!
//! A *message* is pushed, waits until it is due, is *claimed* for an attempt,
//! and then succeeds, is tried again later, or becomes a *dead letter*. What a
//! message says is the caller's matter. A *lane* is a queue within the queue:
//! one function's messages. Lanes take turns, so that one with many or slow
//! messages delays no other.
//!
//! Invariants: a message that was pushed is on the disk before its sender is
//! told, and stays until it has succeeded or somebody removes it: it is
//! delivered at least once. An attempt that the process did not survive counts.
//! Everything has a bound ([`Options`]). No clock is read here: callers say
//! what time it is, in milliseconds since 1970.
//!
//! [`Queue`] is what a driver does, [`Embedded`] the driver in this process;
//! `tests/contract.rs` holds every driver to the same promises.

mod backoff;
mod committer;
mod database;
mod embedded;
mod error;
mod ledger;
mod message;
mod options;
mod record;
mod schedule;

pub use backoff::Policy;
pub use embedded::Embedded;
pub use error::Error;
pub use message::{Claimed, Dedup, End, Id, LaneStats, Message, Note, Payload, Pushed, State, Stats, Status};
pub use options::Options;
pub use schedule::Schedule;

/// A driver. Methods block, on the disk or on somebody far away.
pub trait Queue: Send + Sync {
    /// Takes a message. When this returns, it is synced.
    ///
    /// # Errors
    /// [`Error::Full`] and [`Error::LaneFull`] at a bound; others if the disk
    /// fails. The message is not kept then.
    fn push(&self, message: Message, now_ms: u64) -> Result<Pushed, Error>;

    /// The next message that is due, for an attempt: of the lanes that have
    /// less under way than `limit` grants them, the one that has least. `None`:
    /// nothing may be begun now.
    ///
    /// # Errors
    /// If the message cannot be read; then it is tried again later.
    fn claim(&self, now_ms: u64, limit: &dyn Fn(&str) -> usize) -> Result<Option<Claimed>, Error>;

    /// When the next message is due; `None` if none waits.
    fn next_due(&self) -> Option<u64>;

    /// Ends a claimed message: for good, or until its next attempt. `follow`
    /// is pushed in the same step. If there is no room for it, the message becomes a
    /// dead letter instead, which says so: redriven, it is made again.
    ///
    /// # Errors
    /// If the disk fails. The message is then tried again.
    fn end(&self, id: Id, end: End, follow: Option<Message>, now_ms: u64) -> Result<(), Error>;

    /// What is known of a message; `None` if it never was, or is forgotten.
    fn status(&self, id: Id) -> Option<Status>;

    /// What came of a message that has succeeded, as [`End::Succeeded`] had it.
    ///
    /// # Errors
    /// If the disk fails.
    fn outcome(&self, id: Id) -> Result<Option<Vec<u8>>, Error>;

    /// Writes something down about a message, under a key of its own, in the place of what is
    /// there; it goes with the message. Whether that is known. When this returns, it is synced.
    ///
    /// # Errors
    /// If the disk fails.
    fn note(&self, id: Id, key: &[u8], value: &[u8]) -> Result<bool, Error>;

    /// All that is written down about a message, by its keys.
    ///
    /// # Errors
    /// If the disk fails.
    fn notes(&self, id: Id) -> Result<Vec<Note>, Error>;

    /// The messages of a lane that were pushed last, the newest first.
    fn recent(&self, lane: &str, limit: usize) -> Vec<Status>;

    /// Head and body of a message that has not succeeded.
    ///
    /// # Errors
    /// If the disk fails.
    fn payload(&self, id: Id) -> Result<Option<Payload>, Error>;

    /// Dead letters, of all lanes or of one, in the order of their ids, after
    /// one of them.
    fn dead(&self, lane: Option<&str>, after: Option<Id>, limit: usize) -> Vec<Status>;

    /// Has a dead letter tried again, as if it were new; whether it was one.
    ///
    /// # Errors
    /// If the disk fails.
    fn redrive(&self, id: Id, now_ms: u64) -> Result<bool, Error>;

    /// Removes a dead letter; whether it was one.
    ///
    /// # Errors
    /// If the disk fails.
    fn purge(&self, id: Id) -> Result<bool, Error>;

    /// Forgets what has been kept for long enough.
    ///
    /// # Errors
    /// If the disk fails.
    fn sweep(&self, now_ms: u64) -> Result<(), Error>;

    /// A number that was set together with a message ([`Message::mark`]).
    fn mark(&self, name: &str) -> Option<u64>;

    /// How much there is of everything.
    fn stats(&self) -> Stats;
}

#[cfg(test)]
mod tests;
