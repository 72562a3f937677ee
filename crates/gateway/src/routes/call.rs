// SPDX-License-Identifier: Apache-2.0
//! `/function/{name}` and the routes of functions: a request, and the answer
//! that the function gives.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, ALLOW};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};

use super::functions::{no_functions, not_found, unknown};
use crate::admission::{Permit, permit};
use crate::body::{Arriving, buffered, held};
use crate::client::{Client, Peer};
use crate::cloud_event;
use crate::front::Home;
use crate::functions::{RouteError, Routed, Served};
use crate::invocation::Invocation;
use crate::problem::Problem;
use crate::request_id::RequestId;
use crate::router::Shared;
use crate::tenants::Tenancy;
use crate::text::shortened;

/// Where functions answer.
pub(crate) const PREFIX: &str = "/function/";
/// Requests with the same value get the same version of an alias.
const VERSION_KEY: HeaderName = HeaderName::from_static("x-sinew-version-key");
const LOTS: u64 = 10_000;
/// The route of what a host name has led to its function.
const ALL_PATHS: &str = "/{*rest}";
/// A body that says to have no more is whole when its function gets it.
const WHOLE_BYTES_MAX: u64 = 64 << 10;

/// The same for what comes by the router: what the front leaves to it.
pub(crate) async fn matched(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    call(&shared, request).await
}

/// A request's place among those under way, whom it counts for, and its id.
type Admitted<'a> = ((Permit, Option<&'a Arc<Tenancy>>), &'a RequestId);

fn admitted<'a>(shared: &Arc<Shared>, parts: &'a Parts) -> Result<Admitted<'a>, Problem> {
    let permit = parts.extensions.get::<Permit>().cloned().map_or_else(|| permit(shared), Ok)?;
    let id = parts.extensions.get::<RequestId>();
    let id = id.ok_or_else(|| Problem::internal("gateway", "a request has no id"))?;
    Ok(((permit, parts.extensions.get()), id))
}

/// A request to a function by its name.
pub(crate) async fn call(shared: &Arc<Shared>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let client = client_of(shared, &mut parts);
    let answer = async {
        let (place, id) = admitted(shared, &parts)?;
        let rest = parts.uri.path().strip_prefix(PREFIX).unwrap_or_default();
        let (target, path) = rest.find('/').map_or((rest, "/"), |slash| rest.split_at(slash));
        let served = served(shared, target, &parts.headers)?;
        let target = (path, parts.uri.query(), None, client);
        serve(shared, place, id, served, &parts.method, target, &parts.headers, body).await
    };
    answer.await.into_response()
}

/// What no endpoint of the gateway's own answers: it may be a function's.
pub(crate) async fn routed(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let client = client_of(&shared, &mut parts);
    let found = match shared.backend.functions() {
        Some(functions) => functions.route(parts.method.as_str(), parts.uri.path()),
        None => Err(RouteError::None),
    };
    let found = match found {
        Ok(found) => found,
        Err(RouteError::None) if wants_pages(&parts.headers, parts.uri.path()) => {
            return Redirect::temporary("/dashboard/").into_response();
        }
        Err(error) => return refused(&parts.method, parts.uri.path(), error).into_response(),
    };
    let answer = async {
        let (place, id) = admitted(&shared, &parts)?;
        let served = served(&shared, &found.function, &parts.headers)?;
        let target = (parts.uri.path(), parts.uri.query(), Some(&found), client);
        serve(&shared, place, id, served, &parts.method, target, &parts.headers, body).await
    };
    answer.await.into_response()
}

/// A request that a function's host name has led to it, whatever its path.
pub(crate) async fn at_home(shared: &Arc<Shared>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let client = client_of(shared, &mut parts);
    let answer = async {
        let (place, id) = admitted(shared, &parts)?;
        let Some(Home::Function(function)) = parts.extensions.get::<Home>() else {
            return Err(Problem::internal("gateway", "a request has no function"));
        };
        let served = served(shared, function, &parts.headers)?;
        let (method, path) = (parts.method.as_str(), parts.uri.path());
        // Its own routes name parts of the path; all other paths are its own here, too.
        let own = shared.backend.functions().and_then(|functions| functions.route(method, path).ok());
        let found = match own.filter(|routed| *routed.function == **function) {
            Some(routed) => Routed { at_home: true, ..routed },
            None => Routed {
                function: function.to_string(),
                pattern: ALL_PATHS.to_owned(),
                params: Vec::new(),
                at_home: true,
            },
        };
        let target = (path, parts.uri.query(), Some(&found), client);
        serve(shared, place, id, served, &parts.method, target, &parts.headers, body).await
    };
    answer.await.into_response()
}

pub(crate) fn nobody_there(host: &str) -> Problem {
    not_found(format!("the host {:?} is no function's", shortened(host))).suggest(
        "NAME.localhost is the function NAME; the node itself answers at localhost, and `sinew list` lists functions",
    )
}

/// Whether a request needs no key, since its function is for everybody.
pub(crate) fn is_public(shared: &Shared, route: Option<&str>, request: &Request) -> bool {
    let Some(functions) = shared.backend.functions() else { return false };
    let (method, path) = (request.method().as_str(), request.uri().path());
    let name = match (request.extensions().get::<Home>(), route) {
        (Some(Home::Function(function)), _) => Some(function.to_string()),
        (Some(Home::Nobody(_)), _) => None,
        (None, Some(route)) if route.starts_with(PREFIX) => {
            path.strip_prefix(PREFIX).map(|rest| rest.split('/').next().unwrap_or_default().to_owned())
        }
        // What the node answers itself has a route of its own.
        (None, Some(_)) => None,
        (None, None) => functions.route(method, path).ok().map(|routed| routed.function),
    };
    name.is_some_and(|name| {
        let (name, qualifier) =
            name.split_once(':').map_or((&*name, None), |(name, rest)| (name, Some(rest)));
        functions.is_public(name, qualifier)
    })
}

/// Who asks; what others say of it without being believed is taken from the headers.
fn client_of(shared: &Shared, parts: &mut Parts) -> Client {
    let peer = parts.extensions.get::<Peer>().copied();
    Client::of(peer, &mut parts.headers, &shared.options.trusted_proxies)
}

/// People who open the node's address in a browser want to look at it.
fn wants_pages(headers: &HeaderMap, path: &str) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    matches!(path, "/" | "/dashboard") && accept.is_some_and(|accept| accept.contains("text/html"))
}

/// That a path belongs to nobody.
fn refused(method: &Method, path: &str, error: RouteError) -> Problem {
    let detail = format!("{} {}", shortened(method.as_str()), shortened(path));
    match error {
        RouteError::None => Problem::new(
            StatusCode::NOT_FOUND,
            "no-such-route",
            "Nothing answers at this path",
            "gateway",
            detail,
        )
        .suggest("GET /openapi.json lists the node's own paths, `sinew list` those of functions; /dashboard/ is for people"),
        RouteError::Method(methods) => {
            let allowed = HeaderValue::from_str(&methods.join(", "));
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method-not-allowed",
                "The path does not take this method",
                "gateway",
                detail,
            )
            .suggest("the Allow header lists the methods of the function's route")
            .header(ALLOW, allowed.unwrap_or(HeaderValue::from_static("")))
        }
        RouteError::Encoding => {
            Problem::bad_request("bad-path", "a part of the path is no UTF-8 under its percent signs")
        }
    }
}

/// What `name`, `name:alias` or `name:version` stands for.
pub(crate) fn served(shared: &Shared, target: &str, headers: &HeaderMap) -> Result<Arc<Served>, Problem> {
    let functions = shared.backend.functions().ok_or_else(no_functions)?;
    let (name, qualifier) = target.split_once(':').map_or((target, None), |(name, rest)| (name, Some(rest)));
    let lot = lot(shared, name, headers);
    functions.served(name, qualifier, lot).ok_or_else(|| match qualifier {
        Some(qualifier) if functions.served(name, None, lot).is_some() => {
            let qualifier = shortened(qualifier);
            not_found(format!("the function {name:?} has no version or alias {qualifier:?}"))
        }
        _ => unknown(name),
    })
}

/// Which of the versions of an alias a request gets.
fn lot(shared: &Shared, name: &str, headers: &HeaderMap) -> u32 {
    /// The golden ratio, as a part of 2^64: its multiples are spread evenly.
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let place = match headers.get(VERSION_KEY) {
        // FNV-1a, so that it is the same on every node and in every release.
        Some(key) => name
            .bytes()
            .chain([0])
            .chain(key.as_bytes().iter().copied())
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            }),
        None => shared.lots.fetch_add(1, Ordering::Relaxed),
    };
    let spread = u128::from(place.wrapping_mul(GOLDEN));
    u32::try_from((spread * u128::from(LOTS)) >> 64).unwrap_or(0)
}

#[expect(clippy::too_many_arguments, reason = "these are the parts of a request")]
async fn serve(
    shared: &Arc<Shared>,
    (permit, tenancy): (Permit, Option<&Arc<Tenancy>>),
    id: &RequestId,
    served: Arc<Served>,
    method: &Method,
    (path, query, routed, client): (&str, Option<&str>, Option<&Routed>, Client),
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    if served.streams_body && !cloud_event::is_any(headers) && !is_short(&body) {
        let (method, query) = (method.as_str(), query.unwrap_or_default());
        let options = &shared.options;
        let arriving = Arriving::new(headers, body, options.body_max_bytes, options.body_idle_timeout)?;
        let (source, tenancy) = ("http", tenancy.cloned());
        let invocation = Invocation {
            served,
            id,
            method,
            path,
            query,
            headers,
            routed,
            client,
            source,
            nesting: None,
            tenancy,
            durable: None,
            memory: None,
        };
        let body = held(shared, Vec::new())?;
        return Box::pin(invocation.respond(shared, permit, body, Some(Box::new(arriving)))).await;
    }
    let mut body = buffered(shared, headers, body, shared.options.call_max_bytes).await?;
    // Few requests are events: only theirs are written anew.
    let mut unpacked = cloud_event::is_any(headers).then(|| headers.clone());
    if let Some(headers) = &mut unpacked {
        cloud_event::unpack(headers, &mut body.bytes)?;
    }
    let (headers, source) = unpacked.as_ref().map_or((headers, "http"), |headers| (headers, "event"));
    let (method, query) = (method.as_str(), query.unwrap_or_default());
    let tenancy = tenancy.cloned();
    let invocation = Invocation {
        served,
        id,
        method,
        path,
        query,
        headers,
        routed,
        client,
        source,
        nesting: None,
        tenancy,
        durable: None,
        memory: None,
    };
    invocation.respond(shared, permit, body, None).await
}

/// Whether a body is known to be so short that it is rather kept whole.
fn is_short(body: &Body) -> bool {
    body.size_hint().exact().is_some_and(|length| length <= WHOLE_BYTES_MAX)
}
