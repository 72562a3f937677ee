// SPDX-License-Identifier: Apache-2.0
//! `external-io`: 1,024 applications, each of which adds an input to itself that is on
//! a server which answers after 150 ms, and asks for 1 GiB and a core, on a node that
//! is told of 32 cores and 64 GiB for guests.
//!
//! The ablation has the I/O inside of the reservation: an application has its gibibyte
//! from before its input is asked for until it has ended, so that 64 of them are under
//! way at once, with cores to spare for all of them. It is the same node, which is
//! given one application after another in 64 places. The ideal is a client that
//! fetches all inputs at once and computes nothing.
//!
//! The server ends each connection after its answer; both ours and the ideal are also
//! measured with one that does not (`again_…`), on connections of the round before.

mod client;
mod server;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use node::{Fetching, Node, Options};
use objects::{Handle, Limits, Source, TreeBuilder, Validator};

use crate::figures::{Report, median};
use client::Client;
use server::Connections;

const APPLICATIONS: u64 = 1024;
const LATENCY: Duration = Duration::from_millis(150);
const CORES: usize = 32;
const GIB: u64 = 1 << 30;
/// Half of a node's memory is for guests.
const NODE_BYTES: u64 = 2 * PLACES as u64 * GIB;
/// Reservations of one gibibyte that fit.
const PLACES: usize = 64;
const ROUNDS: usize = 5;

/// Adds its argument to itself.
const DOUBLE: &str = r#"(module
  (import "sinew_v1" "read_u64" (func $read_u64 (param i32 i64) (result i64)))
  (import "sinew_v1" "blob_u64" (func $blob_u64 (param i64 i32) (result i32)))
  (func (export "apply") (param i32) (result i32)
    (call $blob_u64
      (i64.add
        (call $read_u64 (i32.const 3) (i64.const 0))
        (call $read_u64 (i32.const 4) (i64.const 0)))
      (i32.const 8))))"#;

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let server = server::start(LATENCY)?;
    let options = Options {
        workers: Some(CORES),
        memory_bytes: Some(NODE_BYTES),
        fetch_private: vec!["127.0.0.1:*".to_owned()],
        fetching: Some(Fetching { at_once: APPLICATIONS as usize, at_once_per_host: APPLICATIONS as usize }),
        ..Options::default()
    };
    let node = Node::start(&options)?;
    let double = node.store().put_blob(&wat::parse_str(DOUBLE)?)?;
    node.prepare(double, &limits()).map_err(|fault| anyhow::anyhow!(fault.detail))?;
    let mut client = Client::default();
    let mut sides: [Vec<Taken>; 5] = Default::default();
    for round in 0..=ROUNDS as u64 {
        // Inputs of different runs have different URLs and values: nothing is remembered.
        let first = |run: u64| (5 * round + run) * APPLICATIONS;
        let inputs = |connections, run| Inputs { server, connections, first: first(run) };
        let taken = [
            taken(|| at_once(&node, double, inputs(Connections::New, 0)))?,
            taken(|| in_places(&node, double, inputs(Connections::New, 1)))?,
            taken(|| client.fetch_all(server, Connections::New, first(2)..first(3)))?,
            taken(|| at_once(&node, double, inputs(Connections::Kept, 3)))?,
            taken(|| client.fetch_all(server, Connections::Kept, first(4)..first(5)))?,
        ];
        // The first round warms all of them up, and makes the connections that are kept.
        if round > 0 {
            sides.iter_mut().zip(taken).for_each(|(side, taken)| side.push(taken));
        }
    }
    node.shut_down();
    tell(report, &sides);
    Ok(())
}

fn tell(report: &mut Report, sides: &[Vec<Taken>; 5]) {
    let wall = sides.each_ref().map(|side| median(side.iter().map(|taken| taken.wall_s).collect()));
    let cpu = sides.each_ref().map(|side| median(side.iter().map(|taken| taken.cpu_s).collect()));
    let [ours, inside, bare, again, bare_again] = wall;
    let mut ms =
        |name: &str, seconds: f64, meaning: &str| report.add(name, seconds * 1e3, "ms", meaning, ROUNDS);
    ms("all_ms", ours, "1,024 applications, inputs first");
    ms(
        "internal_io_ms",
        inside,
        "the same, given in 64 places, as reservations held while inputs come would",
    );
    ms("bare_fetch_ms", bare, "a client that only fetches, all at once");
    ms("all_cpu_ms", cpu[0], "CPU of node and server");
    ms("bare_fetch_cpu_ms", cpu[2], "CPU of client and server");
    ms("again_ms", again, "1,024 applications, inputs first, on connections of the round before");
    ms("bare_again_ms", bare_again, "a client that only fetches, on connections of the round before");
    ms("again_cpu_ms", cpu[3], "CPU of node and server");
    ms("bare_again_cpu_ms", cpu[4], "CPU of client and server");
    let mut times = |name: &str, ratio: f64, meaning: &str| report.add(name, ratio, "x", meaning, ROUNDS);
    times("times_faster_than_internal_io", inside / ours, "as with the reservation first, 64 at a time");
    times("over_bare_fetch", ours / bare, "a client that only fetches");
    times(
        "again_over_bare_again",
        again / bare_again,
        "a client that only fetches, both on kept connections",
    );
    report.note(
        "the server, the node and the client share the machine's cores; 1,024 transfers at once were set",
    );
}

/// Which inputs, and where.
#[derive(Clone, Copy)]
struct Inputs {
    server: SocketAddr,
    connections: Connections,
    first: u64,
}

/// What something took; the server, which is in this process too, included.
struct Taken {
    wall_s: f64,
    cpu_s: f64,
}

fn taken(does: impl FnOnce() -> anyhow::Result<Duration>) -> anyhow::Result<Taken> {
    let cpu_ns = linux::process_cpu_ns()?;
    let wall_s = does()?.as_secs_f64();
    Ok(Taken { wall_s, cpu_s: (linux::process_cpu_ns()? - cpu_ns) as f64 / 1e9 })
}

fn limits() -> Limits {
    Limits { memory_bytes: GIB, ..Limits::default() }
}

/// The strict encode of an application that doubles one input.
fn application(node: &Node, double: Handle, inputs: Inputs, number: u64) -> anyhow::Result<Handle> {
    let Inputs { server, connections, .. } = inputs;
    let source = Source {
        urls: vec![format!("http://{server}{}", connections.path(number))],
        size: Some(8),
        validator: Validator::Etag(format!("\"{number}\"")),
    };
    let (tree, blobs) = source.to_tree();
    for blob in &blobs {
        node.store().keep_blob(blob);
    }
    let input = node.store().keep_tree(tree.view()).application().and_then(Handle::strict);
    let input = input.context("a source can be fetched")?;
    let limits = limits().handle().context("limits")?;
    let tree: TreeBuilder = [limits, double, input, input].into_iter().collect();
    let thunk = node.store().keep_tree(tree.view()).application();
    thunk.and_then(Handle::strict).context("a tree can be applied")
}

fn applications(node: &Node, double: Handle, inputs: Inputs) -> anyhow::Result<Vec<Handle>> {
    let numbers = inputs.first..inputs.first + APPLICATIONS;
    numbers.map(|number| application(node, double, inputs, number)).collect()
}

fn check(result: Handle, number: u64) -> anyhow::Result<()> {
    let doubled = 2 * server::value(number);
    ensure!(result == Handle::u64(doubled), "input {number} gave {result} and not {doubled}");
    Ok(())
}

/// One request for all of them: what the platform is for.
fn at_once(node: &Node, double: Handle, inputs: Inputs) -> anyhow::Result<Duration> {
    let tree: TreeBuilder = applications(node, double, inputs)?.into_iter().collect();
    let tree = node.store().keep_tree(tree.view());
    let goal = tree.identification().and_then(Handle::strict).context("a tree can be evaluated")?;
    let begun = Instant::now();
    let result = node.evaluate_blocking(goal).context("the node is full")?;
    let time = begun.elapsed();
    let results = node.store().get(result)?.context("the results are not there")?;
    ensure!(!result.is_failure(), "it failed: {result}");
    ensure!(results.as_tree().len() == APPLICATIONS as usize, "some results are missing");
    for (number, result) in (inputs.first..).zip(results.as_tree().iter()) {
        check(result, number)?;
    }
    Ok(time)
}

/// One application after another in each of the places that reservations leave.
#[expect(clippy::disallowed_methods, reason = "each place is a client of its own")]
fn in_places(node: &Node, double: Handle, inputs: Inputs) -> anyhow::Result<Duration> {
    let goals = applications(node, double, inputs)?;
    let next = AtomicUsize::new(0);
    let begun = Instant::now();
    let ended: Vec<anyhow::Result<()>> = std::thread::scope(|scope| {
        let place = || {
            while let at = next.fetch_add(1, Ordering::Relaxed)
                && let Some(goal) = goals.get(at)
            {
                let result = node.evaluate_blocking(*goal).context("the node is full")?;
                check(result, inputs.first + at as u64)?;
            }
            Ok(())
        };
        let places: Vec<_> = (0..PLACES).map(|_| scope.spawn(place)).collect();
        let joined = places.into_iter().map(|place| place.join());
        joined.map(|ended| ended.unwrap_or_else(|_| Err(anyhow::anyhow!("a place ended badly")))).collect()
    });
    let time = begun.elapsed();
    ended.into_iter().collect::<anyhow::Result<()>>()?;
    Ok(time)
}
