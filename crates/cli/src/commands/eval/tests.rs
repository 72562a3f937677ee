// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

#[test]
fn blobs_in_every_form() {
    let shown = |bytes: &[u8], form| rendered(bytes, form).ok().flatten();
    assert_eq!(shown(b"hi", Form::Auto).as_deref(), Some("hi\n"));
    assert_eq!(shown(b"hi\n", Form::Auto).as_deref(), Some("hi\n"));
    assert_eq!(shown(b"", Form::Auto).as_deref(), Some(""));
    assert_eq!(shown(&[7, 0], Form::Auto).as_deref(), Some("0x0700\n"));
    assert_eq!(shown(&[0; 5000], Form::Auto), None);
    assert_eq!(shown(b"hi", Form::Hex).as_deref(), Some("0x6869\n"));
    assert_eq!(shown(&[7], Form::U64).as_deref(), Some("7\n"));
    assert_eq!(shown(b"", Form::U64).as_deref(), Some("0\n"));
    assert_eq!(shown(&[0xff; 8], Form::U64).as_deref(), Some("18446744073709551615\n"));
    assert!(rendered(&[0; 9], Form::U64).is_err());
    assert_eq!(shown(b"\x1bok", Form::Utf8).as_deref(), Some("\x1bok\n"));
    assert!(rendered(&[0xff], Form::Utf8).is_err());
}

#[test]
fn what_an_answer_cost() {
    assert_eq!(cost(&json!({"applied": 1234, "memo_hit": false, "wall_ns": 1500})), "1,234 applied, 1.50 µs");
    assert_eq!(
        cost(&json!({"applied": 0, "memo_hit": true, "wall_ns": 500})),
        "nothing had to be run, 500 ns"
    );
}

#[test]
fn a_missing_file_s_neighbour_is_found() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("add.wasm"), "").unwrap();
    let wrong = folder.path().join("ad.wasm").display().to_string();
    assert_eq!(near_file(&wrong), Some(folder.path().join("add.wasm").display().to_string()));
    assert_eq!(near_file(&folder.path().join("other").display().to_string()), None);
}
