// SPDX-License-Identifier: Apache-2.0
//! A program that is run once for each request: the body is its standard
//! input, what it prints is the answer.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use rustix::event::PollFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::frame::Turn;
use crate::head::{Request, content_type, result};
use crate::logs::Logs;
use crate::poller::{Poller, Source, Wanted};
use crate::program::{Failed, Program, ending};

const PIECE: usize = 64 << 10;

/// Ended with the call, whatever becomes of it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A program that runs for one request.
pub(crate) struct Run {
    child: Running,
    /// Until all is written, or it needs no more.
    input: Option<Waited<ChildStdin>>,
    /// Until the program closes it.
    output: Option<Waited<ChildStdout>>,
    /// By which its end is heard.
    end: Waited<OwnedFd>,
    body: Vec<u8>,
    written: usize,
    printed: Vec<u8>,
}

/// A descriptor, and what is waited for there.
struct Waited<T> {
    of: T,
    wanted: Wanted,
}

impl<T> From<T> for Waited<T> {
    fn from(of: T) -> Self {
        Self { of, wanted: Wanted::default() }
    }
}

impl Run {
    /// Starts it.
    pub(crate) fn start(
        turn: Turn,
        program: &Program,
        request: &Request,
        body: Vec<u8>,
        logs: &Logs,
        poller: &Poller,
    ) -> Result<Self, Failed> {
        let mut command = program.command(logs)?;
        command.envs(variables(request, body.len())).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Running(command.spawn().map_err(|error| program.unstartable(&error))?);
        let pid = Pid::from_child(&child.0);
        let end = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| Failed::unstarted(error.into()))?;
        let (input, output) = (child.0.stdin.take(), child.0.stdout.take());
        for fd in input.iter().map(AsFd::as_fd).chain(output.iter().map(AsFd::as_fd)) {
            rustix::io::ioctl_fionbio(fd, true).map_err(|error| Failed::unstarted(error.into()))?;
        }
        let (input, output) = (input.map(Waited::from), output.map(Waited::from));
        let mut run = Self { child, input, output, end: end.into(), body, written: 0, printed: Vec::new() };
        if let Some(Waited { of, wanted }) = &mut run.output {
            poller.want(of, Source::Answer(turn), wanted, PollFlags::IN)?;
        }
        run.write(turn, poller)?;
        Ok(run)
    }

    /// Does what can be done without waiting; true if that was all.
    pub(crate) fn go_on(&mut self, turn: Turn, most: usize, poller: &Poller) -> Result<bool, Failed> {
        self.write(turn, poller)?;
        self.read(turn, most, poller)?;
        if self.output.is_some() {
            return Ok(false);
        }
        match self.child.0.try_wait()? {
            Some(status) if status.success() => Ok(true),
            Some(status) => Err(Failed::program(format!("the program {}", ending(status)))),
            None => {
                // It may still print, and call other functions.
                let Waited { of, wanted } = &mut self.end;
                poller.want(of, Source::End(turn), wanted, PollFlags::IN)?;
                Ok(false)
            }
        }
    }

    /// Writes what there is room for of the body.
    fn write(&mut self, turn: Turn, poller: &Poller) -> io::Result<()> {
        let Some(Waited { of, wanted }) = &mut self.input else { return Ok(()) };
        while self.written < self.body.len() {
            match of.write(&self.body[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return poller.want(of, Source::Input(turn), wanted, PollFlags::OUT);
                }
                // It needs no more of it.
                Err(_) => break,
            }
        }
        poller.want(of, Source::Input(turn), wanted, PollFlags::empty())?;
        self.input = None;
        Ok(())
    }

    /// Takes what is there of the answer.
    fn read(&mut self, turn: Turn, most: usize, poller: &Poller) -> Result<(), Failed> {
        let Some(Waited { of, wanted }) = &mut self.output else { return Ok(()) };
        let mut piece = [0; PIECE];
        loop {
            match of.read(&mut piece) {
                Ok(0) => break,
                Ok(len) => self.printed.extend(&piece[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
            if self.printed.len() > most {
                return Err(Failed::Result(format!("the program's answer has more than {most} bytes")));
            }
        }
        poller.want(of, Source::Answer(turn), wanted, PollFlags::empty())?;
        self.output = None;
        Ok(())
    }

    /// What it printed, as an answer.
    pub(crate) fn result(&self) -> Vec<u8> {
        let kind = [("content-type".to_owned(), content_type(&self.printed).to_owned())];
        result(200, &kind, &self.printed)
    }
}

/// What a program learns of the request, named as CGI does.
fn variables(request: &Request, len: usize) -> Vec<(String, String)> {
    let own = [
        ("REQUEST_METHOD", request.http.method.as_str()),
        ("PATH_INFO", &request.http.path),
        ("QUERY_STRING", &request.http.query),
        ("CONTENT_TYPE", request.header("content-type").unwrap_or_default()),
        ("SINEW_REQUEST_ID", &request.call.request_id),
        ("SINEW_FUNCTION", &request.call.function),
    ];
    let mut all: Vec<(String, String)> =
        own.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    all.push(("CONTENT_LENGTH".to_owned(), len.to_string()));
    all.push(("SINEW_VERSION".to_owned(), request.call.version.to_string()));
    all.push(("SINEW_DEADLINE_MS".to_owned(), request.call.deadline_ms.to_string()));
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    // `Proxy` would become a variable that libraries believe.
    let told = request.http.headers.iter().filter(|(name, _)| is_plain(name) && name != "proxy");
    all.extend(told.map(|(name, value)| {
        (format!("HTTP_{}", name.to_ascii_uppercase().replace('-', "_")), value.clone())
    }));
    all.retain(|(_, value)| !value.contains('\0'));
    all
}
