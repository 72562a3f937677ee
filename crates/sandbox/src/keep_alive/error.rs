// SPDX-License-Identifier: Apache-2.0
//! Why a call did not get to run, or not to its end.

use std::io;

use super::decision::RefuseReason;

/// What stands between a call and its instance. What the function itself does
/// wrong is no error but an [`Outcome`](crate::Outcome).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The sandbox refused the call.
    #[error("keep-alive: the instance did not take the call: {0}")]
    Invoke(#[source] crate::Error),
    /// The instance that was made for the call failed.
    #[error("keep-alive: no instance could be made for the call: {0}")]
    Start(#[source] crate::Error),
    /// Too many calls of this function wait.
    #[error(
        "keep-alive: {0} calls of this function wait already; try again later, or let it have more instances"
    )]
    FunctionFull(usize),
    /// Too many calls wait.
    #[error("keep-alive: {0} calls wait already; try again later, or give instances more memory")]
    AllFull(usize),
    /// Too many functions are in use.
    #[error("keep-alive: {0} functions are in use already; try again later, or raise `functions_max`")]
    TooManyFunctions(usize),
    /// The function will never fit.
    #[error(
        "keep-alive: an instance needs {size_bytes} bytes, and all may have {memory_bytes}; lower the \
         function's memory limit, or raise the budget"
    )]
    TooBig {
        /// What an instance needs.
        size_bytes: u64,
        /// What there is.
        memory_bytes: u64,
    },
    /// The deadline passed before there was an instance.
    #[error("keep-alive: no instance was free before the call's deadline; the call did not run")]
    Late,
    /// The call was cancelled before it ran.
    #[error("keep-alive: the call was cancelled while it waited; it did not run")]
    Cancelled,
    /// All is being ended.
    #[error("keep-alive: instances are being ended and take no more calls; ask another node")]
    Draining,
    /// A thread could not be started.
    #[error("keep-alive: cannot start a thread: {0}; look at the limit of threads")]
    Thread(#[source] io::Error),
}

impl Error {
    /// `start` is what went wrong with the instance, if it was that.
    pub(super) fn refused(reason: RefuseReason, start: Option<crate::Error>) -> Self {
        match (reason, start) {
            (RefuseReason::FunctionFull(most), _) => Self::FunctionFull(most),
            (RefuseReason::AllFull(most), _) => Self::AllFull(most),
            (RefuseReason::TooManyFunctions(most), _) => Self::TooManyFunctions(most),
            (RefuseReason::TooBig { size_bytes, memory_bytes }, _) => {
                Self::TooBig { size_bytes, memory_bytes }
            }
            (RefuseReason::StartFailed(_), Some(error)) => Self::Start(error),
            (RefuseReason::StartFailed(_) | RefuseReason::Draining, _) => Self::Draining,
        }
    }
}
