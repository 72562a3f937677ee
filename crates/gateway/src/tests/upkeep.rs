// SPDX-License-Identifier: Apache-2.0
//! Checks, backups and restores: lines while they go on, and by which door they come.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

use super::fake::Fake;
use super::{Answer, House};
use crate::{Access, Door, Gateway, Keys as _, Options, Quota, Scope};

fn lines(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    answer
        .body
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

#[tokio::test]
async fn a_check_tells_how_far_it_is_what_it_finds_and_what_came_of_it() {
    let house = House::new();
    let lines = lines(&house.post_json("/v1/check", "{\"bytes_per_second\": 7}").await);
    let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["progress", "finding", "result"]);
    assert_eq!((&lines[0]["done"], &lines[0]["all"]), (&7.into(), &10.into()));
    assert_eq!((&lines[1]["harm"], &lines[1]["kind"]), (&"loss".into(), &"damaged".into()));
    assert_eq!((&lines[2]["losses"], &lines[2]["clean"]), (&1.into(), &false.into()));
    house.post_json("/v1/check", "{\"speed\": 7}").await.problem(400);
}

#[tokio::test]
async fn what_is_refused_at_once_is_a_problem() {
    let house = House::new();
    let taken = house.post_json("/v1/backup", r#"{"to": "/b/taken", "point": "p"}"#).await;
    assert_eq!(taken.problem(409), "bad-backup");
    let near = house.post_json("/v1/backup", r#"{"to": "b", "point": "p"}"#).await;
    assert_eq!(near.problem(400), "bad-path");
    let none = house.post_json("/v1/restore", r#"{"from": "/b", "labels": []}"#).await;
    assert_eq!(none.problem(400), "bad-restore");
    let done = lines(&house.post_json("/v1/backup", r#"{"to": "/b/new", "point": "p"}"#).await);
    assert_eq!((done.len(), &done[0]["labels"], &done[0]["point"]), (1, &3.into(), &"p".into()));
    let done = lines(&house.post_json("/v1/restore", r#"{"from": "/b", "labels": ["a", "b/"]}"#).await);
    assert_eq!((&done[0]["labels"], &done[0]["point"]), (&2.into(), &"newest".into()));
}

#[tokio::test]
async fn paths_are_taken_over_the_owners_socket_alone() {
    for access in [Access::Local, Access::Keyed] {
        let fake = Arc::new(Fake::new());
        let router = Gateway::new(fake.clone(), Options::default()).router(Door::Private, access);
        let house = House { fake, router };
        let key = house.fake.keys.create("team", Scope::Admin, Quota::default()).unwrap().1;
        let deploy = house.fake.keys.create("team", Scope::Deploy, Quota::default()).unwrap().1;
        let post = async |path: &str, key: &str, body: &str| {
            let request =
                Request::post(path).header("content-type", "application/json").header("x-api-key", key);
            house.send(request.body(Body::from(body.to_owned())).unwrap()).await
        };
        for (path, body) in [
            ("/v1/backup", r#"{"to": "/etc/cron.d", "point": "p"}"#),
            ("/v1/restore", r#"{"from": "/b", "labels": ["a"]}"#),
        ] {
            assert_eq!(post(path, &key, body).await.problem(403), "owner-only", "{path}");
            assert_eq!(post(path, &deploy, body).await.problem(403), "scope-missing", "{path}");
        }
        assert_eq!(post("/v1/check", &key, "{}").await.status, 200);
        assert_eq!(post("/v1/check", &deploy, "{}").await.problem(403), "scope-missing");
    }
}

#[tokio::test]
async fn it_stops_when_nobody_waits() {
    let house = House::new();
    let request = Request::post("/v1/backup").header("content-type", "application/json");
    let request = request.body(Body::from(r#"{"to": "/b/endless", "point": "p"}"#)).unwrap();
    let mut response = house.router.clone().oneshot(request).await.unwrap();
    response.body_mut().frame().await.unwrap().unwrap();
    drop(response);
    // The thread has the fake for as long as it works.
    let weak = Arc::downgrade(&house.fake);
    drop(house);
    let mut waited = 0;
    while weak.upgrade().is_some() {
        waited += 1;
        assert!(waited < 500, "it goes on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
