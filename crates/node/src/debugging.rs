// SPDX-License-Identifier: Apache-2.0
//! Debuggers on their way to functions, for a node whose owner develops them.
//!
//! ```text
//!  editor ── 127.0.0.1:5678, on the host ── node ── pid 1 of the container,
//!            one listener for each function         which connects on its loopback
//! ```
//!
//! Only this machine reaches the listeners. Pages in a browser are on this machine
//! too, and may send requests to any port: what reads requests of HTTP as its own
//! must not get them ([`greeting`]).

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sandbox::process::{Debuggee, Debuggers, Language};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::warn;

/// Where editors look by themselves: for Python, and for Node.
const PYTHON_PORT: u16 = 5678;
const NODE_PORT: u16 = 9229;
/// Further ports are tried, one for each function.
const PORTS: u16 = 64;
/// Connections to one function at once: an editor has one or two.
const CONNECTIONS_MAX: usize = 8;
/// What every message of the debug adapter protocol begins with.
const MESSAGE_BEGINS: &[u8; 15] = b"Content-Length:";
/// Within which a debugger has to say it.
const GREETING_PATIENCE: Duration = Duration::from_secs(10);

/// Where the functions of a node can be debugged.
pub struct Debugging {
    /// What the listeners run on; ends them when it is dropped.
    runtime: Option<Runtime>,
    functions: Mutex<BTreeMap<String, Debugged>>,
}

/// One function, and its newest instance.
struct Debugged {
    address: SocketAddr,
    newest: Arc<Mutex<Debuggee>>,
}

impl fmt::Debug for Debugging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Debugging")
    }
}

impl Debugging {
    /// For a node that is about to start.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn new() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("sinew-debugging")
            .enable_all()
            .build()?;
        Ok(Self { runtime: Some(runtime), functions: Mutex::default() })
    }

    /// Where a function is debugged, as soon as it has been loaded once.
    pub fn address(&self, function: &str) -> Option<SocketAddr> {
        self.functions.lock().get(function).map(|debugged| debugged.address)
    }

    fn open(&self, language: Language, debuggee: Debuggee) -> io::Result<Debugged> {
        let first = match language {
            Language::Node => NODE_PORT,
            Language::Python | Language::Executable => PYTHON_PORT,
        };
        let wanted = (first..first + PORTS).chain([0]);
        let mut bound = wanted.map(|port| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
        let listener = bound.find_map(Result::ok).ok_or(io::ErrorKind::AddrInUse)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let newest = Arc::new(Mutex::new(debuggee));
        let runtime = self.runtime.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let _inside = runtime.enter();
        runtime.handle().spawn(serve(TcpListener::from_std(listener)?, language, Arc::clone(&newest)));
        Ok(Debugged { address, newest })
    }
}

impl Drop for Debugging {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Debuggers for Debugging {
    fn began(&self, function: &str, language: Language, debuggee: Debuggee) {
        let mut functions = self.functions.lock();
        if let Some(debugged) = functions.get(function) {
            *debugged.newest.lock() = debuggee;
            return;
        }
        match self.open(language, debuggee) {
            Ok(debugged) => _ = functions.insert(function.to_owned(), debugged),
            Err(error) => warn!("{function} cannot be debugged: no port of 127.0.0.1 can be had: {error}"),
        }
    }
}

async fn serve(listener: TcpListener, language: Language, newest: Arc<Mutex<Debuggee>>) {
    // Ends all connections when this task is ended.
    let mut connections = JoinSet::new();
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // It is never closed.
        let Ok(one) = Arc::clone(&room).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else { continue };
        let newest = Arc::clone(&newest);
        connections.spawn(async move {
            if let Err(error) = connection(stream, language, newest).await {
                warn!("a debugger was not let in: {error}");
            }
            drop(one);
        });
    }
}

async fn connection(
    mut outside: TcpStream,
    language: Language,
    newest: Arc<Mutex<Debuggee>>,
) -> io::Result<()> {
    let said: Option<[u8; MESSAGE_BEGINS.len()]> = match language {
        Language::Node => None,
        Language::Python | Language::Executable => Some(greeting(&mut outside).await?),
    };
    let debuggee = newest.lock().clone();
    let connecting = tokio::task::spawn_blocking(move || debuggee.connect());
    let inside = connecting.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
    inside.set_nonblocking(true)?;
    let mut inside = TcpStream::from_std(inside)?;
    inside.write_all(said.as_ref().map_or(&[], |said| said)).await?;
    // However it ends, the other side sees its connection close.
    _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
    Ok(())
}

/// What a debugger of Python begins with. A page in a browser could send a message in
/// the body of a request, whose head debugpy passes over; Node looks at `Host` itself.
async fn greeting(stream: &mut TcpStream) -> io::Result<[u8; MESSAGE_BEGINS.len()]> {
    let mut begins = *MESSAGE_BEGINS;
    tokio::time::timeout(GREETING_PATIENCE, stream.read_exact(&mut begins)).await??;
    match begins == *MESSAGE_BEGINS {
        true => Ok(begins),
        false => Err(io::Error::other("what it says is not the debug adapter protocol")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// What is let in of what a client says.
    async fn heard(said: &[u8]) -> Option<Vec<u8>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        client.write_all(said).await.unwrap();
        drop(client);
        greeting(&mut stream).await.ok().map(|begins| begins.to_vec())
    }

    #[tokio::test]
    async fn pages_in_browsers_are_no_debuggers() {
        let message = b"Content-Length: 2\r\n\r\n{}";
        assert_eq!(heard(message).await.as_deref(), Some(&message[..15]));
        let page = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(heard(page).await, None);
        assert_eq!(heard(b"Content-").await, None);
    }
}
