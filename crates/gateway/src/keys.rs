// SPDX-License-Identifier: Apache-2.0
//! Who may do what: keys of the API.
//!
//! A key is brought as `Authorization: Bearer sinew_…` or `X-Api-Key`, checked,
//! and taken out of the request, so that no function sees it. A socket of the
//! owner's needs none; what others can reach needs one for everything but
//! `/healthz` and `/readyz`; on loopback one is needed for secrets and keys as
//! soon as there is any.

use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use tokio::sync::Semaphore;

use crate::body::blocking;
use crate::client;
use crate::problem::Problem;
use crate::router::Shared;
use crate::routes::call;
use crate::tenants::Quota;

/// What every key begins with.
pub const KEY_PREFIX: &str = "sinew_";
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// A longer text is no key.
const KEY_LEN_MAX: usize = 256;
/// Checks of keys that were not seen before, at one time: each takes memory.
const CHECKS_MAX: usize = 2;

/// What a key is good for. The later ones include those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// To call functions.
    Invoke,
    /// To deploy them, and to read and write all that is not secret.
    Deploy,
    /// Secrets and keys as well.
    Admin,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Invoke, Self::Deploy, Self::Admin];

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invoke => "invoke",
            Self::Deploy => "deploy",
            Self::Admin => "admin",
        }
    }

    /// The scope of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

/// What is known of a key, which is all but the key itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInfo {
    /// Its public part.
    pub id: String,
    /// Whose requests are counted together.
    pub tenant: String,
    /// What it is good for.
    pub scope: Scope,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
    /// What the tenant may use, as far as this key goes.
    pub quota: Quota,
}

/// Why there is no new key, or none less.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The wish breaks a rule.
    #[error("{0}")]
    Invalid(String),
    /// The keys cannot be written.
    #[error("{0}")]
    Failed(String),
}

/// The keys of a node. What can touch the disk or takes long blocks.
pub trait Keys: Send + Sync {
    /// Whether there is any.
    fn is_any(&self) -> bool;

    /// The key of this text, if it was checked before. Never blocks.
    fn known(&self, text: &str) -> Option<Arc<KeyInfo>>;

    /// The key of this text; `None` if it is none. Takes long on purpose.
    fn check(&self, text: &str) -> Option<Arc<KeyInfo>>;

    /// All of them, by tenant and age.
    fn all(&self) -> Vec<Arc<KeyInfo>>;

    /// Makes one, durably. Its text is told this once.
    ///
    /// # Errors
    /// [`KeyError`].
    fn create(&self, tenant: &str, scope: Scope, quota: Quota) -> Result<(Arc<KeyInfo>, String), KeyError>;

    /// Ends one, durably; whether there was one.
    ///
    /// # Errors
    /// [`KeyError::Failed`].
    fn revoke(&self, id: &str) -> Result<bool, KeyError>;
}

/// Whom a listener lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Its own permissions decide (a unix socket of the owner's).
    Owner,
    /// Programs of this machine: keys and secrets need a key once there is one.
    Local,
    /// Everybody with a key.
    Keyed,
}

/// What a request may do that needs the scope `deploy`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Granted(pub(crate) Scope);

/// The scope that a request needs; `None`: none at all.
fn needed(route: Option<&str>, method: &Method) -> Option<Scope> {
    // What has no route of the node's own may be a function's.
    let Some(route) = route else { return Some(Scope::Invoke) };
    let under = |prefixes: &[&str]| prefixes.iter().any(|prefix| route.starts_with(prefix));
    if matches!(route, "/healthz" | "/readyz") {
        None
    } else if under(&["/function/", "/async-function/", "/2015-03-31/", "/v1/mcp"])
        || (method == Method::GET && under(&["/v1/async/"]))
    {
        Some(Scope::Invoke)
    } else if route == "/v1/objects" {
        // Whoever knows a handle reads what it names: to be told all of them is to read everybody's.
        Some(Scope::Admin)
    } else if under(&[
        "/v1/secrets",
        "/v1/keys",
        "/v1/collect",
        "/v1/check",
        "/v1/backup",
        "/v1/restore",
        "/v1/tier/collect",
        "/v1/tier/take",
    ]) {
        Some(Scope::Admin)
    } else {
        Some(Scope::Deploy)
    }
}

/// Takes the key out of a request's headers. An `Authorization` that is none
/// of ours is the function's.
fn take_key(headers: &mut HeaderMap) -> Option<String> {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    let bearer = headers.get(AUTHORIZATION).and_then(text);
    let bearer = bearer.as_deref().and_then(|text| text.split_once(' '));
    let bearer =
        bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, key)| key.trim());
    if let Some(key) = bearer.filter(|key| key.starts_with(KEY_PREFIX)) {
        let key = key.to_owned();
        headers.remove(AUTHORIZATION);
        return Some(key);
    }
    let key = headers.get(X_API_KEY).and_then(text).filter(|key| key.starts_with(KEY_PREFIX))?;
    headers.remove(X_API_KEY);
    Some(key)
}

/// What checks of keys share.
pub(crate) struct Guard {
    checks: Arc<Semaphore>,
}

impl Default for Guard {
    fn default() -> Self {
        Self { checks: Arc::new(Semaphore::new(CHECKS_MAX)) }
    }
}

fn no_key(detail: &str) -> Problem {
    let title = "The request needs a key";
    Problem::new(StatusCode::UNAUTHORIZED, "no-key", title, "gateway", detail)
        .header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"sinew\""))
        .suggest("send Authorization: Bearer KEY, or set SINEW_KEY; `sinew key create` on the node's machine makes one")
}

/// The key of a text, whether or not it was seen before.
async fn checked(shared: &Arc<Shared>, text: String) -> Result<Arc<KeyInfo>, Problem> {
    let wrong = || no_key("the key is none of this node's, or was revoked");
    if text.len() > KEY_LEN_MAX {
        return Err(wrong());
    }
    if let Some(key) = shared.backend.keys().ok_or_else(wrong)?.known(&text) {
        return Ok(key);
    }
    // Whoever tries many keys waits for himself.
    let Ok(_check) = shared.guard.checks.clone().try_acquire_owned() else {
        return Err(Problem::busy("gateway", "other keys are being checked"));
    };
    let backend = shared.backend.clone();
    let found = blocking(move || backend.keys().and_then(|keys| keys.check(&text))).await?;
    found.ok_or_else(wrong)
}

/// Refuses a request, or has it answered without its key. `route` is the pattern
/// that its path fits.
pub(crate) async fn guard<F: Future<Output = Response>>(
    shared: &Arc<Shared>,
    access: Access,
    route: Option<&str>,
    mut request: Request,
    answer: impl FnOnce(Request) -> F,
) -> Response {
    let Some(needed) = needed(route, request.method()) else { return answer(request).await };
    // Whom a proxy on this machine asks for may be anybody.
    let access = if client::is_passed_on(request.headers()) { Access::Keyed } else { access };
    if needed == Scope::Admin {
        // Some of it is the owner's alone.
        request.extensions_mut().insert(access);
    }
    let brought = take_key(request.headers_mut());
    let has_keys = || shared.backend.keys().is_some_and(Keys::is_any);
    let granted = match access {
        Access::Owner => Some(Scope::Admin),
        Access::Local if needed == Scope::Invoke => Some(Scope::Invoke),
        Access::Local => Some(if has_keys() { Scope::Deploy } else { Scope::Admin }),
        Access::Keyed => None,
    };
    if let Some(granted) = granted.filter(|_| needed == Scope::Deploy) {
        request.extensions_mut().insert(Granted(granted));
    }
    let text = match brought {
        // What needs none is not refused for a wrong one.
        _ if access == Access::Owner => return answer(request).await,
        None if granted.is_some_and(|granted| granted >= needed) => return answer(request).await,
        None if needed == Scope::Invoke && call::is_public(shared, route, &request) => {
            return answer(request).await;
        }
        None => return no_key("this listener answers only to keys").into_response(),
        Some(text) => text,
    };
    let key = match checked(shared, text).await {
        Ok(key) => key,
        Err(problem) => return problem.into_response(),
    };
    if key.scope < needed {
        let detail =
            format!("the key {} is for {}, and this needs {}", key.id, key.scope.name(), needed.name());
        let title = "The key is not good for this";
        return Problem::new(StatusCode::FORBIDDEN, "scope-missing", title, "gateway", detail)
            .suggest("`sinew key create --scope …` makes one that is")
            .into_response();
    }
    if needed == Scope::Deploy {
        request.extensions_mut().insert(Granted(key.scope));
    }
    let tenancy = shared.tenants.tenancy(&key.tenant, key.quota);
    let counting = match tenancy.begin(true, Instant::now()) {
        Ok(counting) => counting,
        Err(problem) => return problem.into_response(),
    };
    request.extensions_mut().insert(tenancy);
    let response = answer(request).await;
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    // It is not whole: the request counts for as long as it lasts.
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            _ = &counting;
            frame
        }))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_route_needs_a_scope_but_two() {
        let needed = |route: &str| super::needed(Some(route), &Method::GET);
        for endpoint in crate::router::endpoints() {
            let is_free = matches!(endpoint.path, "/healthz" | "/readyz");
            assert_eq!(needed(endpoint.path).is_none(), is_free, "{}", endpoint.path);
        }
        assert_eq!(super::needed(None, &Method::GET), Some(Scope::Invoke));
        for (route, scope) in [
            ("/function/{name}", Scope::Invoke),
            ("/v1/async/{id}", Scope::Invoke),
            ("/v1/mcp", Scope::Invoke),
            ("/v1/dlq", Scope::Deploy),
            ("/v1/runs/{id}", Scope::Deploy),
            ("/v1/labels/{*name}", Scope::Deploy),
            ("/v1/objects/{handle}", Scope::Deploy),
            ("/v1/objects", Scope::Admin),
            ("/v1/collect", Scope::Admin),
            ("/v1/check", Scope::Admin),
            ("/v1/backup", Scope::Admin),
            ("/v1/restore", Scope::Admin),
            ("/v1/tier/take", Scope::Admin),
            ("/v1/tier/collect", Scope::Admin),
            ("/v1/tier", Scope::Deploy),
            ("/v1/secrets/{name}", Scope::Admin),
            ("/v1/keys", Scope::Admin),
        ] {
            assert_eq!(needed(route), Some(scope), "{route}");
        }
    }

    #[test]
    fn a_key_is_taken_out_and_what_is_none_stays() {
        let headers = |name: &str, value: &str| {
            HeaderMap::from_iter([(name.parse::<HeaderName>().unwrap(), value.parse().unwrap())])
        };
        for (name, value) in [
            ("authorization", "Bearer sinew_a_b"),
            ("authorization", "bearer  sinew_a_b"),
            ("x-api-key", "sinew_a_b"),
        ] {
            let mut brought = headers(name, value);
            assert_eq!(take_key(&mut brought).as_deref(), Some("sinew_a_b"), "{value}");
            assert!(brought.is_empty());
        }
        for (name, value) in
            [("authorization", "Bearer other"), ("authorization", "Basic sinew_a"), ("x-api-key", "other")]
        {
            let mut brought = headers(name, value);
            assert_eq!(take_key(&mut brought), None, "{value}");
            assert_eq!(brought.len(), 1);
        }
    }
}
