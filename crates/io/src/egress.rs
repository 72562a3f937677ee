// SPDX-License-Identifier: Apache-2.0
//! A proxy for each instance of a function that may reach hosts.
//!
//! The container has no network but its loopback. There the node holds a
//! listener, made before anybody's code ran in it, and takes connections from
//! it; the connections to the outside are the node's own, in its own network.
//!
//! ```text
//!  function ── 127.0.0.1, in its container ── node ── host in the list
//!  CONNECT host:port              read, looked up in the list,
//!  GET http://host/               resolved, addresses checked, connected
//! ```
//!
//! A name is resolved once for a connection, and what is connected to is the
//! address that was checked: a name that changes what it stands for gains
//! nothing. A private address has to be in the list itself.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::address::is_public;
use crate::allow::{AllowList, Host, Target};
use crate::head::{self, Ask, HEAD_BYTES_MAX};
use crate::net::{Internet, Lookups, Net, Whose};
use crate::relay::{Limits, relay};

/// Lines for a function's log that nobody has taken, at most.
const NOTES_MAX: usize = 32;
/// Names that are looked up at once; each holds a thread.
const LOOKUPS_MAX: usize = 16;
/// After a connection could not be taken, the next is taken so much later.
const PAUSE: Duration = Duration::from_millis(50);

/// Limits of what functions do outside.
#[derive(Debug, Clone, Copy)]
pub struct EgressOptions {
    /// Connections of one instance at once; more wait to be taken.
    pub connections_max: usize,
    /// Of all instances together.
    pub connections_total_max: usize,
    /// Within which a function has to say what it wants.
    pub head_timeout: Duration,
    /// For looking up a name.
    pub resolve_timeout: Duration,
    /// For connecting to one of its addresses.
    pub connect_timeout: Duration,
    /// A connection without a byte for so long is ended.
    pub idle_timeout: Duration,
    /// Bytes of one connection, both ways together.
    pub bytes_max: u64,
}

impl Default for EgressOptions {
    fn default() -> Self {
        Self {
            connections_max: 64,
            connections_total_max: 1024,
            head_timeout: Duration::from_secs(10),
            resolve_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
            bytes_max: 64 << 30,
        }
    }
}

/// What a function did outside since the node started.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Connections that were made.
    pub connected: AtomicU64,
    /// Those that were not allowed.
    pub refused: AtomicU64,
    /// Those that were allowed and could not be made.
    pub failed: AtomicU64,
    /// Bytes that the function sent.
    pub sent_bytes: AtomicU64,
    /// Bytes that it was sent.
    pub received_bytes: AtomicU64,
}

/// Makes proxies. They run on a thread of their own.
pub struct Egress {
    options: EgressOptions,
    runtime: Option<Runtime>,
    shared: Arc<Shared>,
}

struct Shared {
    net: Lookups,
    connections: Semaphore,
}

/// A proxy of one instance. Dropping it ends it, with all of its connections.
#[derive(Debug)]
pub struct Outlet {
    task: AbortHandle,
    notes: Arc<Notes>,
}

#[derive(Debug, Default)]
struct Notes(Mutex<BTreeSet<String>>);

/// What one proxy knows.
struct Proxy {
    options: EgressOptions,
    shared: Arc<Shared>,
    allowed: AllowList,
    traffic: Arc<Traffic>,
    notes: Arc<Notes>,
}

/// Why a connection is not made.
struct Refusal {
    status: u16,
    /// One line, for the answer and the log.
    why: String,
}

impl Egress {
    /// To the network that the node is in.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn new(options: EgressOptions) -> io::Result<Self> {
        Self::with_net(options, Internet)
    }

    /// To another network.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn with_net(options: EgressOptions, net: impl Net + 'static) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(LOOKUPS_MAX)
            .thread_name("sinew-egress")
            .enable_all()
            .build()?;
        let connections = Semaphore::new(options.connections_total_max);
        let shared = Shared { net: Lookups::new(net, LOOKUPS_MAX), connections };
        Ok(Self { options, runtime: Some(runtime), shared: Arc::new(shared) })
    }

    /// Serves a listener, which is in an instance's network.
    ///
    /// # Errors
    /// If it is none.
    pub fn open(
        &self,
        listener: std::net::TcpListener,
        allowed: AllowList,
        traffic: Arc<Traffic>,
    ) -> io::Result<Outlet> {
        let runtime = self.runtime.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        listener.set_nonblocking(true)?;
        let _inside = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        let notes = Arc::new(Notes::default());
        let shared = Arc::clone(&self.shared);
        let proxy = Proxy { options: self.options, shared, allowed, traffic, notes: Arc::clone(&notes) };
        let task = runtime.handle().spawn(Arc::new(proxy).serve(listener)).abort_handle();
        Ok(Outlet { task, notes })
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A name that is being looked up is not waited for.
            runtime.shutdown_background();
        }
    }
}

impl Outlet {
    /// Lines for the function's log since they were last taken.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.0.lock()).into_iter().collect()
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Notes {
    fn add(&self, note: String) {
        let mut notes = self.0.lock();
        if notes.len() < NOTES_MAX {
            notes.insert(note);
        }
    }
}

impl Proxy {
    async fn serve(self: Arc<Self>, listener: TcpListener) {
        // Ends all connections when this task is ended.
        let mut connections = JoinSet::new();
        let own = Arc::new(Semaphore::new(self.options.connections_max));
        loop {
            // It is never closed.
            let Ok(one) = Arc::clone(&own).acquire_owned().await else { return };
            while connections.try_join_next().is_some() {}
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let proxy = Arc::clone(&self);
            connections.spawn(async move {
                proxy.connection(stream).await;
                drop(one);
            });
        }
    }

    /// One connection, from its first byte to its end.
    async fn connection(&self, mut inside: TcpStream) {
        let read = timeout(self.options.head_timeout, read_head(&mut inside)).await;
        // Whoever says nothing is answered nothing.
        let Ok(Ok(Some((head, rest)))) = read else { return };
        let Ok(_turn) = self.shared.connections.try_acquire() else {
            let why = "functions of this node have too many connections; try again later".to_owned();
            return self.refuse(inside, Refusal { status: 503, why }).await;
        };
        let asked = head::read(&head).map_err(|why| Refusal::of_request(400, why));
        let connected = match asked {
            Ok(ask) => self.outside(ask.target()).await.map(|outside| (ask, outside)),
            Err(refusal) => Err(refusal),
        };
        let (ask, mut outside) = match connected {
            Ok(connected) => connected,
            Err(refusal) => return self.refuse(inside, refusal).await,
        };
        self.traffic.connected.fetch_add(1, Ordering::Relaxed);
        let begun = match &ask {
            Ask::Tunnel(_) => inside.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await,
            Ask::Forward { head, .. } => outside.write_all(head).await,
        };
        let begun = match begun {
            Ok(()) => outside.write_all(&rest).await,
            failed => failed,
        };
        if begun.is_ok() {
            let limits = Limits { idle: self.options.idle_timeout, bytes_max: self.options.bytes_max };
            let Traffic { sent_bytes, received_bytes, .. } = &*self.traffic;
            sent_bytes.fetch_add(rest.len() as u64, Ordering::Relaxed);
            relay(inside, outside, limits, sent_bytes, received_bytes).await;
        }
    }

    /// A connection to a host that may be reached.
    async fn outside(&self, target: &Target) -> Result<TcpStream, Refusal> {
        if !self.allowed.has(target) {
            return Err(self.not_allowed(target));
        }
        let addresses = self.addresses(target).await?;
        let mut failed = None;
        for address in addresses {
            match timeout(self.options.connect_timeout, self.shared.net.connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => failed = Some(error.to_string()),
                Err(_) => failed = Some("it did not answer in time".to_owned()),
            }
        }
        let why = failed.unwrap_or_else(|| "it has no address".to_owned());
        Err(self.unreachable(target, &why))
    }

    /// Those of a host's addresses that may be connected to.
    async fn addresses(&self, target: &Target) -> Result<Vec<SocketAddr>, Refusal> {
        let name = match &target.host {
            Host::Address(address) => return Ok(vec![SocketAddr::new(*address, target.port)]),
            Host::Name(name) => name,
        };
        let net = &self.shared.net;
        let looked_up = async {
            let place = net.place(name, Whose::Anybody).await?;
            net.resolve(place, name, target.port).await
        };
        let found = match timeout(self.options.resolve_timeout, looked_up).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => return Err(self.unreachable(target, &error.to_string())),
            Err(_) => return Err(self.unreachable(target, "its name was not found in time")),
        };
        let may =
            |address: &SocketAddr| is_public(address.ip()) || self.allowed.names(address.ip(), target.port);
        let (allowed, private): (Vec<_>, Vec<_>) = found.into_iter().partition(may);
        match private.first() {
            Some(address) if allowed.is_empty() => Err(self.private(target, *address)),
            // The port is the one that was asked for, whatever the resolver says.
            _ => Ok(allowed.iter().map(|address| SocketAddr::new(address.ip(), target.port)).collect()),
        }
    }

    fn not_allowed(&self, target: &Target) -> Refusal {
        self.traffic.refused.fetch_add(1, Ordering::Relaxed);
        let entry = target.entry();
        self.notes.add(format!(
            "sinew: {target} was not reached: it is not in the function's allow-hosts; to allow it, add \
             \"{entry}\" to allow-hosts in sinew.toml and deploy again"
        ));
        Refusal { status: 403, why: format!("{target} is not in allow-hosts; add \"{entry}\" to it") }
    }

    fn private(&self, target: &Target, address: SocketAddr) -> Refusal {
        self.traffic.refused.fetch_add(1, Ordering::Relaxed);
        let entry = Target { host: Host::Address(address.ip()), port: target.port }.entry();
        let why = format!(
            "{target} has the private address {}; only a function whose allow-hosts names \"{entry}\" itself may reach it",
            address.ip()
        );
        self.notes.add(format!("sinew: {why}"));
        Refusal { status: 403, why }
    }

    fn unreachable(&self, target: &Target, why: &str) -> Refusal {
        self.traffic.failed.fetch_add(1, Ordering::Relaxed);
        self.notes.add(format!("sinew: {target} was not reached: {why}"));
        Refusal { status: 502, why: format!("{target} cannot be reached: {why}") }
    }

    async fn refuse(&self, mut inside: TcpStream, refusal: Refusal) {
        let told = async {
            inside.write_all(&refusal.answer()).await?;
            inside.shutdown().await?;
            // What is still being sent is read, or the answer is lost with it.
            let mut rest = [0; 4096];
            while inside.read(&mut rest).await? > 0 {}
            io::Result::Ok(())
        };
        // Whoever does not listen is not told.
        _ = timeout(self.options.head_timeout, told).await;
    }
}

impl Refusal {
    fn of_request(status: u16, why: &str) -> Self {
        Self { status, why: format!("this is no request to a proxy: {why}") }
    }

    /// The reason stands in the first line too: clients show it.
    fn answer(&self) -> Vec<u8> {
        let Self { status, why } = self;
        // What came from elsewhere cannot end the line.
        let why: String = why.chars().map(|each| if each.is_control() { ' ' } else { each }).collect();
        format!(
            "HTTP/1.1 {status} {why}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
             Connection: close\r\nProxy-Agent: sinew\r\n\r\n{why}\n",
            why.len() + 1
        )
        .into_bytes()
    }
}

/// The head, and what came after it; `None` if it ends before or is too long.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let mut bytes = Vec::new();
    loop {
        if let Some(len) = head::head_len(&bytes) {
            let rest = bytes.split_off(len);
            return Ok(Some((bytes, rest)));
        }
        if bytes.len() >= HEAD_BYTES_MAX || stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests;
