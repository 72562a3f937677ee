// SPDX-License-Identifier: Apache-2.0
//! What was dropped is waited for, by whoever reads it and by exports.

use std::time::Duration;

use ::objects::Handle;
use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use super::*;
use crate::{ExportError, Exported};

/// An object that was dropped, and whose making takes so long.
fn dropped(house: &House, byte: u8, time: Duration) -> Handle {
    let bytes = vec![byte; 100];
    let handle = Handle::blob(&bytes);
    house.fake.droppings.lock().unwrap().insert(handle, (time, bytes));
    handle
}

async fn export(house: &House, object: Handle) -> Answer {
    let wish = json!({"object": object.to_string(), "url": "s3://bucket/key"});
    let request = Request::post("/v1/export").header("content-type", "application/json");
    house.send(request.body(Body::from(wish.to_string())).unwrap()).await
}

fn wrote(written: u64) -> Exported {
    Exported { written, written_bytes: 10 * written, ..Exported::default() }
}

#[tokio::test]
async fn who_reads_what_was_dropped_waits_for_longer_than_other_requests_may_take() {
    let timeout = Duration::from_millis(50);
    let house = House::with(Options { answer_timeout: timeout, ..Options::default() });
    let slow = dropped(&house, 1, 6 * timeout);
    let begun = std::time::Instant::now();
    let answer = house.get(&format!("/v1/objects/{slow}")).await;
    assert_eq!((answer.status.as_u16(), answer.body), (200, vec![1; 100]));
    assert!(begun.elapsed() >= 6 * timeout, "it was waited for");
    // So does an export, and a part.
    let other = dropped(&house, 2, 6 * timeout);
    house.fake.export_ends.lock().unwrap().push(Err(ExportError::missing(other)));
    assert_eq!(export(&house, other).await.status.as_u16(), 200);
    let part = dropped(&house, 3, 6 * timeout);
    let answer = house.get_with(&format!("/v1/objects/{part}"), &[("range", "bytes=0-4")]).await;
    assert_eq!((answer.status.as_u16(), answer.body), (206, vec![3; 5]));
}

#[tokio::test]
async fn an_export_goes_on_with_what_was_missing_until_nothing_is() {
    let house = House::new();
    let directory = Handle::blob(b"stands for a directory");
    let [names, one, two] = [4, 5, 6].map(|byte| dropped(&house, byte, Duration::ZERO));
    let missing = |missing: Vec<Handle>, exported| Err(ExportError::Missing { missing, exported });
    // The last first: names, without which nothing is listed; two files; one of them once more,
    // since memory was short.
    *house.fake.export_ends.lock().unwrap() = vec![
        Ok(wrote(1)),
        missing(vec![two], wrote(1)),
        missing(vec![one, two], wrote(7)),
        missing(vec![names], wrote(0)),
    ];
    let answer = export(&house, directory).await;
    assert_eq!(answer.status.as_u16(), 200, "{}", answer.json());
    assert_eq!((&answer.json()["written"], &answer.json()["written_bytes"]), (&9.into(), &90.into()));
    let asked: Vec<Vec<Handle>> =
        house.fake.exports.lock().unwrap().iter().map(|asked| asked.only.clone()).collect();
    assert_eq!(asked, [vec![], vec![names], vec![one, two], vec![two]]);
    // What never stays is missing in the end, and what nobody can make at once.
    house.fake.exports.lock().unwrap().clear();
    *house.fake.export_ends.lock().unwrap() = (0..100).map(|_| missing(vec![one], wrote(0))).collect();
    assert_eq!(export(&house, directory).await.problem(404), "object-not-found");
    assert_eq!(house.fake.exports.lock().unwrap().len(), 17, "it ends");
    house.fake.export_ends.lock().unwrap().clear();
    let gone = Handle::blob(b"nobody knows how it was made, and nobody has it");
    house.fake.export_ends.lock().unwrap().push(missing(vec![gone], wrote(3)));
    assert_eq!(export(&house, directory).await.problem(404), "object-not-found");
}
