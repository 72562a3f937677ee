// SPDX-License-Identifier: Apache-2.0
//! What a node may be told: a file below, flags and environment above.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sandbox::process::Language;
use serde::Deserialize;

use crate::buckets::Bucket;
use crate::collecting::Schedule;
use crate::sources::Fetching;
use crate::tier::Tier;
use crate::traces::Traces;
use crate::{Debugging, Error};

/// Settings of a node. `None` means: decide for this machine.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Where everything is kept; `None`: in memory only.
    pub home: Option<PathBuf>,
    /// TCP address of the HTTP API; `None`: the unix socket only.
    pub listen: Option<SocketAddr>,
    /// Others may reach that address, without TLS, with keys.
    pub insecure_http: bool,
    /// The certificate that clients on TCP are shown, in PEM, with those
    /// between it and an authority; [`Self::tls_key`] comes with it.
    pub tls_cert: Option<PathBuf>,
    /// Its key, in PEM.
    pub tls_key: Option<PathBuf>,
    /// Clients are shown a certificate that the node has made for itself.
    pub tls_self_signed: bool,
    /// Names and addresses for that one, besides the machine's own.
    pub tls_names: Vec<String>,
    /// Networks (`10.0.0.0/8`) of proxies that are believed for whom they ask, besides the node's own machine.
    pub trusted_proxies: Vec<String>,
    /// Private addresses (`10.0.0.5:8080`) that callbacks of calls may go to.
    pub callback_private: Vec<String>,
    /// Private addresses that external data may be fetched from.
    pub fetch_private: Vec<String>,
    /// How much is fetched at once; `None`: as by default.
    pub fetching: Option<Fetching>,
    /// Room for inputs is given in the order of arrival, whoever shares one: for comparisons.
    #[serde(skip)]
    pub first_come: bool,
    /// Buckets of S3 that data may be fetched from, by their names.
    pub s3: BTreeMap<String, Bucket>,
    /// Where what is put and labelled is kept besides; `None`: nowhere.
    pub tier: Option<Tier>,
    /// What requests to functions cost.
    pub rates: gateway::Rates,
    /// Where spans of requests go; `None`: nowhere.
    pub traces: Option<Traces>,
    /// When what nobody needs is taken from the disk; `None`: as by default.
    pub collection: Option<Schedule>,
    /// Worker threads, each running one application at a time.
    pub workers: Option<usize>,
    /// Threads that serve clients; `None`: one, or half as many as processors if there are eight or more.
    pub event_loops: Option<usize>,
    /// Seconds that requests under way have once the node is told to stop; `None`: 25.
    pub drain_s: Option<u64>,
    /// Bytes on disk for logs of requests to functions, 0 for none; `None`: 256 MiB.
    pub logs_bytes: Option<u64>,
    /// Bytes for everything: objects held, relations, and guests.
    pub memory_bytes: Option<u64>,
    /// The largest body of one request, in bytes.
    pub body_max_bytes: Option<u64>,
    /// Requests queued or running at once; more are refused.
    pub requests_max: Option<usize>,
    /// Connections that each listener has at once; further ones wait in the
    /// kernel until one ends.
    pub connections_max: Option<usize>,
    /// The Python that functions run on; `None`: the `python3` in `PATH`.
    pub python: Option<PathBuf>,
    /// The Node.js that functions run on; `None`: the `node` in `PATH`.
    pub nodejs: Option<PathBuf>,
    /// Functions can be debugged, and where. No file says so: it is for who develops them.
    #[serde(skip)]
    pub debugging: Option<Arc<Debugging>>,
    /// How long clients on TCP may keep the node waiting.
    #[serde(skip)]
    pub patience: Patience,
    /// Of the binary, for `/v1/status`.
    #[serde(skip)]
    pub version: String,
    /// That the binary was built from, for `/v1/status`.
    #[serde(skip)]
    pub commit: String,
    /// Program and arguments that are a container's init, which calls
    /// [`sandbox_init`](crate::sandbox_init); empty: no containers.
    #[serde(skip)]
    pub sandbox_init: Vec<OsString>,
}

impl Options {
    /// Reads settings from a TOML file.
    ///
    /// # Errors
    /// [`Error::Config`] with the place, for unknown keys too.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let bad = |reason: String| Error::Config { path: path.to_owned(), reason };
        let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
        let options: Self = toml::from_str(&text).map_err(|error| bad(error.to_string()))?;
        options.rates.check().map_err(|why| bad(format!("[rates]: {why}")))?;
        options.trusted_proxies().map_err(|why| bad(format!("trusted_proxies: {why}")))?;
        let schedule = options.collection.unwrap_or_default();
        schedule.check().map_err(|why| bad(format!("[collection]: {why}")))?;
        let fetching = options.fetching.unwrap_or_default();
        fetching.check().map_err(|why| bad(format!("[fetching]: {why}")))?;
        if let Some(tier) = &options.tier {
            tier.check().map_err(|why| bad(format!("[tier]: {why}")))?;
        }
        Ok(options)
    }

    /// These settings, and `below` where they say nothing.
    #[must_use]
    pub fn or(self, below: Self) -> Self {
        // The two are one setting: a key fits no other certificate. And who
        // asks for one that is self-signed asks for no other.
        let (tls_cert, tls_key) =
            match self.tls_cert.is_some() || self.tls_key.is_some() || self.tls_self_signed {
                true => (self.tls_cert, self.tls_key),
                false => (below.tls_cert, below.tls_key),
            };
        Self {
            home: self.home.or(below.home),
            listen: self.listen.or(below.listen),
            insecure_http: self.insecure_http || below.insecure_http,
            tls_self_signed: self.tls_self_signed || below.tls_self_signed,
            tls_names: if self.tls_names.is_empty() { below.tls_names } else { self.tls_names },
            trusted_proxies: if self.trusted_proxies.is_empty() {
                below.trusted_proxies
            } else {
                self.trusted_proxies
            },
            callback_private: if self.callback_private.is_empty() {
                below.callback_private
            } else {
                self.callback_private
            },
            fetch_private: if self.fetch_private.is_empty() {
                below.fetch_private
            } else {
                self.fetch_private
            },
            fetching: self.fetching.or(below.fetching),
            first_come: self.first_come,
            s3: if self.s3.is_empty() { below.s3 } else { self.s3 },
            tier: self.tier.or(below.tier),
            rates: if self.rates == gateway::Rates::default() { below.rates } else { self.rates },
            traces: self.traces.or(below.traces),
            collection: self.collection.or(below.collection),
            tls_cert,
            tls_key,
            workers: self.workers.or(below.workers),
            event_loops: self.event_loops.or(below.event_loops),
            drain_s: self.drain_s.or(below.drain_s),
            logs_bytes: self.logs_bytes.or(below.logs_bytes),
            memory_bytes: self.memory_bytes.or(below.memory_bytes),
            body_max_bytes: self.body_max_bytes.or(below.body_max_bytes),
            requests_max: self.requests_max.or(below.requests_max),
            connections_max: self.connections_max.or(below.connections_max),
            python: self.python.or(below.python),
            nodejs: self.nodejs.or(below.nodejs),
            debugging: self.debugging,
            patience: self.patience,
            version: self.version,
            commit: self.commit,
            sandbox_init: self.sandbox_init,
        }
    }
}

impl Options {
    /// Who is believed for whom he asks. What a file or a flag says was looked at when it was read.
    ///
    /// # Errors
    /// What is no network.
    pub(crate) fn trusted_proxies(&self) -> Result<gateway::TrustedProxies, String> {
        let networks = self.trusted_proxies.iter().map(|text| text.parse());
        networks.collect::<Result<Vec<gateway::Network>, _>>().map(gateway::TrustedProxies::and)
    }

    /// The interpreter of a language.
    pub(crate) fn interpreter(&self, language: Language) -> PathBuf {
        let told = match language {
            Language::Python => &self.python,
            Language::Node => &self.nodejs,
            // It is its own.
            Language::Executable => &None,
        };
        told.clone().unwrap_or_else(|| language.interpreter().into())
    }
}

/// How long a connection's client may keep a listener waiting. None of these
/// times runs while the client waits for the node, however long that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// From the first byte of a request, or from connecting, to the end of
    /// the request's head.
    pub head: Duration,
    /// Between an answer and the next request.
    pub idle: Duration,
    /// Without taking any byte of an answer that waits to be taken. The kernel
    /// reports room in its buffer only when a good part of it is free, so a
    /// reader of a few kilobytes a second may count as one that takes none.
    pub answer: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { head: Duration::from_secs(10), idle: Duration::from_secs(75), answer: Duration::from_secs(60) }
    }
}

impl Patience {
    /// For the CLI's socket, whose clients are the node's owner: one who reads
    /// an answer in a pager may think for a while.
    pub(crate) fn with_owner(self) -> Self {
        Self { answer: 30 * self.answer, ..self }
    }

    /// How often a connection is looked at: each limit is met by a quarter.
    pub(crate) fn look_every(self) -> Duration {
        (self.head.min(self.idle).min(self.answer) / 4).max(Duration::from_millis(1))
    }
}

/// Jobs that need an input which is in memory now, and may go before one that came
/// earlier and needs another. Enough that reading an input pays for many; and what
/// came first waits no longer than those take.
const BATCH_MAX: u32 = 16;

/// How a node divides its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// Worker threads.
    pub workers: usize,
    /// Objects in memory.
    pub objects_bytes: u64,
    /// Remembered relations.
    pub relations_bytes: u64,
    /// Stacks of evaluations that nest deep, together.
    pub walks_bytes: u64,
    /// Memory of one application that needs no reservation.
    pub allowance_bytes: u64,
    /// Memory that applications reserve beyond the allowance, together.
    pub pool_bytes: u64,
    /// Instances of functions that are processes, together.
    pub instances_bytes: u64,
    /// What each worker touches of its heap after its first job.
    pub warm_bytes: usize,
    /// Requests queued or running.
    pub requests_max: usize,
    /// How often who waits for room may be passed by those that share an input.
    pub batch_max: u32,
    /// Connections of each listener.
    pub connections_max: usize,
}

/// Processors that this process may use.
pub(crate) fn cpus() -> usize {
    linux::available_cpus().map_or(1, |cpus| cpus.len())
}

/// Memory of the machine; little where the kernel does not tell.
pub(crate) fn machine_memory_bytes() -> u64 {
    linux::total_memory_bytes().unwrap_or(2 * MEMORY_BYTES_MIN)
}

/// The most event loops of a node.
pub const EVENT_LOOPS_MAX: usize = 64;

/// The most workers of a node.
pub const WORKERS_MAX: usize = 1024;
/// The least memory of a node, in bytes. Less, given in a file, counts as this.
pub const MEMORY_BYTES_MIN: u64 = 256 << 20;
/// The least disk that logs of requests may have, if they have any, in bytes.
pub const LOGS_BYTES_MIN: u64 = 1 << 20;
const ALLOWANCE_MAX_BYTES: u64 = 256 << 20;
/// Enough for the tables and objects of a hundred thousand small applications.
const WARM_MAX_BYTES: u64 = 32 << 20;
/// All workers together touch this part of what the objects may take.
const WARM_SHARE: u64 = 64;
const REQUESTS_MAX_DEFAULT: usize = 10_000;
const CONNECTIONS_MAX_DEFAULT: usize = 1024;

/// Two listeners' connections leave half of the process's files to the store.
fn connections_max_default() -> usize {
    let files = linux::files_max().and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX);
    CONNECTIONS_MAX_DEFAULT.min(files / 4)
}

impl Budgets {
    /// Half of the machine's memory unless told otherwise: five sixteenths of
    /// that for objects, one for walks, two for relations, half for guests; and
    /// as much as for guests for instances of functions, idle ones included.
    pub fn new(options: &Options) -> Self {
        let workers = options.workers.unwrap_or_else(cpus).clamp(1, WORKERS_MAX);
        let memory = options.memory_bytes.unwrap_or_else(|| machine_memory_bytes() / 2);
        let memory = memory.max(MEMORY_BYTES_MIN);
        let guests = memory / 2;
        let allowance_bytes = (guests / (2 * workers as u64)).min(ALLOWANCE_MAX_BYTES);
        Self {
            workers,
            objects_bytes: memory / 16 * 5,
            walks_bytes: memory / 16,
            relations_bytes: memory / 8,
            allowance_bytes,
            pool_bytes: guests - allowance_bytes * workers as u64,
            instances_bytes: guests,
            warm_bytes: (memory / 8 * 3 / WARM_SHARE / workers as u64).min(WARM_MAX_BYTES) as usize,
            batch_max: if options.first_come { 0 } else { BATCH_MAX },
            requests_max: options.requests_max.unwrap_or(REQUESTS_MAX_DEFAULT),
            connections_max: options.connections_max.unwrap_or_else(connections_max_default).max(1),
        }
    }
}

#[cfg(test)]
mod tests;
