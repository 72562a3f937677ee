// SPDX-License-Identifier: Apache-2.0
//! A node of the directory's own, within this program: it cannot be left
//! behind, whatever ends the program.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context as _;
use node::Debugging;
use tokio::sync::oneshot;

use crate::address::Address;
use crate::commands::sandbox_init;
use crate::commands::up::{Listen, default_or_free, explained};
use crate::commands::version::{COMMIT, VERSION};
use crate::directory::unreadable;
use crate::exit::{Code, Stop};
use crate::output::Output;

/// The longest path of a socket in Linux.
const SOCKET_PATH_MAX: usize = 107;

/// A node that runs in a thread.
pub(super) struct OwnNode {
    address: Address,
    stop: oneshot::Sender<()>,
    /// Closed when it has ended.
    running: oneshot::Receiver<()>,
    thread: JoinHandle<Result<(), anyhow::Error>>,
}

impl OwnNode {
    /// Starts it, and waits until it is ready.
    pub(super) async fn start(
        home: &Path,
        listen: Option<Listen>,
        debugging: Option<Arc<Debugging>>,
        output: &Output,
    ) -> anyhow::Result<Self> {
        make_home(home)?;
        let home = home.canonicalize().map_err(|error| unreadable(home, error))?;
        let socket = home.join(node::SOCKET_NAME);
        if socket.as_os_str().len() > SOCKET_PATH_MAX {
            let message =
                format!("{} is too long for a socket: over {SOCKET_PATH_MAX} bytes", socket.display());
            return Err(Stop::new(Code::Failed, message).suggest("sinew dev --home /tmp/sinew-dev").into());
        }
        let listen = match listen {
            Some(Listen::At(address)) => Some(address),
            Some(Listen::Off) => None,
            None => Some(default_or_free(output)?),
        };
        let options = node::Options {
            home: Some(home),
            listen,
            debugging,
            // Who edits waits for nobody.
            drain_s: Some(2),
            version: VERSION.to_owned(),
            commit: COMMIT.to_owned(),
            sandbox_init: sandbox_init::command(),
            ..node::Options::default()
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, mut is_ready) = oneshot::channel();
        let (running, runs) = oneshot::channel::<()>();
        let body = move || {
            let _running = running;
            // A sender that is dropped stops it as well.
            let stopped = async { _ = stopped.await };
            let ran = node::run_until(&options, stopped, |running| _ = ready.send(running.clone()));
            ran.map_err(|error| explained(&error, &options))
        };
        let thread = std::thread::Builder::new().name("sinew-node".to_owned()).spawn(body);
        let thread = thread.context("no thread for the node")?;
        match (&mut is_ready).await {
            Ok(running) => {
                let tcp = running.address.map(|at| Address::Tcp {
                    is_tls: false,
                    host: at.ip().to_string(),
                    port: at.port(),
                });
                Ok(Self { address: tcp.unwrap_or(Address::Unix(socket)), stop, running: runs, thread })
            }
            // It ended before it was ready.
            Err(_) => match thread.join() {
                Ok(Err(error)) => Err(error),
                _ => Err(anyhow::anyhow!("the node ended while it was starting")),
            },
        }
    }

    /// Where it answers.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Lets requests under way finish, and ends it.
    ///
    /// # Errors
    /// Why it ended, if it did before.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        // It may have ended by the same Ctrl-C.
        _ = self.stop.send(());
        match self.thread.join() {
            Ok(ended) => ended,
            Err(_) => Err(anyhow::anyhow!("the node ended in a panic")),
        }
    }
}

/// Waits until it ends by itself; for ever if there is none.
pub(super) async fn ended(own: &mut Option<OwnNode>) {
    match own {
        // Nothing is ever sent: it is closed.
        Some(own) => _ = (&mut own.running).await,
        None => std::future::pending().await,
    }
}

/// A directory that no version control takes.
fn make_home(home: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(home).map_err(|error| unreadable(home, error))?;
    match std::fs::File::create_new(home.join(".gitignore")) {
        Ok(mut file) => file.write_all(b"*\n").map_err(|error| unreadable(home, error)),
        // It is there already, or is not needed: the store says what is wrong with the directory.
        Err(_) => Ok(()),
    }
}
