// SPDX-License-Identifier: Apache-2.0
//! `chain`: 500 increments, each applied to the strict result of the one before.
//!
//! *Near*: the client is a worker of the node. *HTTP*: it sends one bundle
//! over loopback. *Far*: the same through a relay that delays each direction
//! by 20 ms, on a connection that is open already, as a client that talks to
//! its platform has one.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use objects::{BundleWriter, Handle, Limits, TreeBuilder};

use crate::figures::{Report, Sample, batch, median_cpu, median_wall};
use crate::invoke::Bench;
use crate::ray;
use crate::relay::Relay;

const LINKS: usize = 500;
const RUNS: usize = 15;
const ONE_WAY: Duration = Duration::from_millis(20);

const INC: &str = include_str!("../../guests/codelets/wat/inc.wat");

fn limits(number: u64) -> Handle {
    Limits { memory_bytes: 1 << 20, fuel: 10_000 + number, ..Limits::default() }.handle().unwrap()
}

fn near(bench: &mut Bench, inc: Handle, number: u64) -> anyhow::Result<Sample> {
    let limits = limits(number);
    let mut result = Handle::u64(0);
    let sample = batch(LINKS, || {
        let mut value = Handle::u64(0);
        let mut thunk = value;
        for _ in 0..LINKS {
            thunk = bench.application(limits, inc, &[value]);
            value = thunk.strict().unwrap();
        }
        result = bench.evaluate(thunk);
    });
    ensure!(result == Handle::u64(LINKS as u64), "the chain gave {result}");
    Ok(sample)
}

/// One cold increment, for the ratio.
fn cold(bench: &mut Bench, inc: Handle, number: u64) -> Sample {
    const OPERATIONS: usize = 4096;
    let limits = limits(1_000_000 + number);
    batch(OPERATIONS, || {
        for i in 0..OPERATIONS as u64 {
            let thunk = bench.application(limits, inc, &[Handle::u64(i << 20)]);
            std::hint::black_box(bench.evaluate(thunk));
        }
    })
}

fn bundle(inc: Handle, number: u64) -> Vec<u8> {
    let mut bundle = BundleWriter::new();
    let mut value = Handle::u64(0);
    for _ in 0..LINKS {
        let mut tree = TreeBuilder::with_capacity(3);
        tree.push(limits(number)).push(inc).push(value);
        let thunk = bundle.tree(tree.view()).application();
        value = thunk.and_then(Handle::strict).unwrap();
    }
    bundle.goal(value)
}

/// Sends a bundle over an open connection and waits for the result.
fn post(stream: &mut TcpStream, bundle: &[u8]) -> anyhow::Result<String> {
    let head = format!(
        "POST /v1/evaluate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/vnd.sinew.bundle\r\nContent-Length: {}\r\n\r\n",
        bundle.len()
    );
    let mut message = head.into_bytes();
    message.extend_from_slice(bundle);
    stream.write_all(&message)?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer)?;
        ensure!(read > 0, "the node closed the connection");
        answer.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        if body.len() >= length.context("an answer without a length")? {
            ensure!(head.starts_with("HTTP/1.1 200"), "{text}");
            return Ok(body.to_owned());
        }
    }
}

/// Whole chains over one connection: wall time, and CPU of node and client
/// together, in nanoseconds.
fn over_http(address: SocketAddr, inc: Handle, first: u64) -> anyhow::Result<Vec<Sample>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let expected = Handle::u64(LINKS as u64).to_string();
    let mut times = Vec::new();
    for number in first..first + RUNS as u64 {
        let bundle = bundle(inc, number);
        let (begun, cpu) = (Instant::now(), linux::process_cpu_ns()?);
        let answer = post(&mut stream, &bundle)?;
        let wall = begun.elapsed().as_nanos() as f64;
        times.push(Sample { cpu: (linux::process_cpu_ns()? - cpu) as f64, wall });
        ensure!(answer.contains(&expected), "the chain gave {answer}");
    }
    Ok(times)
}

/// A node with its HTTP door on loopback, on a thread of its own.
#[expect(clippy::disallowed_methods, reason = "the node under test runs beside its client")]
fn serve() -> anyhow::Result<SocketAddr> {
    let (ready, address) = mpsc::channel();
    std::thread::spawn(move || {
        let listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let options = node::Options { listen, ..node::Options::default() };
        let ended = node::run(&options, |running| _ = ready.send(running.address));
        if let Err(error) = ended {
            eprintln!("the node ended: {error}");
        }
    });
    match address.recv_timeout(Duration::from_secs(30)) {
        Ok(Some(address)) => Ok(address),
        _ => bail!("the node does not start"),
    }
}

fn upload(address: SocketAddr, codelet: &[u8]) -> anyhow::Result<()> {
    let mut bundle = BundleWriter::new();
    let handle = bundle.blob(codelet);
    post(
        &mut TcpStream::connect(address)?,
        &bundle.goal(handle.identification().and_then(Handle::strict).unwrap()),
    )?;
    Ok(())
}

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let mut bench = Bench::new()?;
    let inc = bench.codelet(INC)?;
    near(&mut bench, inc, 999)?;
    let (mut links, mut colds) = (Vec::new(), Vec::new());
    for number in 0..RUNS as u64 {
        colds.push(cold(&mut bench, inc, number));
        links.push(near(&mut bench, inc, number)?);
    }
    let near_wall = median_wall(&links);
    report.add("near_link_cpu_ns", median_cpu(&links), "ns", "one of 500 links, client near", RUNS);
    report.add("near_link_wall_ns", near_wall, "ns", "the same by the clock", RUNS);
    report.add("cold_cpu_ns", median_cpu(&colds), "ns", "one cold increment", RUNS);
    report.add("near_over_cold", median_cpu(&links) / median_cpu(&colds), "x", "one link / one cold", RUNS);

    let address = serve()?;
    upload(address, &wat::parse_str(INC)?)?;
    over_http(address, inc, 5_000)?;
    let http = over_http(address, inc, 6_000)?;
    let both = "the same, CPU of node and client";
    report.add(
        "http_chain_ms",
        median_wall(&http) / 1e6,
        "ms",
        "500 links in one request over loopback",
        RUNS,
    );
    report.add("http_chain_cpu_ms", median_cpu(&http) / 1e6, "ms", both, RUNS);

    let relay = Relay::start(address, ONE_WAY)?;
    let relay = Arc::new(relay);
    let far = over_http(relay.address(), inc, 7_000)?;
    let trips = relay.turns() as f64 / RUNS as f64;
    report.add("far_chain_ms", median_wall(&far) / 1e6, "ms", "the same, 20 ms each way", RUNS);
    report.add("far_chain_cpu_ms", median_cpu(&far) / 1e6, "ms", both, RUNS);
    report.add("far_round_trips", trips, "count", "turns of the conversation, counted by the relay", RUNS);

    let mut number = 2 * RUNS as u64;
    // A turn of ours takes half a millisecond, one of Ray's half a second: the
    // first of ours would measure what Ray has left in the caches.
    let own = || {
        let mut turn = Vec::new();
        for _ in 0..RUNS {
            number += 1;
            turn.push(near(&mut bench, inc, number)?);
        }
        Ok(Sample { cpu: median_cpu(&turn), wall: median_wall(&turn) })
    };
    if let Some(ray) = report.peer("Ray", || ray::alternate("chain", own)) {
        report.add("ray_link_wall_ns", ray.wall_ns, "ns", "Ray, fastest style", ray.n);
        report.add("ray_link_cpu_ns", ray.cpu_ns, "ns", "the same, all its processes", ray.n);
        report.add("times_faster_than_ray", ray.over_our_wall, "x", "wall / wall, in turns", ray.n);
    }
    Ok(())
}
