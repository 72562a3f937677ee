// SPDX-License-Identifier: Apache-2.0
//! A load generator for HTTP/1.1: one thread, keep-alive connections.
//!
//! *Saturated*: each connection sends its next request as soon as it has its
//! answer. *Open loop*: requests are planned at a constant rate, whatever the
//! server does, and a latency counts from the planned moment, so that a server
//! that stalls is charged for all that it kept waiting. Every answer is
//! compared with the expected one.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use memchr::memmem;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

/// Answers of this length and no more are read.
const ANSWER_MAX: usize = 64 << 10;
/// A server that says nothing for so long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// Below this, waiting is looking at the clock: a timer is not as exact.
const SPIN_BELOW: Duration = Duration::from_micros(1200);

/// What is sent, and what must come back.
pub(crate) struct Exchange {
    pub(crate) request: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl Exchange {
    /// A POST of JSON.
    pub(crate) fn post(path: &str, json: &str, answer: &str) -> Self {
        let len = json.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {len}\r\nAccept: */*\r\nUser-Agent: bench\r\n\r\n{json}"
        );
        Self { request: request.into_bytes(), body: answer.as_bytes().to_vec() }
    }
}

/// How requests come.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    Saturated,
    /// Requests a second.
    Open(f64),
}

/// What was seen.
pub(crate) struct Seen {
    /// Requests answered a second.
    pub(crate) per_second: f64,
    /// Of each request, in nanoseconds, in ascending order.
    latencies: Vec<f64>,
}

impl Seen {
    pub(crate) fn count(&self) -> usize {
        self.latencies.len()
    }

    /// The latency below which this part of the requests is, in microseconds.
    pub(crate) fn percentile_us(&self, part: f64) -> f64 {
        let index = (part * (self.latencies.len().saturating_sub(1)) as f64).round() as usize;
        self.latencies.get(index).map_or(f64::NAN, |latency| latency / 1e3)
    }
}

struct Connection {
    stream: TcpStream,
    /// When the request that is under way was planned.
    planned: Option<Instant>,
    buffer: Vec<u8>,
}

/// Sends requests over so many connections for a while.
pub(crate) fn run(
    address: SocketAddr,
    exchange: &Exchange,
    connections: usize,
    pace: Pace,
    duration: Duration,
) -> anyhow::Result<Seen> {
    let mut poll = Poll::new()?;
    let mut open = Vec::with_capacity(connections);
    for number in 0..connections {
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        poll.registry().register(&mut stream, Token(number), Interest::READABLE)?;
        open.push(Connection { stream, planned: None, buffer: Vec::with_capacity(4096) });
    }
    let mut load = Load { exchange, open, free: VecDeque::new(), latencies: Vec::new() };
    load.free.extend(0..connections);
    let begun = Instant::now();
    let end = begun + duration;
    let mut planned = Plan { pace, begun, made: 0, late: VecDeque::new() };
    let mut events = Events::with_capacity(connections);
    let mut heard = begun;
    loop {
        let now = Instant::now();
        let is_over = now >= end;
        if !is_over {
            planned.plan(now);
            while !load.free.is_empty()
                && let Some(moment) = planned.take(now)
            {
                load.send(moment)?;
            }
        } else if load.free.len() == connections {
            break;
        }
        let wait = if is_over { Duration::from_millis(100) } else { planned.wait(now) };
        poll.poll(&mut events, Some(wait)).or_else(|error| match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            _ => Err(error),
        })?;
        for event in &events {
            load.receive(event.token().0)?;
            heard = Instant::now();
        }
        ensure!(heard.elapsed() < SILENCE_MAX, "the server on {address} has stopped to answer");
    }
    let mut latencies = load.latencies;
    let per_second = latencies.len() as f64 / begun.elapsed().as_secs_f64();
    latencies.sort_by(f64::total_cmp);
    Ok(Seen { per_second, latencies })
}

/// When requests are to be sent.
struct Plan {
    pace: Pace,
    begun: Instant,
    made: u64,
    /// Planned, and not yet sent.
    late: VecDeque<Instant>,
}

impl Plan {
    fn moment(&self, number: u64, rate: f64) -> Instant {
        self.begun + Duration::from_secs_f64(number as f64 / rate)
    }

    /// Everything up to now has its moment.
    fn plan(&mut self, now: Instant) {
        let Pace::Open(rate) = self.pace else { return };
        while self.moment(self.made, rate) <= now {
            self.late.push_back(self.moment(self.made, rate));
            self.made += 1;
        }
    }

    fn take(&mut self, now: Instant) -> Option<Instant> {
        match self.pace {
            Pace::Saturated => Some(now),
            Pace::Open(_) => self.late.pop_front(),
        }
    }

    fn wait(&self, now: Instant) -> Duration {
        match self.pace {
            Pace::Saturated => Duration::from_millis(100),
            Pace::Open(rate) => {
                let left = self.moment(self.made, rate).saturating_duration_since(now);
                if left < SPIN_BELOW { Duration::ZERO } else { left - SPIN_BELOW }
            }
        }
    }
}

struct Load<'a> {
    exchange: &'a Exchange,
    open: Vec<Connection>,
    free: VecDeque<usize>,
    latencies: Vec<f64>,
}

impl Load<'_> {
    fn send(&mut self, planned: Instant) -> anyhow::Result<()> {
        let Some(number) = self.free.pop_front() else { return Ok(()) };
        let connection = &mut self.open[number];
        connection.planned = Some(planned);
        // Far below what a socket takes at once.
        let written = connection.stream.write(&self.exchange.request)?;
        ensure!(written == self.exchange.request.len(), "a request did not fit the socket");
        Ok(())
    }

    fn receive(&mut self, number: usize) -> anyhow::Result<()> {
        let connection = &mut self.open[number];
        let mut piece = [0; 4096];
        loop {
            match connection.stream.read(&mut piece) {
                Ok(0) => bail!("the server closed a connection"),
                Ok(read) => connection.buffer.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            ensure!(connection.buffer.len() <= ANSWER_MAX, "an answer is too long");
            if is_whole(&connection.buffer, &self.exchange.body)? {
                connection.buffer.clear();
                let planned = connection.planned.take().context("an answer that nobody asked for")?;
                self.latencies.push(planned.elapsed().as_nanos() as f64);
                self.free.push_back(number);
            }
        }
    }
}

/// Whether an answer has come whole. It must be the expected one.
fn is_whole(answer: &[u8], expected: &[u8]) -> anyhow::Result<bool> {
    let Some(end) = memmem::find(answer, b"\r\n\r\n") else { return Ok(false) };
    let head = std::str::from_utf8(&answer[..end])?;
    ensure!(head.starts_with("HTTP/1.1 200"), "an answer is not 200: {}", String::from_utf8_lossy(answer));
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let length = length.context("an answer does not say how long it is")?;
    let body = &answer[end + 4..];
    if body.len() < length {
        return Ok(false);
    }
    ensure!(body == expected, "an answer is {:?}", String::from_utf8_lossy(body));
    Ok(true)
}
