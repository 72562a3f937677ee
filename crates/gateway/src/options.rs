// SPDX-License-Identifier: Apache-2.0
//! What a gateway grants its clients.
//!
//! Each field is a limit on something that a client controls; the defaults
//! suit a node that one person or one team runs.

use std::time::Duration;

use crate::client::TrustedProxies;
use crate::door::Door;
use crate::journal::ArchiveOptions;
use crate::traces::TraceOptions;
use crate::usage::Rates;

/// Limits and names. `Options::default()` is for a listener that only the
/// node's owner can reach.
#[derive(Debug, Clone)]
pub struct Options {
    /// Longest blob that one upload may bring, in bytes. It is streamed to
    /// the store and never held whole.
    pub body_max_bytes: u64,
    /// The longest body of a request to a function, in bytes; it is in memory
    /// at once.
    pub call_max_bytes: u64,
    /// The longest body of a call that is made later, in bytes.
    pub deferred_max_bytes: u64,
    /// Longest bundle, in bytes. A bundle is held in memory while it is read.
    pub bundle_max_bytes: u64,
    /// Longest JSON body, in bytes.
    pub json_max_bytes: u64,
    /// Memory for all bundles and JSON bodies that are being read, in bytes.
    pub buffered_max_bytes: u64,
    /// Memory for what was acknowledged in memory and waits for the disk, in bytes.
    pub behind_max_bytes: u64,
    /// Memory for what clients of HTTP/2 have sent of bodies and nobody has read yet, in bytes.
    pub ahead_max_bytes: u64,
    /// Requests at one time, downloads and evaluations included. The health
    /// and metrics endpoints are not counted.
    pub requests_max: usize,
    /// Longest time that a request other than an upload or an evaluation
    /// takes to its first byte of answer.
    pub answer_timeout: Duration,
    /// Longest silence in the middle of a request's body.
    pub body_idle_timeout: Duration,
    /// Deadline of an evaluation that asks for none or for a longer one.
    pub evaluation_max: Duration,
    /// Time between two lines of progress.
    pub progress_interval: Duration,
    /// What requests to functions cost.
    pub rates: Rates,
    /// Whose spans are sent to the backend's collector; `None`: nobody's.
    pub traces: Option<TraceOptions>,
    /// Where records of requests that printed something or failed are kept; `None`: in memory alone.
    pub archive: Option<ArchiveOptions>,
    /// Who may knock: checks of the `Host` and `Origin` headers.
    pub door: Door,
    /// Whose word for whom they ask counts.
    pub trusted_proxies: TrustedProxies,
    /// The node's version, for `/v1/status` and the OpenAPI document.
    pub version: String,
    /// The commit that the node was built from, or `unknown`.
    pub commit: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            body_max_bytes: 64 << 30,
            call_max_bytes: 64 << 20,
            deferred_max_bytes: 16 << 20,
            bundle_max_bytes: 64 << 20,
            json_max_bytes: 16 << 20,
            buffered_max_bytes: 512 << 20,
            behind_max_bytes: 64 << 20,
            ahead_max_bytes: 256 << 20,
            requests_max: 1024,
            answer_timeout: Duration::from_secs(60),
            body_idle_timeout: Duration::from_secs(30),
            evaluation_max: Duration::from_secs(24 * 60 * 60),
            progress_interval: Duration::from_millis(200),
            rates: Rates::default(),
            traces: None,
            archive: None,
            door: Door::Private,
            trusted_proxies: TrustedProxies::default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: "unknown".to_owned(),
        }
    }
}
