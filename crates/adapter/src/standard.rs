// SPDX-License-Identifier: Apache-2.0
//! A program that is run once for each request: the body is its standard
//! input, what it prints is the answer.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::head::{Request, content_type, result};
use crate::program::{Failed, Program, ending};
use crate::wire::Channel;

const PIECE: usize = 64 << 10;
/// How long a program that has closed its output may take to end, before its
/// end is looked for less often.
const SOON: Duration = Duration::from_millis(20);

/// Ended with the call, whatever becomes of it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Runs it for one request.
pub(crate) fn run(
    program: &mut Program,
    request: &Request,
    body: &[u8],
    channel: &mut Channel,
) -> Result<Vec<u8>, Failed> {
    program.logs.begin();
    let mut command = program.command()?;
    command.envs(variables(request, body.len())).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running(command.spawn().map_err(|error| program.unstartable(&error))?);
    let printed = converse(&mut running.0, body, program, channel)?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = running.0.try_wait()? {
            break status;
        }
        // It may still print, and call other functions.
        let step = Duration::from_millis(if begun.elapsed() < SOON { 1 } else { 20 });
        program.wait_for(channel, &[], Some(step))?;
    };
    if !status.success() {
        return Err(program.failed(format!("the program {}", ending(status)), channel));
    }
    let kind = [("content-type".to_owned(), content_type(&printed).to_owned())];
    Ok(result(200, &kind, &printed))
}

/// Writes the body and reads the answer, at the same time, until the program
/// closes its output.
fn converse(
    child: &mut Child,
    body: &[u8],
    program: &mut Program,
    channel: &mut Channel,
) -> Result<Vec<u8>, Failed> {
    let (mut input, output) = (child.stdin.take(), child.stdout.take());
    let mut output = output.ok_or_else(|| io::Error::other("a program without output"))?;
    if let Some(input) = &input {
        rustix::io::ioctl_fionbio(input, true).map_err(io::Error::from)?;
    }
    let mut left = body;
    let mut printed = Vec::new();
    let mut piece = vec![0; PIECE];
    loop {
        if left.is_empty() {
            input = None;
        }
        let mut waited = vec![(output.as_fd(), PollFlags::IN)];
        waited.extend(input.iter().map(|input| (input.as_fd(), PollFlags::OUT)));
        let ready = program.wait(channel, &waited)?;
        if ready.get(1) == Some(&true)
            && let Some(writer) = &mut input
        {
            match writer.write(left) {
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // It needs no more of it.
                Err(_) => left = &[],
            }
        }
        if ready[0] {
            let len = output.read(&mut piece)?;
            if len == 0 {
                return Ok(printed);
            }
            printed.extend(&piece[..len]);
            if printed.len() > channel.result_max() {
                let why = format!("the program's answer has more than {} bytes", channel.result_max());
                return Err(Failed::Result(why));
            }
        }
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
