// SPDX-License-Identifier: Apache-2.0
//! A call between two functions in native code, which echo, against what two
//! threads need that hand each other a message through a ring in shared memory
//! and back, and sleep by a futex in between. The functions are compiled with what
//! `sinew sdk c` writes; the same as servers of HTTP, behind their adapters, are
//! measured besides.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::{MESSAGE, Subject, TURNS, post, round_trip};
use crate::figures::{Report, median};
use crate::warm::servers::PEERS;

/// A program, the function of it that measures, and the one that this calls.
struct Pair {
    program: &'static str,
    mode: &'static str,
    asker: &'static str,
    echo: &'static str,
}

const NATIVE: Pair =
    Pair { program: "native_echo", mode: "native", asker: "native-asker", echo: "native-echo" };
const BY_HTTP: Pair = Pair { program: "echo", mode: "http", asker: "asker", echo: "echo" };
/// Of what native functions are compiled with.
const LIBRARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../guests/native");
const ROUNDS: usize = 300;
const RING_BYTES: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(10);

/// Builds the programs of all functions, and says what they are.
pub(super) fn functions(root: &Path) -> anyhow::Result<String> {
    build(root, &BY_HTTP, &[])?;
    build(root, &NATIVE, &["-I", LIBRARY, &format!("{LIBRARY}/sinew.c"), "-pthread"])?;
    let one = |pair: &Pair, name: &str| {
        let Pair { program, mode, .. } = pair;
        format!("[functions.{name}]\nruntime = \"executable\"\nmode = \"{mode}\"\nhandler = \"{program}\"\n")
    };
    let both = |pair: &Pair| one(pair, pair.asker) + &one(pair, pair.echo);
    Ok(both(&NATIVE) + &both(&BY_HTTP))
}

#[expect(clippy::disallowed_methods, reason = "a C compiler")]
fn build(root: &Path, pair: &Pair, more: &[&str]) -> anyhow::Result<()> {
    let source = format!("{PEERS}/call/{}.c", pair.program);
    let program = root.join(pair.program);
    let built =
        Command::new("cc").args(["-static", "-O2", "-o"]).arg(&program).arg(&source).args(more).status()?;
    ensure!(built.success(), "cc cannot build the static program; apt-get install gcc libc6-dev");
    Ok(())
}

/// Microseconds that a call and its answer take, of one turn.
fn hop(node: &Subject) -> anyhow::Result<f64> {
    let answer = post(node.address, &node.path, &format!("rounds {ROUNDS}"))?;
    let spent = answer.as_array().with_context(|| format!("no times but {answer}"))?;
    Ok(median(spent.iter().filter_map(serde_json::Value::as_f64).collect()) / 1000.0)
}

/// Microseconds that a message and its answer take through two rings, between two threads.
#[expect(clippy::disallowed_methods, reason = "the other side")]
fn by_ring() -> anyhow::Result<f64> {
    let (mut asks, asked) = xpu::fifo::create(RING_BYTES)?;
    let (mut answers, answered) = xpu::fifo::create_reader(RING_BYTES)?;
    let deadline = Instant::now() + PATIENCE;
    let other = std::thread::spawn(move || -> Result<(), xpu::fifo::Error> {
        let (mut asks, mut answers) = (xpu::fifo::Reader::open(asked)?, xpu::fifo::Writer::open(answered)?);
        let mut message = Vec::new();
        // Until this side has gone.
        while asks.receive(&mut message, deadline).is_ok() {
            answers.send(&message, deadline)?;
        }
        Ok(())
    });
    let mut message = Vec::new();
    let us = round_trip(|| {
        asks.send(&MESSAGE, deadline)?;
        Ok(answers.receive(&mut message, deadline)?)
    });
    drop(asks);
    other.join().map_err(|_| anyhow::anyhow!("the other side of a ring panicked"))??;
    us
}

/// The node has the functions already.
pub(super) fn measure(report: &mut Report, node: std::net::SocketAddr) -> anyhow::Result<()> {
    let asker = |pair: &Pair| Subject::new(node, format!("/function/{}", pair.asker));
    let (native, by_http) = (asker(&NATIVE), asker(&BY_HTTP));
    hop(&native)?;
    hop(&by_http)?;
    let (mut hops, mut rings, mut http) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        hops.push(hop(&native)?);
        rings.push(by_ring()?);
        http.push(hop(&by_http)?);
    }
    let over = median(hops.iter().zip(&rings).map(|(hop, ring)| hop / ring).collect());
    let what = "two native functions that echo 64 bytes";
    report.add("native_hop_us", median(hops), "µs", what, TURNS);
    report.add("bare_ring_us", median(rings), "µs", "64 bytes and back, ring and futex", TURNS);
    report.add("native_hop_over_bare_ring", over, "x", "the same turn's ring and futex", TURNS);
    let what = "two servers of HTTP that echo 64 bytes, each behind its adapter";
    report.add("executable_hop_us", median(http), "µs", what, TURNS);
    Ok(())
}
