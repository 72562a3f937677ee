// SPDX-License-Identifier: Apache-2.0
//! A node in a few lines: a store in memory, and evaluations that end as a
//! test scripted them.

use std::collections::HashMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use objects::{BundleRecord, Cost, Failure, FailureCode, Handle, TreeBuilder, TreeView};
use store::{BlobWriter, Collected, Object, Record, Remembered, Rule, Store};
use tokio::time::Instant;

use super::functions::FakeFunctions;
use crate::Functions;
use crate::backend::*;

/// How an evaluation ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Script {
    /// With this result, after some applications.
    Gives(Handle, u64),
    /// With a failure of this code; the detail says "why".
    Fails(FailureCode),
    /// With this result, after a while.
    Takes(Duration, Handle),
    /// Not at all.
    Hangs,
    /// By never beginning.
    Refused,
    /// By a bug of ours.
    Panics,
    /// With a failure of this code once, and then with this result.
    Recovers(FailureCode, Handle),
}

pub(crate) struct Fake {
    pub(crate) store: Store,
    pub(super) scripts: Mutex<HashMap<Handle, Script>>,
    pub(super) requests: Mutex<Vec<EvaluateRequest>>,
    /// Evaluations dropped before their end.
    pub(super) cancelled: Arc<AtomicUsize>,
    pub(super) waiting_for: Mutex<Option<String>>,
    /// How what no script is about ends; requests to functions have no names
    /// that could be known before.
    pub(super) otherwise: Mutex<Option<Script>>,
    pub(super) functions: FakeFunctions,
    pub(super) keys: super::keys::FakeKeys,
    pub(super) queue: Option<Arc<dyn queue::Queue>>,
    pub(super) callbacks: FakeCallbacks,
    /// What requests consisted of, once they had ended.
    pub(super) dropped: Mutex<Vec<Handle>>,
    /// The disk takes nothing.
    pub(super) disk_stands: AtomicBool,
    /// What was written to it in bundles.
    pub(super) commits: Mutex<Vec<Vec<Handle>>>,
    /// Parts of objects that were read.
    pub(super) parts: Mutex<Vec<std::ops::Range<u64>>>,
    /// Collections that were asked for.
    pub(super) collections: Mutex<Vec<CollectRequest>>,
    /// Exports that were asked for.
    pub(super) exports: Mutex<Vec<crate::Export>>,
    /// How the next exports end, the last first; as their URLs say after that.
    pub(super) export_ends: Mutex<Vec<Result<crate::Exported, crate::ExportError>>>,
    /// What was dropped: how long its making takes, and its bytes. It is here once that has begun.
    pub(super) droppings: Mutex<HashMap<Handle, (Duration, Vec<u8>)>>,
}

impl Fake {
    pub(crate) fn new() -> Self {
        let options = store::Options { home: None, memory_bytes: 256 << 20, relations_bytes: 1 << 20 };
        Self {
            store: Store::open(options).unwrap(),
            scripts: Mutex::default(),
            requests: Mutex::default(),
            cancelled: Arc::default(),
            waiting_for: Mutex::default(),
            otherwise: Mutex::default(),
            functions: FakeFunctions::default(),
            keys: super::keys::FakeKeys::default(),
            queue: None,
            callbacks: FakeCallbacks::default(),
            dropped: Mutex::default(),
            disk_stands: AtomicBool::default(),
            commits: Mutex::default(),
            parts: Mutex::default(),
            collections: Mutex::default(),
            exports: Mutex::default(),
            export_ends: Mutex::default(),
            droppings: Mutex::default(),
        }
    }

    pub(super) fn script(&self, goal: Handle, script: Script) {
        self.scripts.lock().unwrap().insert(goal, script);
    }

    /// Has functions give this result from now on.
    pub(super) fn gives(&self, head: &str, body: &[u8]) {
        let result = [&(head.len() as u32).to_le_bytes(), head.as_bytes(), body].concat();
        let result = self.store.put_blob(&result).unwrap();
        *self.otherwise.lock().unwrap() = Some(Script::Gives(result, 1));
    }

    /// Head and body of the last request to a function.
    pub(super) fn last_call(&self) -> (serde_json::Value, Vec<u8>) {
        let requests = self.requests.lock().unwrap();
        let definition = requests.last().unwrap().goal.thunk().unwrap().definition();
        let tree = self.store.get(definition).unwrap().unwrap();
        let entries: Vec<Handle> = tree.as_tree().iter().collect();
        let bytes = |handle: Handle| match handle.literal_bytes() {
            Some(bytes) => bytes.to_vec(),
            None => self.store.get(handle).unwrap().unwrap().bytes().to_vec(),
        };
        let [.., head, body] = entries[..] else { panic!("no call: {entries:?}") };
        let mut told = serde_json::Map::new();
        for line in bytes(head).split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            told.extend(serde_json::from_slice::<serde_json::Map<_, _>>(line).unwrap());
        }
        (told.into(), bytes(body))
    }

    /// A thunk that is somebody's application.
    pub(crate) fn application(&self, argument: &[u8]) -> Handle {
        let entries = [Handle::literal(b"").unwrap(), Handle::blob(b"procedure"), Handle::blob(argument)];
        let tree: TreeBuilder = entries.into_iter().collect();
        self.store.put_tree(tree.view()).unwrap().application().unwrap()
    }

    /// A stored failure of `application`.
    pub(super) fn failure(&self, code: FailureCode, application: Handle) -> (Handle, Failure) {
        let failure = Failure { code, application, detail: Handle::blob(b"why") };
        let (handle, tree) = failure.to_tree();
        self.store.put_tree(tree.view()).unwrap();
        (handle, failure)
    }
}

struct FakeEvaluation {
    script: Script,
    end: Evaluated,
    began: Instant,
    ended: bool,
    cancelled: Arc<AtomicUsize>,
}

impl Evaluation for FakeEvaluation {
    fn finished(&mut self) -> Pin<Box<dyn Future<Output = Evaluated> + Send + '_>> {
        Box::pin(async move {
            match self.script {
                Script::Hangs => std::future::pending().await,
                Script::Takes(time, _) => tokio::time::sleep_until(self.began + time).await,
                Script::Panics => panic!("a bug that the test planted"),
                _ => {}
            }
            self.ended = true;
            self.end
        })
    }

    fn progress(&self) -> Progress {
        Progress { applied: 3, waiting: 4, known: 9, done: 7, memo_hits: 5 }
    }
}

impl Drop for FakeEvaluation {
    fn drop(&mut self) {
        if !self.ended {
            self.cancelled.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Backend for Fake {
    fn drop_passed(&self, handle: Handle) {
        self.dropped.lock().unwrap().push(handle);
    }

    fn blob_writer(&self) -> Result<BlobWriter, store::Error> {
        self.store.blob_writer()
    }

    fn put_tree(&self, tree: TreeView<'_>) -> Result<Handle, store::Error> {
        self.store.put_tree(tree)
    }

    fn put_many(&self, records: &[BundleRecord<'_>]) -> Result<Vec<Handle>, store::Error> {
        while self.disk_stands.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let handles = self.store.put_many(records)?;
        self.commits.lock().unwrap().push(handles.clone());
        Ok(handles)
    }

    fn keep_many(&self, records: &[BundleRecord<'_>]) -> Result<Vec<Handle>, store::Error> {
        self.store.put_many(records)
    }

    fn local(&self, handle: Handle) -> Option<Object> {
        // Others are on a disk.
        self.store.get(handle).ok().flatten().filter(|_| handle.size() < 1024)
    }

    fn get(&self, handle: Handle) -> Result<Option<Object>, store::Error> {
        self.store.get(handle)
    }

    fn get_range(
        &self,
        handle: Handle,
        range: std::ops::Range<u64>,
    ) -> Result<Option<Vec<u8>>, store::Error> {
        self.parts.lock().unwrap().push(range.clone());
        self.store.read_range(handle, range)
    }

    fn inventory(&self, sought: &store::Sought) -> Result<store::Inventory, store::Error> {
        self.store.inventory(sought)
    }

    fn renew(&self, handle: Handle) -> Result<bool, store::Error> {
        self.store.renew(handle)
    }

    fn collect(&self, wish: CollectRequest) -> Result<CollectedHere, store::Error> {
        self.collections.lock().unwrap().push(wish);
        match wish.is_trial {
            true => Err(store::Error::Collecting),
            false => Ok(CollectedHere {
                disk: Collected { objects: 3, bytes: 500, ..Collected::default() },
                tier: Some(Err("it does not answer".to_owned())),
            }),
        }
    }

    fn collect_tier(
        &self,
        kept: Option<Duration>,
        _is_trial: bool,
    ) -> Result<store::TierCollected, store::Error> {
        let moved_bytes = kept.unwrap_or_default().as_secs();
        Ok(store::TierCollected { objects: 7, moved_bytes, ..store::TierCollected::default() })
    }

    fn make_again(&self, handle: Handle) -> Result<Option<Begun>, store::Error> {
        let dropped = self.droppings.lock().unwrap().get(&handle).cloned();
        let Some((time, bytes)) = dropped else { return Ok(None) };
        let goal = handle.identification().unwrap().strict().unwrap();
        self.script(goal, Script::Takes(time, self.store.put_blob(&bytes).unwrap()));
        let request = EvaluateRequest {
            goal,
            deadline: None,
            priority: crate::Priority::Normal,
            is_repeatable: true,
            streams: false,
            by: None,
            recording: None,
            tenant: None,
        };
        Ok(Some(self.evaluate(request)))
    }

    fn exporter(&self) -> Option<&dyn crate::Exporter> {
        Some(self)
    }

    fn check(
        &self,
        bytes_per_second: Option<u64>,
        watch: &mut store::Watch<'_>,
    ) -> Result<store::Checked, store::Error> {
        (watch.progress)(bytes_per_second.unwrap_or_default(), 10);
        (watch.found)(store::Finding {
            kind: "damaged",
            harm: store::Harm::Loss,
            place: "packs/0000000000.pack".to_owned(),
            object: None,
            what: "its bytes are not its own".to_owned(),
        });
        Ok(store::Checked { losses: 1, ..store::Checked::default() })
    }

    fn back_up(
        &self,
        to: &Path,
        _point: &str,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<store::Backed, store::Error> {
        match to.ends_with("taken") {
            true => Err(store::Error::NotEmpty { path: to.to_owned() }),
            // For ever, unless somebody says that nobody waits.
            false if to.ends_with("endless") => loop {
                if !progress(1, 1) {
                    return Err(store::Error::Stopped);
                }
                std::thread::yield_now();
            },
            false => Ok(store::Backed { labels: 3, ..store::Backed::default() }),
        }
    }

    fn restore_labels(
        &self,
        _from: &Path,
        point: Option<&str>,
        labels: &[String],
        _replaces: bool,
        _progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<(String, store::Restored), store::Error> {
        let restored = store::Restored { labels: labels.len() as u64, ..store::Restored::default() };
        Ok((point.unwrap_or("newest").to_owned(), restored))
    }

    fn evaluate(&self, request: EvaluateRequest) -> Result<Box<dyn Evaluation>, String> {
        self.requests.lock().unwrap().push(request.clone());
        let scripted = self.scripts.lock().unwrap().get(&request.goal).copied();
        let scripted = scripted.or(*self.otherwise.lock().unwrap());
        let script = scripted.unwrap_or(Script::Gives(request.goal, 0));
        let (result, failure, applied) = match script {
            Script::Refused => return Err("the queue is full".to_owned()),
            Script::Fails(code) => {
                let (handle, failure) = self.failure(code, request.goal);
                (handle, Some(failure), 1)
            }
            Script::Recovers(code, result) => {
                *self.otherwise.lock().unwrap() = Some(Script::Gives(result, 1));
                let (handle, failure) = self.failure(code, request.goal);
                (handle, Some(failure), 1)
            }
            Script::Gives(result, applied) => (result, None, applied),
            Script::Takes(_, result) => (result, None, 1),
            Script::Hangs | Script::Panics => (request.goal, None, 0),
        };
        let end = Evaluated {
            result,
            failure,
            applied,
            wall: Duration::from_nanos(1234),
            ran: Duration::ZERO,
            fuel: 0,
            cost: Cost { inputs_bytes: 10, reserved_bytes: 20, fuel: 30, uncounted: 0 },
            uncounted_nanos: 4_000,
        };
        Ok(Box::new(FakeEvaluation {
            script,
            end,
            began: Instant::now(),
            ended: false,
            cancelled: self.cancelled.clone(),
        }))
    }

    fn explain(&self, handle: Handle) -> Result<Explanation, store::Error> {
        let record = Record { result: Handle::u64(7), rule: Rule::Apply, nanos: 1500, fuel: 42 };
        let thunk = self.application(b"argument");
        Ok(Explanation {
            handle,
            place: Place::Memory,
            steps: vec![Remembered { key: handle, record, was_hit: false }],
            made_by: vec![Remembered { key: thunk, record, was_hit: true }],
            derivation: Some(Derivation {
                recipe: thunk,
                is_dropped: true,
                nanos: 1500,
                depth: 3,
                stays: None,
            }),
            transfer: Some(Transfer { nanos: 9000, comes_by: ComesBy::Recipe { nanos: 2500 } }),
            compilation: vec![("compiler".to_owned(), "fake".to_owned())],
        })
    }

    fn set_label(&self, name: &str, handle: Handle) -> Result<(), store::Error> {
        self.store.set_label(name, handle)
    }

    fn label(&self, name: &str) -> Result<Option<Handle>, store::Error> {
        self.store.label(name)
    }

    fn remove_label(&self, name: &str) -> Result<bool, store::Error> {
        self.store.remove_label(name)
    }

    fn labels(&self) -> Result<Vec<(String, Handle)>, store::Error> {
        self.store.labels()
    }

    fn functions(&self) -> Option<&dyn Functions> {
        Some(&self.functions)
    }

    fn keys(&self) -> Option<&dyn crate::Keys> {
        Some(&self.keys)
    }

    fn callbacks(&self) -> Option<&dyn crate::Callbacks> {
        Some(&self.callbacks)
    }

    fn signing(&self) -> Option<&dyn crate::Signing> {
        Some(&FakeSigning)
    }

    fn queue(&self) -> Option<Arc<dyn queue::Queue>> {
        self.queue.clone()
    }

    fn ready(&self) -> Result<(), String> {
        self.waiting_for.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn gauges(&self) -> Vec<Gauge> {
        let gauge = |name, is_counter, value| Gauge { name, help: "A number", is_counter, value };
        vec![gauge("store_memory_bytes", false, 12), gauge("applications_total", true, 34)]
    }
}

/// Signs with what anybody can reckon.
struct FakeSigning;

impl crate::Signing for FakeSigning {
    fn public_key(&self) -> [u8; 32] {
        [7; 32]
    }

    fn sign(&self, statement: &objects::Statement) -> [u8; objects::SIGNATURE_LEN] {
        let hash = *Handle::blob(&statement.to_bytes()).as_bytes();
        [hash, hash].concat().try_into().unwrap()
    }
}

/// Takes results as it is told to, and remembers them.
#[derive(Default)]
pub(super) struct FakeCallbacks {
    /// What the next ones are answered with; 200 after the last.
    pub(super) answers: Mutex<Vec<Result<u16, crate::Unsent>>>,
    /// URL, headers and body of those that came.
    pub(super) sent: Mutex<Vec<(String, axum::http::HeaderMap, Vec<u8>)>>,
}

impl crate::Callbacks for FakeCallbacks {
    fn check(&self, url: &str) -> Result<(), String> {
        if url.starts_with("https://") { Ok(()) } else { Err("it is not allowed".to_owned()) }
    }

    fn send<'a>(
        &'a self,
        url: &'a str,
        headers: axum::http::HeaderMap,
        body: axum::body::Bytes,
    ) -> crate::Sending<'a> {
        self.sent.lock().unwrap().push((url.to_owned(), headers, body.to_vec()));
        let answer = self.answers.lock().unwrap().pop().unwrap_or(Ok(200));
        Box::pin(async move { answer })
    }
}

impl crate::Exporter for Fake {
    fn export<'a>(&'a self, export: &'a crate::Export) -> crate::Exporting<'a> {
        self.exports.lock().unwrap().push(export.clone());
        if let Some(end) = self.export_ends.lock().unwrap().pop() {
            return Box::pin(async { end });
        }
        let exported = match export.url.as_str() {
            "s3://bucket/failed" => Err(crate::ExportError::Failed("it is busy".to_owned())),
            "s3://bucket/refused" => Err(crate::ExportError::Refused("it is only read".to_owned())),
            "s3://bucket/missing" => Err(crate::ExportError::missing(export.object)),
            _ => Ok(crate::Exported { written: 2, written_bytes: 70, known: 1, known_bytes: 9 }),
        };
        Box::pin(async { exported })
    }
}
