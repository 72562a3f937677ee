// SPDX-License-Identifier: Apache-2.0
//! A node's HTTP API as functions. Problems become [`Stop`]s.

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, RANGE};
use hyper::http::request::Builder;
use hyper::{Method, Request, Response};
use objects::Handle;
use serde_json::{Value, json};

use crate::address::Address;
use crate::client::{Client, Outgoing, whole};
use crate::exit::{Code, Stop};
use crate::expression::closest;

/// Longest JSON answer that is read into memory.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// The first words of handles' text forms.
const HANDLE_WORDS: [&str; 11] =
    ["lit", "blob", "tree", "blobref", "treeref", "failure", "app", "sel", "ident", "strict", "shallow"];
const BUNDLE: &str = "application/vnd.sinew.bundle";
pub(crate) const JSON: &str = "application/json";

/// What an evaluation's request says besides the computation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wishes {
    pub(crate) deadline_ms: Option<u64>,
    /// Within how long the result is wanted, and no sooner.
    pub(crate) by_ms: Option<u64>,
    pub(crate) priority: Option<&'static str>,
    /// With a receipt.
    pub(crate) receipt: bool,
    /// Run anew, whatever is remembered.
    pub(crate) fresh: bool,
}

impl Wishes {
    fn query(&self) -> String {
        let deadline = self.deadline_ms.map(|ms| format!("deadline_ms={ms}"));
        let priority = self.priority.map(|priority| format!("priority={priority}"));
        let by = self.by_ms.map(|ms| format!("by_ms={ms}"));
        let receipt = self.receipt.then(|| "receipt=true".to_owned());
        let fresh = self.fresh.then(|| "fresh=true".to_owned());
        let parts: Vec<String> = [deadline, by, priority, receipt, fresh].into_iter().flatten().collect();
        if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
    }
}

/// How far something is to be kept before it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Level {
    /// In the node's memory; it is written to the disk soon
    Memory,
    /// On the node's disk, synced
    Disk,
    /// In the node's durable tier too
    Tier,
}

/// A node, over one connection.
pub(crate) struct Node {
    client: Client,
    /// How far what is put and labelled is to be kept before the node answers; `None`: as it does.
    pub(crate) until: Option<Level>,
}

impl Node {
    pub(crate) fn new(address: Address) -> Self {
        Self { client: Client::new(address), until: None }
    }

    /// Where it is.
    pub(crate) fn address(&self) -> Address {
        self.client.address().clone()
    }

    /// One more connection to it.
    pub(crate) fn connection(&self) -> Client {
        Client::new(self.client.address().clone())
    }

    /// The same node, over another connection.
    pub(crate) fn another(&self) -> Self {
        Self { client: self.connection(), until: self.until }
    }

    /// What is under a path of the node's, as far as its address is a URL.
    pub(crate) fn url(&self, path: &str) -> String {
        match self.client.address() {
            Address::Unix(_) => path.to_owned(),
            address @ Address::Tcp { .. } => format!("{address}{path}"),
        }
    }

    /// Where the node answers by TCP, as it says itself. `None`: nowhere, or we may not know.
    pub(crate) async fn listens_at(&mut self) -> Option<String> {
        let status = self.json(Request::get("/v1/status"), whole(Bytes::new())).await.ok()?;
        status["url"].as_str().map(str::to_owned)
    }

    /// Sends a request; the answer is whatever it is.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<Outgoing>,
    ) -> anyhow::Result<Response<Incoming>> {
        self.client.send(request).await
    }

    /// Sends a request; an answer that is a problem is an error.
    pub(crate) async fn send(
        &mut self,
        request: Builder,
        body: Outgoing,
    ) -> anyhow::Result<Response<Incoming>> {
        let response = self.client.send(request.body(body)?).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = collect(response.into_body()).await.unwrap_or_default();
        let problem = serde_json::from_slice(&body).unwrap_or(Value::Null);
        Err(Stop::from_problem(status.as_u16(), problem).into())
    }

    /// Sends a request whose answer is JSON.
    pub(crate) async fn json(&mut self, request: Builder, body: Outgoing) -> anyhow::Result<Value> {
        let response = self.send(request, body).await?;
        let body = collect(response.into_body()).await?;
        serde_json::from_slice(&body).context("the node's answer is not JSON")
    }

    fn until(&self, path: &str) -> String {
        // The tier is waited for once, at the end.
        match self.until {
            None => path.to_owned(),
            Some(Level::Memory) => format!("{path}?until=memory"),
            Some(Level::Disk | Level::Tier) => format!("{path}?until=disk"),
        }
    }

    /// Waits until the durable tier has this with all that it names, if it is to have what was put.
    pub(crate) async fn wait_until(&mut self, root: Handle) -> anyhow::Result<()> {
        if self.until == Some(Level::Tier) {
            self.flush(&json!({"handles": [root.to_string()]})).await?;
        }
        Ok(())
    }

    /// Waits until the durable tier has everything, so many seconds at most; how it fares then.
    pub(crate) async fn flush_tier(&mut self, patience_s: Option<u64>) -> anyhow::Result<Value> {
        self.flush(&json!({"labels": true, "patience_s": patience_s})).await
    }

    async fn flush(&mut self, wish: &Value) -> anyhow::Result<Value> {
        let request = Request::post("/v1/tier/flush").header(CONTENT_TYPE, JSON);
        self.json(request, whole(wish.to_string())).await
    }

    /// Stores a body as a blob.
    pub(crate) async fn put_blob(&mut self, body: Outgoing) -> anyhow::Result<Handle> {
        let request = Request::post(self.until("/v1/blobs")).header(CONTENT_TYPE, "application/octet-stream");
        handle_in(&self.json(request, body).await?["handle"])
    }

    /// Stores a bundle without a goal.
    pub(crate) async fn put_bundle(&mut self, bundle: Vec<u8>) -> anyhow::Result<()> {
        let request = Request::post(self.until("/v1/bundles")).header(CONTENT_TYPE, BUNDLE);
        self.json(request, whole(bundle)).await.map(|_| ())
    }

    /// Whether the node has an object.
    pub(crate) async fn has(&mut self, handle: Handle) -> anyhow::Result<bool> {
        let request = Request::head(format!("/v1/objects/{handle}"));
        let response = self.client.send(request.body(whole(Bytes::new()))?).await?;
        Ok(response.status().is_success())
    }

    /// An object's bytes, or a part of them, as they arrive.
    pub(crate) async fn read(
        &mut self,
        handle: Handle,
        range: Option<std::ops::Range<u64>>,
    ) -> anyhow::Result<Incoming> {
        let mut request =
            Request::get(format!("/v1/objects/{handle}")).header(ACCEPT, "application/octet-stream");
        if let Some(range) = range {
            request = request.header(RANGE, format!("bytes={}-{}", range.start, range.end.saturating_sub(1)));
        }
        Ok(self.send(request, whole(Bytes::new())).await?.into_body())
    }

    /// An object of at most `most` bytes.
    pub(crate) async fn read_whole(&mut self, handle: Handle, most: usize) -> anyhow::Result<Bytes> {
        if let Some(literal) = handle.literal_bytes() {
            return Ok(Bytes::copy_from_slice(literal));
        }
        let body = Limited::new(self.read(handle, None).await?, most).collect().await;
        body.map(|body| body.to_bytes()).map_err(|error| anyhow!("reading {handle}: {error}"))
    }

    /// Some entries of a tree.
    pub(crate) async fn entries(
        &mut self,
        tree: Handle,
        offset: u64,
        limit: u64,
    ) -> anyhow::Result<Vec<Handle>> {
        let request = Request::get(format!("/v1/objects/{tree}?offset={offset}&limit={limit}"));
        let listing = self.json(request.header(ACCEPT, JSON), whole(Bytes::new())).await?;
        let entries = listing["entries"].as_array().context("the node's answer has no entries")?;
        entries.iter().map(handle_in).collect()
    }

    /// Evaluates the goal of a bundle; the answer is JSON, or lines of it.
    pub(crate) async fn evaluate(
        &mut self,
        bundle: Vec<u8>,
        wishes: &Wishes,
        accept: &str,
    ) -> anyhow::Result<Incoming> {
        let request = Request::post(format!("/v1/evaluate{}", wishes.query()));
        let request = request.header(CONTENT_TYPE, BUNDLE).header(ACCEPT, accept);
        Ok(self.send(request, whole(bundle)).await?.into_body())
    }

    /// Evaluates a goal of which the node may know everything by its name.
    pub(crate) async fn evaluate_known(&mut self, goal: Handle, wishes: &Wishes) -> anyhow::Result<Value> {
        let Wishes { deadline_ms, by_ms, priority, receipt, fresh } = wishes;
        let wish = json!({
            "handle": goal.to_string(), "deadline_ms": deadline_ms, "by_ms": by_ms, "priority": priority,
            "receipt": receipt, "fresh": fresh,
        });
        let request = Request::post("/v1/evaluate").header(CONTENT_TYPE, JSON);
        self.json(request, whole(wish.to_string())).await
    }

    /// How many of its threads evaluate.
    pub(crate) async fn workers(&mut self) -> anyhow::Result<u64> {
        let status = self.json(Request::get("/v1/status"), whole(Bytes::new())).await?;
        status["numbers"]["workers"].as_u64().context("the node's answer has no workers")
    }

    /// The handle that a text names: itself, or a label's.
    pub(crate) async fn resolve(&mut self, text: &str) -> anyhow::Result<Handle> {
        let label = text.strip_prefix('#').unwrap_or(text);
        let not_handle = match label.parse::<Handle>() {
            Ok(handle) => return Ok(handle),
            Err(error) => error,
        };
        if !is_label(label) {
            let stop = Stop::new(Code::Usage, format!("{text:?} is neither a handle nor a label's name"));
            return Err(stop.suggest("`sinew label` lists the labels").into());
        }
        let found = self.label(label).await;
        let kind = label.split_once('-').map_or("", |(kind, _)| kind);
        let meant_handle = HANDLE_WORDS.contains(&kind);
        found.map_err(|error| match error.downcast::<Stop>() {
            Ok(stop) if meant_handle && stop.code == Code::NotFound => {
                let message = format!("{label:?} is no label, and {not_handle}");
                Stop { message, ..stop }.into()
            }
            Ok(stop) => stop.into(),
            Err(error) => error,
        })
    }

    /// The handle under a label.
    pub(crate) async fn label(&mut self, name: &str) -> anyhow::Result<Handle> {
        let request = Request::get(format!("/v1/labels/{name}"));
        let error = match self.json(request, whole(Bytes::new())).await {
            Ok(label) => return handle_in(&label["handle"]),
            Err(error) => error,
        };
        if error.downcast_ref::<Stop>().is_none_or(|stop| stop.code != Code::NotFound) {
            return Err(error);
        }
        let known = self.labels().await?;
        let stop = Stop::new(Code::NotFound, format!("there is no label {name:?}"));
        Err(match closest(name, known.iter().map(|(known, _)| known.as_str())) {
            Some(near) => stop.suggest(format!("did you mean {near}?")),
            None => stop.suggest("`sinew label` lists the labels; `sinew label NAME HANDLE` makes one"),
        }
        .into())
    }

    /// All labels.
    pub(crate) async fn labels(&mut self) -> anyhow::Result<Vec<(String, Handle)>> {
        let answer = self.json(Request::get("/v1/labels"), whole(Bytes::new())).await?;
        let labels = answer["labels"].as_array().context("the node's answer has no labels")?;
        let label = |label: &Value| {
            let name = label["name"].as_str().context("a label has no name")?;
            Ok((name.to_owned(), handle_in(&label["handle"])?))
        };
        labels.iter().map(label).collect()
    }

    /// Points a label at a handle.
    pub(crate) async fn set_label(&mut self, name: &str, handle: Handle) -> anyhow::Result<()> {
        // What it names is waited for with it.
        let path = format!("/v1/labels/{}", checked_label(name)?);
        let path = match self.until {
            Some(Level::Tier) => format!("{path}?until=tier"),
            _ => self.until(&path),
        };
        let request = Request::put(path).header(CONTENT_TYPE, JSON);
        let body = json!({"handle": handle.to_string()}).to_string();
        self.json(request, whole(body)).await.map(|_| ())
    }

    /// Removes a label.
    pub(crate) async fn remove_label(&mut self, name: &str) -> anyhow::Result<()> {
        let path = format!("/v1/labels/{}", checked_label(name)?);
        let request = Request::builder().method(Method::DELETE).uri(path);
        self.send(request, whole(Bytes::new())).await.map(|_| ())
    }

    /// The story of a handle.
    pub(crate) async fn explain(&mut self, handle: Handle) -> anyhow::Result<Value> {
        self.json(Request::get(format!("/v1/explain/{handle}")), whole(Bytes::new())).await
    }
}

/// A body within bounds.
pub(crate) async fn collect(body: Incoming) -> anyhow::Result<Bytes> {
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    body.map(|body| body.to_bytes()).map_err(|error| anyhow!("reading the node's answer: {error}"))
}

/// Whether a text can be a label's name, and so stand in a URL as it is.
pub(crate) fn is_label(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/' | b'-');
    !name.is_empty() && name.len() <= 128 && name.bytes().all(allowed)
}

fn checked_label(name: &str) -> Result<&str, Stop> {
    let name = name.strip_prefix('#').unwrap_or(name);
    if is_label(name) && name.parse::<Handle>().is_err() {
        return Ok(name);
    }
    let stop = Stop::new(Code::Usage, format!("{name:?} cannot be a label's name"));
    Err(stop.suggest("names have 1 to 128 characters of A-Z a-z 0-9 . _ / - and do not look like handles"))
}

pub(crate) fn handle_in(value: &Value) -> anyhow::Result<Handle> {
    let text = value.as_str().context("the node's answer has no handle")?;
    text.parse().with_context(|| format!("the node's answer has the bad handle {text:?}"))
}
