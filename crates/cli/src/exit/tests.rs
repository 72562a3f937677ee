// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

fn problem(kind: &str, failure: Option<&str>) -> Value {
    let mut problem = json!({
        "type": format!("urn:sinew:problem:{kind}"), "title": "The title", "detail": "the detail",
        "request_id": "rid", "suggestion": "the advice",
    });
    if let Some(code) = failure {
        problem["failure"] = json!({"code": code, "application": "app-x", "detail": "why"});
    }
    problem
}

#[test]
fn problems_become_the_documented_codes() {
    let cases = [
        (422, problem("failure-trap", Some("trap")), 3),
        (404, problem("failure-missing-data", Some("missing-data")), 3),
        (504, problem("failure-deadline", Some("deadline")), 5),
        (499, problem("failure-cancelled", Some("cancelled")), 130),
        (404, problem("object-not-found", None), 4),
        (404, problem("no-such-route", None), 1),
        (401, problem("no-key", None), 6),
        (403, problem("host-not-allowed", None), 6),
        (400, problem("bad-json", None), 1),
        (503, problem("busy", None), 1),
        (502, Value::Null, 1),
    ];
    for (status, problem, expected) in cases {
        let error = anyhow::Error::from(Stop::from_problem(status, problem.clone()));
        assert_eq!(code(&error), expected, "{status} {problem}");
        // Also when somebody said more about it on the way.
        assert_eq!(code(&error.context("while doing something")), expected);
    }
}

#[test]
fn errors_say_what_why_and_what_next() {
    let error = anyhow::Error::from(Stop::from_problem(422, problem("failure-fuel", Some("fuel"))));
    let text = human(&error, false);
    for part in [
        "error: the title (fuel): why",
        "in app-x",
        "try: grant more: {fuel",
        "sinew explain app-x",
        "request: rid",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let line: Value = serde_json::from_str(&json(&error)).unwrap();
    assert_eq!(line["error"]["exit_code"], 3);
    assert_eq!(line["error"]["problem"]["failure"]["code"], "fuel");
    assert!(human(&error, true).starts_with("\x1b[1;31merror:"));
}

#[test]
fn a_reader_that_had_enough_is_no_error() {
    let pipe = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("writing");
    assert!(is_broken_pipe(&pipe));
    assert_eq!(code(&pipe), 0);
    assert_eq!(code(&anyhow::anyhow!("anything")), 1);
}

#[test]
fn advice_is_for_the_command_line() {
    let stop = Stop::from_problem(404, problem("object-not-found", None));
    assert!(stop.suggestion.is_some_and(|advice| advice.contains("sinew put")));
    let stop = Stop::from_problem(400, problem("bad-json", None));
    assert_eq!(stop.suggestion.as_deref(), Some("the advice"));
}
