// SPDX-License-Identifier: Apache-2.0
//! Tenants' quotas: what is counted for whom, and that all of it is given back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::objects::FailureCode;
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::fake::{Fake, Script};
use super::{Answer, House};
use crate::{Access, Door, Gateway, Keys as _, NestedEnd, NestedRequest, Options, Quota, Scope, Spent};

const MIB: u64 = 1 << 20;

/// A gateway whose function `hello` takes one MiB, and a door for owners beside that for keys.
struct Tenanted {
    house: House,
    owner: House,
    gateway: Gateway,
}

fn tenanted() -> Tenanted {
    let mut fake = Fake::new();
    fake.queue = Some(Arc::new(queue::Embedded::in_memory(queue::Options::default()).unwrap()));
    let fake = Arc::new(fake);
    fake.functions.add("hello", 1, |_| {});
    fake.gives("{}", b"hi");
    let gateway = Gateway::new(fake.clone(), Options::default());
    let house = House { router: gateway.router(Door::Private, Access::Keyed), fake: fake.clone() };
    let owner = House { router: gateway.router(Door::Private, Access::Owner), fake };
    Tenanted { house, owner, gateway }
}

impl Tenanted {
    fn key(&self, tenant: &str, quota: Quota) -> String {
        self.house.fake.keys.create(tenant, Scope::Invoke, quota).unwrap().1
    }

    async fn call(&self, key: &str) -> Answer {
        self.house.get_with("/function/hello", &[("x-api-key", key)]).await
    }

    fn script(&self, script: Script) {
        *self.house.fake.otherwise.lock().unwrap() = Some(script);
    }

    /// What the tenant of the first key uses.
    async fn in_use(&self) -> Value {
        self.owner.get("/v1/keys").await.json()["keys"][0]["in_use"].clone()
    }
}

fn memory(mib: u64) -> Quota {
    Quota { memory_bytes: mib * MIB, ..Quota::default() }
}

#[tokio::test]
async fn memory_is_held_while_a_call_may_run_and_given_back_however_it_ends() {
    let tenanted = tenanted();
    let (key, other) = (tenanted.key("team", memory(1)), tenanted.key("other", memory(1)));
    let Some(gives) = *tenanted.house.fake.otherwise.lock().unwrap() else { panic!("no result") };
    for script in [
        gives,
        Script::Fails(FailureCode::Trap),
        Script::Fails(FailureCode::Resources),
        Script::Fails(FailureCode::Deadline),
        Script::Refused,
    ] {
        tenanted.script(script);
        assert_ne!(tenanted.call(&key).await.status, 429, "{script:?}");
        assert_eq!(tenanted.in_use().await["memory_bytes"], 0, "{script:?}");
    }
    tenanted.script(Script::Hangs);
    {
        let first = tenanted.call(&key);
        let mut first = std::pin::pin!(first);
        tokio::select! {
            biased;
            _ = &mut first => panic!("it hangs"),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
        assert_eq!(tenanted.in_use().await["memory_bytes"], MIB);
        let refused = tenanted.call(&key).await;
        assert_eq!((refused.problem(429).as_str(), refused.header("retry-after")), ("over-quota", "1"));
        let told = refused.json();
        let quota =
            json!({"tenant": "team", "resource": "memory", "used": 2.0 * MIB as f64, "allowed": MIB as f64});
        assert_eq!(told["quota"], quota);
        assert!(
            told["detail"].as_str().unwrap().contains("2 MiB of memory with one more of hello"),
            "{told}"
        );
        // Another tenant's quota is its own.
        tenanted.script(gives);
        assert_eq!(tenanted.call(&other).await.status, 200);
    }
    // The client has left; what runs has a moment, and holds what it has until then.
    assert_eq!(tenanted.in_use().await["memory_bytes"], MIB);
    for _ in 0..2000 {
        if tenanted.in_use().await["memory_bytes"] == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // What it took is not known: the time counts, or to leave would be free.
    assert!(tenanted.in_use().await["cpu_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(tenanted.call(&key).await.status, 200);
    let metrics = String::from_utf8(tenanted.owner.get("/metrics").await.body).unwrap();
    for line in [
        "sinew_tenant_memory_bytes{tenant=\"team\"} 0",
        "sinew_tenant_refused_total{tenant=\"team\",quota=\"memory\"} 1",
        "sinew_tenant_refused_total{tenant=\"other\",quota=\"memory\"} 0",
        "sinew_tenant_calls_total{tenant=\"other\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn what_can_never_fit_says_so_and_what_was_refused_is_in_no_journal() {
    let tenanted = tenanted();
    let key = tenanted.key("team", Quota { memory_bytes: MIB - 1, ..Quota::default() });
    let refused = tenanted.call(&key).await;
    assert_eq!(refused.problem(429), "over-quota");
    assert!(refused.json()["suggestion"].as_str().unwrap().contains("more than all of the quota"));
    let logs =
        || async { tenanted.owner.get("/v1/logs").await.json()["records"].as_array().unwrap().clone() };
    assert_eq!(logs().await.len(), 0);
    // A control: what ran is there, with its tenant.
    let key = tenanted.key("team", memory(1));
    assert_eq!(tenanted.call(&key).await.status, 200);
    assert_eq!(logs().await[0]["tenant"], "team");
    let lambda = Request::post("/2015-03-31/functions/hello/invocations").header("x-api-key", &key);
    tenanted.house.send(lambda.body(Body::from("{}")).unwrap()).await;
    assert_eq!(logs().await[1]["tenant"], "team");
}

#[tokio::test]
async fn processor_time_beyond_the_quota_has_to_be_waited_for() {
    let tenanted = tenanted();
    let key = tenanted.key("team", Quota { cpu_milli: 2000, ..Quota::default() });
    let spent = |cpu: Option<u64>| Spent {
        cpu: cpu.map(Duration::from_secs),
        held: Duration::from_secs(12),
        ..Spent::default()
    };
    *tenanted.house.fake.functions.spent.lock().unwrap() = Some(spent(Some(12)));
    assert_eq!(tenanted.call(&key).await.status, 200);
    assert_eq!(tenanted.call(&key).await.status, 200, "12 s of 20 s that may be used in advance");
    let refused = tenanted.call(&key).await;
    assert_eq!((refused.problem(429).as_str(), refused.header("retry-after")), ("over-quota", "2"));
    assert_eq!(refused.json()["quota"]["resource"], "cpu");
    assert_eq!(tenanted.in_use().await["cpu_seconds"], 24.0);
    // Where processor time is not counted, the time that a call held its instance is.
    let other = tenanted.key("other", Quota { cpu_milli: 1000, ..Quota::default() });
    *tenanted.house.fake.functions.spent.lock().unwrap() = Some(spent(None));
    assert_eq!(tenanted.call(&other).await.status, 200);
    assert_eq!(tenanted.call(&other).await.problem(429), "over-quota");
}

/// Calls `hello` as the function would that was called last.
async fn nested(tenanted: &Tenanted) -> NestedEnd {
    let (head, _) = tenanted.house.fake.last_call();
    let caller_head = format!("{head}\n{head}").into_bytes();
    let (sender, receiver) = oneshot::channel();
    let request = NestedRequest {
        function: "hello".to_owned(),
        content_type: String::new(),
        body: Vec::new(),
        caller_head,
        deadline: Instant::now() + Duration::from_secs(5),
        on_line: None,
        root_head: None,
        begun: None,
    };
    let _call = tenanted.gateway.nested_calls().begin(request, |end| drop(sender.send(end)));
    receiver.await.unwrap()
}

#[tokio::test]
async fn what_a_function_calls_counts_for_the_tenant_that_called_it() {
    let tenanted = tenanted();
    let key = tenanted.key("team", memory(1));
    let Some(gives) = *tenanted.house.fake.otherwise.lock().unwrap() else { panic!("no result") };
    let headers = [("x-api-key", key.as_str())];
    for (house, headers, expected) in [(&tenanted.house, &headers[..], 429), (&tenanted.owner, &[][..], 200)]
    {
        tenanted.script(Script::Hangs);
        let asked = tenanted.house.fake.requests.lock().unwrap().len();
        let call = house.get_with("/function/hello", headers);
        let mut call = std::pin::pin!(call);
        while tenanted.house.fake.requests.lock().unwrap().len() == asked {
            tokio::select! {
                biased;
                _ = &mut call => panic!("it hangs"),
                () = tokio::task::yield_now() => {}
            }
        }
        tenanted.script(gives);
        let end = nested(&tenanted).await;
        assert_eq!(end.status, expected, "{}", String::from_utf8_lossy(&end.body));
    }
}

#[tokio::test]
async fn a_call_that_is_made_later_counts_then_and_waits_for_room() {
    let tenanted = &tenanted();
    let _making = {
        let mut making = JoinSet::new();
        making.spawn(tenanted.gateway.make_calls(std::future::pending()));
        making
    };
    let small = tenanted.key("team", Quota { memory_bytes: 1, ..Quota::default() });
    let enough = tenanted.key("team", memory(1));
    let take = |key: &str| {
        let request = Request::post("/async-function/hello").header("x-api-key", key);
        tenanted.house.send(request.body(Body::empty()).unwrap())
    };
    let (waits, made) = (take(&small).await.json(), take(&enough).await.json());
    let state = |id: Value| async move {
        tenanted.owner.get(&format!("/v1/async/{}", id.as_str().unwrap())).await.json()
    };
    let until = |id: Value, wanted: fn(&Value) -> bool| async move {
        for _ in 0..2000 {
            let told = state(id.clone()).await;
            if wanted(&told) {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{id} does not get there");
    };
    until(made["id"].clone(), |told| told["state"] == "succeeded").await;
    let told = until(waits["id"].clone(), |told| told["reason"].is_string()).await;
    assert!(told["reason"].as_str().unwrap().contains("its quota is 1 MiB"), "{told}");
    assert_ne!(told["state"], "dead");
    assert_eq!(tenanted.owner.get("/v1/logs").await.json()["records"][0]["tenant"], "team");
}
