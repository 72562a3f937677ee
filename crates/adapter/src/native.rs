// SPDX-License-Identifier: Apache-2.0
//! A program that speaks the channel itself (`guests/native`): it takes the
//! place of this process, with the channel, and with the end of the pipe that
//! it prints into.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use rustix::io::{FdFlags, fcntl_setfd};

use crate::Settings;
use crate::frame::{OUTSIDE, VERSION};
use crate::program::{Failed, command, look_at, unstartable};
use crate::serving::tell;
use crate::wire::Channel;

/// The variable that says to a native program where its channel is: version of the
/// wire, descriptor, the descriptor that it reads what it prints from, bytes of a
/// result and of what a call prints.
const CHANNEL: &str = "SINEW_CHANNEL";

/// Becomes the program.
///
/// # Errors
/// If the node has gone. It is told of all else that keeps the program from being started.
pub(crate) fn become_program(mut channel: Channel, settings: &Settings) -> io::Result<()> {
    let failed = execute(&channel, settings);
    tell(failed, OUTSIDE, &mut channel)
}

/// Returns only why not.
fn execute(channel: &Channel, settings: &Settings) -> Failed {
    if let Err(failed) = look_at(settings) {
        return failed;
    }
    let prepared = || -> io::Result<(OwnedFd, OwnedFd, OwnedFd)> {
        let (reader, writer) = io::pipe()?;
        Ok((channel.as_fd().try_clone_to_owned()?, reader.into(), writer.into()))
    };
    let (node, reader, writer) = match prepared() {
        Ok(prepared) => prepared,
        Err(error) => return error.into(),
    };
    let (result_max, log_max) = channel.bounds();
    let told = format!("{VERSION} {} {} {result_max} {log_max}", node.as_raw_fd(), reader.as_raw_fd());
    let mut command = command(settings);
    command.env(CHANNEL, told).stdin(Stdio::null());
    let executed = || -> io::Result<io::Error> {
        command.stdout(writer.try_clone()?).stderr(writer);
        for inherited in [&node, &reader] {
            fcntl_setfd(inherited, FdFlags::empty())?;
        }
        Ok(command.exec())
    };
    let error = executed().unwrap_or_else(|error| error);
    unstartable(&settings.program, &error)
}
