// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use super::directories::Mount;
use super::options::parse_time;
use super::*;

#[test]
fn directories_as_they_are_written() {
    let parse = |text: &str| {
        Mount::parse(text)
            .map(|mount| (mount.host_path().map(PathBuf::from), mount.guest, mount.is_read_only))
    };
    let path = |text: &str| Some(PathBuf::from(text));
    assert_eq!(parse("data=/in").unwrap(), (path("data"), "/in".to_owned(), false));
    assert_eq!(parse(".").unwrap(), (path("."), ".".to_owned(), false));
    assert_eq!(parse("data:ro").unwrap(), (None, "data".to_owned(), true));
    assert_eq!(parse("/a=/b=c:ro").unwrap(), (None, "/b=c".to_owned(), true));
    assert_eq!(parse("#lib=/usr").unwrap(), (None, "/usr".to_owned(), false));
    for wrong in ["", "=/in", "data=", ":ro", "#lib"] {
        assert_eq!(parse(wrong).unwrap_err().code, Code::Usage, "{wrong:?}");
    }
}

#[test]
fn entries_as_they_are_written() {
    let entry = application::entry_of;
    assert_eq!(entry(b"run").unwrap(), (&b"run"[..], None));
    assert_eq!(entry(b"turn:make=a=b:c").unwrap(), (&b"turn"[..], Some((&b"make"[..], &b"a=b:c"[..]))));
    assert_eq!(entry(b"turn:make").unwrap_err().code, Code::Usage);
}

#[test]
fn times_as_they_are_written() {
    assert_eq!(parse_time("1000000000"), Ok(1_000_000_000_000_000_000));
    assert!(parse_time("now").unwrap() > 1_700_000_000_000_000_000);
    assert!(parse_time("yesterday").is_err() && parse_time("99999999999999").is_err());
}
