// SPDX-License-Identifier: Apache-2.0
//! Which names are labels.

use objects::Handle;

use super::{LABEL_LEN_MAX, check_name};
use crate::Error;

#[test]
fn names_of_letters_digits_and_four_signs_are_labels() {
    for name in [
        "a",
        "0",
        "app-server",
        "images/v1.2_final-x",
        "a/..b/.c",
        "blob-and-more",
        &"x".repeat(LABEL_LEN_MAX),
    ] {
        assert!(check_name(name).is_ok(), "{name}");
    }
}

#[test]
fn everything_else_is_refused_with_its_reason() {
    let handle = Handle::blob(&[7; 100]);
    let strict = handle.identification().and_then(Handle::strict);
    let too_long = "x".repeat(LABEL_LEN_MAX + 1);
    let names = [
        ("", "empty"),
        (too_long.as_str(), "128"),
        ("with space", "allowed"),
        ("new\nline", "allowed"),
        ("größe", "allowed"),
        ("nul\0", "allowed"),
        ("../../etc", "slashes"),
        ("a/./b", "slashes"),
        ("/a", "slashes"),
        ("a/", "slashes"),
        ("a//b", "slashes"),
        ("lit-6869", "handle"),
        (&handle.to_string(), "handle"),
        (&strict.map(|strict| strict.to_string()).unwrap_or_default(), "handle"),
    ];
    for (name, reason) in names {
        let error = check_name(name).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(reason), "{name:?}: {error:?}");
    }
    let Err(Error::BadLabel { name, .. }) = check_name(&"y".repeat(1 << 20)) else { unreachable!() };
    assert_eq!(name.len(), LABEL_LEN_MAX, "an error does not repeat a megabyte");
}
