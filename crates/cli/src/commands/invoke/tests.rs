// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use clap::Parser;

use hyper::Request;

use super::*;
use crate::client::Outgoing;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

fn asked(words: &[&str]) -> anyhow::Result<Request<Outgoing>> {
    let line =
        Line::try_parse_from(["invoke"].iter().chain(words)).map_err(|error| anyhow::anyhow!("{error}"))?;
    line.arguments.request.once("function", &line.arguments.name)
}

#[test]
fn arguments_become_a_request() {
    for (words, expected) in [
        (&["hello", "-d", "{\"a\": 1}"][..], "POST /function/hello application/json"),
        (&["hello", "-d", "text"], "POST /function/hello text/plain; charset=utf-8"),
        (&["hello", "-d", "", "-H", "Content-Type: a/b"], "POST /function/hello a/b"),
        (
            &["hello", "-d", "1", "--path", "/x?y=1", "-X", "put"],
            "PUT /function/hello/x?y=1 application/json",
        ),
        (&["hello", "-d", "1", "-p", "x"], "POST /function/hello/x application/json"),
        (&["hello", "--method", "GET", "-p", "?y=1"], "GET /function/hello?y=1 -"),
    ] {
        let request = asked(words).unwrap();
        let kind = request.headers().get(CONTENT_TYPE).map_or("-", |kind| kind.to_str().unwrap());
        assert_eq!(format!("{} {} {kind}", request.method(), request.uri()), expected);
    }
}

#[test]
fn wrong_arguments_are_usage_errors() {
    for words in [
        &["Hello", "-d", ""][..],
        &["hello", "-d", "", "-p", "a b"],
        &["hello", "-H", "novalue"],
        &["hello", "-H", "a\nb: c"],
        &["hello", "-d", "", "--file", "x"],
    ] {
        assert!(asked(words).is_err(), "{words:?}");
    }
    let error = asked(&["hello", "--file", "/nonexistent/file"]).unwrap_err();
    assert_eq!(error.downcast_ref::<Stop>().unwrap().code, Code::NotFound);
}
