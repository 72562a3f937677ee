// SPDX-License-Identifier: Apache-2.0
//! The part of a node's HTTP API that is about functions.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use objects::Handle;
use serde_json::{Value, json};

use crate::client::whole;
use crate::exit::{Code, Stop};
use crate::expression::closest;
use crate::manifest::is_function_name;
use crate::node_api::{JSON, Node};
use crate::python::Wanted;

/// What the node says of a deployment that it was asked to switch to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deployed {
    pub(crate) version: u64,
    /// As text: the command only passes it on.
    pub(crate) deployment: String,
    /// Whether another one served before.
    pub(crate) changed: bool,
    /// How long it took to be loaded.
    pub(crate) loading: Duration,
}

impl Deployed {
    fn read(answer: &Value) -> anyhow::Result<Self> {
        Ok(Self {
            version: answer["version"].as_u64().context("the node's answer has no version")?,
            deployment: answer["deployment"]
                .as_str()
                .context("the node's answer has no deployment")?
                .to_owned(),
            changed: answer["changed"].as_bool().unwrap_or(true),
            loading: Duration::from_micros(answer["loading_us"].as_u64().unwrap_or(0)),
        })
    }
}

/// Which records of requests are wanted.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogsWanted<'a> {
    pub(crate) function: Option<&'a str>,
    pub(crate) request_id: Option<&'a str>,
    /// Those with a higher number.
    pub(crate) after: u64,
    /// Those that ended since then, in milliseconds since 1970.
    pub(crate) since_ms: u64,
    pub(crate) failed: bool,
    /// That printed this, or failed with it.
    pub(crate) text: Option<&'a str>,
    /// With the time and the stream of each line.
    pub(crate) lines: bool,
    /// Also those that run, of which so many lines are known: `SPAN:LINES,…`.
    pub(crate) running: Option<String>,
    /// The newest so many.
    pub(crate) limit: usize,
}

/// What the node tells of them.
#[derive(Debug)]
pub(crate) struct Logs {
    pub(crate) records: Vec<Value>,
    pub(crate) running: Vec<Value>,
    /// The number of the last one of all.
    pub(crate) last: u64,
    /// Older ones that are wanted are not among them, for all would be too much.
    pub(crate) is_cut: bool,
}

impl LogsWanted<'_> {
    fn path(&self) -> String {
        let Self { after, since_ms, failed, lines, limit, .. } = self;
        let mut path =
            format!("/v1/logs?after={after}&since_ms={since_ms}&failed={failed}&lines={lines}&limit={limit}");
        let running = self.running.as_deref();
        let texts = [("function", self.function), ("request_id", self.request_id), ("text", self.text)];
        for (name, value) in texts.into_iter().chain([("running", running)]) {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={}", encoded(value)));
            }
        }
        path
    }
}

/// A text as a value of a query.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

impl Node {
    /// The Python that runs functions; `None` if the node has none, or is too old to say.
    pub(crate) async fn python(&mut self) -> anyhow::Result<Option<Wanted>> {
        let request = Request::get("/v1/interpreters/python");
        let told = self.json(request, whole(Bytes::new())).await;
        match told {
            Ok(told) => Ok(Wanted::read(&told, self.address().is_here())),
            Err(error) if is_not_found(&error) || is_older(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps a deployment as a function's version, and lets it serve its
    /// requests if it is to.
    pub(crate) async fn deploy(
        &mut self,
        name: &str,
        deployment: Handle,
        serve: bool,
    ) -> anyhow::Result<Deployed> {
        let request = Request::put(of(name)?).header(CONTENT_TYPE, JSON);
        let mut body = json!({"deployment": deployment.to_string()});
        if !serve {
            body["serve"] = false.into();
        }
        let body = body.to_string();
        Deployed::read(&self.json(request, whole(body)).await?)
    }

    /// All functions.
    pub(crate) async fn functions(&mut self) -> anyhow::Result<Vec<Value>> {
        let mut answer = self.json(Request::get("/v1/functions"), whole(Bytes::new())).await?;
        match answer["functions"].take() {
            Value::Array(functions) => Ok(functions),
            _ => anyhow::bail!("the node's answer has no functions"),
        }
    }

    /// One function; `None` if there is none of that name.
    pub(crate) async fn find_function(&mut self, name: &str) -> anyhow::Result<Option<Value>> {
        match self.json(Request::get(of(name)?), whole(Bytes::new())).await {
            Ok(function) => Ok(Some(function)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deploys functions, all of them or none, and lets them serve if they are to.
    pub(crate) async fn deploy_all(
        &mut self,
        wanted: &[(&str, Handle)],
        serve: bool,
        note: &str,
    ) -> anyhow::Result<Vec<Deployed>> {
        let one =
            |(name, deployment): &(&str, Handle)| json!({"name": name, "deployment": deployment.to_string()});
        let mut body = json!({"functions": wanted.iter().map(one).collect::<Vec<_>>(), "serve": serve});
        if !note.is_empty() {
            body["note"] = note.into();
        }
        let request = Request::post("/v1/functions").header(CONTENT_TYPE, JSON);
        let answer = self.json(request, whole(body.to_string())).await?;
        let all = answer["functions"].as_array().context("the node's answer has no functions")?;
        all.iter().map(Deployed::read).collect()
    }

    /// One function.
    pub(crate) async fn function(&mut self, name: &str) -> anyhow::Result<Value> {
        match self.find_function(name).await? {
            Some(function) => Ok(function),
            None => Err(self.no_function(name).await),
        }
    }

    /// The newest requests that are wanted, the oldest first, and what is printed by those that run.
    pub(crate) async fn logs(&mut self, wanted: &LogsWanted<'_>) -> anyhow::Result<Logs> {
        let mut answer = self.json(Request::get(wanted.path()), whole(Bytes::new())).await?;
        let running = match answer["running"].take() {
            Value::Array(running) => running,
            _ => Vec::new(),
        };
        match (answer["records"].take(), answer["last"].as_u64()) {
            (Value::Array(records), Some(last)) => {
                Ok(Logs { records, running, last, is_cut: answer["is_cut"] == true })
            }
            _ => anyhow::bail!("the node's answer has no records"),
        }
    }

    /// The newest records of a request and its calls, so many at most.
    pub(crate) async fn calls(
        &mut self,
        request_id: Option<&str>,
        limit: usize,
    ) -> anyhow::Result<Vec<Value>> {
        Ok(self.logs(&LogsWanted { request_id, limit, ..LogsWanted::default() }).await?.records)
    }

    /// Removes a function. Its versions' objects stay.
    pub(crate) async fn delete_function(&mut self, name: &str) -> anyhow::Result<()> {
        match self.send(Request::delete(of(name)?), whole(Bytes::new())).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Err(self.no_function(name).await),
            Err(error) => Err(error),
        }
    }

    /// Lets an earlier version serve again: the one before, or a given one.
    pub(crate) async fn roll_back(&mut self, name: &str, version: Option<u64>) -> anyhow::Result<Deployed> {
        let request = Request::post(format!("{}/rollback", of(name)?)).header(CONTENT_TYPE, JSON);
        match self.json(request, whole(json!({"version": version}).to_string())).await {
            Ok(answer) => Deployed::read(&answer),
            // It may be the version that there is not: then the node's words are the better ones.
            Err(error) if is_not_found(&error) && self.find_function(name).await?.is_none() => {
                Err(self.no_function(name).await)
            }
            Err(error) if is_not_found(&error) => Err(match error.downcast::<Stop>() {
                Ok(stop) => stop.suggest(format!("`sinew describe {name}` lists the versions")).into(),
                Err(error) => error,
            }),
            Err(error) => Err(error),
        }
    }

    /// Has an alias stand for versions with their percent of requests.
    pub(crate) async fn set_alias(
        &mut self,
        name: &str,
        alias: &str,
        shares: &[(u64, u32)],
    ) -> anyhow::Result<Value> {
        let versions: Vec<Value> =
            shares.iter().map(|(version, percent)| json!({"version": version, "percent": percent})).collect();
        let request = Request::put(alias_of(name, alias)?).header(CONTENT_TYPE, JSON);
        self.json(request, whole(json!({"versions": versions}).to_string())).await
    }

    /// Removes an alias.
    pub(crate) async fn remove_alias(&mut self, name: &str, alias: &str) -> anyhow::Result<()> {
        self.send(Request::delete(alias_of(name, alias)?), whole(Bytes::new())).await.map(drop)
    }

    /// The secrets: names, and who needs each.
    pub(crate) async fn secrets(&mut self) -> anyhow::Result<Vec<Value>> {
        let mut answer = self.json(Request::get("/v1/secrets"), whole(Bytes::new())).await?;
        match answer["secrets"].take() {
            Value::Array(secrets) => Ok(secrets),
            _ => anyhow::bail!("the node's answer has no secrets"),
        }
    }

    /// Sets a secret. Whether that changed it.
    pub(crate) async fn set_secret(&mut self, name: &str, value: String) -> anyhow::Result<bool> {
        let request = Request::put(format!("/v1/secrets/{name}")).header(CONTENT_TYPE, "text/plain");
        let answer = self.json(request, whole(value)).await?;
        answer["changed"].as_bool().context("the node's answer does not say whether it changed")
    }

    /// Removes a secret.
    pub(crate) async fn remove_secret(&mut self, name: &str) -> anyhow::Result<()> {
        self.send(Request::delete(format!("/v1/secrets/{name}")), whole(Bytes::new())).await.map(drop)
    }

    /// That there is no such function, and which one may have been meant.
    pub(crate) async fn no_function(&mut self, name: &str) -> anyhow::Error {
        let known = self.functions().await.unwrap_or_default();
        let names: Vec<&str> = known.iter().filter_map(|function| function["name"].as_str()).collect();
        let stop = Stop::new(Code::NotFound, format!("there is no function {name:?}"));
        let stop = match closest(name, names.iter().copied()) {
            Some(near) => stop.suggest(format!("did you mean {near}?")),
            None if names.is_empty() => {
                stop.suggest("there are none yet: `sinew new NAME`, then `sinew deploy`")
            }
            None => stop.suggest("`sinew list` lists the functions"),
        };
        stop.into()
    }
}

/// The path of a function's resource.
fn of(name: &str) -> Result<String, Stop> {
    checked(name).map(|name| format!("/v1/functions/{name}"))
}

/// The path of an alias of it.
fn alias_of(name: &str, alias: &str) -> Result<String, Stop> {
    if !is_function_name(alias) {
        let stop = Stop::new(Code::Usage, format!("{alias:?} cannot be an alias's name"));
        return Err(stop.suggest("names have 1 to 32 characters of a-z, 0-9 and -, and begin with a letter"));
    }
    Ok(format!("{}/aliases/{alias}", of(name)?))
}

/// A name that may stand in a URL as it is.
pub(crate) fn checked(name: &str) -> Result<&str, Stop> {
    if is_function_name(name) {
        return Ok(name);
    }
    let stop = Stop::new(Code::Usage, format!("{name:?} cannot be a function's name"));
    Err(stop.suggest("names have 1 to 63 characters of a-z, 0-9 and -, and begin with a letter"))
}

/// Whether the node knows of no such thing because it is older.
fn is_older(error: &anyhow::Error) -> bool {
    let problem = error.downcast_ref::<Stop>().and_then(|stop| stop.problem.as_ref());
    problem.and_then(|problem| problem["type"].as_str()).is_some_and(|kind| kind.ends_with(":no-such-route"))
}

pub(crate) fn is_not_found(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Stop>().is_some_and(|stop| stop.code == Code::NotFound)
}
