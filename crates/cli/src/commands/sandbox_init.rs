// SPDX-License-Identifier: Apache-2.0
//! `sinew sandbox-init`: what the node starts as the first process of a
//! container. It is told all it needs over its standard input.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use crate::exit::{Code, Stop};

/// The program and arguments with which a node starts this command.
pub(crate) fn command() -> Vec<OsString> {
    vec!["/proc/self/exe".into(), "sandbox-init".into()]
}

pub(crate) fn run() -> anyhow::Result<()> {
    if std::io::stdin().is_terminal() {
        return Err(Stop::new(Code::Usage, "`sandbox-init` is for the node to start").into());
    }
    // The runtime hears the reason of a failure over the socket.
    if node::sandbox_init() == ExitCode::SUCCESS {
        return Ok(());
    }
    Err(Stop::new(Code::Failed, "the container was not made").into())
}
