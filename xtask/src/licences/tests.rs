// SPDX-License-Identifier: Apache-2.0
//! Licence expressions.

#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn expressions_are_understood() {
    let allowed = allowed("[licenses]\nallow = [\"MIT\", \"Apache-2.0\", \"A WITH e\"]\n").unwrap();
    for fine in [
        "MIT",
        "MIT OR GPL-3.0",
        "GPL-3.0/Apache-2.0",
        "MIT AND Apache-2.0",
        "(GPL-3.0 OR MIT) AND Apache-2.0",
        "A WITH e OR GPL-3.0",
        "GPL-3.0 OR (MIT AND (Apache-2.0))",
    ] {
        assert!(is_allowed(fine, &allowed), "{fine}");
    }
    for refused in
        ["", "GPL-3.0", "MIT AND GPL-3.0", "A", "MIT)", "(MIT", "MIT OR", "GPL-3.0 OR (MIT AND BSD)"]
    {
        assert!(!is_allowed(refused, &allowed), "{refused}");
    }
}
