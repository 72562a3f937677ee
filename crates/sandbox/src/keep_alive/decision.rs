// SPDX-License-Identifier: Apache-2.0
//! The words in which the policy is asked and answers.

use std::time::Duration;

use super::function::Counts;

/// Names a function; whoever asks the policy gives it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub u64);

/// Names an instance; the policy gives it out, never twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceId(pub u64);

/// Names a call; whoever asks the policy gives it out, never twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What is to hold for the instances of one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Instances that it may have at once; at least one.
    pub instances_max: u32,
    /// An idle instance ends after this, at once if it is zero; `None`: as for
    /// all functions.
    pub idle_max: Option<Duration>,
    /// What an instance is charged until one has been measured.
    pub size_bytes: u64,
}

/// What is to hold for all functions together.
#[derive(Debug, Clone)]
pub struct PolicyOptions {
    /// Memory of all instances, those being made and ended included.
    pub memory_bytes: u64,
    /// Instances of all functions. An instance is charged at least this part
    /// of the memory.
    pub instances_max: u32,
    /// An idle instance ends after this.
    pub idle_max: Duration,
    /// Calls of one function that may wait.
    pub waiting_max: usize,
    /// Calls of all functions that may wait.
    pub waiting_all_max: usize,
    /// Functions that are remembered.
    pub functions_max: usize,
    /// After it has waited so long, a call's function goes before those that
    /// have more, and an instance of another one gives way to it.
    pub patience: Duration,
    /// Instances are made ahead of calls that are expected.
    pub prewarm: bool,
    /// Up to so many instances a function gets when its calls have waited for a
    /// while, however soon those that there are would come to them.
    pub processors: u32,
}

impl Default for PolicyOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 2 << 30,
            instances_max: 1024,
            idle_max: Duration::from_secs(600),
            waiting_max: 256,
            waiting_all_max: 4096,
            functions_max: 4096,
            patience: Duration::from_millis(500),
            prewarm: true,
            processors: 1,
        }
    }
}

/// How an instance was found for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// It had served before.
    Warm,
    /// It was made ahead, and this is its first call.
    Prewarmed,
    /// It was made because a call waited, and this is its first.
    New,
}

/// Why an instance is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Its memory is needed, and it is worth the least.
    Evicted,
    /// Another function has waited for longer, or has much less.
    Yielded,
    /// It was idle for too long.
    Expired,
    /// The call that it was made ahead for did not come.
    Wasted,
    /// A call has ended it.
    Died,
    /// All is to end.
    Drained,
}

/// Why a call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefuseReason {
    /// So many calls of its function wait already.
    FunctionFull(usize),
    /// So many calls of all functions wait already, and other functions have
    /// not more of them.
    AllFull(usize),
    /// So many functions are in use already.
    TooManyFunctions(usize),
    /// An instance needs more than there is for all.
    TooBig {
        /// What an instance needs.
        size_bytes: u64,
        /// What there is.
        memory_bytes: u64,
    },
    /// The instance that was made for it failed.
    StartFailed(InstanceId),
    /// All is to end.
    Draining,
}

/// What the policy wants to be done, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The call runs in this instance now; `ended` is to follow.
    Use {
        /// The call.
        ticket: Ticket,
        /// Its instance.
        instance: InstanceId,
        /// How it was found.
        found: Found,
    },
    /// An instance is made; `ready` or `failed` is to follow.
    Start {
        /// Of this function.
        function: FunctionId,
        /// To be called so.
        instance: InstanceId,
    },
    /// An instance is ended; `stopped` is to follow, when its memory is free.
    Stop {
        /// The instance.
        instance: InstanceId,
        /// Why.
        reason: StopReason,
    },
    /// The call does not run.
    Refuse {
        /// The call.
        ticket: Ticket,
        /// Why not.
        reason: RefuseReason,
    },
    /// The policy has forgotten this function: its id may be dropped.
    Forget(FunctionId),
}

/// A function, looked at from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionStats {
    /// The function.
    pub function: FunctionId,
    /// Instances that wait for a call.
    pub idle: u32,
    /// Instances that run one.
    pub busy: u32,
    /// Instances that are being made.
    pub starting: u32,
    /// Calls that wait.
    pub waiting: usize,
    /// What the instances are charged together.
    pub held_bytes: u64,
    /// What a new instance would be charged.
    pub size_bytes: u64,
    /// What making one takes, as measured of late; 0: not yet.
    pub start_ns: u64,
    /// What became of the calls so far.
    pub counts: Counts,
}

/// All of it, looked at from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Charged now, for all instances.
    pub memory_bytes: u64,
    /// Of this, for instances that are being ended.
    pub stopping_bytes: u64,
    /// The most that may be charged before a new instance is made, what is kept
    /// for no instance included.
    pub memory_max_bytes: u64,
    /// Kept for no instance: what instances are forked from.
    pub kept_bytes: u64,
    /// Instances, those being made or ended included.
    pub instances: usize,
    /// Calls that wait.
    pub waiting: usize,
    /// The functions that are remembered, in the order of their ids.
    pub functions: Vec<FunctionStats>,
}
