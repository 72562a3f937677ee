// SPDX-License-Identifier: Apache-2.0
//! The service of one listener.
//!
//! Requests for functions are most of what a node gets, and need none of what
//! a router does: they are told by their path here, and answered at once. The
//! rest goes to the router. Both pass the same envelope and the same
//! [`Checks`]; what every request must satisfy belongs there and nowhere else.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tower::{Service, ServiceExt};

use crate::door::{Door, requested_host};
use crate::envelope;
use crate::keys::{self, Access};
use crate::problem::Problem;
use crate::router::Shared;
use crate::routes::call;

/// What answers the requests of one listener. Cheap to clone.
#[derive(Clone)]
pub struct Front {
    shared: Arc<Shared>,
    checks: Arc<Checks>,
    router: Router,
}

/// What every request must satisfy, whatever it asks for.
pub(crate) struct Checks {
    door: Door,
    access: Access,
}

impl Checks {
    pub(crate) fn new(door: Door, access: Access) -> Self {
        Self { door, access }
    }

    fn pass(&self, shared: &Shared, request: &Request) -> Result<(), Problem> {
        bounded_path(request)?;
        let (uri, headers) = (request.uri(), request.headers());
        match request.extensions().get::<Home>() {
            None => self.door.check(uri, headers),
            Some(Home::Function(function)) => {
                let functions = shared.backend.functions();
                let is_public = functions.is_some_and(|functions| functions.is_public(function, None));
                self.door.check_home(uri, headers, is_public)
            }
            Some(Home::Nobody(host)) => {
                self.door.check_home(uri, headers, false)?;
                Err(call::nobody_there(host))
            }
        }
    }

    /// Has a request answered that satisfies them. The one way to an answer:
    /// for functions, and for all that the router answers.
    async fn guarded<F: Future<Output = Response>>(
        &self,
        shared: &Arc<Shared>,
        route: Option<&str>,
        request: Request,
        answer: impl FnOnce(Request) -> F,
    ) -> Response {
        let passed = self.pass(shared, &request).and_then(|()| shared.ahead.admit(request));
        match passed {
            Ok(request) => keys::guard(shared, self.access, route, request, answer).await,
            Err(problem) => problem.into_response(),
        }
    }
}

/// The middleware of what the router answers.
pub(crate) async fn checked(
    State((shared, checks)): State<(Arc<Shared>, Arc<Checks>)>,
    request: Request,
    next: Next,
) -> Response {
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let route = matched.as_ref().map(MatchedPath::as_str);
    checks.guarded(&shared, route, request, |request| next.run(request)).await
}

/// No path of ours is long; what is goes into logs and answers nowhere.
fn bounded_path(request: &Request) -> Result<(), Problem> {
    const URI_BYTES_MAX: usize = 8 << 10;
    let length = request.uri().path().len() + request.uri().query().map_or(0, str::len);
    if length <= URI_BYTES_MAX {
        return Ok(());
    }
    let detail = format!("the path and query have {length} bytes; {URI_BYTES_MAX} is the limit");
    Err(Problem::new(StatusCode::URI_TOO_LONG, "uri-too-long", "The address is too long", "gateway", detail))
}

impl Front {
    pub(crate) fn new(shared: Arc<Shared>, checks: Arc<Checks>, router: Router) -> Self {
        Self { shared, checks, router }
    }

    async fn answer(self, mut request: Request) -> Response {
        if let Some(home) = home(&self.shared, &request) {
            request.extensions_mut().insert(home);
            return Box::pin(self.answer_at_home(request)).await;
        }
        let Some(route) = function_route(&request) else {
            // A router is always ready, and has no errors. What it needs to go on
            // is large; requests for functions are to carry none of it.
            return Box::pin(self.router.oneshot(request)).await.unwrap_or_else(|error| match error {});
        };
        let Self { shared, checks, .. } = self;
        let answer =
            |request| checks.guarded(&shared, Some(route), request, |request| call::call(&shared, request));
        envelope::surround(&shared, route.into(), request, answer).await
    }
}

impl Front {
    /// All that is asked for by a function's host name is that function's.
    async fn answer_at_home(self, request: Request) -> Response {
        let Self { shared, checks, .. } = self;
        let route = "/function/{name}";
        let answer = |request| {
            checks.guarded(&shared, Some(route), request, |request| call::at_home(&shared, request))
        };
        envelope::surround(&shared, route.into(), request, answer).await
    }
}

/// Whose a request is by its host name.
#[derive(Debug, Clone)]
pub(crate) enum Home {
    /// The function of this name's.
    Function(Arc<str>),
    /// Nobody's: the host is one that only functions have.
    Nobody(Arc<str>),
}

/// Whether a request is for a function by its host name. A page of `NAME.localhost` never shares its origin with the
/// node itself, so that these names are functions' alone, whether or not there is one.
fn home(shared: &Shared, request: &Request) -> Option<Home> {
    let (_, host) = requested_host(request.uri(), request.headers()).ok()?;
    // These are most that is asked for. An address is no name: in brackets, or with a number as its last part.
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_address = host.starts_with('[') || last.bytes().all(|byte| byte.is_ascii_digit());
    if is_address || host == "localhost" {
        return None;
    }
    let functions = shared.backend.functions()?;
    match functions.hosted(&host) {
        Some(function) => Some(Home::Function(function.into())),
        None if host.ends_with(".localhost") => Some(Home::Nobody(host.into())),
        None => None,
    }
}

/// The router's pattern that a function's request fits. `None`: the router is
/// to say what becomes of it.
fn function_route(request: &Request) -> Option<&'static str> {
    const METHODS: [Method; 6] =
        [Method::POST, Method::GET, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];
    let rest = request.uri().path().strip_prefix(call::PREFIX)?;
    let (name, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    if name.is_empty() || !METHODS.contains(request.method()) {
        return None;
    }
    Some(match path {
        "" => "/function/{name}",
        "/" => "/function/{name}/",
        _ => "/function/{name}/{*path}",
    })
}

impl<B> Service<Request<B>> for Front
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let front = self.clone();
        let request = request.map(Body::new);
        Box::pin(async move { Ok(front.answer(request).await) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_a_functions_is_told_as_the_router_tells_it() {
        let route = |method: Method, path: &str| {
            let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
            function_route(&request)
        };
        assert_eq!(route(Method::POST, "/function/hello?x=/"), Some("/function/{name}"));
        assert_eq!(route(Method::GET, "/function/hello:3/"), Some("/function/{name}/"));
        assert_eq!(route(Method::PUT, "/function/hello//a/b"), Some("/function/{name}/{*path}"));
        for path in ["/function", "/function/", "/function//x", "/functions/hello", "/v1/function/hello"] {
            assert_eq!(route(Method::POST, path), None, "{path}");
        }
        for method in [Method::HEAD, Method::TRACE, Method::CONNECT, Method::from_bytes(b"BREW").unwrap()] {
            assert_eq!(route(method.clone(), "/function/hello"), None, "{method}");
        }
    }
}
