// SPDX-License-Identifier: Apache-2.0
//! What can go wrong with containers on our side of the wall.

use std::io;

/// What is wrong with this machine, or with a request for a container. What
/// code in a container does wrong is its own matter, and no error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine does not have what containers need.
    #[error("process sandboxes cannot work here: {what}; {remedy}")]
    Unavailable {
        /// What is missing.
        what: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The request makes no sense.
    #[error("process sandbox: the request cannot be met: {0}")]
    Invalid(String),
    /// The init could not be started, or told why it cannot go on.
    #[error("process sandbox: a container cannot be prepared: {0}; `sinew doctor` tells what is missing")]
    Prepare(String),
    /// The init or a process did not answer in time.
    #[error("process sandbox: {0} did not answer within {1} s; the container is destroyed")]
    Timeout(&'static str, u64),
    /// The container has ended.
    #[error("process sandbox: the container has ended")]
    Ended,
    /// The program could not be executed.
    #[error("process sandbox: the program does not start: {0}")]
    Program(String),
    /// The kernel refuses something that it should grant.
    #[error("process sandbox: cannot {what}: {source}")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`: what was tried, with the kernel's answer to come.
    pub(super) fn kernel(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Kernel { what, source }
    }
}
