// SPDX-License-Identifier: Apache-2.0
//! Which node a command talks to: a unix socket, or host and port.

use std::fmt;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::arguments::Global;
use crate::exit::{Code, Stop};
use crate::home::{DEV_HOME, default_home, is_home_named};

/// Where a node listens unless told otherwise.
const PORT_DEFAULT: u16 = 8080;
/// Where TLS is spoken unless an address says otherwise.
const TLS_PORT_DEFAULT: u16 = 443;

/// Where a node listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A listener.
    Tcp {
        /// Whether TLS is spoken there.
        is_tls: bool,
        /// A name or an address; IPv6 without brackets.
        host: String,
        /// Unless given, 8080, or 443 with TLS.
        port: u16,
    },
}

impl Address {
    /// Whether it is on this machine, so that what it says of files is about those here.
    pub(crate) fn is_here(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp { host, .. } => {
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }

    /// What the node is called in requests: `Host`.
    pub(crate) fn authority(&self) -> String {
        match self {
            Self::Unix(_) => "localhost".to_owned(),
            Self::Tcp { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
            Self::Tcp { host, port, .. } => format!("{host}:{port}"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp { is_tls, .. } => {
                write!(f, "{}://{}", if *is_tls { "https" } else { "http" }, self.authority())
            }
        }
    }
}

/// The node that is asked, and how it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// The flags, the environment or the default name it.
    Named(Address),
    /// None of them names one that there is, and `sinew dev` runs one in this folder, which the command was called in or below.
    OfDev(Address, PathBuf),
}

/// The node that the flags, the environment or the default name; where there is none at the default, that of `sinew dev`
/// in the directory that the command is called in, or in one above it.
pub(crate) fn of(global: &Global) -> Result<Found, Stop> {
    if let Some(text) = &global.node {
        return parse(text).map(Found::Named);
    }
    let home = default_home().ok_or_else(|| {
        Stop::new(Code::Usage, "no node is named, and neither SINEW_HOME nor HOME is set")
            .suggest("name one with --node http://127.0.0.1:8080 or --node /path/to/node.sock")
    })?;
    let usual = home.join(node::SOCKET_NAME);
    // Whoever has one that does not answer now means that one.
    if !is_home_named()
        && !usual.exists()
        && let Some((socket, folder)) = std::env::current_dir().ok().and_then(|folder| dev_node(&folder))
    {
        return Ok(Found::OfDev(Address::Unix(socket), folder));
    }
    Ok(Found::Named(Address::Unix(usual)))
}

fn answers(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// The socket of the node that `sinew dev` runs in a directory or one above it, and which one. Only one of the same
/// user's: whoever may write above the directory could have put another one's there.
fn dev_node(folder: &Path) -> Option<(PathBuf, PathBuf)> {
    let own = std::fs::metadata("/proc/self").ok()?.uid();
    let is_own = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|found| found.uid() == own);
    folder.ancestors().find_map(|folder| {
        let home = folder.join(DEV_HOME);
        let socket = home.join(node::SOCKET_NAME);
        (is_own(&home) && is_own(&socket) && answers(&socket)).then(|| (socket, folder.to_owned()))
    })
}

/// Reads `http://host:port`, `https://host:port`, `unix:/path`, or a path.
pub(crate) fn parse(text: &str) -> Result<Address, Stop> {
    let wrong = |why: &str| {
        Stop::new(Code::Usage, format!("{text:?} names no node: {why}"))
            .suggest("like http://127.0.0.1:8080 or /path/to/node.sock")
    };
    if let Some(path) = text.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        return Ok(Address::Unix(PathBuf::from(path)));
    }
    let plain = text.strip_prefix("http://").map(|rest| (false, rest));
    let Some((is_tls, rest)) = plain.or_else(|| text.strip_prefix("https://").map(|rest| (true, rest)))
    else {
        return if text.split_once("://").is_some_and(|(scheme, _)| !scheme.contains('/')) {
            Err(wrong("only http and https are spoken"))
        } else if text.contains('/') {
            Ok(Address::Unix(PathBuf::from(text)))
        } else {
            Err(wrong("it is neither a URL nor a path"))
        };
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let uri: hyper::http::uri::Authority = authority.parse().map_err(|_| wrong("the URL has no host"))?;
    if authority.contains('@') || uri.host().is_empty() {
        return Err(wrong("the URL has no plain host"));
    }
    let host = uri.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = uri.port_u16().unwrap_or(if is_tls { TLS_PORT_DEFAULT } else { PORT_DEFAULT });
    Ok(Address::Tcp { is_tls, host, port })
}

#[cfg(test)]
mod tests;
