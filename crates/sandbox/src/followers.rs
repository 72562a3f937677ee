// SPDX-License-Identifier: Apache-2.0
//! Steps that follow one another in one instance: each is given what the one before it returned, without the node in
//! between (decision 0108).
//!
//! Whoever sends a call sends what follows it along. The instance goes on with that as soon as it has answered, unless the
//! call has failed, or its result is better handed over otherwise; then the rest is not begun there.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::keep_alive::Start;
use crate::nested::Callees;
use crate::sandbox::Outcome;

/// Calls that may follow one.
pub const FOLLOWERS_MAX: usize = 15;

/// A call that follows another one, of whose arguments one is missing: the result of that.
#[derive(Clone)]
pub struct Follower {
    /// The function of the same image, as `module.name`.
    pub handler: String,
    /// What it is told of its request.
    pub head: Vec<u8>,
    /// Its other arguments, as the runtime of the image writes them.
    pub arguments: Vec<u8>,
    /// It may begin after a result that is sent, and is copied for it.
    pub is_brief: bool,
    /// If it may be given that result itself, for nobody else will ever ask for it, which may be long then: what it needs of memory,
    /// in bytes.
    pub given_within: Option<NonZeroU64>,
    /// Who makes the calls of other functions that it asks for.
    pub callees: Option<Arc<dyn Callees>>,
}

/// What follows a call, and who hears how it ended. Nothing here blocks.
pub trait Followers: Send + Sync {
    /// The calls in their order, at most [`FOLLOWERS_MAX`]: the same each time.
    fn calls(&self) -> &[Follower];
    /// An instance comes to the first call. It may be told again: another one does.
    fn start(&self, start: Start);
    /// How the call at this place ended, 0 being the one that is followed, and whether the instance goes on with the next one;
    /// otherwise nothing behind it is begun. It is told of each in turn.
    fn ended(&self, place: usize, outcome: Outcome, is_followed: bool);
    /// The instance went on with the call at this place, and yet it was not begun, nor anything behind it.
    fn not_begun(&self, place: usize);
}
