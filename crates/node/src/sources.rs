// SPDX-License-Identifier: Apache-2.0
//! External data: applications of the procedure `sinew:fetch`, which the platform
//! itself runs (`docs/spec/external.md`).
//!
//! Whoever walks hands such an application over and goes on. No memory and no worker
//! is taken while it waits for the network: its encode is an argument of who needs the
//! data, and memory is reserved only when all arguments are there. One thread carries
//! all transfers; `io` says what they may do.

mod sink;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ::io::{AllowList, Buckets, Download, DownloadOptions, Downloaded, Downloads, Unreadable};
use evaluator::{Cost, Event, JobId, Outcome, Request};
use objects::{Application, Failure, FailureCode, Handle, Source, Validator};
use parking_lot::Mutex;
use sandbox::Fault;
use serde::Deserialize;
use store::{Object, Store};
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

use crate::Scheduler;
use sink::{StoreSink, Unfinished};

/// Applications that wait for their data at once.
const UNDER_WAY_MAX: usize = 1 << 16;
/// Sources without hash whose last entity tag is known; forgotten beyond this.
const KNOWN_MAX: usize = 1 << 12;
/// The most transfers that a node can be told to carry at once.
const AT_ONCE_MAX: usize = 4096;
/// Bytes that all of them together have on the disk before they are whole: twice what
/// one may have.
const UNFINISHED_BYTES_MAX: u64 = 128 << 30;
/// Threads that write what has come, and look names up.
const BLOCKING_THREADS: usize = 28;

/// How much is fetched at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fetching {
    /// Transfers, of all hosts; each may hold 700 KiB of memory and three open files.
    pub at_once: usize,
    /// From one host.
    pub at_once_per_host: usize,
}

impl Default for Fetching {
    fn default() -> Self {
        let DownloadOptions { total_max, per_host_max, .. } = DownloadOptions::default();
        Self { at_once: total_max, at_once_per_host: per_host_max }
    }
}

impl Fetching {
    /// What is wrong with it.
    pub(crate) fn check(self) -> Result<(), String> {
        match [self.at_once, self.at_once_per_host].iter().all(|number| (1..=AT_ONCE_MAX).contains(number)) {
            true => Ok(()),
            false => Err(format!("at_once and at_once_per_host are 1 to {AT_ONCE_MAX}")),
        }
    }

    fn options(self) -> DownloadOptions {
        let (total_max, per_host_max) = (self.at_once, self.at_once_per_host);
        DownloadOptions { total_max, per_host_max, ..DownloadOptions::default() }
    }
}

/// Brings external data for jobs that wait.
pub(crate) struct Sources {
    store: Arc<Store>,
    scheduler: Arc<Scheduler>,
    downloads: Downloads,
    /// Begun when it is first needed; gone when the node shuts down.
    runtime: Mutex<Begun>,
    under_way: Mutex<HashMap<JobId, UnderWay>>,
    /// What came last of sources that may change, and its entity tag.
    known: Mutex<HashMap<Handle, (String, Handle)>>,
    unfinished: Arc<Unfinished>,
    counts: Counts,
}

#[derive(Default)]
enum Begun {
    #[default]
    No,
    Yes(Runtime),
    Over,
}

/// One that can be stopped.
struct UnderWay {
    request: Option<u64>,
    task: Option<AbortHandle>,
    wanted: Arc<Wanted>,
}

/// An application that was handed over.
struct Wanted {
    job: JobId,
    thunk: Handle,
    source: Source,
    begun: Instant,
}

/// What became of sources so far.
#[derive(Default)]
struct Counts {
    fetched: AtomicU64,
    unchanged: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
}

/// Counts for operators: those that wait, came, were found unchanged, did not come;
/// and bytes.
pub(crate) struct SourceStats {
    pub(crate) pending: u64,
    pub(crate) fetched: u64,
    pub(crate) unchanged: u64,
    pub(crate) failed: u64,
    pub(crate) bytes: u64,
    /// Of the disk, kept for what is not whole yet.
    pub(crate) unfinished_bytes: u64,
}

impl Sources {
    /// Of private addresses those may be named that are in this list, and objects in
    /// these buckets.
    pub(crate) fn new(
        private: &[String],
        buckets: Buckets,
        fetching: Fetching,
        store: Arc<Store>,
        scheduler: Arc<Scheduler>,
    ) -> Result<Arc<Self>, Unreadable> {
        let private = AllowList::of_addresses(private.iter().map(String::as_str))?;
        Ok(Arc::new(Self {
            store,
            scheduler,
            downloads: Downloads::new(fetching.options(), private).with_buckets(buckets),
            runtime: Mutex::default(),
            under_way: Mutex::default(),
            known: Mutex::default(),
            unfinished: Arc::new(Unfinished::new(UNFINISHED_BYTES_MAX)),
            counts: Counts::default(),
        }))
    }

    /// Takes an application over, if its procedure is the one that fetches; its job is
    /// resumed with the outcome.
    pub(crate) fn take_over(
        self: &Arc<Self>,
        job: JobId,
        thunk: Handle,
        application: &Application<'_>,
        request: Option<&Arc<Request>>,
    ) -> bool {
        if !Source::is_fetched_by(application.procedure) {
            return false;
        }
        match self.source(application) {
            Ok(source) => {
                let wanted = Arc::new(Wanted { job, thunk, source, begun: Instant::now() });
                if let Err(fault) = self.begin(&wanted, request) {
                    self.end(&wanted, Err(fault));
                }
            }
            Err(fault) => {
                let result = self.failure(thunk, &fault);
                // What is no source is none on every node.
                let is_lasting = fault.code.is_deterministic();
                self.resume(job, Outcome { result, cost: Cost::default(), is_lasting });
            }
        }
        true
    }

    /// Whether an application fetches what is the same whenever it is fetched.
    pub(crate) fn is_bound(&self, application: &Application<'_>) -> bool {
        Source::is_fetched_by(application.procedure)
            && self.source(application).is_ok_and(|source| source.is_bound())
    }

    fn source(&self, application: &Application<'_>) -> Result<Source, Fault> {
        enum Bytes {
            Literal(Vec<u8>),
            Stored(Object),
        }
        impl AsRef<[u8]> for Bytes {
            fn as_ref(&self) -> &[u8] {
                match self {
                    Self::Literal(bytes) => bytes,
                    Self::Stored(object) => object,
                }
            }
        }
        let mut absent = None;
        let source = Source::of_application(application, |blob| match blob.literal_bytes() {
            Some(bytes) => Some(Bytes::Literal(bytes.to_vec())),
            None => {
                let object = self.store.local(blob);
                absent = absent.or(object.is_none().then_some(blob));
                object.map(Bytes::Stored)
            }
        });
        source.map_err(|error| match absent {
            Some(blob) => Fault::new(FailureCode::MissingData, format!("{blob} is not on this node")),
            None => Fault::new(FailureCode::BadThunk, error.to_string()),
        })
    }

    /// Has it fetched; its end comes later.
    fn begin(self: &Arc<Self>, wanted: &Arc<Wanted>, request: Option<&Arc<Request>>) -> Result<(), Fault> {
        let mut under_way = self.under_way.lock();
        if under_way.len() >= UNDER_WAY_MAX {
            let why = format!("{UNDER_WAY_MAX} sources are waited for already; try again later");
            return Err(Fault::new(FailureCode::Resources, why));
        }
        if let Some(code) = request.and_then(|request| request.stopped()) {
            // Whoever stopped it looked here before it came.
            return Err(Fault::new(code, "nobody waits for it any more; it was not fetched"));
        }
        let entry =
            UnderWay { request: request.map(|request| request.id()), task: None, wanted: Arc::clone(wanted) };
        let entry = under_way.entry(wanted.job).insert_entry(entry);
        let (sources, wanted) = (Arc::clone(self), Arc::clone(wanted));
        let spawned = self.spawn(async move {
            let brought = sources.bring(&wanted).await;
            let keeps_failure = brought.is_err();
            let end = move || {
                // Who stopped it has ended it.
                if sources.under_way.lock().remove(&wanted.job).is_some() {
                    sources.end(&wanted, brought);
                }
            };
            // To keep something may wait for memory, and this thread is all there is.
            if keeps_failure {
                tokio::task::spawn_blocking(end);
            } else {
                end();
            }
        });
        match spawned {
            Ok(task) => {
                entry.into_mut().task = Some(task);
                Ok(())
            }
            Err(fault) => {
                entry.remove();
                Err(fault)
            }
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<AbortHandle, Fault> {
        let mut begun = self.runtime.lock();
        if let Begun::No = &*begun {
            let runtime = runtime().map_err(|error| {
                Fault::new(FailureCode::Resources, format!("no thread for what is fetched: {error}"))
            })?;
            *begun = Begun::Yes(runtime);
        }
        match &*begun {
            Begun::Yes(runtime) => Ok(runtime.spawn(task).abort_handle()),
            _ => Err(Fault::new(FailureCode::Cancelled, "the node is shutting down")),
        }
    }

    /// Brings the data into the store.
    async fn bring(&self, wanted: &Wanted) -> Result<Handle, Fault> {
        let source = &wanted.source;
        let known = self.known(wanted).await;
        let download = Download {
            urls: source.urls.clone(),
            size: source.len(),
            etag: match &source.validator {
                Validator::Etag(etag) => Some(etag.clone()),
                _ => None,
            },
            sha256: match source.validator {
                Validator::Sha256(digest) => Some(digest),
                _ => None,
            },
            known_etag: known.as_ref().map(|(etag, _)| etag.clone()),
        };
        let mut sink = StoreSink::new(Arc::clone(&self.store), Arc::clone(&self.unfinished));
        let brought = self.downloads.bring(&download, &mut sink).await;
        let etag = match (brought, known) {
            (Ok(Downloaded::Known), Some((_, handle))) => {
                self.counts.unchanged.fetch_add(1, Ordering::Relaxed);
                return Ok(handle);
            }
            (Ok(Downloaded::Whole { etag }), _) => etag,
            (Ok(Downloaded::Known), None) => None,
            (Err(error), _) => {
                let code = if sink.is_refused() { FailureCode::Resources } else { FailureCode::MissingData };
                return Err(Fault::new(code, error.to_string()));
            }
        };
        let len = sink.len();
        let lost = || Fault::new(FailureCode::Resources, "it was lost while it was kept");
        let handle = sink.kept().ok_or_else(lost)?;
        if let Validator::Ref(expected) = source.validator
            && expected.definition() != handle
        {
            let url = source.urls.first().map_or("", String::as_str);
            let detail = format!("{url}: what came is {handle}, not {}", expected.definition());
            return Err(Fault::new(FailureCode::MissingData, detail));
        }
        self.counts.fetched.fetch_add(1, Ordering::Relaxed);
        self.counts.bytes.fetch_add(len, Ordering::Relaxed);
        if let Some(etag) = etag.filter(|_| !source.is_bound()) {
            let mut known = self.known.lock();
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.insert(wanted.thunk, (etag, handle));
        }
        Ok(handle)
    }

    /// What came last, if it is still here.
    async fn known(&self, wanted: &Wanted) -> Option<(String, Handle)> {
        let known = self.known.lock().get(&wanted.thunk).cloned()?;
        let (store, handle) = (Arc::clone(&self.store), known.1);
        let is_here = tokio::task::spawn_blocking(move || store.contains(handle)).await;
        matches!(is_here, Ok(Ok(true))).then_some(known)
    }

    fn end(&self, wanted: &Wanted, brought: Result<Handle, Fault>) {
        let cost = Cost { nanos: wanted.begun.elapsed().as_nanos() as u64, fuel: 0 };
        let is_lasting = brought.is_ok() && wanted.source.is_bound();
        let result = brought.unwrap_or_else(|fault| {
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
            self.failure(wanted.thunk, &fault)
        });
        self.resume(wanted.job, Outcome { result, cost, is_lasting });
    }

    fn resume(&self, job: JobId, outcome: Outcome) {
        self.scheduler.resume(job, Event::Applied(outcome));
    }

    fn failure(&self, thunk: Handle, fault: &Fault) -> Handle {
        let detail = self.store.keep_blob(fault.detail.as_bytes());
        let (failure, tree) = Failure { code: fault.code, application: thunk, detail }.to_tree();
        self.store.keep_tree(tree.view());
        failure
    }

    /// Ends what waits here for a request, which was marked as stopped before. Who
    /// waits for the same on behalf of another request begins anew.
    pub(crate) fn stop(&self, request: u64, code: FailureCode) {
        let mut under_way = self.under_way.lock();
        let stopped: Vec<UnderWay> =
            under_way.extract_if(|_, one| one.request == Some(request)).map(|(_, one)| one).collect();
        drop(under_way);
        for one in stopped {
            if let Some(task) = one.task {
                task.abort();
            }
            self.end(&one.wanted, Err(Fault::new(code, "nobody waits for it any more; it was not fetched")));
        }
    }

    /// What became of sources so far.
    pub(crate) fn stats(&self) -> SourceStats {
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SourceStats {
            pending: self.under_way.lock().len() as u64,
            fetched: number(&self.counts.fetched),
            unchanged: number(&self.counts.unchanged),
            failed: number(&self.counts.failed),
            bytes: number(&self.counts.bytes),
            unfinished_bytes: self.unfinished.bytes(),
        }
    }

    /// Takes nothing more; what is under way was stopped with its requests.
    pub(crate) fn close(&self) {
        if let Begun::Yes(runtime) = std::mem::replace(&mut *self.runtime.lock(), Begun::Over) {
            // A name that is being looked up is not waited for.
            runtime.shutdown_background();
        }
        let left: Vec<UnderWay> = self.under_way.lock().drain().map(|(_, one)| one).collect();
        for one in left {
            self.end(&one.wanted, Err(Fault::new(FailureCode::Cancelled, "the node is shutting down")));
        }
    }
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("sinew-sources")
        .enable_all()
        .build()
}
