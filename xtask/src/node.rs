// SPDX-License-Identifier: Apache-2.0
//! A node as a child process, and the command line that talks to it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::process::{self, Background};

/// How long a node may take until it is ready, recovery included.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long one that has requests under way may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running node; it is ended when this is dropped.
pub(crate) struct Node {
    binary: PathBuf,
    home: PathBuf,
    address: SocketAddr,
    process: Background,
}

impl Node {
    /// Starts a node and waits until it is ready. What it says goes to a file
    /// beside its home.
    pub(crate) fn start(binary: &Path, home: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(home)?;
        // Taken and given back: free now, and most likely still when the node asks.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut up = process::command(binary);
        up.arg("up").arg("--home").arg(home).args(["--listen", &address.to_string()]);
        let log = home.with_extension("log");
        let file = File::create(&log)?;
        up.stdout(file.try_clone()?).stderr(file);
        let mut process = Background::start(&mut up)?;
        let begun = Instant::now();
        while !is_ready(address) {
            if let Some(status) = process.ended()? {
                bail!("the node ended with {status} before it was ready; see {}", log.display());
            }
            if begun.elapsed() > READY_WITHIN {
                let limit = READY_WITHIN.as_secs();
                bail!("the node was not ready on {address} within {limit} s; see {}", log.display());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(Self { address, binary: binary.to_owned(), home: home.to_owned(), process })
    }

    /// Ends it, and waits for that: what it writes at its end is written.
    pub(crate) fn end(self) -> anyhow::Result<()> {
        self.process.end(ENDS_WITHIN)
    }

    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// The command line, pointed at this node.
    pub(crate) fn sinew(&self) -> Command {
        let mut sinew = process::command(&self.binary);
        sinew.env("SINEW_HOME", &self.home);
        sinew
    }

    /// Runs a command that prints one JSON value.
    pub(crate) fn json(&self, arguments: &[&str]) -> anyhow::Result<serde_json::Value> {
        let printed = process::output(self.sinew().args(arguments))?;
        serde_json::from_str(&printed).with_context(|| format!("not JSON: {printed}"))
    }
}

/// Asks `/readyz`, in as little HTTP as it takes.
fn is_ready(address: SocketAddr) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&address, LOOK_EVERY)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.take(1 << 16).read_to_string(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}
