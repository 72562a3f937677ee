// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use axum::response::IntoResponse;
use objects::{Failure, FailureCode, Handle};
use serde_json::Value;

use super::Problem;

#[test]
fn a_failure_names_the_application_and_what_to_do() {
    let application = Handle::tree(&[]).unwrap().application().unwrap();
    let failure = Failure { code: FailureCode::Fuel, application, detail: Handle::blob(b"x") };
    let problem = Problem::failure(failure.to_tree().0, &failure, "after 10 units".to_owned());
    let json: Value = serde_json::from_slice(&problem.to_json("id")).unwrap();
    assert_eq!(json["type"], "urn:sinew:problem:failure-fuel");
    assert_eq!(json["failure"]["application"], application.to_string());
    assert_eq!(json["failure"]["deterministic"], true);
    assert!(json["suggestion"].as_str().unwrap().contains("fuel"));
    assert_eq!(problem.into_response().status(), 422);
}

#[test]
fn busy_says_when_to_come_back() {
    let response = Problem::busy("gateway", "full").into_response();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (503, &"1".parse().unwrap())
    );
}

#[test]
fn the_store_s_refusals_are_told_from_its_troubles() {
    let bad_label = store::Error::BadLabel { name: "x y".to_owned(), reason: "it has a space" };
    let full = store::Error::Full { needed_bytes: 1, budget_bytes: 2 };
    let io = store::Error::Io { path: "/x".into(), source: std::io::Error::other("no") };
    let cases = [
        (bad_label, 400),
        (store::Error::TooLarge, 413),
        (store::Error::TooManyLabels, 409),
        (full, 507),
        (store::Error::Closed, 503),
        (io, 500),
    ];
    for (error, status) in cases {
        assert_eq!(Problem::store(&error).status().as_u16(), status, "{error}");
    }
}
