// SPDX-License-Identifier: Apache-2.0
//! Calls of warm functions over HTTP: the same handlers behind a node, behind
//! FastAPI, and in plain Node and Go; beside them a server that does nothing,
//! and nginx in front of plain Node.
//!
//! All servers may use all processors, and so does the load generator: what a
//! server leaves free is what it can be asked for more. They alternate in
//! rounds, and each figure is the median over rounds; ratios are of the same
//! round. Throughput is of 50 connections that are never idle; latencies are
//! at half of what the slowest plain Node round could do (of FastAPI for
//! Python, of plain Go for Go), in an open loop.

mod doors;
pub(crate) mod load;
pub(crate) mod servers;

use std::time::Duration;

use crate::figures::{Report, median};
use load::{Exchange, Pace, Seen};
use servers::{ANSWER, EVENT, Functions, Handler, Server};

/// Connections, if nothing else is asked for.
const CONNECTIONS: u64 = 50;
/// The server that does nothing. It has one thread: what it takes of a processor says something, and how much it does nothing.
const BARE: &str = "bare_http";
/// Rounds, if nothing else is asked for.
const ROUNDS: u64 = 5;
/// What else it can be asked for.
pub(crate) const OPTIONS: &[&str] = &["rounds", "connections"];
/// Node serves many requests at once, here as in a server of its own.
const CALLS_AT_ONCE: usize = 64;
const WARMING: Duration = Duration::from_secs(2);
const SATURATED: Duration = Duration::from_secs(3);
const OPEN: Duration = Duration::from_secs(4);
/// The part of its peer's throughput at which latencies are measured.
const LOAD_SHARE: f64 = 0.5;

/// One server and what it did, round by round.
struct Subject<'a> {
    name: &'static str,
    server: &'a Server,
    exchange: Exchange,
    connections: usize,
    saturated: Vec<Seen>,
    /// Of the server (of a node: without its instances), by request.
    cpu_us: Vec<f64>,
    open: Vec<Seen>,
}

impl<'a> Subject<'a> {
    fn new(name: &'static str, server: &'a Server, path: &str, connections: usize) -> Self {
        let exchange = Exchange::post(path, EVENT, ANSWER);
        Self {
            name,
            server,
            exchange,
            connections,
            saturated: Vec::new(),
            cpu_us: Vec::new(),
            open: Vec::new(),
        }
    }

    fn load(&self, pace: Pace, duration: Duration) -> anyhow::Result<Seen> {
        load::run(self.server.address, &self.exchange, self.connections, pace, duration)
    }

    fn saturate(&mut self) -> anyhow::Result<()> {
        let before = self.server.family_cpu_s()?;
        let seen = self.load(Pace::Saturated, SATURATED)?;
        self.cpu_us.push((self.server.family_cpu_s()? - before) * 1e6 / seen.count() as f64);
        self.saturated.push(seen);
        Ok(())
    }

    fn at(&mut self, rate: f64) -> anyhow::Result<()> {
        let seen = self.load(Pace::Open(rate), OPEN)?;
        self.open.push(seen);
        Ok(())
    }

    fn per_second(&self, round: usize) -> f64 {
        self.saturated[round].per_second
    }

    /// The rate at which its latencies are measured, and those of its peer.
    fn rate_beside(&self, peer: Option<&Self>) -> f64 {
        let of = peer.unwrap_or(self);
        LOAD_SHARE * of.saturated.iter().map(|seen| seen.per_second).fold(f64::INFINITY, f64::min)
    }

    fn report(&self, report: &mut Report) {
        let (name, rounds) = (self.name, self.saturated.len());
        let each = |of: &dyn Fn(&Seen) -> f64, seen: &[Seen]| median(seen.iter().map(of).collect());
        let per_second = each(&|seen| seen.per_second, &self.saturated);
        report.add(&format!("{name}_per_s"), per_second, "/s", "saturated", rounds);
        let cpu = median(self.cpu_us.clone());
        report.add(&format!("{name}_cpu_us"), cpu, "µs", "of the server, a request, saturated", rounds);
        // At a given rate not everybody was asked.
        for (part, word) in [(0.5, "p50"), (0.99, "p99")].into_iter().filter(|_| !self.open.is_empty()) {
            let value = each(&|seen| seen.percentile_us(part), &self.open);
            report.add(&format!("{name}_{word}_us"), value, "µs", "open loop", rounds);
        }
    }
}

/// The median over rounds of a ratio within each.
fn ratio(rounds: usize, of: impl Fn(usize) -> f64) -> f64 {
    median((0..rounds).map(of).collect())
}

/// The functions: of Python an instance for each processor with one request each, of Node the same with many, and of Go
/// one instance, which has threads for all processors.
fn handlers(processors: usize) -> anyhow::Result<Vec<Handler>> {
    let concurrency = format!("concurrency = {processors}\n");
    let at_once = format!("{concurrency}requests-per-instance = {CALLS_AT_ONCE}\n");
    let mut all =
        vec![Handler::python(servers::PYTHON, &concurrency), Handler::node(servers::NODE, &at_once)];
    if let Some(source) = servers::go_program()? {
        let settings =
            format!("concurrency = 1\ncpu = {processors}\nrequests-per-instance = {CALLS_AT_ONCE}\n");
        all.push(Handler { runtime: "executable", file: "main", source, settings });
    }
    Ok(all)
}

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let rounds = report.options.number("rounds", ROUNDS)?.max(1) as usize;
    let connections = report.options.number("connections", CONNECTIONS)?.clamp(1, 10_000) as usize;
    let processors = linux::available_cpus().map_or(1, |cpus| cpus.len());
    let functions = Functions::start(&handlers(processors)?)?;
    let folder = functions.folder();
    let node_http = servers::node_http(folder, processors)?;
    let fastapi = report.peer("FastAPI", || servers::fastapi(folder, processors));
    let go_http = folder.join("executable").exists().then(|| servers::go_http(folder)).transpose()?;
    let bare = report.spare_peer("a bare server", || doors::bare_http(folder));
    let nginx = report.spare_peer("nginx", || doors::nginx(folder, node_http.address, processors));
    let node = &functions.node;
    let mut ours_node = Subject::new("node_function", node, "/function/hello-node", connections);
    let mut plain_node = Subject::new("node_http", &node_http, "/", connections);
    let mut ours_python = Subject::new("python_function", node, "/function/hello-python", connections);
    let mut plain_python = fastapi.as_ref().map(|server| Subject::new("fastapi", server, "/", connections));
    let mut go = go_http.as_ref().map(|server| {
        let ours = Subject::new("go_function", node, "/function/hello-executable", connections);
        (ours, Subject::new("go_http", server, "/", connections))
    });
    let mut doors: Vec<Subject<'_>> = [(BARE, &bare), ("nginx_node_http", &nginx)]
        .into_iter()
        .filter_map(|(name, server)| Some(Subject::new(name, server.as_ref()?, "/", connections)))
        .collect();

    let mut all = vec![&mut ours_node, &mut plain_node, &mut ours_python];
    all.extend(&mut doors);
    all.extend(&mut plain_python);
    if let Some((ours, plain)) = &mut go {
        all.extend([ours, plain]);
    }
    for subject in &mut all {
        servers::await_answer(subject.server, |_| subject.load(Pace::Open(100.0), WARMING / 4).map(drop))?;
        subject.load(Pace::Saturated, WARMING)?;
    }
    for _ in 0..rounds {
        all.iter_mut().try_for_each(|subject| subject.saturate())?;
    }
    let rate_node = ours_node.rate_beside(Some(&plain_node));
    let rate_python = ours_python.rate_beside(plain_python.as_ref());
    for _ in 0..rounds {
        [&mut ours_node, &mut plain_node].into_iter().try_for_each(|subject| subject.at(rate_node))?;
        ours_python.at(rate_python)?;
        plain_python.iter_mut().try_for_each(|subject| subject.at(rate_python))?;
        if let Some((ours, plain)) = &mut go {
            let rate = ours.rate_beside(Some(plain));
            [ours, plain].into_iter().try_for_each(|subject| subject.at(rate))?;
        }
    }
    report_node(report, &ours_node, &plain_node);
    report_doors(report, &ours_node, &plain_node, &doors);
    report_python(report, &ours_python, plain_python.as_ref());
    if let Some((ours, plain)) = &go {
        report_go(report, ours, plain);
    }
    report.note(format!(
        "{connections} keep-alive connections; open loops at {rate_node:.0} requests a second (Node) and \
         {rate_python:.0} (Python); load generator and servers share {processors} processors"
    ));
    Ok(())
}

/// The latencies of one beside another's, in the same rounds.
fn p99_over(ours: &Subject<'_>, plain: &Subject<'_>) -> f64 {
    let p99 = |subject: &Subject<'_>, round: usize| subject.open[round].percentile_us(0.99);
    ratio(ours.open.len(), |round| p99(ours, round) / p99(plain, round))
}

fn report_node(report: &mut Report, ours: &Subject<'_>, plain: &Subject<'_>) {
    [ours, plain].into_iter().for_each(|subject| subject.report(report));
    let rounds = ours.saturated.len();
    let over = ratio(rounds, |round| ours.per_second(round) / plain.per_second(round));
    report.add("throughput_over_node_http", over, "x", "the function / plain Node, clustered", rounds);
    let p99 = p99_over(ours, plain);
    report.add("p99_over_best_plain", p99, "x", "the function / plain Node, the same rate", rounds);
    let cpu = ratio(rounds, |round| ours.cpu_us[round] / plain.cpu_us[round]);
    report.add("gateway_cpu_over_node_hello", cpu, "x", "the node's process / all of plain Node", rounds);
}

/// How far the gateway is from what nobody can be below, and from what people have without it. Whose figure is named
/// `…_node_http` has plain Node behind it, and the processor time told is its own.
fn report_doors(report: &mut Report, ours: &Subject<'_>, plain: &Subject<'_>, doors: &[Subject<'_>]) {
    let rounds = ours.saturated.len();
    for door in doors {
        door.report(report);
        let cpu = ratio(rounds, |round| door.cpu_us[round] / plain.cpu_us[round]);
        report.add(
            &format!("{}_cpu_over_node_hello", door.name),
            cpu,
            "x",
            "its own / all of plain Node",
            rounds,
        );
        if door.name != BARE {
            let over = ratio(rounds, |round| ours.per_second(round) / door.per_second(round));
            report.add(&format!("throughput_over_{}", door.name), over, "x", "the function / that", rounds);
        }
    }
}

fn report_python(report: &mut Report, ours: &Subject<'_>, plain: Option<&Subject<'_>>) {
    ours.report(report);
    let Some(plain) = plain else { return };
    plain.report(report);
    let rounds = ours.saturated.len();
    let over = ratio(rounds, |round| ours.per_second(round) / plain.per_second(round));
    report.add("throughput_over_fastapi", over, "x", "the function / FastAPI on uvicorn", rounds);
    report.add("python_p99_over_fastapi", p99_over(ours, plain), "x", "at the same rate", rounds);
}

fn report_go(report: &mut Report, ours: &Subject<'_>, plain: &Subject<'_>) {
    [ours, plain].into_iter().for_each(|subject| subject.report(report));
    let rounds = ours.saturated.len();
    let over = ratio(rounds, |round| ours.per_second(round) / plain.per_second(round));
    report.add("throughput_over_go_http", over, "x", "the function / the same program alone", rounds);
    report.add("go_p99_over_go_http", p99_over(ours, plain), "x", "at half of the rate of that", rounds);
}
