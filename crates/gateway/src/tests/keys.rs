// SPDX-License-Identifier: Apache-2.0
//! Requests with keys, without, and with those that are not good enough.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::Request;

use super::fake::Fake;
use super::{Answer, House};
use crate::{Access, Door, Gateway, KeyError, KeyInfo, Keys, Options, Quota, Scope};

/// Keys whose texts are `sinew_ID_x`.
#[derive(Default)]
pub(super) struct FakeKeys {
    keys: Mutex<Vec<(Arc<KeyInfo>, bool)>>,
    checks: AtomicUsize,
}

impl Keys for FakeKeys {
    fn is_any(&self) -> bool {
        !self.keys.lock().unwrap().is_empty()
    }

    fn known(&self, text: &str) -> Option<Arc<KeyInfo>> {
        let keys = self.keys.lock().unwrap();
        let found = keys.iter().find(|(key, is_known)| *is_known && text == format!("sinew_{}_x", key.id));
        found.map(|(key, _)| key.clone())
    }

    fn check(&self, text: &str) -> Option<Arc<KeyInfo>> {
        self.checks.fetch_add(1, Ordering::Relaxed);
        let mut keys = self.keys.lock().unwrap();
        let found = keys.iter_mut().find(|(key, _)| text == format!("sinew_{}_x", key.id))?;
        found.1 = true;
        Some(found.0.clone())
    }

    fn all(&self) -> Vec<Arc<KeyInfo>> {
        self.keys.lock().unwrap().iter().map(|(key, _)| key.clone()).collect()
    }

    fn create(&self, tenant: &str, scope: Scope, quota: Quota) -> Result<(Arc<KeyInfo>, String), KeyError> {
        if tenant == "bad" {
            return Err(KeyError::Invalid("the test wants it so".to_owned()));
        }
        let mut keys = self.keys.lock().unwrap();
        let (id, tenant) = (format!("{:x}", keys.len()), tenant.to_owned());
        let key = Arc::new(KeyInfo { id, tenant, scope, created_ms: 1, quota });
        keys.push((key.clone(), false));
        let text = format!("sinew_{}_x", key.id);
        Ok((key, text))
    }

    fn revoke(&self, id: &str) -> Result<bool, KeyError> {
        let mut keys = self.keys.lock().unwrap();
        let before = keys.len();
        keys.retain(|(key, _)| key.id != id);
        Ok(keys.len() < before)
    }
}

fn house(access: Access) -> House {
    let fake = Arc::new(Fake::new());
    fake.functions.add("hello", 1, |_| {});
    fake.gives("{}", b"hi");
    let router = Gateway::new(fake.clone(), Options::default()).router(Door::Private, access);
    House { fake, router }
}

fn two_a_second() -> Quota {
    Quota { requests_per_second: 2, ..Quota::default() }
}

impl House {
    fn key(&self, scope: Scope, quota: Quota) -> String {
        self.fake.keys.create("team", scope, quota).unwrap().1
    }

    async fn with_key(&self, path: &str, key: &str) -> Answer {
        self.get_with(path, &[("authorization", &format!("Bearer {key}"))]).await
    }
}

#[tokio::test]
async fn what_others_can_reach_answers_to_keys_alone() {
    let house = house(Access::Keyed);
    let key = house.key(Scope::Invoke, Quota::default());
    for path in
        ["/function/hello", "/v1/status", "/v1/secrets", "/metrics", "/", "/no/such/route", "/dashboard/"]
    {
        let refused = house.get(path).await;
        assert_eq!(refused.problem(401), "no-key", "{path}");
        assert!(refused.header("www-authenticate").starts_with("Bearer"));
        let wrong = house.with_key(path, "sinew_7_x").await;
        assert_eq!(wrong.problem(401), "no-key", "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(house.get(path).await.status, 200, "{path}");
    }
    assert_eq!(house.with_key("/function/hello", &key).await.body, b"hi");
    let (head, _) = house.fake.last_call();
    assert!(!head.to_string().contains("sinew_"), "a function sees no key: {head}");
    assert_eq!(house.with_key("/v1/status", &key).await.problem(403), "scope-missing");
}

#[tokio::test]
async fn scopes_include_those_before() {
    let house = house(Access::Keyed);
    let keys = [Scope::Invoke, Scope::Deploy, Scope::Admin].map(|scope| house.key(scope, Quota::default()));
    for (path, needed) in
        [("/function/hello", 0), ("/v1/status", 1), ("/v1/secrets", 2), ("/v1/keys", 2), ("/v1/objects", 2)]
    {
        for (number, key) in keys.iter().enumerate() {
            let expected = if number >= needed { 200 } else { 403 };
            assert_eq!(house.with_key(path, key).await.status, expected, "{path} with {key}");
        }
    }
}

#[tokio::test]
async fn a_key_is_checked_at_length_once() {
    let house = house(Access::Keyed);
    let key = house.key(Scope::Invoke, Quota::default());
    for _ in 0..5 {
        assert_eq!(house.with_key("/function/hello", &key).await.status, 200);
    }
    assert_eq!(house.fake.keys.checks.load(Ordering::Relaxed), 1);
    let long = format!("sinew_{}", "x".repeat(1000));
    assert_eq!(house.with_key("/function/hello", &long).await.problem(401), "no-key");
    assert_eq!(house.fake.keys.checks.load(Ordering::Relaxed), 1, "what is no key is not checked");
}

#[tokio::test]
async fn on_loopback_keys_and_secrets_need_one_once_there_is_one() {
    let house = house(Access::Local);
    assert_eq!(house.get("/v1/secrets").await.status, 200);
    let request = Request::post("/v1/keys").header("content-type", "application/json");
    let answer = house.send(request.body(Body::from(r#"{"scope":"admin"}"#)).unwrap()).await;
    assert_eq!(answer.status, 201);
    let told = answer.json();
    assert_eq!((&told["scope"], &told["tenant"]), (&"admin".into(), &"default".into()));
    assert_eq!(house.get("/v1/secrets").await.problem(401), "no-key");
    assert_eq!(house.get("/v1/keys").await.problem(401), "no-key");
    assert_eq!(house.get("/function/hello").await.status, 200, "the rest is as before");
    let listed = house.with_key("/v1/keys", told["key"].as_str().unwrap()).await;
    assert!(listed.json()["keys"][0].get("key").is_none(), "a key's text is told once");
    let owner = Gateway::new(house.fake.clone(), Options::default()).router(Door::Private, Access::Owner);
    let owner = House { fake: house.fake.clone(), router: owner };
    assert_eq!(owner.get("/v1/secrets").await.status, 200);
    let id = told["id"].as_str().unwrap();
    let revoke = |path: String| owner.send(Request::delete(path).body(Body::empty()).unwrap());
    assert_eq!(revoke(format!("/v1/keys/{id}")).await.status, 204);
    assert_eq!(revoke(format!("/v1/keys/{id}")).await.problem(404), "key-not-found");
    for wrong in [r#"{"scope":"all"}"#, r#"{"scope":"admin","tenant":"bad"}"#] {
        assert_eq!(owner.post_json("/v1/keys", wrong).await.problem(400), "bad-key");
    }
}

#[tokio::test]
async fn a_tenant_that_has_used_up_its_share_is_told_when_to_come_back() {
    let house = house(Access::Keyed);
    let key = house.key(Scope::Invoke, two_a_second());
    let mut refused = 0;
    for _ in 0..20 {
        let answer = house.with_key("/function/hello", &key).await;
        if answer.status == 429 {
            assert_eq!((answer.problem(429).as_str(), answer.header("retry-after")), ("over-quota", "1"));
            refused += 1;
        }
    }
    assert!(refused > 0, "20 requests in one second");
    let other = house.fake.keys.create("other", Scope::Invoke, two_a_second()).unwrap().1;
    assert_eq!(house.with_key("/function/hello", &other).await.status, 200);
}
