// SPDX-License-Identifier: Apache-2.0
//! A load generator for HTTP/1.1 with keep-alive connections: one thread, or one for each four processors,
//! which divide connections and rate among them. One alone can ask for some 150,000 answers a second.
//!
//! *Saturated*: each connection sends its next request as soon as it has its
//! answer. *Open loop*: requests are planned at a constant rate, whatever the
//! server does, and a latency counts from the planned moment, so that a server
//! that stalls is charged for all that it kept waiting. Between two of them the
//! generator sleeps, by a timer that is exact to some microseconds: one that
//! looked at the clock would take a processor from the server. Every answer is
//! compared with the expected one.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use memchr::memmem;
use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// Answers of this length and no more are read.
const ANSWER_MAX: usize = 64 << 10;
/// A server that says nothing for so long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// How long is waited for answers where nothing else is to be done.
const PAUSE: Duration = Duration::from_millis(100);
/// The timer's token; connections have the lower ones.
const TIMER: Token = Token(usize::MAX - 1);

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

/// One thread for so many processors.
const PROCESSORS_A_THREAD: usize = 4;

/// Sends requests over so many connections for a while.
#[expect(clippy::disallowed_methods, reason = "clients are not the node's workers")]
pub(crate) fn run(
    address: SocketAddr,
    exchange: &Exchange,
    connections: usize,
    pace: Pace,
    duration: Duration,
) -> anyhow::Result<Seen> {
    let processors = linux::available_cpus().map_or(1, |cpus| cpus.len());
    let threads = (processors / PROCESSORS_A_THREAD).clamp(1, connections);
    let pace = match pace {
        Pace::Open(rate) => Pace::Open(rate / threads as f64),
        Pace::Saturated => Pace::Saturated,
    };
    let part = |thread: usize| (connections + thread) / threads;
    // One after the other, as if one thread planned all.
    let phase = |thread: usize| match pace {
        Pace::Open(rate) => Duration::from_secs_f64(thread as f64 / (rate * threads as f64)),
        Pace::Saturated => Duration::ZERO,
    };
    let parts = std::thread::scope(|scope| {
        let one = |thread| {
            scope.spawn(move || run_one(address, exchange, part(thread), (pace, phase(thread)), duration))
        };
        let running: Vec<_> = (1..threads).map(one).collect();
        let first = run_one(address, exchange, part(0), (pace, phase(0)), duration);
        let others =
            running.into_iter().map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked")));
        std::iter::once(first).chain(others.collect::<Vec<_>>()).collect::<anyhow::Result<Vec<Seen>>>()
    })?;
    let per_second = parts.iter().map(|part| part.per_second).sum();
    let mut latencies: Vec<f64> = parts.into_iter().flat_map(|part| part.latencies).collect();
    latencies.sort_by(f64::total_cmp);
    Ok(Seen { per_second, latencies })
}

/// One thread's part.
fn run_one(
    address: SocketAddr,
    exchange: &Exchange,
    connections: usize,
    (pace, phase): (Pace, Duration),
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
    let mut planned = Plan { pace, begun: begun + phase, made: 0, late: VecDeque::new() };
    let mut events = Events::with_capacity(connections + 1);
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)?;
    poll.registry().register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)?;
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
        let wait = match planned.left(Instant::now()) {
            Some(left) if !is_over && !load.free.is_empty() => {
                wake_in(&timer, left)?;
                if left.is_zero() { Duration::ZERO } else { PAUSE }
            }
            _ => PAUSE,
        };
        poll.poll(&mut events, Some(wait)).or_else(|error| match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            _ => Err(error),
        })?;
        for event in events.iter().filter(|event| event.token() != TIMER) {
            load.receive(event.token().0)?;
            heard = Instant::now();
        }
        ensure!(heard.elapsed() < SILENCE_MAX, "the server on {address} has stopped to answer");
    }
    let latencies = load.latencies;
    let per_second = latencies.len() as f64 / begun.elapsed().as_secs_f64();
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

    /// Until the next moment; `None` if requests wait for connections alone.
    fn left(&self, now: Instant) -> Option<Duration> {
        match self.pace {
            Pace::Saturated => None,
            Pace::Open(rate) => Some(self.moment(self.made, rate).saturating_duration_since(now)),
        }
    }
}

/// Has the timer be ready then; zero: not at all.
fn wake_in(timer: &OwnedFd, left: Duration) -> anyhow::Result<()> {
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let once = Itimerspec { it_interval: never, it_value: Timespec::try_from(left)? };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
    Ok(())
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
