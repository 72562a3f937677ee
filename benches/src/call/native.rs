// SPDX-License-Identifier: Apache-2.0
//! A call between two functions in native code, which echo, against what two
//! threads need that hand each other a message through a ring in shared memory
//! and back, and sleep by a futex in between.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::{MESSAGE, Subject, TURNS, post, round_trip};
use crate::figures::{Report, median};
use crate::warm::servers::PEERS;

/// The function that measures, and the one that it calls.
const ASKER: &str = "asker";
const ECHO: &str = "echo";
const ROUNDS: usize = 300;
const RING_BYTES: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(10);

/// Builds the program of both functions, and says what they are.
#[expect(clippy::disallowed_methods, reason = "a C compiler")]
pub(super) fn functions(root: &Path) -> anyhow::Result<String> {
    let (source, program) = (format!("{PEERS}/call/echo.c"), root.join(ECHO));
    let built = Command::new("cc").args(["-static", "-O2", "-o"]).arg(&program).arg(&source).status()?;
    ensure!(built.success(), "cc cannot build the static program; apt-get install gcc libc6-dev");
    let one = |name| format!("[functions.{name}]\nruntime = \"executable\"\nhandler = \"{ECHO}\"\n");
    Ok(one(ASKER) + &one(ECHO))
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
    let ours = Subject::new(node, format!("/function/{ASKER}"));
    hop(&ours)?;
    let (mut hops, mut rings) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        hops.push(hop(&ours)?);
        rings.push(by_ring()?);
    }
    let over = median(hops.iter().zip(&rings).map(|(hop, ring)| hop / ring).collect());
    let what = "two executables that echo 64 bytes, each by its adapter";
    report.add("native_hop_us", median(hops), "µs", what, TURNS);
    report.add("bare_ring_us", median(rings), "µs", "64 bytes and back, ring and futex", TURNS);
    report.add("native_hop_over_bare_ring", over, "x", "the same turn's ring and futex", TURNS);
    Ok(())
}
