// SPDX-License-Identifier: Apache-2.0
//! Reads `docs/spec/vectors/objects.json`. It was made by another
//! implementation than this crate, in Python, from the text of the
//! specification: a difference is a bug in one of the three.

use std::sync::LazyLock;

use serde_json::Value;

use crate::{Handle, Limits};

static VECTORS: LazyLock<Value> = LazyLock::new(|| {
    let text = include_str!("../../../../docs/spec/vectors/objects.json");
    serde_json::from_str(text).expect("the vectors are JSON")
});

/// The whole file.
pub(crate) fn vectors() -> &'static Value {
    &VECTORS
}

/// The cases of a list, of which there is at least one.
pub(crate) fn list(value: &Value) -> &[Value] {
    let cases = value.as_array().expect("a list");
    assert!(!cases.is_empty(), "an empty list of cases tests nothing");
    cases
}

/// The entries of a list that may be empty.
pub(crate) fn handles(value: &Value) -> Vec<Handle> {
    value.as_array().expect("a list").iter().map(handle).collect()
}

/// Text.
pub(crate) fn string(value: &Value) -> &str {
    value.as_str().expect("a string")
}

/// A number, written as one or as a decimal string.
pub(crate) fn number(value: &Value) -> u64 {
    match value {
        Value::String(digits) => digits.parse().expect("a decimal string"),
        _ => value.as_u64().expect("a number"),
    }
}

/// Hexadecimal bytes.
pub(crate) fn bytes(value: &Value) -> Vec<u8> {
    let digits = string(value).as_bytes();
    assert_eq!(digits.len() % 2, 0, "an even number of digits");
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a hexadecimal digit") as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// 32 hexadecimal bytes that need not be a handle.
pub(crate) fn raw_handle(value: &Value) -> [u8; Handle::LEN] {
    bytes(value).try_into().expect("32 bytes")
}

/// 32 hexadecimal bytes that are a handle.
pub(crate) fn handle(value: &Value) -> Handle {
    Handle::from_bytes(raw_handle(value)).expect("a handle")
}

/// A handle, or null.
pub(crate) fn optional_handle(value: &Value) -> Option<Handle> {
    (!value.is_null()).then(|| handle(value))
}

/// The limits that a case states.
pub(crate) fn limits(value: &Value) -> Limits {
    Limits {
        memory_bytes: number(&value["memory_bytes"]),
        fuel: number(&value["fuel"]),
        output_size_hint: number(&value["output_size_hint"]),
        fan_out_hint: number(&value["fan_out_hint"]).try_into().expect("32 bits"),
    }
}

/// The content of the long blobs of the vectors.
pub(crate) fn sample(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}
