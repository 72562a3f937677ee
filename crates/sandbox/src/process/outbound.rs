// SPDX-License-Identifier: Apache-2.0
//! Hosts that functions may reach. A container has no network but its
//! loopback; on that the node listens, and carries what it allows.

use std::fmt::Debug;
use std::net::TcpListener;

use objects::Handle;

/// Where on its loopback a function finds the node, as a proxy of HTTP.
pub(super) const PROXY_PORT: u16 = 3128;
/// What is not asked of the proxy: the function's own loopback.
const NOT_PROXIED: &str = "localhost,127.0.0.1,::1";

/// Who carries connections of functions to the hosts that they may reach.
pub trait Outbound: Debug + Send + Sync {
    /// Serves a listener in the network of an instance of `procedure`, until
    /// what is returned is dropped.
    ///
    /// # Errors
    /// Why not, for people; also if an entry of `allowed` is none.
    fn open(
        &self,
        procedure: Handle,
        allowed: &[String],
        listener: TcpListener,
    ) -> Result<Box<dyn Outlet>, String>;
}

/// What carries the connections of one instance.
pub trait Outlet: Send + Sync {
    /// Lines for the function's log since they were last taken.
    fn take_notes(&self) -> Vec<String>;
}

/// The variables by which programs find their proxy; both spellings are read.
pub(super) fn variables() -> impl Iterator<Item = (&'static str, String)> {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let proxied = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
    let not = ["NO_PROXY", "no_proxy"].map(|name| (name, NOT_PROXIED.to_owned()));
    proxied.into_iter().map(move |name| (name, proxy.clone())).chain(not)
}
