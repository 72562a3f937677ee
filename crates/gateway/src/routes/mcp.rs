// SPDX-License-Identifier: Apache-2.0
//! `POST /v1/mcp`: functions as tools of agents, by the Model Context Protocol
//! (modelcontextprotocol.io, revision 2026-07-28, and those before it that begin with `initialize`).
//! Each message is a request of its own, and nothing is remembered between two: so a node that is
//! started again, or a proxy before several, need not be told to anybody.

mod message;
mod result;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use self::message::{Asked, Era, Fault, Message, SUPPORTED};
use super::call::served;
use crate::admission::Permit;
use crate::body::{buffered, held, media_type, unsupported_media_type};
use crate::client::Client;
use crate::functions::{Served, Tool};
use crate::invocation::Invocation;
use crate::problem::Problem;
use crate::request_id::RequestId;
use crate::router::Shared;
use crate::tenants::Tenancy;
use crate::text::shortened;

/// Of a message. Read as values it takes up to some eighty times as much, which nothing counts.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// For how long a client may keep the list of tools: a deployment is to be seen soon.
const LIST_TTL_MS: u64 = 5000;
/// How to use them, for whoever asks.
const INSTRUCTIONS: &str = "Each tool is a function that is deployed on this Sinew node. Arguments are its event, and its answer \
                            is the result. What fails says why, with the request's id: `sinew logs --request-id ID` shows the rest.";

/// Of whom a message is.
type Sender<'a> = ((Permit, Option<&'a Arc<Tenancy>>), &'a RequestId);

pub(crate) async fn answer(
    State(shared): State<Arc<Shared>>,
    (Extension(permit), Extension(id)): (Extension<Permit>, Extension<RequestId>),
    tenancy: Option<Extension<Arc<Tenancy>>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let kind = media_type(&headers);
    if kind != "application/json" {
        return Err(unsupported_media_type(&kind, "application/json"));
    }
    let body = buffered(&shared, &headers, body, MESSAGE_BYTES_MAX).await?;
    let asked = match Message::read(&body.bytes, &headers) {
        Ok(Message::Request(asked)) => asked,
        // Whoever leaves a call closes its connection; nothing else that is only told matters here.
        Ok(Message::Notification) => return Ok(StatusCode::ACCEPTED.into_response()),
        Err((id, fault)) => return Ok(told(&fault, &id)),
    };
    let sender = ((permit, tenancy.as_deref()), &id);
    Ok(match result_of(&shared, sender, &asked).await {
        Ok(mut result) => {
            if asked.era == Era::Modern {
                result.insert("resultType".to_owned(), "complete".into());
                let server = json!({ "io.modelcontextprotocol/serverInfo": server(&shared) });
                result.insert("_meta".to_owned(), server);
            }
            json_answer(StatusCode::OK, &json!({ "jsonrpc": "2.0", "id": asked.id, "result": result }))
        }
        Err(fault) => told(&fault, &asked.id),
    })
}

/// Streams that a server begins, and sessions, are there in no revision or in old ones, and never needed.
pub(crate) async fn post_alone() -> Response {
    let problem = Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method-not-allowed",
        "This endpoint takes POST alone",
        "gateway",
        "the endpoint of the Model Context Protocol sends no stream of its own, and has no sessions",
    );
    problem.header(ALLOW, HeaderValue::from_static("POST")).into_response()
}

fn json_answer(status: StatusCode, value: &Value) -> Response {
    let kind = HeaderValue::from_static("application/json");
    (status, [(CONTENT_TYPE, kind)], value.to_string()).into_response()
}

fn told(fault: &Fault, id: &Value) -> Response {
    let mut error = json!({ "code": fault.code, "message": fault.message });
    if let Some(data) = &fault.data {
        error["data"] = data.clone();
    }
    let mut message = json!({ "jsonrpc": "2.0", "error": error });
    // It is left out where there is none that can be told.
    if !id.is_null() {
        message["id"] = id.clone();
    }
    json_answer(fault.status, &message)
}

async fn result_of(
    shared: &Arc<Shared>,
    sender: Sender<'_>,
    asked: &Asked,
) -> Result<Map<String, Value>, Fault> {
    let mut result = Map::new();
    let mut say = |name: &str, value: Value| _ = result.insert(name.to_owned(), value);
    match (asked.method.as_str(), asked.era) {
        ("initialize", _) => {
            say("protocolVersion", asked.version_to_speak().into());
            say("capabilities", json!({ "tools": {} }));
            say("serverInfo", server(shared));
            say("instructions", INSTRUCTIONS.into());
        }
        ("server/discover", _) => {
            say("supportedVersions", json!(SUPPORTED));
            say("capabilities", json!({ "tools": {} }));
            say("instructions", INSTRUCTIONS.into());
            say("ttlMs", LIST_TTL_MS.into());
            say("cacheScope", "private".into());
        }
        ("ping", Era::Legacy) => {}
        ("tools/list", _) => {
            if asked.params.get("cursor").is_some_and(|cursor| !cursor.is_null()) {
                return Err(Fault::params("the list is whole: it gives no cursor"));
            }
            say("tools", tools(shared));
            say("ttlMs", LIST_TTL_MS.into());
            say("cacheScope", "private".into());
        }
        ("tools/call", _) => return call(shared, sender, asked).await,
        (other, era) => return Err(Fault::unknown(other, era)),
    }
    Ok(result)
}

fn server(shared: &Shared) -> Value {
    json!({ "name": "sinew", "title": "Sinew", "version": shared.options.version })
}

/// All functions that are tools, by name.
fn tools(shared: &Shared) -> Value {
    let all = shared.backend.functions().map(|functions| functions.all()).unwrap_or_default();
    let mut tools: Vec<&Arc<Served>> = all.iter().filter(|served| served.tool.is_some()).collect();
    tools.sort_by(|one, other| one.name.cmp(&other.name));
    tools.iter().filter_map(|served| Some(described(&served.name, served.tool.as_deref()?))).collect()
}

fn described(name: &str, tool: &Tool) -> Value {
    let mut told = json!({ "name": name, "description": tool.description, "inputSchema": tool.input });
    if tool.is_read_only {
        told["annotations"] = json!({ "readOnlyHint": true });
    }
    told
}

/// Calls a function. That it fails is a result: whoever called it reads why, and may do better.
async fn call(
    shared: &Arc<Shared>,
    ((permit, tenancy), id): Sender<'_>,
    asked: &Asked,
) -> Result<Map<String, Value>, Fault> {
    let name = asked.params.get("name").and_then(Value::as_str);
    let name = name.ok_or_else(|| Fault::params("params.name is the name of a tool"))?;
    let unknown =
        || Fault::params(format!("there is no tool {:?}; tools/list has all that are", shortened(name)));
    // A name alone: a version is no tool of its own.
    let found = (!name.contains(':')).then(|| served(shared, name, &HeaderMap::new()).ok()).flatten();
    let found = found.filter(|served| served.tool.is_some()).ok_or_else(unknown)?;
    let nothing = Map::new();
    let arguments = match asked.params.get("arguments") {
        None | Some(Value::Null) => &nothing,
        Some(Value::Object(arguments)) => arguments,
        Some(_) => return Err(Fault::params("params.arguments is an object")),
    };
    if let Some(missing) = found.tool.as_deref().and_then(|tool| tool.missing(arguments)) {
        return Ok(result::failed(&format!("the argument {missing:?} is missing")));
    }
    let text = serde_json::to_vec(arguments).map_err(|error| Fault::params(error.to_string()))?;
    let body = match held(shared, text) {
        Ok(body) => body,
        Err(problem) => return Ok(result::of_problem(&problem, id)),
    };
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    let invocation = Invocation {
        served: found,
        id,
        method: "POST",
        path: "/",
        query: "",
        headers: &headers,
        routed: None,
        client: Client::default(),
        source: "mcp",
        nesting: None,
        tenancy: tenancy.cloned(),
        durable: None,
        memory: None,
    };
    Ok(match invocation.run(shared, permit, body).await.answer {
        Ok(answer) => result::of_answer(&answer, name),
        Err(problem) => result::of_problem(&problem, id),
    })
}
