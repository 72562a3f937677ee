// SPDX-License-Identifier: Apache-2.0
//! Functions by host names of their own, those that need no key, and what they are told of who asks.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use objects::Handle;
use serde_json::{Value, json};

use super::fake::Fake;
use super::{Answer, House};
use crate::{Access, Door, Gateway, Keys, Options, Peer, Quota, Routed, Scope, TrustedProxies};

/// A shop that is public, and a back office that is not.
fn house(door: Door, access: Access) -> House {
    let fake = Arc::new(Fake::new());
    fake.functions.add("shop", 2, |served| {
        served.hosts = vec!["shop.example".to_owned()];
        served.is_public = true;
    });
    fake.functions.add("office", 1, |served| served.hosts = vec!["office.example".to_owned()]);
    fake.functions.add("half", 2, |served| served.is_public = served.version == 2);
    // No endpoint of the node's answers so.
    fake.gives("{\"status\": 202}", b"hi");
    let trusted_proxies = TrustedProxies::and(["10.0.0.0/8".parse().unwrap()]);
    let options = Options { trusted_proxies, ..Options::default() };
    let router = Gateway::new(fake.clone(), options).router(door, access);
    House { fake, router }
}

fn at_loopback() -> House {
    house(Door::loopback(), Access::Local)
}

impl House {
    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::empty()).unwrap()).await
    }

    fn is_told(&self) -> Value {
        self.fake.last_call().0
    }
}

#[tokio::test]
async fn all_that_is_asked_for_by_a_functions_host_is_its_own() {
    let house = at_loopback();
    for host in ["shop.example", "SHOP.example:8080", "shop.localhost", "shop.localhost:8080"] {
        for (method, path) in [
            ("GET", "/"),
            ("GET", "/v1/status"),
            ("POST", "/v1/blobs"),
            ("DELETE", "/function/office"),
            ("HEAD", "/dashboard/"),
            ("GET", "/healthz"),
        ] {
            // It is public, so that pages of others may ask it, as far as the node is concerned.
            let answer =
                house.ask(method, path, &[("host", host), ("origin", "https://other.example")]).await;
            assert_eq!(answer.status, 202, "{host} {method} {path}");
            assert!(!answer.headers.contains_key("content-security-policy"), "its origin is its own");
            let told = house.is_told();
            assert_eq!(
                (&told["function"], &told["path"], &told["method"]),
                (&json!("shop"), &json!(path), &json!(method))
            );
            assert_eq!((&told["route"], &told["params"]), (&json!("/{*rest}"), &json!([])));
        }
    }
    // The same function by its name has no origin, for that is the node's.
    let answer = house.ask("GET", "/function/shop", &[("host", "localhost")]).await;
    assert!(answer.header("content-security-policy").starts_with("sandbox"), "{}", answer.status);
}

#[tokio::test]
async fn a_functions_own_routes_have_their_parameters_at_its_host() {
    let house = at_loopback();
    let routed = |function: &str| Routed {
        function: function.to_owned(),
        pattern: "/users/{id}".to_owned(),
        params: vec![("id".to_owned(), "7".to_owned())],
        at_home: false,
    };
    house.fake.functions.routes.lock().unwrap().push(("GET /users/7".to_owned(), routed("shop")));
    let answer = house.ask("GET", "/users/7", &[("host", "shop.example")]).await;
    assert!(answer.status == 202 && !answer.headers.contains_key("content-security-policy"));
    assert_eq!(house.is_told()["params"], json!([["id", "7"]]));
    // Another one's are nothing to it.
    house.ask("GET", "/users/7", &[("host", "office.example")]).await;
    let told = house.is_told();
    assert_eq!((&told["function"], &told["params"]), (&json!("office"), &json!([])));
}

#[tokio::test]
async fn the_node_is_not_where_functions_are() {
    let house = at_loopback();
    for host in
        ["nobody.localhost", "nobody.localhost:1", "a.shop.localhost", "1gone.localhost", "1.shop.localhost"]
    {
        for path in ["/", "/v1/status", "/function/shop"] {
            assert_eq!(
                house.ask("GET", path, &[("host", host)]).await.problem(404),
                "function-not-found",
                "{host}"
            );
        }
    }
    assert_eq!(house.ask("GET", "/v1/status", &[("host", "localhost:1")]).await.status, 200);
    // What is nobody's is refused as ever.
    for host in ["example", "other.example", "xshop.example", "shop.example.evil", "shop.example."] {
        let answer = house.ask("GET", "/", &[("host", host)]).await;
        assert_eq!(answer.problem(403), "host-not-allowed", "{host}");
    }
    let twice = house.ask("GET", "/", &[("host", "shop.example"), ("host", "localhost")]).await;
    assert_eq!(twice.problem(400), "bad-host");
    // A page of others may not ask what is not public, which needs no key here.
    for host in ["office.example", "office.localhost:1"] {
        let page = [("host", host), ("origin", "https://evil.example")];
        assert_eq!(house.ask("POST", "/", &page).await.problem(403), "origin-not-allowed");
        let own = format!("http://{host}");
        assert_eq!(house.ask("POST", "/", &[("host", host), ("origin", &own)]).await.status, 202);
    }
    // A page of a function may not ask the node.
    let page = [("host", "localhost:1"), ("origin", "http://shop.localhost:1")];
    assert_eq!(house.ask("GET", "/v1/status", &page).await.problem(403), "origin-not-allowed");
    // And who does not speak TLS where it is spoken is told so.
    let plain = self::house(Door::NeedsTls, Access::Keyed);
    assert_eq!(plain.ask("GET", "/", &[("host", "shop.example")]).await.problem(400), "needs-tls");
}

#[tokio::test]
async fn what_is_public_needs_no_key_and_nothing_else_does_without() {
    let house = house(Door::Private, Access::Keyed);
    let routed = |function: &str| Routed {
        function: function.to_owned(),
        pattern: "/".to_owned(),
        params: Vec::new(),
        at_home: false,
    };
    let routes = [("GET /of-shop", "shop"), ("GET /of-office", "office")];
    routes.iter().for_each(|(route, name)| {
        house.fake.functions.routes.lock().unwrap().push(((*route).to_owned(), routed(name)));
    });
    let key = house.fake.keys.create("team", Scope::Invoke, Quota::default()).unwrap().1;
    let open = [
        ("POST", "/function/shop", "node"),
        ("GET", "/function/shop/a/b?c", "node"),
        ("HEAD", "/function/shop", "node"),
        ("GET", "/function/shop:1", "node"),
        ("GET", "/of-shop", "node"),
        ("GET", "/v1/status", "shop.example"),
        ("GET", "/", "shop.localhost"),
    ];
    for (method, path, host) in open {
        assert_eq!(house.ask(method, path, &[("host", host)]).await.status, 202, "{method} {path} {host}");
        // What is another one's key is the function's to look at; what is a wrong one of ours is refused.
        let other = [("host", host), ("authorization", "Bearer abc")];
        assert_eq!(house.ask(method, path, &other).await.status, 202);
        let wrong = [("host", host), ("authorization", "Bearer sinew_no_key")];
        assert_eq!(house.ask(method, path, &wrong).await.status, 401);
        let right = format!("Bearer {key}");
        assert_eq!(house.ask(method, path, &[("host", host), ("authorization", &right)]).await.status, 202);
    }
    let shut = [
        ("POST", "/function/office", "node"),
        ("POST", "/function/half", "node"),
        ("POST", "/function/half:1", "node"),
        ("POST", "/function/half:2", "node"),
        ("POST", "/function/nobody", "node"),
        ("POST", "/function/shop:9", "node"),
        ("POST", "/async-function/shop", "node"),
        ("POST", "/2015-03-31/functions/shop/invocations", "node"),
        ("GET", "/v1/status", "node"),
        ("GET", "/v1/functions/shop", "node"),
        ("GET", "/of-office", "node"),
        ("GET", "/nowhere", "node"),
        ("GET", "/", "office.example"),
    ];
    for (method, path, host) in shut {
        assert_eq!(house.ask(method, path, &[("host", host)]).await.status, 401, "{method} {path} {host}");
    }
}

#[tokio::test]
async fn whom_a_proxy_on_this_machine_asks_for_needs_a_key() {
    for access in [Access::Local, Access::Owner] {
        let house = house(Door::Private, access);
        let key = house.fake.keys.create("team", Scope::Deploy, Quota::default()).unwrap().1;
        let right = format!("Bearer {key}");
        for (path, host) in
            [("/v1/status", "localhost"), ("/function/office", "localhost"), ("/", "office.localhost")]
        {
            let (open, key) = (("host", host), ("authorization", right.as_str()));
            assert_ne!(house.ask("GET", path, &[open]).await.status, 401);
            for name in ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-real-ip", "forwarded"]
            {
                let passed_on = (name, "203.0.113.9");
                assert_eq!(house.ask("GET", path, &[open, passed_on]).await.status, 401, "{path} {name}");
                assert_ne!(house.ask("GET", path, &[open, passed_on, key]).await.status, 401);
            }
        }
        let public = [("host", "shop.example"), ("x-forwarded-for", "203.0.113.9")];
        assert_eq!(house.ask("GET", "/", &public).await.status, 202);
    }
}

#[tokio::test]
async fn a_new_host_name_takes_an_administrator() {
    let claim = |house: House, headers: Vec<(&'static str, String)>, name: &'static str| async move {
        let deployment = Handle::blob(b"a deployment");
        let mut request =
            Request::put(format!("/v1/functions/{name}")).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let body = format!("{{\"deployment\": \"{deployment}\"}}");
        house.send(request.body(Body::from(body)).unwrap()).await.status.as_u16()
    };
    let bearer = |house: &House, scope| {
        let key = house.fake.keys.create("team", scope, Quota::default()).unwrap().1;
        vec![("authorization", format!("Bearer {key}"))]
    };
    // What the fake refuses for another reason has passed.
    let passed = claim(house(Door::Private, Access::Owner), Vec::new(), "claims").await;
    assert_ne!(passed, 403);
    for (access, scope, name, expected) in [
        (Access::Owner, None, "claims", passed),
        (Access::Local, None, "claims", passed),
        (Access::Keyed, Some(Scope::Admin), "claims", passed),
        (Access::Keyed, Some(Scope::Deploy), "claims", 403),
        (Access::Keyed, Some(Scope::Deploy), "other", passed),
        (Access::Local, Some(Scope::Deploy), "claims", 403),
    ] {
        let house = house(Door::Private, access);
        let headers = scope.map_or_else(Vec::new, |scope| bearer(&house, scope));
        assert_eq!(claim(house, headers, name).await, expected, "{access:?} {scope:?} {name}");
    }
    // Whoever brings none where there are keys is no administrator.
    let house = house(Door::Private, Access::Local);
    _ = bearer(&house, Scope::Admin);
    assert_eq!(claim(house, Vec::new(), "claims").await, 403);
}

#[tokio::test]
async fn functions_are_told_who_asks() {
    let house = at_loopback();
    let ask = |address: &str, is_secure, headers: Vec<(&'static str, &'static str)>| {
        let address = (!address.is_empty()).then(|| address.parse::<IpAddr>().unwrap());
        let mut request = Request::get("/function/shop").header("host", "localhost");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(Peer { address, is_secure });
        request
    };
    let said = vec![("x-forwarded-for", "203.0.113.9"), ("x-forwarded-proto", "https")];
    let cases = [
        (ask("192.0.2.7", false, Vec::new()), json!("192.0.2.7"), Value::Null),
        (ask("2001:db8::7", true, Vec::new()), json!("2001:db8::7"), json!("https")),
        (ask("", false, Vec::new()), Value::Null, Value::Null),
        (ask("10.0.0.1", false, said.clone()), json!("203.0.113.9"), json!("https")),
        (ask("192.0.2.7", false, said), json!("192.0.2.7"), Value::Null),
    ];
    for (at, (request, client, scheme)) in cases.into_iter().enumerate() {
        assert_eq!(house.send(request).await.status, 202);
        let told = house.is_told();
        assert_eq!((&told["client"], &told["scheme"]), (&client, &scheme), "{at}");
        let passed = told["headers"].to_string().contains("x-forwarded");
        assert_eq!(passed, at == 3, "what does not count is not passed on: {told}");
    }
}
