// SPDX-License-Identifier: Apache-2.0
//! The composition root: one process that joins evaluation to sandboxes.
//!
//! [`run`] is what `sinew up` does. [`Node`] is the running whole without its
//! listeners, for tests, benches and embedders. `executor.rs` shows every way
//! in which a decision of the evaluator becomes an act.

mod backend;
mod buckets;
mod callbacks;
mod collecting;
mod config;
mod debugging;
mod doctor;
mod executor;
mod exports;
mod feeds;
mod fetcher;
mod functions;
mod identity;
mod keys;
mod ledger;
mod listener;
mod loops;
mod metering;
mod outbound;
mod processes;
mod reactor;
mod reclaimer;
mod recomputing;
mod requests;
mod running;
mod secrets;
mod secured;
mod server;
mod sources;
mod streams;
mod tier;
mod traces;
mod upkeep;
mod visitors;
mod workers;

use std::net::SocketAddr;
use std::path::PathBuf;

use store::Object;

pub use buckets::Bucket;
pub use collecting::Schedule;
pub use config::{
    Budgets, EVENT_LOOPS_MAX, LOGS_BYTES_MIN, MEMORY_BYTES_MIN, Options, Patience, WORKERS_MAX,
};
pub use debugging::Debugging;
pub use doctor::{Check, doctor};
pub use executor::Executor;
pub use functions::check_workflow;
pub use functions::tool::fault_of as fault_of_tool_input;
pub use gateway::Network;
pub use gateway::upkeep as told;
pub use identity::{IdentityError, is_signed};
pub use io::tls;
pub use keys::KeysError;
pub use linux::{HEAP, Heap};
pub use outbound::check_host;
pub use running::Node;
pub use sandbox::process::bundle;
pub use sandbox::process::init::main as sandbox_init;
pub use sandbox::process::{IMPORTS_MAX, is_module};
pub use sandbox::wasm::is_program;
pub use secrets::SecretError;
pub use server::{Running, run, run_until};
pub use sources::Fetching;
pub use store::{
    BackupFolder, Check as Fsck, Checked, Error as StoreError, Finding, Forgotten, Point, Points, Watch,
    forget, fsck, fsck_backup,
};
pub use store::{Upgraded, upgrade};
#[doc(hidden)]
pub use tier::check_bucket;
pub use tier::{Acknowledge, Tier};
pub use traces::Traces;
pub use upkeep::{SecretsRestored, UpkeepError, back_up_home, point_of, restore_home};

/// The evaluator's scheduler, over the store's objects.
pub type Scheduler = evaluator::Scheduler<Object>;
/// The walk of one worker, over the store's objects.
pub type Evaluator = evaluator::Evaluator<Object>;

/// The socket's file name in the node's home.
pub const SOCKET_NAME: &str = "node.sock";

/// What keeps a node from starting or running.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A configuration file that cannot be read or understood.
    #[error("configuration {path}: {reason}")]
    Config {
        /// Which file.
        path: PathBuf,
        /// What is wrong, with the place.
        reason: String,
    },
    /// An address that cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Which one.
        address: SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// An address that others can reach, without TLS.
    #[error(
        "{address} can be reached from other machines, and without TLS keys and data can be read on the way: listen on 127.0.0.1 or [::1]; or give a certificate (--tls-cert and --tls-key, or --tls-self-signed); or, behind a proxy that ends TLS or in a network that you trust, add --insecure-http. All requests need keys then (`sinew key create`)"
    )]
    Exposed {
        /// Which one.
        address: SocketAddr,
    },
    /// An address that no result can be sent to.
    #[error("callback_private: {0}")]
    Callbacks(#[from] io::Unreadable),
    /// An address that nothing can be fetched from.
    #[error("fetch_private: {0}")]
    Sources(io::Unreadable),
    /// A bucket that nothing can be asked of.
    #[error("s3: {0}")]
    Buckets(String),
    /// A place that no durable tier can be in.
    #[error("tier: {0}")]
    Tier(String),
    /// A collector that traces cannot be sent to.
    #[error("{0}")]
    Traces(String),
    /// Settings of TLS that do not go together.
    #[error("{0}")]
    TlsSettings(&'static str),
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(#[from] tls::TlsError),
    /// The unix socket cannot be made.
    #[error("cannot listen on {path}: {source}")]
    Socket {
        /// Where it should be.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Threads, signals or the event loop cannot be set up.
    #[error("cannot start {what}: {source}")]
    Start {
        /// What was to be started.
        what: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The store does not open.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The keys cannot be read.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The node's own key cannot be had.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The secrets cannot be read.
    #[error(transparent)]
    Secrets(#[from] SecretError),
    /// The queue of calls that are made later cannot be read.
    #[error(transparent)]
    Queue(#[from] queue::Error),
    /// The sandboxes cannot be prepared.
    #[error(transparent)]
    Sandbox(#[from] sandbox::Error),
}

#[cfg(test)]
mod tests;
