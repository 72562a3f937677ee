// SPDX-License-Identifier: Apache-2.0
//! The rules by which codelets are found and named.

#![allow(clippy::unwrap_used)]

use super::*;

mod sandboxed;

#[test]
fn a_library_has_the_name_of_its_manifest() {
    let manifest = |name: &str| guests().join("codelets/rust").join(name).join("Cargo.toml");
    assert_eq!(library_name(&manifest("get-file"), "get-file").unwrap(), "get_file");
    // `if` is a word of the language and cannot name a crate.
    assert_eq!(library_name(&manifest("if"), "if").unwrap(), "if_");
}

#[test]
fn every_language_has_the_paper_s_procedures() {
    for (language, extension) in [("c", Some("c")), ("wat", Some("wat")), ("rust", None)] {
        let found = entries(&guests().join("codelets").join(language), extension).unwrap();
        let names: Vec<String> = found.iter().map(|path| stem(path).unwrap()).collect();
        for name in ["add", "fib", "if", "inc"] {
            assert!(names.iter().any(|found| found == name), "{name} in {language}: {names:?}");
        }
    }
}

#[test]
fn wat_codelets_are_valid_text() {
    for source in entries(&guests().join("codelets/wat"), Some("wat")).unwrap() {
        assert!(::wat::parse_file(&source).is_ok(), "{}", source.display());
    }
}
