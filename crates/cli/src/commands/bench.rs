// SPDX-License-Identifier: Apache-2.0
//! `sinew bench`: what a call costs on this node, through its API.
//!
//! One bundle brings N distinct additions, cold: fresh inputs, each its own
//! application and its own sandbox. The same request again is answered from
//! memory. The times are the node's own, from a request's arrival to its
//! end; the round trip is measured here. Small on purpose: the project's
//! figures come from `cargo xtask bench`. With the name of a function it loads
//! that one instead.

mod function;
mod load;

use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use objects::{Handle, TreeBuilder};
use serde_json::{Value, json};

use crate::expression::Objects;
use crate::function_request::FunctionRequest;
use crate::node_api::{Node, Wishes, collect};
use crate::output::Output;
use crate::quantity::{grouped, human_time};

/// Adds its first two arguments and ignores the others; its source is in the tests.
const ADD_WASM: &[u8] = include_bytes!("bench/add.wasm");

/// How much to measure.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sinew bench\n  sinew bench hello -d '{\"name\": \"Ada\"}'\n  \
    sinew bench hello -c 20 -z 30s --rate 500 -d '{\"name\": \"Ada\"}'\n  \
    sinew bench site -X GET -p '/users/7?full=1' -o json\n\n\
    A function's answers are counted by status and by how their instance came to be (warm, forked, cold …).\n\
    Ends with exit code 3 if a request failed.")]
pub(crate) struct Arguments {
    /// The function to load; without one: what a call costs on this node
    name: Option<String>,
    #[command(flatten)]
    load: function::LoadArguments,
    #[command(flatten)]
    request: FunctionRequest,
    /// Distinct calls in one request
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4096, conflicts_with = "name", value_parser = clap::value_parser!(u64).range(2..=100_000))]
    calls: u64,
    /// Requests of each kind; the median is printed
    #[arg(long, value_name = "N", default_value_t = 5, conflicts_with = "name", value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
}

/// The medians.
struct Figures {
    cold: Duration,
    remembered: Duration,
    round_trip: Duration,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    if let Some(name) = &arguments.name {
        return function::run(name, &arguments.load, &arguments.request, node, output).await;
    }
    // The procedure is compiled before anything is measured.
    ask(&additions(2, fresh()), node).await?;
    let (mut cold, mut remembered, mut round_trip) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..arguments.rounds {
        let bundle = additions(arguments.calls, fresh());
        let (answer, _) = ask(&bundle, node).await?;
        check(&answer, arguments.calls)?;
        cold.push(wall(&answer));
        let (answer, _) = ask(&bundle, node).await?;
        remembered.push(wall(&answer));
        let value = Objects::default().with_goal(Handle::u64(fresh()));
        round_trip.push(ask(&value, node).await?.1);
    }
    let figures =
        Figures { cold: median(cold), remembered: median(remembered), round_trip: median(round_trip) };
    report(arguments.calls, &figures, output)
}

/// A number that no request has used: the answers must not be remembered.
fn fresh() -> u64 {
    RandomState::new().hash_one(())
}

/// A bundle whose goal needs `calls` additions that differ in their inputs.
fn additions(calls: u64, base: u64) -> Vec<u8> {
    let mut objects = Objects::default();
    let add = objects.blob(ADD_WASM);
    // The empty literal stands for the default limits.
    let limits = Handle::blob(b"");
    let mut last = TreeBuilder::with_capacity(2 + calls as usize);
    last.push(limits).push(add);
    for number in 0..calls {
        let arguments = [limits, add, Handle::u64(base.wrapping_add(number)), Handle::u64(number)];
        let tree: TreeBuilder = arguments.into_iter().collect();
        let call = objects.tree(tree.view()).application().and_then(Handle::strict);
        // A tree's application can always be asked for.
        if let Some(call) = call {
            last.push(call);
        }
    }
    let goal = objects.tree(last.view()).application().unwrap_or(limits);
    objects.with_goal(goal)
}

async fn ask(bundle: &[u8], node: &mut Node) -> anyhow::Result<(Value, Duration)> {
    let began = Instant::now();
    let body = node.evaluate(bundle.to_vec(), &Wishes::default(), "application/json").await?;
    let answer = collect(body).await?;
    let took = began.elapsed();
    Ok((serde_json::from_slice(&answer).context("the node's answer is not JSON")?, took))
}

/// A cold request must have run every call.
fn check(answer: &Value, calls: u64) -> anyhow::Result<()> {
    let applied = answer["applied"].as_u64().unwrap_or(0);
    anyhow::ensure!(applied > calls, "the node ran {applied} of {} calls: these were not cold", calls + 1);
    Ok(())
}

fn wall(answer: &Value) -> Duration {
    Duration::from_nanos(answer["wall_ns"].as_u64().unwrap_or(0))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn report(calls: u64, figures: &Figures, output: &Output) -> anyhow::Result<()> {
    // The call that takes all the others' results is a call too.
    let calls = calls + 1;
    let each = figures.cold / u32::try_from(calls).unwrap_or(u32::MAX);
    if output.is_json() {
        let rows = [
            ("cold_call", each, calls),
            ("cold_request", figures.cold, 1),
            ("remembered_request", figures.remembered, 1),
            ("round_trip", figures.round_trip, 1),
        ];
        for (figure, time, n) in rows {
            let value = time.as_nanos() as u64;
            output
                .json(&json!({"bench": "local", "figure": figure, "value": value, "unit": "ns", "n": n}))?;
        }
        return Ok(());
    }
    let row = |what: String, time: Duration| vec![what, human_time(time)];
    let rows = [
        row(format!("{} distinct calls, cold, in one request", grouped(calls)), figures.cold),
        row("one of them".to_owned(), each),
        row("the same request, remembered".to_owned(), figures.remembered),
        row("a request that computes nothing, with the round trip".to_owned(), figures.round_trip),
    ];
    output.table(&["WHAT", "TIME"], &[1], &rows)
}

#[cfg(test)]
mod tests;
