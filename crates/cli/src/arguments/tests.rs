// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use clap::CommandFactory;

use super::*;

#[test]
fn the_definition_is_consistent() {
    Arguments::command().debug_assert();
}

#[test]
fn json_is_wanted_also_by_what_cannot_be_parsed() {
    let wants = |line: &str, variable: Option<&str>| wants_json(line.split(' '), variable.map(OsStr::new));
    for line in [
        "-o json nonsense",
        "eval -o json",
        "-ojson",
        "--output=json x",
        "--output json",
        "-o=json",
        "-o human -o json",
    ] {
        assert!(wants(line, None) && wants(line, Some("human")), "{line}");
    }
    for line in ["", "nonsense", "-o human", "json", "--output", "eval json", "-o json -o human"] {
        assert!(!wants(line, None), "{line}");
    }
    assert!(wants("nonsense", Some("json")) && !wants("-o human", Some("json")));
}

#[test]
fn every_command_of_the_reference_parses() {
    for line in [
        "up --home /tmp/x --listen off --workers 2 --memory 1GiB --log-format json -o json",
        "put",
        "put a b",
        "put --tree dir --label x",
        "put --shards 4MiB file --progress",
        "get lit- --range 0..4 --to file",
        "ls name",
        "cat a b --range ..5",
        "eval 7u8 --deadline 10s --priority high --shallow --as u64 --progress",
        "label",
        "label x",
        "label x lit-",
        "label x --delete",
        "explain lit-",
        "gc --keep 2h --dry-run",
        "upgrade --home /tmp/x -o json",
        "doctor",
        "bench -n 100 --rounds 2",
        "version -o json",
        "completion bash",
        "sdk c --to vendor",
        "up --workers 1024 --memory 256MiB",
        "--node http://localhost:1 -vv --no-color version",
    ] {
        let words = std::iter::once("sinew").chain(line.split(' '));
        assert!(Arguments::try_parse_from(words).is_ok(), "{line}");
    }
    for line in [
        "",
        "nothing",
        "put --tree --shards 1 x",
        "label --delete",
        "label x y --delete",
        "cat",
        "eval",
        "eval 1u8 --as x",
        "bench -n 1",
        "completion tcsh7",
        "sdk",
        "up --workers 0",
        "up --workers 1025",
        "up --event-loops 0",
        "up --event-loops 65",
        "up --memory 255MiB",
    ] {
        let words = std::iter::once("sinew").chain(line.split(' ').filter(|word| !word.is_empty()));
        let error = Arguments::try_parse_from(words).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}
