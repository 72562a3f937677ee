// SPDX-License-Identifier: Apache-2.0
//! What is acknowledged in memory waits for the disk, and not without limit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::StatusCode;
use objects::{BundleWriter, Handle, TreeBuilder};
use serde_json::json;

use super::House;
use super::fake::Fake;
use crate::{Access, BUNDLE_MEDIA_TYPE, Door, Gateway, Options};

const BRIEFLY: Duration = Duration::from_millis(50);

fn house(units: u64) -> (Gateway, House) {
    let fake = Arc::new(Fake::new());
    let options = Options { behind_max_bytes: units << 16, ..Options::default() };
    let gateway = Gateway::new(fake.clone(), options);
    let router = gateway.router(Door::Private, Access::Owner);
    (gateway, House { fake, router })
}

fn bundle(blobs: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = BundleWriter::new();
    blobs.iter().for_each(|blob| _ = writer.blob(blob));
    writer.finish()
}

async fn waits(house: &House) -> u64 {
    let metrics = String::from_utf8(house.get("/metrics").await.body).unwrap();
    let line = metrics.lines().find(|line| line.starts_with("sinew_behind_bytes ")).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_finds_no_place_is_written_before_the_answer() {
    let (gateway, house) = house(4);
    let blobs: Vec<Vec<u8>> = (0..4).map(|at| vec![at; 40_000]).collect();
    let handles: Vec<Handle> = blobs.iter().map(|blob| Handle::blob(blob)).collect();
    house.fake.disk_stands.store(true, Ordering::SeqCst);
    let put = async |path: &str, kind: &str, body: Vec<u8>| {
        tokio::time::timeout(BRIEFLY * 100, house.post(path, kind, body)).await.unwrap().status
    };
    // One place, one, and two.
    assert_eq!(put("/v1/blobs?until=memory", "text/plain", blobs[0].clone()).await, StatusCode::CREATED);
    let tree: TreeBuilder = [handles[0]].into_iter().collect();
    let tree_handle = tree.view().handle();
    let entries = json!({"entries": [handles[0].to_string()]}).to_string().into_bytes();
    assert_eq!(put("/v1/trees?until=memory", "application/json", entries).await, StatusCode::CREATED);
    let two = bundle(&blobs[1..3]);
    assert_eq!(put("/v1/bundles?until=memory", BUNDLE_MEDIA_TYPE, two).await, StatusCode::CREATED);
    assert_eq!(waits(&house).await, 4 << 16);
    // No place is left: this one is answered when it is on the disk, which takes nothing.
    let late = house.post("/v1/bundles?until=memory", BUNDLE_MEDIA_TYPE, bundle(&blobs[3..]));
    tokio::pin!(late);
    assert!(tokio::time::timeout(BRIEFLY, &mut late).await.is_err());
    tokio::time::timeout(BRIEFLY, gateway.settled()).await.unwrap_err();
    assert!(house.fake.commits.lock().unwrap().is_empty());
    house.fake.disk_stands.store(false, Ordering::SeqCst);
    assert_eq!(late.await.status, StatusCode::CREATED);
    gateway.settled().await;
    assert_eq!(waits(&house).await, 0);
    let commits = house.fake.commits.lock().unwrap();
    let mut written = commits.concat();
    written.sort_unstable();
    let mut all = [handles, vec![tree_handle]].concat();
    all.sort_unstable();
    assert_eq!(written, all);
    // What came while the first was written went together.
    assert!(commits.len() <= 3, "{commits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_longer_than_all_that_may_wait_is_written_at_once() {
    let (gateway, house) = house(1);
    let answer = house.post("/v1/bundles?until=memory", BUNDLE_MEDIA_TYPE, bundle(&[vec![7; 70_000]])).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    assert_eq!(house.fake.commits.lock().unwrap().len(), 1);
    gateway.settled().await;
}
