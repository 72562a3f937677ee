// SPDX-License-Identifier: Apache-2.0
//! What stands between the node and an executable, in the executable's own
//! container: frames on one side (`wire.rs`), HTTP/1.1 or standard streams on
//! the other (`http.rs`, `standard.rs`). A program that speaks frames itself
//! takes its place (`native.rs`).
//!
//! It is to an executable what `guests/*/function.*` is to a handler: part of
//! the function, with the function's rights, so that nothing that it says is
//! believed. What it reads of the program is bounded all the same, for the
//! sake of good messages; every time is bounded by the node, which ends the
//! container. It has one thread.

mod callees;
pub mod frame;
mod head;
mod http;
mod native;
mod program;
mod standard;
mod wire;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use program::{Failed, Program};
use wire::{Channel, Order};

/// How the program is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It runs all the time, and serves HTTP.
    Http,
    /// It is run once for each request: body in, answer out.
    Standard,
    /// It runs all the time, and speaks the channel itself.
    Native,
}

/// What is run, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The program's file.
    program: PathBuf,
    mode: Mode,
    environment: Vec<(String, String)>,
    /// Where it is run.
    directory: PathBuf,
    /// For the socket that it may listen on.
    folder: PathBuf,
}

/// What a failure of a program is called, where others name an exception.
const KIND: &str = "ExecutableError";
/// The code of a function as it is seen in its container.
const CODE: &str = "/app";

impl Settings {
    /// Settings as the source that an instance is loaded with: names and
    /// values, each ended by a NUL.
    pub fn encode<'a>(settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, value) in settings {
            for text in [name, value] {
                bytes.extend(text.as_bytes());
                bytes.push(0);
            }
        }
        bytes
    }

    /// Reads what [`encode`](Self::encode) wrote; what it does not know, it
    /// does not need.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let code = PathBuf::from(CODE);
        let mut settings = Self {
            program: code.join("main"),
            mode: Mode::Http,
            environment: Vec::new(),
            directory: code,
            folder: "/tmp".into(),
        };
        let mut texts = text.split_terminator('\0');
        while let Some(name) = texts.next() {
            let value = texts.next()?;
            match name {
                "handler" => settings.program = settings.directory.join(value),
                "mode" if value == "stdin" => settings.mode = Mode::Standard,
                "mode" if value == "native" => settings.mode = Mode::Native,
                _ => {
                    if let Some(variable) = name.strip_prefix("env.") {
                        settings.environment.push((variable.to_owned(), value.to_owned()));
                    }
                }
            }
        }
        Some(settings)
    }
}

/// Serves the node until it closes the channel.
///
/// # Errors
/// If the channel breaks, after which there is nobody to serve.
pub fn run(channel: UnixStream) -> io::Result<()> {
    let mut channel = Channel::open(channel)?;
    let source = match channel.next_order()? {
        Some(Order::Load(source)) => source,
        Some(Order::Call(_)) => return Err(io::ErrorKind::InvalidData.into()),
        // It was made in advance, and is not needed.
        None => return Ok(()),
    };
    let settings = Settings::decode(&source).ok_or(io::ErrorKind::InvalidData)?;
    if settings.mode == Mode::Native {
        return native::become_program(channel, &settings);
    }
    serve_program(channel, Program::new(settings)?)
}

fn serve_program(mut channel: Channel, mut program: Program) -> io::Result<()> {
    match program.load(&mut channel) {
        Ok(()) => channel.loaded()?,
        Err(failed) => return tell(failed, &mut channel),
    }
    while let Some(order) = next(&mut channel, &mut program)? {
        let Order::Call(arguments) = order else { return Err(io::ErrorKind::InvalidData.into()) };
        let [_request, head, body] = arguments.as_slice() else {
            channel.raise(KIND, "an executable is called with request, head and body", "")?;
            continue;
        };
        match program.call(head, body, &mut channel) {
            Ok(result) => channel.result(&result)?,
            Err(failed) => tell(failed, &mut channel)?,
        }
    }
    Ok(())
}

/// The node's next order; what the program prints meanwhile is passed on.
fn next(channel: &mut Channel, program: &mut Program) -> io::Result<Option<Order>> {
    program.logs.wait(channel)?;
    channel.next_order()
}

fn tell(failed: Failed, channel: &mut Channel) -> io::Result<()> {
    match failed {
        Failed::Channel(error) => Err(error),
        Failed::Program { what, trace } => channel.raise(KIND, &what, &trace),
        Failed::Raised { kind, message, trace } => channel.raise(&kind, &message, &trace),
        Failed::Result(why) => channel.bad_result(&why),
    }
}

#[cfg(test)]
mod tests;
