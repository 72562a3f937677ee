// SPDX-License-Identifier: Apache-2.0
//! The durable tier of the node's store in a bucket: its settings, and how the store asks it.
//!
//! The store's threads wait for answers, and no event loop does: requests are made by a runtime
//! of their own.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use ::io::{BucketFolder, BucketOptions, Buckets, UploadOptions, Uploads};
use axum::body::Bytes;
use gateway::Gauge;
use serde::Deserialize;
use store::{Collection, Depot, DepotError, Object, Store, TierOptions};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::{Error, Node};

/// When whoever puts something is told that it is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Acknowledge {
    /// When it is on the node's disk.
    #[default]
    Disk,
    /// When it is in the tier too.
    Tier,
}

/// Where the tier is, and how it is used.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    /// `s3://BUCKET/PREFIX`, in a bucket that may be written to.
    pub url: String,
    /// What `put` and labels wait for, unless their request says so.
    #[serde(default)]
    pub acknowledge: Acknowledge,
    /// Small objects wait for others for so many milliseconds, unless somebody waits for them.
    #[serde(default = "linger_ms")]
    pub linger_ms: u64,
    /// Who waits for the tier waits for so many seconds.
    #[serde(default = "patience_s")]
    pub patience_s: u64,
    /// What the tier has leaves the disk while that has more bytes of objects than this; `None`: nothing does.
    pub disk_max: Option<u64>,
    /// What nobody names stays there for so many seconds after it was put; 3,600 at least.
    #[serde(default = "kept_s")]
    pub kept_s: u64,
    /// What an answer takes, in milliseconds, before any was seen.
    #[serde(default = "latency_ms")]
    pub latency_ms: u64,
    /// Bytes that come in a second, before any were seen.
    #[serde(default = "bytes_per_second")]
    pub bytes_per_second: u64,
}

fn linger_ms() -> u64 {
    1000
}

fn patience_s() -> u64 {
    60
}

fn kept_s() -> u64 {
    24 * 3600
}

fn latency_ms() -> u64 {
    50
}

fn bytes_per_second() -> u64 {
    50 << 20
}

impl Tier {
    /// What is wrong with it.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !(1..=3_600_000).contains(&self.linger_ms) {
            return Err(format!("linger_ms is {}, and 1 at least and 3600000 at most", self.linger_ms));
        }
        if !(1..=3600).contains(&self.patience_s) {
            return Err(format!("patience_s is {}, and 1 at least and 3600 at most", self.patience_s));
        }
        let least = Collection::KEPT_MIN.as_secs();
        if self.kept_s < least {
            return Err(format!("kept_s is {}, and at least {least}: uploads take a while", self.kept_s));
        }
        if !(1..=60_000).contains(&self.latency_ms) || self.bytes_per_second == 0 {
            return Err(
                "latency_ms is 1 at least and 60000 at most, and bytes_per_second 1 at least".to_owned()
            );
        }
        Ok(())
    }

    pub(crate) fn kept(&self) -> Duration {
        Duration::from_secs(self.kept_s)
    }

    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(self.patience_s)
    }
}

/// Gives the store its tier, if the node is to have one.
pub(crate) fn attach(tier: Option<&Tier>, store: &Store, buckets: &Buckets) -> Result<(), Error> {
    let Some(tier) = tier else { return Ok(()) };
    let uploads = Uploads::new(UPLOADS, buckets.clone());
    let folder = uploads.folder(&tier.url).map_err(Error::Tier)?;
    let depot = Bucket::new(folder).map_err(|source| Error::Start { what: "the durable tier", source })?;
    let options = TierOptions {
        linger: Duration::from_millis(tier.linger_ms),
        latency: Duration::from_millis(tier.latency_ms),
        bytes_per_second: tier.bytes_per_second,
        disk_max: tier.disk_max,
        ..TierOptions::default()
    };
    store.attach_tier(Arc::new(depot), options).map_err(Error::Store)
}

/// Holds a bucket in which nothing is yet, asked as for a tier, to what depots must do. `keys` are an
/// access key and its secret. For tests.
///
/// # Panics
/// At the first promise that is broken.
#[doc(hidden)]
pub fn check_bucket(url: &str, endpoint: &str, region: &str, keys: &str) {
    let name = url.trim_start_matches("s3://").split('/').next().unwrap_or_default().to_owned();
    let (endpoint, region) = (Some(endpoint.to_owned()), Some(region.to_owned()));
    let options = BucketOptions { endpoint, region, secret: String::new(), is_writable: true };
    let keys = keys.to_owned();
    let keys: ::io::Keys = Arc::new(move |_: &str| Some(keys.clone()));
    let checked = Buckets::new([(&name, &options)], &keys)
        .and_then(|buckets| Uploads::new(UPLOADS, buckets).folder(url))
        .and_then(|folder| Bucket::new(folder).map_err(|error| error.to_string()))
        .map(|depot| store::check_depot(&depot));
    if let Err(why) = checked {
        panic!("{url} cannot be asked: {why}");
    }
}

impl Node {
    /// Numbers of the tier, if there is one.
    pub(crate) fn tier_gauges(&self) -> Vec<Gauge> {
        let Ok(Some(status)) = self.store().tier_status() else { return Vec::new() };
        let gauge = |name, help, value| Gauge { name, help, is_counter: false, value };
        let counter = |name, help, value| Gauge { name, help, is_counter: true, value };
        vec![
            gauge("tier_objects", "Objects in the durable tier.", status.objects),
            gauge("tier_waiting_bytes", "Bytes of small objects that wait, at most.", status.waiting_bytes),
            gauge("tier_waiting_large", "Large objects that wait.", status.waiting_large),
            gauge(
                "tier_aside",
                "Large objects that the tier did not take and that are tried again.",
                status.aside,
            ),
            gauge("tier_gaps", "Objects that labels name and that are nowhere.", status.gaps),
            counter("tier_sent", "Objects that were sent to the durable tier.", status.sent),
            counter("tier_sent_bytes", "Their bytes.", status.sent_bytes),
            counter("tier_reads", "Reads of the durable tier.", status.reads),
            counter("tier_read_bytes", "Bytes that they brought.", status.read_bytes),
            counter("tier_brought", "Objects that were brought as a whole.", status.brought),
            counter("tier_parts", "Parts of objects that were brought.", status.parts),
            counter("tier_corrupt", "Objects that were damaged there.", status.corrupt),
            counter(
                "tier_evicted",
                "Objects that have left the disk since the durable tier has them.",
                status.evicted,
            ),
            counter("tier_evicted_bytes", "Their bytes.", status.evicted_bytes),
            counter(
                "tier_collected",
                "Objects that nobody needed, taken from the durable tier.",
                status.collected,
            ),
            counter("tier_collected_bytes", "Their bytes.", status.collected_bytes),
            counter(
                "tier_moved_bytes",
                "Bytes that were written anew there, since little else of their packs was needed.",
                status.moved_bytes,
            ),
            counter("tier_failures", "Failed tries to send.", status.failures),
        ]
    }
}

/// The store tries again by itself.
const UPLOADS: UploadOptions = UploadOptions {
    at_once: 16,
    part_bytes: 16 << 20,
    connect_timeout: Duration::from_secs(5),
    answer_timeout: Duration::from_secs(30),
    rate_min: 64 << 10,
    idle_timeout: Duration::from_secs(15),
    attempts_max: 3,
    pause: Duration::from_millis(200),
    pause_max: Duration::from_secs(2),
};

/// A prefix of a bucket as the store asks it.
struct Bucket {
    folder: BucketFolder,
    /// `None` only while dropping.
    runtime: Option<Runtime>,
    closed: watch::Sender<bool>,
}

impl Bucket {
    fn new(folder: BucketFolder) -> std::io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("sinew-tier").enable_all().build()?;
        Ok(Self { folder, runtime: Some(runtime), closed: watch::Sender::new(false) })
    }

    /// Waits for an answer, on a thread that may wait.
    fn ask<T: Send + 'static>(
        &self,
        answer: impl Future<Output = Result<T, String>> + Send + 'static,
    ) -> Result<T, DepotError> {
        let stops = || DepotError("the node stops".to_owned());
        let runtime = self.runtime.as_ref().ok_or_else(stops)?;
        let mut closed = self.closed.subscribe();
        let (told, answered) = mpsc::sync_channel(1);
        runtime.spawn(async move {
            let answer = tokio::select! {
                answer = answer => answer.map_err(DepotError),
                _ = closed.wait_for(|closed| *closed) => Err(stops()),
            };
            // Who asked waits.
            _ = told.send(answer);
        });
        answered.recv().map_err(|_| stops())?
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // Whoever drops it may be an event loop, which must not wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Depot for Bucket {
    fn name(&self) -> String {
        self.folder.url().to_owned()
    }

    fn put(&self, name: &str, bytes: &Object) -> Result<(), DepotError> {
        // What is named by its contents need not be sent twice.
        let mark = name.starts_with("objects/").then(|| name.to_owned());
        let (folder, name, body) = (self.folder.clone(), name.to_owned(), Bytes::from_owner(bytes.clone()));
        self.ask(async move { folder.put(&name, body, mark.as_deref()).await })
    }

    fn get(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>, DepotError> {
        let (folder, name) = (self.folder.clone(), name.to_owned());
        let bytes = self.ask(async move { folder.get(&name, range).await })?;
        Ok(bytes.map(Vec::from))
    }

    fn list(&self, begin: &str, after: &str) -> Result<Vec<String>, DepotError> {
        let (folder, begin, after) = (self.folder.clone(), begin.to_owned(), after.to_owned());
        self.ask(async move { folder.list(&begin, &after).await })
    }

    fn remove(&self, name: &str) -> Result<(), DepotError> {
        let (folder, name) = (self.folder.clone(), name.to_owned());
        self.ask(async move { folder.remove(&name).await })
    }

    fn close(&self) {
        self.closed.send_replace(true);
    }
}
