// SPDX-License-Identifier: Apache-2.0
//! Functions that call functions: a voice skill of five in Node and a count of
//! words by three in Python (the chains of Molecule's figure 14), and the same
//! handlers behind HTTP servers of their own, and in processes that are
//! connected by sockets and have nothing else between them: no node, no
//! container, no record. Once more each chain is *together*, within one instance,
//! at a node of its own. Below that, what a message and its answer through a
//! socket take alone. And two functions in native code, against a bare ring
//! (`call/native.rs`).
//!
//! The first function of a chain measures: what a round takes, less the time
//! that the functions spend on their own, is what communication takes. Ours and
//! the peers take turns; a figure is the median over turns of the median of a
//! turn's rounds, and ratios are of the same turn.

mod native;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::figures::{Report, median};
use crate::warm::servers::{self, PEERS, Server};

const TURNS: usize = 9;
const ROUNDS: usize = 300;
const WARMING: usize = 100;
/// Messages and answers of a turn.
const MESSAGES: usize = 2000;
/// Bytes of one.
const MESSAGE: [u8; 64] = [7; 64];
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
const WORDS: &str = "please open the front door and then turn the light of the living room to a warm white";

/// One chain: its functions in the order in which they call each other.
struct Chain {
    name: &'static str,
    runtime: &'static str,
    file: &'static str,
    functions: &'static [&'static str],
}

const ALEXA: Chain = Chain {
    name: "alexa",
    runtime: "node",
    file: "alexa.js",
    functions: &["frontend", "interact", "smarthome", "door", "light"],
};
const MAP_REDUCE: Chain = Chain {
    name: "mapreduce",
    runtime: "python",
    file: "mapreduce.py",
    functions: &["splitter", "mapper", "reducer"],
};

/// Where the first function of a chain is asked.
struct Subject {
    address: SocketAddr,
    path: String,
    /// Of each turn, in microseconds a round.
    turns: Vec<f64>,
}

impl Subject {
    fn new(address: SocketAddr, path: String) -> Self {
        Self { address, path, turns: Vec::new() }
    }

    /// Microseconds of communication of a round.
    fn ask(&self, rounds: usize) -> anyhow::Result<f64> {
        let body = json!({ "rounds": rounds, "words": WORDS }).to_string();
        let answer = post(self.address, &self.path, &body)?;
        let spent = answer.as_array().with_context(|| format!("no times but {answer}"))?;
        Ok(median(spent.iter().filter_map(Value::as_f64).collect()) / 1000.0)
    }

    fn turn(&mut self) -> anyhow::Result<()> {
        let us = self.ask(ROUNDS)?;
        self.turns.push(us);
        Ok(())
    }
}

fn post(address: SocketAddr, path: &str, body: &str) -> anyhow::Result<Value> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("half an answer")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(body).with_context(|| answer.clone())
}

/// A node with both chains, of which each may be in one instance.
#[expect(clippy::disallowed_methods, reason = "the node runs as its users run it")]
fn node(root: &Path, are_together: bool) -> anyhow::Result<Server> {
    let mut manifest = String::new();
    for Chain { name, runtime, file, functions } in [ALEXA, MAP_REDUCE] {
        let module = file.split('.').next().unwrap_or_default();
        for function in functions {
            manifest += &format!(
                "[functions.{function}]\nruntime = \"{runtime}\"\nhandler = \"{module}.handler\"\nconcurrency = 2\n"
            );
            if are_together {
                manifest += &format!("together = \"{name}\"\n");
            }
        }
        std::fs::copy(format!("{PEERS}/call/{file}"), root.join(file))?;
    }
    if !are_together {
        manifest += &native::functions(root)?;
    }
    std::fs::write(root.join("sinew.toml"), manifest)?;
    let home = tempfile::tempdir()?.keep();
    let address = servers::free_address()?;
    let mut up = Command::new(servers::sinew()?);
    up.arg("up").arg("--home").arg(&home).args(["--listen", &address.to_string()]);
    let node = Server::start(&mut up, address, &root.join("node.log"))?;
    let deployed =
        Command::new(servers::sinew()?).arg("deploy").arg(root).env("SINEW_HOME", &home).output()?;
    let said = String::from_utf8_lossy(&deployed.stderr).into_owned();
    ensure!(deployed.status.success(), "deploy failed: {said}");
    Ok(node)
}

/// How the functions of a chain reach each other without a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Http,
    Socket,
}

/// A process for each function of a chain, the first one first.
#[expect(clippy::disallowed_methods, reason = "peers")]
fn processes(chain: &Chain, root: &Path, by: By) -> anyhow::Result<Vec<Server>> {
    let addresses = chain.functions.iter().map(|_| servers::free_address());
    let addresses: Vec<SocketAddr> = addresses.collect::<anyhow::Result<_>>()?;
    let of = |name: &str, at: usize| format!("{name}={}", addresses[at].port());
    let ports: Vec<String> = chain.functions.iter().enumerate().map(|(at, name)| of(name, at)).collect();
    let server = |(at, name): (usize, &&str)| {
        let script = match (chain.runtime, by) {
            ("node", By::Http) => Some(("node", "node_http.js")),
            ("node", By::Socket) => Some(("node", "node_socket.js")),
            (_, By::Http) => None,
            (_, By::Socket) => Some(("python3", "python_socket.py")),
        };
        let mut command = if let Some((interpreter, script)) = script {
            let mut command = Command::new(interpreter);
            command.arg(format!("{PEERS}/call/{script}")).arg(root.join(chain.file)).arg(name).args(&ports);
            command
        } else {
            let mut command = servers::uvicorn("fastapi_chain:app", addresses[at], 1)?;
            command.env("PYTHONPATH", format!("{PEERS}/call/http:{}", root.display()));
            command.env("FUNCTION", name).env("PORTS", ports.join(","));
            command
        };
        Server::start(&mut command, addresses[at], &root.join(format!("{name}.log")))
    };
    chain.functions.iter().enumerate().map(server).collect()
}

/// Microseconds that a message and its answer take, the median of many.
fn round_trip(mut once: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let one = |_| {
        let begun = Instant::now();
        once()?;
        Ok(begun.elapsed().as_nanos() as f64 / 1000.0)
    };
    Ok(median((0..MESSAGES).map(one).collect::<anyhow::Result<_>>()?))
}

/// Through a socket, between two threads.
#[expect(clippy::disallowed_methods, reason = "the other side")]
fn by_socket() -> anyhow::Result<f64> {
    let (mut own, mut other) = UnixStream::pair()?;
    let other = std::thread::spawn(move || {
        let mut message = MESSAGE;
        // Until this side has gone.
        while other.read_exact(&mut message).is_ok() && other.write_all(&message).is_ok() {}
    });
    let mut message = MESSAGE;
    let us = round_trip(|| {
        own.write_all(&MESSAGE)?;
        Ok(own.read_exact(&mut message)?)
    });
    drop(own);
    other.join().map_err(|_| anyhow::anyhow!("the other side of a socket panicked"))?;
    us
}

fn bare(report: &mut Report) -> anyhow::Result<()> {
    let turns = (0..TURNS).map(|_| by_socket()).collect::<anyhow::Result<_>>()?;
    report.add("bare_socket_us", median(turns), "µs", "64 bytes and back, unix socket", TURNS);
    Ok(())
}

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let (folder, other_folder) = (tempfile::tempdir()?, tempfile::tempdir()?);
    bare(report)?;
    let (node, other_node) = (node(folder.path(), false)?, node(other_folder.path(), true)?);
    native::measure(report, node.address)?;
    let (mut lowest, mut lowest_together) = (f64::INFINITY, f64::INFINITY);
    for chain in [ALEXA, MAP_REDUCE] {
        let first = chain.functions[0];
        let mut ours = Subject::new(node.address, format!("/function/{first}"));
        let mut together = Subject::new(other_node.address, format!("/function/{first}"));
        let what = if chain.runtime == "node" { "plain Node servers" } else { "FastAPI servers" };
        let peers = match chain.runtime {
            "node" => Some(processes(&chain, folder.path(), By::Http)?),
            _ => report.peer("FastAPI", || processes(&chain, folder.path(), By::Http)),
        };
        let connected = processes(&chain, folder.path(), By::Socket)?;
        let mut socket = Subject::new(connected[0].address, "/".to_owned());
        socket.ask(WARMING)?;
        let mut http = peers.as_ref().map(|peers| Subject::new(peers[0].address, "/".to_owned()));
        ours.ask(WARMING)?;
        together.ask(WARMING)?;
        http.as_ref().map(|http| http.ask(WARMING)).transpose()?;
        for _ in 0..TURNS {
            ours.turn()?;
            together.turn()?;
            socket.turn()?;
            http.as_mut().map_or(Ok(()), Subject::turn)?;
        }
        let hops = chain.functions.len() - 1;
        let name = chain.name;
        let a_hop = |subject: &Subject| median(subject.turns.clone()) / hops as f64;
        report.add(&format!("{name}_hop_us"), a_hop(&ours), "µs", "a call and its answer, ours", TURNS);
        let within = "the same within one instance: `together` in sinew.toml";
        report.add(&format!("{name}_together_hop_us"), a_hop(&together), "µs", within, TURNS);
        let what_else = "the same processes, connected by sockets and nothing else";
        report.add(&format!("{name}_socket_hop_us"), a_hop(&socket), "µs", what_else, TURNS);
        let over = median(ours.turns.iter().zip(&socket.turns).map(|(ours, socket)| ours / socket).collect());
        report.add(&format!("{name}_over_socket"), over, "x", what_else, TURNS);
        let Some(http) = &http else { continue };
        report.add(&format!("{name}_http_hop_us"), a_hop(http), "µs", what, TURNS);
        let times_of = |subject: &Subject| {
            median(subject.turns.iter().zip(&http.turns).map(|(ours, http)| http / ours).collect())
        };
        let (times, times_together) = (times_of(&ours), times_of(&together));
        report.add(&format!("{name}_times_below_http"), times, "x", what, TURNS);
        report.add(&format!("{name}_together_times_below_http"), times_together, "x", what, TURNS);
        (lowest, lowest_together) = (lowest.min(times), lowest_together.min(times_together));
    }
    if lowest.is_finite() {
        report.add("times_below_http", lowest, "x", "the lower one of both chains", TURNS);
        let what = "the same of the chains that are together";
        report.add("together_times_below_http", lowest_together, "x", what, TURNS);
    }
    report.note(format!(
        "what {ROUNDS} rounds of a chain take, less the handlers' own time, by call; 5 functions in Node, 3 in Python"
    ));
    Ok(())
}
