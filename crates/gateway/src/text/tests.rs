// SPDX-License-Identifier: Apache-2.0
use super::{check_label, hex, parse_handle, shortened};

#[test]
fn long_text_is_cut_between_characters() {
    assert_eq!(shortened("short"), "short");
    let crabs = "\u{1F980}".repeat(500);
    assert_eq!(shortened(&crabs).chars().count(), 161);
}

#[test]
fn labels_are_not_handles() {
    assert!(check_label("lit-x").is_ok());
    assert!(check_label("lit-00").is_err());
    assert!(check_label(&"ä".repeat(3)).is_err());
}

#[test]
fn handles_survive_the_round_trip() {
    assert!(parse_handle("lit-00ff").is_ok_and(|handle| handle.to_string() == "lit-00ff"));
    assert_eq!(hex(&[0, 0xff, 0x1a]), "00ff1a");
}
