// SPDX-License-Identifier: Apache-2.0
//! What stands between the node and an executable, in the executable's own
//! container: frames on one side (`wire.rs`), HTTP/1.1 or standard streams on
//! the other (`http.rs`, `standard.rs`, `lambda.rs`). A program that speaks frames itself
//! takes its place (`native.rs`).
//!
//! It is to an executable what `guests/*/function.*` is to a handler: part of
//! the function, with the function's rights, so that nothing that it says is
//! believed. What it reads of the program is bounded all the same, for the
//! sake of good messages; every time is bounded by the node, which ends the
//! container. It has one thread, which waits for all of them at once
//! (`serving.rs`).

mod answer;
mod callees;
mod chunks;
mod connection;
mod flow;
pub mod frame;
mod head;
mod http;
mod lambda;
mod logs;
mod native;
mod poller;
mod program;
mod serving;
mod standard;
mod wire;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use program::PORT;
use serving::Serving;
use wire::Channel;

/// Requests that a program serves at the same time at most: each is a connection, and so are those by which it calls
/// others ([`frame::ASKS_MAX`]); an instance has 256 descriptors.
pub const CALLS_AT_ONCE_MAX: u16 = 128;

/// How the program is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It runs all the time, and serves HTTP.
    Http,
    /// It is run once for each request: body in, answer out.
    Standard,
    /// It runs all the time, and asks for its events.
    Lambda,
    /// It runs all the time, and speaks the channel itself.
    Native,
}

/// What is run, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The program's file.
    program: PathBuf,
    mode: Mode,
    /// A request by HTTP is an event as a whole.
    takes_http_event: bool,
    /// The function's name, and the memory of an instance.
    function: String,
    memory_mib: String,
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
            takes_http_event: false,
            function: String::new(),
            memory_mib: String::new(),
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
                "mode" if value == "lambda" => settings.mode = Mode::Lambda,
                "event" => settings.takes_http_event = value == "http",
                "function" => value.clone_into(&mut settings.function),
                "memory-mib" => value.clone_into(&mut settings.memory_mib),
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
    // One that was made in advance, and is not needed, is loaded with nothing.
    let Some(source) = channel.load()? else { return Ok(()) };
    let settings = Settings::decode(&source).ok_or(io::ErrorKind::InvalidData)?;
    if settings.mode == Mode::Native {
        return native::become_program(channel, &settings);
    }
    Serving::new(channel, settings, PORT)?.run()
}

#[cfg(test)]
mod tests;
