// SPDX-License-Identifier: Apache-2.0
//! The listeners: a unix socket in the home for the CLI, and TCP.

use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::backend::NodeBackend;
use crate::config::{EVENT_LOOPS_MAX, Options};
use crate::listener::{self, Plain, Secured, Terms};
use crate::loops::{Loops, Threads};
use crate::running::Node;
use crate::secured::Security;
use crate::traces::Traces;
use crate::{Error, SOCKET_NAME};

/// How long requests under way may take once the node is told to stop, unless it is said.
const DRAIN_S: u64 = 25;
/// Where logs of requests are, in the home, and how many bytes of them, unless told otherwise.
const LOGS_NAME: &str = "logs";
const LOGS_BYTES: u64 = 256 << 20;
/// Who is told to stop twice within this was told once: some tell what they have started, and so does the terminal.
const ONCE: Duration = Duration::from_millis(300);

/// What a node that is ready tells its starter.
#[derive(Debug, Clone)]
pub struct Running {
    /// Where TCP is served, with the port that was chosen.
    pub address: Option<SocketAddr>,
    /// Whether TLS is spoken there.
    pub is_tls: bool,
    /// The certificate that the node has made for itself: clients trust it
    /// when they are given this file.
    pub own_certificate: Option<PathBuf>,
    /// The CLI's socket.
    pub socket: Option<PathBuf>,
    /// The home, if there is one.
    pub home: Option<PathBuf>,
    /// Worker threads.
    pub workers: usize,
    /// Names of the layers that containers of functions have to do without on
    /// this machine, as `sinew doctor` tells them.
    pub missing: Vec<&'static str>,
}

impl Running {
    /// A node that does not listen yet.
    fn nowhere(options: &Options, workers: usize) -> Self {
        Self {
            address: None,
            is_tls: false,
            own_certificate: None,
            socket: None,
            home: options.home.clone(),
            workers,
            missing: missing_layers(),
        }
    }
}

/// Runs a node until SIGTERM or SIGINT, then lets requests under way finish.
///
/// # Errors
/// If it cannot start; once it serves, it ends without error.
pub fn run(options: &Options, on_ready: impl FnOnce(&Running)) -> Result<(), Error> {
    run_until(options, std::future::pending(), on_ready)
}

/// Like [`run`], within a program that does other things too: it also ends
/// when `stop` does.
///
/// # Errors
/// As [`run`].
pub fn run_until(
    options: &Options,
    stop: impl Future<Output = ()>,
    on_ready: impl FnOnce(&Running),
) -> Result<(), Error> {
    linux::keep_freed_memory();
    linux::take_small_pages();
    let count = options.event_loops.unwrap_or_else(event_loops).clamp(1, EVENT_LOOPS_MAX);
    let start = |source| Error::Start { what: "the event loops", source };
    let (threads, loops) = Threads::start(count).map_err(start)?;
    let security = Security::of(options)?;
    let node = {
        // What begins tasks as it starts has somewhere to begin them.
        let _entered = threads.enter();
        Node::start_in(options, Some(Arc::clone(&loops)))?
    };
    let ready = |running: &Running| {
        node.deployments.provide(None);
        on_ready(running);
    };
    let served = threads.run(async {
        let served = serve(options, security, &node, loops, stop, ready).await;
        // These loops hear instances: without them nobody would learn that one has ended.
        let ending = Arc::clone(&node);
        if tokio::task::spawn_blocking(move || ending.end_calls()).await.is_err() {
            tracing::error!("what was under way was not ended in order");
        }
        served
    });
    threads.end(Duration::from_secs(1));
    node.shut_down();
    served
}

/// What the gateway grants its clients.
fn gateway_options(options: &Options) -> gateway::Options {
    gateway::Options {
        body_max_bytes: options.body_max_bytes.unwrap_or(gateway::Options::default().body_max_bytes),
        version: options.version.clone(),
        commit: options.commit.clone(),
        rates: options.rates.clone(),
        traces: options.traces.as_ref().map(Traces::options),
        archive: archive(options),
        trusted_proxies: options.trusted_proxies().unwrap_or_default(),
        ..gateway::Options::default()
    }
}

/// Where logs of requests are kept when the node ends.
fn archive(options: &Options) -> Option<gateway::ArchiveOptions> {
    let directory = options.home.as_ref()?.join(LOGS_NAME);
    let bytes_max = options.logs_bytes.unwrap_or(LOGS_BYTES);
    (bytes_max > 0).then_some(gateway::ArchiveOptions { directory, bytes_max })
}

/// Event loops of a node on this machine. Half of the processors are for what functions do.
fn event_loops() -> usize {
    // One alone can wait awake for chains of calls (`reactor`), and nothing is far from it.
    const LEAST_OF_SEVERAL: usize = 4;
    const MOST: usize = 16;
    match linux::available_cpus().map_or(1, |cpus| cpus.len()) / 2 {
        half if half < LEAST_OF_SEVERAL => 1,
        half => half.min(MOST),
    }
}

async fn serve(
    options: &Options,
    security: Option<Security>,
    node: &Arc<Node>,
    loops: Arc<Loops>,
    told: impl Future<Output = ()>,
    on_ready: impl FnOnce(&Running),
) -> Result<(), Error> {
    let (stop, stopping) = watch::channel(false);
    let gateway = gateway::Gateway::new(Arc::new(NodeBackend(Arc::clone(node))), gateway_options(options));
    node.processes.connect(gateway.nested_calls());
    let terms = Terms {
        connections_max: node.budgets().connections_max,
        patience: options.patience,
        connections: gateway.connections(),
        loops,
    };
    let mut servers = JoinSet::new();
    let mut running = Running {
        is_tls: security.is_some(),
        own_certificate: security.as_ref().and_then(Security::own_certificate),
        ..Running::nowhere(options, node.budgets().workers)
    };
    if let Some(home) = &options.home {
        let path = home.join(SOCKET_NAME);
        let listener = bind_socket(&path)?;
        let terms = Terms { patience: terms.patience.with_owner(), ..terms.clone() };
        let front = gateway.router(gateway::Door::Private, gateway::Access::Owner);
        let greeting = Plain(TowerToHyperService::new(front));
        servers.spawn(listener::serve(listener, greeting, terms, stopping.clone()));
        running.socket = Some(path);
    }
    if let Some(address) = options.listen {
        let served = serve_tcp(address, security, &gateway, terms, &stopping, &mut servers).await?;
        running.address = Some(served);
        gateway.answers_at(url_of(served, running.is_tls));
    }
    servers.spawn(gateway.make_calls(listener::until(stopping.clone())));
    servers.spawn(gateway.send_traces(listener::until(stopping)));
    // Before anybody is told that it is ready: a signal from then on lets it end in order.
    let mut signals = Signals::new()?;
    on_ready(&running);
    tokio::select! {
        () = signals.next() => {}
        () = told => {}
    }
    let patience = Duration::from_secs(options.drain_s.unwrap_or(DRAIN_S));
    tracing::info!("stopping; requests under way have {} s, or until it is told again", patience.as_secs());
    // The receivers live as long as the servers.
    let _ = stop.send(true);
    tokio::select! {
        () = drained(servers, &gateway) => {}
        () = signals.again(patience) => {
            tracing::warn!("requests were still under way and are cut off");
        }
    }
    if let Some(path) = &running.socket {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// What tells the node to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, Error> {
        let start = |source| Error::Start { what: "signal handling", source };
        let terminate = signal(SignalKind::terminate()).map_err(start)?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt()).map_err(start)? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits for so long, or until somebody tells it again.
    async fn again(&mut self, patience: Duration) {
        let begun = Instant::now();
        let again = async {
            while begun.elapsed() < ONCE {
                self.next().await;
            }
        };
        _ = tokio::time::timeout(patience, again).await;
    }
}

/// Waits for what is under way, and for what goes on after its answer.
async fn drained(mut servers: JoinSet<()>, gateway: &gateway::Gateway) {
    while servers.join_next().await.is_some() {}
    gateway.settled().await;
}

/// How somebody on this machine writes where the node answers.
fn url_of(address: SocketAddr, is_tls: bool) -> String {
    let scheme = if is_tls { "https" } else { "http" };
    let port = address.port();
    match address {
        _ if address.ip().is_unspecified() => format!("{scheme}://localhost:{port}"),
        _ => format!("{scheme}://{address}"),
    }
}

/// Serves TCP, with TLS or without; the address, with the port that was chosen.
async fn serve_tcp(
    address: SocketAddr,
    security: Option<Security>,
    gateway: &gateway::Gateway,
    terms: Terms,
    stopping: &watch::Receiver<bool>,
    servers: &mut JoinSet<()>,
) -> Result<SocketAddr, Error> {
    let refused = |source| Error::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let served = listener.local_addr().map_err(refused)?;
    // Whoever has a key is no page that a browser was led to.
    let (door, access) = match address.ip().is_loopback() {
        true => (gateway::Door::loopback(), gateway::Access::Local),
        false => (gateway::Door::Private, gateway::Access::Keyed),
    };
    let front = TowerToHyperService::new(gateway.router(door, access));
    let Some(security) = security else {
        servers.spawn(listener::serve(listener, Plain(front), terms, stopping.clone()));
        return Ok(served);
    };
    let plain = gateway.router(gateway::Door::NeedsTls, gateway::Access::Keyed);
    let plain = TowerToHyperService::new(plain);
    let greeting = Secured::new(security.server()?, front, plain, terms.connections_max);
    servers.spawn(listener::serve(listener, greeting, terms, stopping.clone()));
    servers.spawn(security.keep_fresh(listener::until(stopping.clone())));
    Ok(served)
}

/// A socket that only its owner can open, at no moment anybody else: it is
/// made in a new directory of the owner's, and moved when its mode is right.
/// One that a dead node left is replaced: the store's lock has shown that no
/// other node uses this home.
fn bind_socket(path: &Path) -> Result<UnixListener, Error> {
    let bind = || {
        // Both names are shorter than the socket's own: a path that is short
        // enough for a socket stays so.
        let directory = path.with_file_name(".new");
        let first = directory.join("s");
        absent(std::fs::remove_file(&first))?;
        absent(std::fs::remove_dir(&directory))?;
        std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
        let listener = UnixListener::bind(&first)?;
        std::fs::set_permissions(&first, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&first, path)?;
        std::fs::remove_dir(&directory)?;
        Ok(listener)
    };
    bind().map_err(|source| Error::Socket { path: path.to_owned(), source })
}

/// What a node that was killed may have left, or not.
fn absent(removed: std::io::Result<()>) -> std::io::Result<()> {
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What functions' containers lack here; nothing if that cannot be found out.
fn missing_layers() -> Vec<&'static str> {
    let layers = sandbox::process::Abilities::look().map(|abilities| abilities.layers()).unwrap_or_default();
    layers.into_iter().filter(|layer| !layer.holds).map(|layer| layer.name).collect()
}

#[cfg(test)]
mod tests;
