// SPDX-License-Identifier: Apache-2.0
//! `/v1/functions`: what is deployed under which name.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use objects::Handle;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::path_text;
use crate::body::{self, blocking};
use crate::functions::{Deployed, FunctionError, Functions, NotDeployed, Origin, Served};
use crate::keys::{Granted, Scope};
use crate::problem::Problem;
use crate::recent::SLOT;
use crate::router::Shared;
use crate::text::{parse_handle, shortened};
use crate::usage::{Rates, micros};

/// Functions that are deployed together.
const TOGETHER_MAX: usize = 1000;
/// Bytes of what is said of a version.
const NOTE_BYTES_MAX: usize = 1000;
/// Slots that a function's recent numbers are about: the last minute.
const RECENT_SLOTS: u64 = 12;
/// Slots that each function of a list is shown with: two minutes.
const SHOWN_SLOTS: usize = 24;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Deployment {
    deployment: String,
    /// Whether all requests go to it at once.
    #[serde(default = "yes")]
    serve: bool,
    /// What is said of the version, if it is a new one.
    #[serde(default)]
    note: String,
}

const fn yes() -> bool {
    true
}

/// What an alias stands for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Alias {
    versions: Vec<Share>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Share {
    version: u64,
    percent: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    version: Option<u64>,
}

pub(crate) async fn list(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Problem> {
    let now = shared.started.elapsed();
    let all = change(shared, move |functions| {
        let all = functions.all();
        Ok(all.iter().map(|served| summary(functions, served, now).into()).collect::<Vec<Value>>())
    });
    Ok(Json(json!({ "functions": all.await? })))
}

pub(crate) async fn get(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Problem> {
    let name = path_text(path)?;
    let now = shared.started.elapsed();
    let rates = shared.options.rates.clone();
    let (details, mut members) = change(shared, move |functions| {
        let details = functions.details(&name)?;
        let members = summary(functions, &details.served, now);
        Ok((details, members))
    })
    .await?;
    let versions = details.versions.iter().map(|version| {
        let (requests, failures) = version.version_counts.so_far();
        let (number, deployment) = (version.version, version.deployment.to_string());
        let mut told =
            json!({ "version": number, "deployment": deployment, "requests": requests, "failures": failures });
        if let Some(Origin { at_ms, note }) = &version.origin {
            told["deployed_ms"] = (*at_ms).into();
            if !note.is_empty() {
                told["note"] = note.as_str().into();
            }
        }
        told
    });
    let aliases = details.aliases.iter().map(|(alias, shares)| (alias.clone(), shares_json(shares)));
    let aliases: Map<String, Value> = aliases.collect();
    let object = |pairs: Vec<(String, String)>| -> Map<String, Value> {
        pairs.into_iter().map(|(name, value)| (name, value.into())).collect()
    };
    members.insert("versions".to_owned(), versions.collect());
    members.insert("aliases".to_owned(), aliases.into());
    members.insert("usage".to_owned(), usage(&details.served, &rates));
    members.insert("limits".to_owned(), json!({ "memory_bytes": details.served.memory_bytes }));
    members.insert("settings".to_owned(), object(details.settings).into());
    members.insert("serving".to_owned(), object(details.serving).into());
    let series = details.served.counts.series(now);
    members.insert("series".to_owned(), json!({ "slot_s": SLOT.as_secs(), "slots": series }));
    Ok(Json(members.into()))
}

pub(crate) async fn put(
    State(shared): State<Arc<Shared>>,
    granted: Option<Extension<Granted>>,
    path: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Problem> {
    let name = path_text(path)?;
    let wanted: Deployment = body::json(&shared, &headers, body).await?;
    check_note(&wanted.note)?;
    let handle = parse_handle(&wanted.deployment)?;
    let is_admin = granted.is_some_and(|Extension(Granted(scope))| scope == Scope::Admin);
    let deployed = change(shared, move |functions| {
        // By such a name requests come that would else be the node's.
        let claimed = if is_admin { Vec::new() } else { functions.claims(&name, handle)? };
        match claimed.first() {
            Some(host) => Ok(Err(claim_refused(&name, host))),
            None => {
                let all = functions.deploy_all(&[(name, handle)], wanted.serve, &wanted.note);
                all.map(Ok).map_err(|not| not.error)
            }
        }
    });
    Ok(Json(deployed.await??.first().map_or(Value::Null, answer)))
}

/// What is to be deployed together.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Deployments {
    /// Deployments by the names of their functions.
    functions: Vec<OneOfThem>,
    #[serde(default = "yes")]
    serve: bool,
    #[serde(default)]
    note: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OneOfThem {
    name: String,
    deployment: String,
}

/// `POST /v1/functions`: all of them are deployed, or none.
pub(crate) async fn put_all(
    State(shared): State<Arc<Shared>>,
    granted: Option<Extension<Granted>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Problem> {
    let Deployments { functions: wanted, serve, note } = body::json(&shared, &headers, body).await?;
    check_note(&note)?;
    if wanted.is_empty() || wanted.len() > TOGETHER_MAX {
        let why = format!("functions has {} deployments; it has 1 to {TOGETHER_MAX}", wanted.len());
        return Err(Problem::bad_request("bad-deployment", why));
    }
    let handle = |one: OneOfThem| Ok((one.name, parse_handle(&one.deployment)?));
    let wanted: Vec<(String, Handle)> = wanted.into_iter().map(handle).collect::<Result<_, Problem>>()?;
    let is_admin = granted.is_some_and(|Extension(Granted(scope))| scope == Scope::Admin);
    let deployed = change(shared, move |functions| {
        if !is_admin {
            for (name, deployment) in &wanted {
                match functions.claims(name, *deployment) {
                    Ok(claimed) if claimed.is_empty() => {}
                    Ok(claimed) => return Ok(Err(claim_refused(name, &claimed[0]).about(name.clone()))),
                    Err(error) => return Ok(Err(problem_of(error).about(name.clone()))),
                }
            }
        }
        let deployed = functions.deploy_all(&wanted, serve, &note);
        Ok(deployed.map_err(|NotDeployed { name, error }| problem_of(error).about(name)))
    });
    let deployed = deployed.await??;
    Ok(Json(json!({ "functions": deployed.iter().map(answer).collect::<Vec<Value>>() })))
}

/// What ends lines, moves the cursor, or turns the order of others around.
fn is_no_text(each: char) -> bool {
    each.is_control()
        || matches!(each, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A note is a line, which terminals and pages show as it is.
fn check_note(note: &str) -> Result<(), Problem> {
    let why = match note {
        long if long.len() > NOTE_BYTES_MAX => {
            format!("note has {} bytes; it has {NOTE_BYTES_MAX} at most", long.len())
        }
        wrong if wrong.contains(is_no_text) => "note has a control character; it is one line".to_owned(),
        _ => return Ok(()),
    };
    Err(Problem::bad_request("bad-deployment", why))
}

fn claim_refused(name: &str, host: &str) -> Problem {
    let detail = format!("to give {name} the host name {host}, which it has not had, takes the scope admin");
    let title = "The key is not good for this";
    Problem::new(StatusCode::FORBIDDEN, "scope-missing", title, "gateway", detail)
        .suggest("deploy it once on the node's own machine, or with a key that `sinew key create --scope admin` makes; later deployments need only deploy")
}

pub(crate) async fn roll_back(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Problem> {
    let name = path_text(path)?;
    let target: Target = body::json(&shared, &headers, body).await?;
    let deployed = change(shared, move |functions| functions.roll_back(&name, target.version)).await?;
    Ok(Json(answer(&deployed)))
}

pub(crate) async fn set_alias(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<(String, String)>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Problem> {
    let (name, alias) = two_texts(path)?;
    let wanted: Alias = body::json(&shared, &headers, body).await?;
    let shares: Vec<(u64, u32)> =
        wanted.versions.iter().map(|share| (share.version, share.percent)).collect();
    let answer = json!({ "name": name, "alias": alias, "versions": shares_json(&shares) });
    change(shared, move |functions| functions.set_alias(&name, &alias, &shares)).await?;
    Ok(Json(answer))
}

pub(crate) async fn remove_alias(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<StatusCode, Problem> {
    let (name, alias) = two_texts(path)?;
    change(shared, move |functions| functions.remove_alias(&name, &alias)).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn two_texts(path: Result<Path<(String, String)>, PathRejection>) -> Result<(String, String), Problem> {
    match path {
        Ok(Path(texts)) => Ok(texts),
        Err(rejection) => Err(Problem::bad_request("bad-path", rejection.body_text())),
    }
}

fn shares_json(shares: &[(u64, u32)]) -> Value {
    shares.iter().map(|(version, percent)| json!({ "version": version, "percent": percent })).collect()
}

pub(crate) async fn remove(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, Problem> {
    let name = path_text(path)?;
    change(shared, move |functions| functions.remove(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /v1/interpreters/{runtime}`: what packages for functions have to be made for.
pub(crate) async fn interpreter(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Problem> {
    let runtime = path_text(path)?;
    let told = change(shared, move |functions| functions.interpreter(&runtime)).await?;
    Ok(Json(json!({ "program": told.program, "version": told.version, "abi": told.abi })))
}

/// Does something off the event loop.
pub(super) async fn change<T: Send + 'static>(
    shared: Arc<Shared>,
    act: impl FnOnce(&dyn Functions) -> Result<T, FunctionError> + Send + 'static,
) -> Result<T, Problem> {
    let done = blocking(move || shared.backend.functions().map(act)).await?;
    done.ok_or_else(no_functions)?.map_err(problem_of)
}

fn problem_of(error: FunctionError) -> Problem {
    match error {
        FunctionError::NotFound(why) => not_found(why),
        FunctionError::Invalid(why) => Problem::bad_request("bad-deployment", why)
            .suggest("nothing has changed; docs/spec/functions.md says what a deployment is"),
        FunctionError::Store(error) => Problem::store(&error),
        FunctionError::Failed(why) => Problem::internal("node", why),
    }
}

fn answer(deployed: &Deployed) -> Value {
    let Served { name, version, deployment, .. } = &*deployed.served;
    let (changed, loading_us) = (deployed.is_changed, micros(deployed.loading));
    let mut told =
        json!({ "name": name, "version": version, "deployment": deployment.to_string(), "changed": changed });
    if loading_us > 0 {
        told["loading_us"] = loading_us.into();
    }
    told
}

fn summary(functions: &dyn Functions, served: &Served, now: Duration) -> Map<String, Value> {
    let total = served.counts.total();
    let instances = functions.instances(served);
    let mut recent = json!(served.counts.recently(now, RECENT_SLOTS));
    recent["seconds"] = recent_seconds(now).into();
    let slots = served.counts.series(now);
    let shown = slots.iter().skip(slots.len().saturating_sub(SHOWN_SLOTS));
    recent["slots"] = shown.map(|slot| json!([slot.requests, slot.failures])).collect();
    let members = [
        ("name", served.name.clone().into()),
        ("version", served.version.into()),
        ("runtime", served.runtime.clone().into()),
        ("deployment", served.deployment.to_string().into()),
        ("url", format!("/function/{}", served.name).into()),
        ("routes", served.routes.clone().into()),
        ("hosts", served.hosts.clone().into()),
        ("public", served.is_public.into()),
        (
            "instances",
            json!({ "idle": instances.idle, "busy": instances.busy, "starting": instances.starting }),
        ),
        ("requests", total.requests.into()),
        ("failures", total.failures.into()),
        ("cold_starts", instances.cold_starts.into()),
        ("recent", recent),
    ];
    let workflow = served.is_workflow.then(|| ("workflow", true.into()));
    let deployed = served.origin.as_ref().map(|origin| ("deployed_ms", origin.at_ms.into()));
    members
        .into_iter()
        .chain(workflow)
        .chain(deployed)
        .map(|(name, value): (&str, Value)| (name.to_owned(), value))
        .collect()
}

/// What its requests used together since the node started.
fn usage(served: &Served, rates: &Rates) -> Value {
    let total = served.counts.total();
    let mut usage = json!({
        "cpu_s": total.cpu.seconds,
        "cpu_between_s": total.cpu_between_s,
        "held_s": total.held_s,
        "memory_byte_s": total.memory_byte_s,
        "memory_peak_bytes": total.memory_peak_bytes,
        "fuel": total.fuel,
        "received_bytes": total.received_bytes,
        "sent_bytes": total.sent_bytes,
    });
    if rates.is_any() {
        usage["price"] = total.price.into();
        usage["currency"] = rates.currency.as_str().into();
    }
    usage
}

/// What [`RECENT_SLOTS`] and the one that is not over stand for.
fn recent_seconds(now: Duration) -> u64 {
    let seconds = now.as_secs();
    (RECENT_SLOTS * SLOT.as_secs() + seconds % SLOT.as_secs()).min(seconds).max(1)
}

/// 404 for a function, or a version of one.
pub(crate) fn not_found(why: impl Into<String>) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "function-not-found", "No such function", "functions", why)
        .suggest("`sinew list` lists them; `sinew deploy` adds one")
}

/// 404 for a name.
pub(crate) fn unknown(name: &str) -> Problem {
    not_found(format!("there is no function {:?}", shortened(name)))
}

/// 404 where there can be none.
pub(crate) fn no_functions() -> Problem {
    not_found("this node serves no functions")
}
