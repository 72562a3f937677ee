// SPDX-License-Identifier: Apache-2.0
use super::is_sane;

#[test]
fn only_safe_names_of_up_to_64_characters() {
    assert!(is_sane("a") && is_sane("A-9._z") && is_sane(&"x".repeat(64)));
    assert!(!is_sane("") && !is_sane("a/b") && !is_sane("é") && !is_sane(&"x".repeat(65)));
}
