// SPDX-License-Identifier: Apache-2.0
//! The network that the node is in: looking names up, and connecting.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use tokio::net::TcpStream;

/// What comes later.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// A network. What it says of names is not believed.
pub trait Net: Send + Sync {
    /// The addresses of a name.
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Answer<'a, Vec<SocketAddr>>;
    /// A connection to this very address.
    fn connect(&self, address: SocketAddr) -> Answer<'_, TcpStream>;
}

/// The node's own, with the machine's resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct Internet;

impl Net for Internet {
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Answer<'a, Vec<SocketAddr>> {
        // With the point no search list is appended to it.
        Box::pin(async move { Ok(tokio::net::lookup_host((format!("{name}."), port)).await?.collect()) })
    }

    fn connect(&self, address: SocketAddr) -> Answer<'_, TcpStream> {
        Box::pin(TcpStream::connect(address))
    }
}
